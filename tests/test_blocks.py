"""Layers of unequal width and encoder-decoders, worked out by hand."""

import numpy as np
import pytest
import torch

from attnflow import AttentionGraph, rollout
from attnflow.errors import AttentionError, InputError, ShapeError
from tests.refusal import refusal
from tests.weights import random_attention

ENCODER = [[[0.5, 0.5], [0.0, 1.0]]]  # one layer over two encoder positions
DECODER = [[[1.0]]]  # one block over one decoder position
CROSS = [[[0.25, 0.75]]]


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_an_encoder_decoder_of_two_and_one_tokens(convert):
    graph = AttentionGraph.encoder_decoder(
        encoder=convert(ENCODER),
        decoder=convert(DECODER),
        cross=convert(CROSS),
        tokens=["a", "b", "x"],
    )
    expected = [
        # The encoder layer is 0.5 W + 0.5 I over a and b, and carries x.
        [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        # Self-attention of x: 0.5 * 1 + 0.5; a and b are carried.
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        # Cross-attention of x: 0.5 * [0.25, 0.75], and 0.5 on x itself.
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.125, 0.375, 0.5]],
    ]
    np.testing.assert_array_equal(np.asarray(graph.weights), expected)
    assert graph.carried is not None
    assert graph.carried.tolist() == [
        [False, False, True],
        [True, True, False],
        [True, True, False],
    ]
    # From x: [0.125, 0.375, 0.5] times the encoder layer,
    # [0.125 * 0.75, 0.125 * 0.25 + 0.375, 0.5].
    scores = rollout(graph, layers=-1, positions="x").to_numpy()
    np.testing.assert_allclose(scores, [[[0.09375, 0.40625, 0.5]]])


def test_carried_positions_have_unlimited_capacity():
    graph = AttentionGraph.encoder_decoder(encoder=ENCODER, decoder=DECODER, cross=CROSS)
    capacities = graph.capacities()
    assert np.argwhere(np.isinf(capacities)).tolist() == [
        [0, 2, 2],
        [1, 0, 0],
        [1, 1, 1],
        [2, 0, 0],
        [2, 1, 1],
    ]
    finite = np.isfinite(capacities)
    np.testing.assert_array_equal(capacities[finite], graph.weights[finite])


def test_raw_attention_of_an_encoder_decoder_has_no_residual_connection():
    graph = AttentionGraph.encoder_decoder(encoder=ENCODER, decoder=DECODER, cross=CROSS)
    assert graph.attention[2].tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.25, 0.75, 0.0]]


def test_uniform_attention_of_an_encoder_decoder_keeps_to_its_blocks():
    causal = [[[1.0, 0.0], [0.9, 0.1]]]
    graph = AttentionGraph.encoder_decoder(
        encoder=ENCODER, decoder=causal, cross=[[[0.3, 0.7], [0.9, 0.1]]], residual_weight=0.0
    )
    uniform = graph.uniform().weights
    half = [0.5, 0.5]
    assert uniform[0].tolist() == [[*half, 0, 0], [*half, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    # The decoder only looks back: its first position sees itself, its second both.
    assert uniform[1].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, *half]]
    assert uniform[2].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [*half, 0, 0], [*half, 0, 0]]


def test_an_encoder_decoder_takes_heads_and_a_residual_weight_for_each_step():
    graph = AttentionGraph.encoder_decoder(
        encoder=random_attention(2, 4, 3, 3),
        decoder=random_attention(1, 4, 2, 2),
        cross=tuple(random_attention(1, 1, 4, 2, 3)),  # Hugging Face, a batch of one
        heads=1,
        residual_weight=[0.1, 0.2, 0.3, 0.4],
    )
    assert graph.n_layers == 4
    assert graph.tokens == ("0", "1", "2", "3", "4")
    np.testing.assert_allclose(graph.weights.sum(-1), 1)
    np.testing.assert_allclose(graph.weights[3, 3, 3], 0.4)
    np.testing.assert_array_equal(np.diagonal(graph.weights[2])[:3], 1)
    assert graph.settings["heads"] == 1


def test_parts_that_do_not_fit_are_refused():
    with refusal(ShapeError, "encoder[0]", "[1, 1]", "[2, 2]"):
        AttentionGraph.encoder_decoder(encoder=DECODER, decoder=DECODER, cross=CROSS)
    with refusal(ShapeError, "2", "1"):
        AttentionGraph.encoder_decoder(encoder=ENCODER, decoder=DECODER * 2, cross=CROSS)


def test_each_part_is_checked():
    with refusal(AttentionError, "cross[0]", "0.5 (head 0", "0)"):
        AttentionGraph.encoder_decoder(encoder=ENCODER, decoder=DECODER, cross=[[[0.25, 0.25]]])
    with refusal(AttentionError, '"eager"'):
        AttentionGraph.encoder_decoder(encoder=ENCODER, decoder=DECODER, cross=None)


def test_layers_of_unequal_width_are_filled_up_with_zeros():
    pool = [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]  # three tokens to two positions
    mix = [[0.0, 1.0], [1.0, 0.0]]
    graph = AttentionGraph.from_layers([pool, mix], tokens=["a", "b", "c"])
    assert graph.widths == (3, 2, 2)
    assert graph.residual_weights == (0.0, 0.5)  # only the square layer has one
    expected = [
        [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]],
        [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]],
    ]
    np.testing.assert_array_equal(graph.weights, expected)
    # Half of each pooled row.
    scores = rollout(graph, layers=2).to_numpy()[0]
    np.testing.assert_array_equal(scores, [[0.25, 0.25, 0.5], [0.25, 0.25, 0.5], [0, 0, 0]])


def test_uniform_attention_of_unequal_layers_stays_in_their_width():
    uniform = AttentionGraph.from_layers([[[0.2, 0.8]], [[1.0]]]).uniform()
    assert uniform.weights.tolist() == [[[0.5, 0.5], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]


def test_positions_beyond_the_input_are_labelled_by_their_index():
    widen = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    assert AttentionGraph.from_layers([widen], tokens=["a", "b"]).tokens == ("a", "b", "2")


def test_layers_that_do_not_fit_are_refused():
    with refusal(ShapeError, "2", "1"):
        AttentionGraph.from_layers([[[0.5, 0.5]], [[0.5, 0.5]]])
    with refusal(ShapeError, "1", "[1, 1, 2]"):
        AttentionGraph.from_layers([[[[0.5, 0.5]]]])
    with refusal(ShapeError, "layers"):
        AttentionGraph.from_layers([])
    with refusal(InputError, "residual_weight", "0.5", "1", "[1, 2]", "0"):
        AttentionGraph.from_layers([[[0.5, 0.5]]], residual_weight=[0.5])
