"""Edge weightings: layers computed by hand, then whole models."""

from typing import Any

import pytest
import torch
from torch import nn

from attnflow.arrays import rescale_rows
from attnflow.edges.effective import effective_attention, effective_edges
from attnflow.edges.gradient import gradient_edges
from attnflow.edges.projection import head_projections
from attnflow.edges.registry import EDGES
from attnflow.edges.value import value_edges
from attnflow.errors import AttentionError, InputError, SelectionError
from attnflow.models import capture_attentions, capture_graphs
from attnflow.models.capture.call import DotProductCall
from attnflow.models.capture.forward import run_model
from attnflow.models.capture.merge import merge_edges
from tests.models.tiny import TINY
from tests.refusal import refusal

CLOSE: Any = {"rtol": 0, "atol": 1e-5}
IN_REGISTRY = [name for name in TINY if name not in ("deberta-v2", "gpt-oss")]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layer(nn.Module):
    """An attention module whose output projection is the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.o_proj = nn.Linear(width, width, bias=True)
        with torch.no_grad():
            self.o_proj.weight.copy_(torch.eye(width))


def make_call(weights, values, mask=None):
    """A call with these weights [heads, queries, keys] and values [heads, keys, width]."""
    weights, values = torch.tensor(weights), torch.tensor(values)
    n_heads = len(weights)
    # Queries are unit vectors and keys hold logarithms of weights, which become the scores.
    query = torch.eye(weights.shape[1]).expand(n_heads, -1, -1)
    key = weights.clamp_min(1e-30).log().transpose(-1, -2)
    module = Layer(n_heads * values.shape[-1])
    call = DotProductCall(module, query[None], key[None], values[None], 1.0, mask=mask)
    call.model = module
    torch.testing.assert_close(call.weights()[0], weights)
    return call


def test_value_edges_by_hand():
    # Values of length 3 and 1: weights 1/2, 1/2 become 3/4, 1/4; weights 1/4, 3/4 become 1/2, 1/2.
    call = make_call([[[0.5, 0.5], [0.25, 0.75]]], [[[0.0, 3.0], [1.0, 0.0]]])
    edges = rescale_rows(value_edges(call, heads="mean"))
    torch.testing.assert_close(edges[0], torch.tensor([[0.75, 0.25], [0.5, 0.5]]))


def test_value_edges_add_up_heads_before_taking_the_length():
    # Two heads of width 1, which the projection maps to one direction: key 0 cancels out.
    call = make_call([[[0.5, 0.5]], [[0.5, 0.5]]], [[[1.0], [1.0]], [[-1.0], [1.0]]])
    with torch.no_grad():
        call.module.o_proj.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    edges = rescale_rows(value_edges(call, heads="mean"))
    torch.testing.assert_close(edges[0], torch.tensor([[0.0, 1.0]]))
    largest = value_edges(call, heads="max")
    torch.testing.assert_close(largest[0], torch.tensor([[0.5, 0.5]]))
    second = value_edges(call, heads=1)
    torch.testing.assert_close(second[0], torch.tensor([[0.5, 0.5]]))


def test_effective_attention_by_hand():
    # Three keys, values 1, 1, 0: only the sum of the first two weights matters. The row
    # (.5, .1, .4) projected on (1, 1, 0) is (.3, .3, 0).
    call = make_call([[[0.5, 0.1, 0.4]]], [[[1.0], [1.0], [0.0]]])
    expected = torch.tensor([[[[0.3, 0.3, 0.0]]]])
    torch.testing.assert_close(effective_attention(call), expected, **CLOSE)
    edges = effective_edges(call, heads="mean")
    torch.testing.assert_close(edges[0], torch.tensor([[0.5, 0.5, 0.0]]))


def test_negative_effective_attention_counts_by_its_absolute_value():
    # Values 1, -1: (.75, .25) projected on (1, -1) is (.25, -.25).
    call = make_call([[[0.75, 0.25]]], [[[1.0], [-1.0]]])
    expected = torch.tensor([[[[0.25, -0.25]]]])
    torch.testing.assert_close(effective_attention(call), expected, **CLOSE)
    edges = effective_edges(call, heads="mean")
    torch.testing.assert_close(edges[0], torch.tensor([[0.5, 0.5]]))


def test_edges_are_zero_where_values_are_zero():
    call = make_call([[[0.75, 0.25]]], [[[0.0], [0.0]]])
    assert not effective_edges(call, heads="mean").any()
    assert not value_edges(call, heads="mean").any()


def test_effective_attention_is_zero_for_masked_keys():
    # The first query sees key 0 only. Values 1, 1 would spread its weight over both.
    mask = torch.tensor([[[[True, False], [True, True]]]])
    call = make_call([[[1.0, 0.0], [0.8, 0.2]]], [[[1.0], [1.0]]], mask)
    expected = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
    torch.testing.assert_close(effective_attention(call), expected, **CLOSE)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_effective_attention_gives_the_same_output(name):
    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((20,))
    calls = []

    def observe(call):
        effective = effective_attention(call)
        projections = head_projections(call)
        values = call.for_heads(call.value) @ projections  # [batch, heads, keys, hidden]
        torch.testing.assert_close(effective @ values, call.weights() @ values, **CLOSE)
        # It is the shortest such row: there are 20 keys, and a head has 8 dimensions.
        assert effective.norm() < call.weights().norm()
        calls.append(call)

    run_model(model, inputs, observe)
    assert [call.layer for call in calls] == ["layer 1", "layer 2"]


def test_effective_attention_of_few_tokens_is_attention():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs((6,))
    [effective], _ = capture_graphs(model, inputs, edges="effective")
    [attention], _ = capture_graphs(model, inputs)
    torch.testing.assert_close(effective.attention, attention.attention, rtol=0, atol=1e-4)


@pytest.mark.parametrize("edges", ["effective", "value"])
@pytest.mark.parametrize("name", IN_REGISTRY)
def test_output_projections_are_found_in_every_architecture(name, edges):
    tiny = TINY[name]
    model, lengths = tiny.make("eager"), (12, 9)
    inputs = tiny.inputs(lengths)
    graphs, output = capture_graphs(model, inputs, edges=edges)
    with torch.no_grad():
        torch.testing.assert_close(output[0], model(**inputs)[0], rtol=1e-3, atol=1e-5)
    plain, _ = capture_graphs(model, inputs)
    for graph, other in zip(graphs, plain, strict=True):
        assert graph.settings["edges"] == edges
        assert bool((graph.attention >= 0).all())
        torch.testing.assert_close(
            graph.attention.sum(-1), torch.ones_like(graph.attention[..., 0])
        )
        assert graph.causal == other.causal
        # Mistral's window is smaller than the width of a head, so its attention may be effective.
        if (name, edges) != ("mistral", "effective"):
            assert not torch.allclose(graph.attention, other.attention, atol=1e-3)
        # 0 where attention is 0.
        assert not graph.attention[other.attention == 0].any()


@pytest.mark.parametrize("name", ["bert", "albert", "distilbert", "gpt2", "llama", "modernbert"])
def test_output_projections_are_those_that_models_apply(name):
    """The output of a layer is the sum of the vectors that value edges measure, plus the bias."""
    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((5,))
    computed = []

    def observe(call):
        values = call.for_heads(call.value) @ head_projections(call)
        computed.append((call.weights() @ values).sum(1))

    applied = []
    names = {"bert": "attention.output.dense", "albert": "dense", "distilbert": "out_lin"}
    ending = names.get(name, {"gpt2": "attn.c_proj", "llama": "o_proj"}.get(name, "attn.Wo"))
    hooks = [
        module.register_forward_hook(lambda module, _, output: applied.append((module, output)))
        for path, module in model.named_modules()
        if path.endswith(ending)
    ]
    run_model(model, inputs, observe)
    for hook in hooks:
        hook.remove()
    assert len(computed) == len(applied) == 2
    for sums, (module, output) in zip(computed, applied, strict=True):
        bias = 0 if module.bias is None else module.bias
        torch.testing.assert_close(sums + bias, output, **CLOSE)


def test_gradient_edges_by_hand():
    # Weights (.5, .5), gradients (2, -1): the positive part of the product is (1, 0). In the second
    # row both gradients are negative.
    weights = torch.full((1, 1, 2, 2), 0.5)
    edges = gradient_edges(weights, torch.tensor([[[[2.0, -1.0], [-1.0, -3.0]]]]))
    torch.testing.assert_close(edges[0, 0], torch.tensor([[1.0, 0.0], [0.0, 0.0]]))


def test_merged_edges_keep_empty_rows():
    # Rows (2, 0) and (0, 2) of two heads become (.5, .5); rows that are 0 in both stay 0.
    edges = torch.tensor([[[[2.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]]])
    merged = merge_edges(edges, "mean", "layer 1")
    torch.testing.assert_close(merged[0], torch.tensor([[0.5, 0.5], [0.0, 0.0]]))


def test_gradient_edges_of_one_layer_equal_its_linear_map():
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True).double().eval()
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    inputs = {"query": x, "key": x, "value": x}
    [attentions], _ = capture_attentions(model, inputs)
    weights = attentions.layers[0]
    direction = torch.randn(8, dtype=torch.float64)
    # The output is linear in the weights, so the gradient is what each key adds to the score.
    value = (x[0] @ model.in_proj_weight[16:].T + model.in_proj_bias[16:]).view(4, 2, 4)
    added = torch.einsum("khw,hwo->hko", value, model.out_proj.weight.T.view(2, 4, 8)) @ direction
    positive = (weights * added[:, None]).clamp_min(0).mean(0).detach()
    [graph], _ = capture_graphs(
        model,
        inputs,
        edges="gradient_rescaled",
        target=lambda output: (output[0] @ direction).sum(-1),
    )
    empty = positive.sum(-1) == 0
    expected = positive / positive.sum(-1, keepdim=True).where(~empty[:, None], 1)
    expected = expected + torch.diag(empty.double())
    torch.testing.assert_close(graph.attention[0], expected, rtol=0, atol=1e-12)


def test_rows_without_influence_on_the_prediction_attend_to_themselves():
    model = TINY["bert"].make(model="BertForSequenceClassification")
    inputs = TINY["bert"].inputs((7, 4))
    graphs, output = capture_graphs(model, inputs, edges="gradient_rescaled")
    assert output.logits.shape == (2, 2)
    for graph in graphs:
        n = graph.n_tokens
        # The classifier uses only [CLS] of the last layer.
        torch.testing.assert_close(graph.attention[1, 1:], torch.eye(n)[1:])
        assert float(graph.attention[1, 0, 1:].sum()) > 0
        assert float(graph.attention[0, 1:].triu(2).sum()) > 0
    alone = {name: value[1:, :4] for name, value in inputs.items()}
    [graph], _ = capture_graphs(model, alone, edges="gradient_rescaled")
    torch.testing.assert_close(graphs[1].attention, graph.attention, rtol=0, atol=1e-4)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_default_target_of_a_causal_model_is_the_next_token(side):
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs((7, 4), side)
    last = [6, 3] if side == "right" else [6, 6]
    graphs, _ = capture_graphs(model, inputs, edges="gradient_rescaled")
    explicit, _ = capture_graphs(
        model,
        inputs,
        edges="gradient_rescaled",
        target=lambda output: output.logits[[0, 1], last].max(-1).values,
    )
    for graph, other in zip(graphs, explicit, strict=True):
        assert graph.causal
        torch.testing.assert_close(graph.attention, other.attention)


def test_gradients_do_not_need_trainable_parameters():
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs()
    [expected], _ = capture_graphs(model, inputs, edges="gradient_rescaled")
    model.requires_grad_(False)
    [graph], _ = capture_graphs(model, inputs, edges="gradient_rescaled")
    torch.testing.assert_close(graph.attention, expected.attention)


def test_gradient_edges_of_an_encoder_decoder():
    model = TINY["t5"].make(model="T5ForConditionalGeneration")
    inputs = TINY["t5"].inputs((7, 4))
    graphs, _ = capture_graphs(model, inputs, edges="gradient_rescaled")
    for graph in graphs:
        torch.testing.assert_close(graph.weights.sum(-1), torch.ones_like(graph.weights[..., 0]))
        # The last layer is cross-attention, and only its last position is used.
        n = graph.n_tokens
        torch.testing.assert_close(graph.attention[-1, :-1], torch.eye(n)[:-1])
        assert float(graph.attention[-1, -1, -1]) == 0
        assert graph.uniform().weights.isfinite().all()


def test_gradient_edges_of_returned_weights():
    model = TINY["deberta-v2"].make("eager", model="DebertaV2ForSequenceClassification")
    [graph], output = capture_graphs(model, TINY["deberta-v2"].inputs(), edges="gradient_rescaled")
    torch.testing.assert_close(graph.attention[1, 1:], torch.eye(7)[1:])
    assert float(graph.attention[0].triu(1).sum()) > 0
    assert output.attentions is None


def test_value_edges_need_more_than_returned_weights():
    model = TINY["deberta-v2"].make("eager")
    with refusal(AttentionError, "DebertaV2Model", "edges='attention'"):
        capture_graphs(model, TINY["deberta-v2"].inputs(), edges="value")


def test_an_unknown_output_projection_is_an_error():
    model = TINY["llama"].make()
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.elsewhere = attention.o_proj
        del attention.o_proj
        attention.__dict__["o_proj"] = attention.elsewhere.forward
    with refusal(
        AttentionError, "model.layers.0.self_attn", "LlamaForCausalLM", "4 heads", "width 8"
    ):
        capture_graphs(model, TINY["llama"].inputs(), edges="value")


def test_targets_and_edges_are_checked():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs()
    with refusal(SelectionError, "'saliency'", *EDGES.names):
        capture_graphs(model, inputs, edges="saliency")
    with refusal(InputError, "target", "edges='attention'"):
        capture_graphs(model, inputs, target=lambda output: output[0])
    with refusal(InputError, "BertModel", "logits", "target="):
        capture_graphs(model, inputs, edges="gradient_rescaled")
    with refusal(InputError, "target", "[1, 7, 32]", "[1]"):
        capture_graphs(model, inputs, edges="gradient_rescaled", target=lambda output: output[0])
    with refusal(AttentionError, "BertModel", "target"):
        capture_graphs(model, inputs, edges="gradient_rescaled", target=lambda _: torch.zeros(1))


def test_a_masked_language_model_needs_a_target():
    model = TINY["bert"].make(model="BertForMaskedLM")
    inputs = TINY["bert"].inputs()
    with refusal(InputError, 7, "target="):
        capture_graphs(model, inputs, edges="gradient_rescaled")
    [graph], _ = capture_graphs(
        model,
        inputs,
        edges="gradient_rescaled",
        target=lambda output: output.logits[:, 3].max(-1).values,
    )
    assert graph.n_layers == 2
