"""Ways to scale scores: each a named step from one Attribution to another."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from array_api_compat import array_namespace

from attnflow.attribution import Attribution
from attnflow.errors import InputError
from attnflow.rows import rescale_rows

Normalise: TypeAlias = Literal["none", "rows", "receptive_field"]


def scale_rows(attribution: Attribution) -> Attribution:
    """Scale the scores of each position to sum to 1; rows of zeros stay zero.

    >>> import numpy as np
    >>> scores = np.asarray([[[1.0, 3.0]]])
    >>> scale_rows(Attribution(scores, ("a", "b"), "flow", (2,), (0,))).scores
    array([[[0.25, 0.75]]])
    """
    return replace(
        attribution,
        scores=rescale_rows(attribution.scores),
        settings={**attribution.settings, "normalise": "rows"},
    )


def normalise_by_receptive_field(attribution: Attribution, baseline: Attribution) -> Attribution:
    """Divide scores by those under uniform attention, then scale rows to sum to 1 (paper §5).

    baseline: what the same method gives for `graph.uniform()`; its scores broadcast to the others.
    A token outside the receptive field scores 0 in both, and stays 0.

    >>> import numpy as np
    >>> def at(scores): return Attribution(np.asarray([[scores]]), ("a", "b"), "raw", (1,), (1,))
    >>> normalise_by_receptive_field(at([0.75, 0.25]), at([0.5, 0.5])).scores
    array([[[0.75, 0.25]]])
    """
    xp = array_namespace(attribution.scores)
    uniform = baseline.scores
    outside = uniform == 0
    ratio = attribution.scores / xp.where(outside, xp.ones_like(uniform), uniform)
    ratio = xp.where(outside, xp.zeros_like(ratio), ratio)
    return replace(
        attribution,
        scores=rescale_rows(ratio),
        settings={**attribution.settings, "normalise": "receptive_field"},
    )


def normalise_scores(
    attribution: Attribution, how: Normalise, baseline: Callable[[], Attribution]
) -> Attribution:
    """Apply the `normalise` option of a method.

    baseline: computes the method for uniform attention; called for "receptive_field" only.
    Raises InputError for an unknown option.
    """
    check_normalise(how)
    if how == "rows":
        return scale_rows(attribution)
    if how == "receptive_field":
        return normalise_by_receptive_field(attribution, baseline())
    return replace(attribution, settings={**attribution.settings, "normalise": how})


def check_normalise(how: str) -> None:
    """Raise InputError unless `how` is an option of `normalise`; call it before a long run."""
    if how not in ("none", "rows", "receptive_field"):
        raise InputError(
            f"normalise is {how!r}; expected 'none', 'rows' or 'receptive_field'. "
            "Choose one of these."
        )
