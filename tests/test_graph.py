import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnflow import AttentionGraph, Attentions
from attnflow.errors import AttentionError, InputError, SelectionError, ShapeError
from tests.refusal import refusal
from tests.weights import TWO_LAYERS, random_attention, stochastic

CAUSAL = np.asarray([[[1.0, 0.0], [0.5, 0.5]]])


def test_heads_are_averaged_and_the_residual_connection_added():
    identity, swap = np.eye(2), np.eye(2)[::-1]
    graph = AttentionGraph.from_attentions(
        Attentions([[identity, swap]], tokens=["a", "b"]), residual_weight=0.2
    )
    # W is 0.5 everywhere; A = 0.8 * 0.5 + 0.2 * I.
    np.testing.assert_allclose(graph.attention, [[[0.5, 0.5], [0.5, 0.5]]])
    np.testing.assert_allclose(graph.weights, [[[0.6, 0.4], [0.4, 0.6]]])
    assert graph.tokens == ("a", "b")
    assert graph.residual_weights == (0.2,)
    assert graph.settings == {"heads": "mean", "residual_weight": 0.2}
    assert graph.widths == (2, 2)


def test_each_layer_may_have_its_own_residual_weight():
    graph = AttentionGraph.from_weights(TWO_LAYERS, residual_weight=[0.0, 1.0])
    np.testing.assert_array_equal(graph.weights, [TWO_LAYERS[0], np.eye(2)])
    assert graph.settings["residual_weight"] == [0.0, 1.0]


@given(stochastic((1, 3), (1, 3)), st.floats(0, 1))
def test_rows_sum_to_one(attention, residual_weight):
    for heads in ("mean", "max"):
        graph = AttentionGraph.from_attentions(
            Attentions(attention), heads=heads, residual_weight=residual_weight
        )
        np.testing.assert_allclose(graph.weights.sum(-1), 1, atol=1e-12)


@given(stochastic((1, 3), (1, 3)))
def test_torch_equals_numpy(attention):
    ours = AttentionGraph.from_attentions(Attentions(attention))
    theirs = AttentionGraph.from_attentions(Attentions(torch.as_tensor(attention)))
    np.testing.assert_allclose(theirs.weights.numpy(), ours.weights, atol=1e-15)
    assert theirs.causal == ours.causal


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_half_precision_becomes_float32_and_the_rest_stays(dtype, expected):
    attention = torch.as_tensor(random_attention(2, 2, 3, 3)).to(dtype)
    for graph in (
        AttentionGraph.from_attentions(Attentions(attention)),
        AttentionGraph.from_weights(attention[:, 0]),
        AttentionGraph.from_layers(list(attention[:, 0])),
        AttentionGraph.encoder_decoder(encoder=attention, decoder=attention, cross=attention),
    ):
        assert graph.weights.dtype == expected
        assert graph.uniform().weights.dtype == expected


def test_weights_come_stacked_or_in_a_list():
    stacked = AttentionGraph.from_weights(TWO_LAYERS)
    listed = AttentionGraph.from_weights([torch.as_tensor(layer) for layer in TWO_LAYERS])
    np.testing.assert_array_equal(listed.weights.numpy(), stacked.weights)


def test_a_model_that_only_looks_back_is_causal():
    assert AttentionGraph.from_weights(CAUSAL).causal
    assert not AttentionGraph.from_weights(TWO_LAYERS).causal
    assert not AttentionGraph.from_weights(np.ones((1, 1, 1))).causal
    assert not AttentionGraph.from_weights(CAUSAL, causal=False).causal


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("forward", [1, 2, 3])
def test_one_layer_that_looks_forward_is_enough(kind, forward):
    weights = np.repeat(CAUSAL[:1], 4, axis=0)
    assert AttentionGraph.from_weights(kind(weights)).causal
    weights[forward] = weights[forward, ::-1, ::-1]
    assert not AttentionGraph.from_weights(kind(weights)).causal


def test_told_to_be_causal_and_looking_forward_is_refused():
    weights = np.concatenate([CAUSAL, CAUSAL[:, ::-1, ::-1]])
    with refusal(AttentionError, "2", "(query 0", "1)"):
        AttentionGraph.from_weights(weights, causal=True)


def test_what_is_no_attentions_is_refused():
    with refusal(InputError, "Attentions("):
        AttentionGraph.from_attentions(TWO_LAYERS)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(2, 2), (1, 2, 3), (0, 2, 2)])
def test_weights_of_the_wrong_shape_are_refused(shape):
    with refusal(ShapeError, "[..., layers, queries, keys]", "from_layers"):
        AttentionGraph.from_weights(np.ones(shape))


def test_listed_weights_must_be_of_one_shape_and_kind():
    with refusal(ShapeError, "weights[1]", "[1, 1]", "weights[0] [2, 2]", "from_layers"):
        AttentionGraph.from_weights([np.eye(2), np.eye(1)])
    with refusal(InputError, "weights[1]", "weights[0]"):
        AttentionGraph.from_weights([np.eye(2), torch.eye(2)])


def test_rows_of_weights_are_checked():
    with refusal(AttentionError, "1", "2 (example 1", "0)"):
        AttentionGraph.from_weights([[[[1.0]]], [[[2.0]]]])


def test_one_example_of_a_batch():
    weights = random_attention(3, 2, 4, 4)
    batch = AttentionGraph.from_weights(weights)
    assert repr(batch) == "AttentionGraph(3 x 2 layers, 4 tokens)"
    single = AttentionGraph.from_weights(weights[1])
    np.testing.assert_array_equal(batch.example(1).weights, single.weights)
    np.testing.assert_array_equal(batch.example(-2).attention, single.attention)
    with refusal(SelectionError, "3"):
        batch.example(3)
    with refusal(ShapeError, "example is 0"):
        single.example(0)


def test_capacities_are_the_weights_in_float64():
    graph = AttentionGraph.from_weights(torch.as_tensor(TWO_LAYERS, dtype=torch.float32))
    capacities = graph.capacities()
    assert capacities.dtype == np.float64
    np.testing.assert_array_equal(capacities, graph.weights.numpy())
    capacities[:] = 0  # a copy: the graph is not changed
    assert float(graph.weights.sum()) == 4


def test_capacities_of_a_batch_are_refused():
    with refusal(ShapeError, "[1, 2, 2, 2]", "graph.example(i)"):
        AttentionGraph.from_weights(TWO_LAYERS[None]).capacities()


def test_uniform_attention_covers_all_positions():
    uniform = AttentionGraph.from_weights(TWO_LAYERS).uniform()
    np.testing.assert_array_equal(uniform.attention, np.full((2, 2, 2), 0.5))
    # 0.5 * 0.5 + 0.5 on the diagonal.
    np.testing.assert_array_equal(uniform.weights[0], [[0.75, 0.25], [0.25, 0.75]])


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_uniform_attention_of_a_causal_model_covers_earlier_positions(convert):
    graph = AttentionGraph.from_weights(convert(np.eye(3)[None]), residual_weight=0.0)
    expected = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(np.asarray(graph.uniform().weights), [expected])


def test_a_batch_has_one_uniform_counterpart():
    batch = AttentionGraph.from_weights(random_attention(3, 2, 4, 4))
    assert batch.uniform().weights.shape == (2, 4, 4)
