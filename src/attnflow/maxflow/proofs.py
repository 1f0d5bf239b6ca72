"""A cut guessed from where the greedy flow gave up, summed from the capacities alone.

Positions that could not place what they were given have no unused edge to one that still can.
So if the source's side of a cut is made of such positions, its outgoing edges are full; and if
moreover no flow comes back into it, their capacities add up to the flow, which proves both
maximal and minimal. The guess costs far less than a search of the residual graph. When it is
wrong its sum is larger than the flow, nothing worse.

What the flows of one layer prove about the next one, without a flow.

The source's side of a cut has some positions S of the level below the source on it. The cut then
holds the source's edges to all others, and a cut between S and the sink. The latter is at least the
largest flow that a single position of S has, and need not be more than the sum of their flows. So
the layer below tells how small the smallest cut can be, and how large it is at most; where the two
meet, that is the flow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.jit import ONE, add, first_member, holds, inlined, vectorized
from attnflow.maxflow.layout import CERTIFIED, NOTHING, span, tables_of, workspace_of

U = np.uint64


@vectorized
def guessed_cut(level: int, s: int, t: int, value: float, network: Any, scratch: Any) -> float:
    """The capacity of a cut that is a good guess after a greedy flow got stuck at `value`.

    Infinity when so many positions gave up that a search is the better way.
    """
    net, ws = tables_of(network), workspace_of(network, scratch)
    n, words = net.n, net.n_words
    first, end = span(s, t, net)
    for m in range(2, level):
        for w in range(words):
            ws.unseen[m * words + w] = U(0)  # here: the source's side
    row = ((level - 1) * n + s) * n
    cut = 0.0
    for u in range(first, end):  # below the source: exactly those whose edge is not used up
        if net.capacity[row + u] - ws.sent[u] > NOTHING:
            add(ws.unseen, (level - 1) * words, u)
        else:
            cut += net.capacity[row + u]
    for m in range(level - 2, 1, -1):
        if not keep_reachable(m, s, t, net, ws):
            return np.inf
    for m in range(level - 1, 2, -1):
        for u in range(first, end):
            if holds(ws.unseen, m * words, u):
                row = ((m - 1) * n + u) * n
                cut += capacity_across(row, (m - 1) * words, s, t, net, ws)
        if cut > value + 1.0:
            return np.inf
    return cut + last_levels(s, t, net, ws)


@inlined
def keep_reachable(m: int, s: int, t: int, net: Any, ws: Any) -> bool:
    """Of the given-up positions of level m, put those on the source's side that belong there.

    A position belongs there if more comes in from that side than goes out to the other.
    Says no when there are too many to weigh one by one.
    """
    n, words = net.n, net.n_words
    first, end = span(s, t, net)
    weighed = 0
    for u in range(first, end):
        if holds(ws.alive, m * words, u):
            continue
        weighed += 1
        if weighed > 16 + n // 4:
            return False
        row = ((m - 1) * n + u) * n
        leaving = 0.0
        for q in range(first, end):
            if m == 2:
                into_sink = net.column[t * n + q]
                leaving += min(net.capacity[row + q], into_sink)
            elif holds(ws.alive, (m - 1) * words, q):
                leaving += net.capacity[row + q]
        for w in range(words):
            word = ws.unseen[(m + 1) * words + w]
            while word != 0:
                p = first_member(word, w)
                word &= word - ONE
                leaving -= net.capacity[(m * n + p) * n + u]
        if leaving < 0:
            add(ws.unseen, m * words, u)
    return True


@inlined
def capacity_across(row: int, below: int, s: int, t: int, net: Any, ws: Any) -> float:
    """What one position can send to the sink's side of the level below."""
    first, end = span(s, t, net)
    total = 0.0
    for q in range(first, end):
        if not holds(ws.unseen, below, q):
            total += net.capacity[row + q]
    return total


@inlined
def last_levels(s: int, t: int, net: Any, ws: Any) -> float:
    """The cheapest cut below level 2: each level-1 position goes to the side that costs less."""
    n = net.n
    first, end = span(s, t, net)
    for q in range(first, end):
        ws.taken[q] = 0.0
    for u in range(first, end):
        if holds(ws.unseen, 2 * net.n_words, u):
            row = (n + u) * n
            for q in range(first, end):
                ws.taken[q] += net.capacity[row + q]
    cut = 0.0
    for q in range(first, end):
        cut += min(ws.taken[q], net.column[t * n + q])
    return cut


UNSETTLED = -1.0


@vectorized
def settled_flow(
    s: int, k: int, n: int, into: float, lower: Any, upper: Any, edges: Any, flows: Any
) -> float:
    """The flow from s to sink number k if the flows of the level below leave no choice.

    lower, upper: [positions, sinks], bounds of these flows; into: what the sink can take in;
    edges: [n], those of the source; flows: [n], scratch.
    """
    most = 0.0
    for u in range(n):
        most += min(edges[u], upper[u, k])
    most = min(most, into)
    for u in range(n):
        flows[u] = lower[u, k]
    enough = most - CERTIFIED / 4
    for j in range(n):
        u = (
            s + j if s + j < n else s + j - n
        )  # the source's own position first: it says no most often
        if flows[u] < enough:  # the smallest cut with u and nobody better on the source's side
            cut = flows[u]
            for w in range(n):
                cut += edges[w] if flows[w] > flows[u] else 0.0
            if cut < enough:
                return UNSETTLED
    return most
