"""Flows between sets: against super-sinks and super-sources of other solvers, and properties."""

import networkx as nx
import numpy as np
import pytest
from ortools.graph.python import max_flow as ortools_flow

from attnflow.errors import InputError, ShapeError
from attnflow.maxflow import group_flow, group_flows, max_flow, max_flows
from tests.maxflow.networks import KINDS, SCALE, attention, causal, small_integers
from tests.refusal import refusal


def flow_between_sets(capacities, layer, sources, sinks):
    """Compute one flow with networkx, with a real super-source and super-sink."""
    graph = nx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    for x, u, q in np.argwhere(capacities[:layer] > 0):
        limit = float(capacities[x, u, q])
        graph.add_edge((x + 1, u), (x, q), **({} if np.isinf(limit) else {"capacity": limit}))
    graph.add_edges_from(("source", (layer, u)) for u in sources)  # no capacity: unlimited
    graph.add_edges_from(((0, q), "sink") for q in sinks)
    solver = nx.algorithms.flow.shortest_augmenting_path
    return nx.maximum_flow_value(graph, "source", "sink", flow_func=solver)


def flow_by_ortools(capacities, layer, sources, sinks):
    """Compute the same with OR-tools, on capacities rounded to multiples of 1 / SCALE."""
    n = capacities.shape[1]
    solver = ortools_flow.SimpleMaxFlow()
    source, sink = (layer + 1) * n, (layer + 1) * n + 1
    for x, u, q in np.argwhere(capacities[:layer] > 0):
        capacity = round(float(capacities[x, u, q]) * SCALE)
        solver.add_arc_with_capacity(int((x + 1) * n + u), int(x * n + q), capacity)
    for u in sources:
        solver.add_arc_with_capacity(source, layer * n + u, SCALE * 2**20)
    for q in sinks:
        solver.add_arc_with_capacity(q, sink, SCALE * 2**20)
    assert solver.solve(source, sink) == solver.OPTIMAL
    return solver.optimal_flow() / SCALE


def random_sets(n, count, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, n + 1, count)
    return [sorted(rng.choice(n, size, replace=False).tolist()) for size in sizes]


@pytest.mark.parametrize("kind", KINDS)
def test_values_equal_those_of_networkx_and_ortools(kind):
    depth, n = 4, 6
    capacities = KINDS[kind](depth, n, 5)
    sources, sinks = random_sets(n, 4, seed=1), random_sets(n, 5, seed=2)
    solved = group_flows(capacities, sources=sources, sinks=sinks)
    assert solved.values.shape == (depth, 4, 5)
    assert sum(solved.proofs.values()) == solved.values.size
    assert solved.proofs["unproved"] == 0
    for i, j, k in np.ndindex(solved.values.shape):
        arguments = capacities, i + 1, sources[j], sinks[k]
        assert solved.values[i, j, k] == pytest.approx(flow_between_sets(*arguments), abs=1e-9)
        assert solved.values[i, j, k] == pytest.approx(flow_by_ortools(*arguments), abs=1e-9)


def test_rows_that_do_not_sum_to_one_and_infinite_capacities():
    rng = np.random.default_rng(3)
    capacities = attention(4, 6, 0) * rng.uniform(0.1, 7, (4, 6, 1))
    capacities[1:3, 2], capacities[1:3, 4] = 0.0, 0.0
    capacities[1:3, [2, 4], [2, 4]] = np.inf
    sources, sinks = random_sets(6, 5, seed=3), random_sets(6, 5, seed=4)
    solved = group_flows(capacities, layers=[4, 2], sources=sources, sinks=sinks).values
    for i, j, k in np.ndindex(solved.shape):
        expected = flow_between_sets(capacities, (4, 2)[i], sources[j], sinks[k])
        assert solved[i, j, k] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("make", [attention, causal, small_integers])
def test_sets_of_one_equal_pairs(make):
    capacities = make(5, 7, 1)
    ones = [[i] for i in range(7)]
    solved = group_flows(capacities, sources=ones, sinks=ones)
    assert solved.values == pytest.approx(max_flows(capacities).values, abs=1e-12)


