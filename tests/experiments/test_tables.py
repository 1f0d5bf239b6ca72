"""Tables 1 to 3 on a few sentences: against the public functions, and as they are laid out."""

from dataclasses import replace

import numpy as np
import pytest

from attnflow import explain, load_model
from attnflow.errors import FileError
from attnflow.evaluation import rank_correlation
from attnflow.importance import blank_out, input_gradients
from attnflow.paper.experiments import table1, table2, table3
from attnflow.paper.experiments.agreement_report import CLAIMS
from attnflow.paper.experiments.options import Options
from attnflow.paper.experiments.report import to_text
from attnflow.paper.experiments.result import read_result, write_result
from attnflow.paper.experiments.sentences import read_agreement
from tests.models.checkpoints import make_loaded, save
from tests.refusal import refusal


@pytest.fixture(scope="module")
def first(options):
    return table1.run(options, None)


@pytest.fixture(scope="module")
def second(options):
    return table2.run(options, None)


def absolute(attribution):
    return replace(attribution, scores=np.abs(attribution.scores))


def test_table_1_is_what_the_public_functions_give(first, options):
    loaded = load_model("verb-number")
    examples = read_agreement(options).natural
    for method in ("raw", "rollout", "flow"):
        rhos = []
        for example in examples:
            attention = getattr(explain(example.text, loaded), method)()
            rhos.append(rank_correlation(attention, absolute(blank_out(loaded, example.text))))
        found = first.numbers["methods"][method]
        assert found["mean"] == pytest.approx(np.nanmean(rhos, axis=0), abs=1e-4)
        assert found["sd"] == pytest.approx(np.nanstd(rhos, axis=0), abs=1e-4)


def test_table_2_is_what_the_public_functions_give(second, options):
    loaded = load_model("verb-number")
    rhos = []
    for example in read_agreement(options).natural:
        attention = explain(example.text, loaded).rollout()
        gradients = input_gradients(loaded, example.text, variant="l2")
        rhos.append(rank_correlation(attention, gradients))
    found = second.numbers["methods"]["rollout"]["mean"]
    assert found == pytest.approx(np.mean(rhos, axis=0), abs=1e-4)


def test_at_layer_1_rollout_and_flow_are_the_same(first):
    methods = first.numbers["methods"]
    assert methods["rollout"]["mean"][0] == methods["flow"]["mean"][0]
    [pair] = [c for c in first.numbers["comparisons"] if c["second"] == "rollout"]
    assert pair["p"][0] is None


def test_the_paper_s_residual_weight_gives_the_table(first):
    for method in ("rollout", "flow"):
        swept = first.numbers["residual"]["0.5"][method]["mean"]
        assert swept == first.numbers["methods"][method]["mean"]


def test_intervals_hold_the_mean(first):
    for found in first.numbers["methods"].values():
        for low, mean, high in zip(found["low"], found["mean"], found["high"], strict=True):
            assert low <= mean <= high


def test_all_sentences_are_in_one_group_of_attractors(first):
    assert sum(g["examples"] for g in first.numbers["attractors"].values()) == 6


def test_texts_are_grouped_by_their_length(first):
    lengths = first.numbers["lengths"]
    assert sum(group["examples"] for group in lengths.values()) == 6
    shortest = min(int(title.split()[0]) for title in lengths)
    assert shortest >= 3
    means = [(g["methods"]["flow"]["mean"][-1], g["examples"]) for g in lengths.values()]
    whole = sum(mean * n for mean, n in means) / 6
    assert whole == pytest.approx(first.numbers["methods"]["flow"]["mean"][-1], abs=1e-4)


@pytest.mark.parametrize(("module", "cell"), [(table1, "0.69±0.27"), (table2, "0.53±0.33")])
def test_the_paper_s_numbers_stand_beside_ours(first, second, module, cell):
    result = first if module is table1 else second
    report = module.render(result)
    table = report.tables[0]
    names = ["Raw, paper", "Raw, ours", "Raw, ours without [CLS]"]
    assert [row[0] for row in table.rows][:3] == names
    assert table.rows[0][1] == cell
    assert [len(row) for row in table.rows] == [7] * 9
    assert "Left out here: 0" in to_text(report)


