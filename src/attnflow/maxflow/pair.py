"""One pair of source and sink: its maximum flow in full, or its value with a proof, compiled.

`max_flow` returns the flow on every edge and the minimum cut. `solve_pair` computes only the
value, by the cheapest stage that can prove it, and `solve_chunk` does so for many pairs; the
`solver` runs it on threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnflow.maxflow.greedy import BLOCKED, greedy_flow, order_source_edges
from attnflow.maxflow.jit import contains, inlined, kernel, pointer
from attnflow.maxflow.layout import BLOCK, SHALLOW, workspace_of
from attnflow.maxflow.network import (
    EPSILON,
    PROOF_TOLERANCE,
    Network,
    Pair,
    build_network,
    check_indices,
    graph_of,
    read_capacities,
    span,
)
from attnflow.maxflow.proofs import UNKNOWN, flow_from_layer_below, guessed_cut
from attnflow.maxflow.residual import (
    Edges,
    allocate_workspace,
    load_greedy_flow,
    maximize,
    reset_sets,
    searched_cut,
)
from attnflow.maxflow.waves import flow_by_waves_if, list_open_edges

# How a value was proved. Kernels use the index in this tuple.
PROOFS = (
    "closed_form",  # one or two layers, where a sum of minima is a flow and a cut; or no path
    "end_cut",  # all edges out of the source, or all into the sink, are saturated
    "guessed_cut",  # a cut guessed from the greedy flow equals it
    "searched_cut",  # a search of the residual graph found no augmenting path
    "augmented",  # a search found augmenting paths, and none after these were used
    "within_tolerance",  # as close to an upper bound as the caller allowed
    "layer_bounds",  # lower and upper bounds from the flows of the layer below are equal
    "integers",  # rounding separated flow and cut; solved again with integers
    "unproved",  # the same, before it is solved again
)
CLOSED_FORM, END_CUT, GUESSED_CUT, SEARCHED_CUT, AUGMENTED = 0, 1, 2, 3, 4
WITHIN_TOLERANCE, LAYER_BOUNDS, INTEGERS, UNPROVED = 5, 6, 7, 8

# In causal graphs, waves begin after two sinks in a row whose greedy flow was not maximum, and took
# many pushes for each node that paths can visit; or after one that took very many, as with several
# sources, whether it was maximum or not.
PUSHES_PER_NODE = 1.5
VERY_MANY = 5.0  # times as many
PUSHES_OF_LONG_TEXTS = 5.0  # the same if rows do not fit into the nearer caches
LONG_TEXT = 512  # tokens; more is long
ROOMS_PER_PUSH = 0.7  # with more rooms to measure than this, the greedy flow is faster
ROOMS_OF_END_CUTS = 0.35  # the same if a cut around one end is minimum: the greedy flow finds it
SINKS_BY_WAVES = 64  # before the greedy flow is tried again
SINKS_WITHOUT = 64  # after waves were slower

INTEGER_SCALE = 2.0**50  # the integer for a capacity of 1; sums of thousands fit into 64 bits


# One pair in full


@dataclass(frozen=True)
class PairFlow:
    """A maximum flow from one position to one token, with its minimum cut.

    value: the value of the flow, and the capacity of the cut.
    edges: [layer, n, n], the flow on every edge, indexed like the capacities.
    source_side: [layer + 1, n], the positions (row 0: tokens) on the source's side of the cut.
    All edges from this side to the other are saturated.
    """

    value: float
    edges: NDArray[np.float64]
    source_side: NDArray[np.bool_]


def max_flow(capacities: NDArray[np.float64], *, layer: int, source: int, sink: int) -> PairFlow:
    """Compute a maximum flow from one position to one token, with the flow on every edge.

    capacities: [layers, n, n], as in `max_flows`. layer: the source lies above this layer.
    Raises InputError for a layer or position that does not exist.

    >>> pair = max_flow(np.asarray([[[0.5, 0.5], [0.0, 1.0]]] * 2), layer=2, source=0, sink=1)
    >>> pair.value
    1.0
    >>> pair.edges[1, 0]
    array([0.5, 0.5])
    """
    network, factor, unlimited = build_network(read_capacities(capacities))
    [layer] = check_indices("layer", [layer], 1, network.depth).tolist()
    source, sink = check_indices("position", [source, sink], 0, network.n - 1).tolist()
    value, flow, side = solve_in_full(network, layer, source, sink)
    edges = flow.reshape(network.depth, network.n, network.n)[:layer]
    if factor != 1.0:
        edges *= factor
    value = np.inf if value >= unlimited else float(value * factor)
    return PairFlow(value, np.maximum(edges, 0.0, out=edges), side)


FullSolution = tuple[float, NDArray[np.float64], NDArray[np.bool_]]


def solve_in_full(network: Network, level: int, source: int, sink: int) -> FullSolution:
    """Return value, flow on all edges (flat) and source side of a maximum flow.

    Computes with integers if rounding separates flow and cut.
    """
    if level == 1:
        return _solve_one_layer(network, source, sink)
    value, cut, side, flow = _maximize(network, level, source, sink, network.capacity, EPSILON)
    if abs(value - cut) <= PROOF_TOLERANCE:
        return float(value), flow, side
    return solve_with_integers(network, level, source, sink)


def solve_with_integers(network: Network, level: int, source: int, sink: int) -> FullSolution:
    """Do the same without rounding errors, on capacities rounded to multiples of 2**-50."""
    if level == 1:
        return _solve_one_layer(network, source, sink)
    capacity = np.rint(network.capacity * INTEGER_SCALE).astype(np.int64)
    value, cut, side, flow = _maximize(network, level, source, sink, capacity, np.int64(0))
    assert value == cut, "a maximum flow of integers must equal its cut"
    return float(value) / INTEGER_SCALE, flow / INTEGER_SCALE, side


def _solve_one_layer(network: Network, source: int, sink: int) -> FullSolution:
    flow = np.zeros_like(network.capacity)
    edge = source * network.n + sink
    flow[edge] = network.capacity[edge]
    side = np.zeros((2, network.n), np.bool_)
    side[1, source] = True
    return float(flow[edge]), flow, side


def _maximize(
    network: Network, level: int, source: int, sink: int, capacity: NDArray[Any], epsilon: Any
) -> tuple[Any, Any, NDArray[np.bool_], NDArray[Any]]:
    """Run `maximize_from_zero`; returns value, cut, the source side of the cut, and the flow."""
    side = np.zeros((level + 1, network.n), np.bool_)
    flow = np.zeros_like(capacity)
    left = np.zeros((network.depth + 1) * network.n, capacity.dtype)
    memory = allocate_workspace(network.n, network.depth)
    edges = (capacity, flow, left, epsilon)
    value, cut = maximize_from_zero((level, source, sink), edges, side, tuple(network), memory)
    return value, cut, side, flow


@kernel
def maximize_from_zero(pair: Any, edges: Any, side: Any, network: Any, memory: Any) -> Any:
    """Compute a maximum flow by Dinic's algorithm alone; fills edges.flow and side.

    pair, edges and network may be plain tuples, as in `solve_chunk`.
    """
    pair, edges, network = Pair(*pair), Edges(*edges), Network(*network)
    net, ws = graph_of(network), workspace_of(memory)
    first, end = span(pair, net)
    capacity, flow, left = edges.capacity, edges.flow, edges.left
    edges = Edges(pointer(capacity, 0), pointer(flow, 0), pointer(left, 0), edges.epsilon)
    reset_sets(pair, net, ws)
    value, _ = maximize(pair, edges, network, memory)
    cut = searched_cut(pair, edges.capacity, network, memory)
    for level in range(1, pair.level):
        for u in range(end):  # no path leads from earlier positions to the sink
            side[level, u] = u < first or contains(ws.unreached, level * net.n_words, u)
    side[pair.level, pair.source] = True
    return value, cut


# Values of many pairs


class Job(NamedTuple):
    """Pairs to solve, and arrays for the results, as `solve_chunk` reads and fills them."""

    levels: Any  # ascending
    sources: Any
    sinks: Any
    sink_capacity: Any  # [sinks], the sum of each sink's last edges; only if all_sources
    all_sources: bool  # whether sources are all positions in order: then layers bound the next
    tolerance: float
    stop: Any  # stop[0] is read before every pair: other threads set it to end the work
    lower: Any  # [levels, sources, sinks], results: values
    upper: Any  # bounds
    proofs: Any  # indices of PROOFS


class Chunk(NamedTuple):
    """A range of indices of a job's levels, and one of its sources."""

    first_level: int
    end_level: int
    first_source: int
    end_source: int


