"""Means over examples, their bootstrap intervals, and paired tests between two methods."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.arrays import read_numbers
from attnflow.errors import InputError, ShapeError, check_number, check_whole, quote
from attnflow.evaluation.correlation import TIE_TOLERANCE, rank
from attnflow.optional import import_optional

RESAMPLES = 10_000


RESAMPLES_PER_BLOCK = 500  # limits the memory of the counts, [resamples, examples]


Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Summary:
    """Mean and standard deviation over examples.

    mean, sd: [...]; sd is the ± in the paper's tables.
    n: [...], the number of examples with a value. left_out: [...], the number without one.
    """

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    n: NDArray[np.int64]
    left_out: NDArray[np.int64]


def summarize(values: ArrayLike) -> Summary:
    """Summarize values [examples, ...], such as rank correlations [examples, layers].

    Values of nan are left out and counted. If none is left, mean and sd are nan.

    >>> summary = summarize([[0.0], [1.0], [np.nan]])
    >>> float(summary.mean[0]), float(summary.sd[0]), int(summary.n[0]), int(summary.left_out[0])
    (0.5, 0.5, 2, 1)
    """
    array = read_numbers(values)
    _check_examples(array)
    known = ~np.isnan(array)
    n = known.sum(axis=0)
    divisor = np.where(n > 0, n, np.nan)
    mean = np.where(known, array, 0).sum(axis=0) / divisor
    squares = np.where(known, np.square(array - mean), 0).sum(axis=0)
    return Summary(mean, np.sqrt(squares / divisor), n, len(array) - n)


def _check_examples(array: NDArray[np.float64]) -> None:
    """Raise ShapeError for a single number."""
    if not array.ndim:
        raise ShapeError(
            "the values are a single number", expected="[examples, ...]", fix="Pass a list."
        )


def summarize_groups(
    values: ArrayLike, groups: Sequence[Group] | NDArray[Any]
) -> dict[Group, Summary]:
    """Summarize groups of examples, such as those with the same number of attractors.

    groups: the group of each example. Returns summaries by group, sorted.
    Raises ShapeError unless there is one group for each example.

    >>> {k: float(s.mean) for k, s in summarize_groups([0.0, 1.0, 0.5], [1, 0, 1]).items()}
    {0: 1.0, 1: 0.25}
    """
    array = read_numbers(values)
    _check_examples(array)
    listed: Any = groups.tolist() if isinstance(groups, np.ndarray) else groups
    if not isinstance(listed, list | tuple | range) or len(listed) != len(array):
        raise ShapeError(
            f"groups is {quote(groups)} for {len(array)} examples",
            expected=f"{len(array)} entries",
            fix="Pass the group of every example.",
        )
    rows: dict[Group, list[int]] = {}
    for i, group in enumerate(listed):
        rows.setdefault(group, []).append(i)
    return {group: summarize(array[rows[group]]) for group in sorted(rows)}  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Interval:
    """A confidence interval: its ends, each of the shape of the mean, and its level."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    level: float


