"""What a position can deliver without hopping: down its own chain, and straight into the sink's.

Part of the greedy flow. The flow down a chain is kept as differences; a lower bound of what the
chain can still carry spares adding them up most of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.compiling import inlined, kernel
from attnflow.maxflow.network import NOTHING


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
