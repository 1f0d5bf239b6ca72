"""One pair in full: the flow on every edge, the minimum cut, and the same with integers."""

import numpy as np
import pytest

from attnflow.errors import InputError
from attnflow.maxflow import max_flow, max_flows
from attnflow.maxflow.network import build_network
from attnflow.maxflow.pair import solve_with_integers
from tests.maxflow.networks import KINDS, attention
from tests.refusal import refusal


@pytest.mark.parametrize("kind", KINDS)
def test_the_flow_is_valid_and_equals_the_cut(kind):
    for seed in range(10):
        depth, n = 1 + seed % 6, 2 + seed % 7
        capacities = KINDS[kind](depth, n, seed)
        values = max_flows(capacities, layers=[depth]).values[0]
        for source, sink in ((0, 0), (0, n - 1), (n - 1, n // 2)):
            pair = max_flow(capacities, layer=depth, source=source, sink=sink)
            assert pair.value == pytest.approx(values[source, sink], abs=1e-11)
            check_flow(pair, capacities, depth, source, sink)
            check_cut(pair, capacities, depth, source, sink)


def check_flow(pair, capacities, depth, source, sink):
    assert pair.edges.shape == capacities[:depth].shape
    assert (pair.edges >= 0).all()
    assert (pair.edges <= capacities[:depth] * (1 + 1e-12) + 1e-12).all()
    entering = pair.edges.sum(axis=1)  # [edge, position]: into level x
    leaving = pair.edges.sum(axis=2)  # out of level x + 1
    for level in range(1, depth):
        assert entering[level] == pytest.approx(leaving[level - 1], abs=1e-11)
    only_source = np.where(np.arange(capacities.shape[1]) == source, pair.value, 0.0)
    only_sink = np.where(np.arange(capacities.shape[1]) == sink, pair.value, 0.0)
    assert leaving[depth - 1] == pytest.approx(only_source, abs=1e-11)
    assert entering[0] == pytest.approx(only_sink, abs=1e-11)


def check_cut(pair, capacities, depth, source, sink):
    side = pair.source_side.copy()
    side[0] = np.arange(capacities.shape[1]) != sink
    assert side[depth].tolist() == [u == source for u in range(capacities.shape[1])]
    size = sum(capacities[x][side[x + 1]][:, ~side[x]].sum() for x in range(depth))
    assert size == pytest.approx(pair.value, abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_give_the_same_values(kind):
    capacities = KINDS[kind](4, 7, 3)
    network, factor, _ = build_network(capacities)
    for source, sink in np.ndindex(7, 7):
        value, _, _ = solve_with_integers(network, 4, source, sink)
        expected = max_flow(capacities, layer=4, source=source, sink=sink).value
        assert value * factor == pytest.approx(expected, abs=1e-11)


def test_sources_of_lower_layers():
    capacities = attention(5, 6, seed=4)
    pair = max_flow(capacities, layer=3, source=2, sink=1)
    assert pair.value == pytest.approx(max_flows(capacities, layers=[3]).values[0, 2, 1], abs=1e-12)
    assert pair.edges.shape == (3, 6, 6)


def test_layers_and_positions_that_do_not_exist():
    capacities = attention(2, 3, seed=0)
    with refusal(InputError, "layer is 3", "1 to 2"):
        max_flow(capacities, layer=3, source=0, sink=0)
    with refusal(InputError, "position is -1", "0 to 2"):
        max_flow(capacities, layer=2, source=0, sink=-1)


def test_infinite_flow():
    capacities = np.asarray([[[np.inf, 0.0], [0.5, 0.5]]] * 3)
    assert max_flow(capacities, layer=3, source=0, sink=0).value == np.inf
