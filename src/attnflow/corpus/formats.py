"""Input formats: plain text, JSON Lines, Parquet, and Hugging Face data sets.

Each reader is a stream of rows, valid or rejected. Text formats may be gzipped; at most one line is
held in memory, and of a long line at most as much as a text may have. CSV and TSV are in
`delimited`; choosing the reader for an input is in `readers`.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from attnflow.corpus.example import MAX_CHARACTERS, Row, check_value, reject_row
from attnflow.errors import FileError, InputError, SelectionError, first_line
from attnflow.models.hub import hub_access
from attnflow.optional import import_optional

MAX_BYTES = 4 * MAX_CHARACTERS  # of one line
BLOCK = 2**20  # bytes
PARQUET_ROWS = 1024  # read at a time
SCANNED = 100  # records that are scanned for column names, where no header lists them
ERROR_CHARACTERS = 300  # of an error message of the datasets package
BOM = b"\xef\xbb\xbf"
DEFAULT_COLUMNS = ("text", "sentence")
# Arrow types that can hold text.
TEXT_TYPES = (
    *("string", "large_string", "string_view"),
    *("binary", "large_binary", "binary_view", "fixed_size_binary"),
)


def read_text(path: Path) -> Iterator[Row]:
    """Read one example per line."""
    with open_bytes(path) as file:
        for index, (line, complete) in enumerate(split_lines(file)):
            if complete:
                yield check_value(index, None, line.rstrip(b"\r\n"), index + 1)
            else:
                yield _reject_long_line(index, line)


def read_json_lines(
    path: Path, text_column: str | None, id_column: str | None, fields: Sequence[str] = ()
) -> Iterator[Row]:
    """Read one example per line: an object with the text in a column, or a string.

    fields: further columns to read, here and in the other readers.
    Raises SelectionError if none of the first lines has the requested column.
    """
    names = _scan_json_names(path)
    column = choose_text_column(names, text_column, str(path)) if names else text_column
    for name in (id_column, *fields) if names else ():
        if name is not None:
            check_column(names, name, str(path))
    with open_bytes(path) as file:
        for index, (line, complete) in enumerate(split_lines(file)):
            if complete:
                yield _read_json_row(index, line, column, id_column, fields)
            else:
                yield _reject_long_line(index, line)


def read_parquet(
    path: Path, text_column: str | None, id_column: str | None, fields: Sequence[str] = ()
) -> Iterator[Row]:
    """Read one example per row.

    Raises InputError or SelectionError if there is no such column, or it does not hold text.
    """
    pyarrow = import_optional("pyarrow", "reading Parquet")
    with open_parquet(path) as file:
        schema = file.schema_arrow
        column = choose_text_column(schema.names, text_column, str(path))
        others = [name for name in (id_column, *fields) if name is not None]
        for name in others:
            check_column(schema.names, name, str(path))
        _check_text_type(pyarrow, path, column, schema.field(column).type)
        columns = list(dict.fromkeys([column, *others]))
        index = 0
        try:
            for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=columns):
                texts = _to_bytes(pyarrow, batch.column(column))
                ids = [None] * len(texts)
                if id_column is not None:
                    ids = _to_python(pyarrow, batch.column(id_column))
                values = {name: _to_python(pyarrow, batch.column(name)) for name in fields}
                for row, (id, text) in enumerate(zip(ids, texts, strict=True)):
                    yield check_value(
                        index, id, text, fields={name: values[name][row] for name in fields}
                    )
                    index += 1
        except (OSError, pyarrow.ArrowException) as error:
            raise _unreadable(path, error) from error


def read_dataset(
    dataset: Any,
    text_column: str | None,
    id_column: str | None,
    source: str,
    fields: Sequence[str] = (),
) -> Iterator[Row]:
    """Read one example per record of a Dataset or IterableDataset. source: for error messages."""
    names = getattr(dataset, "column_names", None) or _scan_names(_records(dataset, source))
    column = choose_text_column(names, text_column, source)
    others = [name for name in (id_column, *fields) if name is not None]
    for name in others:
        check_column(names, name, source)
    columns = list(dict.fromkeys([column, *others]))
    for index, record in enumerate(_records(dataset.select_columns(columns), source)):
        id = record.get(id_column) if id_column is not None else None
        values = {name: record.get(name) for name in fields}
        yield check_value(index, id, record.get(column), fields=values)


def load_dataset(address: str) -> tuple[str, Any]:
    """Load `hf:name[:split]` or `hf:name:configuration:split` as a stream.

    Returns its name with the split, and the stream.
    Raises FileError if it cannot be loaded, InputError if a split must be named.
    """
    datasets = import_optional("datasets", "reading hf: data sets")
    name, *rest = address.removeprefix("hf:").split(":")
    configuration = rest[0] if len(rest) == 2 else None
    split = rest[-1] if rest else None
    if not name or len(rest) > 2 or "" in rest:
        raise InputError(
            f"the input is {address!r}",
            expected="hf:name, hf:name:split or hf:name:configuration:split",
            fix="For example: hf:stanfordnlp/sst2:validation",
        )
    try:
        with hub_access(name):
            dataset = datasets.load_dataset(name, configuration, split=split, streaming=True)
    except Exception as error:  # datasets raises errors of many other packages
        raise FileError(
            f"{address} cannot be loaded ({first_line(error)})",
            expected="a data set on the Hugging Face hub, in the cache or in a folder",
            fix="Without a network, use a folder or a file.",
        ) from error
    if isinstance(dataset, Mapping):
        splits = list(dataset)
        if len(splits) != 1:
            raise InputError(
                f"{address} has the splits {', '.join(splits)}",
                expected="one split",
                fix=f"Name it: hf:{name}:{splits[0]}",
            )
        split, dataset = splits[0], dataset[splits[0]]
    parts = ["hf", name, *([configuration] if configuration else []), str(split)]
    return ":".join(parts), dataset


def open_parquet(path: Path) -> Any:
    """Open a Parquet file. Raises FileError if it is not one."""
    pyarrow = import_optional("pyarrow", "reading Parquet")
    parquet = import_optional("pyarrow.parquet", "reading Parquet")
    try:
        return parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error


@contextmanager
def open_bytes(path: Path, *, unzip: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for reading. unzip: whether to read it through gzip if its name ends in .gz.

    Raises FileError if it cannot be opened or read.
    """
    zipped = unzip and path.suffix.lower() == ".gz"
    try:
        with gzip.open(path, "rb") if zipped else path.open("rb") as file:
            yield cast(IO[bytes], file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileError(
            f"{path} cannot be unzipped ({error})",
            expected="a complete gzip file",
            fix="Download or compress it again.",
        ) from error
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror or error})",
            expected="a file that can be read",
            fix="Check the file and its permissions.",
        ) from error


