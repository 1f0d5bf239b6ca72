"""Ranks of several explainers: the Friedman test and Nemenyi's critical difference."""

import numpy as np
import pytest
from scipy import stats

from attnflow.errors import InputError, ShapeError
from attnflow.evaluation.significance import critical_difference, friedman
from tests.refusal import refusal

NAN = float("nan")
# Demsar 2006, "Statistical Comparisons of Classifiers over Multiple Data Sets", table 5 (a).
PUBLISHED = {
    0.05: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
    0.10: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920],
}
# Table 6 of the same paper: ranks of 4 classifiers on 14 data sets.
RANKS: list[list[float]] = [
    [4, 3, 2, 1],
    [1, 2, 3, 4],
    [4, 1, 2, 3],
    [4, 1, 3, 2],
    [4, 2, 3, 1],
    [1, 2.5, 4, 2.5],
    [3, 2, 4, 1],
    [2.5, 2.5, 4, 1],
    [4, 3, 2, 1],
    [2.5, 2.5, 2.5, 2.5],
    [4, 2.5, 1, 2.5],
    [3, 2, 4, 1],
    [4, 1, 2, 3],
    [3, 1, 4, 2],
]


@pytest.mark.parametrize("level", [0.05, 0.10])
@pytest.mark.parametrize("k", range(2, 11))
def test_published_critical_values(level, k):
    # The critical difference is q sqrt(k (k + 1) / 6 N); the paper rounds q to 3 digits, in places
    # to the digit above or below.
    q = critical_difference(k, 1, level) / np.sqrt(k * (k + 1) / 6)
    assert q == pytest.approx(PUBLISHED[level][k - 2], abs=1.1e-3)


def test_the_published_example():
    result = friedman(RANKS)
    assert result.mean_ranks.round(3).tolist() == [3.143, 2.0, 2.893, 1.964]
    # The paper's 9.28 is not corrected for ties. The correction divides by
    # 1 - sum (t^3 - t) / (N k (k^2 - 1)), with 3 pairs of ties, 6 each, and one of four, 60.
    assert result.statistic * (1 - 78 / (14 * 4 * 15)) == pytest.approx(9.28, abs=5e-3)
    assert critical_difference(4, 14, 0.10) == pytest.approx(1.12, abs=5e-3)


def test_hand_computed():
    # Ranks 1 2 3, 1 3 2, 1 2 3: mean ranks 1, 7/3, 8/3; 12 * 3 / (3 * 4) * (1 + 1/9 + 4/9) = 14/3.
    result = friedman([[0.1, 0.2, 0.3], [5.0, 9.0, 7.0], [-3.0, -2.0, -1.0]])
    assert result.mean_ranks == pytest.approx([1, 7 / 3, 8 / 3])
    assert result.statistic == pytest.approx(14 / 3)
    assert result.p == pytest.approx(np.exp(-14 / 6))  # chi-squared with 2 degrees of freedom
    assert result.n == 3


def test_same_as_scipy_with_ties():
    values = np.random.default_rng(0).integers(0, 4, size=(40, 6)).astype(float)
    values[:, 0] += 1
    result, expected = friedman(values), stats.friedmanchisquare(*values.T)
    assert result.statistic == pytest.approx(expected.statistic)
    assert result.p == pytest.approx(expected.pvalue)
    assert friedman([*values.tolist(), [NAN] * 6]).statistic == pytest.approx(expected.statistic)


@pytest.mark.parametrize("values", [[[1, 2]], [[1], [2]], [[3, 3], [4, 4]], [[NAN, 1], [1, NAN]]])
def test_without_information_there_is_no_p_value(values):
    result = friedman(values)
    assert np.isnan(result.statistic)
    assert np.isnan(result.p)


def test_refusals():
    with refusal(ShapeError, "[2]"):
        friedman([1.0, 2.0])
    with refusal(InputError, "1 explainers", "30"):
        critical_difference(1, 30)
    with refusal(InputError, "0 texts"):
        critical_difference(3, 0)
    with refusal(InputError, "1.5"):
        critical_difference(3, 10, 1.5)
