"""Corpora in lines: plain text, CSV, TSV and JSON Lines, gzipped or not, read as a stream.

No more than one line is held at a time, and of a line no more than a text may have.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from attnflow.corpus.example import (
    MAX_CHARACTERS,
    USUAL,
    Row,
    check_value,
    choose_column,
    choose_text_column,
    refuse,
)
from attnflow.errors import FileError

MAX_BYTES = 4 * MAX_CHARACTERS  # of one line
BLOCK = 2**20
PEEK = 100  # lines of JSON looked at to find the columns
BOM = b"\xef\xbb\xbf"


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file to read, through gzip if its name ends in .gz."""
    zipped = path.suffix.lower() == ".gz"
    return cast(IO[bytes], gzip.open(path, "rb")) if zipped else path.open("rb")


def split_lines(file: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Lines with their ends, and whether each is whole; of longer ones the rest is passed over."""
    first = True
    while line := file.readline(MAX_BYTES + 1):
        if first:
            line, first = line.removeprefix(BOM), False
        whole = len(line) <= MAX_BYTES or line.endswith(b"\n")
        if not whole:
            while (rest := file.readline(BLOCK)) and not rest.endswith(b"\n"):
                pass
        yield line, whole


def read_text(path: Path) -> Iterator[Row]:
    """One example for each line."""
    with open_bytes(path) as file:
        for index, (line, whole) in enumerate(split_lines(file)):
            number = index + 1
            if whole:
                yield check_value(index, None, line.rstrip(b"\r\n"), number)
            else:
                yield _long_line(index, number, line)


def read_json_lines(path: Path, text_column: str | None, id_column: str | None) -> Iterator[Row]:
    """One example for each line: an object with the text under the name of a column, or a string.

    Raises SelectionError if none of the first lines has the column that is asked for.
    """
    names = _names_in_json(path)
    column = choose_text_column(names, text_column, str(path)) if names else text_column
    if names and id_column is not None:
        choose_column(names, id_column, str(path))
    with open_bytes(path) as file:
        for index, (line, whole) in enumerate(split_lines(file)):
            yield (
                _row_of_json(index, line, column, id_column)
                if whole
                else _long_line(index, index + 1, line)
            )


def _names_in_json(path: Path) -> list[str]:
    """The names in the objects of the first lines, in the order they come."""
    names: dict[str, None] = {}
    with open_bytes(path) as file:
        for line, whole in islice(split_lines(file), PEEK):
            try:
                value = json.loads(line) if whole else None
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                names.update(dict.fromkeys(value))
    return list(names)


def _row_of_json(index: int, line: bytes, column: str | None, id_column: str | None) -> Row:
    number = index + 1
    if not line.strip():
        return refuse(index, number, "the line is empty; expected a JSON object.", "empty")
    try:
        value: Any = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return check_value(index, None, line.rstrip(b"\r\n"), number)  # says which byte is wrong
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        if isinstance(error, json.JSONDecodeError):
            why = f"{error.msg} at character {error.pos + 1}"
        reason = f"no JSON ({why}); expected a JSON object."
        return refuse(index, number, reason, "malformed", line.rstrip(b"\r\n"))
    if not isinstance(value, dict):
        return check_value(index, None, value, number)
    name = value.get(id_column) if id_column is not None else None
    if column is None:  # none of the first lines was an object
        column = next((usual for usual in USUAL if usual in value), None)
    return check_value(index, name, value.get(column) if column is not None else None, number)


def read_delimited(
    path: Path, delimiter: str, text_column: str | None, id_column: str | None
) -> Iterator[Row]:
    """One example for each record of CSV (delimiter ",") or TSV, which knows no quotes.

    The first record names the columns.
    Raises InputError or SelectionError if there is no such column, FileError without a header.
    """
    limit = csv.field_size_limit(MAX_CHARACTERS)
    try:
        with open_bytes(path) as file:
            text = (line.decode("utf-8", "surrogateescape") for line, _ in split_lines(file))
            reader = csv.reader(
                text,
                delimiter=delimiter,
                quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE,
                strict=True,
            )
            yield from _read_records(reader, path, text_column, id_column)
    finally:
        csv.field_size_limit(limit)


def _read_records(
    reader: Any, path: Path, text_column: str | None, id_column: str | None
) -> Iterator[Row]:
    try:
        header = next(reader)
    except (StopIteration, csv.Error) as error:
        raise FileError(
            f"{path} has no header ({str(error) or 'it is empty'})",
            expected="the names of its columns in the first line",
            fix="Add them.",
        ) from error
    column = header.index(choose_text_column(header, text_column, str(path)))
    names = None
    if id_column is not None:
        names = header.index(choose_column(header, id_column, str(path)))
    index = 0
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _bad_record(index, start, reader.line_num, str(error))
        else:
            yield _row_of_cells(index, start, cells, len(header), column, names)
        index += 1


def _bad_record(index: int, start: int, end: int, error: str) -> Row:
    """A record that csv gives up on. An open quote may have swallowed the lines after it."""
    if "field larger" in error:
        reason = (
            f"a cell of lines {start} to {end} has more than {MAX_CHARACTERS:,} characters; "
            "expected fewer, and each quote closed."
        )
        return refuse(index, start, reason, "too_long")
    lines = f"line {start}" if start >= end else f"lines {start} to {end}"
    return refuse(index, start, f"{lines}: {error}; expected a record of CSV.", "malformed")


def _row_of_cells(
    index: int, line: int, cells: list[str], width: int, column: int, names: int | None
) -> Row:
    if not cells:
        return refuse(index, line, "the line is empty; expected a record.", "empty")
    if len(cells) > width:
        reason = f"the record has {len(cells)} cells; expected {width}, as in the header."
        return refuse(index, line, reason, "malformed", cells[column])
    name = cells[names] if names is not None and names < len(cells) else None
    return check_value(index, name, cells[column] if column < len(cells) else None, line)


def _long_line(index: int, number: int, line: bytes) -> Row:
    reason = f"the line has more than {MAX_BYTES:,} bytes; expected fewer."
    return refuse(index, number, reason, "too_long", line)
