"""Scores against known evidence: whether an explanation finds the tokens that decide.

Each function takes scores [tokens] and whether each token is evidence, [tokens]. Ties are resolved
by expectation, so that constant scores get the level of chance.
"""

from math import ceil, comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import InputError, ShapeError
from attnflow.evaluation.orders import tie_groups

TOP_SHARE = 0.1  # of the tokens, for `recovery`


def reciprocal_rank(scores: ArrayLike, evidence: ArrayLike) -> float:
    """Return 1 / rank of the first token of the evidence; 1 is best.

    >>> reciprocal_rank([0.5, 0.2, 0.3], [False, False, True])
    0.5
    >>> reciprocal_rank([1, 1], [True, False])  # rank 1 or 2
    0.75
    """
    marked = _check(scores, evidence)
    above = 0
    for group in tie_groups(scores):
        found, size = int(marked[group].sum()), len(group)
        if found:
            # The chance that the first of `found` tokens is in place x of the group.
            chances = [
                comb(size - x, found - 1) / comb(size, found) for x in range(1, size - found + 2)
            ]
            return sum(chance / (above + x) for x, chance in enumerate(chances, start=1))
        above += size
    raise AssertionError("unreachable: the evidence has a token")


def pointing_game(scores: ArrayLike, evidence: ArrayLike) -> float:
    """Return 1 if the token with the highest score is evidence, otherwise 0.

    >>> pointing_game([0.5, 0.5, 0.3], [False, True, True])
    0.5
    """
    marked = _check(scores, evidence)
    return float(marked[tie_groups(scores)[0]].mean())


def relevance_mass(scores: ArrayLike, evidence: ArrayLike) -> float:
    """Return the share of the positive scores that is on the evidence.

    If no score is positive, it is the share of the tokens.

    >>> relevance_mass([0.5, -0.2, 1.5], [False, True, True])
    0.75
    """
    marked = _check(scores, evidence)
    positive = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    if positive.sum() == 0:
        return float(marked.mean())
    return float(positive[marked].sum() / positive.sum())


def recovery(scores: ArrayLike, evidence: ArrayLike) -> float:
    """Return the share of the evidence among the tenth of the tokens with the highest scores.

    >>> recovery([3, 2, 1], [True, True, False])  # one token is the first tenth
    0.5
    """
    marked = _check(scores, evidence)
    left = ceil(TOP_SHARE * len(marked))
    found = 0.0
    for group in tie_groups(scores):
        taken = min(left, len(group))
        found += taken * float(marked[group].mean())
        left -= taken
    return found / float(marked.sum())


def _check(scores: ArrayLike, evidence: ArrayLike) -> NDArray[np.bool_]:
    """Return the evidence as an array. Raises an error if it does not fit the scores."""
    marked = np.asarray(evidence, dtype=bool)
    if marked.shape != np.shape(scores) or marked.ndim != 1:
        raise ShapeError(
            f"scores have shape {list(np.shape(scores))} and evidence {list(marked.shape)}",
            expected="[tokens] twice",
            fix="Say of each token whether it is evidence.",
        )
    if not marked.any():
        raise InputError(
            "no token is evidence",
            expected="at least one",
            fix="Leave out texts without evidence.",
        )
    return marked