def split_lines(file: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each line with its end, and whether it is complete.

    Of a line with more than MAX_BYTES only the start is yielded; the rest is skipped.
    """
    first = True
    while line := file.readline(MAX_BYTES + 1):
        complete = len(line) <= MAX_BYTES or line.endswith(b"\n")
        if first:
            line, first = line.removeprefix(BOM), False
        if not complete:
            while (rest := file.readline(BLOCK)) and not rest.endswith(b"\n"):
                pass
        yield line, complete


def choose_text_column(names: Sequence[str], requested: str | None, source: str) -> str:
    """Return the column of the texts: the requested one, else `text` or `sentence`, else the only.

    Raises SelectionError if there is no such column, InputError if it must be named, or if several
    columns have its name.

    >>> choose_text_column(["id", "sentence"], None, "a.csv")
    'sentence'
    """
    if requested is not None:
        check_column(names, requested, source)
        return requested
    for name in DEFAULT_COLUMNS:
        if name in names:
            check_column(names, name, source)
            return name
    if len(names) == 1:
        return names[0]
    raise InputError(
        f"{source} has the columns {_list_names(names)}",
        expected="a column named text or sentence",
        fix="Name the column of the texts with --text-column (text_column=...).",
    )


def check_column(names: Sequence[str], requested: str, source: str) -> None:
    """Raise SelectionError if there is no column of that name, InputError if there are several."""
    if names.count(requested) > 1:
        raise InputError(
            f"{source} has {names.count(requested)} columns named {requested!r}",
            expected="one",
            fix="Rename the others, or use another column.",
        )
    if requested not in names:
        close = get_close_matches(requested, names, n=1, cutoff=0.3)
        raise SelectionError(
            f"{source} has no column {requested!r}",
            expected=f"one of {_list_names(names)}",
            fix=f"Did you mean {close[0]!r}?" if close else "Use one of these names.",
        )


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20])) or "none"
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"


def _scan_json_names(path: Path) -> list[str]:
    """Return the keys of the objects in the first lines, in order of appearance."""
    names: dict[str, None] = {}
    with open_bytes(path) as file:
        for line, complete in islice(split_lines(file), SCANNED):
            try:
                value = json.loads(line) if complete else None
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                names.update(dict.fromkeys(value))
    return list(names)


def _read_json_row(
    index: int, line: bytes, column: str | None, id_column: str | None, fields: Sequence[str]
) -> Row:
    number, content = index + 1, line.rstrip(b"\r\n")
    if not line.strip():
        return reject_row(index, number, "the line is empty; expected a JSON object.", "empty")
    try:
        columns = (column, id_column, *fields)
        value: Any = json.loads(line.decode("utf-8"), object_pairs_hook=partial(_to_dict, columns))
    except UnicodeDecodeError:
        return check_value(index, None, content, number)  # reports the invalid byte
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        if isinstance(error, json.JSONDecodeError):
            detail = f"{error.msg} at character {error.pos + 1}"
        reason = f"invalid JSON ({detail}); expected a JSON object."
        return reject_row(index, number, reason, "malformed", content)
    if not isinstance(value, dict):
        return check_value(index, None, value, number)
    id = value.get(id_column) if id_column is not None else None
    if column is None:  # none of the first lines was an object
        column = next((name for name in DEFAULT_COLUMNS if name in value), None)
    text = value.get(column) if column is not None else None
    return check_value(index, id, text, number, {name: value.get(name) for name in fields})


def _to_dict(columns: Sequence[str | None], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError if it has one of the columns twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        for column in columns:
            if column is not None and names.count(column) > 1:
                raise ValueError(f"{column!r} occurs {names.count(column)} times")
    return values


def _reject_long_line(index: int, line: bytes) -> Row:
    reason = f"the line has more than {MAX_BYTES:,} bytes; expected fewer."
    return reject_row(index, index + 1, reason, "too_long", line)


def _to_bytes(pyarrow: Any, column: Any) -> list[bytes | None]:
    """Return texts as bytes: a column of strings may hold invalid UTF-8."""
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_fixed_size_binary(column.type):
        return list(column.to_pylist())
    return list(column.cast(pyarrow.large_binary()).to_pylist())


def _to_python(pyarrow: Any, column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return list(column.cast(pyarrow.large_binary()).to_pylist())
    except (OverflowError, ValueError, pyarrow.ArrowException):  # a date that Python does not have
        return [getattr(value, "value", None) for value in column]


def _check_text_type(pyarrow: Any, path: Path, column: str, arrow_type: Any) -> None:
    dictionary = pyarrow.types.is_dictionary(arrow_type)
    value_type = arrow_type.value_type if dictionary else arrow_type
    if not any(getattr(pyarrow.types, f"is_{name}")(value_type) for name in TEXT_TYPES):
        raise InputError(
            f"the column {column!r} of {path} holds {arrow_type}",
            expected="text",
            fix="Name the column of the texts with --text-column (text_column=...).",
        )


def _unreadable(path: Path, error: Exception) -> FileError:
    return FileError(
        f"{path} cannot be read ({first_line(error)})",
        expected="a Parquet file",
        fix="Write it again, or name its format with --format (format=...).",
    )


def _records(dataset: Iterable[Mapping[str, Any]], source: str) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a data set. Raises FileError if one cannot be read or downloaded."""
    stream, count = iter(dataset), 0
    while True:
        try:
            record = next(stream)
        except StopIteration:
            return
        except Exception as error:  # datasets raises errors of many other packages
            detail = " ".join(str(error).split())[:ERROR_CHARACTERS] or type(error).__name__
            raise FileError(
                f"{source} cannot be read after {count:,} records ({detail})",
                expected="a complete data set",
                fix="Fix this, or wait for the network, then run the same command again.",
            ) from error
        yield record
        count += 1


def _scan_names(records: Iterable[Mapping[str, Any]]) -> list[str]:
    names: dict[str, None] = {}
    for record in islice(records, SCANNED):
        names.update(dict.fromkeys(record))
    if not names:
        raise SelectionError(
            "the data set is empty",
            expected="records with a text",
            fix="Check the name and the split.",
        )
    return list(names)