def bootstrap_intervals(
    values: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Bootstrap percentile intervals of the mean of values [examples, ...] (Efron 1979).

    Whole examples are resampled, so the values of an example stay together. Values of nan are
    ignored.
    level: the share of resampled means inside the interval. seed: makes the result reproducible.
    Returns ends of shape [...]; nan where no example has a value.
    Raises InputError for no examples, or a level that is not between 0 and 1.

    >>> interval = bootstrap_intervals([[1.0], [1.0]], resamples=100)
    >>> float(interval.low[0]), float(interval.high[0])
    (1.0, 1.0)
    """
    array = read_numbers(values)
    if not array.ndim or not len(array):
        raise InputError(
            "values is empty",
            expected="at least one example",
            fix="Pass values [examples, ...].",
        )
    check_number("level", level, above=0)
    check_whole("resamples", resamples)
    check_whole("seed", seed, first=0)
    if not level < 1:
        raise InputError(
            f"level is {level}",
            expected="a number between 0 and 1",
            fix="Use 0.95.",
        )
    rows = array.reshape(len(array), -1)
    known = ~np.isnan(rows)
    filled = np.where(known, rows, 0.0)
    resamples = index(resamples)
    random = np.random.default_rng(index(seed))
    means = []
    n = len(rows)
    for start in range(0, resamples, RESAMPLES_PER_BLOCK):
        size = min(RESAMPLES_PER_BLOCK, resamples - start)
        counts = random.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)
        drawn = counts @ known
        means.append(counts @ filled / np.where(drawn > 0, drawn, np.nan))
    ends = [(1 - level) / 2, (1 + level) / 2]
    some = known.any(axis=0)
    quantiles = np.full((2, rows.shape[1]), np.nan)
    if some.any():
        quantiles[:, some] = np.nanquantile(np.concatenate(means)[:, some], ends, axis=0)
    low, high = quantiles.reshape(2, *array.shape[1:])
    return Interval(low, high, level)


@dataclass(frozen=True, eq=False)
class Comparison:
    """A paired comparison of two methods, for each layer.

    difference: [layers], the mean of first minus second. interval: its confidence interval.
    p: [layers], of the Wilcoxon signed-rank test, not corrected; nan if no example differs.
    n: [layers], the number of examples with a value for both.
    """

    difference: NDArray[np.float64]
    interval: Interval
    p: NDArray[np.float64]
    n: NDArray[np.int64]


def compare_paired(
    first: ArrayLike, second: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Compare values [examples, layers] of two methods, example by example.

    The test is the two-sided Wilcoxon signed-rank test, which does not assume normal differences.
    Examples without a difference are left out of it.
    Raises ShapeError if the shapes differ.
    """
    one, other = (read_numbers(values) for values in (first, second))
    if one.shape != other.shape or one.ndim != 2:
        raise ShapeError(
            f"the values have shapes {list(one.shape)} and {list(other.shape)}",
            expected="[examples, layers] twice",
            fix="Pass the same examples in the same order.",
        )
    differences = one - other
    known = ~np.isnan(differences)
    n = known.sum(axis=0)
    mean = np.where(known, differences, 0).sum(axis=0) / np.where(n > 0, n, np.nan)
    p = [_wilcoxon(column[~np.isnan(column)]) for column in differences.T]
    interval = bootstrap_intervals(differences, resamples=resamples, seed=seed)
    return Comparison(mean, interval, np.asarray(p), n)


def _wilcoxon(differences: NDArray[np.float64]) -> float:
    """The p value of the signed-rank test; nan if there are no differences."""
    stats = import_optional("scipy.stats", "significance tests")
    nonzero = differences[np.abs(differences) > TIE_TOLERANCE]
    return float(stats.wilcoxon(nonzero).pvalue) if len(nonzero) else float("nan")


def holm(p: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Correct p values for multiple tests (Holm 1979).

    The smallest of n values is multiplied by n, the next by n - 1, and so on; corrected values
    never decrease in this order and never exceed 1. Values of nan are kept and not counted. The
    shape stays the same.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    array = read_numbers(p)
    flat = array.reshape(-1)
    tests = np.flatnonzero(~np.isnan(flat))
    order = tests[np.argsort(flat[tests], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected = flat.copy()
    corrected[order] = np.minimum(np.maximum.accumulate(flat[order] * factors), 1.0)
    return corrected.reshape(array.shape)


@dataclass(frozen=True, eq=False)
class Friedman:
    """The Friedman test: whether any of several explainers differs from the others.

    mean_ranks: [explainers], 1 for the lowest value. statistic: chi-squared, corrected for ties.
    p: its p value. n: the number of texts with a value for all explainers. Statistic and p are
    nan if there are fewer than 2 texts or explainers, or if all values are tied.
    """

    mean_ranks: NDArray[np.float64]
    statistic: float
    p: float
    n: int


def friedman(values: ArrayLike) -> Friedman:
    """Test whether explainers rank alike on all texts (Friedman 1937).

    values: [texts, explainers]; the lowest of a text has rank 1, tied values share their mean
    rank. Texts with a value of nan are left out.
    Raises ShapeError for another number of axes.

    >>> result = friedman([[1, 2, 3], [1, 3, 2], [1, 2, 3]])
    >>> result.mean_ranks.round(2).tolist(), round(result.statistic, 4), round(result.p, 3)
    ([1.0, 2.33, 2.67], 4.6667, 0.097)
    """
    array = read_numbers(values)
    if array.ndim != 2:
        raise ShapeError(
            f"the values have shape {list(array.shape)}",
            expected="[texts, explainers]",
            fix="Pass one row for each text.",
        )
    array = array[~np.isnan(array).any(axis=1)]
    n, k = array.shape
    if n < 2 or k < 2:
        ranks = rank(array) if n and k else array
        means = ranks.mean(axis=0) if n else np.full(k, np.nan)
        return Friedman(means, float("nan"), float("nan"), n)
    ranks = rank(array)
    means = ranks.mean(axis=0)
    # The variance of the ranks of a text is k (k + 1) / 12 without ties, and smaller with them.
    variance = float(ranks.var(axis=1, ddof=1).mean())
    if variance == 0:
        return Friedman(means, float("nan"), float("nan"), n)
    statistic = n * float(np.square(means - (k + 1) / 2).sum()) / variance
    stats = import_optional("scipy.stats", "significance tests")
    return Friedman(means, statistic, float(stats.chi2.sf(statistic, k - 1)), n)


def critical_difference(n_explainers: int, n_texts: int, level: float = 0.05) -> float:
    """Return the difference of mean ranks from which two explainers differ (Nemenyi 1963).

    level: the probability that any two of equally good explainers differ by this much.
    Raises InputError for fewer than 2 explainers, no texts, or a level not between 0 and 1.

    >>> round(critical_difference(4, 14), 3)  # 2.569 * sqrt(4 * 5 / (6 * 14)), Demsar 2006
    1.254
    """
    check_number("level", level)
    check_whole("n_explainers", n_explainers, first=0)
    check_whole("n_texts", n_texts, first=0)
    if n_explainers < 2 or n_texts < 1 or not 0 < level < 1:
        raise InputError(
            f"there are {n_explainers} explainers and {n_texts} texts, and level is {level}",
            expected="2 explainers and 1 text or more, and a level between 0 and 1",
            fix="Compare more explainers or texts, at a level such as 0.05.",
        )
    stats = import_optional("scipy.stats", "significance tests")
    quantile = float(stats.studentized_range.ppf(1 - level, n_explainers, np.inf)) / np.sqrt(2)
    return float(quantile * np.sqrt(n_explainers * (n_explainers + 1) / (6 * n_texts)))
