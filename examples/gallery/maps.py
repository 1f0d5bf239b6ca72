"""Three methods, layer by layer.

Raw attention, rollout and flow from `[CLS]` to each word. Raw attention of upper layers says little
about words; rollout and flow trace positions back to the input.
"""

from typing import Any

from attnflow import explain
from attnflow.figures import draw_maps, save


def draw(*, dark: bool = False) -> Any:
    explanation = explain("the keys to the old cabinet")
    return draw_maps(explanation, special="hide", dark=dark)


if __name__ == "__main__":
    save(draw(), "maps.svg")
