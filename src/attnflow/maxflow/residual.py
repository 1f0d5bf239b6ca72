"""The sturdy half of the solver: a search of the residual graph that ends in a cut.

Starts from any flow, also from none, sends more along shortest augmenting paths, and stops
when the source reaches no further. What it then has reached is the source's side of a minimum
cut. The code only adds, subtracts and compares, so it also runs on whole numbers, where there
is no rounding at all.

Two things keep a search cheap on dense layers: only positions not yet reached are looked at,
so a layer is swept about once, and flow can only be taken back over edges that carry some,
which the `inflow` sets know.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.jit import ONE, add, drop, fill, first_member, holds, inlined, kernel
from attnflow.maxflow.layout import log_size, span, tables_of, workspace_of

U = np.uint64


@inlined
def search(
    level: int, s: int, t: int, nothing: Any, capacity: Any, residual: Any, net: Any, ws: Any
) -> bool:
    """Breadth first from (level, s) through edges with room; says whether token t was reached.

    ws.climbs tells by how many steps back up each node was reached: with the level that is
    its distance. ws.unseen is left with the positions of levels 1 … level - 1 on the sink's
    side, ws.open with the others.
    """
    n, words = net.n, net.n_words
    first, end = span(s, t, net)
    for m in range(1, level):
        fill(ws.unseen, m * words, words, first, end)
        for w in range(words):
            ws.open[m * words + w] = U(0)
    head, tail = 0, 1
    ws.queue[0], ws.queue_level[0] = level * n + s, level
    ws.climbs[level * n + s] = 0
    while head < tail:
        node, m = ws.queue[head], ws.queue_level[head]
        head += 1
        row = (node - n) * n  # edges down, into level m - 1
        if m == 1:
            if residual[row + t] > nothing:
                ws.climbs[t] = ws.climbs[node]
                return True
        else:
            for w in range(words):
                word = ws.unseen[(m - 1) * words + w]
                while word != 0:
                    q = first_member(word, w)
                    word &= word - ONE
                    if residual[row + q] > nothing:
                        tail = reach(m - 1, q, ws.climbs[node], tail, net, ws)
        if m < level - 1:  # take back what comes in from level m + 1
            for w in range(words):
                word = ws.inflow[node * words + w] & ws.unseen[(m + 1) * words + w]
                while word != 0:
                    p = first_member(word, w)
                    word &= word - ONE
                    edge = (m * n + p) * n + node - m * n
                    if capacity[edge] - residual[edge] > nothing:
                        tail = reach(m + 1, p, ws.climbs[node] + 1, tail, net, ws)
    return False


@inlined
def reach(m: int, u: int, climbs: int, tail: int, net: Any, ws: Any) -> int:
    """Note that (m, u) was reached; returns the new end of the queue."""
    drop(ws.unseen, m * net.n_words, u)
    add(ws.open, m * net.n_words, u)
    node = m * net.n + u
    ws.climbs[node] = climbs
    ws.arc[node] = 0
    ws.queue[tail] = node
    ws.queue_level[tail] = m
    return tail + 1


@inlined
def step_back(
    k: int, level: int, s: int, nothing: Any, capacity: Any, residual: Any, net: Any, ws: Any
) -> bool:
    """Lengthen the path by a node from which a shortest path comes to its end, number k.

    Says no when there is none left. ws.path_edge[k] is the edge between the two, bit for bit
    inverted where its flow is taken back.
    """
    n, words = net.n, net.n_words
    node, m = ws.queue[k], ws.queue_level[k]
    u = node - m * n
    climbs = ws.climbs[node]
    first = ws.arc[node]
    if m == level - 1:
        edge = (m * n + s) * n + u
        if climbs == 0 and residual[edge] > nothing:
            return lengthen(k, level * n + s, level, edge, s, ws)
        first = max(first, n)
    if first < n:  # from above, over an edge with room
        for w in range(first >> 6, words):
            word = ws.open[(m + 1) * words + w]
            if w == first >> 6:
                word &= ~((ONE << U(first & 63)) - ONE)
            while word != 0:
                p = first_member(word, w)
                word &= word - ONE
                edge = (m * n + p) * n + u
                if ws.climbs[(m + 1) * n + p] == climbs and residual[edge] > nothing:
                    ws.arc[node] = p
                    return lengthen(k, (m + 1) * n + p, m + 1, edge, p, ws)
        first = n
    if m > 1 and climbs > 0:  # from below, over an edge whose flow can be taken back
        row = (node - n) * n
        for z in range(first - n, n):
            below = (m - 1) * n + z
            if (
                ws.climbs[below] == climbs - 1
                and capacity[row + z] - residual[row + z] > nothing
                and holds(ws.open, (m - 1) * words, z)
            ):
                ws.arc[node] = n + z
                return lengthen(k, below, m - 1, ~(row + z), z, ws)
    return False


@inlined
def lengthen(k: int, node: int, level: int, edge: int, position: int, ws: Any) -> bool:
    """Put a node behind number k of the path."""
    ws.queue[k + 1], ws.queue_level[k + 1] = node, level
    ws.path_edge[k], ws.path_from[k] = edge, position
    return True


@inlined
def block(
    level: int, s: int, t: int, nothing: Any, capacity: Any, residual: Any, net: Any, ws: Any
) -> Any:
    """Send flow along shortest paths until every one is blocked; returns how much.

    Depth first from the sink back to the source over the distances that `search` left: in that
    direction nearly every step leads on. The path lies in ws.queue, sink's end first.
    """
    n = net.n
    added = nothing - nothing
    fewest = ws.climbs[t]
    first, behind = span(s, t, net)
    for last in range(first, behind):
        if ws.climbs[n + last] != fewest or not holds(ws.open, net.n_words, last):
            continue
        end = last * n + t
        ws.queue[0], ws.queue_level[0] = n + last, 1
        k = 0
        while k >= 0 and residual[end] > nothing:
            if ws.queue_level[k] == level:
                give, k = push_path(k, residual[end], capacity, residual, net, ws)
                residual[end] -= give
                remember(end, net, ws)
                added += give
            elif step_back(k, level, s, nothing, capacity, residual, net, ws):
                k += 1
            else:
                m = ws.queue_level[k]
                drop(ws.open, m * net.n_words, ws.queue[k] - m * n)
                k -= 1
    return added


@inlined
def push_path(length: int, give: Any, capacity: Any, residual: Any, net: Any, ws: Any) -> Any:
    """Send up to `give` along the path; returns the amount and the last node still of use.

    That is the one on the sink's side of the full edge nearest to the sink.
    """
    keep = length - 1
    for k in range(length):
        edge = ws.path_edge[k]
        room = residual[edge] if edge >= 0 else capacity[~edge] - residual[~edge]
        if room < give:
            give = room
            keep = k
    for k in range(length):
        edge = ws.path_edge[k]
        if edge >= 0:
            residual[edge] -= give
            add(ws.inflow, ws.queue[k] * net.n_words, ws.path_from[k])
            remember(edge, net, ws)
        else:
            residual[~edge] += give
            remember(~edge, net, ws)
    return give, keep


@inlined
def remember(edge: Any, net: Any, ws: Any) -> None:
    """Note that this entry of the residual graph has to be put back."""
    count = ws.touched[0]
    if count < 2 * log_size(net.n, net.depth) - 1:
        ws.touched[count + 1] = np.int64(edge)
    ws.touched[0] = count + 1


@kernel
def maximize(
    level: int, s: int, t: int, nothing: Any,
    capacity: Any, residual: Any, network: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Augment until no path is left; returns what was added and in how many rounds."""
    net, ws = tables_of(network), workspace_of(network, scratch)
    added = nothing - nothing
    rounds = 0
    while search(level, s, t, nothing, capacity, residual, net, ws):
        added += block(level, s, t, nothing, capacity, residual, net, ws)
        rounds += 1
    return added, rounds


