"""Perturbation metrics: what the model predicts when tokens are removed in the order of the scores.

All of them are read from two curves: the score of the prediction after the `count` most relevant
tokens were removed, and after the `count` least relevant ones were. `Ask` is the way to ask the
model; what "removed" means (masked, replaced, cut out) is up to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.evaluation.orders import SAMPLES, Bools, removed_sets, tie_groups, tie_orders

Floats: TypeAlias = NDArray[np.float64]
First: TypeAlias = Literal["most", "least"]

BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # shares of the tokens, as in ERASER
STEPS = 20  # of a curve; short texts have one for each token
KEPT = 0.5  # mean chance that a dimension is kept, in the soft metrics


class Ask(Protocol):
    """A model that can be asked about a text without some of its tokens."""

    @property
    def n(self) -> int:
        """The number of tokens that are ranked."""

    def log_probability(self, removed: Bools) -> Floats:
        """Return log p [sets] of the prediction without these tokens. removed: [sets, tokens]."""

    def soft_probability(self, kept: Floats) -> Floats:
        """Return p [rows] if each dimension of a token is kept by chance. kept: [rows, tokens]."""


@dataclass(frozen=True, eq=False)
class Curves:
    """The prediction as tokens are removed in the order of their scores.

    scores: [tokens], the higher the more relevant. ask: the model.
    samples: the number of sets to average over where tokens are tied.
    """

    scores: Floats
    ask: Ask
    samples: int = SAMPLES
    _groups: list[NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_groups", tie_groups(self.scores))

    @property
    def n(self) -> int:
        """The number of tokens."""
        return len(self.scores)

    def sets(self, count: int, first: First) -> Bools:
        """Return the sets of `count` tokens, the most or the least relevant ones first."""
        groups = self._groups if first == "most" else self._groups[::-1]
        return removed_sets(groups, count, samples=self.samples)

    def orders(self) -> NDArray[np.int64]:
        """Return the orders of the tokens, the most relevant ones first, [orders, tokens]."""
        return tie_orders(self._groups, samples=self.samples)

    def log_probability(self, count: int, first: First = "most") -> float:
        """Return the mean of log p over these sets."""
        return float(self.ask.log_probability(self.sets(count, first)).mean())

    def probability(self, count: int, first: First = "most") -> float:
        """Return the mean of p over these sets."""
        return float(np.exp(self.ask.log_probability(self.sets(count, first))).mean())

    def probabilities(self, counts: Sequence[int], first: First = "most") -> Floats:
        """Return `probability` for several counts."""
        return np.asarray([self.probability(count, first) for count in counts])


def bins(n: int) -> list[int]:
    """Return the number of tokens in each bin of ERASER, at least one.

    >>> bins(20)
    [1, 1, 2, 4, 10]
    """
    return [max(1, ceil(share * n - 1e-9)) for share in BINS]


def grid(n: int) -> list[int]:
    """Return the points of a curve: numbers of removed tokens, from 0 to n.

    >>> grid(3), len(grid(500))
    ([0, 1, 2, 3], 21)
    """
    points = np.linspace(0, n, min(n, STEPS) + 1).round()
    return [int(point) for point in points]


def comprehensiveness(curves: Curves) -> float:
    """Return p minus p without the most relevant tokens, averaged over the bins; high is good."""
    full = curves.probability(0)
    return float(np.mean(full - curves.probabilities(bins(curves.n))))


def sufficiency(curves: Curves) -> float:
    """Return p minus p with the most relevant tokens only, averaged over the bins; low is good."""
    full = curves.probability(0)
    counts = [curves.n - count for count in bins(curves.n)]
    return float(np.mean(full - curves.probabilities(counts, "least")))


def log_odds(curves: Curves) -> float:
    """Return log p without the most relevant tokens minus log p, averaged over the bins; low."""
    full = curves.log_probability(0)
    return float(np.mean([curves.log_probability(count) - full for count in bins(curves.n)]))


def aopc(curves: Curves) -> float:
    """Return p minus p without the first k tokens, averaged over all k from 1; high is good."""
    full = curves.probability(0)
    return float(np.mean(full - curves.probabilities(range(1, curves.n + 1))))


def morf(curves: Curves) -> float:
    """Return the area under p as the most relevant tokens are removed first; low is good."""
    return _area(curves, "most")


def lerf(curves: Curves) -> float:
    """Return the area under p as the least relevant tokens are removed first; high is good."""
    return _area(curves, "least")


def lerf_minus_morf(curves: Curves) -> float:
    """Return the area between the two curves; high is good."""
    return lerf(curves) - morf(curves)


def _area(curves: Curves, first: First) -> float:
    counts = grid(curves.n)
    return float(np.trapezoid(curves.probabilities(counts, first), np.asarray(counts) / curves.n))


def rise(curves: Curves) -> float:
    """Return the area under the normalized log p as the most relevant tokens are removed; low.

    log p is scaled to 1 for the whole text and 0 for the text without any ranked token, clipped to
    [0, 1], and may not rise again.
    """
    return float(np.mean([_mean_area(response) for _, response in _responses(curves)]))


def mas(curves: Curves) -> float:
    """Return the area of `rise` with a penalty where the scores and the response disagree; low.

    The penalty is the distance of the response from the share of the positive scores that is not
    removed yet. The sum is clipped to [0, 1].
    """
    positive = np.maximum(curves.scores, 0.0)
    total = positive.sum()
    counts = np.asarray(grid(curves.n))
    areas = []
    for order, response in _responses(curves):
        density = 1 - counts / curves.n
        if total > 0:
            density = 1 - np.cumsum([0.0, *positive[order]])[counts] / total
        # The sum begins at 1 and ends at 0, so it need not be scaled after it was clipped.
        areas.append(_mean_area(np.clip(response + np.abs(response - density), 0.0, 1.0)))
    return float(np.mean(areas))


def _responses(curves: Curves) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Yield each order, and its normalized response at the points of the grid, which never rises.

    A response is not linear in log p, so it is computed for each order of tied tokens by itself.
    """
    counts = grid(curves.n)
    for order in curves.orders():
        sets = np.zeros((len(counts), curves.n), dtype=bool)
        for row, count in zip(sets, counts, strict=True):
            row[order[:count]] = True
        values = curves.ask.log_probability(sets)
        drop = abs(values[0] - values[-1])
        if drop == 0:
            yield order, np.linspace(1.0, 0.0, len(values))
        else:
            scaled = np.clip((values - values[-1]) / drop, 0.0, 1.0)
            yield order, np.minimum.accumulate(scaled)