@kernel
def solve_chunk(network: Any, chunk: Any, job: Any, memory: Any) -> None:
    """Solve all pairs of a chunk.

    network, chunk and job may be plain tuples, which Numba unpacks faster than named ones.
    """
    network, chunk, job = Network(*network), Chunk(*chunk), Job(*job)
    ws = workspace_of(memory)
    n = network.n
    if may_use_waves(job.levels[chunk.first_level], job.tolerance, network):
        list_open_edges(pointer(network.capacity, 0), memory)
    for i in range(chunk.first_level, chunk.end_level):
        level = job.levels[i]
        bounded = job.all_sources and i > 0 and level > 2 and job.levels[i - 1] == level - 1
        for r in range(chunk.first_source, chunk.end_source):
            s = job.sources[r]
            if level > 2:
                order_source_edges(level, s, network, memory)
            edges = pointer(network.capacity, ((level - 1) * n + s) * n)
            ws.trial[0] = 0
            for k in range(job.sinks.size):
                if job.stop[0] != 0:
                    return
                if bounded:
                    value = flow_from_layer_below(
                        s, k, n, job.sink_capacity[k], job.lower[i - 1], job.upper[i - 1], edges,
                        ws.demand,
                    )  # fmt: skip
                    if value != UNKNOWN:
                        job.lower[i, r, k] = job.upper[i, r, k] = value
                        job.proofs[i, r, k] = LAYER_BOUNDS
                        continue
                pair = Pair(level, s, job.sinks[k])
                value, cut, proof = solve_next(pair, job.tolerance, network, memory)
                job.lower[i, r, k] = value
                job.upper[i, r, k] = cut
                job.proofs[i, r, k] = proof


