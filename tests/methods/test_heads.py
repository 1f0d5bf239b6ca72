"""Single heads (appendix A.1). The tests of head_flow need Numba."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnflow import AttentionGraph, Attentions, head_flow, head_rollout, rollout
from attnflow.errors import InputError, SelectionError
from tests.refusal import refusal
from tests.weights import random_attention, stochastic

IDENTITY, SWAP = np.eye(2), np.eye(2)[::-1]
# Below, both heads together are 0.5 everywhere: A1 = [[0.75, 0.25], [0.25, 0.75]].
# On top, the heads are A(2, 0) = I and A(2, 1) = [[0.5, 0.5], [0.5, 0.5]].
TWO_HEADS = Attentions([[IDENTITY, SWAP], [IDENTITY, SWAP]], tokens=["a", "b"])


def test_each_head_stands_on_the_averaged_layers_below():
    result = head_rollout(TWO_HEADS, layer=2)
    assert result.scores.shape == (2, 1, 2, 2)
    # Head 0 leaves A1 as it is; head 1 averages its rows.
    np.testing.assert_array_equal(result.scores[0, 0], [[0.75, 0.25], [0.25, 0.75]])
    np.testing.assert_array_equal(result.scores[1, 0], [[0.5, 0.5], [0.5, 0.5]])
    assert result.layers == (2,)
    assert result.method == "head_rollout"
    assert result.settings["head"] == [0, 1]


def test_one_head_has_no_axis_of_heads():
    result = head_rollout(TWO_HEADS, layer=-1, head=0, positions="b")
    assert result.scores.tolist() == [[[0.25, 0.75]]]
    assert result.settings["head"] == 0


@given(stochastic((1, 4), (1, 3)), st.booleans(), st.data())
def test_the_mean_over_heads_is_the_rollout(attention, one_position, data):
    n_layers, n = len(attention), attention.shape[-1]
    layer = data.draw(st.integers(1, n_layers))
    positions = [data.draw(st.integers(0, n - 1))] if one_position else None
    attentions = Attentions(attention)
    heads = head_rollout(attentions, layer=layer, positions=positions)
    whole = rollout(AttentionGraph.from_attentions(attentions), layers=layer, positions=positions)
    np.testing.assert_allclose(heads.scores.mean(0), whole.scores, atol=1e-12)
    np.testing.assert_allclose(heads.scores.sum(-1), 1, atol=1e-12)


@pytest.mark.parametrize("normalize", ["none", "rows", "receptive_field"])
def test_all_heads_equal_one_by_one_and_torch_equals_numpy(normalize):
    attention = random_attention(3, 4, 5, 5)
    whole = head_rollout(Attentions(attention), layer=3, normalize=normalize)
    tensors = head_rollout(Attentions(torch.as_tensor(attention)), layer=3, normalize=normalize)
    np.testing.assert_allclose(tensors.scores.numpy(), whole.scores)
    for head in range(4):
        alone = head_rollout(Attentions(attention), layer=3, head=head, normalize=normalize)
        np.testing.assert_allclose(alone.scores, whole.scores[head])


def test_a_head_or_layer_that_does_not_exist_is_refused():
    with refusal(SelectionError, "2 (attentions[1])", "2", "0", "1"):
        head_rollout(TWO_HEADS, layer=2, head=2)
    with refusal(SelectionError, "3"):
        head_rollout(TWO_HEADS, layer=3)
    with refusal(InputError, "ndarray", "Attentions"):
        head_rollout(IDENTITY, layer=1)  # type: ignore[arg-type]


def test_flow_of_each_head_at_two_layers_is_a_sum_of_minima():
    result = head_flow(TWO_HEADS, layer=2)
    # Head 0, from a: to a min(1, 0.75), to b min(1, 0.25).
    np.testing.assert_allclose(result.scores[0, 0], [[0.75, 0.25], [0.25, 0.75]])
    # Head 1, from a to a: min(0.5, 0.75) + min(0.5, 0.25); the same for every pair.
    np.testing.assert_allclose(result.scores[1, 0], np.full((2, 2), 0.75))
    assert result.method == "head_flow"
    assert result.layers == (2,)
    alone = head_flow(TWO_HEADS, layer=2, head=1, positions="a")
    np.testing.assert_allclose(alone.scores, [[[0.75, 0.75]]])


def test_flow_of_heads_is_at_least_their_rollout_and_can_be_scaled():
    attentions = Attentions(random_attention(3, 2, 4, 4))
    flows = head_flow(attentions, layer=3)
    assert (flows.scores >= head_rollout(attentions, layer=3).scores - 1e-12).all()
    for normalize in ("rows", "receptive_field"):
        scaled = head_flow(attentions, layer=3, normalize=normalize)
        np.testing.assert_allclose(scaled.scores.sum(-1), 1)
