"""Write the tables of methods, edges, explainers and metrics in the docs from their registries.

`python -m tools.write_registry` writes the pages; a test checks that they are up to date.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attnflow.edges.registry import EDGES
from attnflow.evaluation.metrics import METRICS, Metric
from attnflow.methods.registry import METHODS
from attnflow.registry import Named
from attnflow.study.explainers import EXPLAINERS, Explainer

DOCS = Path(__file__).parent.parent / "docs"


def table(entries: Iterable[Named], kind: Callable[[Any], str] | None = None) -> str:
    """A Markdown table of names, titles and summaries. kind: the text of one more column."""
    head = ["name", "title", *(["kind"] if kind else []), "what it is"]
    rows = [head, ["---"] * len(head)]
    for entry in entries:
        more = [kind(entry)] if kind else []
        rows.append([f"`{entry.name}`", entry.title, *more, entry.summary])  # type: ignore[attr-defined]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def describe_metric(metric: Metric) -> str:
    """Which values are good, and whether the metric is computed by default."""
    arrow = "↑ high is good" if metric.better == "high" else "↓ low is good"
    return arrow if metric.default else f"{arrow}; by name only"


def describe_explainer(explainer: Explainer) -> str:
    """What it is, and what it explains."""
    inputs = "texts and images" if explainer.inputs == "any" else f"{explainer.inputs}s"
    only = "" if explainer.default else "; by name only"
    return f"{explainer.kind}, {inputs}{only}"


def tables() -> dict[str, dict[str, str]]:
    """The tables of each page, by their name there."""
    return {
        "api.md": {"methods": table(METHODS), "edges": table(EDGES)},
        "evaluation.md": {
            "explainers": table(EXPLAINERS, describe_explainer),
            "metrics": table(METRICS, describe_metric),
        },
    }


def fill(page: str, text: str) -> str:
    """The page with its tables written again."""
    for name, content in tables()[page].items():
        start, end = re.search(f"<!-- {name}: .*?-->\n", text), f"<!-- /{name} -->"
        assert start is not None, f"{page} has no place for {name}"
        before, after = text[: start.end()], text[text.index(end) :]
        text = f"{before}\n{content}\n\n{after}"
    return text


if __name__ == "__main__":
    for page in tables():
        path = DOCS / page
        path.write_text(fill(page, path.read_text(encoding="utf-8")), encoding="utf-8")
