"""The greedy flow is a flow: no edge is overfull, and what enters a position leaves it."""

import numpy as np
import pytest

from attnflow.maxflow.greedy import STUCK, greedy_flow, sort_edges
from attnflow.maxflow.layout import build_network, build_scratch
from attnflow.maxflow.residual import load_greedy
from tests.maxflow.networks import KINDS, flows_by_ortools


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("depth", "n"), [(3, 7), (5, 6), (6, 20)])
def test_greedy_flows_are_flows_and_none_is_too_large(kind, depth, n):
    for seed in range(4):
        capacities = KINDS[kind](depth, n, seed)
        network, factor, _ = build_network(capacities)
        scratch = build_scratch(n, depth)
        residual = scratch.reals[-network.capacity.size :]  # where it lies
        for source in (0, n // 2, n - 1):
            largest = np.asarray(flows_by_ortools(capacities, depth, source)) / factor
            sort_edges(depth, source, network, scratch)
            for sink in range(source + 1 if network.causal else n):
                value, end, pushes = greedy_flow(depth, source, sink, network, scratch)
                assert value <= largest[sink] + 1e-9
                if end == STUCK:  # the others stop in the middle of a push
                    load_greedy(depth, source, sink, pushes, network, scratch)
                    flow = (network.capacity - residual).reshape(depth, n, n)
                    check_flow(flow, network.capacity.reshape(depth, n, n), sink, value)


def check_flow(flow, capacity, sink, value):
    assert flow.min() >= 0
    assert (flow - capacity).max() <= 1e-12
    assert flow[0, :, sink].sum() == pytest.approx(value, abs=1e-12)
    for above, below in zip(flow[1:], flow[:-1], strict=True):
        assert above.sum(axis=0) == pytest.approx(below.sum(axis=1), abs=1e-12)