@kernel
def cut_capacity(level: int, s: int, t: int, capacity: Any, network: Any, scratch: Any) -> Any:
    """The capacity of the cut that the last, fruitless search left in ws.unseen."""
    net, ws = tables_of(network), workspace_of(network, scratch)
    n, words = net.n, net.n_words
    first, end = span(s, t, net)
    cut = capacity[0] - capacity[0]
    for m in range(level, 0, -1):
        for u in range(first, end):
            if (u != s) if m == level else holds(ws.unseen, m * words, u):
                continue
            row = ((m - 1) * n + u) * n
            if m == 1:
                cut += capacity[row + t]
                continue
            for w in range(words):
                word = ws.unseen[(m - 1) * words + w]
                while word != 0:
                    cut += capacity[row + first_member(word, w)]
                    word &= word - ONE
    return cut


@inlined
def clear_inflow(level: int, net: Any, ws: Any) -> None:
    """Forget where flow came from, for the levels below `level`."""
    for e in range(level * net.n * net.n_words):
        ws.inflow[e] = U(0)


@kernel
def load_greedy(level: int, s: int, t: int, log: int, network: Any, scratch: Any) -> None:
    """Turn the greedy flow's chains, drops and log into a residual graph."""
    net, ws = tables_of(network), workspace_of(network, scratch)
    n = net.n
    clear_inflow(level, net, ws)
    put_back(net, ws)
    for k in range(log):
        code = ws.log_edge[k]
        x, u, q = code >> 40, (code >> 20) & 0xFFFFF, code & 0xFFFFF
        take((x * n + u) * n + q, x * n + q, u, ws.log_amount[k], net, ws)
    top = level - 1
    first, end = span(s, t, net)
    for x in range(1, top):
        for q in range(first, end):
            take((x * n + s) * n + q, x * n + q, s, ws.swept[x * n + q], net, ws)
    for u in range(first, end):
        take((top * n + s) * n + u, top * n + u, s, ws.sent[u], net, ws)
        take(u * n + t, t, u, net.column[t * n + u] - ws.need[u], net, ws)
        flow = 0.0
        for x in range(top - 1, 0, -1):
            row = (x * n + u) * n
            flow += ws.used[x * n + u]
            take(row + u, x * n + u, u, flow, net, ws)
            if u != t:
                dropped = net.column[(x * n + t) * n + u] - ws.drops[x * n + u]
                take(row + t, x * n + t, u, dropped, net, ws)


@inlined
def take(edge: int, into: int, u: int, amount: float, net: Any, ws: Any) -> None:
    """Take `amount` from an edge, which goes from position u into node `into`."""
    if amount > 0:
        ws.residual[edge] -= amount
        add(ws.inflow, into * net.n_words, u)
        remember(edge, net, ws)


@inlined
def put_back(net: Any, ws: Any) -> None:
    """Make the residual graph equal to the capacities again."""
    count = ws.touched[0]
    if count < 2 * log_size(net.n, net.depth):
        for k in range(1, count + 1):
            edge = ws.touched[k]
            ws.residual[edge] = net.capacity[edge]
    else:
        for e in range(net.depth * net.n * net.n):
            ws.residual[e] = net.capacity[e]
    ws.touched[0] = 0
