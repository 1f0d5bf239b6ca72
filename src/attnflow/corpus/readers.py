"""Source: the input of a corpus, whatever its format: its checksum, its length, its rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from os.path import isdir, isfile
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attnflow.corpus.example import Example, Row, check_value
from attnflow.corpus.table_formats import load_dataset, open_parquet, read_dataset, read_parquet
from attnflow.corpus.text_formats import open_bytes, read_delimited, read_json_lines, read_text
from attnflow.errors import FileError, InputError

Format: TypeAlias = Literal["text", "csv", "tsv", "jsonl", "parquet"]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
BLOCK = 2**20


@dataclass(frozen=True)
class Source:
    """An input that can be read again and again, always with the same rows.

    name: what it is called. format: "text", "csv", ..., "dataset" or "list".
    checksum: what tells it from any other input. count: how many rows it has, or, for CSV, how
    many at most; None if it cannot be known beforehand.
    rows: reads it from the beginning. unchanged: whether it still is what the checksum was of.
    told_by_caller: whether the checksum is none, but what the caller tells the input by.
    """

    name: str
    format: str
    checksum: str
    count: int | None
    rows: Callable[[], Iterator[Row]]
    unchanged: Callable[[], bool] = lambda: True
    told_by_caller: bool = False


def open_source(
    given: Any,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    format: Format | None = None,
    input_id: str | None = None,
) -> Source:
    """Open an input, and read it once for its checksum, unless the caller tells it by an id.

    given: the path of a file (.txt, .csv, .tsv, .jsonl, each also with .gz, or .parquet); an
    address `hf:name[:split]`; a Dataset or IterableDataset of Hugging Face; or a list of texts.
    text_column, id_column: for tables. format: for a file whose name does not say it.
    input_id: what to tell the input by instead of a checksum, for which it then need not be read.
    Otherwise a Dataset is told by its fingerprint, and everything else, streams too, is read once
    more.
    Raises FileError, InputError or SelectionError for an input that cannot be read.
    """
    source = _open(given, text_column, id_column, format, input_id)
    return replace(source, told_by_caller=input_id is not None)


def _open(
    given: Any,
    text_column: str | None,
    id_column: str | None,
    format: Format | None,
    input_id: str | None,
) -> Source:
    if isinstance(given, list | tuple):
        return _open_list(given, input_id)
    if isinstance(given, str) and given.startswith("hf:"):
        name, given = load_dataset(given)
        return _open_dataset(given, name, text_column, id_column, input_id)
    if hasattr(given, "select_columns"):
        name = type(given).__name__
        return _open_dataset(given, name, text_column, id_column, input_id)
    if not isinstance(given, str | Path):
        raise InputError(
            f"the input is a {type(given).__name__}",
            expected="a file, hf:name, a data set of Hugging Face or a list of texts",
            fix="What can be read only once cannot be resumed: write it to a file first.",
        )
    return _open_file(Path(given), text_column, id_column, format, input_id)


def _open_file(
    path: Path,
    text_column: str | None,
    id_column: str | None,
    format: Format | None,
    input_id: str | None,
) -> Source:
    if not isfile(path):  # noqa: PTH113 - Path raises if the name is too long, such as a text
        what = "is a folder" if isdir(path) else "is no file"  # noqa: PTH112 - the same
        raise FileError(
            f"{path} {what}",
            expected="a file with texts",
            fix="Name a file that is there.",
        )
    format = format or find_format(path)
    readers: dict[str, Callable[[], Iterator[Row]]] = {
        "text": partial(read_text, path),
        "csv": partial(read_delimited, path, ",", text_column, id_column),
        "tsv": partial(read_delimited, path, "\t", text_column, id_column),
        "jsonl": partial(read_json_lines, path, text_column, id_column),
        "parquet": partial(read_parquet, path, text_column, id_column),
    }
    if format not in readers:
        raise InputError(
            f"format is {format!r}",
            expected="text, csv, tsv, jsonl or parquet",
            fix="Choose one of these.",
        )
    if format != "parquet":
        _refuse_wide(path)
    state = _state(path)
    checksum, count = _scan(path, format) if input_id is None else (input_id, None)
    next(readers[format](), None)  # a missing column is an error now, not after an hour
    return Source(
        str(path),
        format,
        checksum,
        count,
        readers[format],
        lambda: _state(path) == state,
    )


def find_format(path: Path) -> Format:
    """The format that a file's name says. Raises FileError for a name that says none.

    >>> find_format(Path("a.jsonl.gz"))
    'jsonl'
    """
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    found = FORMATS.get(suffix.lower())
    if found is None:
        raise FileError(
            f"{path} ends in {path.suffix or 'nothing'!r}",
            expected=f"one of {', '.join(FORMATS)}",
            fix="Name its format with --format (format=...).",
        )
    return found


def _state(path: Path) -> tuple[int, int] | None:
    """What changes with a file; None if it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _scan(path: Path, format: Format) -> tuple[str, int | None]:
    """The SHA-256 of a file, and how many rows it has."""
    digest, lines = sha256(), _Lines()
    zipped = path.suffix.lower() == ".gz"
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            lines.add(block)
    if format == "parquet":
        with open_parquet(path) as opened:
            return digest.hexdigest(), int(opened.metadata.num_rows)
    if zipped:
        lines = _count_zipped(path)
    return digest.hexdigest(), max(lines.count - (format in ("csv", "tsv")), 0)


