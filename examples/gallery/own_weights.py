"""Attention weights that you have.

No model: two layers of attention, made up by hand, in which *is* reaches *key* through other words.
"""

from typing import Any

import numpy as np

from attnflow import Attentions, Explanation
from attnflow.figures import draw_graph, save

TOKENS = ["the", "key", "to", "the", "cabinets", "is"]
DEPENDS_ON = [1, 5, 1, 4, 2, 1]  # the word that each word attends to in layer 1, by position


def draw(*, dark: bool = False) -> Any:
    lower = 0.7 * np.eye(6)[DEPENDS_ON] + 0.3 / 6
    upper = np.full((6, 6), 1 / 6)
    weights = np.stack([lower, upper])
    explanation = Explanation.from_attentions(Attentions(weights, tokens=TOKENS), position="is")
    return draw_graph(explanation, highlight="is", dark=dark)


if __name__ == "__main__":
    save(draw(), "own.svg")
