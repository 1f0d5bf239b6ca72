"""Spearman's rank correlation between scores of the same tokens.

Ranks of scores, with ties.
"""

from importlib import import_module
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.arrays import to_numpy
from attnflow.attribution import Attribution
from attnflow.errors import InputError, MissingDependencyError, ShapeError, check_type
from attnflow.selection import Position

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
        raise InputError(
            f"ties is {ties!r}",
            expected="'average' or 'dense'",
            fix="Choose one of these.",
        )
    stats = import_stats("ranking")
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(values, axis=-1, kind="stable")
    steps = np.diff(np.take_along_axis(values, order, axis=-1), axis=-1) > tolerance
    groups = np.zeros(values.shape, dtype=np.int64)
    ordered = np.concatenate([np.zeros_like(groups[..., :1]), np.cumsum(steps, axis=-1)], axis=-1)
    np.put_along_axis(groups, order, ordered, axis=-1)
    return np.asarray(stats.rankdata(groups, method=ties, axis=-1), dtype=np.float64)


FEWEST = 3  # tokens; of two, ranks can only agree wholly or not at all


def spearman(
    scores: ArrayLike, others: ArrayLike, *, ties: Ties = "average", tolerance: float = SAME
) -> NDArray[np.float64]:
    """Spearman's rho along the last axis of [..., tokens]; other axes broadcast.

    With average ranks for ties, it is the correlation of the ranks. "dense" is what one of the
    authors' scripts did: dense ranks in the formula 1 - 6 sum d^2 / (n (n^2 - 1)), which holds for
    ranks without ties only.
    Returns nan where scores or others are all tied, since those have no order to compare, and for
    fewer than 3 tokens; means then leave them out (see `summarize`).
    Raises ShapeError if the numbers of tokens differ.

    >>> float(spearman([0.1, 0.2, 0.7], [1, 2, 3]))
    1.0
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in (scores, others))
    if first.shape[-1:] != second.shape[-1:] or not first.ndim or not second.ndim:
        raise ShapeError(
            f"scores have shape {list(first.shape)} and others {list(second.shape)}",
            expected="as many tokens on the last axis",
            fix="Give scores of the same tokens.",
        )
    ranks = [rank(values, ties=ties, tolerance=tolerance) for values in (first, second)]
    n = first.shape[-1]
    flat = (np.ptp(ranks[0], axis=-1) == 0) | (np.ptp(ranks[1], axis=-1) == 0) if n else np.True_
    if n < FEWEST:
        return np.full(np.broadcast_shapes(first.shape[:-1], second.shape[:-1]), np.nan)
    if ties == "dense":
        squares = np.square(ranks[0] - ranks[1]).sum(-1)
        return np.asarray(np.where(flat, np.nan, 1 - 6 * squares / (n * (n**2 - 1))))
    a, b = (values - values.mean(-1, keepdims=True) for values in ranks)
    scale = np.sqrt(np.square(a).sum(-1) * np.square(b).sum(-1))
    rho = (a * b).sum(-1) / np.where(flat, 1.0, scale)
    return np.asarray(np.where(flat, np.nan, np.clip(rho, -1, 1)))


def rank_correlation(
    attention: Attribution,
    importance: Attribution,
    *,
    position: Position | None = None,
    ties: Ties = "average",
    tolerance: float = SAME,
) -> NDArray[np.float64]:
    """Spearman's rho between two Attributions of the same position, for each layer of the first.

    importance: of one layer, as blank-out and gradients have.
    position: an index or a token's text; the one position of `importance` if not given.
    Tokens that only one of them has are left out.
    Returns [..., layers], nan as in `spearman`.
    Raises InputError if they are of different texts, ShapeError if importance has several layers.
    """
    for one in (attention, importance):
        check_type(one, Attribution, "Make one: flow(graph), or importance.blank_out(...).")
    if attention.tokens != importance.tokens:
        raise InputError(
            f"the attributions are of different texts: {len(attention.tokens)} tokens and "
            f"{len(importance.tokens)}",
            expected="the same tokens",
            fix="Compute both for one text.",
        )
    if len(importance.layers) != 1 or (position is None and len(importance.positions) != 1):
        raise ShapeError(
            f"importance has {len(importance.layers)} layers and {len(importance.positions)} "
            "positions",
            expected="one of each",
            fix="Choose one, and give the attention first.",
        )
    place = importance.positions[0] if position is None else position
    shared = [i for i in attention.columns if i in importance.columns]
    rows, others = (
        to_numpy(one[place])[..., [one.columns.index(i) for i in shared]]
        for one in (attention, importance)
    )
    return spearman(rows, others, ties=ties, tolerance=tolerance)
