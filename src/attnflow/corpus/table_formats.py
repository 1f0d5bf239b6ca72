"""Corpora in records: Parquet files and Hugging Face data sets, read as a stream."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from attnflow.corpus.example import Row, check_value, choose_column, choose_text_column
from attnflow.corpus.packages import import_datasets, import_pyarrow
from attnflow.errors import FileError, InputError, SelectionError

AT_ONCE = 1024  # rows read at a time
# Names of Arrow's types that can hold text.
TEXTUAL = (
    *("string", "large_string", "string_view"),
    *("binary", "large_binary", "binary_view", "fixed_size_binary"),
)
SHOWN = 300  # characters of an error of datasets
PEEK = 100  # records looked at to find the columns of a stream that does not name them


def open_parquet(path: Path) -> Any:
    """Open a Parquet file. Raises FileError if it is none."""
    pyarrow = import_pyarrow("reading Parquet")
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error


def read_parquet(path: Path, text_column: str | None, id_column: str | None) -> Iterator[Row]:
    """One example for each row.

    Raises InputError or SelectionError if there is no such column, or it holds no text.
    """
    pyarrow = import_pyarrow("reading Parquet")
    with open_parquet(path) as file:
        schema = file.schema_arrow
        column = choose_text_column(schema.names, text_column, str(path))
        names = None if id_column is None else choose_column(schema.names, id_column, str(path))
        _require_text(pyarrow, path, column, schema.field(column).type)
        wanted = [column] if names in (None, column) else [column, names]
        index = 0
        try:
            for batch in file.iter_batches(batch_size=AT_ONCE, columns=wanted):
                texts = _to_bytes(pyarrow, batch.column(column))
                ids = [None] * len(texts) if names is None else _to_python(batch.column(names))
                for name, text in zip(ids, texts, strict=True):
                    yield check_value(index, name, text)
                    index += 1
        except (OSError, pyarrow.ArrowException) as error:
            raise _unreadable(path, error) from error


def _to_bytes(pyarrow: Any, column: Any) -> list[bytes | None]:
    """Texts as bytes, which may be no UTF-8 whatever the file says."""
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_fixed_size_binary(column.type):
        return list(column.to_pylist())
    return list(column.cast(pyarrow.large_binary()).to_pylist())


def _to_python(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        pyarrow = import_pyarrow("reading Parquet")
        return list(column.cast(pyarrow.large_binary()).to_pylist())


def _require_text(pyarrow: Any, path: Path, column: str, kind: Any) -> None:
    value = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    if any(getattr(pyarrow.types, f"is_{name}")(value) for name in TEXTUAL):
        return
    raise InputError(
        f"the column {column!r} of {path} holds {kind}",
        expected="text",
        fix="Name the column that holds the texts with --text-column (text_column=...).",
    )


def _unreadable(path: Path, error: Exception) -> FileError:
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return FileError(
        f"{path} cannot be read ({why})",
        expected="a Parquet file",
        fix="Write it again, or name its format with --format (format=...).",
    )


def load_dataset(address: str) -> tuple[str, Any]:
    """The data set of an address `hf:name[:split]` or `hf:name:configuration:split`, as a stream.

    Returns its name with the split, and the stream.
    Raises FileError if there is none, InputError if the split must be named.
    """
    datasets = import_datasets("reading hf: data sets")
    name, *rest = address.removeprefix("hf:").split(":")
    configuration = rest[0] if len(rest) == 2 else None
    split = rest[-1] if rest else None
    if not name or len(rest) > 2 or "" in rest:
        raise InputError(
            f"the input is {address!r}",
            expected="hf:name, hf:name:split or hf:name:configuration:split",
            fix="Write it like that.",
        )
    try:
        found = datasets.load_dataset(name, configuration, split=split, streaming=True)
    except Exception as error:  # datasets raises whatever its parts raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(
            f"{address} cannot be loaded ({why})",
            expected="a data set on the hub, in the cache or in a folder",
            fix="Without a network, name a folder or a file.",
        ) from error
    if isinstance(found, Mapping):
        splits = list(found)
        if len(splits) != 1:
            raise InputError(
                f"{address} has the splits {', '.join(splits)}",
                expected="one",
                fix=f"Name it: hf:{name}:{splits[0]}",
            )
        split, found = splits[0], found[splits[0]]
    return ":".join(["hf", name, *([configuration] if configuration else []), str(split)]), found


def read_dataset(
    dataset: Any, text_column: str | None, id_column: str | None, source: str
) -> Iterator[Row]:
    """One example for each record of a Dataset or IterableDataset."""
    names = getattr(dataset, "column_names", None) or _names_in(_records(dataset, source))
    column = choose_text_column(names, text_column, source)
    wanted = [column]
    if id_column is not None and choose_column(names, id_column, source) != column:
        wanted.append(id_column)
    for index, record in enumerate(_records(dataset.select_columns(wanted), source)):
        name = record.get(id_column) if id_column is not None else None
        yield check_value(index, name, record.get(column))


def _records(dataset: Iterable[Mapping[str, Any]], source: str) -> Iterator[Mapping[str, Any]]:
    """The records of a data set. Raises FileError for one that cannot be read, or fetched."""
    stream, count = iter(dataset), 0
    while True:
        try:
            record = next(stream)
        except StopIteration:
            return
        except Exception as error:  # datasets raises whatever its parts raise
            why = " ".join(str(error).split())[:SHOWN] or type(error).__name__
            raise FileError(
                f"{source} cannot be read after {count:,} records ({why})",
                expected="a whole data set",
                fix="Mend it, or wait for the network; the same command goes on.",
            ) from error
        yield record
        count += 1


def _names_in(records: Iterable[Mapping[str, Any]]) -> list[str]:
    names: dict[str, None] = {}
    for record in islice(records, PEEK):
        names.update(dict.fromkeys(record))
    if not names:
        raise SelectionError(
            "the data set is empty",
            expected="records with a text",
            fix="Check it.",
        )
    return list(names)