@pytest.mark.parametrize("make", [attention, causal, small_integers])
def test_flow_grows_with_the_set_and_by_at_most_the_flow_of_the_new_token(make):
    capacities = make(4, 8, 2)
    rng = np.random.default_rng(0)
    order = rng.permutation(8).tolist()
    chain = [order[: k + 1] for k in range(8)]
    ones = [[i] for i in order]
    values = group_flows(capacities, sources=[[7], [2, 7]], sinks=chain).values
    alone = group_flows(capacities, sources=[[7], [2, 7]], sinks=ones).values
    growth = np.diff(values, axis=-1)
    assert (growth >= -1e-12).all()
    assert (growth <= alone[:, :, 1:] + 1e-12).all()
    again = group_flows(capacities, sources=chain, sinks=[[0, 3], [5]]).values
    assert (np.diff(again, axis=1) >= -1e-12).all()


def test_all_tokens_together_receive_all_that_leaves():
    for make in (attention, causal):
        values = group_flows(make(5, 6, 4), sources=[[5], [2, 3]], sinks=[range(6)]).values
        assert values[:, 0] == pytest.approx(np.ones((5, 1)), abs=1e-12)
        assert values[0, 1, 0] == pytest.approx(2.0, abs=1e-12)
        assert (values[:, 1] <= 2.0 + 1e-12).all()  # less if both send to a position that is full


@pytest.mark.parametrize("layer", [1, 2, 5])
@pytest.mark.parametrize("make", [attention, causal, small_integers])
def test_flow_on_edges_is_valid_and_equals_a_cut_of_the_original_network(make, layer):
    capacities = make(5, 6, 7)
    sources, sinks = [2, 4], [0, 1, 3]
    pair = group_flow(capacities, layer=layer, sources=sources, sinks=sinks)
    expected = flow_between_sets(capacities, layer, sources, sinks)
    assert pair.value == pytest.approx(expected, abs=1e-9)
    assert (pair.edges >= 0).all()
    assert (pair.edges <= capacities[:layer] + 1e-12).all()
    assert pair.edges[-1].sum() == pytest.approx(pair.value, abs=1e-12)
    assert pair.edges[-1][[0, 1, 3, 5]].sum() == 0
    assert pair.edges[0][:, [2, 4, 5]].sum() == 0
    for x in range(1, layer):
        received, sent = pair.edges[x].sum(axis=0), pair.edges[x - 1].sum(axis=1)
        assert received == pytest.approx(sent, abs=1e-12)
    side = pair.source_side.copy()
    side[0] = ~np.isin(np.arange(6), sinks)
    assert np.flatnonzero(side[layer]).tolist() == sources
    cut = sum(capacities[x][side[x + 1]][:, ~side[x]].sum() for x in range(layer))
    assert cut == pytest.approx(pair.value, abs=1e-12)


def test_one_pair_in_full_is_that_of_max_flow():
    capacities = attention(4, 6, 3)
    pair = group_flow(capacities, layer=4, sources=[1], sinks=[5])
    assert pair.value == max_flow(capacities, layer=4, source=1, sink=5).value


def test_progress_counts_all_pairs():
    seen = []
    capacities = attention(3, 5, 0)
    sets = [[0], [1, 2], [2], [0, 1]]  # two sets begin at 0: two networks
    group_flows(
        capacities,
        sources=sets,
        sinks=sets,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (48, 48)


def test_sets_that_cannot_be():
    capacities = attention(2, 4, 0)
    with refusal(InputError, "sinks", "empty"):
        group_flows(capacities, sources=[[0]], sinks=[[]])
    with refusal(InputError, "4", "0", "3"):
        group_flow(capacities, layer=1, sources=[4], sinks=[0])
    with refusal(InputError, "layer", "3"):
        group_flows(capacities, layers=[3], sources=[[0]], sinks=[[0]])
    with refusal(ShapeError, "(2, 4)"):
        group_flows(capacities[0, :2], sources=[[0]], sinks=[[0]])
