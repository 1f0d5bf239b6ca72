"""Write docs/edges.md from the results of `benchmarks.edges`."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "edges.md"


def write_report() -> None:
    """Replace the generated parts of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for path in sorted(RESULTS.glob("edges-*.json")):
        numbers = json.loads(path.read_text(encoding="utf-8"))
        for key, found in numbers["sets"].items():
            name = f"{numbers['model']} {key}"
            start, stop = f"<!-- {name} -->", f"<!-- /{name} -->"
            before, _, rest = text.partition(start)
            _, _, after = rest.partition(stop)
            if not after:
                raise SystemExit(f"docs/edges.md has no place for {name}: {start} ... {stop}")
            text = f"{before}{start}\n\n{render_set(found)}\n\n{stop}{after}"
    PAGE.write_text(text, encoding="utf-8")


def render_set(found: dict[str, Any]) -> str:
    """Return a table: methods in rows, measures in columns, best value of each column in bold."""
    methods = found["methods"]
    measures = {
        "gradient": "Spearman, gradient norm",
        "blank_out": "Spearman, blank-out",
        "rank": "reciprocal rank of evidence",
        "first": "evidence first",
        "two": "evidence in top 2",
    }
    present = [key for key in measures if any(key in row for row in methods.values())]
    best = {key: _best(methods, key) for key in present}
    lines = [
        "| edges / method | " + " | ".join(measures[key] for key in present) + " |",
        "| --- |" + " --- |" * len(present),
    ]
    for name, row in methods.items():
        cells = [_cell(row.get(key), best[key]) for key in present]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _best(methods: dict[str, Any], key: str) -> float:
    """The highest mean of the attention graphs; references take no part."""
    means = [
        row[key]["mean"] for name, row in methods.items() if key in row and is_graph_method(name)
    ]
    return max(means, default=float("nan"))


def is_graph_method(name: str) -> bool:
    """Whether a row is a method on an attention graph."""
    return " / " in name


def _cell(value: dict[str, float] | None, best: float) -> str:
    if value is None:
        return ""
    text = f"{value['mean']:.2f}"
    text = f"**{text}**" if value["mean"] == best else text
    return f"{text} ({value['low']:.2f} to {value['high']:.2f})"
