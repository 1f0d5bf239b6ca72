"""Input gradients against finite differences, and integrated gradients against their sum."""

import sys

import numpy as np
import pytest
import torch

from attnflow.errors import InputError, MissingDependencyError
from attnflow.importance import input_gradients, integrated_gradients
from attnflow.models.loading import LoadedModel
from tests.models.checkpoints import VOCABULARY, make_loaded
from tests.refusal import refusal

pytestmark = pytest.mark.slow

TEXTS = {
    "BertForSequenceClassification": "the key to cabinets",
    "BertForMaskedLM": "the key [MASK] here",
    "GPT2LMHeadModel": "the key to here",
}


def in_double(kind):
    loaded = make_loaded(kind)
    return LoadedModel(
        loaded.model.double(), loaded.tokenizer, loaded.task, loaded.name, loaded.max_length
    )


def score_of(loaded, embeddings, position, target):
    """The target's logit for embeddings [tokens, width], by way of `inputs_embeds`."""
    with torch.no_grad():
        logits = loaded.model(inputs_embeds=embeddings[None]).logits[0]
    return float(logits[target] if loaded.task == "classifier" else logits[position, target])


def finite_differences(loaded, embeddings, position, target, step=1e-5):
    gradient = torch.zeros_like(embeddings)
    for i in range(embeddings.shape[0]):
        for j in range(embeddings.shape[1]):
            change = torch.zeros_like(embeddings)
            change[i, j] = step
            above = score_of(loaded, embeddings + change, position, target)
            below = score_of(loaded, embeddings - change, position, target)
            gradient[i, j] = (above - below) / (2 * step)
    return gradient


@pytest.mark.parametrize("kind", list(TEXTS))
def test_gradients_are_those_of_finite_differences(kind):
    loaded, text = in_double(kind), TEXTS[kind]
    results = {
        variant: input_gradients(text, loaded, variant=variant)
        for variant in ("sum", "l2", "times_input")
    }
    [position], settings = results["sum"].positions, results["sum"].settings
    ids = torch.tensor(loaded.tokenizer(text)["input_ids"])
    embeddings = loaded.model.get_input_embeddings()(ids).detach()
    gradient = finite_differences(loaded, embeddings, position, settings["target_index"])
    expected = {
        "sum": gradient.sum(-1).abs(),
        "l2": (gradient**2).sum(-1).sqrt(),
        "times_input": (gradient * embeddings).sum(-1).abs(),
    }
    assert float(expected["l2"].max()) > 0.01
    for variant, values in expected.items():
        scores = results[variant].scores
        np.testing.assert_allclose(scores[0, 0], values, rtol=1e-5, atol=1e-7)
        assert results[variant].layers == (2,)
        assert results[variant].method == "input_gradients"
        assert results[variant].settings["variant"] == variant


def test_nothing_is_left_behind_in_the_model():
    loaded = make_loaded()
    before = loaded.model(input_ids=torch.tensor([[2, 5, 3]])).logits
    input_gradients("the key", loaded)
    assert all(weight.grad is None for weight in loaded.model.parameters())
    assert torch.equal(loaded.model(input_ids=torch.tensor([[2, 5, 3]])).logits, before)


def test_gradients_can_be_had_where_they_are_switched_off():
    with torch.no_grad():
        assert input_gradients("the key", make_loaded()).scores.max() > 0


def test_another_target_has_another_gradient():
    loaded = make_loaded(num_labels=3)
    first = input_gradients("the key", loaded, target="label_0")
    assert first.settings["target"] == "LABEL_0"
    assert not np.allclose(first.scores, input_gradients("the key", loaded, target=1).scores)


def test_unknown_variants_are_refused():
    with refusal(InputError, "variant is 'max'", "'l2', 'times_input' or 'sum'"):
        input_gradients("key", make_loaded(), variant="max")  # type: ignore[arg-type]


def test_gradients_of_an_encoder_decoder_are_those_of_its_encoder(encoder_decoder):
    model, text = encoder_decoder.model, "the key to"
    result = input_gradients(text, encoder_decoder)
    ids = torch.tensor([encoder_decoder.tokenizer(text)["input_ids"]])
    embeddings = model.get_encoder().get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, decoder_input_ids=torch.tensor([[2]])).logits[0, -1]
    [gradient] = torch.autograd.grad(logits[result.settings["target_index"]], embeddings)
    assert result.columns == tuple(range(ids.shape[1]))
    assert len(result.tokens) == ids.shape[1] + 1
    np.testing.assert_allclose(result.scores[0, 0], gradient[0].norm(dim=-1), rtol=1e-4)


