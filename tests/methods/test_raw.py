import numpy as np
import pytest
import torch

from attnflow import AttentionGraph, raw_attention
from attnflow.errors import InputError, SelectionError
from tests.refusal import refusal
from tests.weights import TWO_LAYERS, random_attention


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_the_weights_of_a_layer_come_without_residual_connection(convert):
    graph = AttentionGraph.from_weights(convert(TWO_LAYERS), tokens=["a", "b"])
    result = raw_attention(graph)
    np.testing.assert_array_equal(result.to_numpy(), TWO_LAYERS)
    assert type(result.scores) is type(graph.weights)
    assert result.method == "raw"
    assert result.layers == (1, 2)
    assert result.positions == (0, 1)
    assert result.tokens == ("a", "b")


def test_chosen_layers_and_positions():
    weights = random_attention(2, 3, 4, 4)
    result = raw_attention(AttentionGraph.from_weights(weights), layers=[-1, 1], positions=[3, 0])
    np.testing.assert_allclose(result.scores, weights[:, [2, 0]][:, :, [3, 0]])
    assert result.layers == (3, 1)
    assert result.positions == (3, 0)


def test_a_layer_that_does_not_exist_is_refused():
    with refusal(SelectionError, "3"):
        raw_attention(AttentionGraph.from_weights(TWO_LAYERS), layers=3)


def test_what_is_no_graph_is_refused():
    with refusal(InputError, "AttentionGraph", "from_attentions(att"):
        raw_attention(TWO_LAYERS)  # type: ignore[arg-type]
