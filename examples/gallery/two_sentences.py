"""Two sentences, side by side.

The same words with singular and plural exchanged, on one color scale.
"""

from typing import Any

from attnflow import explain
from attnflow.figures import draw_maps, save


def draw(*, dark: bool = False) -> Any:
    explanations = explain(["the keys to the old car", "the key to the old cars"])
    titles = ["(a) plural", "(b) singular"]
    return draw_maps(
        explanations, methods=["rollout", "flow"], titles=titles, special="hide", dark=dark
    )


if __name__ == "__main__":
    save(draw(), "two.svg")
