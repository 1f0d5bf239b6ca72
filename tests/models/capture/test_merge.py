"""Heads kept beside the graph: the same weights as captured alone, rounded to float16."""

import numpy as np
import pytest
import torch

from attnflow import AttentionGraph, Explanation, InputError, ShapeError, explainer
from attnflow.edges.registry import EDGES
from attnflow.explainer import explain
from attnflow.models.capture.api import capture_attentions, capture_graphs
from attnflow.models.capture.merge import KeptHeads
from attnflow.models.inputs import collate, encode_text
from tests.models.checkpoints import VOCABULARY, make_loaded, make_tokenizer
from tests.refusal import refusal

TEXTS = ["the key to cabinets is here", "the key"]


@pytest.fixture(scope="module")
def classifier():
    return make_loaded()


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "GPT2LMHeadModel"])
def test_kept_heads_equal_captured_heads_without_padding(kind):
    loaded = make_loaded(kind)
    inputs = collate(loaded, [encode_text(loaded, text) for text in TEXTS])
    expected, _ = capture_attentions(loaded.model, inputs)
    for explanation, attentions in zip(explain(TEXTS, loaded), expected, strict=True):
        assert explanation.heads is not None
        assert explanation.heads.tokens == explanation.tokens
        for half, layer in zip(explanation.heads.layers, attentions.layers, strict=True):
            assert half.dtype == np.float16
            assert half.shape == (2, len(explanation.tokens), len(explanation.tokens))
            np.testing.assert_allclose(half, layer, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("edges", EDGES.names)
def test_keeping_heads_does_not_change_the_graph(edges, classifier):
    with_heads = explain(TEXTS[0], classifier, edges=edges, keep_heads=True)
    without = explain(TEXTS[0], classifier, edges=edges, keep_heads=False)
    assert with_heads.heads is not None
    assert without.heads is None
    np.testing.assert_array_equal(with_heads.graph.weights, without.graph.weights)
    assert with_heads.prediction == without.prediction


def test_heads_above_the_limit_are_not_kept(classifier, monkeypatch):
    needed = 2 * 2 * 8 * 8 * 2  # layers, heads, queries, keys, bytes: 8 tokens
    monkeypatch.setattr(explainer, "HEADS_LIMIT", needed)
    assert explain(TEXTS[0], classifier).heads is not None
    monkeypatch.setattr(explainer, "HEADS_LIMIT", needed - 1)
    assert explain(TEXTS[0], classifier).heads is None
    assert explain(TEXTS[0], classifier, keep_heads=True).heads is not None


def test_weights_above_the_limit_are_not_computed(classifier, monkeypatch):
    kept = KeptHeads(limit=0)
    monkeypatch.setattr(torch, "cat", None)  # the last step of storing a layer
    inputs = collate(classifier, [encode_text(classifier, TEXTS[0])])
    capture_graphs(classifier.model, inputs, kept_heads=kept)
    assert kept.examples is None


def test_heads_of_an_encoder_decoder_are_not_kept():
    import transformers

    config = transformers.T5Config(
        vocab_size=len(VOCABULARY), d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.config.decoder_start_token_id = 0
    assert explain("the key", model, tokenizer=make_tokenizer(), keep_heads=True).heads is None


def test_an_invalid_option_is_an_error(classifier):
    with refusal(InputError, "keep_heads", "'yes'", "'auto'"):
        explain("key", classifier, keep_heads="yes")  # type: ignore[call-overload]


def test_an_explanation_from_kept_heads(classifier):
    kept = explain(TEXTS[0], classifier).heads
    assert kept is not None
    explanation = Explanation.from_attentions(kept)
    assert explanation.prediction is None
    assert explanation.position == 0
    assert explanation.special == (True, *[False] * 6, True)
    assert explanation.words.texts == explanation.tokens
    graph = AttentionGraph.from_attentions(kept)
    np.testing.assert_array_equal(explanation.graph.weights, graph.weights)
    with refusal(ShapeError, "special", 1, 8):
        Explanation.from_attentions(kept, special=[True])
    decoder = explain("the key to", make_loaded("GPT2LMHeadModel")).heads
    assert decoder is not None
    assert Explanation.from_attentions(decoder).position == 2
