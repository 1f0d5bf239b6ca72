"""What a position can deliver without hopping: down its own chain, and straight into the sink's.

Part of the greedy flow. The flow down a chain is kept as differences; a lower bound of what the
chain can still carry spares adding them up most of the time.

Whole rows of edges at once: what many positions can deliver without hopping.

Part of the greedy flow, and the same as `absorb` for one position after the other, except that
where not all can have what they could use, each gets its share. The loops run over positions,
without branches, so that the processor takes several at a time.

Only the source and its own position give by rows: they have half of all there is, or more, for
edges that carry crumbs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.jit import inlined, kernel, place, vectorized
from attnflow.maxflow.layout import NOTHING


@kernel
def chain_room(u: int, low: int, high: int, n: int, depth: int, chain: Any, used: Any) -> float:
    """What the chain of u can still carry over edges low … high, exactly."""
    room = np.inf
    flow = 0.0
    for x in range(depth - 1, low - 1, -1):
        flow += used[x * n + u]
        if x <= high:
            room = min(room, chain[u * depth + x] - flow)
    return room


@inlined
def through_chain(amount: float, u: int, low: int, high: int, net: Any, ws: Any) -> float:
    """The part of `amount` that fits through edges low … high of u's chain."""
    if low > high or amount <= ws.slack[u]:
        return amount
    return min(amount, chain_room(u, low, high, net.n, net.depth, net.chain, ws.used))


@inlined
def use_chain(amount: float, u: int, low: int, high: int, net: Any, ws: Any) -> None:
    """Send `amount` down edges low … high of u's chain."""
    if low <= high:
        ws.used[high * net.n + u] += amount
        ws.used[(low - 1) * net.n + u] -= amount
        ws.slack[u] -= amount


