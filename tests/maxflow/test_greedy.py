"""The greedy flow is a flow: it respects capacities, and positions pass on what they receive."""

import numpy as np
import pytest

from attnflow.maxflow.greedy import BLOCKED, greedy_flow, order_source_edges
from attnflow.maxflow.layout import WORKSPACE
from attnflow.maxflow.network import Pair, build_network
from attnflow.maxflow.residual import allocate_workspace, load_greedy_flow
from tests.maxflow.networks import KINDS, flows_by_ortools


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("depth", "n"), [(3, 7), (5, 6), (6, 20)])
def test_greedy_flows_are_flows_of_at_most_the_maximum(kind, depth, n):
    for seed in range(4):
        capacities = KINDS[kind](depth, n, seed)
        network, factor, _ = build_network(capacities)
        memory = allocate_workspace(n, depth)
        flows = WORKSPACE.array(memory, "flow")
        for source in (0, n // 2, n - 1):
            largest = np.asarray(flows_by_ortools(capacities, depth, source)) / factor
            order_source_edges(depth, source, network, memory)
            for sink in range(source + 1 if network.causal else n):
                pair = Pair(depth, source, sink)
                value, end, pushes = greedy_flow(pair, network, memory)
                assert value <= largest[sink] + 1e-9
                if end == BLOCKED:  # the others stop in the middle of a push
                    load_greedy_flow(pair, pushes, network, memory)
                    flow = flows.reshape(depth, n, n)
                    check_flow(flow, network.capacity.reshape(depth, n, n), sink, value)


def check_flow(flow, capacity, sink, value):
    assert flow.min() >= 0
    assert (flow - capacity).max() <= 1e-12
    assert flow[0, :, sink].sum() == pytest.approx(value, abs=1e-12)
    for above, below in zip(flow[1:], flow[:-1], strict=True):
        assert above.sum(axis=0) == pytest.approx(below.sum(axis=1), abs=1e-12)
