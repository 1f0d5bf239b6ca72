"""Tables 1 and 2 on a few sentences: equal to the public functions, and as rendered."""

from dataclasses import replace

import numpy as np
import pytest

from attnflow import explain, load_model
from attnflow.evaluation import rank_correlation
from attnflow.importance import blank_out, input_gradients
from attnflow.paper.experiments.agreement_tables import (
    CLAIMS,
    render_table1,
    render_table2,
    run_table1,
    run_table2,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, read_result, write_result
from attnflow.paper.experiments.report import to_text
from attnflow.paper.experiments.sentences import read_agreement

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table1(options):
    return run_table1(options, None)


@pytest.fixture(scope="module")
def table2(options):
    return run_table2(options, None)


def absolute(attribution):
    return replace(attribution, scores=np.abs(attribution.scores))


@pytest.mark.slow
def test_table_1_equals_the_public_functions(table1, options):
    loaded = load_model("verb-number")
    examples = read_agreement(options).natural
    for method in PAPER_METHODS:
        rhos = []
        for example in examples:
            attention = explain(example.text, loaded, edges="attention").attribute(method)
            rhos.append(rank_correlation(attention, absolute(blank_out(example.text, loaded))))
        found = table1.numbers["methods"][method]
        assert found["mean"] == pytest.approx(np.nanmean(rhos, axis=0), abs=1e-4)
        assert found["sd"] == pytest.approx(np.nanstd(rhos, axis=0), abs=1e-4)


@pytest.mark.slow
def test_table_2_equals_the_public_functions(table2, options):
    loaded = load_model("verb-number")
    rhos = []
    for example in read_agreement(options).natural:
        attention = explain(example.text, loaded, edges="attention").rollout()
        gradients = input_gradients(example.text, loaded, variant="l2")
        rhos.append(rank_correlation(attention, gradients))
    found = table2.numbers["methods"]["rollout"]["mean"]
    assert found == pytest.approx(np.mean(rhos, axis=0), abs=1e-4)


def test_at_layer_1_rollout_and_flow_are_equal(table1):
    methods = table1.numbers["methods"]
    assert methods["rollout"]["mean"][0] == methods["flow"]["mean"][0]
    [pair] = [c for c in table1.numbers["comparisons"] if c["second"] == "rollout"]
    assert pair["p"][0] is None


def test_intervals_contain_the_mean(table1):
    for found in table1.numbers["methods"].values():
        for low, mean, high in zip(found["low"], found["mean"], found["high"], strict=True):
            assert low <= mean <= high


def test_every_sentence_is_in_one_group_by_attractors(table1):
    assert sum(g["examples"] for g in table1.numbers["attractors"].values()) == 6


def test_texts_are_grouped_by_length(table1):
    lengths = table1.numbers["lengths"]
    assert sum(group["examples"] for group in lengths.values()) == 6
    shortest = min(int(title.split()[0]) for title in lengths)
    assert shortest >= 3
    means = [(g["methods"]["flow"]["mean"][-1], g["examples"]) for g in lengths.values()]
    whole = sum(mean * n for mean, n in means) / 6
    assert whole == pytest.approx(table1.numbers["methods"]["flow"]["mean"][-1], abs=1e-4)


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_the_numbers_of_the_paper_are_shown_with_ours(table1, table2, name):
    report = render_table1(table1) if name == "table1" else render_table2(table2)
    table = report.tables[0]
    names = ["Raw, paper", "Raw, ours", "Rollout, paper", "Rollout, ours", "Flow, paper"]
    assert [row[0] for row in table.rows] == [*names, "Flow, ours"]
    assert table.rows[0][1] == {"table1": "0.69±0.27", "table2": "0.53±0.33"}[name]
    assert [len(row) for row in table.rows] == [7] * 6
    assert "Excluded here: 0" in to_text(report)


def test_all_claims_hold_for_the_numbers_of_the_paper(table1):
    claims = render_table1(table1).tables[1]
    assert [row[1] for row in claims.rows] == ["yes"] * len(CLAIMS)


def test_a_saved_result_is_rendered_the_same(table1, tmp_path):
    read = read_result(write_result(table1, tmp_path))
    assert to_text(render_table1(read)) == to_text(render_table1(table1))


def test_the_sum_of_the_gradient_is_a_variant_and_explained(table2):
    report = render_table2(table2)
    assert any("rounding errors" in part for part in report.parts if isinstance(part, str))
    assert "sum (rounding errors)" in table2.numbers["variants"]
    assert table2.numbers["sum_over_l2"] < 1e-5


def test_results_contain_no_sentences(table1, options, tmp_path):
    written = write_result(table1, tmp_path).read_text()
    for example in read_agreement(options).natural:
        assert example.text not in written
