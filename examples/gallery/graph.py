"""The attention graph.

Lines from each position to what it attends to, as in figure 1 of the paper; those of `[CLS]` stand
out.
"""

from typing import Any

from attnflow import explain
from attnflow.figures import draw_graph, save


def draw(*, dark: bool = False) -> Any:
    explanation = explain("the keys to the old cabinet")
    return draw_graph(explanation, highlight="[CLS]", dark=dark)


if __name__ == "__main__":
    save(draw(), "graph.svg")
