"""to_interpreto: its metrics and its pages take our scores. Needs interpreto itself."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnflow import AttentionGraph, Explanation, InputError
from attnflow.convert import to_interpreto
from attnflow.convert.interpreto import _with_future
from tests.convert.models import PROMPT, explain, make_classifier, make_speaker, make_translator
from tests.refusal import refusal

TEXT = "the key to cabinets"


@pytest.fixture(scope="module")
def interpreto():
    package = pytest.importorskip("interpreto")
    metrics = pytest.importorskip("interpreto.attributions.metrics")
    return SimpleNamespace(package=package, metrics=metrics)


def test_cells_of_later_tokens_are_nan():
    rows = np.asarray([[0.4, 0.6, 0.0, 0.0], [0.1, 0.2, 0.7, 0.0]])
    expected = [[0.4, 0.6, np.nan, np.nan], [0.1, 0.2, 0.7, np.nan]]
    np.testing.assert_array_equal(_with_future(rows, 2, 4), expected)


@pytest.mark.usefixtures("interpreto")
def test_a_class():
    explanation = explain(TEXT, make_classifier(), target=0)
    output = to_interpreto(explanation, method="flow", layer=1)
    row = explanation.flow(layers=1).to_numpy()[0]
    np.testing.assert_allclose(output.attributions.numpy(), row, rtol=1e-6)
    assert output.elements == list(explanation.tokens)
    inputs = output.model_inputs_to_explain
    assert inputs["input_ids"].tolist() == [[2, 5, 6, 7, 8, 3]]
    assert inputs["attention_mask"].tolist() == [[1] * 6]
    spans = [span or (0, 0) for span in explanation.offsets]
    assert [tuple(span) for span in inputs["offset_mapping"][0].tolist()] == spans
    assert output.targets.tolist() == output.classes.tolist() == [0]
    assert output.model_task.name == "CLASSIFICATION"


@pytest.mark.usefixtures("interpreto")
def test_an_answer_and_the_next_token():
    speaker = make_speaker()
    explanation = explain(PROMPT, speaker, continuation=" is here are")
    output = to_interpreto(explanation)
    rows = explanation.rollout(answer="tokens", layers=-1).to_numpy()[0]
    expected = _with_future(rows, 4, 7)
    np.testing.assert_allclose(output.attributions.numpy(), expected, rtol=1e-6)
    assert output.model_inputs_to_explain["input_ids"].tolist() == [[5, 6, 7, 5, 9, 11, 10]]
    assert output.targets.tolist() == [9, 11, 10]
    assert output.model_task.name == "GENERATION"
    following = explain(PROMPT, speaker)
    output = to_interpreto(following)
    row = following.rollout(layers=-1).to_numpy()[0, 0]
    np.testing.assert_allclose(output.attributions[0, :-1].numpy(), row, rtol=1e-6)
    assert output.attributions[0, -1].isnan()
    assert output.targets.tolist() == [following.prediction.target.index]
    assert output.elements[-1] == following.prediction.target.label


def classifier_that_reads(index):
    """A classifier of bags of words: class 1 exactly if a token is there, whatever else is."""
    loaded = make_classifier()

    class BagForSequenceClassification(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config, self.device = loaded.model.config, torch.device("cpu")

        def forward(self, input_ids, **_):
            there = (input_ids == index).any(dim=1).float()
            logits = torch.stack([-10 * there, 10 * there], dim=1)
            return SimpleNamespace(logits=logits)

    return BagForSequenceClassification().eval()


def test_deletion_and_insertion_see_the_order_of_our_scores(interpreto):
    """By hand: n tokens, and the one that matters is k-th: the class is lost at step k."""
    loaded = make_classifier()
    explanation = explain(TEXT, loaded, target=1)
    output = to_interpreto(explanation)
    order = np.argsort(-output.attributions[0].numpy()).tolist()
    ids = output.model_inputs_to_explain["input_ids"][0].tolist()
    n = len(ids)
    for k in (0, 2, n - 1):
        model = classifier_that_reads(ids[order[k]])
        deleted, [[curve]] = interpreto.metrics.Deletion(model, loaded.tokenizer).evaluate([output])
        expected = [1.0] * (k + 1) + [0.5] * (n - k)
        np.testing.assert_allclose(curve.numpy(), expected, atol=1e-6)
        assert deleted == pytest.approx(np.trapezoid(expected) / n, abs=1e-6)
        inserted, _ = interpreto.metrics.Insertion(model, loaded.tokenizer).evaluate([output])
        assert inserted == pytest.approx(np.trapezoid(expected[::-1][: n + 1]) / n, abs=0.51)


def test_the_metrics_run_on_answers(interpreto):
    speaker = make_speaker()
    speaker.tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    explanation = explain(PROMPT, speaker, continuation=" is here are")
    output = to_interpreto(explanation)
    for metric in (interpreto.metrics.Insertion, interpreto.metrics.Deletion):
        area, [curves] = metric(speaker.model, speaker.tokenizer).evaluate([output])
        assert 0 <= area <= 1
        assert len(curves) == 3
    last = [curves[i][0].item() for i in range(3)]  # nothing is deleted yet
    expected = [step.target.probability for step in explanation.answer.steps]
    np.testing.assert_allclose(last, expected, atol=1e-5)


def test_pages_are_drawn(interpreto, tmp_path):
    for name, explanation in {
        "class": explain(TEXT, make_classifier()),
        "answer": explain(PROMPT, make_speaker(), continuation=" is here are"),
    }.items():
        path = tmp_path / f"{name}.html"
        interpreto.package.plot_attributions(to_interpreto(explanation), save_path=path)
        page = path.read_text(encoding="utf-8")
        assert all(token in page for token in explanation.tokens)


@pytest.mark.usefixtures("interpreto")
def test_what_interpreto_does_not_take_is_refused(tmp_path):
    with refusal(InputError, "encoder-decoder", "to_inseq"):
        to_interpreto(explain(PROMPT, make_translator(), generate=2))
    explanation = explain(TEXT, make_classifier())
    explanation.save(tmp_path / "saved")
    with refusal(InputError, "token ids"):
        to_interpreto(Explanation.load(tmp_path / "saved"))
    with refusal(InputError, "position 1 of 4"):
        to_interpreto(explain(PROMPT, make_speaker(), position=1))
    graph = AttentionGraph.from_weights([[[1.0]]], tokens=["a"])
    with refusal(InputError, "predicts nothing"):
        to_interpreto(Explanation.from_graph(graph))
    with refusal(InputError, "Attribution"):
        to_interpreto(explanation.rollout())