@inlined
def drop_with_care(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """The same as `drop_into_chain`, where a chain may be too narrow for it."""
    for x in range(level - 1, 0, -1):
        give = min(amount, ws.drops[x * net.n + u], ws.need[t])
        give = through_chain(give, t, 1, x - 1, net, ws)
        give = through_chain(give, u, x + 1, level - 1, net, ws)
        if give > NOTHING:
            ws.drops[x * net.n + u] -= give
            ws.need[t] -= give
            use_chain(give, t, 1, x - 1, net, ws)
            use_chain(give, u, x + 1, level - 1, net, ws)
            amount -= give
    return amount


@inlined
def drop_into_chain(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """Deliver over edges from u's chain straight into the sink's; returns the rest."""
    if u == t or amount <= NOTHING:
        return amount
    wanted = ws.need[t]
    if wanted <= NOTHING:
        return amount
    if amount > ws.slack[u] or min(amount, wanted) > ws.slack[t]:
        return drop_with_care(amount, level, u, t, net, ws)
    most = wanted if wanted < amount else amount
    above = 0.0
    for x in range(level - 1, 0, -1):  # the innermost loop of all, so without branches
        here = ws.drops[x * net.n + u]
        give = most - above
        give = give if give > 0.0 else 0.0
        give = here if here < give else give
        ws.drops[x * net.n + u] = here - give
        ws.used[x * net.n + u] -= give
        ws.used[(x - 1) * net.n + t] += give
        above += here
    given = above if above < most else most
    ws.used[(level - 1) * net.n + u] += given
    ws.used[t] -= given
    ws.slack[u] -= given
    ws.slack[t] -= given
    ws.need[t] = wanted - given
    return amount - given


@inlined
def land(amount: float, level: int, u: int, net: Any, ws: Any) -> float:
    """Deliver down u's chain and over its own edge into the sink; returns how much."""
    give = through_chain(min(amount, ws.need[u]), u, 1, level - 1, net, ws)
    if give <= 0:
        return 0.0
    ws.need[u] -= give
    use_chain(give, u, 1, level - 1, net, ws)
    return give


@inlined
def absorb(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """Deliver without hopping: drops into the sink's chain, then u's own edge into the sink.

    Returns what could not be delivered.
    """
    amount = drop_into_chain(amount, level, u, t, net, ws)
    return amount - land(amount, level, u, net, ws)


@inlined
def sweep_source(level: int, s: int, t: int, net: Any, ws: Any) -> Any:
    """Let the source at `level` give to all positions what they deliver without hopping.

    Adds it to ws.sent, and returns the sum.
    """
    row = ((level - 1) * net.n + s) * net.n
    total = sweep(np.inf, row, level - 1, t, t, ws.sent, net, ws)
    offer = net.capacity[row + t] - ws.sent[t]
    gave = land(offer, level - 1, t, net, ws)  # the sink's own position has no drops
    ws.sent[t] += gave
    return total + gave


@inlined
def sweep_rows(level: int, left: float, s: int, t: int, net: Any, ws: Any) -> float:
    """Let the source's own position give what it has left to others, lowest rows first.

    Adds it to ws.swept, and returns the sum. Rows of which others have used some are left out.
    """
    n = net.n
    total = 0.0
    for x in range(1, level):
        room = through_chain(left - total, s, x + 1, level - 1, net, ws)
        at = s * net.depth + x
        if room <= NOTHING or ws.cursor[at] > 0 or ws.taken[at] > 0:
            continue
        row = (x * n + s) * n
        given = place(ws.swept, x * n)
        if x == 1:
            gave = sweep_last(room, row, s, t, given, net, ws)
        else:
            gave = sweep(room, row, x, s, t, given, net, ws)
        use_chain(gave, s, x + 1, level - 1, net, ws)
        total += gave
    return total


@inlined
def sweep(amount: float, row: int, m: int, u: int, t: int, given: Any, net: Any, ws: Any) -> float:
    """`sweep_row` of a network; handing over only the arrays it needs saves much of a call."""
    return sweep_row(
        amount, net.n, row, m, u, t, given, net.capacity, ws.drops,
        ws.used, ws.need, ws.slack, ws.dropped, ws.landed,
    )  # fmt: skip


@inlined
def sweep_last(amount: float, row: int, u: int, t: int, given: Any, net: Any, ws: Any) -> float:
    """The same for `sweep_last_row`."""
    return sweep_last_row(
        amount, net.n, row, u, t, given, net.capacity, ws.need, ws.landed
    )  # fmt: skip


@vectorized
def sweep_row(
    amount: float, n: int, row: int, m: int, u: int, t: int, given: Any, capacity: Any, drops: Any,
    used: Any, need: Any, slack: Any, dropped: Any, landed: Any,
) -> float:  # fmt: skip
    """Give up to `amount` over the edges from `row` on to all positions of level m but u and t.

    They pass on what they can: over drops into the sink's chain, highest first, then down to
    their own edges into the sink. Adds what each got to `given` [n], and returns the sum.
    """
    kept_u, kept_t = slack[u], slack[t]
    slack[u], slack[t] = 0.0, 0.0  # so that they get nothing
    room = max(min(need[t], kept_t), 0.0)
    for q in range(n):
        dropped[q] = 0.0
    for x in range(1, m if room > 0 else 1):
        at = x * n
        for q in range(n):
            dropped[q] += drops[at + q]
    falling = 0.0
    for q in range(n):
        offer = max(min(capacity[row + q] - given[q], slack[q]), 0.0)
        drop = min(offer, dropped[q])
        landed[q] = offer
        dropped[q] = drop
        falling += drop
    slack[u], slack[t] = kept_u, kept_t
    share = room / falling if falling > room else 1.0
    own = 0.0
    for q in range(n):
        drop = dropped[q] * share
        rest = min(landed[q] - drop, need[q])
        dropped[q] = drop
        landed[q] = rest
        own += rest
    total = share * falling + own
    part = amount / total if total > amount else 1.0
    falling *= share * part
    top = (m - 1) * n
    for q in range(n):
        drop = dropped[q] * part
        rest = landed[q] * part
        dropped[q] = drop
        need[q] -= rest
        used[q] -= rest
        rest += drop
        used[top + q] += rest
        slack[q] -= rest
        given[q] += rest
    missing = falling
    for x in range(m - 1, 0, -1):
        if missing <= NOTHING:
            break
        at = x * n
        arrived = 0.0
        for q in range(n):
            drop = min(dropped[q], drops[at + q])
            dropped[q] -= drop
            drops[at + q] -= drop
            used[at + q] -= drop
            arrived += drop
        used[at - n + t] += arrived
        missing -= arrived
    need[t] -= falling
    used[t] -= falling
    slack[t] -= falling
    return total if total < amount else amount


@vectorized
def sweep_last_row(
    amount: float, n: int, row: int, u: int, t: int, given: Any, capacity: Any, need: Any,
    landed: Any,
) -> float:  # fmt: skip
    """The same for positions of level 1, which have nothing but their own edges."""
    kept_u, kept_t = need[u], need[t]
    need[u], need[t] = 0.0, 0.0
    total = 0.0
    for q in range(n):
        rest = max(min(capacity[row + q] - given[q], need[q]), 0.0)
        landed[q] = rest
        total += rest
    part = amount / total if total > amount else 1.0
    for q in range(n):
        rest = landed[q] * part
        need[q] -= rest
        given[q] += rest
    need[u], need[t] = kept_u, kept_t
    return total if total < amount else amount
