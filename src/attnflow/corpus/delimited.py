"""CSV and TSV: one example per record.

A record that is too long is rejected and skipped to its end, so that no part of it is read as a
record of its own.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from attnflow.corpus.example import MAX_CHARACTERS, Row, check_value, reject_row
from attnflow.corpus.formats import (
    BLOCK,
    BOM,
    MAX_BYTES,
    check_column,
    choose_text_column,
    open_bytes,
)
from attnflow.errors import FileError

# Where a scan of a record is: at the start of a cell, in a cell without quotes, between quotes, or
# after a quote that closes the cell or escapes another.
Place: TypeAlias = Literal["start", "plain", "quoted", "quote"]


def read_delimited(
    path: Path,
    delimiter: str,
    text_column: str | None,
    id_column: str | None,
    fields: Sequence[str] = (),
) -> Iterator[Row]:
    """Read one example per record of CSV (delimiter ",") or TSV (delimiter tab, no quotes).

    The first record is the header.
    Raises InputError or SelectionError if there is no such column, FileError without a header.
    """
    limit = csv.field_size_limit(MAX_CHARACTERS)
    try:
        with open_bytes(path) as file:
            lines = _Lines(file, delimiter)
            reader = csv.reader(
                lines,
                delimiter=delimiter,
                quoting=csv.QUOTE_MINIMAL if lines.has_quotes else csv.QUOTE_NONE,
                strict=True,
            )
            yield from _read_records(reader, lines, path, (text_column, id_column, *fields))
    finally:
        csv.field_size_limit(limit)


class _LongLine(csv.Error):
    """A line has more than MAX_BYTES."""


class _Lines:
    """The lines of a file as text.

    number: how many were read. first: the number of the first line of the record; start: its offset
    in the file. characters: of the record, as far as it was read.
    """

    def __init__(self, file: IO[bytes], delimiter: str) -> None:
        self.file, self.delimiter, self.has_quotes = file, delimiter.encode(), delimiter == ","
        self.number = self.offset = 0
        self.begin_record()

    def begin_record(self) -> None:
        """The next line is the first of a record."""
        self.first, self.start, self.characters = self.number + 1, self.offset, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.file.readline(MAX_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self.offset += len(line)
        if len(line) > MAX_BYTES and not line.endswith(b"\n"):
            self.characters = MAX_CHARACTERS + 1
            while (rest := self.file.readline(BLOCK)) and not rest.endswith(b"\n"):
                self.offset += len(rest)
            self.offset += len(rest)
            raise _LongLine(f"line {self.number} has more than {MAX_BYTES:,} bytes")
        if self.number == 1:
            line = line.removeprefix(BOM)
        text = line.decode("utf-8", "surrogateescape")
        self.characters += len(text)
        return text

    def skip_record(self) -> None:
        """Skip a long record to its end.

        If its quotes are invalid or never closed, its end is unknown, and only the lines that were
        read are skipped.
        """
        self.file.seek(self.start)
        measured = self._measure_record()
        if measured is not None:
            self.offset, self.number = self.start + measured[0], self.first - 1 + measured[1]
        self.file.seek(self.offset)

    def _measure_record(self) -> tuple[int, int] | None:
        """Return the bytes and lines of the record; None if its quotes do not match."""
        place: Place = "start"
        size = n_lines = 0
        while part := self.file.readline(BLOCK):
            size += len(part)
            n_lines += part.endswith(b"\n")
            after = _scan(part, place, self.delimiter) if self.has_quotes else "plain"
            if after is None:
                return None
            place = after
            if part.endswith(b"\n") and place != "quoted":
                return size, n_lines
        return None if place == "quoted" else (size, n_lines + 1)


def _scan(part: bytes, place: Place, delimiter: bytes) -> Place | None:
    """Return where a part of a line ends, if it starts at a place; None if a quote is invalid."""
    i = 0
    while i < len(part):
        if place in ("plain", "quoted"):
            ends_at = part.find(delimiter if place == "plain" else b'"', i)
            if ends_at < 0:
                return place
            place, i = "start" if place == "plain" else "quote", ends_at + 1
            continue
        is_quote = part[i : i + 1] == b'"'
        if place == "start":
            place = "quoted" if is_quote else "plain"
            i += is_quote
        else:
            if not is_quote and part[i : i + 1] not in (delimiter, b"\r", b"\n"):
                return None
            place = "quoted" if is_quote else "plain"
            i += is_quote  # otherwise the plain part finds the delimiter
    return place


def _read_records(
    reader: Any,
    lines: _Lines,
    path: Path,
    columns: Sequence[str | None],
) -> Iterator[Row]:
    """Yield the rows. columns: of the text, of the ID, and further ones."""
    try:
        header = next(reader)
    except (StopIteration, csv.Error) as error:
        raise FileError(
            f"{path} has no header ({str(error) or 'the file is empty'})",
            expected="column names in the first line",
            fix="Add a header.",
        ) from error
    text_column = choose_text_column(header, columns[0], str(path))
    for name in columns[1:]:
        if name is not None:
            check_column(header, name, str(path))
    index = 0
    while True:
        lines.begin_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _reject_record(index, lines, error)
        else:
            names = (text_column, *columns[1:])
            yield _read_cells(index, lines.first, cells, header, names)
        index += 1


def _reject_record(index: int, lines: _Lines, error: csv.Error) -> Row:
    """Reject a record with invalid syntax. An open quote can extend it over many lines."""
    is_long = lines.characters > MAX_CHARACTERS
    if is_long:
        lines.skip_record()
    start, end = lines.first, lines.number
    place = f"line {start}" if start >= end else f"lines {start} to {end}"
    if isinstance(error, _LongLine):
        reason = f"{place}: {error}; expected fewer, and a closing quote for each quote."
        return reject_row(index, start, reason, "too_long")
    if is_long:
        reason = (
            f"{place}: the record has more than {MAX_CHARACTERS:,} characters; expected fewer, and "
            "a closing quote for each quote."
        )
        return reject_row(index, start, reason, "too_long")
    return reject_row(index, start, f"{place}: {error}; expected a CSV record.", "malformed")


def _read_cells(
    index: int, line: int, cells: list[str], header: list[str], columns: Sequence[str | None]
) -> Row:
    """Return the row of a record. columns: of the text, of the ID, and further ones."""
    if not cells:
        return reject_row(index, line, "the line is empty; expected a record.", "empty")
    text_column, id_column, *fields = columns
    if len(cells) > len(header):
        reason = f"the record has {len(cells)} cells; expected {len(header)}, as in the header."
        text = cells[header.index(str(text_column))]
        return reject_row(index, line, reason, "malformed", text)
    values: dict[str | None, str] = dict(zip(header, cells, strict=False))
    return check_value(
        index,
        values.get(id_column),
        values.get(text_column),
        line,
        {str(name): values.get(name) for name in fields},
    )
