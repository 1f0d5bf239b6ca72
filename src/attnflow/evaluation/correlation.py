"""Spearman's rank correlation between scores of the same tokens."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.arrays import to_numpy
from attnflow.attribution import Attribution
from attnflow.errors import InputError, ShapeError, expect_kind
from attnflow.evaluation.ranks import SAME, Ties, rank
from attnflow.selection import Position

FEWEST = 3  # tokens; of two, ranks can only agree wholly or not at all


def spearman(
    scores: ArrayLike, others: ArrayLike, *, ties: Ties = "average", tolerance: float = SAME
) -> NDArray[np.float64]:
    """Spearman's rho along the last axis of [..., tokens]; other axes broadcast.

    With average ranks for ties, it is the correlation of the ranks. "dense" is what one of the
    authors' scripts did: dense ranks in the formula 1 - 6 sum d^2 / (n (n^2 - 1)), which holds for
    ranks without ties only.
    Returns nan where scores or others are all tied, since those have no order to compare, and for
    fewer than 3 tokens; means then leave them out (see `summarise`).
    Raises ShapeError if the numbers of tokens differ.

    >>> float(spearman([0.1, 0.2, 0.7], [1, 2, 3]))
    1.0
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in (scores, others))
    if first.shape[-1:] != second.shape[-1:] or not first.ndim or not second.ndim:
        raise ShapeError(
            f"scores have shape {list(first.shape)} and others {list(second.shape)}; expected as "
            "many tokens on the last axis. Give scores of the same tokens."
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
        expect_kind(one, Attribution, "Make one: flow(graph), or importance.blank_out(...).")
    if attention.tokens != importance.tokens:
        raise InputError(
            f"the attributions are of different texts: {len(attention.tokens)} tokens and "
            f"{len(importance.tokens)}; expected the same tokens. Compute both for one text."
        )
    if len(importance.layers) != 1 or (position is None and len(importance.positions) != 1):
        raise ShapeError(
            f"importance has {len(importance.layers)} layers and {len(importance.positions)} "
            "positions; expected one of each. Choose one, and give the attention first."
        )
    place = importance.positions[0] if position is None else position
    shared = [i for i in attention.columns if i in importance.columns]
    rows, others = (
        to_numpy(one[place])[..., [one.columns.index(i) for i in shared]]
        for one in (attention, importance)
    )
    return spearman(rows, others, ties=ties, tolerance=tolerance)
