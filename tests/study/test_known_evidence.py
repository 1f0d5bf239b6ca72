"""A model with known evidence: perfect scores are the best of all orders, reversed the worst."""

from itertools import permutations
from math import exp

import numpy as np
import pytest

from attnflow.evaluation.metrics import METRICS, Trial
from attnflow.evaluation.perturbation import aopc_limits
from attnflow.study.case import Question, make_case
from attnflow.study.explainers import EXPLAINERS
from attnflow.study.masked_model import MaskedModel
from tests.study.known_evidence import TEXT, WEIGHTS, make_known_evidence, true_weights

# Metrics that depend on the order of the tokens only.
ORDERED = [
    "comprehensiveness",
    "sufficiency",
    "log_odds",
    "morf",
    "lerf",
    "lerf_minus_morf",
    "rise",
    "normalized_aopc",
    "spearman_loo",
    "kendall_loo",
]
ABSENT = ["unknown", "remove", "pad", "mask"]  # each takes exactly the word's weight away


@pytest.fixture(scope="module")
def case():
    return make_case(make_known_evidence(), TEXT)


@pytest.fixture(scope="module")
def ask(case):
    return MaskedModel(case, "unknown")


def measure_all(scores, ask, limits=None):
    trial = Trial(np.asarray(scores, dtype=float), ask, samples=1000, limits=limits)
    return np.asarray([METRICS[name].measure(trial) for name in ORDERED])


@pytest.fixture(scope="module")
def limits(ask):
    return aopc_limits(ask)


@pytest.fixture(scope="module")
def values(ask, limits):
    """The values of all metrics for each of the 720 orders."""
    return np.asarray([measure_all(order, ask, limits) for order in permutations(range(6))])


def p(*words):
    """The probability of the first class for a text of these words."""
    return 1 / (1 + exp(-sum(WEIGHTS[word] for word in words)))


def test_the_probability_by_hand(case, ask):
    assert case.labels == ("the", "key", "to", "cabinets", "are", "here")
    assert case.probability == pytest.approx(p(*case.labels))
    # Without "key" and "are", 0.2 - 0.3 + 1.1 + 0.6 is left.
    removed = np.asarray([[False, True, False, False, True, False]])
    assert np.exp(ask.log_probability(removed)) == pytest.approx([1 / (1 + exp(-1.6))])


def test_perfect_scores_reach_the_optimum_of_all_orders(case, ask, limits, values):
    perfect = measure_all(true_weights(case.labels), ask, limits)
    is_high = np.asarray([METRICS[name].better == "high" for name in ORDERED])
    best = np.where(is_high, values.max(axis=0), values.min(axis=0))
    np.testing.assert_allclose(perfect, best, rtol=0, atol=1e-12)
    assert (np.ptp(values, axis=0) > 0.05).all()


def test_reversed_scores_are_the_worst_of_all_orders(case, ask, limits, values):
    worst = measure_all([-weight for weight in true_weights(case.labels)], ask, limits)
    is_high = np.asarray([METRICS[name].better == "high" for name in ORDERED])
    expected = np.where(is_high, values.min(axis=0), values.max(axis=0))
    np.testing.assert_allclose(worst, expected, rtol=0, atol=1e-12)


def test_constant_scores_are_the_mean_of_all_orders(ask, limits, values):
    np.testing.assert_allclose(
        measure_all([0.0] * 6, ask, limits), values.mean(axis=0), rtol=0, atol=1e-12
    )


def test_the_default_sample_is_near_the_mean_of_all_orders(ask, limits, values):
    trial = Trial(np.zeros(6), ask, limits=limits)
    sample = np.asarray([METRICS[name].measure(trial) for name in ORDERED])
    spread = values.std(axis=0)
    assert (np.abs(sample - values.mean(axis=0)) < spread).all()


@pytest.mark.parametrize("replacement", ABSENT)
def test_all_that_takes_the_place_of_a_word_is_its_absence(case, ask, replacement):
    other = MaskedModel(case, replacement)
    sets = np.asarray(list(np.ndindex((2,) * 6)), dtype=bool)
    np.testing.assert_allclose(
        other.log_probability(sets), ask.log_probability(sets), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", ["gradient_times_input", "integrated_gradients", "leave_one_out"])
def test_these_explainers_are_perfect_for_a_linear_model(case, ask, limits, name):
    scores = EXPLAINERS[name].explain(case)
    np.testing.assert_allclose(
        measure_all(scores, ask, limits),
        measure_all(true_weights(case.labels), ask, limits),
        rtol=0,
        atol=1e-12,
    )
    if name == "gradient_times_input":
        assert scores == pytest.approx(true_weights(case.labels))


@pytest.mark.parametrize("name", ["mas", "soft_comprehensiveness", "soft_sufficiency"])
def test_metrics_of_the_scores_themselves_prefer_perfect_scores(case, ask, name):
    weights = np.asarray(true_weights(case.labels))
    sign = 1 if METRICS[name].better == "high" else -1
    perfect, constant, reverse = (
        sign * METRICS[name].measure(Trial(scores, ask, samples=1000))
        for scores in (weights, np.ones(6), -weights)
    )
    assert perfect > constant > reverse


def test_the_evidence_is_found():
    marked = make_case(make_known_evidence(), TEXT, Question(evidence=["key", "cabinets"]))
    trial = Trial(
        np.asarray(true_weights(marked.labels)), MaskedModel(marked), evidence=marked.evidence
    )
    assert METRICS["reciprocal_rank"].measure(trial) == 1
    assert METRICS["pointing_game"].measure(trial) == 1
    # 2.0 + 1.1 of 3.9; one of the two words is the first tenth.
    assert METRICS["relevance_mass"].measure(trial) == pytest.approx(3.1 / 3.9)
    assert METRICS["recovery"].measure(trial) == 1 / 2
