"""Table 3 on a few sentences and a tiny classifier."""

import numpy as np
import pytest

from attnflow import explain
from attnflow.errors import FileError
from attnflow.evaluation import rank_correlation
from attnflow.importance import input_gradients
from attnflow.paper.experiments import table3
from attnflow.paper.experiments.experiment import Options
from attnflow.paper.experiments.report import to_text
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
    model = save(folder / "tiny-bert")
    options = Options(data=str(folder), model=model, threads=1, cache=None)
    return table3.run(options, None)


def test_any_classifier_can_be_measured(result):
    assert result.numbers["all"]["examples"] == result.numbers["sample"]["examples"] == 4
    loaded = make_loaded()
    rhos = []
    for text, _ in SENTIMENT:
        gradients = input_gradients(text, loaded, variant="l2")
        rhos.append(rank_correlation(explain(text, loaded).flow(), gradients))
    found = result.numbers["all"]["methods"]["flow"]["mean"]
    assert found == pytest.approx(np.nanmean(rhos, axis=0), abs=1e-4)


def test_the_share_of_the_first_token_is_averaged_over_texts(result):
    loaded = make_loaded()
    rows = [explain(text, loaded).rollout().to_numpy()[:, 0] for text, _ in SENTIMENT]
    expected = np.mean([row[:, 0] / row.sum(-1) for row in rows], axis=0)
    assert result.numbers["first_token_share"]["[CLS]"]["rollout"] == pytest.approx(
        expected, abs=1e-4
    )


def test_the_table_names_the_model(result):
    report = table3.render(result)
    # A model with two layers is not compared with the table of the paper.
    names = [row[0] for row in report.tables[0].rows]
    assert names[0].endswith("tiny-bert, 4")
    assert not any("DistilBERT" in name for name in names)
    assert len(set(names)) == len(names) == 3  # the sample contains all four sentences
    assert "The same for" not in to_text(report)


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
