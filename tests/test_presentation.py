"""Settings in words, titles, and ranges of colors."""

import numpy as np
import pytest

from attnflow import AttentionGraph, flow
from attnflow.presentation import (
    color_range,
    color_share,
    describe_settings,
    row_ranges,
    title_with_edges,
)
from tests.weights import random_attention

# Rows of models, as in tests/test_notes.py.
SMOLLM_FLOW = [1.0, 0.68, 0.676, 0.665, 0.65, 0.644, 0.629, 0.569, 0.544, 0.503]
SMOLLM_ALTI_ROLLOUT = [0.222, 0.045, 0.318, 0.095, 0.026, 0.043, 0.035, 0.03, 0.124, 0.062]
VERB_ROLLOUT = [0.107, 0.072, 0.162, 0.065, 0.054, 0.058, 0.084, 0.054, 0.054, 0.082, 0.068, 0.083]
VERB_FLOW = [1.0, 0.714, 1.0, 0.915, 0.844, 0.922, 1.0, 0.911, 0.914, 1.0, 1.0, 0.859, 1.0]


def test_settings_in_words():
    assert describe_settings(
        {"edges": "gradient", "residual_weight": "added, rows not rescaled", "heads": "mean"},
        model="gpt2",
    ) == [
        "gpt2",
        "edges: attention times gradient",
        "residual connection added, rows not rescaled",
        "heads: mean",
    ]
    graph = AttentionGraph.from_weights(random_attention(2, 3, 3), residual_weight=[0.25, 0.5])
    assert describe_settings(flow(graph, normalize="rows").settings) == [
        "edges: attention",
        "residual weights 0.25 to 0.5",
        "rows normalized",
    ]
    assert describe_settings({"edges": "mine", "special": "hide"}) == [
        "edges: mine",
        "special tokens hidden",
    ]


def test_raw_edges_are_not_called_attention():
    assert title_with_edges("raw", {}) == "Raw attention"
    assert title_with_edges("raw", {"edges": "alti"}) == "Raw edge weights"


def test_colors_start_at_the_lowest_score_only_where_scores_are_close():
    assert color_range(np.asarray(SMOLLM_FLOW)) == (0.503, 1.0)
    assert color_range(np.asarray(SMOLLM_ALTI_ROLLOUT)) == (0.0, 0.318)
    assert color_range(np.zeros(3)) == (0.0, 1.0)
    assert color_range(np.full(3, 0.5)) == (0.0, 0.5)  # equal scores: one color
    assert row_ranges(np.asarray([VERB_FLOW, VERB_FLOW])) == [(0.714, 1.0)] * 2
    assert row_ranges(np.asarray([VERB_ROLLOUT, VERB_ROLLOUT])) is None


def test_rows_that_are_low_compared_with_others_have_their_own_range():
    rows = np.asarray([[0.9, 0.1], [0.1, 0.01], [0.08, 0.02]])
    assert row_ranges(rows) == [(0.1, 0.9), (0.01, 0.1), (0.02, 0.08)]
    assert row_ranges(np.asarray([[0.9, 0.1], [0.3, 0.01], [0.5, 0.02]])) is None


def test_shares_rise_with_the_scores():
    shares = color_share(np.asarray(SMOLLM_FLOW), 0.503, 1.0)
    assert (np.diff(shares) < 0).all()
    assert (shares[-1], shares[0]) == (pytest.approx(0.15), 1.0)
