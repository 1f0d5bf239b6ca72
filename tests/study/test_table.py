"""Tables of a study whose values are made by hand."""

from pathlib import Path

import numpy as np
import pytest

from attnflow.errors import SelectionError
from attnflow.study.design import Design
from attnflow.study.study import Study
from attnflow.study.table import find_disagreements, mean_ranks
from tests.refusal import refusal

NAN = float("nan")
RANDOM = 0.1 * np.arange(1, 9)
STEPS = 0.01 * np.arange(1, 9)
MIXED = np.asarray([0.01, -0.02, 0.0, 0.05, NAN, -0.04, 0.0, NAN])
VALUES = {
    "flow/attention": RANDOM + MIXED,
    "random": RANDOM,
    "rollout/attention": RANDOM + STEPS,
    "position": RANDOM - STEPS,
}
# The signed-rank test of 8 differences of one sign: 2 of 2^8 signs are as extreme. MIXED has as
# much rank above as below 0. Holm multiplies the smallest of 3 by 3, and no p is below the last.
P = 2 / 2**8


def make_study(values, metric="comprehensiveness", scores=None):
    """A study with values [texts] by explainer. scores: of each row, text by text."""
    names = list(values)
    n = len(next(iter(values.values())))
    rows = n * len(names)
    given = np.empty(rows, dtype=object)
    given[:] = scores or [None] * rows
    columns = {
        "index": np.repeat(np.arange(n) * 10, len(names)),
        "explainer": np.asarray(names * n, dtype=object),
        "replacement": np.asarray(["unknown"] * rows, dtype=object),
        "sign": np.asarray(["signed"] * rows, dtype=object),
        "scores": given,
        "seconds": np.tile(np.arange(1.0, len(names) + 1), n),
        "megabytes": np.full(rows, NAN),
        metric: np.stack(list(values.values()), axis=1).ravel(),
    }
    design = Design(metrics=(metric,), signs=("signed",), explainers=())
    return Study(design, columns, True, 0, Path("out"))


def test_means_and_outcomes_by_hand():
    table = make_study(VALUES).table("comprehensiveness")
    assert (table.metric, table.better, table.against) == ("comprehensiveness", "high", "random")
    assert (table.replacement, table.sign) == ("unknown", "signed")
    names = ["rollout/attention", "random", "position", "flow/attention"]
    known = np.isfinite(MIXED)
    assert [row.explainer for row in table.rows] == names
    means = [0.495, 0.45, 0.405, float((RANDOM + MIXED)[known].mean())]
    assert [row.mean for row in table.rows] == pytest.approx(means)
    assert [row.gain for row in table.rows] == pytest.approx([0.045, 0, -0.045, 0.0])
    outcomes = [(row.wins, row.ties, row.losses) for row in table.rows]
    assert outcomes == [(8, 0, 0), (0, 8, 0), (0, 0, 8), (2, 2, 2)]
    assert [row.p for row in table.rows] == pytest.approx([3 * P, NAN, 3 * P, 1.0], nan_ok=True)
    assert [row.beats_reference for row in table.rows] == [True, False, False, False]
    assert [(row.n, row.failed) for row in table.rows] == [(8, 0), (8, 0), (8, 0), (6, 2)]
    assert [row.seconds for row in table.rows] == [3.0, 2.0, 4.0, 1.0]
    assert all(np.isnan(row.megabytes) for row in table.rows)


def test_intervals():
    rows = make_study(VALUES).table("comprehensiveness").rows
    for row in rows:
        assert row.low < row.mean < row.high
        assert VALUES[row.explainer][np.isfinite(VALUES[row.explainer])].min() <= row.low
        assert row.gain_low <= row.gain <= row.gain_high
    best = rows[0]
    # Pairing tells apart what the intervals of the means do not.
    assert best.low < rows[1].mean < best.high
    assert 0 < best.gain_low < best.gain_high
    # The standard error of the mean of n values is their deviation / sqrt(n).
    error = RANDOM.std() / np.sqrt(8)
    assert rows[1].high - rows[1].low == pytest.approx(2 * 1.96 * error, rel=0.15)
    same = make_study({"random": RANDOM, "position": RANDOM + 0.25}).table("comprehensiveness")
    assert [same.rows[0].gain_low, same.rows[0].gain_high] == pytest.approx([0.25, 0.25])


def test_low_values_are_better_for_some_metrics():
    flipped = {name: -values for name, values in VALUES.items()}
    low = make_study(flipped, "sufficiency").table("sufficiency")
    high = make_study(VALUES).table("comprehensiveness")
    assert low.better == "low"
    for one, other in zip(low.rows, high.rows, strict=True):
        assert one.explainer == other.explainer
        assert one.mean == pytest.approx(-other.mean)
        assert one.gain == pytest.approx(other.gain)
        assert (one.wins, one.ties, one.losses) == (other.wins, other.ties, other.losses)
        assert one.p == pytest.approx(other.p, nan_ok=True)


