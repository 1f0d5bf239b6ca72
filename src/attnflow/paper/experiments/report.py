"""Reports: text, tables and pictures, their output formats, and the tables that reports share.

A Report is rendered from a Result. It can be written as plain text, Markdown or CSV.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from attnflow.paper.experiments.experiment import PAPER_METHODS, Result

PARAGRAPH = "\n\n"
WIDTH = 100  # characters of a line in a terminal
NO_VALUE = "-"
MINUS = "\N{MINUS SIGN}"
LETTERS = "abcdefghijklmnopqrstuvwxyz"  # label the panels of figures


@dataclass(frozen=True)
class Table:
    """A table of formatted cells. The first column names the rows."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """An image file. caption: what it shows; also the alternative text."""

    file: str
    caption: str


@dataclass(frozen=True)
class Report:
    """A title, followed by paragraphs of Markdown, tables and pictures."""

    title: str
    parts: tuple[str | Table | Picture, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in order."""
        return tuple(part for part in self.parts if isinstance(part, Table))


def to_text(report: Report) -> str:
    """Return the report as plain text, for a terminal.

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
            parts += [fill(paragraph, WIDTH) for paragraph in part.split(PARAGRAPH)]
        elif isinstance(part, Table):
            parts.append(f"{fill(part.caption, WIDTH)}\n{_align(part)}")
        else:
            parts.append(fill(f"[{part.file}] {part.caption}", WIDTH))
    return PARAGRAPH.join(parts)


def to_markdown(report: Report, *, level: int = 2, pictures: str = "") -> str:
    """Return the report as Markdown.

    level: of the heading. pictures: the folder of pictures, relative to the Markdown file.
    """
    heading = f"{'#' * level} {report.title}"
    return PARAGRAPH.join([heading, *parts_to_markdown(report.parts, pictures=pictures)])


def parts_to_markdown(parts: Sequence[str | Table | Picture], *, pictures: str = "") -> list[str]:
    """Return paragraphs of Markdown, without a heading."""
    paragraphs = []
    for part in parts:
        if isinstance(part, str):
            paragraphs.append(part)
        elif isinstance(part, Table):
            paragraphs += [f"**{part.caption}**", _markdown_table(part)]
        else:
            path = f"{pictures}/{part.file}" if pictures else part.file
            short = part.caption.partition(". ")[0]
            paragraphs += [f"![{short}]({path})", f"*{part.caption}*"]
    return paragraphs


def to_csv(report: Report) -> str:
    """Return all tables as CSV; the first column is the caption of the table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for table in report.tables:
        for row in (table.header, *table.rows):
            writer.writerow((table.caption, *row))
    return text.getvalue().rstrip("\n")


def _align(table: Table) -> str:
    """Pad the cells of each column: names on the left, numbers on the right."""
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
    separator = ("---", *("---:" for _ in table.header[1:]))
    return "\n".join(_markdown_row(row) for row in (table.header, separator, *table.rows))


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


# Cells. A summary of correlations has the keys mean, sd, n and undefined, and low and high if it
# has intervals; each is a list with a number for each layer.


def format_number(value: float | None, digits: int = 2) -> str:
    """Format a number with fixed decimals; a dash for None.

    >>> format_number(-0.001)
    '0.00'
    """
    if value is None:
        return NO_VALUE
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def format_mean(summary: Mapping[str, Any], layer: int) -> str:
    """Format mean and standard deviation as the paper does: 0.69±0.27."""
    if summary["mean"][layer] is None:
        return NO_VALUE
    return f"{format_number(summary['mean'][layer])}±{format_number(summary['sd'][layer])}"


def format_interval(summary: Mapping[str, Any], layer: int) -> str:
    """Format a mean and its confidence interval."""
    if summary["mean"][layer] is None:
        return NO_VALUE
    low, high = (format_number(summary[end][layer]) for end in ("low", "high"))
    return f"{format_number(summary['mean'][layer])} [{low}, {high}]"


def format_p(p: float | None) -> str:
    """Format a p value; "same" if there is none because all differences are 0."""
    if p is None:
        return "same"
    return "p<0.001" if p < 0.001 else f"p={p:.3f}"


def layer_names(n: int) -> tuple[str, ...]:
    """Return the column names L1, L2 and so on."""
    return tuple(f"L{i + 1}" for i in range(n))


def table_by_layer(caption: str, rows: Sequence[tuple[str, ...]]) -> Table:
    """Return a table whose columns after the first are the layers."""
    n_layers = max(len(row) for row in rows) - 1
    return Table(caption, ("", *layer_names(n_layers)), tuple(rows))


def provenance(result: Result) -> str:
    """Return a line with the model, the data, the command and the date."""
    settings = result.settings
    parts = [f"Model: {settings['model']}." if "model" in settings else ""]
    parts.append(f"Data: {settings['data']}." if "data" in settings else "")
    if result.command:
        parts.append(
            f"Command: `{result.command}`, run on {result.date}, attnflow {result.version}."
        )
    return " ".join(part for part in parts if part)


# Tables that several reports share.


def paper_table(
    caption: str, paper: Mapping[str, Sequence[str]], ours: Mapping[str, Mapping[str, Any]]
) -> Table:
    """Return the rows of the paper, each followed by ours.

    paper: the printed cells by method. ours: summaries by method, by the name of the rows.
    """
    rows: list[tuple[str, ...]] = []
    for method in PAPER_METHODS:
        rows.append((f"{method.capitalize()}, paper", *paper[method]))
        for name, methods in ours.items():
            cells = (format_mean(methods[method], i) for i in range(len(paper[method])))
            rows.append((f"{method.capitalize()}, {name}", *cells))
    return table_by_layer(caption, rows)


def interval_table(caption: str, methods: Mapping[str, Any]) -> Table:
    """Return the means with their confidence intervals."""
    rows = [
        (method.capitalize(), *(format_interval(summary, i) for i in range(len(summary["mean"]))))
        for method, summary in methods.items()
    ]
    return table_by_layer(caption, rows)


def comparison_table(caption: str, comparisons: Sequence[Mapping[str, Any]]) -> Table:
    """Return differences between methods with corrected p values."""
    rows = []
    for comparison in comparisons:
        cells = (
            "same" if p is None else f"{difference:+.3f} {format_p(p)}"
            for difference, p in zip(comparison["difference"], comparison["p"], strict=True)
        )
        rows.append((f"{comparison['first']} {MINUS} {comparison['second']}", *cells))
    return table_by_layer(caption, rows)


def variants_table(caption: str, variants: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return mean and standard deviation for each variant and method."""
    rows = [
        (f"{variant}: {method}", *(format_mean(summary, i) for i in range(len(summary["mean"]))))
        for variant, methods in variants.items()
        for method, summary in methods.items()
    ]
    return table_by_layer(caption, rows)


def first_token_table(shares: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the share of the scores that the first token has. shares: by row name and method."""
    rows = [
        (f"{name}: {method}", *(format_number(share) for share in methods[method]))
        for name, methods in shares.items()
        for method in PAPER_METHODS
    ]
    return table_by_layer("Share of the scores on the first token, [CLS]", rows)
