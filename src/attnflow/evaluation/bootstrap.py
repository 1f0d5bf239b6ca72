"""Confidence intervals of means, by drawing examples again and again (Efron 1979)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import InputError

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
        raise InputError("there are no examples to draw from; expected at least one. Give some.")
    if not 0 < level < 1 or resamples < 1:
        raise InputError(
            f"level is {level} and resamples {resamples}; expected a level between 0 and 1 and 1 "
            "resample or more. Use 0.95 and 10000."
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
