"""Whether two methods differ on the same examples by more than chance.

Confidence intervals of means, by drawing examples again and again (Efron 1979).

Means and standard deviations over examples, also by groups of them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import InputError, ShapeError
from attnflow.evaluation.correlation import SAME, import_stats

RESAMPLES = 10_000
DRAWN_AT_ONCE = 500  # resamples; to keep the counts, [resamples, examples], small


@dataclass(frozen=True, eq=False)
class Interval:
    """The ends of a confidence interval, each of the shape of the mean. level: such as 0.95."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    level: float


def bootstrap_intervals(
    values: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Percentile intervals of the mean of values [examples, ...] over examples.

    Whole examples are drawn, so that all that belongs to an example stays together; those whose
    value is nan are left out of the mean of each draw, and a draw without any is left out.
    level: the share of draws between the ends. seed: the same one gives the same interval.
    Returns ends of shape [...]; nan where no example has a value.
    Raises InputError for no examples, or a level that is not between 0 and 1.

    >>> interval = bootstrap_intervals([[1.0], [1.0]], resamples=100)
    >>> float(interval.low[0]), float(interval.high[0])
    (1.0, 1.0)
    """
    given = np.asarray(values, dtype=np.float64)
    if not given.ndim or not len(given):
        raise InputError(
            "there are no examples to draw from",
            expected="at least one",
            fix="Give some.",
        )
    if not 0 < level < 1 or resamples < 1:
        raise InputError(
            f"level is {level} and resamples {resamples}",
            expected="a level between 0 and 1 and 1 resample or more",
            fix="Use 0.95 and 10000.",
        )
    rows = given.reshape(len(given), -1)
    known = ~np.isnan(rows)
    filled = np.where(known, rows, 0.0)
    random = np.random.default_rng(seed)
    means = []
    n = len(rows)
    for start in range(0, resamples, DRAWN_AT_ONCE):
        size = min(DRAWN_AT_ONCE, resamples - start)
        counts = random.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)
        drawn = counts @ known
        means.append(counts @ filled / np.where(drawn > 0, drawn, np.nan))
    ends = [(1 - level) / 2, (1 + level) / 2]
    some = known.any(axis=0)
    quantiles = np.full((2, rows.shape[1]), np.nan)
    if some.any():
        quantiles[:, some] = np.nanquantile(np.concatenate(means)[:, some], ends, axis=0)
    low, high = quantiles.reshape(2, *given.shape[1:])
    return Interval(low, high, level)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two methods on the same examples, for each layer.

    difference: [layers], the mean of the first minus the second. interval: of that difference.
    p: [layers], of the Wilcoxon signed-rank test, not corrected; nan where no example differs.
    n: [layers], how many examples both have a value for.
    """

    difference: NDArray[np.float64]
    interval: Interval
    p: NDArray[np.float64]
    n: NDArray[np.int64]


def compare_paired(
    first: ArrayLike, second: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Compare values [examples, layers] of two methods, example by example.

    The test is Wilcoxon's signed-rank test, of two sides: it asks whether differences lie evenly
    around 0, and not whether they are normal. Examples that do not differ are left out of it.
    Raises ShapeError if the shapes differ.
    """
    one, other = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if one.shape != other.shape or one.ndim != 2:
        raise ShapeError(
            f"the values have shapes {list(one.shape)} and {list(other.shape)}",
            expected="[examples, layers] twice",
            fix="Give the same examples in the same order.",
        )
    differences = one - other
    known = ~np.isnan(differences)
    n = known.sum(axis=0)
    mean = np.where(known, differences, 0).sum(axis=0) / np.where(n > 0, n, np.nan)
    p = [_wilcoxon(column[~np.isnan(column)]) for column in differences.T]
    interval = bootstrap_intervals(differences, resamples=resamples, seed=seed)
    return Comparison(mean, interval, np.asarray(p), n)


def _wilcoxon(differences: NDArray[np.float64]) -> float:
    """The p of the signed-rank test; nan if nothing differs."""
    stats = import_stats("testing for significance")
    left = differences[np.abs(differences) > SAME]
    return float(stats.wilcoxon(left).pvalue) if len(left) else float("nan")


def holm(p: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Correct p values for their number, by the method of Holm (1979).

    The smallest is multiplied by how many there are, the next by one less, and so on; none gets
    smaller than one before it, or greater than 1. Values of nan were no tests: they stay, and are
    not counted. The shape stays.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    given = np.asarray(p, dtype=np.float64)
    flat = given.reshape(-1)
    tests = np.flatnonzero(~np.isnan(flat))
    order = tests[np.argsort(flat[tests], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected = flat.copy()
    corrected[order] = np.minimum(np.maximum.accumulate(flat[order] * factors), 1.0)
    return corrected.reshape(given.shape)


Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Summary:
    """Values of many examples in few numbers, for each layer.

    mean, sd: [...]; the standard deviation over examples, as the ± of the paper's tables.
    n: [...], how many examples these are of. left_out: [...], how many had no value.
    """

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    n: NDArray[np.int64]
    left_out: NDArray[np.int64]


def summarize(values: ArrayLike) -> Summary:
    """Sum up values [examples, ...], such as rank correlations [examples, layers].

    Examples whose value is nan are left out, and counted. Without any, mean and sd are nan.

    >>> summary = summarize([[0.0], [1.0], [np.nan]])
    >>> float(summary.mean[0]), float(summary.sd[0]), int(summary.n[0]), int(summary.left_out[0])
    (0.5, 0.5, 2, 1)
    """
    given = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(given)
    n = known.sum(axis=0)
    divisor = np.where(n > 0, n, np.nan)
    mean = np.where(known, given, 0).sum(axis=0) / divisor
    squares = np.where(known, np.square(given - mean), 0).sum(axis=0)
    return Summary(mean, np.sqrt(squares / divisor), n, len(given) - n)


def summarize_groups(values: ArrayLike, groups: Sequence[Group]) -> dict[Group, Summary]:
    """Sum up each group of examples by itself, such as those with as many attractors.

    groups: the group of each example. Returns them in their order.
    Raises ShapeError if there are more or fewer groups than examples.

    >>> {k: float(s.mean) for k, s in summarize_groups([0.0, 1.0, 0.5], [1, 0, 1]).items()}
    {0: 1.0, 1: 0.25}
    """
    given = np.asarray(values, dtype=np.float64)
    if len(groups) != len(given):
        raise ShapeError(
            f"{len(groups)} groups were given for {len(given)} examples",
            expected="one for each",
            fix="Name the group of every example.",
        )
    rows: dict[Group, list[int]] = {}
    for i, group in enumerate(groups):
        rows.setdefault(group, []).append(i)
    return {group: summarize(given[rows[group]]) for group in sorted(rows)}  # type: ignore[type-var]
