"""The arithmetic of rollout: layers with and without residual connection, NumPy and torch."""

import numpy as np
import pytest
import torch

from attnflow.layers import mix_residual
from attnflow.methods.rollout import add_layer, multiply_layers, multiply_rows
from tests.weights import random_attention

# One example, two tokens: the first layer swaps them, in the second both attend to token 1.
SWAP = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
TO_LAST = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])
RESIDUAL = [0.5, 0.25, 0.0, 0.7]


def test_layers_without_residual_connection_by_hand():
    layers = [SWAP, TO_LAST]
    # A1 = [[.5, .5], [.5, .5]]; A2 = [[.5, .5], [0, 1]]; A2 A1 is .5 everywhere.
    rows = multiply_layers(layers, [1, 2], torch.tensor([[0]]), residual=[0.5, 0.5])
    assert rows.tolist() == [[[[0.5, 0.5]], [[0.5, 0.5]]]]
    # With r = 0.25 for the first layer, A1 = [[.25, .75], [.75, .25]]:
    # row 0 of A2 A1 = .5 * [.25, .75] + .5 * [.75, .25], row 1 = [.75, .25].
    rows = multiply_layers(layers, [2, 1], torch.tensor([[1, 0]]), residual=[0.25, 0.5])
    assert rows.tolist() == [[[[0.75, 0.25], [0.5, 0.5]], [[0.75, 0.25], [0.25, 0.75]]]]
    everything = multiply_layers(layers, [2], residual=[0.25, 0.5])
    assert everything.tolist() == [[[[0.5, 0.5], [0.75, 0.25]]]]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("positions", [None, [2], [4, 0], range(5)])
@pytest.mark.parametrize("numbers", [[4], [3, 1], [1, 2, 3, 4]])
def test_mixing_the_residual_connection_before_or_within_the_product(kind, positions, numbers):
    attention = kind(random_attention(3, 4, 5, 5))  # [batch, layers, n, n]
    mixed = mix_residual(attention, RESIDUAL)
    expected = multiply_layers([mixed[:, i] for i in range(4)], numbers, positions)
    layers = [attention[:, i] for i in range(4)]
    found = multiply_layers(layers, numbers, positions, residual=RESIDUAL)
    assert tuple(found.shape) == (3, len(numbers), 5 if positions is None else len(positions), 5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("numbers", [[4], [2, 4, 1, 3]])
def test_each_example_can_have_its_own_positions(kind, numbers):
    attention = random_attention(3, 4, 5, 5)
    positions = np.asarray([[0, 1], [4, 4], [2, 0]])
    layers = [kind(attention[:, i]) for i in range(4)]
    found = multiply_layers(layers, numbers, kind(positions), residual=RESIDUAL)
    for example, rows in enumerate(positions):
        own = [attention[example, i] for i in range(4)]
        expected = multiply_layers(own, numbers, list(rows), residual=RESIDUAL)
        np.testing.assert_allclose(found[example], expected, rtol=0, atol=1e-12)


def test_layers_added_one_by_one():
    attention = torch.as_tensor(random_attention(4, 2, 5, 5))  # [layers, batch, n, n]
    product = None
    for layer, residual in zip(attention, RESIDUAL, strict=True):
        product = add_layer(product, layer, residual)
    expected = multiply_layers(list(attention), [4], residual=RESIDUAL)[:, 0]
    torch.testing.assert_close(product, expected, rtol=0, atol=1e-12)


def test_cross_attention_reads_from_another_product():
    # Half of the decoder's row comes from the encoder, through attention (1/4, 3/4).
    encoder = np.asarray([[1.0, 0.0], [0.0, 1.0]])
    decoder = np.asarray([[0.0, 0.4]])
    layer = np.asarray([[0.25, 0.75]])
    found = add_layer(encoder, layer, 0.5, carried=decoder)
    np.testing.assert_allclose(found, [[0.125, 0.575]])


@pytest.mark.parametrize("n_rows", [1, 9])
def test_rows_times_layers(n_rows):
    layers = list(random_attention(3, 4, 4))
    rows = random_attention(2, n_rows, 4)
    expected = rows @ layers[2] @ layers[1] @ layers[0]
    np.testing.assert_allclose(multiply_rows(rows, layers), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(multiply_rows(rows, []), rows)
