"""Rank correlation, Spearman's rho and Kendall's tau, between scores of the same tokens."""

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.arrays import read_numbers, to_numpy
from attnflow.attribution import Attribution
from attnflow.errors import InputError, ShapeError, check_choice, check_type, quote
from attnflow.optional import import_optional
from attnflow.selection import Position

Ties: TypeAlias = Literal["average", "dense"]
Sign: TypeAlias = Literal["absolute", "signed"]

# Scores closer than this are tied. Flows are exact to 1e-12, and many differ by rounding only.
TIE_TOLERANCE = 1e-9


def rank(
    scores: ArrayLike, *, ties: Ties = "average", tolerance: float = TIE_TOLERANCE
) -> NDArray[np.float64]:
    """Return ranks, from 1 for the smallest, along the last axis of [..., tokens].

    ties: "average" gives tied scores the mean of their ranks; "dense" gives them one rank, and the
    next score the next rank.
    tolerance: adjacent scores, in sorted order, that differ by at most this are tied.
    Raises InputError for another value of ties.

    >>> rank([0.5, 0.1, 0.5])
    array([2.5, 1. , 2.5])
    >>> rank([0.5, 0.1, 0.5], ties="dense")
    array([2., 1., 2.])
    """
    check_choice("ties", ties, ("average", "dense"))
    stats = import_optional("scipy.stats", "ranking")
    values = read_numbers(scores)
    if not isinstance(tolerance, int | float | np.number):
        raise InputError(
            f"tolerance is {quote(tolerance)}", expected="a number", fix="Leave it out."
        )
    order = np.argsort(values, axis=-1, kind="stable")
    steps = np.diff(np.take_along_axis(values, order, axis=-1), axis=-1) > tolerance
    groups = np.zeros(values.shape, dtype=np.int64)
    ordered = np.concatenate([np.zeros_like(groups[..., :1]), np.cumsum(steps, axis=-1)], axis=-1)
    np.put_along_axis(groups, order, ordered, axis=-1)
    return np.asarray(stats.rankdata(groups, method=ties, axis=-1), dtype=np.float64)


MIN_TOKENS = 3  # with two tokens, rho can only be 1 or -1


def spearman(
    scores: ArrayLike,
    others: ArrayLike,
    *,
    ties: Ties = "average",
    tolerance: float = TIE_TOLERANCE,
) -> NDArray[np.float64]:
    """Spearman's rho along the last axis of [..., tokens]; other axes broadcast.

    ties: "average" correlates average ranks. "dense" follows one of the authors' scripts: dense
    ranks in the formula 1 - 6 sum d^2 / (n (n^2 - 1)), which is valid only without ties.
    Returns nan where all scores on one side are tied, and for fewer than 3 tokens; `summarize`
    leaves these out.
    Raises ShapeError if the numbers of tokens differ.

    >>> float(spearman([0.1, 0.2, 0.7], [1, 2, 3]))
    1.0
    """
    first, second = (read_numbers(values) for values in (scores, others))
    _check_shapes(first, second)
    ranks = [rank(values, ties=ties, tolerance=tolerance) for values in (first, second)]
    n = first.shape[-1]
    flat = (np.ptp(ranks[0], axis=-1) == 0) | (np.ptp(ranks[1], axis=-1) == 0) if n else np.True_
    if n < MIN_TOKENS:
        return np.full(np.broadcast_shapes(first.shape[:-1], second.shape[:-1]), np.nan)
    if ties == "dense":
        squares = np.square(ranks[0] - ranks[1]).sum(-1)
        return np.asarray(np.where(flat, np.nan, 1 - 6 * squares / (n * (n**2 - 1))))
    a, b = (values - values.mean(-1, keepdims=True) for values in ranks)
    scale = np.sqrt(np.square(a).sum(-1) * np.square(b).sum(-1))
    rho = (a * b).sum(-1) / np.where(flat, 1.0, scale)
    return np.asarray(np.where(flat, np.nan, np.clip(rho, -1, 1)))