def _mean_area(values: Floats) -> float:
    """Return the area under values at equal steps from 0 to 1."""
    return float(np.trapezoid(values, dx=1 / (len(values) - 1)))


def soft_comprehensiveness(curves: Curves) -> float:
    """Return the drop of p if relevant tokens lose dimensions, against losing all; high is good.

    Each dimension of a token is dropped with the chance `keep_chances` gives to its score.
    """
    return _soft_share(curves, 1 - keep_chances(curves.scores))


def soft_sufficiency(curves: Curves) -> float:
    """Return how much of p is left if irrelevant tokens lose dimensions; high is good."""
    return 1 - _soft_share(curves, keep_chances(curves.scores))


def _soft_share(curves: Curves, kept: Floats) -> float:
    """Return the drop of p as a share of the drop if all is lost; nan if p does not drop then."""
    full = curves.probability(0)
    soft, empty = curves.ask.soft_probability(np.stack([kept, np.zeros_like(kept)]))
    most = full - empty
    return float(np.clip((full - soft) / most, 0.0, 1.0)) if most > 0 else float("nan")


def keep_chances(scores: ArrayLike, mean: float = KEPT) -> Floats:
    """Turn scores into chances in [0, 1] whose mean is the same for every method (the pi form).

    Scores are shifted to start at 0 and multiplied by one factor; chances are cut at 1. If that
    cannot reach the mean, because few tokens have a score above the lowest, the rest is spread
    over the others. Tied scores have equal chances.

    >>> keep_chances([1.0, 3.0, 2.0]).tolist()
    [0.0, 1.0, 0.5]
    >>> keep_chances([0.0, 5.0, 0.0, 0.0]).round(3).tolist()
    [0.333, 1.0, 0.333, 0.333]
    """
    values = np.array(scores, dtype=np.float64)
    for group in tie_groups(values):
        values[group] = values[group].mean()
    shifted = values - values.min()
    wanted = mean * len(shifted)
    chances = np.zeros(len(shifted))
    open_ = shifted > 0
    while open_.any():
        factor = (wanted - chances.sum()) / shifted[open_].sum()
        full = open_ & (shifted * factor >= 1)
        if not full.any():
            chances[open_] = shifted[open_] * factor
            return chances
        chances[full] = 1.0
        open_ &= ~full
    lowest = shifted == 0
    chances[lowest] = (wanted - chances.sum()) / lowest.sum()
    return chances


def aopc_limits(ask: Ask, *, width: int = 5, exhaustive: int = 8) -> tuple[float, float]:
    """Return the lowest and the highest AOPC that any order of the tokens reaches.

    Up to `exhaustive` tokens, all orders are searched. For longer texts, a beam search keeps the
    best `width` orders of each length, so the limits are those that it finds.
    """
    full = float(np.exp(ask.log_probability(np.zeros((1, ask.n), dtype=bool)))[0])
    beam = 2**ask.n if ask.n <= exhaustive else width
    lowest, highest = (_search(ask, full, sign, beam) for sign in (-1.0, 1.0))
    return lowest, highest


def _search(ask: Ask, full: float, sign: float, width: int) -> float:
    """Return the AOPC of the best order; sign -1 searches the lowest."""
    totals: dict[bytes, float] = {np.zeros(ask.n, dtype=bool).tobytes(): 0.0}
    for _ in range(ask.n):
        nexts: dict[bytes, float] = {}
        for key, total in totals.items():
            removed = np.frombuffer(key, dtype=bool)
            for token in np.flatnonzero(~removed):
                more = removed.copy()
                more[token] = True
                name = more.tobytes()
                nexts[name] = max(nexts.get(name, -np.inf), total)
        sets = np.asarray([np.frombuffer(key, dtype=bool) for key in nexts])
        drops = sign * (full - np.exp(ask.log_probability(sets)))
        ranked = sorted(
            ((total + drop, key) for (key, total), drop in zip(nexts.items(), drops, strict=True)),
            key=lambda item: -item[0],
        )
        totals = {key: total for total, key in ranked[:width]}
    return sign * max(totals.values()) / ask.n


Function: TypeAlias = Callable[[Curves], float]
