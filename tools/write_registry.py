"""Write the tables of methods and edges in docs/api.md from their registries.

`python -m tools.write_registry` writes the page; a test checks that it is up to date.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from attnflow.edges.registry import EDGES, EdgeWeighting
from attnflow.methods.registry import METHODS, Method

PAGE = Path(__file__).parent.parent / "docs" / "api.md"


def table(entries: Iterable[Method | EdgeWeighting]) -> str:
    """A Markdown table of names, titles and summaries."""
    rows = [f"| `{entry.name}` | {entry.title} | {entry.summary} |" for entry in entries]
    return "\n".join(["| name | title | what it is |", "| --- | --- | --- |", *rows])


def fill(text: str) -> str:
    """The page with its tables written again."""
    tables = {"methods": table(METHODS), "edges": table(EDGES)}
    for name, content in tables.items():
        start, end = re.search(f"<!-- {name}: .*?-->\n", text), f"<!-- /{name} -->"
        assert start is not None, f"{PAGE} has no place for {name}"
        before, after = text[: start.end()], text[text.index(end) :]
        text = f"{before}\n{content}\n\n{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
