"""Table 3 on a few sentences and a tiny classifier."""

import numpy as np
import pytest

from attnflow import explain
from attnflow.edges.registry import EDGES
from attnflow.errors import FileError
from attnflow.evaluation import rank_correlation
from attnflow.importance import input_gradients
from attnflow.paper.experiments import table3
from attnflow.paper.experiments.experiment import Options
from tests.models.checkpoints import make_loaded, save
from tests.refusal import refusal

SENTIMENT = [
    ("the key to the cabinets is here", 1),
    ("the cabinets are here", 0),
    ("the key is here", 1),
    ("here the cabinets are the key", 0),
]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentiment")
    rows = "".join(f"{text}\t{label}\n" for text, label in SENTIMENT)
    (folder / "sst2").mkdir()
    (folder / "sst2" / "dev.tsv").write_text(f"sentence\tlabel\n{rows}")
    models = [save(folder / name) for name in ("tiny-bert", "other")]
    options = Options(data=str(folder), model=",".join(models), threads=1, cache=None)
    return table3.run(options, None)


@pytest.fixture(scope="module")
def numbers(result):
    return result.numbers["models"]["tiny-bert"]


def test_any_classifier_can_be_measured(numbers):
    assert numbers["all"]["examples"] == numbers["sample"]["examples"] == 4
    loaded = make_loaded()
    rhos = []
    for text, _ in SENTIMENT:
        gradients = input_gradients(text, loaded, variant="l2")
        rhos.append(rank_correlation(explain(text, loaded).flow(), gradients))
    found = numbers["all"]["methods"]["flow"]["mean"]
    assert found == pytest.approx(np.nanmean(rhos, axis=0), abs=1e-4)


def test_other_edges_are_measured_on_the_sample(numbers):
    loaded = make_loaded()
    rhos = []
    for text, _ in SENTIMENT:
        gradients = input_gradients(text, loaded, variant="l2")
        rhos.append(rank_correlation(explain(text, loaded, edges="norm").rollout(), gradients))
    found = numbers["edges"]["norm"]["rollout"]["mean"]
    assert found == pytest.approx(np.nanmean(rhos, axis=0), abs=1e-4)
    assert numbers["edges"]["attention"] == numbers["sample"]["variants"]["input gradients (l2)"]


def test_models_are_side_by_side(result):
    assert list(result.numbers["models"]) == ["tiny-bert", "other"]
    main, edges = table3.render(result).tables[:2]
    assert [row[0] for row in main.rows[:2]] == ["Raw, tiny-bert", "Raw, other"]
    assert main.rows[0][1:] == main.rows[1][1:]  # the same weights
    assert edges.header[1:] == tuple(
        f"{name}: {method}"
        for name in ("tiny-bert", "other")
        for method in ("raw", "rollout", "flow")
    )
    assert [row[0] for row in edges.rows] == list(EDGES.names)


def test_the_share_of_the_first_token_is_averaged_over_texts(numbers):
    loaded = make_loaded()
    rows = [explain(text, loaded).rollout().to_numpy()[:, 0] for text, _ in SENTIMENT]
    expected = np.mean([row[:, 0] / row.sum(-1) for row in rows], axis=0)
    assert numbers["first_token_share"]["rollout"] == pytest.approx(expected, abs=1e-4)


def test_the_table_names_the_model(result):
    report = table3.render(result)
    # A model with two layers is not compared with the table of the paper.
    names = [row[0] for row in report.tables[0].rows]
    assert not any("paper" in name for name in names)
    assert len(set(names)) == len(names) == 6
    # The sample contains all four sentences.
    assert not any("4 of the sentences" in table.caption for table in report.tables[2:])
    assert "tiny-bert 50.0%, other 50.0%." in str(report.parts[0])


def test_classes_are_found_by_name_or_by_index():
    named = make_loaded(id2label={0: "POSITIVE", 1: "NEGATIVE"})
    assert table3.find_class(named, "positive") == 0
    assert table3.find_class(make_loaded(), "positive") == 1


def test_without_the_model_of_the_paper_another_is_suggested(monkeypatch):
    def missing(_options, name):
        raise FileError(f"there is no model {name}", "a name", "Check the name.")

    monkeypatch.setattr(table3, "open_model", missing)
    with refusal(FileError, table3.MODEL, "Check the name.", "--model minilm-sst2"):
        table3.open_classifier(Options())
    with pytest.raises(FileError) as caught:
        table3.open_classifier(Options(model="mine"))
    assert "minilm" not in str(caught.value)
