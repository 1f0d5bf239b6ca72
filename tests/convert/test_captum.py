"""to_captum: answers, classes and images, drawn by Captum itself."""

import numpy as np
import pytest

from attnflow import AttentionGraph, Explanation, InputError
from attnflow.convert import to_captum
from tests.convert.models import (
    PROMPT,
    explain,
    explain_image,
    make_classifier,
    make_speaker,
    make_translator,
)
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal

captum = pytest.importorskip("captum.attr")


@pytest.fixture(scope="module")
def speaker():
    return make_speaker()


@pytest.fixture
def pyplot():
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("make", [make_speaker, make_translator])
def test_an_answer(make):
    explanation = explain(PROMPT, make(), continuation="is here are")
    result = to_captum(explanation, method="flow", layer=1)
    answer = explanation.answer
    n = answer.first
    assert isinstance(result, captum.LLMAttributionResult)
    assert result.input_tokens == list(explanation.tokens[:n])
    assert len(result.output_tokens) == len(answer)
    rows = explanation.flow(answer="tokens", layers=1).to_numpy()[0]
    np.testing.assert_allclose(result.token_attr.numpy(), rows[:, :n], rtol=1e-6)
    whole = explanation.flow(layers=1).to_numpy()[0, 0]
    np.testing.assert_allclose(result.seq_attr.numpy(), whole[:n], rtol=1e-6)
    expected = [step.target.probability for step in answer.steps]
    np.testing.assert_allclose(result.output_probs.numpy(), expected, rtol=1e-6)
    assert result.offsets == list(explanation.offsets[:n])


def test_an_answer_is_drawn(speaker, pyplot):
    explanation = explain(PROMPT, speaker, continuation=" is here are")
    figure, axes = to_captum(explanation).plot_token_attr()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["is", "here", "are"]
    figure, _ = to_captum(explanation).plot_seq_attr()
    assert figure.axes
    assert pyplot.get_fignums()


def test_the_next_token(speaker):
    explanation = explain(PROMPT, speaker)
    result = to_captum(explanation)
    assert result.output_tokens == [explanation.prediction.target.label]
    row = explanation.rollout(layers=-1).to_numpy()[0]
    np.testing.assert_allclose(result.token_attr.numpy(), row, rtol=1e-6)
    np.testing.assert_allclose(result.seq_attr.numpy(), row[0], rtol=1e-6)


def test_an_attribution(speaker):
    attribution = explain(PROMPT, speaker).rollout(positions=[1, 3])
    result = to_captum(attribution)
    assert result.output_tokens == ["key", "the"]
    np.testing.assert_allclose(result.token_attr.numpy(), attribution.scores[-1], rtol=1e-6)
    np.testing.assert_allclose(
        result.seq_attr.numpy(), attribution.to_numpy()[-1].mean(axis=0), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [("BertForSequenceClassification", "the key"), ("BertForMaskedLM", "the [MASK] key")],
)
def test_a_class_or_word(kind, text):
    explanation = explain(text, make_loaded(kind), target=7 if "Masked" in kind else 1)
    record = to_captum(explanation, true_class="right")
    row = explanation.rollout(layers=-1).to_numpy()[0, 0]
    np.testing.assert_allclose(record.word_attributions.numpy(), row / row.max(), rtol=1e-6)
    assert record.attr_score == pytest.approx(row.sum())
    assert record.raw_input_ids == list(explanation.tokens)
    assert record.pred_prob == explanation.prediction.probability
    assert (record.pred_class, record.attr_class, record.true_class) == (
        explanation.prediction.label,
        explanation.prediction.target.label,
        "right",
    )
    assert record.offsets == list(explanation.offsets)
    pytest.importorskip("IPython")
    page = captum.visualization.visualize_text([record]).data
    assert all(token.strip("[]") in page for token in explanation.tokens)


def test_the_true_class_may_be_unknown():
    assert to_captum(explain("the key", make_classifier())).true_class == "unknown"


@pytest.mark.usefixtures("pyplot")
def test_an_image():
    pytest.importorskip("PIL")
    from tests.test_images import make, make_picture, make_processor

    explanation = explain_image(make_picture(), make(), processor=make_processor())
    attr, image = to_captum(explanation)
    grid = explanation.image
    row = explanation.rollout(layers=-1).to_numpy()[0, 0]
    assert image.shape == (grid.height, grid.width, 3)
    assert attr.shape == (grid.height, grid.width, 1)
    size = grid.height // grid.rows
    for i in range(grid.rows):
        for j in range(grid.columns):
            patch = attr[i * size : (i + 1) * size, j * size : (j + 1) * size]
            np.testing.assert_allclose(patch, row[grid.first + i * grid.columns + j], rtol=1e-6)
    figure, _ = captum.visualization.visualize_image_attr(
        attr, image, method="blended_heat_map", sign="positive", use_pyplot=False
    )
    assert figure.axes


def test_a_model_without_a_prediction_is_refused():
    graph = AttentionGraph.from_weights([[[1.0, 0.0], [0.5, 0.5]]], tokens=["a", "b"])
    explanation = Explanation.from_graph(graph)
    with refusal(InputError, "explanation.rollout()"):
        to_captum(explanation)
    assert to_captum(explanation.rollout()).output_tokens == ["b"]
