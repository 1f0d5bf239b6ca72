"""Moving flow between nodes: Dinic's algorithm for many surpluses and deficits, on integers.

A layered network carries a flow that may leave some nodes with more than they pass on, a surplus,
or less than they should have, a deficit. `balance` moves as much as possible from surpluses to
deficits, by adding flow to edges with residual capacity and cancelling flow on others. If some
surplus is left, the nodes that `search` reaches from it form one side of a cut: no flow can be
moved from there to the other side.

All numbers are integers, so flow and cuts are exact. Two sets of bits per node list the edges by
which flow can go down, and those on which it can be cancelled. So a search takes one operation
for 64 edges, although a flow on a dense network uses nearly all of them. To forbid moves between
two sets of nodes, `separate` removes the edges between them from these sets.
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
    pointer,
    remove,
)

UNREACHED = -1
LARGE = 2.0**60  # more than all flow, and less than the largest integer


class Balance(NamedTuple):
    """A network with a flow. Nodes are numbered level * n + position; level 0 holds the tokens.

    Edge (x * n + u) * n + q leads from position u of level x + 1 to position q of level x.
    """

    n: int
    depth: int
    n_words: int
    capacity: Any  # [depth, n, n] flat
    flow: Any  # the same
    excess: Any  # [nodes]: surplus, or deficit if negative
    below: Any  # [nodes, n_words]: positions one level down to which flow can go
    above: Any  # [nodes, n_words]: positions one level up from which flow comes, to cancel
    unreached: Any  # [levels, n_words]: nodes that the last search did not reach
    distance: Any  # [nodes]: from the nearest surplus
    arc: Any  # [nodes]: which predecessor to try next; from n on those one level down
    path: Any  # [nodes]: the nodes of a path, the deficit's end first; also the queue of a search
    path_edge: Any  # [nodes]: its edges; ~edge where flow is cancelled


@kernel
def balance(net: Any) -> int:
    """Move flow from surpluses to deficits, as much as possible; returns the number of rounds."""
    net = Balance(*net)
    rounds = 0
    while search_nodes(net):
        rounds += 1
        for node in range((net.depth + 1) * net.n):
            net.arc[node] = 0
        for node in range((net.depth + 1) * net.n):
            if net.excess[node] < 0 and net.distance[node] != UNREACHED:
                fill_deficit(node, net)
    return rounds


@kernel
def search(net: Any) -> bool:
    """Find all nodes to which surplus can be moved; returns whether one has a deficit."""
    return search_nodes(Balance(*net))


@inlined
def search_nodes(net: Any) -> bool:
    """Search breadth first; fills net.unreached and net.distance."""
    n, n_words = net.n, net.n_words
    for level in range(net.depth + 1):
        fill(net.unreached, level * n_words, n_words, 0, n)
    tail = 0
    for node in range((net.depth + 1) * n):
        net.distance[node] = UNREACHED
        if net.excess[node] > 0:
            net.distance[node] = 0
            net.path[tail] = node
            tail += 1
            level = node // n
            remove(net.unreached, level * n_words, node - level * n)
    head = 0
    found = False
    while head < tail:
        node = net.path[head]
        head += 1
        found = found or net.excess[node] < 0
        level = node // n
        step = net.distance[node] + 1
        if level > 0:
            tail = reach(net.below, node, level - 1, step, tail, net)
        if level < net.depth:
            tail = reach(net.above, node, level + 1, step, tail, net)
    return found


@inlined
def reach(ways: Any, node: int, level: int, distance: int, tail: int, net: Any) -> int:
    """Reach all nodes of a level that the sets `ways` list for a node; returns the queue's end."""
    for w in range(net.n_words):
        word = ways[node * net.n_words + w] & net.unreached[level * net.n_words + w]
        net.unreached[level * net.n_words + w] &= ~word
        while word != NO_MEMBER:
            other = level * net.n + first_member(word, w)
            word &= word - ONE
            net.distance[other] = distance
            net.path[tail] = other
            tail += 1
    return tail


@inlined
def fill_deficit(end: int, net: Any) -> None:
    """Move flow to a deficit along shortest paths, until it is filled or all are blocked.

    Depth first from the deficit back to a surplus: every node that the search reached lies on a
    path to one, so few steps in this direction lead to dead ends.
    """
    k = 0
    net.path[0] = end
    while k >= 0 and net.excess[end] < 0:
        node = net.path[k]
        if net.distance[node] == 0 and net.excess[node] > 0:
            k = push_path(k, net)
        elif net.distance[node] > 0 and extend_path(k, node, net):
            k += 1
        else:  # a dead end
            net.distance[node] = UNREACHED
            k -= 1


@inlined
def extend_path(k: int, node: int, net: Any) -> bool:
    """Extend the path beyond its node number k by one nearer to a surplus, if there is any."""
    n, n_words, before = net.n, net.n_words, net.distance[node] - 1
    level = node // n
    q = node - level * n
    arc = net.arc[node]
    if level == net.depth:
        arc = max(arc, n)
    while arc < n:
        other = (level + 1) * n + arc
        if net.distance[other] == before and contains(net.below, other * n_words, q):
            net.arc[node] = arc
            net.path[k + 1], net.path_edge[k] = other, (level * n + arc) * n + q
            return True
        arc += 1
    while arc < 2 * n and level > 0:
        other = (level - 1) * n + arc - n
        if net.distance[other] == before and contains(net.above, other * n_words, q):
            net.arc[node] = arc
            net.path[k + 1], net.path_edge[k] = other, ~(((level - 1) * n + q) * n + arc - n)
            return True
        arc += 1
    net.arc[node] = 2 * n
    return False


