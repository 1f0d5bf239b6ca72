"""Cells and tables that several reports are made of."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnflow.paper.experiments.measuring import METHODS, TITLES
from attnflow.paper.experiments.report import Table
from attnflow.paper.experiments.result import Result

NONE = "-"
MINUS = "\N{MINUS SIGN}"


def number(value: float | None, digits: int = 2) -> str:
    """A number with its decimals; a dash if there is none."""
    if value is None:
        return NONE
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def mean_and_sd(summed: Mapping[str, Any], layer: int) -> str:
    """As in the paper: 0.69±0.27."""
    if summed["mean"][layer] is None:
        return NONE
    return f"{number(summed['mean'][layer])}±{number(summed['sd'][layer])}"


def with_interval(summed: Mapping[str, Any], layer: int, digits: int = 2) -> str:
    """A mean and its confidence interval."""
    if summed["mean"][layer] is None:
        return NONE
    low, high = (number(summed[end][layer], digits) for end in ("low", "high"))
    return f"{number(summed['mean'][layer], digits)} [{low}, {high}]"


def p_value(p: float | None) -> str:
    """A p value, small ones as a bound."""
    if p is None:
        return "same"
    return "p<0.001" if p < 0.001 else f"p={p:.3f}"


def layer_names(n: int) -> tuple[str, ...]:
    """L1, L2 and so on."""
    return tuple(f"L{i + 1}" for i in range(n))


def beside_paper(
    caption: str, paper: Mapping[str, Sequence[str]], ours: Mapping[str, Mapping[str, Any]]
) -> Table:
    """The paper's table with ours beside it. ours: methods by what to call them."""
    rows: list[tuple[str, ...]] = []
    for method in METHODS:
        rows.append((f"{TITLES[method]}, paper", *paper[method]))
        for title, methods in ours.items():
            cells = (mean_and_sd(methods[method], i) for i in range(len(paper[method])))
            rows.append((f"{TITLES[method]}, {title}", *cells))
    return Table(caption, ("", *layer_names(len(paper["raw"]))), tuple(rows))


def interval_table(caption: str, methods: Mapping[str, Any]) -> Table:
    """Means with their intervals."""
    n = _n_layers(methods)
    rows = tuple(
        (TITLES[method], *(with_interval(methods[method], i) for i in range(n)))
        for method in methods
    )
    return Table(caption, ("", *layer_names(n)), rows)


def comparison_table(caption: str, comparisons: Sequence[Mapping[str, Any]]) -> Table:
    """Differences between methods, with corrected p values."""
    rows = []
    for one in comparisons:
        cells = (
            "same" if p is None else f"{difference:+.3f} {p_value(p)}"
            for difference, p in zip(one["difference"], one["p"], strict=True)
        )
        rows.append((f"{name(one['first'])} {MINUS} {name(one['second'])}", *cells))
    n = len(comparisons[0]["p"])
    return Table(caption, ("", *layer_names(n)), tuple(rows))


def variants_table(
    caption: str, variants: Mapping[str, Mapping[str, Any]], methods: Sequence[str] = METHODS
) -> Table:
    """Means of methods in several variants: a row for each variant and method."""
    rows = tuple(
        (f"{variant}: {name(method)}", *(mean_and_sd(found[method], i) for i in range(n)))
        for variant, found in variants.items()
        for n in [_n_layers(found)]
        for method in methods
        if method in found
    )
    n = max(_n_layers(found) for found in variants.values())
    return Table(caption, ("", *layer_names(n)), rows)


def first_table(shares: Mapping[str, Mapping[str, Any]]) -> Table:
    """The share of a row that the first token has, by what to call it and by method."""
    rows = tuple(
        (f"{title}: {name(method)}", *(number(share) for share in found[method]))
        for title, found in shares.items()
        for method in METHODS
    )
    return Table(
        "The share of a row that the first token, [CLS], has",
        ("", *layer_names(len(rows[0]) - 1)),
        rows,
    )


def name(method: str) -> str:
    """The name of a method inside a sentence."""
    return TITLES.get(method, method).lower()


def provenance(result: Result) -> str:
    """A line on model, data, date and command."""
    settings = result.settings
    parts = [f"Model: {settings['model']}." if "model" in settings else ""]
    parts.append(f"Data: {settings['data']}." if "data" in settings else "")
    if result.command:
        parts.append(
            f"Command: `{result.command}`, run on {result.date}, attnflow {result.version}."
        )
    return " ".join(part for part in parts if part)


def _n_layers(methods: Mapping[str, Any]) -> int:
    return len(next(iter(methods.values()))["mean"])
