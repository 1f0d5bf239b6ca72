"""Edges beyond attention: hand-computed layers, then what they mean for whole models."""

from typing import Any

import pytest
import torch
from torch import nn

from attnflow.edges.projection import head_projections
from attnflow.edges.value import effective_attention, merge_edges, value_edges, weigh
from attnflow.errors import AttentionError, InputError
from attnflow.models import capture_attentions, capture_graphs
from attnflow.models.capture.call import DotProduct
from tests.models.tiny import TINY
from tests.refusal import refusal

CLOSE: Any = {"rtol": 0, "atol": 1e-5}
REGISTERED = [name for name in TINY if name not in ("deberta-v2", "gpt-oss")]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layer(nn.Module):
    """An attention module with an output projection that changes nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.o_proj = nn.Linear(width, width, bias=True)
        with torch.no_grad():
            self.o_proj.weight.copy_(torch.eye(width))


def layer_with(weights, values, mask=None):
    """A call with these weights [heads, queries, keys] and values [heads, keys, width]."""
    weights, values = torch.tensor(weights), torch.tensor(values)
    n_heads, _, n_keys = weights.shape
    # Queries are unit vectors, so that scores are the logarithms held by the keys.
    query = torch.eye(weights.shape[1]).expand(n_heads, -1, -1)
    key = weights.clamp_min(1e-30).log().transpose(-1, -2)
    module = Layer(n_heads * values.shape[-1])
    call = DotProduct(module, query[None], key[None], values[None], 1.0, mask=mask)
    torch.testing.assert_close(call.weights()[0], weights)
    assert key.shape[1] == n_keys
    return module, call


def test_value_edges_by_hand():
    # Values of length 3 and 1: weights 1/2, 1/2 become 3/4, 1/4; weights 1/4, 3/4 become 1/2, 1/2.
    model, call = layer_with([[[0.5, 0.5], [0.25, 0.75]]], [[[0.0, 3.0], [1.0, 0.0]]])
    edges = value_edges(model, call, "mean", "layer 1")
    torch.testing.assert_close(edges[0], torch.tensor([[0.75, 0.25], [0.5, 0.5]]))


def test_heads_add_up_before_their_length_is_taken():
    # Two heads of width 1, made one direction by the projection: key 0 is cancelled out.
    model, call = layer_with([[[0.5, 0.5]], [[0.5, 0.5]]], [[[1.0], [1.0]], [[-1.0], [1.0]]])
    with torch.no_grad():
        model.o_proj.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    edges = value_edges(model, call, "mean", "layer 1")
    torch.testing.assert_close(edges[0], torch.tensor([[0.0, 1.0]]))
    each = value_edges(model, call, "max", "layer 1")
    torch.testing.assert_close(each[0], torch.tensor([[0.5, 0.5]]))
    one = value_edges(model, call, 1, "layer 1")
    torch.testing.assert_close(one[0], torch.tensor([[0.5, 0.5]]))


def test_effective_attention_by_hand():
    # Three keys, values 1, 1, 0: only the mean over the first two matters. The row (.5, .1, .4)
    # projected on (1, 1, 0) is (.3, .3, 0).
    model, call = layer_with([[[0.5, 0.1, 0.4]]], [[[1.0], [1.0], [0.0]]])
    expected = torch.tensor([[[[0.3, 0.3, 0.0]]]])
    torch.testing.assert_close(effective_attention(model, call), expected, **CLOSE)
    edges, _ = weigh(model, call, "effective", "mean", "layer 1")
    torch.testing.assert_close(edges[0], torch.tensor([[0.5, 0.5, 0.0]]))


def test_effective_attention_below_zero_counts_by_its_size():
    # Values 1, -1: (.75, .25) projected on (1, -1) is (.25, -.25).
    model, call = layer_with([[[0.75, 0.25]]], [[[1.0], [-1.0]]])
    expected = torch.tensor([[[[0.25, -0.25]]]])
    torch.testing.assert_close(effective_attention(model, call), expected, **CLOSE)
    edges, _ = weigh(model, call, "effective", "mean", "layer 1")
    torch.testing.assert_close(edges[0], torch.tensor([[0.5, 0.5]]))


def test_effective_attention_is_nothing_where_values_are_nothing():
    model, call = layer_with([[[0.75, 0.25]]], [[[0.0], [0.0]]])
    assert not weigh(model, call, "effective", "mean", "layer 1")[0].any()
    assert not weigh(model, call, "value", "mean", "layer 1")[0].any()


def test_effective_attention_stays_among_the_keys_a_query_sees():
    # The first query sees key 0 only. Values 1, 1 would spread its weight over both.
    mask = torch.tensor([[[[True, False], [True, True]]]])
    model, call = layer_with([[[1.0, 0.0], [0.8, 0.2]]], [[[1.0], [1.0]]], mask)
    expected = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
    torch.testing.assert_close(effective_attention(model, call), expected, **CLOSE)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_effective_attention_gives_the_same_output(name):
    from attnflow.models.capture.hooks import run

    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((20,))
    seen = []

    def look(call):
        effective = effective_attention(model, call)
        projections = head_projections(model, call)
        values = call.for_heads(call.value) @ projections  # [batch, heads, keys, hidden]
        torch.testing.assert_close(effective @ values, call.weights() @ values, **CLOSE)
        # It is the smallest row that does: 20 keys, 8 dimensions of a head.
        assert effective.norm() < call.weights().norm()
        seen.append(call)

    run(model, inputs, look)
    assert len(seen) == 2


def test_effective_attention_of_few_tokens_is_attention():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs((6,))
    [effective], _ = capture_graphs(model, inputs, edges="effective")
    [attention], _ = capture_graphs(model, inputs)
    torch.testing.assert_close(effective.attention, attention.attention, rtol=0, atol=1e-4)


@pytest.mark.parametrize("edges", ["effective", "value"])
@pytest.mark.parametrize("name", REGISTERED)
def test_every_registered_model_shows_its_output_projection(name, edges):
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
        # Nothing where there is no attention.
        assert not graph.attention[other.attention == 0].any()


@pytest.mark.parametrize("name", ["bert", "albert", "distilbert", "gpt2", "llama", "modernbert"])
def test_output_projections_are_those_that_models_apply(name):
    """The layer's output is the sum of what value edges measure, and the bias."""
    from attnflow.models.capture.hooks import run

    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((5,))
    found = []

    def look(call):
        values = call.for_heads(call.value) @ head_projections(model, call)
        found.append((call.weights() @ values).sum(1))

    applied = []
    names = {"bert": "attention.output.dense", "albert": "dense", "distilbert": "out_lin"}
    ending = names.get(name, {"gpt2": "attn.c_proj", "llama": "o_proj"}.get(name, "attn.Wo"))
    hooks = [
        module.register_forward_hook(lambda module, _, output: applied.append((module, output)))
        for path, module in model.named_modules()
        if path.endswith(ending)
    ]
    run(model, inputs, look)
    for hook in hooks:
        hook.remove()
    assert len(found) == len(applied) == 2
    for sums, (module, output) in zip(found, applied, strict=True):
        bias = 0 if module.bias is None else module.bias
        torch.testing.assert_close(sums + bias, output, **CLOSE)


