"""What converters read: scores of one or more layers, and the input of an explanation.

All converters take `method`, `layer` or `layers`, and `normalize`, which select the scores of an
Explanation. An Attribution has its method already.
"""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import shape_text, to_numpy
from attnflow.attribution import Attribution, Normalize
from attnflow.errors import InputError, ShapeError, check_type
from attnflow.explanation import Explanation
from attnflow.methods.registry import METHODS
from attnflow.selection import Layers, as_index

Source: TypeAlias = Explanation | Attribution
Scores: TypeAlias = NDArray[np.float64]
DEFAULT_METHOD = "rollout"


def compute_scores(
    source: Source,
    *,
    method: str | None,
    layers: Layers,
    normalize: Normalize | None,
    **selection: Any,
) -> Attribution:
    """The scores of some layers: computed from an Explanation, or those of an Attribution.

    selection: further options of `Explanation.attribute`, which an Attribution has applied already.
    Raises InputError for options that an Attribution cannot take, ShapeError for a batch.
    """
    if isinstance(source, Explanation):
        return source.attribute(
            DEFAULT_METHOD if method is None else method,
            layers=layers,
            normalize="none" if normalize is None else normalize,
            **selection,
        )
    check_type(source, Attribution, "Pass an Explanation, or the result of a method.")
    for name, value in {"method": method, "normalize": normalize}.items():
        if value is not None:
            raise InputError(
                f"{name} is {value!r}, and the scores are computed already",
                expected=f"an Explanation, or no {name}",
                fix=f"Leave out {name}.",
            )
    if source.scores.ndim != 3:
        raise ShapeError(
            f"scores has shape {shape_text(source.scores)}, a batch",
            expected="[layers, positions, tokens]",
            fix="Select one example with attribution.example(i).",
        )
    if layers is None:
        return source
    numbers = [layers] if isinstance(layers, int) else [as_index(i, "layer") for i in layers]
    axes = [source._layer_axis(number) for number in numbers]
    chosen = tuple(source.layers[axis] for axis in axes)
    return replace(source, scores=source.scores[axes], layers=chosen)


def one_layer(attribution: Attribution) -> Scores:
    """The scores [positions, tokens] of the only layer, on the host."""
    return np.asarray(to_numpy(attribution.scores)[0], dtype=np.float64)


def check_method(method: str | None) -> str:
    """The method that is used for an Explanation.

    Raises SelectionError for an unknown one.
    """
    return METHODS[DEFAULT_METHOD if method is None else method].name


def prompt_columns(attribution: Attribution) -> list[int]:
    """The places of the tokens on the last axis without those of the answer itself."""
    excluded = set(attribution.settings.get("unranked", ()))
    return [i for i, column in enumerate(attribution.columns) if column not in excluded]


def describe(attribution: Attribution, model: str = "") -> dict[str, Any]:
    """Method, settings and character offsets as JSON values, for the notes of an export."""
    offsets = attribution.offsets
    return {
        "method": attribution.method,
        "layers": list(attribution.layers),
        "settings": dict(attribution.settings),
        "model": model,
        "offsets": None if offsets is None else [span and list(span) for span in offsets],
    }


def read_ids(explanation: Explanation) -> list[int] | None:
    """The token ids of the input, and of the answer; None if the explanation has no input.

    An explanation that was loaded from a file, or made from attention weights, has none.
    """
    encoded = None if explanation.origin is None else explanation.origin.data
    inputs = getattr(encoded, "inputs", None)
    if inputs is None or "input_ids" not in inputs:
        return None
    ids = [int(i) for i in inputs["input_ids"][0]]
    if "decoder_input_ids" in inputs:
        ids += [int(i) for i in inputs["decoder_input_ids"][0]]
    if explanation.answer is not None:
        ids += list(explanation.answer.ids)
    return ids if len(ids) == len(explanation.tokens) else None
