"""The verb-number model: masks, pooling, batches and captured attention."""

import numpy as np
import pytest
import torch

from attnflow.models.builtin.verb_number import (
    SPECIAL,
    TAGS,
    VerbNumberConfig,
    VerbNumberModel,
    make_tokenizer,
)
from attnflow.models.capture.api import capture_attentions
from attnflow.models.loading import load_model

N_WORDS = 12
IDS = torch.tensor([[2, 3, 4, 5, 6, 7], [2, 8, 9, 10, 11, 3]])


def make(*, causal=False):
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 8, "initializer_range": 0.5}
    config = VerbNumberConfig(vocab_size=N_WORDS, is_decoder=causal, **sizes)
    return VerbNumberModel(config).eval()


def last_layer(model, ids):
    with torch.no_grad():
        return model(ids, output_hidden_states=True).hidden_states[-1]


def test_sizes_of_the_paper():
    config = VerbNumberConfig(vocab_size=N_WORDS)
    assert (config.num_hidden_layers, config.num_attention_heads) == (6, 8)
    assert config.hidden_size == 128
    assert config.id2label == {0: "singular", 1: "plural"}
    assert config.label2id == {"singular": 0, "plural": 1}
    assert not config.is_decoder


@pytest.mark.parametrize("causal", [False, True])
def test_shapes(causal):
    output = make(causal=causal)(IDS, labels=torch.tensor([0, 1]), output_hidden_states=True)
    assert output.logits.shape == (2, 2)
    assert [layer.shape for layer in output.hidden_states] == [(2, 6, 8)] * 3
    expected = torch.nn.functional.cross_entropy(output.logits, torch.tensor([0, 1]))
    assert torch.equal(output.loss, expected)


def test_earlier_positions_see_later_tokens():
    swapped = IDS.clone()
    swapped[:, [4, 5]] = swapped[:, [5, 4]]
    model = make()
    assert (last_layer(model, IDS) - last_layer(model, swapped))[:, :4].abs().min(-1)[0].min() > 0


def test_the_twin_sees_only_earlier_tokens():
    swapped = IDS.clone()
    swapped[:, [4, 5]] = swapped[:, [5, 4]]
    before, after = (last_layer(make(causal=True), ids) for ids in (IDS, swapped))
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert (before - after)[:, 4:].abs().max() > 0.01


def test_the_classifier_reads_cls_or_the_last_token():
    model, twin = make(), make(causal=True)
    torch.testing.assert_close(model(IDS).logits, model.score(last_layer(model, IDS)[:, 0]))
    torch.testing.assert_close(twin(IDS).logits, twin.score(last_layer(twin, IDS)[:, 5]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_batch_equals_single_texts(causal, masked):
    model = make(causal=causal)
    padded = IDS.clone()
    padded[1, 4:] = 0
    mask = (padded != 0).long() if masked else None  # without a mask, padding is found by its id
    together = model(padded, attention_mask=mask).logits
    alone = torch.cat([model(IDS[:1]).logits, model(IDS[1:, :4]).logits])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("causal", [False, True])
def test_embeddings_replace_ids(causal):
    model = make(causal=causal)
    embeddings = model.get_input_embeddings()(IDS)
    torch.testing.assert_close(model(inputs_embeds=embeddings).logits, model(IDS).logits)


@pytest.mark.parametrize("causal", [False, True])
def test_captured_attention_is_that_of_eager_attention(causal):
    model = make(causal=causal)
    padded = IDS.clone()
    padded[1, 4:] = 0
    inputs = {"input_ids": padded, "attention_mask": (padded != 0).long()}
    captured, output = capture_attentions(model, inputs)
    assert model(**inputs, output_attentions=True).attentions is None  # SDPA has no weights
    model.set_attn_implementation("eager")
    eager = model(**inputs, output_attentions=True)
    torch.testing.assert_close(output.logits, eager.logits)
    for example, n in enumerate((6, 4)):
        layers = captured[example].layers
        assert len(layers) == 2
        for found, weights in zip(layers, eager.attentions, strict=True):
            expected = weights[example, :, :n, :n].detach().numpy()
            np.testing.assert_allclose(found, expected, atol=1e-6)
            later = np.triu(np.ones((n, n), dtype=bool), 1)
            assert (np.asarray(found)[:, later] == 0).all() == causal


def test_a_model_object_is_loaded_as_a_classifier():
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *TAGS])}
    for causal in (False, True):
        tokenizer = make_tokenizer(vocabulary, max_length=64, causal=causal)
        loaded = load_model(make(causal=causal), tokenizer)
        assert (loaded.task, loaded.max_length) == ("classifier", 64)
        assert loaded.is_causal is causal
        assert loaded.supports_batches