def test_the_claims_hold_for_the_paper_s_own_numbers(first):
    shape = table1.render(first).tables[1]
    assert [row[1] for row in shape.rows] == ["yes"] * len(CLAIMS)


def test_a_result_can_be_laid_out_after_it_was_saved(first, tmp_path):
    read = read_result(write_result(first, tmp_path))
    assert to_text(table1.render(read)) == to_text(table1.render(first))


def test_the_sum_of_gradients_is_shown_as_a_variant_and_explained(second):
    report = table2.render(second)
    assert any("rounding errors" in part for part in report.parts if isinstance(part, str))
    assert "sum (rounding errors)" in second.numbers["variants"]
    assert second.numbers["sum_over_l2"] < 1e-5


def test_no_sentence_is_in_a_result(first, options, tmp_path):
    written = write_result(first, tmp_path).read_text()
    for example in read_agreement(options).natural:
        assert example.text not in written


SENTIMENT = [
    ("the key to the cabinets is here", 1),
    ("the cabinets are here", 0),
    ("the key is here", 1),
    ("here the cabinets are the key", 0),
]


@pytest.fixture(scope="module")
def third(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentiment")
    rows = "".join(f"{text}\t{label}\n" for text, label in SENTIMENT)
    (folder / "sst2").mkdir()
    (folder / "sst2" / "dev.tsv").write_text(f"sentence\tlabel\n{rows}")
    model = save(folder / "tiny-bert")
    options = Options(data=str(folder), model=model, threads=1, cache=None)
    return table3.run(options, None)


def test_table_3_takes_any_classifier(third):
    assert third.numbers["all"]["examples"] == third.numbers["sample"]["examples"] == 4
    loaded = make_loaded()
    rhos = []
    for text, _ in SENTIMENT:
        gradients = input_gradients(loaded, text, variant="l2")
        rhos.append(rank_correlation(explain(text, loaded).flow(), gradients))
    found = third.numbers["all"]["methods"]["flow"]["mean"]
    assert found == pytest.approx(np.nanmean(rhos, axis=0), abs=1e-4)


def test_the_share_of_the_first_token_is_that_of_its_rows(third):
    loaded = make_loaded()
    rows = [explain(text, loaded).rollout().to_numpy()[:, 0] for text, _ in SENTIMENT]
    expected = np.mean([row[:, 0] / row.sum(-1) for row in rows], axis=0)
    assert third.numbers["first"]["[CLS]"]["rollout"] == pytest.approx(expected, abs=1e-4)


def test_table_3_names_the_model_it_is_of(third):
    report = table3.render(third)
    # Two layers have no columns in common with the paper's table, so that it has no rows there.
    names = [row[0] for row in report.tables[0].rows]
    assert names[0].endswith("tiny-bert, 4")
    assert not any("DistilBERT" in name for name in names)
    assert len(set(names)) == len(names) == 3  # all four sentences are the sample: told once
    assert "The same for" not in to_text(report)


def test_classes_are_found_by_name_or_by_number():
    named = make_loaded(id2label={0: "POSITIVE", 1: "NEGATIVE"})
    assert table3.find_class(named, "positive") == 0
    assert table3.find_class(make_loaded(), "positive") == 1


def test_without_the_paper_s_model_another_is_named(monkeypatch):
    def missing(_options, name):
        raise FileError(f"there is no model {name}.")

    monkeypatch.setattr(table3, "open_model", missing)
    with refusal(FileError, "no model distilbert-base-uncased", "--model minilm-sst2"):
        table3.open_classifier(Options())
    with pytest.raises(FileError) as caught:
        table3.open_classifier(Options(model="mine"))
    assert "minilm" not in str(caught.value)
