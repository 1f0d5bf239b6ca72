"""Layered networks for tests, and independent solvers to compare with."""

from collections.abc import Iterator

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from ortools.graph.python import max_flow as ortools_flow

Floats = NDArray[np.float64]
SCALE = 2**40  # OR-tools takes integers: capacities are rounded to multiples of 1 / SCALE


def attention(depth: int, n: int, seed: int, sharpness: float = 2.0) -> Floats:
    """Attention-like capacities: softmax rows, half of each on the diagonal."""
    scores = np.exp(sharpness * np.random.default_rng(seed).normal(size=(depth, n, n)))
    return np.asarray(0.5 * scores / scores.sum(-1, keepdims=True) + 0.5 * np.eye(n))


def causal(depth: int, n: int, seed: int) -> Floats:
    """The same without edges to later positions."""
    lower = np.tril(attention(depth, n, seed))
    return np.asarray(lower / lower.sum(-1, keepdims=True))


def small_integers(depth: int, n: int, seed: int, largest: int = 4) -> Floats:
    """Small integers, a third of them zero, so that many paths and cuts tie."""
    numbers = np.random.default_rng(seed).integers(-largest // 2, largest + 1, (depth, n, n))
    return np.maximum(numbers, 0).astype(np.float64)


def permutations(depth: int, n: int, seed: int) -> Floats:
    """One edge from every position."""
    rng = np.random.default_rng(seed)
    return np.stack([np.eye(n)[rng.permutation(n)] for _ in range(depth)])


def narrow_middle(depth: int, n: int, seed: int) -> Floats:
    """Attention with a layer in the middle that leads everything through one position."""
    capacities = attention(depth, n, seed)
    capacities[depth // 2] = 0.0
    capacities[depth // 2, :, n // 2] = 1.0
    return capacities


def dominant_path(depth: int, n: int, seed: int) -> Floats:
    """Nearly all capacity lies on one path."""
    rng = np.random.default_rng(seed)
    capacities = attention(depth, n, seed) * 1e-9
    path = rng.integers(0, n, depth + 1)
    for x in range(depth):
        capacities[x, path[x + 1], path[x]] = 1.0
    return capacities


def mixed_magnitudes(depth: int, n: int, seed: int) -> Floats:
    """Capacities from 1e-300 to 1."""
    rng = np.random.default_rng(seed)
    return np.asarray(10.0 ** -rng.choice([0.0, 1.0, 8.0, 16.0, 300.0], (depth, n, n)))


def equal_everywhere(depth: int, n: int, _seed: int) -> Floats:
    """The same capacity on every edge."""
    return np.full((depth, n, n), 1.0 / n)


KINDS = {
    kind.__name__: kind
    for kind in (
        attention,
        causal,
        small_integers,
        permutations,
        narrow_middle,
        dominant_path,
        mixed_magnitudes,
        equal_everywhere,
    )
}


def flows_by_ortools(
    capacities: Floats, layer: int, source: int, sinks: list[int] | None = None
) -> Floats:
    """Compute flows to sinks (all by default) with OR-tools, on rounded capacities."""
    n = capacities.shape[1]
    solver = ortools_flow.SimpleMaxFlow()
    for x, u, q in _edges(capacities, layer, source):
        capacity = round(float(capacities[x, u, q]) * SCALE)
        solver.add_arc_with_capacity((x + 1) * n + u, x * n + q, capacity)
    solver.add_arc_with_capacity(layer * n + source, (layer + 1) * n, 0)  # adds all nodes
    for q in range(n):
        solver.add_arc_with_capacity((layer + 1) * n, q, 0)
    flows = []
    for t in range(n) if sinks is None else sinks:
        assert solver.solve(layer * n + source, t) == solver.OPTIMAL
        flows.append(solver.optimal_flow() / SCALE)
    return np.asarray(flows)


def flow_by_networkx(capacities: Floats, layer: int, source: int, sink: int) -> float:
    """Compute one flow with networkx, by shortest augmenting paths in floating point."""
    graph = nx.DiGraph()
    graph.add_nodes_from([(layer, source), (0, sink)])
    for x, u, q in _edges(capacities, layer, source):
        graph.add_edge((x + 1, u), (x, q), capacity=float(capacities[x, u, q]))
    flow = nx.algorithms.flow.shortest_augmenting_path
    return float(nx.maximum_flow_value(graph, (layer, source), (0, sink), flow_func=flow))


def _edges(capacities: Floats, layer: int, source: int) -> Iterator[tuple[int, int, int]]:
    for x in range(layer):
        for u, q in np.argwhere(capacities[x] > 0):
            if x < layer - 1 or u == source:
                yield x, int(u), int(q)