def test_gradient_edges_by_hand():
    # Weights (.5, .5), gradients (2, -1): the positive part of the product is (1, 0). The second
    # row gains nothing at all.
    edges = merge_edges(torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]]), "mean", "layer 1")
    torch.testing.assert_close(edges[0], torch.tensor([[1.0, 0.0], [0.0, 0.0]]))


def test_gradient_edges_equal_finite_differences():
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True).double().eval()
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    inputs = {"query": x, "key": x, "value": x}
    [attentions], _ = capture_attentions(model, inputs)
    weights = attentions.layers[0]
    direction = torch.randn(8, dtype=torch.float64)
    # The output is linear in the weights, so its gradient is what each key adds to the score.
    value = (x[0] @ model.in_proj_weight[16:].T + model.in_proj_bias[16:]).view(4, 2, 4)
    added = torch.einsum("khw,hwo->hko", value, model.out_proj.weight.T.view(2, 4, 8)) @ direction
    useful = (weights * added[:, None]).clamp_min(0).mean(0).detach()
    [graph], _ = capture_graphs(
        model, inputs, edges="gradient", target=lambda output: (output[0] @ direction).sum(-1)
    )
    empty = useful.sum(-1) == 0
    expected = useful / useful.sum(-1, keepdim=True).where(~empty[:, None], 1)
    expected = expected + torch.diag(empty.double())
    torch.testing.assert_close(graph.attention[0], expected)


