"""What a study says in words follows from its values and tests, and never says more."""

import numpy as np
import pytest

from attnflow.study.findings import (
    Choice,
    beaten_metrics,
    compare_rankings,
    count_firsts,
    countable_metrics,
    find_rivals,
    gather_results,
    is_circular,
    kind_of,
    list_warnings,
    name_options,
    number,
    p_text,
    select_explainers,
    state_answer,
    state_copies,
)
from tests.study.toy_study import make_study, with_columns, with_values

METRIC = "comprehensiveness"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study") / "out")


def constant(value):
    """Values that differ a little from text to text, so that tests can rank them."""
    return lambda i: value + 0.001 * (i % 7)


def make_values(study, **best):
    """Values of all explainers: 0.1, and those that are named."""
    values = {name: constant(0.1) for name in study.explainers}
    return values | {name.replace("__", "/"): function for name, function in best.items()}


def test_a_clear_winner(study):
    values = make_values(study, rollout__attention=constant(0.5), flow__attention=constant(0.2))
    results = gather_results(with_values(study, METRIC, values, 30))
    assert list(count_firsts(results)) == ["rollout/attention"]
    assert beaten_metrics(results, "rollout/attention") == [METRIC]
    assert find_rivals(results, "rollout/attention", METRIC) == []
    text = " ".join(state_answer(results))
    assert "rollout, attention" in text
    assert "30 texts" in text
    assert "0.503" in text  # the mean: 0.5 + 0.001 * mean of i % 7 over 30 texts, 2.9
    assert "1 of 1" in text
    assert "does not show" not in text
    assert "do not tell" not in text


def test_a_copy_of_the_winner_is_no_rival(study):
    values = make_values(study, rollout__attention=constant(0.5), flow__attention=constant(0.5))
    changed = with_values(study, METRIC, values, 30)
    assert gather_results(changed).copies == {}  # the scores of the two are not the same
    names, scores = changed.columns["explainer"], changed.columns["scores"].copy()
    for i in np.flatnonzero(names == "flow/attention"):
        place = (names == "rollout/attention") & (changed.columns["index"] == 0)
        scores[i] = 2 * scores[np.flatnonzero(place)[0]]
    results = gather_results(with_columns(changed, scores=scores))
    assert results.copies == {"flow/attention": "rollout/attention"}
    assert "flow/attention" not in results.distinct
    assert find_rivals(results, "rollout/attention", METRIC) == []
    assert f"Of {len(results.distinct)} explainers" in state_answer(results)[0]
    assert "rollout/attention = flow/attention" in state_copies(results)


