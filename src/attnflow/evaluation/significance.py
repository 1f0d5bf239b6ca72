"""Whether two methods differ on the same examples by more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import ShapeError
from attnflow.evaluation.bootstrap import RESAMPLES, Interval, bootstrap_intervals
from attnflow.evaluation.ranks import SAME, import_stats


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
            f"the values have shapes {list(one.shape)} and {list(other.shape)}; expected "
            "[examples, layers] twice. Give the same examples in the same order."
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
