import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnflow import AttentionGraph, Attentions, rollout
from attnflow.errors import InputError, SelectionError
from attnflow.methods.rollout import multiply_layers
from tests.refusal import refusal
from tests.weights import TWO_LAYERS, TWO_LAYERS_ROLLOUT, random_attention, stochastic


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_two_tokens_and_two_layers(convert):
    graph = AttentionGraph.from_weights(convert(TWO_LAYERS), tokens=["a", "b"])
    result = rollout(graph)
    # At layer 1 the rollout is A1 itself.
    np.testing.assert_array_equal(result.to_numpy()[0], [[0.75, 0.25], [0.0, 1.0]])
    np.testing.assert_array_equal(result.to_numpy()[1], TWO_LAYERS_ROLLOUT)
    assert result.layers == (1, 2)
    assert result.settings == {"residual_weight": 0.5, "to_layer": 0, "normalize": "none"}


def test_the_residual_weight_of_each_layer_counts():
    graph = AttentionGraph.from_weights(TWO_LAYERS, residual_weight=[0.5, 0.25])
    # A2 = 0.75 * swap + 0.25 * I = [[0.25, 0.75], [0.75, 0.25]];
    # row 0: 0.25 * [0.75, 0.25] + 0.75 * [0, 1]; row 1: 0.75 * [0.75, 0.25] + 0.25 * [0, 1].
    expected = [[0.1875, 0.8125], [0.5625, 0.4375]]
    np.testing.assert_array_equal(rollout(graph, layers=2).scores[0], expected)


def test_from_one_layer_down_to_another():
    weights = random_attention(4, 3, 3)
    graph = AttentionGraph.from_weights(weights)
    a = graph.weights
    result = rollout(graph, to_layer=1)
    assert result.layers == (2, 3, 4)
    np.testing.assert_allclose(result.scores[0], a[1])
    np.testing.assert_allclose(result.scores[2], a[3] @ a[2] @ a[1])
    np.testing.assert_allclose(rollout(graph, layers=4, to_layer=3).scores[0], a[3])


@given(stochastic((1, 4)), st.floats(0, 1))
def test_rows_sum_to_one(weights, residual_weight):
    graph = AttentionGraph.from_weights(weights, residual_weight=residual_weight)
    np.testing.assert_allclose(rollout(graph).scores.sum(-1), 1, atol=1e-12)


@given(stochastic((1, 4)))
def test_a_residual_weight_of_one_gives_the_identity(weights):
    scores = rollout(AttentionGraph.from_weights(weights, residual_weight=1)).scores
    np.testing.assert_array_equal(scores, np.broadcast_to(np.eye(weights.shape[-1]), scores.shape))


@given(stochastic((1, 4), n=(2, 5)), st.randoms(use_true_random=False))
def test_permuting_tokens_permutes_scores(weights, random):
    order = list(range(weights.shape[-1]))
    random.shuffle(order)
    scores = rollout(AttentionGraph.from_weights(weights)).scores
    permuted = rollout(AttentionGraph.from_weights(weights[:, order][:, :, order])).scores
    np.testing.assert_allclose(permuted, scores[:, order][:, :, order], atol=1e-12)


@given(stochastic((1, 4), n=(2, 6)), st.data())
def test_chosen_layers_and_positions_equal_the_whole(weights, data):
    n_layers, n = weights.shape[:2]
    layers = data.draw(st.lists(st.integers(1, n_layers), min_size=1, unique=True))
    positions = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
    graph = AttentionGraph.from_weights(weights)
    whole = rollout(graph).scores
    chosen = rollout(graph, layers=layers, positions=positions)
    expected = whole[[layer - 1 for layer in layers]][:, positions]
    np.testing.assert_allclose(chosen.scores, expected, atol=1e-12)
    assert chosen.layers == tuple(layers)
    assert chosen.positions == tuple(positions)


@given(stochastic((1, 3), (1, 4)))
def test_batched_equals_one_by_one(weights):
    graph = AttentionGraph.from_weights(weights)
    for positions in (None, 0):
        batched = rollout(graph, positions=positions)
        for i in range(len(weights)):
            alone = rollout(graph.example(i), positions=positions)
            np.testing.assert_allclose(batched.example(i).scores, alone.scores, atol=1e-12)


@given(stochastic((1, 4)), st.sampled_from(["none", "rows", "receptive_field"]))
def test_torch_equals_numpy(weights, normalize):
    ours = rollout(AttentionGraph.from_weights(weights), normalize=normalize)
    graph = AttentionGraph.from_weights(torch.as_tensor(weights))
    theirs = rollout(graph, normalize=normalize)
    np.testing.assert_allclose(theirs.scores.numpy(), ours.scores, atol=1e-12)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("positions", [None, [1]])
@pytest.mark.parametrize("normalize", ["none", "receptive_field"])
def test_float32_stays_float32(kind, positions, normalize):
    weights = random_attention(3, 2, 4, 4).astype(np.float32)
    attentions = Attentions(weights if kind == "numpy" else torch.as_tensor(weights))
    graph = AttentionGraph.from_attentions(attentions)
    scores = rollout(graph, positions=positions, normalize=normalize).scores
    assert str(scores.dtype).removeprefix("torch.") == "float32"


def test_rows_are_pushed_down_only_where_that_is_cheaper():
    """Both ways give the same numbers; the cost decides, which this pins for one position."""
    weights = random_attention(6, 5, 5)
    products = []

    class Counting(np.ndarray):
        def __matmul__(self, other):
            products.append(self.shape[-2])
            return np.ndarray.__matmul__(self.view(np.ndarray), np.asarray(other)).view(Counting)

    counted = weights.view(Counting)
    multiply_layers(list(counted), [6], [2])
    assert products == [1] * 5  # one row times a matrix, five times
    products.clear()
    multiply_layers(list(counted), [1, 2, 3, 4, 5, 6], range(5))
    assert products == [5] * 5  # five products of whole matrices


def test_layers_must_lie_above_to_layer():
    graph = AttentionGraph.from_weights(TWO_LAYERS)
    with refusal(SelectionError, "1", "to_layer"):
        rollout(graph, layers=1, to_layer=1)
    with refusal(SelectionError, "layer"):
        rollout(graph, to_layer=2)
    with refusal(SelectionError, "3"):
        rollout(graph, to_layer=3)


def test_attentions_are_no_graph():
    with refusal(InputError, "AttentionGraph"):
        rollout(Attentions(TWO_LAYERS))  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_scores_stay_on_the_gpu():
    attention = torch.as_tensor(random_attention(3, 2, 5, 5), dtype=torch.float32)
    graph = AttentionGraph.from_attentions(Attentions(attention.cuda()))
    result = rollout(graph, normalize="receptive_field")
    assert result.scores.device.type == "cuda"
    expected = rollout(
        AttentionGraph.from_attentions(Attentions(attention)), normalize="receptive_field"
    )
    np.testing.assert_allclose(result.to_numpy(), expected.to_numpy(), atol=1e-5)
