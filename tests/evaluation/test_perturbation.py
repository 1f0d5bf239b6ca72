"""Perturbation metrics: by hand on a table, and against direct transcriptions of definitions."""

from itertools import pairwise, permutations
from math import ceil, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnflow.evaluation import perturbation
from attnflow.evaluation.perturbation import (
    Curves,
    aopc,
    aopc_limits,
    bins,
    comprehensiveness,
    grid,
    keep_chances,
    lerf,
    lerf_minus_morf,
    log_odds,
    mas,
    morf,
    rise,
    soft_comprehensiveness,
    soft_sufficiency,
    sufficiency,
)
from tests.evaluation.toy_model import TABLE, Additive, ToyModel, random_model

RANKING = [comprehensiveness, sufficiency, log_odds, aopc, morf, lerf, lerf_minus_morf, rise]
ALL = 1000  # samples, so that every set is one of them
SEEDS = st.integers(0, 10**6)


def curves_of(scores, ask, samples=ALL):
    return Curves(np.asarray(scores, dtype=float), ask, samples)


@pytest.fixture
def curves():
    """Token 0 is the most relevant, token 2 the least."""
    return curves_of([3, 2, 1], ToyModel(TABLE))


def test_bins_have_at_least_one_token():
    assert bins(3) == [1, 1, 1, 1, 2]
    assert bins(10) == [1, 1, 1, 2, 5]
    assert bins(100) == [1, 5, 10, 20, 50]
    assert bins(101) == [2, 6, 11, 21, 51]


def test_a_curve_has_at_most_20_steps():
    assert grid(4) == [0, 1, 2, 3, 4]
    assert grid(40) == list(range(0, 41, 2))
    for n in range(1, 200):
        points = grid(n)
        assert (points[0], points[-1], len(points)) == (0, n, min(n, 20) + 1)
        assert len(set(points)) == len(points)


def test_comprehensiveness_by_hand(curves):
    # Four bins are {0}: 0.9 - 0.5; one is {0, 1}: 0.9 - 0.2.
    assert comprehensiveness(curves) == pytest.approx((4 * 0.4 + 0.7) / 5)


def test_sufficiency_by_hand(curves):
    # Four bins keep token 0, without {1, 2}: 0.9 - 0.6; one keeps 0 and 1: 0.9 - 0.8.
    assert sufficiency(curves) == pytest.approx((4 * 0.3 + 0.1) / 5)


def test_log_odds_by_hand(curves):
    assert log_odds(curves) == pytest.approx((4 * log(0.5 / 0.9) + log(0.2 / 0.9)) / 5)


def test_aopc_by_hand(curves):
    # 0.9 minus 0.5, 0.2 and 0.1.
    assert aopc(curves) == pytest.approx((0.4 + 0.7 + 0.8) / 3)


def test_areas_by_hand(curves):
    # The most relevant first: 0.9, 0.5, 0.2, 0.1. The least relevant first: 0.9, 0.8, 0.6, 0.1.
    assert morf(curves) == pytest.approx((0.45 + 0.5 + 0.2 + 0.05) / 3)
    assert lerf(curves) == pytest.approx((0.45 + 0.8 + 0.6 + 0.05) / 3)
    assert lerf_minus_morf(curves) == pytest.approx(0.7 / 3)


def test_rise_by_hand(curves):
    # (log p - log 0.1) / (log 0.9 - log 0.1) is 1, log 5 / log 9, log 2 / log 9, 0.
    assert rise(curves) == pytest.approx((0.5 + (log(5) + log(2)) / log(9)) / 3)


def test_mas_by_hand(curves):
    # 1, 1/2, 1/6 and 0 of the scores are left. Each distance is added to the response, which is
    # the larger of the two; the sums are between 0 and 1 already.
    first, second = log(5) / log(9), log(2) / log(9)
    assert mas(curves) == pytest.approx((0.5 + (2 * first - 1 / 2) + (2 * second - 1 / 6)) / 3)


def test_a_response_does_not_rise_again():
    # log2 p is -1, -3, -2, -5: scaled 1, 1/2, 3/4, 0. The third is cut to 1/2.
    steps = zip((frozenset[int](), {0}, {0, 1}, {0, 1, 2}), (1, 3, 2, 5), strict=True)
    table = {**TABLE, **{frozenset(removed): 2.0**-power for removed, power in steps}}
    assert rise(curves_of([3, 2, 1], ToyModel(table))) == pytest.approx((0.5 + 0.5 + 0.5) / 3)


