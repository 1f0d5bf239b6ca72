"""Proofs without a search: a cut guessed from the greedy flow, and bounds from the layer below.

Both are sums and minima of capacities and known flows. `residual` proves by search what they
cannot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.jit import (
    NO_MEMBER,
    ONE,
    contains,
    first_member,
    inlined,
    insert,
    vectorized,
)
from attnflow.maxflow.layout import workspace_of
from attnflow.maxflow.network import EPSILON, PROOF_TOLERANCE, graph_of, span

# Returned by `flow_from_layer_below` if the bounds do not meet.
UNKNOWN = -1.0

# A cut guessed from the greedy flow


@vectorized
def guessed_cut(value: float, pair: Any, network: Any, memory: Any) -> float:
    """Return the capacity of a cut that is probably minimum, after a greedy flow of `value`.

    A blocked position has no unsaturated edge to an unblocked one. So if the source's side of a
    cut consists of blocked positions, its outgoing edges are saturated; if moreover no flow
    returns into it, its capacity equals the flow, which proves that both are optimal. If the
    guess is wrong, the cut is larger than the flow. Returns infinity if there are so many blocked
    positions that a search is cheaper.
    """
    net, ws = graph_of(network), workspace_of(memory)
    first, end = span(pair, net)
    n, n_words = net.n, net.n_words
    side = ws.unreached  # here: the source's side of the cut, levels 2 … pair.level - 1
    for e in range(2 * n_words, pair.level * n_words):
        side[e] = NO_MEMBER
    row = ((pair.level - 1) * n + pair.source) * n
    cut = 0.0
    for u in range(first, end):  # one level down: exactly the unsaturated edges
        if net.capacity[row + u] - ws.source_flow[u] > EPSILON:
            insert(side, (pair.level - 1) * n_words, u)
        else:
            cut += net.capacity[row + u]
    for level in range(pair.level - 2, 1, -1):
        if not add_blocked(level, side, pair, net, ws):
            return np.inf
    for level in range(pair.level - 1, 2, -1):
        for u in range(first, end):
            if contains(side, level * n_words, u):
                row = ((level - 1) * n + u) * n
                cut += capacity_across(row, (level - 1) * n_words, side, pair, net)
        if cut > value + 1.0:
            return np.inf
    return cut + lowest_cut(side, pair, net, ws)


@inlined
def add_blocked(level: int, side: Any, pair: Any, net: Any, ws: Any) -> bool:
    """Add blocked positions of a level to the source's side, where that makes the cut smaller.

    It does if more capacity enters a position from this side than leaves it to the other.
    Returns False if there are too many to check.
    """
    first, end = span(pair, net)
    n, n_words = net.n, net.n_words
    checked = 0
    for u in range(first, end):
        if contains(ws.unblocked, level * n_words, u):
            continue
        checked += 1
        if checked > 16 + n // 4:
            return False
        row = ((level - 1) * n + u) * n
        change = 0.0
        for q in range(first, end):
            if level == 2:
                change += min(net.capacity[row + q], net.column[pair.sink * n + q])
            elif contains(ws.unblocked, (level - 1) * n_words, q):
                change += net.capacity[row + q]
        for w in range(n_words):
            word = side[(level + 1) * n_words + w]
            while word != 0:
                p = first_member(word, w)
                word &= word - ONE
                change -= net.capacity[(level * n + p) * n + u]
        if change < 0:
            insert(side, level * n_words, u)
    return True


@inlined
def capacity_across(row: int, below: int, side: Any, pair: Any, net: Any) -> float:
    """Return the capacity of one position's edges to the sink's side of the level below."""
    first, end = span(pair, net)
    total = 0.0
    for q in range(first, end):
        if not contains(side, below, q):
            total += net.capacity[row + q]
    return total


@inlined
def lowest_cut(side: Any, pair: Any, net: Any, ws: Any) -> float:
    """Return the smallest cut below level 2: each position of level 1 is cut above or below."""
    first, end = span(pair, net)
    n = net.n
    above = ws.cursor_flow  # the greedy flow is done with it
    for q in range(first, end):
        above[q] = 0.0
    for u in range(first, end):
        if contains(side, 2 * net.n_words, u):
            row = (n + u) * n
            for q in range(first, end):
                above[q] += net.capacity[row + q]
    cut = 0.0
    for q in range(first, end):
        cut += min(above[q], net.column[pair.sink * n + q])
    return cut


# Bounds from the layer below


@vectorized
def flow_from_layer_below(
    s: int, k: int, n: int, sink_capacity: float, lower: Any, upper: Any, edges: Any, flows: Any
) -> float:
    """Return the flow from s to sink number k if the flows one level below determine it.

    A cut has some positions S of the level below on the source's side. It consists of the
    source's edges to all other positions, and of a cut between S and the sink. The latter is at
    least the largest flow of a position in S, and at most the sum of their flows. This bounds
    the minimum cut from both sides; if the bounds meet, they are the flow. Else returns UNKNOWN.

    lower, upper: [positions, sinks], bounds of the flows one level below. sink_capacity: the sum
    of the last edges. edges: [n], the source's capacities. flows: [n], temporary.
    """
    bound = 0.0
    for u in range(n):
        bound += min(edges[u], upper[u, k])
    bound = min(bound, sink_capacity)
    for u in range(n):
        flows[u] = lower[u, k]
    enough = bound - PROOF_TOLERANCE / 4
    for j in range(n):  # the source's own position first, since it most often refutes the bound
        u = s + j if s + j < n else s + j - n
        if flows[u] < enough:  # the smallest cut with u, and no position with more flow, in S
            cut = flows[u]
            for w in range(n):
                cut += edges[w] if flows[w] > flows[u] else 0.0
            if cut < enough:
                return UNKNOWN
    return bound
