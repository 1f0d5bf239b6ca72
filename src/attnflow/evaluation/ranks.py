"""Ranks of scores, with ties."""

from importlib import import_module
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import InputError, MissingDependencyError

Ties: TypeAlias = Literal["average", "dense"]

# Scores closer than this are tied. Flows are exact to 1e-12, and many are equal but for rounding.
SAME = 1e-9


def import_stats(purpose: str) -> Any:
    """Import scipy.stats, or say what it is needed for and how to install it."""
    try:
        return import_module("scipy.stats")
    except ImportError as error:
        raise MissingDependencyError(
            f"scipy is not installed and {purpose} needs it. "
            "Install it: pip install 'attnflow[evaluation]'"
        ) from error


def rank(
    scores: ArrayLike, *, ties: Ties = "average", tolerance: float = SAME
) -> NDArray[np.float64]:
    """The ranks, from 1 for the smallest, along the last axis of [..., tokens].

    ties: "average" gives tied scores the mean of the places they take together, "dense" gives
    them one place and the next score the next place.
    tolerance: neighbours in the order of scores that are at most this far apart are tied.
    Raises InputError for another way to treat ties.

    >>> rank([0.5, 0.1, 0.5])
    array([2.5, 1. , 2.5])
    >>> rank([0.5, 0.1, 0.5], ties="dense")
    array([2., 1., 2.])
    """
    if ties not in ("average", "dense"):
        raise InputError(f"ties is {ties!r}; expected 'average' or 'dense'. Choose one of these.")
    stats = import_stats("ranking")
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(values, axis=-1, kind="stable")
    steps = np.diff(np.take_along_axis(values, order, axis=-1), axis=-1) > tolerance
    groups = np.zeros(values.shape, dtype=np.int64)
    ordered = np.concatenate([np.zeros_like(groups[..., :1]), np.cumsum(steps, axis=-1)], axis=-1)
    np.put_along_axis(groups, order, ordered, axis=-1)
    return np.asarray(stats.rankdata(groups, method=ties, axis=-1), dtype=np.float64)
