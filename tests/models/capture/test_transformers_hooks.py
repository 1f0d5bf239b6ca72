"""Hooks in the attention registry: models are restored, and models with several parts work."""

from threading import Thread
from typing import Any

import pytest
import torch
import transformers

from attnflow.errors import AttentionError, InputError
from attnflow.models import capture_attentions, capture_graphs, capture_rollout
from attnflow.models.capture.padded_batch import run_padded
from attnflow.models.capture.transformers_hooks import compute_attention, install_hooks
from tests.models.tiny import BART, CLIP_TEXT, SIZES, TINY, VISION
from tests.refusal import refusal


def implementations(model):
    """The attention implementation of every configuration in the model, in order."""
    return [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]


def clip():
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=CLIP_TEXT, vision_config=VISION, projection_dim=16)
    return transformers.CLIPModel(config).eval()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "llama", "t5", "bart", "vit", "gemma3"])
def test_the_implementation_is_restored_after_an_error(name, implementation):
    model, inputs = TINY[name].make(implementation), TINY[name].inputs()
    before = implementations(model)
    assert set(before) == {implementation}

    def fail(*_):
        assert "attnflow" in implementations(model)
        raise RuntimeError("out of memory")

    layers = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    hook = (layers or list(model.modules()))[-1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        capture_graphs(model, inputs)
    hook.remove()
    assert implementations(model) == before
    [graph], _ = capture_graphs(model, inputs)
    assert implementations(model) == before
    assert graph.n_layers in (2, 6)


def test_parts_with_different_implementations_are_restored():
    model, inputs = TINY["t5"].make(), TINY["t5"].inputs()
    model.encoder.set_attn_implementation("eager")
    before = implementations(model)
    assert set(before) == {"eager", "sdpa"}
    capture_graphs(model, inputs)
    assert implementations(model) == before


def test_each_tower_of_clip_can_be_captured():
    model = clip()
    text, image = TINY["clip-text"].inputs((7,)), TINY["clip-vision"].inputs()
    before = implementations(model)
    [words], _ = capture_attentions(model.text_model, text)
    [patches], _ = capture_attentions(model.vision_model, image)
    assert (words.n_tokens, patches.n_tokens) == (7, 10)
    assert implementations(model) == before


def test_both_towers_of_clip_at_once_are_an_error():
    model = clip()
    before = implementations(model)
    inputs = TINY["clip-text"].inputs((7,)) | TINY["clip-vision"].inputs()
    with refusal(
        AttentionError,
        "CLIPModel",
        "text_model (2 layers, batch 1 of 7 positions)",
        "vision_model (2 layers, batch 1 of 10 positions)",
        "model.vision_model",
    ):
        capture_graphs(model, inputs)
    assert implementations(model) == before


def test_running_one_model_twice_is_an_error():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = TINY["bert"].make()

        def forward(self, **inputs):
            return self.body(**inputs)[0] - self.body(**inputs)[0]

    with refusal(AttentionError, "body ran 2", "Twice", "model.body"):
        capture_graphs(Twice().eval(), TINY["bert"].inputs())


def test_the_shared_layer_of_albert_counts_each_time_it_runs():
    sizes = {**TINY["albert"].sizes, "num_hidden_layers": 5}
    torch.manual_seed(0)
    model = transformers.AlbertModel(transformers.AlbertConfig(**sizes)).eval()
    [attentions], _ = capture_attentions(model, TINY["albert"].inputs())
    assert attentions.n_layers == 5


def test_a_decoder_that_does_not_say_that_it_is_causal():
    torch.manual_seed(0)
    config = transformers.BigBirdPegasusConfig(**BART)
    model = transformers.BigBirdPegasusForCausalLM(config).eval()
    assert not model.model.decoder.layers[0].self_attn.is_causal
    inputs = TINY["bert"].inputs()
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True)
    [attentions], output = capture_attentions(model, inputs)
    assert torch.allclose(output.logits, expected.logits, atol=1e-5)
    for found, weights in zip(attentions.layers, expected.attentions, strict=True):
        assert torch.allclose(torch.as_tensor(found), weights[0], atol=1e-6)
    install_hooks(model)
    layers, output = run_padded(model, inputs)
    assert torch.allclose(output.logits, expected.logits, atol=1e-5)
    assert torch.allclose(layers[0], expected.attentions[0].mean(1), atol=1e-6)


