"""Joint flow as a method: by hand, against flow and rollout, words, options and settings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from attnflow.attribution import Attribution
from attnflow.errors import InputError, SelectionError, ShapeError
from attnflow.graph import AttentionGraph
from attnflow.methods.flow import flow, group_flow
from attnflow.methods.joint_flow import joint_flow
from attnflow.methods.registry import METHODS, default_methods
from attnflow.methods.rollout import rollout
from attnflow.units import Units
from tests.refusal import refusal
from tests.weights import TWO_LAYERS, random_attention, stochastic


def test_two_tokens_two_layers_by_hand():
    # A1 = [[0.75, 0.25], [0, 1]], A2 = [[0.5, 0.5], [0.5, 0.5]]. Alone, token 0 gets 0.5 and token
    # 1 gets 0.75, so in proportion 0.4 and 0.6 of 1: position 0 of layer 1 sends 0.4 and 0.1.
    result = joint_flow(AttentionGraph.from_weights(TWO_LAYERS))
    assert result.scores[0] == pytest.approx(np.asarray([[0.75, 0.25], [0.0, 1.0]]), abs=1e-14)
    assert result.scores[1] == pytest.approx(np.asarray([[0.4, 0.6], [0.4, 0.6]]), abs=1e-14)
    assert result.settings["proofs"] == {"proportional": 4}


@given(stochastic((1, 4), n=(1, 5)))
@settings(max_examples=40, deadline=None)
def test_scores_sum_to_one_and_are_at_most_the_flow(weights):
    graph = AttentionGraph.from_weights(weights)
    scores = joint_flow(graph, threads=1).scores
    assert scores.sum(axis=-1) == pytest.approx(np.ones(scores.shape[:2]), abs=1e-11)
    assert (scores <= flow(graph, threads=1).scores + 1e-11).all()
    assert (scores >= 0).all()


def test_it_is_nearer_to_flow_than_rollout():
    # Rollout is another maximum joint flow; this one minimizes sum(s^2 / w).
    graph = AttentionGraph.from_weights(random_attention(4, 8, 8, seed=3))
    weights = flow(graph).scores
    canonical, other = joint_flow(graph).scores, rollout(graph).scores
    ours, theirs = (scores**2 / weights for scores in (canonical, other))
    assert (ours.sum(-1) <= theirs.sum(-1) + 1e-12).all()
    assert (ours.sum(-1)[3] < theirs.sum(-1)[3] - 1e-6).all()


def test_words_are_sums_and_at_most_their_flow():
    graph = AttentionGraph.from_weights(random_attention(3, 6, 6, seed=5))
    words = Units(("the", "cabinets", "is"), ((0,), (1, 2, 3), (4, 5)), (False,) * 3)
    by_token = joint_flow(graph).scores
    by_word = METHODS["joint_flow"].attribute(graph, units=words).scores
    assert by_word[:, 0, 1] == pytest.approx(by_token[:, 0, 1:4].sum(-1))
    assert by_word.sum(-1) == pytest.approx(np.ones((3, 3)))
    assert (by_word[:, 0] <= flow(graph, units=words).scores[:, 0] + 1e-11).all()


def test_rows_that_do_not_sum_to_one():
    graph = AttentionGraph.from_weights(random_attention(3, 5, 5))
    scale = np.random.default_rng(0).uniform(0.2, 5, (3, 5, 1))
    scaled = replace(graph, weights=graph.weights * scale)
    total = group_flow(scaled, tokens=[range(5)]).values[:, :, 0]
    assert joint_flow(scaled).scores.sum(-1) == pytest.approx(total, abs=1e-11)


def test_encoder_decoder_and_unequal_widths():
    encoder, decoder = random_attention(2, 1, 2, 2), random_attention(2, 1, 3, 3, seed=1)
    cross = random_attention(2, 1, 3, 2, seed=2)
    graph = AttentionGraph.encoder_decoder(encoder=encoder, decoder=decoder, cross=cross)
    scores = joint_flow(graph).scores
    assert scores.sum(-1) == pytest.approx(np.ones(scores.shape[:2]), abs=1e-11)
    assert scores[0, 2:] == pytest.approx(np.eye(5)[2:])  # the decoder was only carried so far
    layers = [random_attention(4, 6), random_attention(2, 4, seed=1)]
    narrow = joint_flow(AttentionGraph.from_layers(layers), layers=2).scores[0]
    assert narrow.sum(-1) == pytest.approx([1, 1, 0, 0, 0, 0], abs=1e-11)


def test_chosen_layers_and_positions_and_normalization():
    tokens = ["the", "key", "is", "here"]
    causal = np.tril(random_attention(3, 4, 4))
    graph = AttentionGraph.from_weights(causal / causal.sum(-1, keepdims=True), tokens=tokens)
    everything = joint_flow(graph).scores
    result = joint_flow(graph, layers=[3, 1], positions="is")
    assert (result.layers, result.positions) == ((3, 1), (2,))
    assert result.scores == pytest.approx(everything[[2, 0]][:, [2]], abs=1e-12)
    ratio = everything[[2]] / np.where(np.tri(4), joint_flow(graph.uniform(), layers=3).scores, 1)
    by_field = METHODS["joint_flow"].attribute(graph, layers=3, normalize="receptive_field")
    assert by_field.scores == pytest.approx(ratio / ratio.sum(-1, keepdims=True), abs=1e-11)
    again = joint_flow(graph, layers=3, normalize="receptive_field")
    assert again.scores == pytest.approx(by_field.scores, abs=1e-12)


def test_settings_can_be_saved(tmp_path):
    result = joint_flow(AttentionGraph.from_weights(random_attention(2, 4, 4)))
    assert sum(result.settings["proofs"].values()) == 8
    result.save(tmp_path / "joint.safetensors")
    assert Attribution.load(tmp_path / "joint.safetensors").settings == result.settings


def test_it_is_registered_but_not_computed_by_default():
    assert "joint_flow" in METHODS.names
    assert default_methods()[:3] == ("raw", "rollout", "flow")
    assert "joint_flow" not in default_methods()


def test_refusals():
    graph = AttentionGraph.from_weights(TWO_LAYERS)
    with refusal(SelectionError, "3", "1", "2"):
        joint_flow(graph, layers=3)
    with refusal(InputError, "AttentionGraph"):
        joint_flow(TWO_LAYERS)  # type: ignore[arg-type]
    with refusal(ShapeError, "graph.example(i)"):
        joint_flow(AttentionGraph.from_weights(np.stack([TWO_LAYERS, TWO_LAYERS])))
