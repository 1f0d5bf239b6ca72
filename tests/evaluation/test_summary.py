"""Means, intervals and significance over examples."""

import numpy as np
import pytest
from scipy import stats

from attnflow.errors import InputError, ShapeError
from attnflow.evaluation import (
    bootstrap_intervals,
    compare_paired,
    holm,
    summarize,
    summarize_groups,
)
from tests.refusal import refusal

NAN = float("nan")


def test_examples_without_a_value_are_left_out_and_counted():
    summary = summarize([[0.0, NAN], [1.0, 0.5], [0.5, NAN]])
    assert summary.mean == pytest.approx([0.5, 0.5])
    assert summary.sd == pytest.approx([np.sqrt(1 / 6), 0])
    assert summary.n.tolist() == [3, 1]
    assert summary.left_out.tolist() == [0, 2]


def test_without_any_value_there_is_no_mean():
    summary = summarize([[NAN], [NAN]])
    assert np.isnan(summary.mean[0])
    assert np.isnan(summary.sd[0])
    assert summary.left_out.tolist() == [2]


def test_groups_are_summed_up_apart():
    groups = summarize_groups([[0.0], [1.0], [NAN], [0.5]], [2, 1, 2, 2])
    assert list(groups) == [1, 2]
    assert groups[1].mean.tolist() == [1]
    assert groups[2].mean.tolist() == [0.25]
    assert groups[2].left_out.tolist() == [1]


def test_every_example_needs_a_group():
    with refusal(ShapeError, "1", "2"):
        summarize_groups([[0.0], [1.0]], [1])


def test_the_interval_is_that_of_scipy():
    values = np.random.default_rng(1).normal(0.3, 0.2, 60)
    ours = bootstrap_intervals(values[:, None], resamples=20_000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert ours.low[0] == pytest.approx(theirs.low, abs=0.003)
    assert ours.high[0] == pytest.approx(theirs.high, abs=0.003)


def test_two_examples_by_hand():
    # Of 0 and 1, a draw has mean 0, 1/2 or 1 with chances 1/4, 1/2, 1/4.
    wide = bootstrap_intervals([[0.0], [1.0]], level=0.9)
    narrow = bootstrap_intervals([[0.0], [1.0]], level=0.4)
    assert (wide.low[0], wide.high[0]) == (0, 1)
    assert (narrow.low[0], narrow.high[0]) == (0.5, 0.5)


def test_the_seed_decides():
    values = np.random.default_rng(0).random((30, 2))
    again = [bootstrap_intervals(values, seed=s, resamples=500).low.tolist() for s in (3, 3, 4)]
    assert again[0] == again[1] != again[2]


def test_values_that_are_missing_are_left_out_of_each_draw():
    interval = bootstrap_intervals([[0.5, NAN], [0.5, NAN], [NAN, NAN]], resamples=200)
    assert (interval.low[0], interval.high[0]) == (0.5, 0.5)
    assert np.isnan(interval.low[1])


@pytest.mark.parametrize(("values", "level"), [([], 0.95), ([[1.0]], 1.0)])
def test_nothing_to_draw_from_is_refused(values, level):
    with pytest.raises(InputError, match="expected"):
        bootstrap_intervals(values, level=level)


def test_five_examples_that_all_differ_one_way():
    # All signs equal: 2 of the 2^5 = 32 ways are as extreme.
    first = np.asarray([[1.0], [2.0], [3.0], [4.0], [5.5]])
    comparison = compare_paired(first, np.zeros((5, 1)), resamples=100)
    assert comparison.p[0] == pytest.approx(2 / 32)
    assert comparison.difference[0] == pytest.approx(3.1)
    assert comparison.n.tolist() == [5]


def test_methods_that_are_the_same_are_not_tested():
    values = np.random.default_rng(0).random((20, 2))
    other = values + np.asarray([1e-13, 0.1])  # the first layer differs by rounding only
    comparison = compare_paired(values, other, resamples=100)
    assert np.isnan(comparison.p[0])
    assert comparison.p[1] < 0.001


def test_an_example_that_one_method_has_no_value_for_is_left_out():
    comparison = compare_paired([[1.0], [NAN], [2.0]], [[0.0], [0.0], [0.0]], resamples=100)
    assert comparison.difference[0] == 1.5
    assert comparison.n.tolist() == [2]


def test_other_shapes_are_refused():
    with refusal(ShapeError, "[2, 1]", "[3, 1]"):
        compare_paired(np.zeros((2, 1)), np.zeros((3, 1)))


def test_holm_by_hand():
    # Sorted: 0.005 * 4, 0.01 * 3, 0.03 * 2, 0.04 * 1, which may not be less than 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_out_what_was_no_test():
    corrected = holm(np.asarray([[0.01, NAN], [0.9, 0.8]]))
    assert corrected[0, 0] == pytest.approx(0.03)
    assert np.isnan(corrected[0, 1])
    assert corrected[1].tolist() == [1, 1]
