"""What a position can deliver without hopping: down its own chain, and straight into the sink's.

Part of the greedy flow. The flow down a chain is kept as differences; a lower bound of what the
chain can still carry spares adding them up most of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.compiling import inlined, kernel
from attnflow.maxflow.network import NOTHING

U = np.uint64  # unsigned indices spare Numba the test for negative ones


@kernel
def chain_room(u: int, low: int, high: int, n: int, depth: int, chain: Any, used: Any) -> float:
    """What the chain of u can still carry over edges low … high, exactly."""
    room = np.inf
    flow = 0.0
    for x in range(depth - 1, low - 1, -1):
        flow += used[U(x * n + u)]
        if x <= high:
            room = min(room, chain[U(u * depth + x)] - flow)
    return room


@inlined
def through_chain(amount: float, u: int, low: int, high: int, net: Any, ws: Any) -> float:
    """The part of `amount` that fits through edges low … high of u's chain."""
    if low > high or amount <= ws.slack[U(u)]:
        return amount
    return min(amount, chain_room(u, low, high, net.n, net.depth, net.chain, ws.used))


@inlined
def use_chain(amount: float, u: int, low: int, high: int, net: Any, ws: Any) -> None:
    """Send `amount` down edges low … high of u's chain."""
    if low <= high:
        ws.used[U(high * net.n + u)] += amount
        ws.used[U((low - 1) * net.n + u)] -= amount
        ws.slack[U(u)] -= amount


@inlined
def drop_with_care(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """The same as `drop_into_chain`, where a chain may be too narrow for it."""
    for x in range(level - 1, 0, -1):
        give = min(amount, ws.drops[U(x * net.n + u)], ws.need[U(t)])
        give = through_chain(give, t, 1, x - 1, net, ws)
        give = through_chain(give, u, x + 1, level - 1, net, ws)
        if give > NOTHING:
            ws.drops[U(x * net.n + u)] -= give
            ws.need[U(t)] -= give
            use_chain(give, t, 1, x - 1, net, ws)
            use_chain(give, u, x + 1, level - 1, net, ws)
            amount -= give
    return amount


@inlined
def drop_into_chain(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """Deliver over edges from u's chain straight into the sink's; returns the rest."""
    if u == t or amount <= NOTHING:
        return amount
    wanted = ws.need[U(t)]
    if wanted <= NOTHING:
        return amount
    if amount > ws.slack[U(u)] or min(amount, wanted) > ws.slack[U(t)]:
        return drop_with_care(amount, level, u, t, net, ws)
    most = wanted if wanted < amount else amount
    above = 0.0
    for x in range(level - 1, 0, -1):  # the innermost loop of all, so without branches
        here = ws.drops[U(x * net.n + u)]
        give = most - above
        give = give if give > 0.0 else 0.0
        give = here if here < give else give
        ws.drops[U(x * net.n + u)] = here - give
        ws.used[U(x * net.n + u)] -= give
        ws.used[U((x - 1) * net.n + t)] += give
        above += here
    given = above if above < most else most
    ws.used[U((level - 1) * net.n + u)] += given
    ws.used[U(t)] -= given
    ws.slack[U(u)] -= given
    ws.slack[U(t)] -= given
    ws.need[U(t)] = wanted - given
    return amount - given


@inlined
def land(amount: float, level: int, u: int, net: Any, ws: Any) -> float:
    """Deliver down u's chain and over its own edge into the sink; returns how much."""
    give = through_chain(min(amount, ws.need[U(u)]), u, 1, level - 1, net, ws)
    if give <= 0:
        return 0.0
    ws.need[U(u)] -= give
    use_chain(give, u, 1, level - 1, net, ws)
    return give


@inlined
def absorb(amount: float, level: int, u: int, t: int, net: Any, ws: Any) -> float:
    """Deliver without hopping: drops into the sink's chain, then u's own edge into the sink.

    Returns what could not be delivered.
    """
    amount = drop_into_chain(amount, level, u, t, net, ws)
    return amount - land(amount, level, u, net, ws)
