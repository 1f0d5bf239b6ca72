"""Many pairs at once: hand-computed, by properties, and against independent solvers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnflow.errors import InputError, ShapeError
from attnflow.maxflow import max_flow, max_flows
from tests.maxflow.networks import KINDS, attention, causal, flow_by_networkx, flows_by_ortools
from tests.refusal import refusal


def test_three_layers_by_hand():
    # Source (3, 0) sends 0.5 to each of two positions. Layer 2 lets 0.3 of position 0's half
    # stay and 0.1 cross; position 1 keeps 0.2. Layer 1 gives token 0 at most 0.35 from 0 and
    # 1.0 from 1. Through 0: min(0.5, 0.3 + 0.1) = 0.4 leaves it, 0.3 of that to 0 and 0.1 to 1;
    # through 1: 0.2. Into token 0: min(0.3, 0.35) + min(0.1 + 0.2, 1) = 0.6.
    capacities = np.asarray(
        [
            [[0.35, 0.0], [1.0, 0.0]],
            [[0.3, 0.1], [0.0, 0.2]],
            [[0.5, 0.5], [0.0, 0.0]],
        ]
    )
    flows = max_flows(capacities, layers=[3], sources=[0])
    assert flows.values[0, 0] == pytest.approx([0.6, 0.0], abs=1e-15)


def test_flow_must_sometimes_be_cancelled():
    # The obvious first path, 0 -> 0 -> 0, blocks the second unit, which can only pass position 0
    # of level 1: the first unit has to move to position 1. Maximum 2.
    capacities = np.asarray(
        [
            [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
            [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
            [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        ]
    )
    flows = max_flows(capacities, layers=[3], sources=[0], sinks=[0])
    assert flows.values.item() == 2.0


def test_flows_of_one_layer_are_its_capacities():
    capacities = attention(1, 5, seed=1)
    assert np.array_equal(max_flows(capacities).values, capacities)


def test_flows_of_two_layers_are_sums_of_minima():
    low, high = attention(2, 6, seed=2)
    expected = np.minimum(high[:, :, None], low[None, :, :]).sum(axis=1)
    flows = max_flows(np.stack([low, high]), layers=[2])
    assert flows.values[0] == pytest.approx(expected, abs=1e-15)


def test_one_token():
    flows = max_flows(np.asarray([[[0.5]], [[1.0]], [[0.25]], [[1.0]]]))
    assert flows.values[:, 0, 0].tolist() == [0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("depth", "n"), [(1, 4), (2, 5), (3, 1), (3, 7), (5, 6), (8, 4)])
def test_all_pairs_agree_with_ortools(kind, depth, n):
    for seed in range(8):
        capacities = KINDS[kind](depth, n, seed)
        flows = max_flows(capacities)
        check_bounds(flows, capacities)
        for layer in range(1, depth + 1):
            for source in range(n):
                expected = flows_by_ortools(capacities, layer, source)
                assert flows.values[layer - 1, source] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_networkx(kind):
    for seed in range(12):
        depth, n = 2 + seed % 5, 2 + seed % 4
        capacities = KINDS[kind](depth, n, 100 + seed)
        flows = max_flows(capacities, layers=[depth])
        for source, sink in np.ndindex(n, n):
            expected = flow_by_networkx(capacities, depth, source, sink)
            assert flows.values[0, source, sink] == pytest.approx(expected, abs=1e-9)


def test_integer_capacities_give_integer_flows():
    for seed in range(60):
        capacities = KINDS["small_integers"](4, 6, seed)
        values = max_flows(capacities).values
        assert np.array_equal(values, np.round(values))
        assert np.array_equal(values[3, 0], np.round(flows_by_ortools(capacities, 4, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_pairs_at_depth_agree_with_ortools(kind):
    for seed, (depth, n) in enumerate([(24, 5), (12, 12), (6, 40), (4, 70), (3, 130)]):
        capacities = KINDS[kind](depth, n, seed)
        flows = max_flows(capacities)
        check_bounds(flows, capacities)
        for layer in {3, depth // 2, depth}:
            for source in (0, n // 2, n - 1):
                expected = flows_by_ortools(capacities, layer, source)
                assert flows.values[layer - 1, source] == pytest.approx(expected, abs=1e-9)


def check_bounds(flows, capacities):
    scale = capacities.sum(axis=2).max()
    assert np.abs(flows.bounds - flows.values).max() <= 1e-12 * max(scale, 1e-300) * 2
    assert sum(flows.proofs.values()) == flows.values.size
    assert flows.proofs["unproved"] == 0


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 8))
@settings(max_examples=40)
def test_permuting_positions_permutes_flows(seed, depth, n):
    capacities = attention(depth, n, seed)
    order = np.random.default_rng(seed).permutation(n)
    permuted = max_flows(capacities[:, order][:, :, order]).values
    assert permuted == pytest.approx(max_flows(capacities).values[:, order][:, :, order], abs=1e-12)


@pytest.mark.parametrize("n", [5, 63, 64, 65, 130])
def test_causal_flows_equal_those_of_the_permuted_graph(n):
    capacities = causal(4, n, seed=n)
    capacities[2, n // 2, n // 2] = np.inf
    order = np.random.default_rng(n).permutation(n)  # not causal any more
    layers, sources = [3, 4], [0, n // 2, n - 1]
    flows = max_flows(capacities, layers=layers, sources=sources).values
    shuffled = max_flows(
        capacities[:, order][:, :, order],
        layers=layers,
        sources=np.argsort(order)[sources].tolist(),
    )
    assert flows[:, :, order] == pytest.approx(shuffled.values, abs=1e-12)
    assert not flows[:, 0, 1:].any()


def test_the_minimum_cut_of_a_causal_graph_is_saturated():
    capacities = causal(5, 12, seed=1)
    for source, sink in ((9, 4), (11, 0), (3, 3), (2, 7)):
        pair = max_flow(capacities, layer=5, source=source, sink=sink)
        across = [
            (capacities[x, u, q], pair.edges[x, u, q])
            for x in range(5)
            for u in np.flatnonzero(pair.source_side[x + 1])
            for q in np.flatnonzero(~pair.source_side[x])
            if x or q == sink
        ]
        assert sum(capacity for capacity, _ in across) == pytest.approx(pair.value, abs=1e-12)
        assert all(flow == pytest.approx(capacity, abs=1e-12) for capacity, flow in across)


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=40)
def test_flow_lies_between_rollout_and_the_cuts_around_both_ends(seed, depth, n):
    capacities = causal(depth, n, seed) if seed % 2 else attention(depth, n, seed)
    values = max_flows(capacities).values
    rollout = np.eye(n)
    for layer in range(depth):
        rollout = capacities[layer] @ rollout
        assert (values[layer] >= rollout - 1e-12).all()
        assert (values[layer] <= capacities[layer].sum(axis=1)[:, None] + 1e-12).all()
        into = capacities[0].sum(axis=0) if layer else capacities[0]
        assert (values[layer] <= into + 1e-12).all()


def test_results_do_not_depend_on_the_order_or_choice_of_pairs():
    capacities = attention(4, 12, seed=6)
    everything = max_flows(capacities).values
    some = max_flows(capacities, layers=[4, 2], sources=[7, 0, 3], sinks=[11, 5]).values
    expected = everything[[3, 1]][:, [7, 0, 3]][:, :, [11, 5]]
    assert some == pytest.approx(expected, abs=1e-12)
    assert np.array_equal(max_flows(capacities, sources=[3]).values[:, 0], everything[:, 3])


def test_float32_input_gives_the_flows_of_the_same_numbers_in_float64():
    capacities = attention(4, 10, seed=7).astype(np.float32)
    exact = max_flows(capacities.astype(np.float64)).values
    assert np.array_equal(max_flows(np.asarray(capacities)).values, exact)


def test_the_layer_below_determines_flows_of_deep_layers():
    # Sharp enough mixing that every position fills every sink after a few layers.
    flows = max_flows(attention(16, 12, seed=8, sharpness=0.5))
    assert flows.proofs["layer_bounds"] > 0
    one_by_one = np.stack(
        [max_flows(attention(16, 12, 8, 0.5), layers=[k]).values[0] for k in (10, 13, 16)]
    )
    assert flows.values[[9, 12, 15]] == pytest.approx(one_by_one, abs=1e-12)


def test_the_layer_below_determines_flows_that_saturate_neither_end():
    chains = np.asarray([[0.9, 0.8], [0.2, 0.6], [0.5, 0.4]])
    flows = max_flows(np.stack([np.diag(layer) for layer in chains]))
    assert flows.values[2].tolist() == [[0.2, 0.0], [0.0, 0.4]]
    assert flows.proofs["layer_bounds"] == 4


def test_infinite_capacities_do_not_limit_flows():
    # Position 0 passes layers 2 and 3 without limit; layer 1 takes 0.4 of it from token 1.
    capacities = np.asarray([[[0.6, 0.4], [0.0, 1.0]]] + [[[np.inf, 0.0], [0.5, 0.5]]] * 2)
    values = max_flows(capacities).values
    assert values[2, 0] == pytest.approx([0.6, 0.4], abs=1e-12)
    assert values[1, 1] == pytest.approx([0.5, 0.9])


def test_a_path_of_infinite_capacities_has_an_infinite_flow():
    capacities = np.asarray([[[np.inf, 0.0], [0.5, 0.5]]] * 4)
    values = max_flows(capacities).values
    assert np.isinf(values[:, 0, 0]).all()
    assert (values[:, 0, 1] == 0).all()


def test_tolerance_gives_lower_and_upper_bounds():
    capacities = attention(5, 40, seed=9)
    exact = max_flows(capacities).values
    loose = max_flows(capacities, tolerance=0.2)
    assert loose.proofs["within_tolerance"] > 0
    assert (loose.values <= exact + 1e-12).all()
    assert (loose.bounds >= exact - 1e-12).all()
    assert (loose.bounds - loose.values).max() <= 0.2


def test_layers_are_returned_in_the_requested_order_and_may_repeat():
    capacities = attention(5, 6, seed=2)
    every = max_flows(capacities).values
    some = max_flows(capacities, layers=[5, 2, 5, 3])
    assert some.values == pytest.approx(every[[4, 1, 4, 2]], abs=1e-12)
    assert np.array_equal(some.bounds, some.values)
    assert sum(some.proofs.values()) == some.values.size


@pytest.mark.slow
def test_a_thousand_positions():
    capacities = attention(3, 1024, seed=3)
    flows = max_flows(capacities, layers=[3], sources=[5], sinks=[0, 5, 1023])
    check_bounds(flows, capacities)
    expected = flows_by_ortools(capacities, 3, 5, sinks=[0, 5, 1023])
    assert flows.values[0, 0] == pytest.approx(expected, abs=1e-9)


def test_invalid_input():
    with refusal(ShapeError, (2, 3), "[layers, positions, positions]"):
        max_flows(np.zeros((2, 3)))
    with refusal(InputError, "negative", "AttentionGraph"):
        max_flows(np.asarray([[[-0.1, 1.1], [0.0, 1.0]]]))
    with refusal(InputError, "NaN"):
        max_flows(np.asarray([[[np.nan, 1.1], [0.0, 1.0]]]))
    with refusal(InputError, "layer is 3", "1 to 2"):
        max_flows(np.full((2, 3, 3), 1 / 3), layers=[1, 3])
    with refusal(InputError, "source is -1", "0 to 2"):
        max_flows(np.full((2, 3, 3), 1 / 3), sources=[-1])
    with refusal(InputError, "sink is 3", "0 to 2"):
        max_flows(np.full((2, 3, 3), 1 / 3), sinks=[3])
    with refusal(InputError, "threads is 0", "from 1"):
        max_flows(attention(1, 2, 0), threads=0)


def test_two_thousand_small_graphs_agree_with_two_solvers():
    rng = np.random.default_rng(0)
    kinds = list(KINDS.values())
    for seed in range(2000):
        depth, n = int(rng.integers(1, 7)), int(rng.integers(1, 9))
        capacities = kinds[seed % len(kinds)](depth, n, 1000 + seed)
        source, sink = int(rng.integers(n)), int(rng.integers(n))
        values = max_flows(capacities, layers=[depth], sources=[source]).values[0, 0]
        assert values == pytest.approx(flows_by_ortools(capacities, depth, source), abs=1e-9)
        if seed % 5 == 0:
            expected = flow_by_networkx(capacities, depth, source, sink)
            assert values[sink] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [5, 20, 40])
def test_augmenting_paths_can_cancel_flow_on_many_edges(k):
    # Position i of level 2 first sends its flow to position n / 2 + i - 1 of level 1, although it
    # could go to the next one. Flow at position 0, which comes last, moves all of them.
    n = 2 * k + 2
    capacities = np.zeros((3, n, n))
    capacities[2, 0, : k + 1] = 1.0
    capacities[2, 0, 0] = 0.25
    half = n // 2
    for i in range(k + 1):
        capacities[1, i, half + max(i - 1, 0)] = 1.0
        capacities[1, i, half + i] = 1.0
    capacities[0, half:, n - 1] = 1.0
    flows = max_flows(capacities, layers=[3], sources=[0], sinks=[n - 1])
    assert flows.values[0, 0, 0] == k + 0.25
    assert flows.proofs["augmented"] == 1
    assert max_flow(capacities, layer=3, source=0, sink=n - 1).value == k + 0.25