def test_other_threads_can_use_the_model_at_the_same_time():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs()
    expected, _ = capture_rollout(model, inputs)
    results = []
    threads = [
        Thread(target=lambda: results.append(capture_rollout(model, inputs))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for _ in range(5):
        with torch.no_grad():
            model(**inputs)
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for [attribution], _ in results:
        torch.testing.assert_close(attribution.scores, expected[0].scores)
    assert model.config._attn_implementation == "sdpa"


def test_attention_without_an_observer_equals_sdpa():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 5, 4).unbind(0)
    output, weights = compute_attention(torch.nn.Module(), query, key, value, None, is_causal=False)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(output, expected.transpose(1, 2))
    assert weights is None


def test_dropout_in_evaluation_mode_is_an_error():
    query = torch.zeros(1, 1, 2, 4)
    with refusal(InputError, "Module", 0.1):
        compute_attention(torch.nn.Module(), query, query, query, None, dropout=0.1)


@pytest.mark.parametrize("argument", ["cache", "indices", "block_indices"])
def test_keys_selected_without_a_mask_are_an_error(argument):
    query = torch.zeros(1, 1, 2, 4)
    with refusal(AttentionError, "Module", repr(argument)):
        compute_attention(torch.nn.Module(), query, query, query, None, **{argument: object()})  # type: ignore[arg-type]


def test_a_model_that_returns_no_weights_is_an_error():
    model = TINY["deberta-v2"].make("eager")
    forward = model.forward

    def without_weights(**inputs):
        output = forward(**inputs)
        output["attentions"] = None
        return type(output)(last_hidden_state=output[0])

    model.forward = without_weights
    with refusal(AttentionError, "DebertaV2Model", 'attn_implementation="eager"'):
        capture_graphs(model, TINY["deberta-v2"].inputs())


def test_sdpa_outside_the_registry_is_observed():
    sizes: Any = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers")}
    graphs = {}
    for implementation in ("sdpa", "eager"):
        torch.manual_seed(0)
        config = transformers.FalconConfig(**sizes, num_attention_heads=4)
        config._attn_implementation = implementation
        model, inputs = transformers.FalconModel(config).eval(), TINY["bert"].inputs((7, 4))
        graphs[implementation], _ = capture_graphs(model, inputs)
    for one, other in zip(graphs["sdpa"], graphs["eager"], strict=True):
        assert torch.allclose(one.weights, other.weights, atol=1e-5)
    assert [graph.n_tokens for graph in graphs["sdpa"]] == [7, 4]


def test_returned_weights_of_an_encoder_decoder_are_joined(monkeypatch):
    from attnflow.models.capture import transformers_hooks

    model, inputs = TINY["bart"].make("eager"), TINY["bart"].inputs((7, 4))
    expected, _ = capture_graphs(model, inputs)
    monkeypatch.setattr(transformers_hooks, "uses_registry", lambda _: False)
    graphs, output = capture_graphs(model, inputs)
    for graph, other in zip(graphs, expected, strict=True):
        torch.testing.assert_close(graph.weights, other.weights, rtol=0, atol=1e-5)
    assert not [name for name in output if name.endswith("attentions")]


def test_a_model_that_ignores_the_registry_is_run_again_for_its_weights(monkeypatch):
    from attnflow.models.capture import transformers_hooks

    model, inputs = TINY["deberta-v2"].make("eager"), TINY["deberta-v2"].inputs()
    expected, _ = capture_graphs(model, inputs)
    monkeypatch.setattr(transformers_hooks, "uses_registry", lambda _: True)
    graphs, _ = capture_graphs(model, inputs)
    torch.testing.assert_close(graphs[0].weights, expected[0].weights)
