"""Ranks, Spearman's rho and Kendall's tau, by hand and against scipy."""

import sys

import numpy as np
import pytest
from scipy import stats

from attnflow.attribution import Attribution
from attnflow.errors import InputError, MissingDependencyError, ShapeError
from attnflow.evaluation import rank_correlation, spearman
from attnflow.evaluation.correlation import kendall, rank
from tests.refusal import refusal

TOKENS = ("[CLS]", "the", "key", "is")


def attribution(scores, *, layers=(1,), positions=(0,), columns=(), tokens=TOKENS):
    return Attribution(np.asarray(scores), tokens, "test", layers, positions, columns)


def test_ties_share_the_mean_of_their_places():
    assert rank([3.0, 1.0, 3.0, 2.0, 3.0]).tolist() == [4, 1, 4, 2, 4]


def test_dense_ranks_leave_no_gaps():
    assert rank([3.0, 1.0, 3.0, 2.0], ties="dense").tolist() == [3, 1, 3, 2]


def test_scores_that_differ_by_rounding_are_tied():
    assert rank([0.5, 0.5 + 1e-13, 0.1]).tolist() == [2.5, 2.5, 1]
    assert rank([0.5, 0.5 + 1e-13, 0.1], tolerance=0).tolist() == [2, 3, 1]


def test_another_way_to_treat_ties_is_refused():
    with refusal(InputError, "'least'", "'average'", "'dense'"):
        rank([1.0, 2.0], ties="least")  # type: ignore[arg-type]


def test_rho_by_hand():
    # Ranks 1 2 3 4 and 2 1 4 3: every difference is 1, so 1 - 6 * 4 / (4 * 15) = 0.6.
    assert spearman([0.1, 0.2, 0.3, 0.4], [20, 10, 40, 30]) == pytest.approx(0.6)


def test_rho_with_a_tie_by_hand():
    # Ranks 1 2.5 2.5 4 and 1 2 3 4: covariance 4.5 over sqrt(4.5 * 5).
    assert spearman([0, 1, 1, 2], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(22.5))


def test_the_authors_formula_with_dense_ranks_by_hand():
    # Dense ranks 1 2 2 3 and 1 2 3 4: squares 0 0 1 1, so 1 - 6 * 2 / 60 = 0.8.
    assert spearman([0, 1, 1, 2], [1, 2, 3, 4], ties="dense") == pytest.approx(0.8)


def test_rho_is_that_of_scipy_for_each_layer():
    random = np.random.default_rng(0)
    scores = random.integers(0, 5, (3, 12)).astype(float)  # with many ties
    importance = random.integers(0, 5, 12).astype(float)
    expected = [stats.spearmanr(row, importance).statistic for row in scores]
    assert spearman(scores, importance) == pytest.approx(expected, abs=1e-12)


def test_what_has_no_order_has_no_rho():
    rho = spearman([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]], [3, 2, 1])
    assert np.isnan(rho[0])
    assert rho[1] == -1
    assert np.isnan(spearman([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]))


def test_two_tokens_are_too_few():
    assert np.isnan(spearman([1.0, 2.0], [1.0, 2.0]))
    assert np.isnan(spearman([[1.0], [2.0]], [1.0])).all()


def test_different_numbers_of_tokens_are_refused():
    with refusal(ShapeError, "[3]", "[4]"):
        spearman([1, 2, 3], [1, 2, 3, 4])


def test_tau_by_hand():
    # Of 6 pairs, only (0.2, 0.3) with (30, 20) disagrees: (5 - 1) / 6.
    assert kendall([0.1, 0.2, 0.3, 0.4], [10, 30, 20, 40]) == pytest.approx(4 / 6)
    # With a tie: 5 pairs agree, one is tied on one side, so 5 / sqrt(5 * 6).
    assert kendall([0, 1, 1, 2], [1, 2, 3, 4]) == pytest.approx(5 / np.sqrt(30))


def test_tau_is_that_of_scipy_for_each_layer():
    random = np.random.default_rng(0)
    scores = random.integers(0, 5, (3, 12)).astype(float)  # with many ties
    importance = random.integers(0, 5, 12).astype(float)
    expected = [stats.kendalltau(row, importance).statistic for row in scores]
    assert kendall(scores, importance) == pytest.approx(expected, abs=1e-12)
    plain = random.normal(size=(2, 30))
    assert kendall(*plain) == pytest.approx(stats.kendalltau(*plain).statistic, abs=1e-12)


def test_tau_ties_scores_that_differ_by_rounding():
    exact = kendall([0.5, 0.5, 0.1, 0.7], [1, 2, 3, 4])
    assert kendall([0.5, 0.5 + 1e-13, 0.1, 0.7], [1, 2, 3, 4]) == exact
    assert kendall([0.5, 0.5 + 1e-13, 0.1, 0.7], [1, 2, 3, 4], tolerance=0) != exact


def test_what_has_no_order_has_no_tau():
    tau = kendall([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]], [3, 2, 1])
    assert np.isnan(tau[0])
    assert tau[1] == -1
    assert np.isnan(kendall([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]))
    assert np.isnan(kendall([1.0, 2.0], [1.0, 2.0]))
    with refusal(ShapeError, "[3]", "[4]"):
        kendall([1, 2, 3], [1, 2, 3, 4])


def test_attributions_are_compared_layer_by_layer():
    attention = attribution([[[4, 3, 2, 1]], [[1, 2, 3, 4]]], layers=(1, 2))
    importance = attribution([[[10, 20, 30, 40]]], layers=(2,))
    assert rank_correlation(attention, importance).tolist() == [-1, 1]


def test_the_position_is_that_of_the_importance():
    attention = attribution([[[1, 2, 3, 4], [4, 3, 2, 1]]], positions=(0, 2))
    importance = attribution([[[1, 2, 3, 4]]], positions=(2,))
    assert rank_correlation(attention, importance).tolist() == [-1]
    both = attribution([[[1, 2, 3, 4], [4, 3, 2, 1]]], positions=(0, 2))
    assert rank_correlation(attention, both, position="key").tolist() == [1]


def test_tokens_that_only_one_has_are_left_out():
    attention = attribution([[[9, 1, 2, 3]]])
    importance = attribution([[[3, 2, 1]]], columns=(3, 2, 1))
    assert rank_correlation(attention, importance).tolist() == [1]


def test_different_texts_are_refused():
    other = attribution([[[1, 2, 3]]], tokens=("a", "b", "c"))
    with refusal(InputError, "4", "3"):
        rank_correlation(attribution([[[1, 2, 3, 4]]]), other)


def test_a_token_that_opposes_the_prediction_counts_by_default():
    attention = attribution([[[4, 3, 2, 1]]])
    importance = attribution([[[-4, 3, -2, 1]]])
    assert rank_correlation(attention, importance).tolist() == [1]
    # Ranks 4, 3, 2, 1 and 1, 4, 2, 3: the squared differences 9, 1, 0, 4 sum to 14.
    signed = rank_correlation(attention, importance, sign="signed")
    assert signed.tolist() == pytest.approx([1 - 6 * 14 / (4 * 15)])
    with refusal(InputError, "sign is 'both'", "'absolute' or 'signed'"):
        rank_correlation(attention, importance, sign="both")  # type: ignore[arg-type]


def test_importance_of_several_layers_is_refused():
    several = attribution([[[1, 2, 3, 4]], [[1, 2, 3, 4]]], layers=(1, 2))
    with refusal(ShapeError, "2"):
        rank_correlation(several, several)


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with refusal(MissingDependencyError, "attnflow[evaluation]"):
        rank([1.0, 2.0])