def kendall(
    scores: ArrayLike, others: ArrayLike, *, tolerance: float = TIE_TOLERANCE
) -> NDArray[np.float64]:
    """Kendall's tau-b, which corrects for ties, along the last axis of [..., tokens].

    Returns nan where all scores on one side are tied, and for fewer than 3 tokens.
    Raises ShapeError if the numbers of tokens differ.

    >>> round(float(kendall([0.1, 0.2, 0.7], [1, 3, 2])), 4)
    0.3333
    """
    first, second = (read_numbers(values) for values in (scores, others))
    _check_shapes(first, second)
    pairs = [np.sign(_differences(rank(values, tolerance=tolerance))) for values in (first, second)]
    a, b = pairs
    scale = np.sqrt(np.square(a).sum((-2, -1)) * np.square(b).sum((-2, -1)))
    undefined = (scale == 0) | (first.shape[-1] < MIN_TOKENS)
    agreement = (a * b).sum((-2, -1))
    return np.asarray(np.where(undefined, np.nan, agreement / np.where(scale == 0, 1.0, scale)))


def _differences(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the differences of all pairs, [..., tokens, tokens]."""
    return np.asarray(ranks[..., :, None] - ranks[..., None, :])


def _check_shapes(first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
    """Raise ShapeError unless both have the same number of tokens."""
    if first.shape[-1:] != second.shape[-1:] or not first.ndim or not second.ndim:
        raise ShapeError(
            f"scores have shape {list(first.shape)} and others {list(second.shape)}",
            expected="equal numbers of tokens on the last axis",
            fix="Pass scores of the same tokens.",
        )


def apply_sign(scores: NDArray[np.float64], sign: Sign) -> NDArray[np.float64]:
    """Return the scores to rank: their absolute values, or the scores themselves.

    Scores such as blank-out are positive for tokens that support the prediction and negative for
    those that oppose it. Attention tells how much a token counts and not in which direction, so
    "absolute" is the default wherever the two are compared, as in the paper.
    Raises InputError for another value of sign.

    >>> apply_sign(np.asarray([0.5, -0.7]), "absolute").tolist()
    [0.5, 0.7]
    """
    check_choice("sign", sign, get_args(Sign))
    return np.abs(scores) if sign == "absolute" else scores


def rank_correlation(
    attention: Attribution,
    importance: Attribution,
    *,
    sign: Sign = "absolute",
    position: Position | None = None,
    ties: Ties = "average",
    tolerance: float = TIE_TOLERANCE,
) -> NDArray[np.float64]:
    """Spearman's rho between two Attributions of one position, for each layer of the first.

    importance: an Attribution with one layer, such as blank-out or gradients.
    sign: "absolute" ranks tokens by absolute scores, so that a token which opposes the prediction
    is important, too; "signed" ranks those last.
    position: an index or the text of a token; by default the only position of `importance`.
    Tokens that only one of them has are ignored.
    Returns [..., layers]; nan as in `spearman`.
    Raises InputError for different tokens, ShapeError if importance has several layers.
    """
    for one in (attention, importance):
        check_type(
            one,
            Attribution,
            "Create one: flow(graph), or attnflow.importance.blank_out(text, model).",
        )
    if attention.tokens != importance.tokens:
        raise InputError(
            f"the attributions have different tokens ({len(attention.tokens)} and "
            f"{len(importance.tokens)} of them)",
            expected="the same tokens",
            fix="Compute both for the same text and model.",
        )
    if len(importance.layers) != 1 or (position is None and len(importance.positions) != 1):
        raise ShapeError(
            f"importance has {len(importance.layers)} layers and {len(importance.positions)} "
            "positions",
            expected="one layer and one position",
            fix="Pass the attention method first, and position=... if there are several.",
        )
    place = importance.positions[0] if position is None else position
    shared = [i for i in attention.columns if i in importance.columns]
    rows, others = (
        apply_sign(to_numpy(one[place])[..., [one.columns.index(i) for i in shared]], sign)
        for one in (attention, importance)
    )
    return spearman(rows, others, ties=ties, tolerance=tolerance)
