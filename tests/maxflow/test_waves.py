"""Waves give a flow and a cut of the same value, and move flow only where edges allow it."""

import numpy as np
import pytest

from attnflow.maxflow import group_flows, max_flow, max_flows
from attnflow.maxflow.groups import merge_sinks, merge_sources
from attnflow.maxflow.jit import kernel, pointer
from attnflow.maxflow.layout import WORKSPACE
from attnflow.maxflow.network import PROOF_TOLERANCE, build_network, graph_of
from attnflow.maxflow.residual import allocate_workspace
from attnflow.maxflow.waves import flow_by_waves, list_open_edges
from tests.maxflow.networks import causal, flows_by_ortools


def with_sink_token(depth, n, seed, *, tails="log-normal", residual=0.5):
    """Return causal capacities as in decoders: heavy tails, and much attention to token 0."""
    rng = np.random.default_rng(seed)
    shape = (depth, n, n)
    rows = np.exp(1.5 * rng.normal(size=shape)) if tails == "log-normal" else rng.pareto(1.2, shape)
    rows = np.tril(rows + 1e-3)
    rows /= rows.sum(-1, keepdims=True)
    rows[:, :, 0] += 0.7
    rows /= rows.sum(-1, keepdims=True)
    return residual * np.eye(n) + (1 - residual) * rows


@kernel
def flow_of_pair(level, source, sink, network, memory):
    net = graph_of(network)
    list_open_edges(net.capacity, memory)
    into = pointer(net.column, sink * net.n)
    return flow_by_waves((level, source, sink), net.capacity, into, memory)


def solve(capacities, level, source, sink):
    """Return value, flow on the edges between, surplus, and source side of a pair."""
    network, factor, _ = build_network(capacities)
    assert network.causal
    assert factor == 1.0
    n, depth = network.n, network.depth
    memory = allocate_workspace(n, depth)
    value = flow_of_pair(level, source, sink, network, memory)
    width = -(-n // 64) * 64
    flows = WORKSPACE.array(memory, "row_flows").reshape(-1, n, width)[:, :, :n].copy()
    touched = bits(WORKSPACE.array(memory, "touched"), n)
    flows[~touched] = 0.0
    surplus = WORKSPACE.array(memory, "surplus").reshape(-1, width)[:, :n]
    return value, flows, surplus, bits(WORKSPACE.array(memory, "unreached"), n)


def bits(words, n):
    """Return sets of positions as an array [sets, n]."""
    return (
        np.unpackbits(words.view(np.uint8), bitorder="little")
        .reshape(-1, -(-n // 64) * 64)[:, :n]
        .astype(bool)
    )


@pytest.mark.parametrize("tails", ["log-normal", "Pareto"])
@pytest.mark.parametrize(("depth", "n", "residual"), [(3, 20, 0.5), (5, 70, 0.5), (8, 33, 0.0)])
def test_the_flow_is_valid_and_equals_a_cut(depth, n, residual, tails):
    capacities = with_sink_token(depth, n, depth, tails=tails, residual=residual)
    source = n - 1
    for sink in range(0, n, 5):
        value, flows, surplus, side = solve(capacities, depth, source, sink)
        between, reach = slice(1, depth - 1), slice(sink, n)
        middle = flows[between, reach, reach]
        assert (middle >= -1e-16).all()
        assert (middle <= capacities[between, reach, reach] + 1e-16).all()
        expected = np.zeros((depth, n - sink))  # what enters each node, less what leaves it
        expected[depth - 1] = capacities[depth - 1, source, reach]
        expected[1] -= capacities[0, reach, sink]
        expected[1 : depth - 1] += middle.sum(axis=1)
        expected[2:] -= middle.sum(axis=2)
        assert np.abs(expected[1:] - surplus[1:depth, reach]).max() <= 1e-14

        # Nothing is left to move: no deficit on the source's side, and no surplus on the other.
        above, below = side[1:depth, reach], surplus[1:depth, reach]
        assert (below[above] >= -1e-15).all()
        assert (below[~above] <= 1e-15).all()
        cut = capacities[depth - 1, source, reach][~above[-1]].sum()
        cut += capacities[0, reach, sink][above[0]].sum()
        for x in range(1, depth - 1):
            cut += capacities[x, reach, reach][above[x]][:, ~above[x - 1]].sum()
        assert abs(cut - value) <= PROOF_TOLERANCE


def test_values_of_hard_graphs_agree_with_other_solvers():
    for tails in ("log-normal", "Pareto"):
        capacities = with_sink_token(5, 70, 1, tails=tails)
        flows = max_flows(capacities, layers=[5], sources=[69], threads=1)
        expected = flows_by_ortools(capacities, 5, 69)
        assert np.abs(flows.values[0, 0] - expected).max() <= 1e-9
        assert flows.proofs["augmented"] > 0


def test_values_are_those_of_other_algorithms():
    """The full flow of a single pair is computed by Dinic's algorithm alone."""
    capacities = causal(6, 70, seed=4)
    flows = max_flows(capacities, layers=[6], sources=[69], threads=1)
    for sink in range(0, 70, 7):
        pair = max_flow(capacities, layer=6, source=69, sink=sink)
        assert abs(flows.values[0, 0, sink] - pair.value) <= 2 * PROOF_TOLERANCE


def test_flows_between_sets_of_a_decoder_agree_with_other_solvers():
    """From many positions together, the greedy flow takes so long that waves begin at once."""
    capacities = with_sink_token(5, 100, 0, tails="Pareto")
    answer, words = tuple(range(80, 100)), [(t, t + 1, t + 2) for t in range(0, 99, 3)]
    flows = group_flows(capacities, layers=[5], sources=[answer], sinks=words, threads=1)
    merged = merge_sources(merge_sinks(capacities, words), [answer])
    expected = flows_by_ortools(merged, 5, 99, [word[0] for word in words])
    assert np.abs(flows.values[0, 0] - expected).max() <= 1e-9
    assert flows.proofs["augmented"] > 20