@inlined
def may_use_waves(level: int, tolerance: float, network: Any) -> bool:
    """Return whether waves can solve pairs from this level. Blocks of edges need 64 edges."""
    shallow = level <= SHALLOW and network.n * network.n >= BLOCK
    return network.causal is not None and shallow and tolerance == 0


@inlined
def solve_next(pair: Any, tolerance: float, network: Any, memory: Any) -> tuple[float, float, int]:
    """Return value, cut and proof of a pair, by waves or by the greedy flow first.

    ws.trial[0]: how many of the next sinks begin with waves; -1 after one that was hard for the
    greedy flow, less for sinks that must do without waves. The rest of ws.trial tells whether waves
    are worth their time: pushes per node of the last greedy flow, and since then the
    rooms that waves measured, pairs, and their nodes.
    """
    net, ws = graph_of(network), workspace_of(memory)
    first, end = span(pair, net)
    n_nodes = (end - first) * (pair.level - 1)
    trial = ws.trial
    if trial[0] > 0 and pair.source >= pair.sink:
        into = pointer(net.column, pair.sink * net.n)
        rooms_before = trial[2]
        value = flow_by_waves_if(net.causal, tuple(pair), net.capacity, into, memory)
        cut = searched_cut(pair, net.capacity, network, memory)
        trial[0] -= 1
        trial[3] += 1
        trial[4] += n_nodes
        is_slow = trial[2] - rooms_before > ROOMS_OF_END_CUTS * trial[1] * n_nodes
        if is_slow and cut >= end_cut(pair, net):
            trial[0] = 0
        elif trial[3] >= 8 and trial[2] > ROOMS_PER_PUSH * trial[1] * trial[4]:
            trial[0] = -SINKS_WITHOUT
        if abs(cut - value) <= PROOF_TOLERANCE:
            return cut, cut, AUGMENTED
        trial[0] = -SINKS_WITHOUT
    value, cut, proof, pushes = solve_pair(pair, tolerance, network, memory)
    pushes_per_node = pushes / n_nodes if n_nodes > 0 else 0.0
    least = PUSHES_PER_NODE if net.n <= LONG_TEXT else PUSHES_OF_LONG_TEXTS
    is_very_hard = pushes_per_node > VERY_MANY * least
    is_hard = is_very_hard or (proof == AUGMENTED and pushes_per_node > least)
    if trial[0] < -1:
        trial[0] += 1
    elif not (is_hard and may_use_waves(pair.level, tolerance, network)):
        trial[0] = 0
    else:
        trial[0] = SINKS_BY_WAVES if trial[0] < 0 or is_very_hard else -1
        trial[1], trial[2], trial[3], trial[4] = pushes_per_node, 0, 0, 0
    return value, cut, proof