def test_a_response_stays_between_0_and_1():
    # log2 p is -2, -1, -4, -3: scaled 1, 2, -1, 0, and 1, 1, 0, 0 after it was cut.
    steps = zip((frozenset[int](), {0}, {0, 1}, {0, 1, 2}), (2, 1, 4, 3), strict=True)
    table = {**TABLE, **{frozenset(removed): 2.0**-power for removed, power in steps}}
    assert rise(curves_of([3, 2, 1], ToyModel(table))) == pytest.approx((0.5 + 1 + 0 + 0) / 3)


def test_a_text_that_opposes_its_prediction_has_no_response():
    # p is higher without the text, so log p is below its last value, and cut to 0.
    table = {removed: 1 - p for removed, p in TABLE.items()}
    assert rise(curves_of([3, 2, 1], ToyModel(table))) == 0


def test_a_model_that_ignores_the_text():
    flat = curves_of([3, 2, 1], ToyModel(dict.fromkeys(TABLE, 0.4)))
    for function in (comprehensiveness, sufficiency, log_odds, aopc, lerf_minus_morf):
        assert function(flat) == pytest.approx(0)
    assert morf(flat) == lerf(flat) == pytest.approx(0.4)
    assert rise(flat) == 0.5


def test_mas_of_scores_without_mass():
    # Every token counts the same: 1, 2/3, 1/3 and 0 are left.
    first, second = log(5) / log(9), log(2) / log(9)
    expected = (0.5 + (2 * first - 2 / 3) + max(1 / 3, 2 * second - 1 / 3)) / 3
    assert mas(curves_of([-1, -2, -3], ToyModel(TABLE))) == pytest.approx(expected)


def transcribe(scores, ask, with_density):
    """RISE or MAS, written down step by step from their definitions, for scores without ties."""
    n = len(scores)
    order = sorted(range(n), key=lambda i: -scores[i])
    steps = min(n, 20)
    counts = [round(n * step / steps) for step in range(steps + 1)]
    log_p = []
    for count in counts:
        removed = np.zeros((1, n), dtype=bool)
        removed[0, order[:count]] = True
        log_p.append(float(ask.log_probability(removed)[0]))
    response, lowest = [], 1.0
    for value in log_p:
        share = (value - log_p[-1]) / abs(log_p[0] - log_p[-1])
        lowest = min(lowest, max(0.0, min(1.0, share)))
        response.append(lowest)
    if with_density:
        mass = [max(score, 0.0) for score in scores]
        left = [sum(mass[i] for i in order[count:]) / sum(mass) for count in counts]
        pairs = zip(response, left, strict=True)
        raised = [min(1.0, max(0.0, r + abs(r - d))) for r, d in pairs]
        low, high = min(raised), max(raised)
        response = [(value - low) / (high - low) for value in raised]
    return sum((a + b) / 2 for a, b in pairwise(response)) / steps


@given(SEEDS)
@settings(max_examples=50)
def test_rise_and_mas_follow_their_definitions(seed):
    ask, scores = random_model(5, seed), np.random.default_rng(seed).normal(size=5)
    scores[0] = 3.0  # at least one is positive
    curves = curves_of(scores, ask)
    assert rise(curves) == pytest.approx(transcribe(scores.tolist(), ask, False))
    assert mas(curves) == pytest.approx(transcribe(scores.tolist(), ask, True))


@pytest.mark.parametrize("n", [20, 33, 50])
def test_rise_and_mas_of_long_texts_follow_their_definitions(n):
    random = np.random.default_rng(n)
    ask = Additive(random.normal(0.3, 1, n))
    scores = random.permutation(n).astype(float)
    curves = curves_of(scores, ask)
    assert rise(curves) == pytest.approx(transcribe(scores.tolist(), ask, False))
    assert mas(curves) == pytest.approx(transcribe(scores.tolist(), ask, True))


def naive(scores, ask, kind):
    """Comprehensiveness or sufficiency, one text at a time."""
    n = len(scores)
    order = sorted(range(n), key=lambda i: -scores[i])

    def p(removed):
        return ask.table[frozenset(removed)]

    drops = []
    for percent in (1, 5, 10, 20, 50):
        top = order[: max(1, ceil(percent * n / 100))]
        rest = [i for i in range(n) if i not in top]
        drops.append(p([]) - p(top if kind == "comprehensiveness" else rest))
    return sum(drops) / 5


