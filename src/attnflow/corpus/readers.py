"""Source: the input of a corpus in any format, with its checksum, its length and its rows.

`open_source` finds the format and reads the input once for the checksum. The formats themselves are
in `formats`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import islice
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Any, get_args

from attnflow.corpus.delimited import read_delimited
from attnflow.corpus.example import Example, Row, check_value
from attnflow.corpus.formats import (
    BLOCK,
    load_dataset,
    open_bytes,
    open_parquet,
    read_dataset,
    read_json_lines,
    read_parquet,
    read_text,
)
from attnflow.corpus.settings import Format
from attnflow.errors import FileError, InputError, check_choice, check_text

# The format for each file name extension.
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


SAMPLE = 2**16  # bytes at the start of a file that tell its encoding
MAX_ZEROS = 0.05  # of these bytes, in text that is not UTF-16 or UTF-32


@dataclass(frozen=True)
class Source:
    """An input that can be read several times, always with the same rows.

    name: its path or address. format: "text", "csv", ..., "dataset" or "list".
    checksum: identifies the content; has_input_id: whether it is the caller's input ID instead.
    count: the number of rows, for CSV an upper bound; None if it is unknown.
    rows: reads the input from the start. unchanged: whether the input still has this checksum; it
    is computed again only if the file was touched.
    """

    name: str
    format: str
    checksum: str
    count: int | None
    rows: Callable[[], Iterator[Row]]
    unchanged: Callable[[], bool] = lambda: True
    has_input_id: bool = False

    def first(self, limit: int) -> "Source":
        """Return the first rows as an input of their own."""
        count = None if self.count is None else min(self.count, limit)
        return replace(self, count=count, rows=lambda: islice(self.rows(), limit))


def open_source(
    data: Any,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    format: Format | None = None,
    input_id: str | None = None,
    fields: Sequence[str] = (),
    paths: Sequence[str] = (),
) -> Source:
    """Open an input, and read it once for its checksum.

    data: the path of a file (.txt, .csv, .tsv, .jsonl, each also with .gz, or .parquet), an address
    `hf:name[:split]`, a Hugging Face Dataset or IterableDataset, or a list of texts (or of
    mappings with the key "text", if there are `fields`).
    text_column, id_column: for tables. format: for a file without a known extension.
    fields: further columns to read, as `Example.fields`. paths: those with paths of files, which
    are relative to the folder of the input if that is a file.
    input_id: identifies the input instead of a checksum, so that it is not read for one. A Dataset
    is identified by its fingerprint.
    Raises FileError, InputError or SelectionError if the input cannot be read.
    """
    options = {"text_column": text_column, "id_column": id_column, "input_id": input_id}
    for name, value in options.items():
        check_text(name, value)
    if format is not None:
        check_choice("format", format, get_args(Format))
    if input_id is not None and not input_id.strip():
        raise InputError(
            f"input_id is {input_id!r}",
            expected="a name that identifies the input",
            fix="Choose one, or remove --input-id (input_id=...): a checksum is then computed.",
        )
    source = _open(data, text_column, id_column, format, input_id, fields)
    if paths and source.format not in ("list", "dataset"):
        folder = Path(source.name).resolve().parent
        source = replace(source, rows=partial(_place_paths, source.rows, folder, paths))
    return replace(source, has_input_id=input_id is not None)


def _place_paths(
    rows: Callable[[], Iterator[Row]], folder: Path, names: Sequence[str]
) -> Iterator[Row]:
    """Yield rows whose fields of these names have paths inside the folder, unless absolute."""

    def place(value: Any) -> Any:
        if isinstance(value, list):
            return [place(item) for item in value]
        return str(folder / value) if isinstance(value, str) and value else value

    for row in rows():
        if isinstance(row, Example):
            found = {name: place(row.fields.get(name)) for name in names}
            yield replace(row, fields={**row.fields, **found})
        else:
            yield row


def find_format(path: Path) -> Format:
    """Return the format for the extension of a file. Raises FileError if it is unknown.

    >>> find_format(Path("a.jsonl.gz"))
    'jsonl'
    """
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    format = FORMATS.get(suffix.lower())
    if format is None:
        raise FileError(
            f"{path} ends in {path.suffix or 'nothing'!r}",
            expected=f"one of {', '.join(FORMATS)}",
            fix="Name its format with --format (format=...).",
        )
    return format


def _open(
    data: Any,
    text_column: str | None,
    id_column: str | None,
    format: Format | None,
    input_id: str | None,
    fields: Sequence[str],
) -> Source:
    if isinstance(data, list | tuple):
        _check_no_options("a list", text_column=text_column, id_column=id_column, format=format)
        return _open_list(data, input_id, fields)
    if hasattr(data, "select_columns") or str(data).startswith("hf:"):
        _check_no_options("a data set", format=format)
    if isinstance(data, str) and data.startswith("hf:"):
        name, dataset = load_dataset(data)
        return _open_dataset(dataset, name, text_column, id_column, input_id, fields)
    if hasattr(data, "select_columns"):
        name = type(data).__name__
        return _open_dataset(data, name, text_column, id_column, input_id, fields)
    if not isinstance(data, str | Path):
        raise InputError(
            f"the input is a {type(data).__name__}",
            expected="a file, hf:name, a Hugging Face data set or a list of texts",
            fix="A stream that can be read only once cannot be resumed: write it to a file first.",
        )
    return _open_file(Path(data), text_column, id_column, format, input_id, fields)


def _open_file(
    path: Path,
    text_column: str | None,
    id_column: str | None,
    format: Format | None,
    input_id: str | None,
    fields: Sequence[str],
) -> Source:
    if not isfile(path):  # noqa: PTH113 - Path raises if the name is too long, such as a text
        problem = "is a device or a pipe" if exists(path) else "does not exist"  # noqa: PTH110
        problem = "is a folder" if isdir(path) else problem  # noqa: PTH112 - the same
        raise FileError(f"{path} {problem}", expected="a file with texts", fix="Check the path.")
    format = format or find_format(path)
    check_choice("format", format, get_args(Format))
    readers: dict[str, Callable[[], Iterator[Row]]] = {
        "text": partial(read_text, path),
        "csv": partial(read_delimited, path, ",", text_column, id_column, fields),
        "tsv": partial(read_delimited, path, "\t", text_column, id_column, fields),
        "jsonl": partial(read_json_lines, path, text_column, id_column, fields),
        "parquet": partial(read_parquet, path, text_column, id_column, fields),
    }
    if format != "parquet":
        _check_utf8(path)
    if format == "text":
        _check_no_options("plain text", text_column=text_column, id_column=id_column)
        if fields:
            raise InputError(
                f"the column {fields[0]!r} is asked for, and the input is plain text",
                expected="an input with columns, such as CSV or JSON lines",
                fix="Use such a file, or leave out the options that name columns.",
            )
    state = _FileState.read(path)
    checksum, count = _scan(path, format) if input_id is None else (input_id, None)
    next(readers[format](), None)  # reports a missing column now, not after an hour
    return Source(
        str(path),
        format,
        checksum,
        count,
        readers[format],
        _ChangeDetector(path, state, None if input_id else checksum),
    )


def _check_no_options(kind: str, **options: str | None) -> None:
    """Raise InputError if one of the options is given, which this kind of input does not have."""
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name} is {value!r}, and the input is {kind}",
                expected=f"an input with a choice of {name.replace('_', ' ')}s",
                fix=f"Remove --{name.replace('_', '-')} ({name}=...).",
            )


def _open_dataset(
    dataset: Any,
    name: str,
    text_column: str | None,
    id_column: str | None,
    input_id: str | None,
    fields: Sequence[str],
) -> Source:
    rows = partial(read_dataset, dataset, text_column, id_column, name, fields)
    next(rows(), None)
    count = len(dataset) if hasattr(dataset, "__len__") else None
    fingerprint = getattr(dataset, "_fingerprint", None)
    if input_id or fingerprint:
        return Source(name, "dataset", input_id or str(fingerprint), count, rows)
    checksum, count = _checksum_rows(rows())
    return Source(name, "dataset", checksum, count, rows)


def _open_list(texts: Sequence[Any], input_id: str | None, fields: Sequence[str]) -> Source:
    def rows() -> Iterator[Row]:
        for index, value in enumerate(texts):
            if fields and isinstance(value, Mapping):
                values = {name: value.get(name) for name in fields}
                yield check_value(index, value.get("id"), value.get("text"), fields=values)
            else:
                yield check_value(index, None, value)

    return Source("list", "list", input_id or _checksum_rows(rows())[0], len(texts), rows)


@dataclass(frozen=True)
class _FileState:
    """What the file system knows of a file.

    changed: the time when content, times or permissions were last changed, which programs cannot
    set; on Windows the time of creation.
    """

    size: int
    modified: int
    changed: int
    inode: int

    @classmethod
    def read(cls, path: Path) -> "_FileState | None":
        """Return the state of a file; None if it does not exist."""
        try:
            stat = path.stat()
        except OSError:
            return None
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


class _ChangeDetector:
    """Whether a file has the same content as before. checksum: None if it was not computed."""

    def __init__(self, path: Path, state: _FileState | None, checksum: str | None) -> None:
        self.path, self.state, self.checksum = path, state, checksum

    def __call__(self) -> bool:
        before, now = self.state, _FileState.read(self.path)
        if now == before:
            return True
        if before is None or now is None:
            return False
        if (now.size, now.modified) != (before.size, before.modified):
            return False
        # The file was replaced or touched, perhaps with its time set back.
        if self.checksum is not None and _checksum(self.path) != self.checksum:
            return False
        self.state = now
        return True


def _checksum(path: Path) -> str:
    digest = sha256()
    with open_bytes(path, unzip=False) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _scan(path: Path, format: Format) -> tuple[str, int | None]:
    """Return the SHA-256 of a file and the number of its rows."""
    digest, lines = sha256(), _LineCounter()
    with open_bytes(path, unzip=False) as file:
        while block := file.read(BLOCK):
            digest.update(block)
            lines.add(block)
    if format == "parquet":
        with open_parquet(path) as opened:
            return digest.hexdigest(), int(opened.metadata.num_rows)
    if path.suffix.lower() == ".gz":
        lines = _count_zipped(path)
    return digest.hexdigest(), max(lines.count - (format in ("csv", "tsv")), 0)


class _LineCounter:
    """Counts lines in blocks of bytes; the last line may have no end."""

    def __init__(self) -> None:
        self.ends, self.last = 0, b"\n"

    def add(self, block: bytes) -> None:
        self.ends += block.count(b"\n")
        self.last = block[-1:]

    @property
    def count(self) -> int:
        return self.ends + (self.last != b"\n")


def _count_zipped(path: Path) -> _LineCounter:
    lines = _LineCounter()
    with open_bytes(path) as file:
        while block := file.read(BLOCK):
            lines.add(block)
    return lines


def _check_utf8(path: Path) -> None:
    """Raise FileError if a file is in UTF-16 or UTF-32, with or without a byte order mark."""
    with open_bytes(path) as file:
        start = file.read(SAMPLE)
    # In both encodings, common characters have a zero byte at every second place at least.
    zeros = max(start[parity::2].count(0) for parity in (0, 1))
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or zeros > len(start) * MAX_ZEROS:
        raise FileError(
            f"{path} is text in UTF-16 or UTF-32",
            expected="UTF-8",
            fix="Convert it: iconv -f UTF-16 -t UTF-8",
        )


def _checksum_rows(rows: Iterator[Row]) -> tuple[str, int]:
    """Return the SHA-256 of all IDs, texts and reasons for rejection, and the number of rows."""
    digest, count = sha256(), 0
    for row in rows:
        parts = [row.id, row.text] if isinstance(row, Example) else [row.example.id, row.reason]
        if isinstance(row, Example):
            parts += [f"{name}={value!r}" for name, value in row.fields.items()]
        for part in parts:
            encoded = part.encode("utf-8")
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
        count += 1
    return digest.hexdigest(), count