def test_explainers_that_are_not_told_apart_are_named(study):
    noisy = {
        "rollout__attention": lambda i: 0.5 + 0.3 * (-1) ** i,
        "flow__attention": lambda i: 0.49 + 0.3 * (-1) ** (i // 2),
    }
    results = gather_results(with_values(study, METRIC, make_values(study, **noisy), 28))
    [leader] = count_firsts(results)
    assert leader == "rollout/attention"
    assert "flow/attention" in find_rivals(results, leader, METRIC)
    assert "flow, attention" in " ".join(state_answer(results))


def test_few_texts_cannot_be_significant(study):
    values = {name: constant(0.1 + 0.01 * i) for i, name in enumerate(study.explainers)}
    values["rollout/attention"] = constant(0.9)
    results = gather_results(with_values(study, METRIC, values, 6))
    # The smallest corrected p value of 6 texts and 7 comparisons is 7 * 2 / 2^6 = 0.22.
    assert beaten_metrics(results, "rollout/attention") == []
    assert any("6 texts" in text and "7 comparisons" in text for text in list_warnings(results))
    assert "significantly better than all" not in " ".join(state_answer(results))
    many = gather_results(with_values(study, METRIC, values, 120))
    assert not any("texts" in text for text in list_warnings(many))


def test_a_baseline_that_wins_is_called_one(study):
    values = make_values(study, frequency=constant(0.8), rollout__attention=constant(0.3))
    results = gather_results(with_values(study, METRIC, values, 20))
    text = " ".join(state_answer(results))
    assert "baseline" in text
    assert "Among the attention methods" in text
    assert "rollout, attention" in text


def test_an_answer_says_first_that_nothing_beats_random(study):
    results = gather_results(with_values(study, METRIC, make_values(study), 20))
    n = sum(kind_of(name) != "baseline" for name in results.distinct)
    assert f"None of the {n} explanations" in state_answer(results)[0]
    assert not any("better than random" in text for text in list_warnings(results))
    better = make_values(study, rollout__attention=constant(0.8))
    assert "None of" not in " ".join(
        state_answer(gather_results(with_values(study, METRIC, better, 20)))
    )


def test_the_answer_names_the_options_of_the_best_method(study):
    for name in ("rollout", "flow"):
        values = make_values(study, **{f"{name}__attention": constant(0.5)})
        answer = state_answer(gather_results(with_values(study, METRIC, values, 20)))
        assert any(f"--method {name} --edges attention." in text for text in answer)
    assert name_options("raw/attention:0.3") == (
        "--method raw --edges attention --residual-weight 0.3"
    )


def test_explainers_without_a_gain_are_listed(study):
    values = make_values(study, rollout__attention=constant(0.8))
    results = gather_results(with_values(study, METRIC, values, 20))
    [weak] = [text for text in list_warnings(results) if "better than random" in text]
    assert "flow, attention" in weak
    assert "rollout" not in weak


def test_leave_one_out_does_not_count_where_metrics_compare_with_it(study):
    results = gather_results(study)
    assert is_circular("leave_one_out", "spearman_loo")
    assert results.table("spearman_loo").rows[0].explainer == "leave_one_out"
    assert "spearman_loo" not in count_firsts(results).get("leave_one_out", [])
    assert "spearman_loo" not in beaten_metrics(results, "leave_one_out")
    assert "spearman_loo" in countable_metrics(results, "rollout/attention")
    ranks = [results.ranks[m, results.default][0]["leave_one_out"] for m in results.metrics]
    circular = results.metrics.index("spearman_loo")
    expected = np.mean([rank for i, rank in enumerate(ranks) if i != circular])
    assert results.average_ranks()["leave_one_out"] == pytest.approx(expected)


def test_agreement_of_replacements(study):
    """The same values with each replacement: tau is 1. Reversed for one of them: -1."""
    values = {name: constant(0.1 * i) for i, name in enumerate(study.explainers)}
    same = with_values(study, METRIC, values, 20)
    assert {entry.tau for entry in compare_rankings(gather_results(same))} == {1.0}
    second = same.columns["replacement"] == same.replacements[1]
    column = np.where(second, -same.columns[METRIC], same.columns[METRIC])
    results = gather_results(with_columns(same, **{METRIC: column}))
    first, other = (Choice(name, "signed") for name in same.replacements)
    [tau] = [e.tau for e in compare_rankings(results) if (e.first, e.second) == (first, other)]
    assert tau == pytest.approx(-1)
    answer = state_answer(results)[-1]
    assert "-1.00" in answer
    assert other.replacement in answer


def test_evidence_does_not_depend_on_replacements(study):
    pairs = compare_rankings(gather_results(study))
    crossing = [e for e in pairs if e.first.replacement != e.second.replacement]
    assert {e.metric for e in crossing} == {*study.metrics} - {"pointing_game"}
    assert all((e.first.sign == e.second.sign) for e in crossing)


def test_failures_are_told_with_their_reason(study):
    failed = study.columns["explainer"] == "flow/attention"
    problem = np.where(failed, "no <memory>", "").astype(object)
    warnings = list_warnings(gather_results(with_columns(study, problem=problem)))
    assert any("flow" in text and "4 texts" in text and "no <memory>" in text for text in warnings)


def test_the_best_of_each_kind_is_selected(study):
    chosen = select_explainers(gather_results(study))
    assert sorted(chosen) == ["flow/attention", "leave_one_out", "rollout/attention"]
    assert [kind_of(name) for name in ("rollout/alti", "leave_one_out", "random", "plugin")] == [
        "method",
        "opponent",
        "baseline",
        "opponent",
    ]


def test_numbers():
    assert number(float("nan")) == "-"
    assert p_text(0.05) == "0.050"