def test_another_reference():
    table = make_study(VALUES).table("comprehensiveness", against="rollout/attention")
    row = table.row("random")
    assert (row.wins, row.losses) == (0, 8)
    assert row.gain == pytest.approx(-0.045)
    assert np.isnan(table.row("rollout/attention").p)


def test_an_explainer_without_values_comes_last():
    values = {**VALUES, "rollout/attention": np.full(8, NAN)}
    last = make_study(values).table("comprehensiveness").rows[-1]
    assert (last.explainer, last.n, last.failed) == ("rollout/attention", 0, 8)
    assert np.isnan([last.mean, last.low, last.high, last.gain, last.p]).all()
    assert not last.beats_reference


def test_mean_ranks_by_hand():
    ranks, n = mean_ranks(make_study(VALUES), "comprehensiveness")
    assert n == 6  # two texts have no value of flow
    by_hand = {
        "flow/attention": (1.5 + 3.5 + 2.5 + 1 + 3 + 2.5) / 6,
        "random": (3 + 2 + 2.5 + 3 + 2 + 2.5) / 6,
        "rollout/attention": (1.5 + 1 + 1 + 2 + 1 + 1) / 6,
        "position": (4 + 3.5 + 4 + 4 + 4 + 4) / 6,
    }
    assert ranks == pytest.approx(by_hand)


def test_a_matrix_has_a_row_for_each_text():
    study = make_study(VALUES)
    expected = np.stack(list(VALUES.values()), axis=1)
    np.testing.assert_array_equal(study.matrix("comprehensiveness"), expected)
    assert study.n_texts == 8
    assert study.metrics == ("comprehensiveness",)


def test_unknown_names_are_refused():
    study = make_study(VALUES)
    with refusal(SelectionError, "'lerf'", "comprehensiveness"):
        study.table("lerf")
    with refusal(SelectionError, "column", "'lerf'", "comprehensiveness", "seconds"):
        study.matrix("lerf")
    with refusal(SelectionError, "'remove'", "unknown"):
        study.matrix("comprehensiveness", replacement="remove")
    with refusal(SelectionError, "'absolute'", "signed"):
        study.table("comprehensiveness", sign="absolute")
    with refusal(SelectionError, "'flow'", "flow/attention"):
        study.table("comprehensiveness", against="flow")
    with refusal(SelectionError, "'flow'", "flow/attention"):
        study.table("comprehensiveness").row("flow")


def test_the_texts_on_which_explainers_disagree():
    up, down = np.arange(4.0), -np.arange(4.0)
    values = {"rollout/attention": RANDOM[:4], "random": RANDOM[:4]}
    # Correlations 1, -1, 1 - 6 * 2 / (4 * 15) = 0.8, and none.
    scores = [up, up * 3, up, down, up, np.asarray([1.0, 0.0, 2.0, 3.0]), up, None]
    study = make_study(values, scores=scores)
    assert find_disagreements(study, list(values)) == [10, 20, 0]
    assert find_disagreements(study, list(values), 1) == [10]
    assert find_disagreements(study, ["random"]) == []


def copied_study(scores):
    """VALUES, and a fifth explainer with the values of the third and scores [tokens] of its own."""
    values = {**VALUES, "joint_flow/attention": RANDOM + STEPS}
    rows = [[1.0, 2.0], [0.0, 0.0], [3.0, 1.0], [2.0, 1.0], scores] * 8
    return make_study(values, scores=[np.asarray(row) for row in rows])


def test_explainers_that_are_the_same_count_once():
    study = copied_study([0.3, 0.1])
    table = study.table("comprehensiveness")
    copy, other = table.row("joint_flow/attention"), table.row("rollout/attention")
    assert (copy.copy_of, other.copy_of) == ("rollout/attention", "")
    # 3 different tests against random, as without the copy.
    assert copy.p == other.p == pytest.approx(3 * P)
    # Their ranks are those without the copy, too.
    expected, _ = mean_ranks(make_study(VALUES), "comprehensiveness")
    ranks, _ = mean_ranks(study, "comprehensiveness")
    assert ranks == {**expected, "joint_flow/attention": expected["rollout/attention"]}


def test_equal_values_of_other_orders_count_twice():
    table = copied_study([0.1, 0.3]).table("comprehensiveness")
    assert table.row("joint_flow/attention").copy_of == ""
    assert table.row("rollout/attention").p == pytest.approx(4 * P)


def test_a_copy_of_the_reference_does_not_differ_from_it():
    table = copied_study([0.3, 0.1]).table("comprehensiveness", against="joint_flow/attention")
    assert table.row("rollout/attention").p == 1.0
    assert np.isnan(table.row("joint_flow/attention").p)
    assert table.row("random").p == pytest.approx(3 * P)
