"""Orders of tokens by their scores, where ties are resolved by expectation.

A metric that removes the three most relevant tokens must choose among tied ones. Instead of the
order that a sort happens to return, all choices count equally: `removed_sets` returns the possible
sets, or a sample if there are many, and metrics average over them. Metrics that depend on more than
one set at a time average over the possible `tie_orders`. Constant scores, where every token is
tied, therefore behave as a random explanation.
"""

from itertools import chain, combinations, permutations, product
from math import ceil, comb, factorial, prod
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import check_choice

Bools: TypeAlias = NDArray[np.bool_]
# signed: tokens that oppose the prediction come last. positive: they are tied at 0.
# absolute: the size of a score counts, whatever its sign.
Sign: TypeAlias = Literal["signed", "positive", "absolute"]

# Scores are tied if they differ by no more than rounding in single precision, or than the
# tolerance of flows, which is a part of the largest score.
RELATIVE_TOLERANCE = 1e-6
FLOW_TOLERANCE = 1e-12
SAMPLES = 4  # sets or orders to average over, where ties allow more


def rank_by(scores: ArrayLike, sign: Sign) -> NDArray[np.float64]:
    """Return the scores to rank tokens by. Raises InputError for an unknown sign.

    >>> rank_by([0.5, -0.7], "positive").tolist(), rank_by([0.5, -0.7], "absolute").tolist()
    ([0.5, 0.0], [0.5, 0.7])
    """
    check_choice("sign", sign, get_args(Sign))
    values = np.asarray(scores, dtype=np.float64)
    if sign == "positive":
        return np.maximum(values, 0.0)
    return np.abs(values) if sign == "absolute" else values


def tie_groups(scores: ArrayLike) -> list[NDArray[np.int64]]:
    """Return the indices of the tokens in groups of tied ones, the highest scores first.

    >>> [group.tolist() for group in tie_groups([0.5, 0.1, 0.5, 0.0])]
    [[0, 2], [1], [3]]
    """
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    size = np.maximum(np.abs(ordered[1:]), np.abs(ordered[:-1]))
    smallest = FLOW_TOLERANCE * np.abs(ordered).max(initial=0.0)
    steps = ordered[:-1] - ordered[1:] > smallest + RELATIVE_TOLERANCE * size
    return [np.sort(group) for group in np.split(order, np.flatnonzero(steps) + 1) if len(group)]


def tie_ranks(scores: ArrayLike) -> NDArray[np.float64]:
    """Return dense ranks, higher for higher scores; tied tokens have the same.

    >>> tie_ranks([0.5, 0.1, 0.5, 0.0]).tolist()
    [2.0, 1.0, 2.0, 0.0]
    """
    groups = tie_groups(scores)
    ranks = np.zeros(sum(len(group) for group in groups))
    for number, group in enumerate(groups):
        ranks[group] = len(groups) - 1 - number
    return ranks


def removed_sets(groups: list[NDArray[np.int64]], count: int, *, samples: int = SAMPLES) -> Bools:
    """Return the sets of the first `count` tokens in the order of the groups, [sets, tokens].

    groups: of `tie_groups`, or these in reverse. Without a tie at the cut there is one set. With
    one, there are all possible sets, or `samples` of them if there are more. The sample depends
    only on the tied tokens, and sets of different counts are nested.

    >>> removed_sets([np.array([1]), np.array([0, 2])], 2).astype(int).tolist()
    [[1, 1, 0], [0, 1, 1]]
    """
    n = sum(len(group) for group in groups)
    removed = np.zeros(n, dtype=bool)
    for group in groups:
        if count >= len(group):
            removed[group] = True
            count -= len(group)
            continue
        if count == 0:
            break
        choices = _choose(group, count, samples)
        sets = np.repeat(removed[None], len(choices), axis=0)
        np.put_along_axis(sets, choices, True, axis=1)
        return sets
    return removed[None]


def _choose(group: NDArray[np.int64], count: int, samples: int) -> NDArray[np.int64]:
    """Return choices [choices, count] of `count` members of a group: all of them, or a sample."""
    if comb(len(group), count) <= samples:
        return np.asarray(list(combinations(group.tolist(), count)), dtype=np.int64)
    return _sample_orders(group, samples)[:, :count]


def _sample_orders(group: NDArray[np.int64], samples: int) -> NDArray[np.int64]:
    """Return random orders [samples, members] of a group, always the same ones.

    Orders come in fours: a random one, the same starting from its middle, and the reverse of both.
    Each is as likely as any other, but together they remove all members about equally often, which
    leaves less noise in the mean than independent orders do.
    """
    random = np.random.default_rng(group)
    first = random.permuted(np.repeat(group[None], ceil(samples / 4), axis=0), axis=1)
    halfway = np.roll(first, len(group) // 2, axis=1)
    fours = np.stack([first, first[:, ::-1], halfway, halfway[:, ::-1]], axis=1)
    return fours.reshape(-1, len(group))[:samples]


def tie_orders(groups: list[NDArray[np.int64]], *, samples: int = SAMPLES) -> NDArray[np.int64]:
    """Return the orders of the tokens that the groups allow, [orders, tokens].

    These are all possible orders, or `samples` of them if there are more. The first tokens of each
    order are one of the `removed_sets`.

    >>> tie_orders([np.array([1]), np.array([0, 2])]).tolist()
    [[1, 0, 2], [1, 2, 0]]
    """
    if prod(factorial(len(group)) for group in groups) <= samples:
        choices = product(*(permutations(group.tolist()) for group in groups))
        return np.asarray([list(chain(*choice)) for choice in choices], dtype=np.int64)
    return np.concatenate([_sample_orders(group, samples) for group in groups], axis=1)
