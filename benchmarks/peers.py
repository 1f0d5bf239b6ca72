"""General maximum-flow solvers behind one signature: flows from one position to some tokens."""

from collections.abc import Callable, Sequence

import igraph
import networkx as nx
import numpy as np
from networkx.algorithms import flow as nx_flow
from numpy.typing import NDArray
from ortools.graph.python import max_flow as ortools_flow
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from attnflow.maxflow import max_flows

Floats = NDArray[np.float64]
Job = Callable[[Floats, int, int, Sequence[int]], Floats]  # capacities, layer, source, tokens

OR_TOOLS_SCALE = 2**50  # OR-tools computes with 64-bit integers, SciPy with 32-bit ones
SCIPY_SCALE = 2**20


def edges(capacities: Floats, layer: int, source: int) -> tuple[NDArray[np.int64], ...]:
    """Return tails, heads and capacities of all edges below the source."""
    n = capacities.shape[1]
    x, u, q = np.nonzero(capacities[:layer])
    below = (x < layer - 1) | (u == source)
    x, u, q = x[below], u[below], q[below]
    return (x + 1) * n + u, x * n + q, capacities[x, u, q]


def attnflow(capacities: Floats, layer: int, source: int, tokens: Sequence[int]) -> Floats:
    flows = max_flows(capacities, layers=[layer], sources=[source], sinks=tokens, threads=1)
    return np.asarray(flows.values[0, 0])


def or_tools(capacities: Floats, layer: int, source: int, tokens: Sequence[int]) -> Floats:
    tails, heads, weights = edges(capacities, layer, source)
    solver = ortools_flow.SimpleMaxFlow()
    integers = np.rint(weights * OR_TOOLS_SCALE).astype(np.int64)
    solver.add_arcs_with_capacity(tails, heads, integers)
    flows = []
    for token in tokens:
        solver.solve(layer * capacities.shape[1] + source, token)
        flows.append(solver.optimal_flow() / OR_TOOLS_SCALE)
    return np.asarray(flows)


def i_graph(capacities: Floats, layer: int, source: int, tokens: Sequence[int]) -> Floats:
    tails, heads, weights = edges(capacities, layer, source)
    n = capacities.shape[1]
    graph = igraph.Graph(n=(layer + 1) * n, edges=np.stack([tails, heads], axis=1), directed=True)
    top = layer * n + source
    listed = weights.tolist()
    return np.asarray([graph.maxflow_value(top, token, capacity=listed) for token in tokens])


def sci_py(capacities: Floats, layer: int, source: int, tokens: Sequence[int]) -> Floats:
    tails, heads, weights = edges(capacities, layer, source)
    size = (layer + 1) * capacities.shape[1]
    integers = np.rint(weights * SCIPY_SCALE).astype(np.int32)
    graph = csr_array((integers, (tails, heads)), shape=(size, size))
    top = layer * capacities.shape[1] + source
    return (
        np.asarray([maximum_flow(graph, top, token).flow_value for token in tokens]) / SCIPY_SCALE
    )


def networkx_job(algorithm: Callable[..., nx.DiGraph]) -> Job:
    def job(capacities: Floats, layer: int, source: int, tokens: Sequence[int]) -> Floats:
        graph = nx.DiGraph()
        for tail, head, weight in zip(*edges(capacities, layer, source), strict=True):
            graph.add_edge(int(tail), int(head), capacity=float(weight))
        top = layer * capacities.shape[1] + source
        return np.asarray(
            [nx.maximum_flow_value(graph, top, token, flow_func=algorithm) for token in tokens]
        )

    return job


def solve_as_authors(capacities: Floats, pairs: Sequence[tuple[int, int, int]]) -> Floats:
    """Do what the paper's repository does: build the graph once, run Edmonds-Karp for each pair.

    pairs: layer, position, token.
    """
    n = capacities.shape[1]
    graph = nx.DiGraph()
    for x, u, q in zip(*np.nonzero(capacities), strict=True):
        graph.add_edge(int((x + 1) * n + u), int(x * n + q), capacity=float(capacities[x, u, q]))
    flow = nx_flow.edmonds_karp
    return np.asarray(
        [nx.maximum_flow_value(graph, k * n + p, t, flow_func=flow) for k, p, t in pairs]
    )


GENERAL: dict[str, Job] = {
    "OR-tools": or_tools,
    "igraph": i_graph,
    "SciPy (capacities rounded to 2^-20)": sci_py,
    "networkx preflow-push": networkx_job(nx_flow.preflow_push),
    "networkx Edmonds-Karp (the authors' choice)": networkx_job(nx_flow.edmonds_karp),
}
# The number of tokens for slow solvers at each size, and the largest size; all would take hours.
TOKENS: dict[str, dict[int, int]] = {
    "igraph": {256: 32},
    "SciPy (capacities rounded to 2^-20)": {150: 32, 256: 16},
    "networkx preflow-push": {16: 8, 64: 2},
    "networkx Edmonds-Karp (the authors' choice)": {16: 8},
}
LARGEST = {
    "networkx preflow-push": 64,
    "networkx Edmonds-Karp (the authors' choice)": 16,
}