@pytest.mark.parametrize("kind", list(TEXTS))
def test_the_gradient_of_a_contrast_is_that_of_the_difference(kind):
    loaded, text = in_double(kind), TEXTS[kind]
    target, against = (1, 0) if loaded.task == "classifier" else (9, 10)
    result = input_gradients(text, loaded, target=target, against=against)
    ids = torch.tensor(loaded.tokenizer(text)["input_ids"])
    embeddings = loaded.model.get_input_embeddings()(ids).detach()
    first, second = (
        finite_differences(loaded, embeddings, result.positions[0], index)
        for index in (target, against)
    )
    expected = (first - second).norm(dim=-1)
    np.testing.assert_allclose(result.scores[0, 0], expected, rtol=1e-5, atol=1e-7)
    assert (result.settings["target_index"], result.settings["against_index"]) == (target, against)


def test_captum_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with refusal(MissingDependencyError, "pip install 'attnflow[captum]'"):
        integrated_gradients("key", make_loaded())


@pytest.mark.parametrize("kind", list(TEXTS))
@pytest.mark.parametrize("baseline", ["zero", "mean", "unknown"])
def test_integrated_gradients_add_up_to_the_difference_of_scores(kind, baseline):
    pytest.importorskip("captum", reason="captum is not installed")
    loaded, text = in_double(kind), TEXTS[kind]
    result = integrated_gradients(text, loaded, baseline=baseline, steps=200)
    [position], target = result.positions, result.settings["target_index"]
    ids = torch.tensor(loaded.tokenizer(text)["input_ids"])
    layer = loaded.model.get_input_embeddings()
    embeddings = layer(ids).detach()
    start = torch.zeros_like(embeddings)
    if baseline == "mean":
        start += layer.weight.detach().mean(0)
    elif baseline == "unknown":
        start = layer(torch.full_like(ids, 1)).detach()
    difference = score_of(loaded, embeddings, position, target)
    difference -= score_of(loaded, start, position, target)
    assert float(result.scores.sum()) == pytest.approx(difference, abs=1e-2)
    assert abs(result.settings["error"]) < 1e-2
    assert result.layers == (2,)


def test_integrated_gradients_of_a_contrast_add_up_to_its_change():
    pytest.importorskip("captum", reason="captum is not installed")
    loaded, text = in_double("GPT2LMHeadModel"), TEXTS["GPT2LMHeadModel"]
    result = integrated_gradients(text, loaded, target="is", against="are", steps=200)
    ids = torch.tensor(loaded.tokenizer(text)["input_ids"])
    embeddings = loaded.model.get_input_embeddings()(ids).detach()
    zeros = torch.zeros_like(embeddings)
    first, second = (
        score_of(loaded, embeddings, 3, VOCABULARY[word])
        - score_of(loaded, zeros, 3, VOCABULARY[word])
        for word in ("is", "are")
    )
    assert abs(first - second) > 0.1
    assert float(result.scores.sum()) == pytest.approx(first - second, abs=1e-2)


def test_integrated_gradients_of_an_encoder_decoder_add_up(encoder_decoder):
    pytest.importorskip("captum", reason="captum is not installed")
    model, text = encoder_decoder.model, "the key to"
    result = integrated_gradients(text, encoder_decoder, baseline="unknown", steps=200)
    ids = torch.tensor([encoder_decoder.tokenizer(text)["input_ids"]])

    def logit(ids):
        with torch.no_grad():
            output = model(input_ids=ids, decoder_input_ids=torch.tensor([[2]]))
        return float(output.logits[0, -1, result.settings["target_index"]])

    difference = logit(ids) - logit(torch.ones_like(ids))
    assert result.columns == tuple(range(ids.shape[1]))
    assert float(result.scores.sum()) == pytest.approx(difference, abs=2e-2)


def test_unknown_baselines_are_refused():
    pytest.importorskip("captum", reason="captum is not installed")
    with refusal(InputError, "baseline is 'noise'", "'zero', 'mean', 'unknown', 'mask' or 'pad'"):
        integrated_gradients("key", make_loaded(), baseline="noise")  # type: ignore[arg-type]
