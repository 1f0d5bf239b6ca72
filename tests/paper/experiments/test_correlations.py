"""Correlations by hand, and their summaries as JSON values."""

import numpy as np
import pytest

from attnflow.paper.experiments.correlations import (
    compare,
    correlate,
    select,
    summarize_correlations,
    to_list,
)

NAN = float("nan")


def test_correlations_by_hand():
    attention = [{"raw": np.asarray([[1.0, 2, 3, 4], [4, 3, 2, 1]])}]
    importance = [np.asarray([9.0, 1, 2, 3])]
    # Ranks 1 2 3 4 against 4 1 2 3: squared differences 9 1 1 1, so 1 - 6 * 12 / 60 = -0.2.
    all_tokens = correlate(attention, importance, methods=("raw",))["raw"]
    assert all_tokens == pytest.approx(np.asarray([[-0.2, 0.2]]))
    first = [np.asarray([True, False, False, False])]
    others = correlate(attention, importance, exclude=first, methods=("raw",))["raw"]
    assert others == pytest.approx(np.asarray([[1.0, -1.0]]))


def test_importance_is_absolute_by_default():
    measured = [{"blank_out": np.asarray([-0.5, 0.25])}]
    assert select(measured, "blank_out")[0].tolist() == [0.5, 0.25]
    assert select(measured, "blank_out", "signed")[0].tolist() == [-0.5, 0.25]


def test_undefined_correlations_are_none_and_counted():
    assert to_list(np.asarray([0.123456789, NAN])) == [0.12346, None]
    summary = summarize_correlations({"raw": np.asarray([[NAN, 1.0], [NAN, 0.0]])})["raw"]
    assert summary == {"mean": [None, 0.5], "sd": [None, 0.5], "n": [0, 2], "undefined": [2, 0]}


def test_p_values_are_corrected_for_all_pairs_and_layers():
    zero = np.zeros((5, 1))
    rhos = {"a": zero, "b": zero + np.arange(1, 6)[:, None], "c": zero - np.arange(1, 6)[:, None]}
    comparisons = compare(rhos, [("b", "a"), ("c", "a")], seed=0, resamples=100)
    assert [comparison["p"] for comparison in comparisons] == [[0.125], [0.125]]  # 2 * 2/32
    assert [comparison["difference"] for comparison in comparisons] == [[3.0], [-3.0]]
