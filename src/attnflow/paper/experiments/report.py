"""Report: a result laid out as text, tables and pictures, and written in several formats."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

PART = "\n\n"
WIDTH = 100  # of paragraphs in a terminal


@dataclass(frozen=True)
class Table:
    """A table: rows of cells, as they are shown. The first column names the rows."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A picture, by the name of its file. caption: what it shows, also for those who do not see."""

    file: str
    caption: str


@dataclass(frozen=True)
class Report:
    """A title, and what follows it: paragraphs of Markdown, tables and pictures."""

    title: str
    parts: tuple[str | Table | Picture, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables alone."""
        return tuple(part for part in self.parts if isinstance(part, Table))


def to_text(report: Report) -> str:
    """The report for a terminal, in plain text.

    >>> print(to_text(Report("Sizes", (Table("Tokens", ("", "n"), (("short", "3"),)),))))
    Sizes
    <BLANKLINE>
    Tokens
             n
      short  3
    """
    parts = [report.title]
    for part in report.parts:
        if isinstance(part, str):
            parts += [fill(paragraph, WIDTH) for paragraph in part.split(PART)]
        elif isinstance(part, Table):
            parts.append(f"{fill(part.caption, WIDTH)}\n{_align(part)}")
        else:
            parts.append(fill(f"[{part.file}] {part.caption}", WIDTH))
    return PART.join(parts)


def to_markdown(report: Report, *, level: int = 2, pictures: str = "") -> str:
    """The report in Markdown.

    level: of its heading. pictures: the folder of pictures, as seen from where the text will be.
    """
    heading = f"{'#' * level} {report.title}"
    return PART.join([heading, *parts_to_markdown(report.parts, pictures=pictures)])


def parts_to_markdown(parts: Sequence[str | Table | Picture], *, pictures: str = "") -> list[str]:
    """Paragraphs of Markdown, without a heading."""
    written = []
    for part in parts:
        if isinstance(part, str):
            written.append(part)
        elif isinstance(part, Table):
            written += [f"**{part.caption}**", _markdown_table(part)]
        else:
            place = f"{pictures}/{part.file}" if pictures else part.file
            written += [f"![{part.caption}]({place})", f"*{part.caption}*"]
    return written


def to_csv(report: Report) -> str:
    """All tables as comma-separated values; the first column is the caption of the table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for table in report.tables:
        for row in (table.header, *table.rows):
            writer.writerow((table.caption, *row))
    return text.getvalue().rstrip("\n")


def _align(table: Table) -> str:
    """Rows under each other: names to the left, cells to the right."""
    lines = [table.header, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    return "\n".join(
        "  ".join(
            ["", line[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        ).rstrip()
        for line in lines
    )


def _markdown_table(table: Table) -> str:
    ruler = ("---", *("---:" for _ in table.header[1:]))
    return "\n".join(_markdown_row(row) for row in (table.header, ruler, *table.rows))


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