def test_rows_that_the_prediction_does_not_use_attend_to_themselves():
    model = TINY["bert"].make(model="BertForSequenceClassification")
    inputs = TINY["bert"].inputs((7, 4))
    graphs, output = capture_graphs(model, inputs, edges="gradient")
    assert output.logits.shape == (2, 2)
    for graph in graphs:
        n = graph.n_tokens
        # The classifier reads [CLS] of the last layer only.
        torch.testing.assert_close(graph.attention[1, 1:], torch.eye(n)[1:])
        assert float(graph.attention[1, 0, 1:].sum()) > 0
        assert float(graph.attention[0, 1:].triu(2).sum()) > 0
    alone = {name: value[1:, :4] for name, value in inputs.items()}
    [graph], _ = capture_graphs(model, alone, edges="gradient")
    torch.testing.assert_close(graphs[1].attention, graph.attention, rtol=0, atol=1e-4)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_causal_model_explains_its_next_token(side):
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs((7, 4), side)
    last = [6, 3] if side == "right" else [6, 6]
    graphs, _ = capture_graphs(model, inputs, edges="gradient")
    chosen, _ = capture_graphs(
        model,
        inputs,
        edges="gradient",
        target=lambda output: output.logits[[0, 1], last].max(-1).values,
    )
    for graph, other in zip(graphs, chosen, strict=True):
        assert graph.causal
        torch.testing.assert_close(graph.attention, other.attention)


def test_gradients_do_not_need_trainable_parameters():
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs()
    [expected], _ = capture_graphs(model, inputs, edges="gradient")
    model.requires_grad_(False)
    [graph], _ = capture_graphs(model, inputs, edges="gradient")
    torch.testing.assert_close(graph.attention, expected.attention)


def test_gradient_edges_of_an_encoder_decoder():
    model = TINY["t5"].make(model="T5ForConditionalGeneration")
    inputs = TINY["t5"].inputs((7, 4))
    graphs, _ = capture_graphs(model, inputs, edges="gradient")
    for graph in graphs:
        torch.testing.assert_close(graph.weights.sum(-1), torch.ones_like(graph.weights[..., 0]))
        # In the last layer, cross-attention, only the last position is read.
        n = graph.n_tokens
        torch.testing.assert_close(graph.attention[-1, :-1], torch.eye(n)[:-1])
        assert float(graph.attention[-1, -1, -1]) == 0
        assert graph.uniform().weights.isfinite().all()


def test_gradient_edges_through_returned_weights():
    model = TINY["deberta-v2"].make("eager", model="DebertaV2ForSequenceClassification")
    [graph], output = capture_graphs(model, TINY["deberta-v2"].inputs(), edges="gradient")
    torch.testing.assert_close(graph.attention[1, 1:], torch.eye(7)[1:])
    assert float(graph.attention[0].triu(1).sum()) > 0
    assert output.attentions is None


def test_values_of_a_model_that_only_returns_weights_are_refused():
    model = TINY["deberta-v2"].make("eager")
    with refusal(AttentionError, "DebertaV2Model", "not its values", "edges='attention'"):
        capture_graphs(model, TINY["deberta-v2"].inputs(), edges="value")


def test_an_unknown_output_projection_is_named():
    model = TINY["llama"].make()
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.elsewhere = attention.o_proj
        del attention.o_proj
        attention.__dict__["o_proj"] = attention.elsewhere.forward
    with refusal(
        AttentionError,
        "no output projection was found for model.layers.0.self_attn of LlamaForCausalLM",
        "4 heads of 8",
    ):
        capture_graphs(model, TINY["llama"].inputs(), edges="value")


def test_targets_and_edges_are_checked():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs()
    with refusal(InputError, "edges is 'saliency'", "'gradient', 'value'"):
        capture_graphs(model, inputs, edges="saliency")  # type: ignore[arg-type]
    with refusal(InputError, "target was given with edges='attention'"):
        capture_graphs(model, inputs, target=lambda output: output[0])
    with refusal(InputError, "BertModel returned no logits", "Give target="):
        capture_graphs(model, inputs, edges="gradient")
    with refusal(InputError, "target returned [1, 7, 32]", "expected one score for each of 1"):
        capture_graphs(model, inputs, edges="gradient", target=lambda output: output[0])
    with refusal(AttentionError, "the score does not depend on the attention of BertModel"):
        capture_graphs(model, inputs, edges="gradient", target=lambda _: torch.zeros(1))


def test_a_masked_language_model_is_asked_which_position_is_meant():
    model = TINY["bert"].make(model="BertForMaskedLM")
    inputs = TINY["bert"].inputs()
    with refusal(InputError, "logits for each of 7 positions", "output.logits[:, 3]"):
        capture_graphs(model, inputs, edges="gradient")
    [graph], _ = capture_graphs(
        model, inputs, edges="gradient", target=lambda output: output.logits[:, 3].max(-1).values
    )
    assert graph.n_layers == 2
