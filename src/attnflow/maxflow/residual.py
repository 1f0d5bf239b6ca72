"""Dinic's algorithm on the residual graph: it augments any flow to a maximum flow with its cut.

A breadth-first search finds the nodes that reach the sink over edges with residual capacity. If the
source does, a blocking flow is pushed along shortest augmenting paths, and the search starts
again. If not, the nodes that it reached are the sink's side of a minimum cut. The code
only adds, subtracts and compares, so it also runs on integers, without any rounding.

Two properties keep a search cheap on dense layers. It looks only at positions not yet reached,
so it visits each layer about once. And flow can be cancelled only on edges that carry some, which
the `inflow` sets list.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnflow.maxflow.jit import (
    NO_MEMBER,
    ONE,
    contains,
    fill,
    first_member,
    inlined,
    insert,
    kernel,
    members_from,
    remove,
)
from attnflow.maxflow.layout import WORKSPACE, Memory, unpack_edge, workspace_of
from attnflow.maxflow.network import graph_of, span


class Edges(NamedTuple):
    """Edges of a residual graph: real numbers, or integers."""

    capacity: Any  # [depth, n, n] flat
    residual: Any  # the same, changed while flow is pushed
    epsilon: Any  # residual capacities up to this count as zero


@kernel
def maximize(pair: Any, edges: Any, network: Any, memory: Any) -> Any:
    """Augment the flow until it is maximum; returns the flow added and the number of rounds."""
    net, ws = graph_of(network), workspace_of(memory)
    added = edges.epsilon - edges.epsilon  # zero of the right type
    rounds = 0
    while search(pair, edges, net, ws):
        added += push_blocking_flow(pair, edges, net, ws)
        rounds += 1
    return added, rounds


@kernel
def searched_cut(pair: Any, capacity: Any, network: Any, memory: Any) -> Any:
    """Return the capacity of the cut around the nodes that the last search reached."""
    net, ws = graph_of(network), workspace_of(memory)
    first, end = span(pair, net)
    n, n_words = net.n, net.n_words
    cut = capacity[0] - capacity[0]
    for level in range(pair.level, 0, -1):
        for u in range(first, end):
            if level == pair.level:
                outside = u == pair.source
            else:
                outside = contains(ws.unreached, level * n_words, u)
            if not outside:
                continue
            row = ((level - 1) * n + u) * n
            if level == 1:
                cut += capacity[row + pair.sink]
                continue
            for w in range(n_words):
                word = ws.reached[(level - 1) * n_words + w]
                while word != 0:
                    cut += capacity[row + first_member(word, w)]
                    word &= word - ONE
    return cut


# Search


@inlined
def search(pair: Any, edges: Any, net: Any, ws: Any) -> bool:
    """Search the residual graph from the sink up; returns whether the source was reached.

    A path of the residual graph goes down over unsaturated edges, and up where it cancels flow.
    Its length follows from the number of its steps up: round `steps` of the search reaches all
    nodes whose shortest path to the sink has so many, level by level.
    ws.reached and ws.unreached divide the positions of levels 1 … pair.level - 1.
    """
    first, end = span(pair, net)
    n, n_words, top = net.n, net.n_words, pair.level
    source = top * n + pair.source
    for level in range(1, top):
        fill(ws.unreached, level * n_words, n_words, first, end)
    for e in range(n_words, top * n_words):
        ws.reached[e] = NO_MEMBER
        ws.latest[e] = NO_MEMBER
    steps = 0
    found = True
    while found:
        found = False
        for level in range(1, top):
            found |= reach_level(level, steps, pair, edges, net, ws)
        if has_room(source, top, edges, net, ws):
            ws.back_steps[source] = steps
            ws.current_arc[source] = 0
            return True
        steps += 1
    return False


@inlined
def reach_level(level: int, steps: int, pair: Any, edges: Any, net: Any, ws: Any) -> bool:
    """Reach the nodes of a level in this round; returns whether there are any.

    ws.latest holds the nodes reached in this round below, and in the last round from here up.
    """
    n, n_words = net.n, net.n_words
    found = False
    for w in range(n_words):
        word = ws.unreached[level * n_words + w]
        new = NO_MEMBER
        while word != 0:
            bit = word & (~word + ONE)
            node = level * n + first_member(word, w)
            word &= word - ONE
            if level > 1:
                reached = has_room(node, level, edges, net, ws)
            else:
                reached = steps == 0 and edges.residual[(node - n) * n + pair.sink] > edges.epsilon
            if not reached and steps > 0 and level < pair.level - 1:
                reached = can_cancel(node, level, edges, net, ws)
            if reached:
                new |= bit
                ws.back_steps[node] = steps
                ws.current_arc[node] = 0
        ws.unreached[level * n_words + w] &= ~new
        ws.reached[level * n_words + w] |= new
        ws.latest[level * n_words + w] = new
        found |= new != 0
    return found


@inlined
def has_room(node: int, level: int, edges: Any, net: Any, ws: Any) -> bool:
    """Return whether an unsaturated edge leads from a node to one of the latest below."""
    n, n_words = net.n, net.n_words
    row = (node - n) * n
    for w in range(n_words):
        word = ws.latest[(level - 1) * n_words + w]
        while word != 0:
            if edges.residual[row + first_member(word, w)] > edges.epsilon:
                return True
            word &= word - ONE
    return False


@inlined
def can_cancel(node: int, level: int, edges: Any, net: Any, ws: Any) -> bool:
    """Return whether a node receives flow from one of the latest above."""
    n, n_words = net.n, net.n_words
    for w in range(n_words):
        word = ws.inflow[node * n_words + w] & ws.latest[(level + 1) * n_words + w]
        while word != 0:
            edge = (level * n + first_member(word, w)) * n + node - level * n
            if edges.capacity[edge] - edges.residual[edge] > edges.epsilon:
                return True
            word &= word - ONE
    return False


# Blocking flow


@inlined
def push_blocking_flow(pair: Any, edges: Any, net: Any, ws: Any) -> Any:
    """Push flow along shortest paths until each of them is blocked; returns how much.

    Depth first from the source, because every node that the search reached lies on a path to the
    sink, so few steps in this direction lead to dead ends. The path lies in ws.path.
    """
    n, n_words = net.n, net.n_words
    added = edges.epsilon - edges.epsilon
    ws.path[0], ws.path_level[0] = pair.level * n + pair.source, pair.level
    k = 0
    while k >= 0:
        node, level = ws.path[k], ws.path_level[k]
        last = (node - n) * n + pair.sink
        if level == 1 and ws.back_steps[node] == 0 and edges.residual[last] > edges.epsilon:
            flow, k = push_path(k, edges.residual[last], edges, net, ws)
            edges.residual[last] -= flow
            note_change(last, ws)
            added += flow
        elif extend_path(k, node, level, pair, edges, net, ws):
            k += 1
        else:
            if k > 0:
                remove(ws.reached, level * n_words, node - level * n)
            k -= 1
    return added


@inlined
def extend_path(k: int, node: int, level: int, pair: Any, edges: Any, net: Any, ws: Any) -> bool:
    """Extend the path beyond its node number k by the next node of a shortest path.

    Returns False if there is none: the node is a dead end.
    """
    n = net.n
    arc = ws.current_arc[node]  # below n: an edge down, from n on: one whose flow cancels
    if arc < n and level > 1:
        if extend_downwards(k, node, level, arc, edges, net, ws):
            return True
        ws.current_arc[node] = n
        arc = n
    if level < pair.level - 1 and ws.back_steps[node] > 0:
        return extend_upwards(k, node, level, max(arc - n, 0), edges, net, ws)
    return False


@inlined
def extend_downwards(
    k: int, node: int, level: int, first: int, edges: Any, net: Any, ws: Any
) -> bool:
    """Extend the path by a node below to which this one has an unsaturated edge."""
    n, n_words, steps = net.n, net.n_words, ws.back_steps[node]
    row, below = (node - n) * n, (level - 1) * n
    for w in range(first >> 6, n_words):
        word = ws.reached[(level - 1) * n_words + w]
        if w == first >> 6:
            word = members_from(word, first)
        while word != 0:
            q = first_member(word, w)
            word &= word - ONE
            if edges.residual[row + q] > edges.epsilon and ws.back_steps[below + q] == steps:
                ws.current_arc[node] = q
                ws.path[k + 1], ws.path_level[k + 1] = below + q, level - 1
                ws.path_edge[k], ws.path_from[k] = row + q, node - level * n
                return True
    return False


@inlined
def extend_upwards(
    k: int, node: int, level: int, first: int, edges: Any, net: Any, ws: Any
) -> bool:
    """Extend the path by a node above from which this one receives flow, which can be cancelled."""
    n, n_words, steps = net.n, net.n_words, ws.back_steps[node]
    u, above = node - level * n, (level + 1) * n
    for w in range(first >> 6, n_words):
        word = ws.inflow[node * n_words + w] & ws.reached[(level + 1) * n_words + w]
        if w == first >> 6:
            word = members_from(word, first)
        while word != 0:
            p = first_member(word, w)
            word &= word - ONE
            edge = (level * n + p) * n + u
            if (
                ws.back_steps[above + p] == steps - 1
                and edges.capacity[edge] - edges.residual[edge] > edges.epsilon
            ):
                ws.current_arc[node] = n + p
                ws.path[k + 1], ws.path_level[k + 1] = above + p, level + 1
                ws.path_edge[k], ws.path_from[k] = ~edge, p
                return True
    return False


@inlined
def push_path(length: int, flow: Any, edges: Any, net: Any, ws: Any) -> Any:
    """Push up to `flow` along the path; returns how much, and the number of a node on the path.

    The path can be extended again from this node: the nearest to the source that lies above a
    saturated edge.
    """
    keep = length
    for k in range(length):
        edge = ws.path_edge[k]
        room = edges.residual[edge] if edge >= 0 else edges.capacity[~edge] - edges.residual[~edge]
        if room < flow:
            flow = room
            keep = k
    for k in range(length):
        edge = ws.path_edge[k]
        if edge >= 0:
            edges.residual[edge] -= flow
            insert(ws.inflow, ws.path[k + 1] * net.n_words, ws.path_from[k])
            note_change(edge, ws)
        else:
            edges.residual[~edge] += flow
            note_change(~edge, ws)
    return flow, keep


# The residual graph in the workspace


@kernel
def load_greedy_flow(pair: Any, pushes: int, network: Any, memory: Any) -> None:
    """Make ws.residual the residual graph of the greedy flow."""
    net, ws = graph_of(network), workspace_of(memory)
    first, end = span(pair, net)
    n, s, t, top = net.n, pair.source, pair.sink, pair.level - 1
    reset_residual(pair.level, net, ws)
    for k in range(pushes):
        x, u, q = unpack_edge(ws.log_edge[k])
        add_flow(ws.log_amount[k], x, u, q, net, ws)
    for x in range(1, top):
        for q in range(first, end):
            add_flow(ws.row_flow[x * n + q], x, s, q, net, ws)
    for u in range(first, end):
        add_flow(ws.source_flow[u], top, s, u, net, ws)
        add_flow(net.column[t * n + u] - ws.demand[u], 0, u, t, net, ws)
        chain_flow = 0.0
        for x in range(top - 1, 0, -1):
            chain_flow += ws.chain_steps[x * n + u]
            add_flow(chain_flow, x, u, u, net, ws)
            if u != t:
                add_flow(net.column[(x * n + t) * n + u] - ws.entry[x * n + u], x, u, t, net, ws)


@inlined
def add_flow(amount: float, x: int, u: int, q: int, net: Any, ws: Any) -> None:
    """Add flow to edge x from u to q, which lowers its residual capacity."""
    if amount > 0:
        edge = (x * net.n + u) * net.n + q
        ws.residual[edge] -= amount
        insert(ws.inflow, (x * net.n + q) * net.n_words, u)
        note_change(edge, ws)


@inlined
def note_change(edge: Any, ws: Any) -> None:
    """List an edge of the residual graph as changed; past the end of the list, only count."""
    count = ws.changes[0]
    if count < ws.changes_size - 1:
        ws.changes[count + 1] = np.int64(edge)
    ws.changes[0] = count + 1


def allocate_workspace(n: int, depth: int) -> Memory:
    """Return a new workspace for networks of this size."""
    memory = WORKSPACE.allocate(n, depth)
    invalidate_residual(memory, n, depth)
    return memory


def invalidate_residual(memory: Memory, n: int, depth: int) -> None:
    """Make the next `reset_residual` copy all capacities: for a new network."""
    changes = WORKSPACE.plan(n, depth).cells["changes"]
    memory.view(np.int64)[changes.start] = changes.stop - changes.start  # more than the list holds


@inlined
def reset_residual(level: int, net: Any, ws: Any) -> None:
    """Remove all flow: residual capacities equal capacities again, for a source at `level`."""
    clear_inflow(level, net, ws)
    count = ws.changes[0]
    if count < ws.changes_size:
        for k in range(1, count + 1):
            edge = ws.changes[k]
            ws.residual[edge] = net.capacity[edge]
    else:  # more changes than the list holds
        for e in range(net.depth * net.n * net.n):
            ws.residual[e] = net.capacity[e]
    ws.changes[0] = 0


@inlined
def clear_inflow(level: int, net: Any, ws: Any) -> None:
    """Empty the inflow sets of all nodes below `level`."""
    for e in range(level * net.n * net.n_words):
        ws.inflow[e] = NO_MEMBER