@given(SEEDS, st.integers(2, 7))
@settings(max_examples=50)
def test_the_metrics_of_eraser_follow_their_definitions(seed, n):
    ask, scores = random_model(n, seed), np.random.default_rng(seed).normal(size=n)
    curves = curves_of(scores, ask)
    assert comprehensiveness(curves) == pytest.approx(naive(scores, ask, "comprehensiveness"))
    assert sufficiency(curves) == pytest.approx(naive(scores, ask, "sufficiency"))


def orders_of(scores):
    """All orders with the highest scores first."""
    return [
        list(order)
        for order in permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in pairwise(order))
    ]


def untie(scores, order):
    """The scores with small differences, so that they have this order only."""
    values = np.asarray(scores, dtype=float)
    values[order] += np.linspace(3e-5, 0, len(order)) * np.abs(values).max(initial=1.0)
    return values


@pytest.mark.parametrize("scores", [[1, 2, 1, 1], [5, 0, 0, 5], [2, 2, 2, 2], [0, 0, 0, 0]])
@pytest.mark.parametrize("function", [*RANKING, mas])
def test_ties_count_as_the_mean_of_all_orders(function, scores):
    tolerance = 1e-9
    if function is mas:  # it depends on the scores themselves, too
        tolerance, scores = 1e-3, [score + 1 for score in scores]
    for seed in range(3):
        ask = random_model(4, seed)
        orders = orders_of(scores)
        assert len(orders) in (4, 6, 24)
        each = [function(curves_of(untie(scores, order), ask)) for order in orders]
        assert np.ptp(each) > 1e-3
        assert function(curves_of(scores, ask)) == pytest.approx(np.mean(each), abs=tolerance)


@pytest.mark.parametrize("function", [*RANKING, mas])
def test_a_sample_of_orders_is_always_the_same(function):
    ask = random_model(9, 0)
    curves = [curves_of(np.zeros(9), ask, samples=8) for _ in range(2)]
    assert function(curves[0]) == function(curves[1])


@given(SEEDS)
@settings(max_examples=30)
def test_only_the_order_of_the_scores_counts(seed):
    random = np.random.default_rng(seed)
    ask, scores = random_model(5, seed), random.integers(-3, 4, 5).astype(float)
    for function in RANKING:
        expected = function(curves_of(scores, ask))
        for other in (np.exp(scores), 1e-9 * scores**3, 7 * scores - 100):
            assert function(curves_of(other, ask)) == pytest.approx(expected, abs=1e-12)


@given(SEEDS)
@settings(max_examples=30)
def test_the_reverse_order_swaps_the_curves(seed):
    random = np.random.default_rng(seed)
    ask, scores = random_model(5, seed), random.integers(-3, 4, 5).astype(float)
    there, back = curves_of(scores, ask), curves_of(-scores, ask)
    assert morf(there) == pytest.approx(lerf(back))
    assert lerf(there) == pytest.approx(morf(back))
    assert lerf_minus_morf(there) == pytest.approx(-lerf_minus_morf(back))


@given(SEEDS)
@settings(max_examples=30)
def test_metrics_stay_in_their_range(seed):
    values = np.random.default_rng(seed).uniform(0.05, 0.95, 2**5)
    ask = ToyModel(dict(zip(random_model(5, seed).table, values, strict=True)))
    curves = curves_of(np.random.default_rng(seed).normal(size=5), ask)
    for function in (morf, lerf, rise, mas):
        assert 0 <= function(curves) <= 1
    for function in (comprehensiveness, sufficiency, aopc, lerf_minus_morf):
        assert -1 <= function(curves) <= 1


def test_soft_metrics_by_hand():
    # p is a tenth for each token, by the chance that it is kept, from 0.1.
    ask = ToyModel(TABLE, soft=lambda kept: 0.1 + 0.1 * (4 * kept[0] + 3 * kept[1] + kept[2]))
    curves = curves_of([3, 2, 1], ask)
    # Chances 1, 1/2 and 0. Without them 0, 1/2, 1 are kept: p = 0.1 + 0.25 of 0.1 + 0.8.
    assert soft_comprehensiveness(curves) == pytest.approx((0.9 - 0.35) / 0.8)
    # With them: p = 0.1 + 0.4 + 0.15, a drop of 0.25 of 0.8.
    assert soft_sufficiency(curves) == pytest.approx(1 - 0.25 / 0.8)