@inlined
def push_path(length: int, net: Any) -> int:
    """Move flow along a path; returns the number of its first node behind a saturated edge."""
    start, end = net.path[length], net.path[0]
    amount = min(net.excess[start], -net.excess[end])
    for k in range(length):
        edge = net.path_edge[k]
        room = net.capacity[edge] - net.flow[edge] if edge >= 0 else net.flow[~edge]
        amount = min(amount, room)
    keep = length
    n, n_words = net.n, net.n_words
    for k in range(length - 1, -1, -1):
        edge = net.path_edge[k]
        forward = edge >= 0
        edge = edge if forward else ~edge
        upper, lower = (net.path[k + 1], net.path[k]) if forward else (net.path[k], net.path[k + 1])
        net.flow[edge] += amount if forward else -amount
        if forward:
            insert(net.above, lower * n_words, upper % n)
            if net.flow[edge] == net.capacity[edge]:
                remove(net.below, upper * n_words, lower % n)
                keep = k
        else:
            insert(net.below, upper * n_words, lower % n)
            if net.flow[edge] == 0:
                remove(net.above, lower * n_words, upper % n)
                keep = k
    net.excess[start] -= amount
    net.excess[end] += amount
    return keep


@kernel
def separate(net: Any) -> None:
    """Forbid moves between the nodes that the last search reached and all others."""
    net = Balance(*net)
    n, n_words = net.n, net.n_words
    for level in range(net.depth + 1):
        for u in range(n):
            node = level * n + u
            apart = contains(net.unreached, level * n_words, u)
            for w in range(n_words):
                if level > 0:
                    side = net.unreached[(level - 1) * n_words + w]
                    net.below[node * n_words + w] &= side if apart else ~side
                if level < net.depth:
                    side = net.unreached[(level + 1) * n_words + w]
                    net.above[node * n_words + w] &= side if apart else ~side


# The first flow


@kernel
def start_flow(net: Any, pull: Any) -> None:
    """Send all that can leave the highest level, and fill net.below and net.above.

    pull: [nodes]; each node divides what it receives in proportion to capacity times the pull of
    the node below, as far as capacities allow. What it cannot pass on becomes its excess, and
    what arrives at tokens becomes theirs.
    """
    net = Balance(*net)
    n = net.n
    for node in range((net.depth + 1) * n):
        net.excess[node] = 0
    for x in range(net.depth - 1, -1, -1):
        for u in range(n):
            node, row = (x + 1) * n + u, (x * n + u) * n
            total = 0
            for q in range(n):
                total += net.capacity[row + q]
                net.flow[row + q] = 0
            received = net.excess[node] if x < net.depth - 1 else total
            net.excess[node] = max(received - total, 0)
            left = min(received, total)
            if left > 0:
                left = divide_by_pull(left, row, pointer(pull, x * n), net)
                divide_in_order(left, row, net)
            for q in range(n):
                net.excess[x * n + q] += net.flow[row + q]
    list_moves(net)


@inlined
def divide_by_pull(left: int, row: int, pull: Any, net: Any) -> Any:
    """Divide flow among the edges of a row in proportion to capacity times pull.

    What full edges cannot take is divided among the others, a few times. Returns the rest.
    """
    for _ in range(4):
        weight = 0.0
        for q in range(net.n):
            if net.flow[row + q] < net.capacity[row + q]:
                weight += net.capacity[row + q] * pull[q]
        if left <= net.n or weight <= 0.0:
            return left
        share = left / weight
        for q in range(net.n):
            room = net.capacity[row + q] - net.flow[row + q]
            part = min(net.capacity[row + q] * pull[q] * share, LARGE)
            amount = min(np.int64(part), room, left)
            net.flow[row + q] += amount
            left -= amount
    return left


@inlined
def divide_in_order(left: int, row: int, net: Any) -> None:
    """Fill the edges of a row in order with what is left."""
    for q in range(net.n):
        amount = min(left, net.capacity[row + q] - net.flow[row + q])
        net.flow[row + q] += amount
        left -= amount


@kernel
def list_moves(net: Any) -> None:
    """Fill net.below and net.above from flow and capacity, so that all moves are allowed."""
    net = Balance(*net)
    n, n_words = net.n, net.n_words
    for e in range((net.depth + 1) * n * n_words):
        net.below[e] = NO_MEMBER
        net.above[e] = NO_MEMBER
    for x in range(net.depth):
        for u in range(n):
            for q in range(n):
                edge = (x * n + u) * n + q
                if net.flow[edge] < net.capacity[edge]:
                    insert(net.below, ((x + 1) * n + u) * n_words, q)
                if net.flow[edge] > 0:
                    insert(net.above, (x * n + q) * n_words, u)


# The proof


@kernel
def is_proved(net: Any, part: Any) -> bool:
    """Return whether the flow is valid, and cuts separate the parts of the network.

    part: [nodes]. Valid: no edge carries more than its capacity or less than 0, and each node but
    those of the highest and lowest level sends on what it receives. Cut: edges to a lower part are
    saturated, and edges to a higher one are empty, so no flow can be moved to a lower part.
    """
    net = Balance(*net)
    n = net.n
    for node in range((net.depth + 1) * n):
        net.excess[node] = 0
    for x in range(net.depth):
        for u in range(n):
            upper = (x + 1) * n + u
            for q in range(n):
                edge, lower = (x * n + u) * n + q, x * n + q
                flow, capacity = net.flow[edge], net.capacity[edge]
                if flow < 0 or flow > capacity:
                    return False
                if part[upper] > part[lower] and flow < capacity:
                    return False
                if part[upper] < part[lower] and flow > 0:
                    return False
                net.excess[upper] -= flow
                net.excess[lower] += flow
    kept = 0
    for node in range(n, net.depth * n):
        kept += abs(net.excess[node])
    return bool(kept == 0)
