"""Direct flow: what positions can send to the sink without hops. Part of the greedy flow.

A position u has two direct ways to the sink t: down its own chain to any *entry edge*, then down
the chain of t; or down its own chain to level 1, then over its *last edge*.

`push_direct` sends flow from one position. `push_source_row` and `push_own_rows` send flow from
one position to all others and from each of them directly to the sink, with loops over positions
that have no branches, so that the processor handles several positions at a time. The source and
the source's own position one level below push by rows, because they hold half of all flow or
more, and their edges carry little each.

The flow on a chain is stored as differences, so that pushing over many of its edges changes two
numbers. A lower bound of the residual capacity of each chain makes it unnecessary in most cases
to add these differences up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnflow.maxflow.jit import inlined, kernel, pointer, vectorized
from attnflow.maxflow.network import EPSILON, span

# One position


@inlined
def push_direct(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """Push up to `amount` from (level, u) to sink t without hops; returns the rest."""
    amount = push_over_entry_edges(amount, level, u, t, net, ws)
    return amount - push_over_last_edge(amount, level, u, net, ws)


@inlined
def push_over_last_edge(amount: float, level: int, u: int, net: Any, ws: Any) -> float:
    """Push up to `amount` down the chain of u and over its last edge; returns how much."""
    flow = limit_by_chain(min(amount, ws.demand[u]), u, 1, level - 1, net, ws)
    if flow <= 0:
        return 0.0
    ws.demand[u] -= flow
    push_down_chain(flow, u, 1, level - 1, net, ws)
    return flow


@inlined
def push_over_entry_edges(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """Push up to `amount` from the chain of u into that of t, highest edges first.

    Returns the rest.
    """
    if u == t or amount <= EPSILON:
        return amount
    demand = ws.demand[t]
    low = ws.used_up[u]
    if demand <= EPSILON or low >= level:
        return amount
    if amount > ws.chain_free[u] or min(amount, demand) > ws.chain_free[t]:
        return push_over_entry_edges_checked(amount, level, u, t, net, ws)
    most = demand if demand < amount else amount
    above = 0.0
    for x in range(level - 1, low - 1, -1):  # the innermost loop of the solver: no branches
        room = ws.entry[x * net.n + u]
        flow = most - above
        flow = flow if flow > 0.0 else 0.0
        flow = room if room < flow else flow
        ws.entry[x * net.n + u] = room - flow
        ws.chain_steps[x * net.n + u] -= flow
        ws.chain_steps[(x - 1) * net.n + t] += flow
        above += room
    pushed = above if above < most else most
    if above < most:
        ws.used_up[u] = level
    ws.chain_steps[(level - 1) * net.n + u] += pushed
    ws.chain_steps[t] -= pushed
    ws.chain_free[u] -= pushed
    ws.chain_free[t] -= pushed
    ws.demand[t] = demand - pushed
    return amount - pushed


@kernel
def push_over_entry_edges_checked(
    amount: float, level: int, u: int, t: int, net: Any, ws: Any
) -> float:
    """Do the same where one of the chains may limit the flow."""
    for x in range(level - 1, ws.used_up[u] - 1, -1):
        flow = min(amount, ws.entry[x * net.n + u], ws.demand[t])
        flow = limit_by_chain(flow, t, 1, x - 1, net, ws)
        flow = limit_by_chain(flow, u, x + 1, level - 1, net, ws)
        if flow > EPSILON:
            ws.entry[x * net.n + u] -= flow
            ws.demand[t] -= flow
            push_down_chain(flow, t, 1, x - 1, net, ws)
            push_down_chain(flow, u, x + 1, level - 1, net, ws)
            amount -= flow
    return amount


# Chains


@kernel
def limit_by_chain(amount: float, u: int, low: int, high: int, net: Any, ws: Any) -> float:
    """Return the part of `amount` that fits through edges low … high of the chain of u."""
    if low > high or amount <= ws.chain_free[u]:
        return amount
    return min(amount, chain_residual(u, low, high, net.n, net.depth, net.chain, ws.chain_steps))


@kernel
def push_down_chain(amount: float, u: int, low: int, high: int, net: Any, ws: Any) -> None:
    """Push `amount` over edges low … high of the chain of u."""
    if low <= high:
        ws.chain_steps[high * net.n + u] += amount
        ws.chain_steps[(low - 1) * net.n + u] -= amount
        ws.chain_free[u] -= amount


@kernel
def chain_residual(
    u: int, low: int, high: int, n: int, depth: int, chain: Any, steps: Any
) -> float:
    """Return the exact residual capacity of edges low … high of the chain of u."""
    room = np.inf
    flow = 0.0
    for x in range(depth - 1, low - 1, -1):
        flow += steps[x * n + u]
        if x <= high:
            room = min(room, chain[u * depth + x] - flow)
    return room


# Whole rows


@kernel
def push_source_row(pair: Any, net: Any, ws: Any) -> Any:
    """Push from the source to every position what it can send directly to the sink.

    Adds these amounts to ws.source_flow, and returns their sum.
    """
    level, t = pair.level - 1, pair.sink
    capacity = pointer(net.capacity, (level * net.n + pair.source) * net.n)
    row = row_of(capacity, ws.source_flow, pair, net, ws)
    total = push_row(np.inf, level, t - row.first, t - row.first, row)
    rest = capacity[t] - ws.source_flow[t]
    flow = push_over_last_edge(rest, level, t, net, ws)  # the sink's chain has no entry edges
    ws.source_flow[t] += flow
    return total + flow


@kernel
def push_own_rows(amount: float, level: int, pair: Any, net: Any, ws: Any) -> float:
    """Push up to `amount` from the source's own position at `level` to others, lowest rows first.

    Leaves out rows with flow on single edges. Adds the amounts to ws.row_flow, and returns their
    sum.
    """
    n, s, t = net.n, pair.source, pair.sink
    total = 0.0
    for x in range(1, level):
        room = limit_by_chain(amount - total, s, x + 1, level - 1, net, ws)
        at = s * net.depth + x
        if room <= EPSILON or ws.cursor[at] > 0 or ws.cursor_flow[at] > 0:
            continue
        row = row_of(
            pointer(net.capacity, (x * n + s) * n), pointer(ws.row_flow, x * n), pair, net, ws
        )
        u, v = s - row.first, t - row.first
        flow = push_lowest_row(room, u, v, row) if x == 1 else push_row(room, x, u, v, row)
        push_down_chain(flow, s, x + 1, level - 1, net, ws)
        total += flow
    return total


class Row(NamedTuple):
    """The edges from one position to a whole level, and the fields that a push over them changes.

    As separate arguments of a kernel, its loops can be vectorized.
    """

    n: int
    first: int  # position that paths can visit; all arrays begin there
    size: int  # the number of positions that paths can visit
    capacity: Any  # [size]
    flow: Any  # [size], to which a push adds
    demand: Any
    chain_free: Any
    chain_steps: Any
    entry: Any
    entry_part: Any
    last_part: Any


@inlined
def row_of(capacity: Any, flow: Any, pair: Any, net: Any, ws: Any) -> Any:
    """Return the Row of edges with this capacity and flow."""
    first, end = span(pair, net)
    return Row(
        n=ws.n,
        first=first,
        size=end - first,
        capacity=pointer(capacity, first),
        flow=pointer(flow, first),
        demand=pointer(ws.demand, first),
        chain_free=pointer(ws.chain_free, first),
        chain_steps=pointer(ws.chain_steps, first),
        entry=pointer(ws.entry, first),
        entry_part=pointer(ws.entry_part, first),
        last_part=pointer(ws.last_part, first),
    )


@vectorized
def push_row(amount: float, level: int, u: int, t: int, row: Any) -> float:
    """Push up to `amount` over a row to all positions of `level` but u and t, and to the sink.

    Each position sends what it can over entry edges, then over its last edge. If there is not
    enough for all, each gets the same share of what it could send. Returns the sum.
    """
    n, size = row.n, row.size
    demand, chain_free = row.demand, row.chain_free
    entry_part, last_part = row.entry_part, row.last_part
    free_u, free_t = chain_free[u], chain_free[t]
    chain_free[u], chain_free[t] = 0.0, 0.0  # so that u and t get nothing
    room = max(min(demand[t], free_t), 0.0)
    for q in range(size):
        entry_part[q] = 0.0
    for x in range(1, level if room > 0 else 1):
        at = x * n
        for q in range(size):
            entry_part[q] += row.entry[at + q]
    entering = 0.0
    for q in range(size):
        offer = max(min(row.capacity[q] - row.flow[q], chain_free[q]), 0.0)
        enter = min(offer, entry_part[q])
        last_part[q] = offer
        entry_part[q] = enter
        entering += enter
    chain_free[u], chain_free[t] = free_u, free_t
    share = room / entering if entering > room else 1.0
    last = 0.0
    for q in range(size):
        enter = entry_part[q] * share
        rest = min(last_part[q] - enter, demand[q])
        entry_part[q] = enter
        last_part[q] = rest
        last += rest
    total = share * entering + last
    part = amount / total if total > amount else 1.0
    apply_row(part, share * part * entering, level, t, row)
    return total if total < amount else amount


@inlined
def apply_row(part: float, entering: float, level: int, t: int, row: Any) -> None:
    """Push `part` of the amounts in row.entry_part and row.last_part, for `push_row`.

    entering: the sum of the former, times `part`.
    """
    n, size = row.n, row.size
    top = (level - 1) * n
    for q in range(size):
        enter = row.entry_part[q] * part
        flow = row.last_part[q] * part
        row.entry_part[q] = enter
        row.demand[q] -= flow
        row.chain_steps[q] -= flow
        flow += enter
        row.chain_steps[top + q] += flow
        row.chain_free[q] -= flow
        row.flow[q] += flow
    missing = entering
    for x in range(level - 1, 0, -1):  # highest entry edges first
        if missing <= EPSILON:
            break
        at = x * n
        entered = 0.0
        for q in range(size):
            enter = min(row.entry_part[q], row.entry[at + q])
            row.entry_part[q] -= enter
            row.entry[at + q] -= enter
            row.chain_steps[at + q] -= enter
            entered += enter
        row.chain_steps[at - n + t] += entered
        missing -= entered
    row.demand[t] -= entering
    row.chain_steps[t] -= entering
    row.chain_free[t] -= entering


@vectorized
def push_lowest_row(amount: float, u: int, t: int, row: Any) -> float:
    """Do the same for positions of level 1, which have only their last edges."""
    size, demand, last_part = row.size, row.demand, row.last_part
    demand_u, demand_t = demand[u], demand[t]
    demand[u], demand[t] = 0.0, 0.0  # so that u and t get nothing
    total = 0.0
    for q in range(size):
        flow = max(min(row.capacity[q] - row.flow[q], demand[q]), 0.0)
        last_part[q] = flow
        total += flow
    part = amount / total if total > amount else 1.0
    for q in range(size):
        flow = last_part[q] * part
        demand[q] -= flow
        row.flow[q] += flow
    demand[u], demand[t] = demand_u, demand_t
    return total if total < amount else amount