@inlined
def solve_pair(
    pair: Any, tolerance: float, network: Any, memory: Any
) -> tuple[float, float, int, int]:
    """Return the maximum flow of a pair, the capacity of a cut, how they were proved, and pushes.

    `order_source_edges` must have been called for the source.
    """
    net, ws = graph_of(network), workspace_of(memory)
    if net.causal is not None and pair.source < pair.sink:
        return 0.0, 0.0, CLOSED_FORM, 0
    if pair.level <= 2:
        value = closed_form(pair, net)
        return value, value, CLOSED_FORM, 0
    value, end, pushes = greedy_flow(pair, network, memory)
    if end != BLOCKED:
        return value, value, END_CUT, pushes
    if pushes <= ws.log_size:
        cut = guessed_cut(value, pair, network, memory)
        if cut - value <= PROOF_TOLERANCE:
            return cut, cut, GUESSED_CUT, pushes
        if tolerance > 0:
            cut = min(cut, end_cut(pair, net))
            if cut - value <= tolerance:
                return value, cut, WITHIN_TOLERANCE, pushes
    load_greedy_flow(pair, pushes, network, memory)
    value = value if pushes <= ws.log_size else 0.0  # if the log is full, start again from zero
    edges = Edges(net.capacity, ws.flow, ws.left, EPSILON)
    added, rounds = maximize(pair, edges, network, memory)
    value += added
    cut = searched_cut(pair, net.capacity, network, memory)
    if abs(cut - value) > PROOF_TOLERANCE:
        return value, cut, UNPROVED, pushes
    return cut, cut, (AUGMENTED if rounds else SEARCHED_CUT), pushes


@kernel
def closed_form(pair: Any, net: Any) -> float:
    """Return the flow through one or two layers: an edge, or a sum of minima."""
    n, s, t = net.n, pair.source, pair.sink
    if pair.level == 1:
        return float(net.capacity[s * n + t])
    value = 0.0
    for q in range(n):
        value += min(net.capacity[(n + s) * n + q], net.column[t * n + q])
    return value


@kernel
def end_cut(pair: Any, net: Any) -> float:
    """Return the smaller of the cuts around the source and around the sink."""
    first, end = span(pair, net)
    n = net.n
    out = 0.0
    into = 0.0
    for q in range(first, end):
        out += net.capacity[((pair.level - 1) * n + pair.source) * n + q]
        into += net.column[pair.sink * n + q]
    return min(out, into)
