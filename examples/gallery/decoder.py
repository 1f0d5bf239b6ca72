"""A decoder, made fair to late tokens.

In a decoder, early tokens collect weight whatever they mean. `normalize="receptive_field"` divides
by what uniform attention would give them.
"""

from typing import Any

from attnflow import explain
from attnflow.figures import draw_maps, save


def draw(*, dark: bool = False) -> Any:
    explanation = explain("the dogs near the small house", "verb-number-causal")
    return draw_maps(
        explanation, methods=["rollout", "flow"], normalize="receptive_field", dark=dark
    )


if __name__ == "__main__":
    save(draw(), "decoder.svg")