class _Lines:
    """Counts lines, the last of which may lack its end."""

    def __init__(self) -> None:
        self.ends, self.n_bytes, self.last = 0, 0, b"\n"

    def add(self, block: bytes) -> None:
        self.ends += block.count(b"\n")
        self.n_bytes += len(block)
        self.last = block[-1:]

    @property
    def count(self) -> int:
        return self.ends + (self.last != b"\n")


def _count_zipped(path: Path) -> _Lines:
    import gzip
    import zlib

    lines = _Lines()
    try:
        with open_bytes(path) as file:
            while block := file.read(BLOCK):
                lines.add(block)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileError(
            f"{path} cannot be unzipped ({error})",
            expected="a whole gzip file",
            fix="Get it again.",
        ) from error
    return lines


def _refuse_wide(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(2)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileError(
            f"{path} is text in UTF-16",
            expected="UTF-8",
            fix="Convert it: iconv -f UTF-16 -t UTF-8",
        )


def _open_dataset(
    dataset: Any, name: str, text_column: str | None, id_column: str | None, input_id: str | None
) -> Source:
    rows = partial(read_dataset, dataset, text_column, id_column, name)
    next(rows(), None)
    count = len(dataset) if hasattr(dataset, "__len__") else None
    fingerprint = getattr(dataset, "_fingerprint", None)
    if input_id or fingerprint:
        return Source(name, "dataset", input_id or str(fingerprint), count, rows)
    checksum, count = _checksum_of_rows(rows())
    return Source(name, "dataset", checksum, count, rows)


def _open_list(texts: Sequence[Any], input_id: str | None) -> Source:
    def rows() -> Iterator[Row]:
        return (check_value(index, None, text) for index, text in enumerate(texts))

    return Source("list", "list", input_id or _checksum_of_rows(rows())[0], len(texts), rows)


def _checksum_of_rows(rows: Iterator[Row]) -> tuple[str, int]:
    """The SHA-256 of ids, texts and refusals, and how many rows there are."""
    digest, count = sha256(), 0
    for row in rows:
        parts = (row.id, row.text) if isinstance(row, Example) else (row.example.id, row.reason)
        for part in parts:
            written = part.encode("utf-8")
            digest.update(len(written).to_bytes(8, "little") + written)
        count += 1
    return digest.hexdigest(), count
