"""Export: the tables of a study as LaTeX and as CSV."""

import csv
import io
from collections.abc import Sequence

import numpy as np

from attnflow.evaluation.metrics import METRICS
from attnflow.study.explainers import explainer_title
from attnflow.study.study import Study
from attnflow.study.table import SIGNIFICANT, MetricTable, Row, summarize_metric

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
}
ARROWS = {"high": r"$\uparrow$", "low": r"$\downarrow$"}
BETTER = r"$^{*}$"  # significantly better than the reference
# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def escape_latex(text: str) -> str:
    r"""Return text as LaTeX prints it.

    >>> escape_latex("50 % of <s>_1")
    '50 \\% of \\textless{}s\\textgreater{}\\_1'
    """
    return "".join(LATEX.get(character, character) for character in text)


def to_latex(
    tables: MetricTable | Sequence[MetricTable], *, caption: str = "", label: str = ""
) -> str:
    """Return tables as LaTeX, with a column for each and a row for each explainer.

    Tables of the same replacement and sign are one table, whose caption names these. Needs the
    package booktabs. The best mean of a column is bold, a star marks explainers that are
    significantly better than the reference, and arrows say what is better. Explainers are in the
    order of the first column.
    caption: a text before that. label: of the first table; others have a number after it.
    """
    columns = [tables] if isinstance(tables, MetricTable) else list(tables)
    groups: dict[tuple[str, str], list[MetricTable]] = {}
    for table in columns:
        groups.setdefault((table.replacement, table.sign), []).append(table)
    parts = []
    for i, group in enumerate(groups.values()):
        name = f"{label}-{i + 1}" if label and i else label
        said = f"{escape_latex(caption)} {_describe(group)}".strip()
        parts.append("\n".join([*_head(group, said, name), *_body(group), *FOOT, ""]))
    return "\n".join(parts)


def _head(tables: Sequence[MetricTable], caption: str, label: str) -> list[str]:
    heads = [f"{escape_latex(table.title)} {ARROWS[table.better]}" for table in tables]
    return [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{caption}}}",
        *([f"\\label{{{label}}}"] if label else []),
        f"\\begin{{tabular}}{{l{'r' * len(tables)}}}",
        r"\toprule",
        f"Explainer & {' & '.join(heads)} \\\\",
        r"\midrule",
    ]


def _body(tables: Sequence[MetricTable]) -> list[str]:
    names = list(dict.fromkeys(row.explainer for table in tables for row in table.rows))
    lines = []
    for name in names:
        cells = [_cell(table, name) for table in tables]
        lines.append(f"{escape_latex(explainer_title(name))} & {' & '.join(cells)} \\\\")
    return lines


FOOT = (r"\bottomrule", r"\end{tabular}", r"\end{table}")


def _describe(tables: Sequence[MetricTable]) -> str:
    """Return what the marks mean, the number of texts, the replacement and the sign."""
    counts = [row.n for table in tables for row in table.rows]
    low, high = min(counts, default=0), max(counts, default=0)
    texts = f"{high} texts" if low == high else f"{low} to {high} texts"
    against = " and ".join(dict.fromkeys(escape_latex(table.against) for table in tables))
    first = tables[0]
    return (
        f"Means over {texts}; replacement: {escape_latex(first.replacement)}, sign: "
        f"{escape_latex(first.sign)}. Bold: best mean. {BETTER}: significantly better than "
        f"{against} (paired Wilcoxon test, Holm's correction, $p < {SIGNIFICANT}$)."
    )


def _cell(table: MetricTable, name: str) -> str:
    """Return the mean of an explainer, with its marks; a dash if there is none."""
    row = next((row for row in table.rows if row.explainer == name), None)
    if row is None or not np.isfinite(row.mean):
        return "--"
    text = _rounded(row)
    known = [other for other in table.rows if np.isfinite(other.mean)]
    best = max if table.better == "high" else min
    if row.mean == best(other.mean for other in known):
        text = f"\\textbf{{{text}}}"
    return f"{text}{BETTER if row.beats_reference else ''}"


def _rounded(row: Row) -> str:
    """Return the mean with three decimals, and a minus sign that LaTeX prints as one."""
    text = f"{row.mean:.3f}"
    return f"$-${text[1:]}" if text.startswith("-") else text


COLUMNS = (
    "metric", "better", "replacement", "sign", "explainer", "title", "n", "failed", "mean", "low",
    "high", "against", "gain", "gain_low", "gain_high", "p", "significant", "wins", "ties",
    "losses", "seconds", "megabytes", "copy_of",
)  # fmt: skip


def to_csv(study: Study) -> str:
    """Return all tables of a study as CSV: a line for each metric, replacement, sign, explainer.

    Numbers are not rounded; missing ones are empty. A text that a spreadsheet would take for a
    formula follows an apostrophe. The columns are those of `attnflow.study.table.Row`.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for metric in study.metrics:
        for replacement in study.replacements:
            for sign in study.design.signs:
                table = summarize_metric(study, metric, replacement=replacement, sign=sign)
                for row in table.rows:
                    writer.writerow([_field(value) for value in _values(table, row)])
    return buffer.getvalue()


def _values(table: MetricTable, row: Row) -> list[object]:
    """Return the fields of a line, in the order of COLUMNS."""
    of_table = {
        "metric": table.metric,
        "better": METRICS[table.metric].better,
        "replacement": table.replacement,
        "sign": table.sign,
        "against": table.against,
        "significant": "yes" if row.p < SIGNIFICANT else "no",
    }
    return [of_table[name] if name in of_table else getattr(row, name) for name in COLUMNS]


def _field(value: object) -> object:
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else ""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
