"""From what the caller has, an Explanation or Attributions, to the scores that are drawn."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import shape_text
from attnflow.attribution import Attribution
from attnflow.errors import InputError, ShapeError
from attnflow.explanation import Explanation
from attnflow.normalisation import Normalise, check_normalise, scale_rows
from attnflow.selection import Layers, Position
from attnflow.special import Special

Source: TypeAlias = Explanation | Attribution | Sequence[Attribution]
Scale: TypeAlias = Literal["shared", "own"]
MapScale: TypeAlias = Literal["shared", "own", "layer"]
Numbers: TypeAlias = NDArray[np.float64]

METHODS = ("raw", "rollout", "flow")
TITLES = {
    "raw": "Raw attention",
    "rollout": "Attention rollout",
    "flow": "Attention flow",
    "head_rollout": "Attention rollout, one head",
    "head_flow": "Attention flow, one head",
}


def gather(
    source: Source,
    *,
    methods: Sequence[str] = METHODS,
    layers: Layers = None,
    positions: Any = None,
    normalise: Normalise = "rows",
    words: bool = False,
    special: Special = "show",
) -> list[Attribution]:
    """The Attributions to draw, one for each method, with NumPy scores [layers, positions, tokens].

    source: an Explanation, of which the methods are computed, or Attributions, which are taken as
    they are but for scaling: their layers, words and special tokens were chosen when they were
    computed.
    Raises InputError for something else, or options that are too late for Attributions.
    """
    check_normalise(normalise)
    if isinstance(source, Explanation):
        options: dict[str, Any] = {"layers": layers, "normalise": normalise, "words": words}
        options |= {"positions": positions, "special": special}
        return [_on_host(getattr(source, _known(method))(**options)) for method in methods]
    given = [source] if isinstance(source, Attribution) else list(source)
    for one in given:
        if not isinstance(one, Attribution):
            raise InputError(
                f"a {type(one).__name__} was given to draw; expected an Explanation, or "
                "Attributions. Give what explain, rollout or flow returned."
            )
    if not given:
        raise InputError("nothing was given to draw; expected Attributions. Give at least one.")
    if words or special != "show" or layers is not None or normalise == "receptive_field":
        raise InputError(
            "layers, words, special or receptive fields were asked for of Attributions; expected "
            "them to be chosen already. Give an Explanation, or compute Attributions accordingly."
        )
    return [_on_host(scale_rows(one) if normalise == "rows" else one) for one in given]


def _known(method: str) -> str:
    if method not in METHODS:
        raise InputError(
            f"the method is {method!r}; expected 'raw', 'rollout' or 'flow'. Choose of these."
        )
    return method


def _on_host(attribution: Attribution) -> Attribution:
    scores = attribution.to_numpy().astype(np.float64)
    if scores.ndim != 3:
        raise ShapeError(
            f"the scores have shape {shape_text(scores)}, a batch; expected one example. "
            "Take one with attribution.example(i)."
        )
    return replace(attribution, scores=scores)


def position_of(source: Source, position: Position | None, *, words: bool = False) -> Position:
    """The position that is drawn: the explained one, or the only one there is, if none is given."""
    if position is not None:
        return position
    if isinstance(source, Explanation):
        return source.words.word_of(source.position) if words else source.position
    first = source if isinstance(source, Attribution) else source[0]
    if len(first.positions) != 1:
        raise InputError(
            f"the Attribution has {len(first.positions)} positions; expected to know which to "
            "draw. Name one with position=..."
        )
    return first.positions[0]


def title_of(attribution: Attribution) -> str:
    """What the panel of a method is called."""
    return TITLES.get(attribution.method, attribution.method.replace("_", " ").capitalize())


def check_scale(scale: str) -> None:
    """Raise InputError unless this is a way to share scales; call it before a long run."""
    if scale not in ("shared", "own"):
        raise InputError(f"scale is {scale!r}; expected 'shared' or 'own'. Choose one of these.")


def largest(panels: Sequence[Numbers], scale: Scale) -> list[float]:
    """The number at the end of each panel's scale: the largest of all panels, or its own."""
    tops = [float(np.max(panel, initial=0.0)) or 1.0 for panel in panels]
    return [max(tops)] * len(tops) if scale == "shared" else tops
