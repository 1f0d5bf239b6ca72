"""Dinic's algorithm on the residual graph: it augments any flow to a maximum flow with its cut.

A breadth-first search finds the nodes that the source reaches over edges with residual capacity.
If it reaches the sink, a blocking flow is pushed along shortest augmenting paths, and the search
starts again. If not, the nodes that it reached are the source's side of a minimum cut. The code
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
                outside = u != pair.source
            else:
                outside = contains(ws.unreached, level * n_words, u)
            if outside:
                continue
            row = ((level - 1) * n + u) * n
            if level == 1:
                cut += capacity[row + pair.sink]
                continue
            for w in range(n_words):
                word = ws.unreached[(level - 1) * n_words + w]
                while word != 0:
                    cut += capacity[row + first_member(word, w)]
                    word &= word - ONE
    return cut


# Search


@inlined
def search(pair: Any, edges: Any, net: Any, ws: Any) -> bool:
    """Search the residual graph breadth first; returns whether the sink was reached.

    A path of the residual graph goes down over unsaturated edges, and up where it cancels flow.
    Its length follows from the number of its steps up, which ws.back_steps holds for each node.
    ws.reached and ws.unreached divide the positions of levels 1 … pair.level - 1.
    """
    first, end = span(pair, net)
    n, n_words, top = net.n, net.n_words, pair.level
    for level in range(1, top):
        fill(ws.unreached, level * n_words, n_words, first, end)
        for w in range(n_words):
            ws.reached[level * n_words + w] = NO_MEMBER
    head, tail = 0, 1
    ws.queue[0], ws.queue_level[0] = top * n + pair.source, top
    ws.back_steps[top * n + pair.source] = 0
    while head < tail:
        node, level = ws.queue[head], ws.queue_level[head]
        head += 1
        if level == 1:
            if edges.residual[(node - n) * n + pair.sink] > edges.epsilon:
                ws.back_steps[pair.sink] = ws.back_steps[node]
                return True
        else:
            tail = reach_below(node, level, tail, edges, net, ws)
        if level < top - 1:
            tail = reach_above(node, level, tail, edges, net, ws)
    return False


@inlined
def reach_below(node: int, level: int, tail: int, edges: Any, net: Any, ws: Any) -> int:
    """Reach all positions below a node to which it has an unsaturated edge."""
    n, n_words = net.n, net.n_words
    row = (node - n) * n
    for w in range(n_words):
        word = ws.unreached[(level - 1) * n_words + w]
        while word != 0:
            q = first_member(word, w)
            word &= word - ONE
            if edges.residual[row + q] > edges.epsilon:
                tail = reach(level - 1, q, ws.back_steps[node], tail, net, ws)
    return tail


@inlined
def reach_above(node: int, level: int, tail: int, edges: Any, net: Any, ws: Any) -> int:
    """Reach all positions above a node from which it receives flow, which can be cancelled."""
    n, n_words = net.n, net.n_words
    for w in range(n_words):
        word = ws.inflow[node * n_words + w] & ws.unreached[(level + 1) * n_words + w]
        while word != 0:
            p = first_member(word, w)
            word &= word - ONE
            edge = (level * n + p) * n + node - level * n
            if edges.capacity[edge] - edges.residual[edge] > edges.epsilon:
                tail = reach(level + 1, p, ws.back_steps[node] + 1, tail, net, ws)
    return tail


@inlined
def reach(level: int, u: int, back_steps: int, tail: int, net: Any, ws: Any) -> int:
    """Mark (level, u) as reached and put it into the queue; returns the new end of the queue."""
    remove(ws.unreached, level * net.n_words, u)
    insert(ws.reached, level * net.n_words, u)
    node = level * net.n + u
    ws.back_steps[node] = back_steps
    ws.current_arc[node] = 0
    ws.queue[tail] = node
    ws.queue_level[tail] = level
    return tail + 1


# Blocking flow


@inlined
def push_blocking_flow(pair: Any, edges: Any, net: Any, ws: Any) -> Any:
    """Push flow along shortest paths until each of them is blocked; returns how much.

    Depth first from the sink back to the source, because few steps in this direction lead to
    dead ends. The path lies in ws.queue, the sink's end first.
    """
    first, end = span(pair, net)
    n, t, back_steps = net.n, pair.sink, ws.back_steps[pair.sink]
    added = edges.epsilon - edges.epsilon
    for last in range(first, end):
        if ws.back_steps[n + last] != back_steps or not contains(ws.reached, net.n_words, last):
            continue
        end = last * n + t
        ws.queue[0], ws.queue_level[0] = n + last, 1
        k = 0
        while k >= 0 and edges.residual[end] > edges.epsilon:
            if ws.queue_level[k] == pair.level:
                flow, k = push_path(k, edges.residual[end], edges, net, ws)
                edges.residual[end] -= flow
                note_change(end, ws)
                added += flow
            elif extend_path(k, pair, edges, net, ws):
                k += 1
            else:
                level = ws.queue_level[k]
                remove(ws.reached, level * net.n_words, ws.queue[k] - level * n)
                k -= 1
    return added


@inlined
def extend_path(k: int, pair: Any, edges: Any, net: Any, ws: Any) -> bool:
    """Extend the path beyond its node number k by a node that precedes it on a shortest path.

    Returns False if there is none: the node is a dead end.
    """
    n = net.n
    node, level = ws.queue[k], ws.queue_level[k]
    arc = ws.current_arc[node]  # below n: an edge from above, from n on: one whose flow cancels
    if level == pair.level - 1:
        edge = (level * n + pair.source) * n + node - level * n
        if ws.back_steps[node] == 0 and edges.residual[edge] > edges.epsilon:
            return append_node(k, pair.level, pair.source, edge, net, ws)
        arc = max(arc, n)
    if arc < n:
        if extend_upwards(k, node, level, arc, edges, net, ws):
            return True
        arc = n
    if level > 1 and ws.back_steps[node] > 0:
        return extend_downwards(k, node, level, arc - n, edges, net, ws)
    return False


@inlined
def extend_upwards(k: int, node: int, level: int, arc: int, edges: Any, net: Any, ws: Any) -> bool:
    """Extend the path by a node above that has an unsaturated edge to this one."""
    n, n_words, back_steps = net.n, net.n_words, ws.back_steps[node]
    for w in range(arc >> 6, n_words):
        word = ws.reached[(level + 1) * n_words + w]
        if w == arc >> 6:
            word = members_from(word, arc)
        while word != 0:
            p = first_member(word, w)
            word &= word - ONE
            edge = (level * n + p) * n + node - level * n
            if (
                ws.back_steps[(level + 1) * n + p] == back_steps
                and edges.residual[edge] > edges.epsilon
            ):
                ws.current_arc[node] = p
                return append_node(k, level + 1, p, edge, net, ws)
    return False


@inlined
def extend_downwards(
    k: int, node: int, level: int, first: int, edges: Any, net: Any, ws: Any
) -> bool:
    """Extend the path by a node below that receives flow from this one, which can be cancelled."""
    n, back_steps = net.n, ws.back_steps[node]
    row = (node - n) * n
    for q in range(first, n):
        if (
            ws.back_steps[(level - 1) * n + q] == back_steps - 1
            and edges.capacity[row + q] - edges.residual[row + q] > edges.epsilon
            and contains(ws.reached, (level - 1) * net.n_words, q)
        ):
            ws.current_arc[node] = n + q
            return append_node(k, level - 1, q, ~(row + q), net, ws)
    return False


@inlined
def append_node(k: int, level: int, u: int, edge: int, net: Any, ws: Any) -> bool:
    """Append (level, u) to the path behind its node number k; returns True."""
    ws.queue[k + 1], ws.queue_level[k + 1] = level * net.n + u, level
    ws.path_edge[k], ws.path_from[k] = edge, u
    return True


@inlined
def push_path(length: int, flow: Any, edges: Any, net: Any, ws: Any) -> Any:
    """Push up to `flow` along the path; returns how much, and the number of a node on the path.

    The path can be extended again from this node: the nearest to the sink that lies below a
    saturated edge.
    """
    keep = length - 1
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
            insert(ws.inflow, ws.queue[k] * net.n_words, ws.path_from[k])
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