def test_soft_metrics_are_cut_to_0_and_1():
    rises = ToyModel(TABLE, soft=lambda kept: 0.95 if kept.any() else 0.1)
    assert soft_comprehensiveness(curves_of([3, 2, 1], rises)) == 0
    assert soft_sufficiency(curves_of([3, 2, 1], rises)) == 1
    falls = ToyModel(TABLE, soft=lambda kept: 0.0 if kept.any() else 0.1)
    assert soft_comprehensiveness(curves_of([3, 2, 1], falls)) == 1
    assert soft_sufficiency(curves_of([3, 2, 1], falls)) == 0


def test_soft_metrics_need_a_prediction_that_depends_on_the_text():
    ask = ToyModel(TABLE, soft=lambda _: 0.9)
    assert np.isnan(soft_comprehensiveness(curves_of([3, 2, 1], ask)))
    assert np.isnan(soft_sufficiency(curves_of([3, 2, 1], ask)))


def test_chances_by_hand():
    # Shifted 0, 4, 1: the factor 1.5 / 5 makes 1.2 of 4, which is cut; 0.5 is left for the third.
    assert keep_chances([1, 5, 2]) == pytest.approx([0, 1, 0.5])
    # A mean of 0.25: 1 / 4 of 0, 3 and 1 each.
    assert keep_chances([0, 3, 1, 0], 0.25) == pytest.approx([0, 0.75, 0.25, 0])
    # Two tokens at 1 leave 0.5 for the three others.
    assert keep_chances([9, 9, 0, 0, 0]) == pytest.approx([1, 1, 1 / 6, 1 / 6, 1 / 6])
    assert keep_chances([7, 7, 7]) == pytest.approx([0.5] * 3)


def test_rounding_does_not_change_chances():
    assert keep_chances([1.0, 1 - 1e-16, 1.0, 1 + 1e-15]) == pytest.approx([0.5] * 4)
    assert keep_chances([1.0, 1e-14, 0.0, 0.0]) == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])


@given(
    st.lists(st.floats(-1000, 1000), min_size=1, max_size=12),
    st.sampled_from([0.1, 0.25, 0.5, 0.9]),
)
def test_chances_have_the_same_mean_for_all_scores(scores, mean):
    chances = keep_chances(scores, mean)
    assert chances.mean() == pytest.approx(mean)
    assert chances.min() >= 0
    assert chances.max() <= 1 + 1e-12
    assert (np.diff(chances[np.argsort(scores, kind="stable")]) >= -1e-12).all()


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_limits_are_those_of_all_orders(n, seed):
    ask = random_model(n, seed)
    values = []
    for order in permutations(range(n)):
        sets = [frozenset(order[:count]) for count in range(1, n + 1)]
        values.append(np.mean([ask.table[frozenset()] - ask.table[one] for one in sets]))
    assert aopc_limits(ask) == pytest.approx((min(values), max(values)))


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_stays_within_the_limits(seed):
    ask = random_model(6, seed)
    lowest, highest = aopc_limits(ask)
    spans = [aopc_limits(ask, width=width, exhaustive=0) for width in (1, 5, 20)]
    for low, high in spans:
        assert lowest - 1e-12 <= low <= high <= highest + 1e-12
    assert spans[-1] == pytest.approx((lowest, highest))  # no step has more than 20 sets


def test_a_beam_finds_the_best_order_of_an_additive_model():
    weights = np.linspace(0.1, 1.2, 12)
    ask = Additive(weights)
    lowest, highest = aopc_limits(ask)
    assert highest == pytest.approx(aopc(curves_of(weights, ask)))
    assert lowest == pytest.approx(aopc(curves_of(-weights, ask)))


def test_every_set_is_asked_once_in_a_search():
    ask = random_model(5, 0)
    aopc_limits(ask, exhaustive=5)
    assert len(ask.asked) == 1 + 2 * (2**5 - 1)


def test_bins_are_those_of_eraser():
    assert perturbation.BINS == (0.01, 0.05, 0.1, 0.2, 0.5)
