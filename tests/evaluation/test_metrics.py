"""The registry of metrics, by hand on a table."""

from itertools import permutations

import numpy as np
import pytest

from attnflow.errors import InputError, SelectionError
from attnflow.evaluation import perturbation
from attnflow.evaluation.metrics import METRICS, Metric, Trial, register_metric
from tests.evaluation.toy_model import TABLE, Additive, ToyModel, random_model
from tests.refusal import refusal

NEEDS = ("bins", "grid", "tokens", "soft", "limits", "nothing")


def trial_of(scores, ask, **options):
    return Trial(np.asarray(scores, dtype=float), ask, **options)


def measure(name, trial):
    return METRICS[name].measure(trial)


def test_metrics_of_curves_are_those_functions():
    trial = trial_of([3, 2, 1], ToyModel(TABLE, soft=lambda kept: 0.1 + 0.2 * kept.sum()))
    names = [metric.name for metric in METRICS if metric.needs in ("bins", "grid", "soft")]
    assert len(names) == 10
    for name in names:
        assert measure(name, trial) == getattr(perturbation, name)(trial.curves)


def test_every_metric_says_what_it_measures():
    assert len(METRICS.names) == 17
    for metric in METRICS:
        assert metric.needs in NEEDS
        assert metric.better in ("high", "low")
        assert metric.title
        assert metric.summary.endswith(".")


def test_correlations_with_leave_one_out_by_hand():
    # Without each token, p drops by 0.4, 0.2 and 0.1.
    ask = ToyModel(TABLE)
    trial = trial_of([3, 2, 1], ask)
    assert trial.leave_one_out == pytest.approx([0.4, 0.2, 0.1])
    assert (measure("spearman_loo", trial), measure("kendall_loo", trial)) == (1, 1)
    # Ranks 3, 2, 1 and 2, 3, 1: rho is 1 - 6 * 2 / 24; two pairs of three agree.
    other = trial_of([2, 3, 1], ask)
    assert measure("spearman_loo", other) == pytest.approx(0.5)
    assert measure("kendall_loo", other) == pytest.approx(1 / 3)


def test_constant_scores_correlate_by_chance():
    ask = random_model(4, 0)
    for name in ("spearman_loo", "kendall_loo"):
        orders = [measure(name, trial_of(order, ask)) for order in permutations(range(4))]
        assert np.mean(orders) == pytest.approx(0)
        assert measure(name, trial_of([1, 1, 1, 1], ask)) == 0


def test_nothing_correlates_with_a_model_that_ignores_the_text():
    flat = ToyModel(dict.fromkeys(TABLE, 0.4))
    for name in ("spearman_loo", "kendall_loo"):
        assert np.isnan(measure(name, trial_of([3, 2, 1], flat)))
        assert np.isnan(measure(name, trial_of([1, 1, 1], flat)))
        two = ToyModel({frozenset[int](): 0.9, frozenset({0}): 0.5, frozenset({1}): 0.4})
        assert np.isnan(measure(name, trial_of([1, 1], two)))


def test_signs_by_hand():
    # Token 0 has the largest score, with a minus.
    ask, scores = ToyModel(TABLE), [-3, 2, 1]
    values = {
        sign: measure("comprehensiveness", trial_of(scores, ask, sign=sign))
        for sign in ("signed", "positive", "absolute")
    }
    # signed and positive: {1}, then {1, 2}; absolute: {0}, then {0, 1}.
    assert values["signed"] == pytest.approx((4 * 0.2 + 0.3) / 5)
    assert values["positive"] == values["signed"]
    assert values["absolute"] == pytest.approx((4 * 0.4 + 0.7) / 5)
    # positive: tokens 0 and 2 are tied at 0; {1}, then {0, 1} or {1, 2}.
    tied = trial_of([-3, 2, -1], ask, sign="positive")
    assert measure("comprehensiveness", tied) == pytest.approx((4 * 0.2 + (0.7 + 0.3) / 2) / 5)


def test_the_sign_applies_to_leave_one_out_too():
    # Token 0 supports the prediction, tokens 1 and 2 oppose it.
    ask = Additive([1.0, -2.0, -0.5])
    drops = trial_of([0, 0, 0], ask).leave_one_out
    assert drops[0] > 0 > drops[2] > drops[1]
    positive = trial_of([0, 0, 0], ask, sign="positive").leave_one_out
    assert positive.tolist() == [drops[0], 0, 0]
    absolute = trial_of([1, -2, -0.5], ask, sign="absolute")
    assert absolute.leave_one_out.tolist() == np.abs(drops).tolist()
    assert measure("spearman_loo", absolute) == 1


