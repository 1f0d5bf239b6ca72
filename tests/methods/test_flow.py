"""Attention flow: by hand, by properties, its paths, cuts, bounds and saturation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnflow.attribution import Attribution
from attnflow.errors import InputError, SelectionError, ShapeError
from attnflow.graph import AttentionGraph
from attnflow.methods.flow import flow, flow_bounds, flow_path, group_flow, saturation
from attnflow.methods.registry import METHODS
from attnflow.methods.rollout import rollout
from attnflow.units import Units
from tests.maxflow.networks import flow_by_networkx
from tests.maxflow.test_groups import flow_between_sets
from tests.refusal import refusal
from tests.weights import TWO_LAYERS, random_attention, stochastic

WORDS = Units(("the", "cabinets", "is"), ((0,), (1, 2, 3), (4, 5)), (False,) * 3)


def test_two_tokens_two_layers_by_hand():
    # A1 = [[0.75, 0.25], [0, 1]], A2 = [[0.5, 0.5], [0.5, 0.5]]; two layers: sums of minima.
    # Token 0: min(0.5, 0.75) + min(0.5, 0) = 0.5; token 1: min(0.5, 0.25) + min(0.5, 1) = 0.75.
    result = flow(AttentionGraph.from_weights(TWO_LAYERS))
    assert result.scores[0].tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert result.scores[1].tolist() == [[0.5, 0.75], [0.5, 0.75]]


def test_layer_one_is_the_graph_itself_and_rollout():
    graph = AttentionGraph.from_weights(random_attention(4, 6, 6))
    result = flow(graph, layers=1)
    assert result.scores[0] == pytest.approx(graph.weights[0], abs=1e-15)
    assert result.scores == pytest.approx(rollout(graph, layers=1).scores, abs=1e-15)


@given(stochastic((1, 4), n=(1, 6)))
@settings(max_examples=60)
def test_flow_is_at_least_rollout_and_at_most_one(weights):
    graph = AttentionGraph.from_weights(weights)
    scores = flow(graph).scores
    assert (scores >= rollout(graph).scores - 1e-12).all()
    assert (scores <= 1 + 1e-12).all()


@given(stochastic((1, 4), n=(1, 5)))
@settings(max_examples=30)
def test_residual_weight_one_gives_the_identity(weights):
    graph = AttentionGraph.from_weights(weights, residual_weight=1.0)
    for layer in flow(graph).scores:
        assert np.array_equal(layer, np.eye(graph.n_tokens))


@given(stochastic((2, 4), n=(2, 5)), st.randoms())
@settings(max_examples=30)
def test_permuting_tokens_permutes_scores(weights, random):
    order = list(range(weights.shape[-1]))
    random.shuffle(order)
    permuted = AttentionGraph.from_weights(weights[:, order][:, :, order])
    expected = flow(AttentionGraph.from_weights(weights)).scores[:, order][:, :, order]
    assert flow(permuted).scores == pytest.approx(expected, abs=1e-12)


def test_no_residual_connection_agrees_with_networkx():
    graph = AttentionGraph.from_weights(random_attention(3, 5, 5, seed=4), residual_weight=0.0)
    result = flow(graph, layers=3)
    for s, t in np.ndindex(5, 5):
        expected = flow_by_networkx(graph.capacities(), 3, s, t)
        assert result.scores[0, s, t] == pytest.approx(expected, abs=1e-9)


def test_chosen_layers_positions_and_tokens():
    tokens = ["the", "key", "is", "here"]
    graph = AttentionGraph.from_weights(random_attention(3, 4, 4), tokens=tokens)
    everything = flow(graph).scores
    result = flow(graph, layers=[3, 1], positions="is", tokens=["here", 0])
    assert result.layers == (3, 1)
    assert result.positions == (2,)
    assert result.columns == (3, 0)
    assert result.scores == pytest.approx(everything[[2, 0]][:, [2]][:, :, [3, 0]], abs=1e-12)
    assert result.top(1, position="is", layer=3)[0][0] in ("here", "the")


def test_rows_are_scaled_by_name_only():
    graph = AttentionGraph.from_weights(random_attention(3, 5, 5))
    plain = flow(graph)
    scaled = flow(graph, normalize="rows")
    assert plain.scores.sum(axis=-1).max() > 1.5
    assert scaled.scores.sum(axis=-1) == pytest.approx(np.ones((3, 5)))
    expected = plain.scores / plain.scores.sum(axis=-1, keepdims=True)
    assert scaled.scores == pytest.approx(expected)


def test_receptive_field_takes_away_the_advantage_of_early_tokens():
    # Uniform causal attention says nothing about content, so all tokens in sight score alike.
    causal = np.tril(np.ones((4, 6, 6)))
    graph = AttentionGraph.from_weights(causal / causal.sum(-1, keepdims=True))
    row = flow(graph, positions=-1, layers=-1, normalize="receptive_field").scores[0, 0]
    assert row == pytest.approx(np.full(6, 1 / 6))
    plain = flow(graph, positions=3, layers=-1, normalize="receptive_field").scores[0, 0]
    assert plain == pytest.approx([0.25] * 4 + [0.0] * 2)


def test_torch_and_float32_graphs():
    torch = pytest.importorskip("torch")
    weights = random_attention(3, 6, 6).astype(np.float32)
    from_numpy = flow(AttentionGraph.from_weights(weights)).scores
    from_torch = flow(AttentionGraph.from_weights(torch.asarray(weights))).scores
    assert isinstance(from_torch, np.ndarray)
    assert from_torch == pytest.approx(from_numpy, abs=1e-6)


def test_carried_positions_pass_everything_on():
    # One encoder token, one decoder token; the decoder looks at the encoder in its second layer.
    one = [[[1.0]]]
    graph = AttentionGraph.encoder_decoder(encoder=one, decoder=one, cross=one)
    result = flow(graph)
    assert result.scores[:, 0].tolist() == [[1.0, 0.0]] * 3  # the encoder stays itself
    assert result.scores[2, 1].tolist() == [0.5, 0.5]


def test_path_and_cut_explain_the_value():
    graph = AttentionGraph.from_weights(random_attention(4, 6, 6, seed=2))
    for position, token in ((0, 5), (3, 3), (5, 1)):
        path = flow_path(graph, layer=4, position=position, token=token)
        score = flow(graph, layers=4, positions=position, tokens=token).scores.item()
        assert path.value == pytest.approx(score, abs=1e-12)
        assert sum(edge.capacity for edge in path.cut) == pytest.approx(path.value, abs=1e-12)
        for edge in path.cut:
            full = path.edges[edge.layer - 1, edge.position, edge.below]
            assert full == pytest.approx(edge.capacity, abs=1e-12)
        assert path.edges[0].sum() == pytest.approx(path.value, abs=1e-12)


def test_path_says_what_it_is():
    graph = AttentionGraph.from_weights(TWO_LAYERS, tokens=["the", "key"])
    path = flow_path(graph, position="key", token="the")
    assert (path.layer, path.position, path.token) == (2, 1, 0)
    assert repr(path) == "FlowPath('key' at layer 2 to 'the': 0.5, limited by 1 edges)"


def test_path_of_a_carried_position_is_refused():
    graph = AttentionGraph.encoder_decoder(encoder=[[[1.0]]], decoder=[[[1.0]]], cross=[[[1.0]]])
    with refusal(SelectionError, "1"):
        flow_path(graph, layer=1, position=1, token=1)


def test_saturation_counts_the_tokens_at_the_bound():
    # Uniform attention: deep down every position passes all it can to every token.
    uniform = np.full((8, 4, 4), 0.25)
    graph = AttentionGraph.from_weights(uniform)
    result = flow(graph)
    shares = saturation(graph, result)
    assert shares.shape == (8, 4)
    assert shares[0].tolist() == [0.0] * 4
    assert shares[-1].tolist() == [1.0] * 4
    assert result.settings["saturated"]["8"] == 1.0
    assert result.settings["saturated"]["1"] == 0.0


def test_saturation_needs_plain_flow():
    graph = AttentionGraph.from_weights(TWO_LAYERS)
    with refusal(InputError, "flow(graph)"):
        saturation(graph, rollout(graph))
    with refusal(InputError, "normalize='rows'"):
        saturation(graph, flow(graph, normalize="rows"))


def test_bounds_enclose_the_flow():
    graph = AttentionGraph.from_weights(random_attention(5, 24, 24, seed=3))
    exact = flow(graph).scores
    bounds = flow_bounds(graph, tolerance=0.1)
    assert (bounds.lower.scores <= exact + 1e-12).all()
    assert (bounds.upper.scores >= exact - 1e-12).all()
    assert (bounds.upper.scores - bounds.lower.scores).max() <= 0.1
    assert bounds.lower.settings["tolerance"] == 0.1
    with refusal(InputError, "-1", "0", "flow()"):
        flow_bounds(graph, tolerance=-1)


def test_settings_tell_how_values_were_proved_and_can_be_saved(tmp_path):
    graph = AttentionGraph.from_weights(random_attention(4, 8, 8))
    result = flow(graph)
    assert sum(result.settings["proofs"].values()) == 4 * 8 * 8
    assert "unproved" not in result.settings["proofs"]
    result.save(tmp_path / "flow.safetensors")
    again = Attribution.load(tmp_path / "flow.safetensors")
    assert np.array_equal(again.scores, result.scores)
    assert again.settings == result.settings


def test_flow_to_and_from_sets_by_hand():
    # A1 = [[0.75, 0.25], [0, 1]], A2 = [[0.5, 0.5], [0.5, 0.5]]. Position 0 sends 1 in all, and
    # both positions 2, of which position 0 of layer 1 passes 1 on, and position 1 also.
    graph = AttentionGraph.from_weights(TWO_LAYERS)
    sets: list[int | list[int]] = [0, 1, [0, 1]]
    result = group_flow(graph, layers=2, positions=sets, tokens=sets)
    assert result.values.tolist() == [[[0.5, 0.75, 1.0], [0.5, 0.75, 1.0], [0.75, 1.25, 2.0]]]
    assert result.positions == result.tokens == ((0,), (1,), (0, 1))
    assert sum(result.proofs.values()) == 9


def test_sets_of_one_by_default():
    graph = AttentionGraph.from_weights(random_attention(3, 5, 5))
    result = group_flow(graph)
    assert result.layers == (1, 2, 3)
    assert result.values == pytest.approx(flow(graph).scores, abs=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_words_are_sets_and_attending_ones_are_averaged(causal):
    weights = random_attention(3, 6, 6, seed=5)
    if causal:
        weights = np.tril(weights) / np.tril(weights).sum(-1, keepdims=True)
    graph = AttentionGraph.from_weights(weights)
    result = flow(graph, units=WORDS)
    assert result.tokens == WORDS.texts
    assert result.settings["words"] is True
    for layer, i, j in np.ndindex(3, 3, 3):
        positions, tokens = WORDS.groups[i], WORDS.groups[j]
        raw = flow_between_sets(graph.capacities(), layer + 1, positions, tokens)
        expected = raw / len(positions)
        assert result.scores[layer, i, j] == pytest.approx(expected, abs=1e-9)
    assert (result.scores <= 1 + 1e-12).all()
    merged = METHODS["rollout"].attribute(graph, units=WORDS)
    assert (result.scores[:, 0] >= merged.scores[:, 0] - 1e-12).all()  # from one position
    assert METHODS["flow"].attribute(graph, units=WORDS).scores.tolist() == result.scores.tolist()


def test_chosen_words():
    graph = AttentionGraph.from_weights(random_attention(3, 6, 6, seed=5))
    everything = flow(graph, units=WORDS).scores
    result = flow(graph, units=WORDS, layers=[3], positions="is", tokens=["cabinets", 0])
    assert (result.positions, result.columns) == ((2,), (1, 0))
    assert result.scores == pytest.approx(everything[[2]][:, [2]][:, :, [1, 0]], abs=1e-12)
    assert result.top(1, position="is")[0][0] in WORDS.texts


def test_normalization_of_words():
    graph = AttentionGraph.from_weights(random_attention(3, 6, 6, seed=5))
    plain, uniform = flow(graph, units=WORDS).scores, flow(graph.uniform(), units=WORDS).scores
    rows = flow(graph, units=WORDS, normalize="rows").scores
    assert rows == pytest.approx(plain / plain.sum(-1, keepdims=True), abs=1e-12)
    ratio = plain / uniform
    by_field = METHODS["flow"].attribute(graph, units=WORDS, normalize="receptive_field").scores
    assert by_field == pytest.approx(ratio / ratio.sum(-1, keepdims=True), abs=1e-12)


def test_words_of_an_encoder_decoder():
    # Two encoder tokens; the three decoder tokens are one word of two, and a single one.
    encoder, decoder = random_attention(2, 1, 2, 2), random_attention(2, 1, 3, 3, seed=1)
    graph = AttentionGraph.encoder_decoder(
        encoder=encoder, decoder=decoder, cross=random_attention(2, 1, 3, 2, seed=2)
    )
    words = Units(("source", "target", "end"), ((0, 1), (2, 3), (4,)), (False,) * 3)
    result = flow(graph, units=words)
    assert result.scores[:2, 1].tolist() == [[0.0, 1.0, 0.0]] * 2  # only carried so far
    for layer in range(2, 6):
        raw = flow_between_sets(graph.capacities(), layer + 1, (2, 3), (0, 1))
        assert result.scores[layer, 1, 0] == pytest.approx(raw / 2, abs=1e-9)
    half = group_flow(graph, layers=1, positions=[[0, 2, 3]], tokens=[[0, 2]]).values.item()
    assert half == pytest.approx(1 + graph.capacities()[0, 0, 0], abs=1e-12)


def test_layers_of_unequal_width():
    layers = [random_attention(4, 6), random_attention(2, 4, seed=1)]
    graph = AttentionGraph.from_layers(layers)
    values = group_flow(graph, layers=2, positions=[[0, 1]], tokens=[[0, 5], [1, 2, 3]]).values
    for k, tokens in enumerate(([0, 5], [1, 2, 3])):
        expected = flow_between_sets(graph.capacities(), 2, [0, 1], tokens)
        assert values[0, 0, k] == pytest.approx(expected, abs=1e-9)


def test_saturation_of_words():
    graph = AttentionGraph.from_weights(np.full((8, 6, 6), 1 / 6))
    result = flow(graph, units=WORDS)
    # "the" sends 1 to each word; "cabinets" sends 3, which only a word of three tokens receives;
    # "is" sends 2.
    shares = saturation(graph, result, units=WORDS)
    assert shares[-1] == pytest.approx([1, 1 / 3, 2 / 3])
    assert result.settings["saturated"]["8"] == pytest.approx(2 / 3, abs=1e-4)
    with refusal(InputError, "3", "6"):
        saturation(graph, result)


def test_capacities_above_one():
    graph = AttentionGraph.from_weights(random_attention(3, 5, 5))
    triple = replace(graph, weights=3 * graph.weights)
    assert flow(triple).scores == pytest.approx(3 * flow(graph).scores, abs=1e-11)
    assert flow(triple).settings["saturated"] == flow(graph).settings["saturated"]


def test_path_between_sets():
    tokens = ["the", "key", "s", "is", "here"]
    graph = AttentionGraph.from_weights(random_attention(4, 5, 5, seed=2), tokens=tokens)
    path = flow_path(graph, layer=3, position=["is", 4], token=["key", "s"])
    expected = group_flow(graph, layers=3, positions=[[3, 4]], tokens=[[1, 2]]).values.item()
    assert path.value == pytest.approx(expected, abs=1e-12)
    assert sum(edge.capacity for edge in path.cut) == pytest.approx(path.value, abs=1e-12)
    for edge in path.cut:
        full = path.edges[edge.layer - 1, edge.position, edge.below]
        assert full == pytest.approx(edge.capacity, abs=1e-12)
    assert (path.position, path.token) == ((3, 4), (1, 2))
    assert "'is' + 'here' at layer 3 to 'key' + 's'" in repr(path)


def test_refusals():
    graph = AttentionGraph.from_weights(TWO_LAYERS)
    with refusal(InputError, "AttentionGraph"):
        flow(TWO_LAYERS)  # type: ignore[arg-type]
    with refusal(SelectionError, "3", "1", "2"):
        flow(graph, layers=3)
    with refusal(InputError, "'row'"):
        flow(graph, normalize="row")  # type: ignore[arg-type]
    with refusal(ShapeError, "graph.example(i)"):
        flow(AttentionGraph.from_weights(np.stack([TWO_LAYERS, TWO_LAYERS])))
