"""Dinic's algorithm on the residual graph: it augments any flow to a maximum flow with its cut.

A breadth-first search finds the nodes that reach the sink over edges with residual capacity. If the
source does, a blocking flow is pushed along shortest augmenting paths, and the search starts
again. If not, the nodes that it reached are the sink's side of a minimum cut. The code
only adds, subtracts and compares, so it also runs on integers, without any rounding.

Three sets of bits keep this cheap on dense layers: `unreached` lists the positions to search for,
`inflow` the edges on which flow can be cancelled, and `unsaturated` the edges worth reading.
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
from attnflow.maxflow.layout import ROUNDS, WORKSPACE, Memory, unpack_edge, workspace_of
from attnflow.maxflow.network import EPSILON, graph_of, span


class Edges(NamedTuple):
    """Edges with their flow: real numbers, or integers."""

    capacity: Any  # [depth, n, n] flat
    flow: Any  # the same
    left: Any  # [nodes], temporary: what each node of a path can still push
    epsilon: Any  # residual capacities and flows up to this count as zero


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
    for level in range(1, pair.level):
        fill(ws.latest, level * n_words, n_words, first, end)
        for e in range(level * n_words, (level + 1) * n_words):
            ws.latest[e] &= ~ws.unreached[e]
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
                word = ws.latest[(level - 1) * n_words + w]
                while word != 0:
                    cut += capacity[row + first_member(word, w)]
                    word &= word - ONE
    return cut


# Search


@kernel
def search(pair: Any, edges: Any, net: Any, ws: Any) -> bool:
    """Search the residual graph from the sink up; returns whether the source was reached.

    A path of the residual graph goes down over unsaturated edges, and up where it cancels flow.
    Its length follows from the number of its steps up: round `steps` of the search reaches all
    nodes whose shortest path to the sink has so many, level by level, and lists them in
    ws.reached. ws.unreached holds all others of levels 1 … pair.level - 1.
    """
    first, end = span(pair, net)
    n_words, top = net.n_words, pair.level
    for level in range(1, top):
        fill(ws.unreached, level * n_words, n_words, first, end)
    fill(ws.unreached, top * n_words, n_words, pair.source, pair.source + 1)
    for e in range(top * n_words):
        ws.latest[e] = NO_MEMBER
    insert(ws.latest, 0, pair.sink)
    steps = 0
    found = True
    while found:
        found = False
        for level in range(1, top + 1):
            found |= reach_level(level, steps, first >> 6, (end + 63) >> 6, pair, edges, net, ws)
        if steps == 0:
            remove(ws.latest, 0, pair.sink)
        if not contains(ws.unreached, top * n_words, pair.source):
            return True
        steps += 1
    return False


@inlined
def reach_level(
    level: int, steps: int, start: int, end: int, pair: Any, edges: Any, net: Any, ws: Any
) -> bool:
    """Reach the nodes of a level in this round; returns whether there are any.

    start, end: the range of words to search. ws.latest holds the nodes reached in this round
    below, and in the last round from here up.
    """
    n_words = net.n_words
    from_above = NO_MEMBER
    if steps > 0 and level < pair.level - 1:
        for w in range(start, end):
            from_above |= ws.latest[(level + 1) * n_words + w]
    listed = reached_words(steps, level, ws.n_levels, n_words)
    found = False
    for w in range(start, end):
        unreached = ws.unreached[level * n_words + w]
        left = reach_over_edges(unreached, w, level, start, edges, net, ws)
        if from_above != 0:
            left = reach_by_cancelling(left, w, level, start, end, net, ws)
        new = unreached & ~left
        ws.unreached[level * n_words + w] = left
        ws.latest[level * n_words + w] = new
        found |= new != 0
        ws.reached[listed + w] = new if steps < ROUNDS else ws.reached[listed + w] | new
        while new != 0:
            node = level * net.n + first_member(new, w)
            new &= new - ONE
            ws.back_steps[node] = steps
            ws.current_arc[node] = start << 6
    return found


@inlined
def reach_over_edges(
    left: Any, w: int, level: int, start: int, edges: Any, net: Any, ws: Any
) -> Any:
    """Reach nodes in word w of a level over unsaturated edges to the latest below.

    left: the nodes that are not reached. Returns those that are not reached then.
    ws.unsaturated may list saturated edges, and is corrected where these are found.
    """
    n, n_words = net.n, net.n_words
    for v in range(start, n_words):
        word = ws.latest[(level - 1) * n_words + v]
        while word != 0 and left != 0:
            q = first_member(word, v)
            word &= word - ONE
            at = ((level - 1) * n + q) * n_words + w
            new = ws.unsaturated[at] & left
            while new != 0:
                bit = new & (~new + ONE)
                edge = ((level - 1) * n + first_member(new, w)) * n + q
                new ^= bit
                if edges.capacity[edge] - edges.flow[edge] > edges.epsilon:
                    left ^= bit
                else:
                    ws.unsaturated[at] ^= bit
    return left


@inlined
def reach_by_cancelling(
    left: Any, w: int, level: int, start: int, end: int, net: Any, ws: Any
) -> Any:
    """Do the same with nodes that receive flow from one of the latest above."""
    n_words = net.n_words
    word = left
    while word != 0:
        bit = word & (~word + ONE)
        node = level * net.n + first_member(word, w)
        word ^= bit
        found = NO_MEMBER
        for v in range(start, end):
            found |= ws.inflow[node * n_words + v] & ws.latest[(level + 1) * n_words + v]
        if found != 0:
            left ^= bit
    return left


@kernel
def reached_words(steps: int, level: int, n_levels: int, n_words: int) -> int:
    """Return the first word of the nodes of a level that were reached in this round.

    All rounds from number ROUNDS - 1 on share one set.
    """
    return ((steps if steps < ROUNDS else ROUNDS - 1) * n_levels + level) * n_words


# Blocking flow


@kernel
def push_blocking_flow(pair: Any, edges: Any, net: Any, ws: Any) -> Any:
    """Push flow along shortest paths until each of them is blocked; returns how much.

    Depth first from the source, because every node that the search reached lies on a path to the
    sink, so few steps in this direction lead to dead ends. Each node of the path pushes on what
    the edge above it can carry, over several edges if need be, and then returns to that edge what
    is left. So each edge of a tree of paths is changed once.
    """
    n, k, node, level = net.n, 0, pair.level * net.n + pair.source, pair.level
    first, end = span(pair, net)
    total = edges.epsilon - edges.epsilon
    for e in range((node - n) * n + first, (node - n) * n + end):
        total += edges.capacity[e] - edges.flow[e]
    ws.path[0] = node
    left = total  # what the node at the end of the path can still push
    while True:
        if level == 1 and ws.back_steps[node] == 0:
            edge = (node - n) * n + pair.sink
            flow = edges.capacity[edge] - edges.flow[edge]
            flow = left if left < flow else flow
            if flow > 0:
                left -= flow
                add_to_edge(edge, flow, edges.flow, ws.changes, ws.changes_size)
        if left > edges.epsilon and extend_path(
            k, node, level, first >> 6, (end + 63) >> 6, pair, edges, net, ws
        ):
            edges.left[k] = left
            room = path_room(k, edges, ws)
            left = room if room < left else left
            level += 1 if ws.path_edge[k] < 0 else -1
            k += 1
            node = ws.path[k]
            continue
        if k == 0:
            return total - left
        if left > edges.epsilon:  # a dead end
            remove(
                ws.reached,
                reached_words(ws.back_steps[node], level, ws.n_levels, net.n_words),
                node - level * n,
            )
        k -= 1
        room = path_room(k, edges, ws)
        flow = (room if room < edges.left[k] else edges.left[k]) - left
        level += 1 if ws.path_edge[k] >= 0 else -1
        node = ws.path[k]
        if flow > 0:
            push_over_path_edge(flow, k, node, level, edges, net, ws)
        left = edges.left[k] - flow


@inlined
def path_room(k: int, edges: Any, ws: Any) -> Any:
    """Return how much can be pushed over edge number k of the path."""
    edge = ws.path_edge[k]
    return edges.capacity[edge] - edges.flow[edge] if edge >= 0 else edges.flow[~edge]


@inlined
def push_over_path_edge(
    flow: Any, k: int, node: Any, level: int, edges: Any, net: Any, ws: Any
) -> None:
    """Push flow from a node over edge number k of the path, or cancel flow if it is ~edge."""
    edge, end = ws.path_edge[k], ws.path[k + 1]
    if edge >= 0:
        if add_to_edge(edge, flow, edges.flow, ws.changes, ws.changes_size) > edges.epsilon:
            insert(ws.inflow, end * net.n_words, node - level * net.n)
    else:
        edges.flow[~edge] -= flow
        insert(ws.unsaturated, node * net.n_words, end - (level + 1) * net.n)
        if edges.flow[~edge] <= edges.epsilon:
            remove(ws.inflow, node * net.n_words, end - (level + 1) * net.n)


@inlined
def extend_path(
    k: int, node: Any, level: int, start: int, end: int, pair: Any, edges: Any, net: Any, ws: Any
) -> bool:
    """Find the next edge of a shortest path from a node: ws.path_edge[k] to ws.path[k + 1].

    start, end: the range of words to search. Returns False if there is none.
    """
    n, n_words, steps = net.n, net.n_words, ws.back_steps[node]
    arc = ws.current_arc[node]  # below n: an edge down, from n on: one whose flow cancels
    if arc < n and level > 1:
        row, below = (node - n) * n, (level - 1) * n
        at = reached_words(steps, level - 1, ws.n_levels, n_words)
        for w in range(arc >> 6, end):
            word = ws.reached[at + w]
            if w == arc >> 6:
                word = members_from(word, arc)
            while word != 0:
                q = first_member(word, w)
                word &= word - ONE
                if edges.capacity[row + q] - edges.flow[row + q] > edges.epsilon and (
                    steps < ROUNDS - 1 or ws.back_steps[below + q] == steps
                ):
                    ws.current_arc[node] = q
                    ws.path_edge[k], ws.path[k + 1] = row + q, below + q
                    return True
    if level >= pair.level - 1 or steps == 0:
        ws.current_arc[node] = n
        return False
    u, above, steps = node - level * n, (level + 1) * n, steps - 1
    first = arc - n if arc >= n else start << 6
    ws.current_arc[node] = n + first
    at = reached_words(steps, level + 1, ws.n_levels, n_words)
    for w in range(first >> 6, end):
        word = ws.inflow[node * n_words + w] & ws.reached[at + w]
        if w == first >> 6:
            word = members_from(word, first)
        while word != 0:
            p = first_member(word, w)
            word &= word - ONE
            if steps < ROUNDS - 1 or ws.back_steps[above + p] == steps:
                ws.current_arc[node] = n + p
                ws.path_edge[k], ws.path[k + 1] = ~((level * n + p) * n + u), above + p
                return True
    return False


# The flow in the workspace


@kernel
def load_greedy_flow(pair: Any, pushes: int, network: Any, memory: Any) -> None:
    """Make ws.flow the greedy flow, or zero if the log does not hold all of its pushes."""
    net, ws = graph_of(network), workspace_of(memory)
    first, end = span(pair, net)
    n, s, t, top = net.n, pair.source, pair.sink, pair.level - 1
    reset_flow(pair, net, ws)
    if pushes > ws.log_size:
        return
    for k in range(pushes):
        x, u, q = unpack_edge(ws.log_edge[k])
        add_flow(ws.log_amount[k], x, u, q, net, ws)
    for q in range(first, end):
        add_flow(ws.source_flow[q], top, s, q, net, ws)
        for x in range(1, top):
            add_flow(ws.row_flow[x * n + q], x, s, q, net, ws)
    for u in range(first, end):
        add_flow(net.column[t * n + u] - ws.demand[u], 0, u, t, net, ws)
        chain_flow = 0.0
        for x in range(top - 1, 0, -1):
            chain_flow += ws.chain_steps[x * n + u]
            add_flow(chain_flow, x, u, u, net, ws)
            if u != t:
                add_flow(net.column[(x * n + t) * n + u] - ws.entry[x * n + u], x, u, t, net, ws)


@inlined
def add_flow(amount: float, x: int, u: int, q: int, net: Any, ws: Any) -> None:
    """Add flow to edge x from u to q."""
    if amount > 0:
        edge = (x * net.n + u) * net.n + q
        flow = add_to_edge(edge, amount, ws.flow, ws.changes, ws.changes_size)
        at = (x * net.n + q) * net.n_words + (u >> 6)
        ws.inflow[at] |= np.uint64(flow > EPSILON) << np.uint64(u & 63)


@kernel
def add_to_edge(edge: int, amount: Any, flows: Any, changes: Any, size: int) -> Any:
    """Add flow to an edge, and list it as changed if it had none; returns its flow.

    Past the end of the list, changes are only counted.
    """
    flow = flows[edge]
    count = changes[0]
    changes[(count if count < size - 1 else size - 2) + 1] = edge
    changes[0] = count + (flow == 0)
    flows[edge] = flow + amount
    return flow + amount


def allocate_workspace(n: int, depth: int) -> Memory:
    """Return a new workspace for networks of this size, without flow."""
    return WORKSPACE.allocate(n, depth)


@inlined
def reset_flow(pair: Any, net: Any, ws: Any) -> None:
    """Remove all flow that earlier pairs have left."""
    reset_sets(pair, net, ws)
    count = ws.changes[0]
    if count < ws.changes_size:
        for k in range(1, count + 1):
            ws.flow[ws.changes[k]] = 0.0
    else:  # more changes than the list holds
        for e in range(net.depth * net.n * net.n):
            ws.flow[e] = 0.0
    ws.changes[0] = 0


@inlined
def reset_sets(pair: Any, net: Any, ws: Any) -> None:
    """Empty the inflow sets of all nodes that paths of the pair can visit, and fill the others."""
    first, end = span(pair, net)
    for x in range(pair.level):
        for q in range(first, end):
            at = (x * net.n + q) * net.n_words
            for w in range(net.n_words):
                ws.inflow[at + w] = NO_MEMBER
            fill(ws.unsaturated, at, net.n_words, first if net.causal is None else q, end)
