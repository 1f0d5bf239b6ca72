"""Plain torch models, also where the fast path for inference would skip the hooks."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from attnflow import AttentionGraph, rollout
from attnflow.errors import AttentionError, InputError
from attnflow.models import capture_attentions, capture_graphs, capture_rollout
from tests.refusal import refusal

CLOSE: Any = {"rtol": 0, "atol": 1e-5}


def encoder(*, norm_first=False, batch_first=True, nested=False):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 4, dim_feedforward=32, batch_first=batch_first, norm_first=norm_first
    )
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested).eval()


def with_weights(model, src, padding=None):
    """The weights of each layer of an encoder with layer norm last, layer by layer."""
    attentions = []
    for layer in model.layers:
        _, weights = layer.self_attn(
            src, src, src, key_padding_mask=padding, average_attn_weights=False
        )
        attentions.append(weights)
        src = layer(src, src_key_padding_mask=padding)
    return attentions


def test_a_transformer_encoder_in_evaluation_mode():
    model, src = encoder(), torch.randn(2, 5, 16)
    with torch.inference_mode():
        expected = model(src)
        reference = with_weights(model, src)
    captured, output = capture_attentions(model, {"src": src})
    torch.testing.assert_close(output, expected, **CLOSE)
    assert [attentions.n_layers for attentions in captured] == [3, 3]
    for i, layer in enumerate(reference):
        torch.testing.assert_close(captured[1].layers[i], layer[1], **CLOSE)
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("nested", [True, False])
def test_padding_is_cut_away(nested):
    model, src = encoder(nested=nested), torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    with torch.inference_mode():
        expected = model(src, src_key_padding_mask=padding)
    captured, output = capture_attentions(model, {"src": src, "src_key_padding_mask": padding})
    # Nested tensors leave padding out, and put 0 in its place.
    torch.testing.assert_close(output[~padding], expected[~padding], **CLOSE)
    assert [attentions.n_tokens for attentions in captured] == [5, 3]
    [alone], _ = capture_attentions(model, {"src": src[1:, :3]})
    for layer, expected in zip(captured[1].layers, alone.layers, strict=True):
        torch.testing.assert_close(layer, expected, **CLOSE)


def test_a_causal_mask_and_the_batch_on_the_second_axis():
    model, src = encoder(batch_first=False, norm_first=True), torch.randn(5, 2, 16)
    inputs = {"src": src, "mask": nn.Transformer.generate_square_subsequent_mask(5)}
    with torch.no_grad():
        expected = model(**inputs)
    graphs, output = capture_graphs(model, inputs)
    torch.testing.assert_close(output, expected, **CLOSE)
    assert [graph.causal for graph in graphs] == [True, True]


def test_a_transformer_becomes_one_graph():
    torch.manual_seed(0)
    model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True).eval()
    inputs = {"src": torch.randn(1, 5, 16), "tgt": torch.randn(1, 3, 16)}
    [graph], output = capture_graphs(model, inputs)
    assert (graph.n_layers, graph.n_tokens) == (6, 8)
    torch.testing.assert_close(output, model(**inputs), **CLOSE)
    [attribution], _ = capture_rollout(model, inputs)
    torch.testing.assert_close(attribution.scores, rollout(graph, layers=-1).scores, **CLOSE)


class Block(nn.Module):
    """Self-attention that returns its own weights."""

    def __init__(self, average: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.average = average

    def forward(self, x):
        return self.attention(x, x, x, average_attn_weights=self.average)


@pytest.mark.parametrize("average", [True, False])
def test_weights_are_returned_to_a_model_that_asks_for_them(average):
    torch.manual_seed(0)
    model, x = Block(average).eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        expected = model(x)
    captured, (output, weights) = capture_attentions(model, {"x": x})
    torch.testing.assert_close(output, expected[0], **CLOSE)
    torch.testing.assert_close(weights, expected[1], **CLOSE)
    mean = captured[0].layers[0].mean(0) if average else captured[0].layers[0]
    torch.testing.assert_close(mean, expected[1][0], **CLOSE)


class Handmade(nn.Module):
    """A causal layer that calls scaled_dot_product_attention itself, as in nanoGPT."""

    def forward(self, x):
        return scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.3)


def test_direct_calls_of_scaled_dot_product_attention_are_captured():
    x = torch.randn(1, 2, 4, 8)
    [graph], output = capture_graphs(Handmade().eval(), {"x": x})
    scores = (0.3 * x[0] @ x[0].transpose(-1, -2)).masked_fill(
        ~torch.ones(4, 4, dtype=torch.bool).tril(), -torch.inf
    )
    expected = AttentionGraph.from_weights(scores.softmax(-1).mean(0)[None])
    torch.testing.assert_close(graph.weights, expected.weights, **CLOSE)
    torch.testing.assert_close(output, Handmade()(x))


@pytest.mark.parametrize("edges", ["effective", "value", "alti", "norm", "gradient_rescaled"])
def test_other_edges_of_a_transformer_encoder(edges):
    model, src = encoder(), torch.randn(1, 5, 16)
    target = (lambda output: output[:, 0].sum(-1)) if edges == "gradient_rescaled" else None
    [graph], _ = capture_graphs(model, {"src": src}, edges=edges, target=target)
    sums = graph.attention.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_value_edges_need_the_attention_module():
    x = torch.randn(1, 2, 4, 8)
    with refusal(AttentionError, "Handmade", "output projection", "edges='attention'"):
        capture_graphs(Handmade().eval(), {"x": x}, edges="value")


def test_an_input_without_a_batch_axis_is_an_error():
    with refusal(InputError, "[4, 8]", "[batch, heads, queries, width]"):
        capture_graphs(Handmade().eval(), {"x": torch.randn(4, 8)})


class AlwaysDropout(nn.Module):
    """Attention that forgets to turn dropout off in evaluation mode."""

    def forward(self, x):
        return scaled_dot_product_attention(x, x, x, dropout_p=0.1)


def test_dropout_in_evaluation_mode_is_an_error():
    with refusal(InputError, 0.1, "dropout_p"):
        capture_graphs(AlwaysDropout(), {"x": torch.randn(1, 2, 4, 8)})


def test_hooks_are_removed_after_an_error():
    model = encoder()
    model.layers[1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        capture_graphs(model, {"src": torch.randn(1, 5, 16)})
    assert not any(
        module._forward_pre_hooks
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention)
    )
    assert torch.nn.functional.scaled_dot_product_attention is scaled_dot_product_attention
