"""The same text by other edges.

Rollout over attention weights, over ALTI edges, which see values and the residual stream, and over
attention times gradient.
"""

from typing import Any

from attnflow import explain
from attnflow.figures import draw_maps, save

EDGES = ["attention", "alti", "gradient"]


def draw(*, dark: bool = False) -> Any:
    text = "the picture of the dogs near the small house"
    explanations = [explain(text, edges=edges) for edges in EDGES]
    return draw_maps(
        explanations, methods=["rollout"], titles=EDGES, special="hide", scale="own", dark=dark
    )


if __name__ == "__main__":
    save(draw(), "edges.svg")