def test_the_sign_applies_to_evidence():
    marked = np.asarray([True, False, False])
    values = {
        sign: measure(
            "reciprocal_rank", trial_of([-3, 2, 1], ToyModel(TABLE), sign=sign, evidence=marked)
        )
        for sign in ("signed", "absolute")
    }
    assert values == {"signed": 1 / 3, "absolute": 1}


def test_evidence_by_hand():
    ask = ToyModel(TABLE)
    trial = trial_of([3, 2, 1], ask, evidence=np.asarray([False, True, True]))
    assert measure("reciprocal_rank", trial) == 1 / 2
    assert measure("relevance_mass", trial) == 1 / 2
    assert measure("pointing_game", trial) == 0
    assert measure("recovery", trial) == 0
    assert ask.asked == []


def test_without_evidence_there_is_no_value():
    trial = trial_of([3, 2, 1], ToyModel(TABLE))
    names = [metric.name for metric in METRICS if metric.needs_evidence]
    assert names == ["reciprocal_rank", "relevance_mass", "pointing_game", "recovery"]
    assert all(np.isnan(measure(name, trial)) for name in names)


def test_normalized_aopc_by_hand():
    # Sums of p for the orders 012, 021, 102, 120, 201 and 210, the last term left out:
    # 0.7, 0.9, 0.9, 1.3, 1.2, 1.4. So 012 has the highest AOPC, and 210 the lowest.
    ask = ToyModel(TABLE)
    assert measure("normalized_aopc", trial_of([3, 2, 1], ask)) == pytest.approx(1)
    assert measure("normalized_aopc", trial_of([1, 2, 3], ask)) == pytest.approx(0)
    # 102: (1.4 - 0.9) / (1.4 - 0.7)
    assert measure("normalized_aopc", trial_of([2, 3, 1], ask)) == pytest.approx(5 / 7)
    # The mean of the sums is 6.4 / 6.
    constant = measure("normalized_aopc", trial_of([1, 1, 1], ask))
    assert constant == pytest.approx((1.4 - 6.4 / 6) / 0.7)


def test_given_limits_are_used():
    # The AOPC is 1.9 / 3.
    trial = trial_of([3, 2, 1], ToyModel(TABLE), limits=(0.0, 1.0))
    assert measure("normalized_aopc", trial) == pytest.approx(1.9 / 3)
    flat = trial_of([3, 2, 1], ToyModel(TABLE), limits=(0.5, 0.5))
    assert np.isnan(measure("normalized_aopc", flat))


@pytest.mark.parametrize("scores", [[3, 2, 1, 0, 5, 4], [1, 1, 0, 0, 0, 2], [0] * 6])
@pytest.mark.parametrize("name", [metric.name for metric in METRICS])
def test_the_sets_of_a_trial_are_all_that_a_metric_asks_for(name, scores):
    ask = random_model(6, 0)
    ask.soft = lambda kept: float(kept.mean())
    marked = np.arange(6) == 2
    trial = trial_of(scores, ask, samples=3, evidence=marked, limits=(0.0, 1.0))
    sets = trial.sets([METRICS[name].needs])
    known = {frozenset(np.flatnonzero(row).tolist()) for row in sets}
    measure(name, trial)
    assert set(ask.asked) <= known
    assert frozenset() in known


def test_a_metric_can_be_registered():
    def largest(trial: Trial) -> float:
        return float(trial.scores.max())

    metric = register_metric(
        "largest_score", largest, summary="the largest score.", better="high", needs="bins"
    )
    try:
        assert isinstance(metric, Metric)
        assert (metric.title, metric.default) == ("Largest score", True)
        assert measure("largest_score", trial_of([3, 2, 1], ToyModel(TABLE))) == 3
        with refusal(InputError, "largest_score"):
            register_metric("largest_score", largest, summary="x.", better="high", needs="bins")
    finally:
        METRICS.unregister("largest_score")
    with refusal(SelectionError, "largest_score", "comprehensiveness"):
        METRICS["largest_score"]


def test_unknown_properties_of_a_metric_are_refused():
    def zero(_: Trial) -> float:
        return 0.0

    with refusal(InputError, "better is 'more'", "'high'", "'low'"):
        register_metric("zero", zero, summary="0.", better="more", needs="bins")  # type: ignore[arg-type]
    with refusal(InputError, "needs is 'all'", "'bins'", "'nothing'"):
        register_metric("zero", zero, summary="0.", better="low", needs="all")  # type: ignore[arg-type]
    assert "zero" not in METRICS.names
