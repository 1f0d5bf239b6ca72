"""One blocking flow, built from the source down: often the maximum already.

What arrives at a position is first delivered without a detour: over its edges straight into the
sink's chain, highest first, and down its own chain to its own edge into the sink. Only what is
left hops to other positions, from the lowest level upwards, and a position that once could not
place all it was given is never asked again. The order follows one rule: use first what others
cannot use.

No residual graph is kept. Edges out of a position are used in order, so a cursor and the use of
the edge under it say all; the flow down a chain is kept as differences. Pushes over hopping edges
are logged, so that a pair that needs more can be carried on by `residual`.

Which of the source's edges the greedy flow takes first: the tightest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.jit import ONE, drop, fill, first_member, inlined, kernel, pack
from attnflow.maxflow.layout import NOTHING, log_size, span, tables_of, workspace_of
from attnflow.maxflow.sweep import absorb, sweep_rows, sweep_source, through_chain, use_chain

# A position is tight if the source gives it more than this part of the ways on it has.
TIGHT = 0.3


@kernel
def sort_edges(level: int, s: int, network: Any, scratch: Any) -> None:
    """Put the positions into ws.order, those first that get most for the ways on they have.

    What they get is the edge from (level, s); with few ways to place it they must choose first.
    Merges runs of doubling length; equal ones keep their order, and those without an edge are last.
    """
    net, ws = tables_of(network), workspace_of(network, scratch)
    n = net.n
    first = ((level - 1) * n + s) * n
    for u in range(n):
        given = net.capacity[first + u]
        ways = net.ways[level * n + u]
        ws.sent[u] = given / (ways + NOTHING) if given > NOTHING else 0.0
        ws.order[u] = u
    run = 1
    while run < n:
        for start in range(0, n, 2 * run):
            i, middle, end = start, min(start + run, n), min(start + 2 * run, n)
            j = middle
            for k in range(start, end):
                left = i < middle
                if left and j < end:
                    a, b = ws.order[i], ws.order[j]
                    left = ws.sent[a] >= ws.sent[b]
                if left:
                    ws.queue[k] = ws.order[i]
                    i += 1
                else:
                    ws.queue[k] = ws.order[j]
                    j += 1
        for k in range(n):
            ws.order[k] = ws.queue[k]
        run *= 2


@inlined
def is_tight(level: int, s: int, u: int, net: Any) -> bool:
    """Say whether u has few ways on for what (level, s) can give it."""
    given = net.capacity[((level - 1) * net.n + s) * net.n + u]
    return bool(given > TIGHT * net.ways[level * net.n + u])


U = np.uint64

# How `greedy_flow` ended.
SINK_FULL = 0  # every edge into the sink is used up: the value is the sink's capacity
SOURCE_EMPTY = 1  # every edge out of the source is used up: the value is the source's capacity
STUCK = 2  # neither: there is a cut in between, or the flow is not maximal yet


@inlined
def left_of(x: int, u: int, q: int, s: int, net: Any, ws: Any) -> Any:
    """What whole rows have left of edge x from u to q."""
    edge = net.capacity[(x * net.n + u) * net.n + q]
    return edge - ws.swept[x * net.n + q] if u == s else edge


@inlined
def next_arc(u: int, s: int, t: int, x: int, net: Any, ws: Any) -> Any:
    """The first edge x out of u, from its cursor on, that is not used up; -1 if none is left."""
    at = u * net.depth + x
    q = ws.cursor[at]
    spent = ws.taken[at]
    w = q >> 6
    if w >= net.n_words:
        return -1
    word = ws.alive[x * net.n_words + w] & ~((ONE << U(q & 63)) - ONE)
    while True:
        while word == 0:
            w += 1
            if w == net.n_words:
                ws.cursor[at] = w << 6
                return -1
            word = ws.alive[x * net.n_words + w]
        member = first_member(word, w)
        if member != q:
            spent = 0.0
        if member != u and member != t and (left_of(x, u, member, s, net, ws) - spent > NOTHING):
            ws.cursor[at] = member
            ws.taken[at] = spent
            return member
        word &= word - ONE


@inlined
def serve_last(
    amount: float, u: int, s: int, t: int, log: int, net: Any, ws: Any
) -> tuple[float, int]:
    """Push `amount` from (2, u) to level-1 positions with need; returns the rest and the log."""
    at = u * net.depth + 1
    q = ws.cursor[at]
    spent = ws.taken[at]
    w = q >> 6
    if w >= net.n_words:
        return amount, log
    word = ws.alive[net.n_words + w] & ~((ONE << U(q & 63)) - ONE)
    while True:
        while word == 0:
            w += 1
            if w == net.n_words:
                ws.cursor[at] = w << 6
                return amount, log
            word = ws.alive[net.n_words + w]
        member = first_member(word, w)
        if member != q:
            q = member
            spent = 0.0
        wanted = ws.need[q]
        if wanted <= NOTHING:
            ws.alive[net.n_words + w] &= ~(word & (~word + ONE))
        elif q != u and q != t:
            give = left_of(1, u, q, s, net, ws) - spent
            give = wanted if wanted < give else give
            give = amount if amount < give else give
            if give > NOTHING:
                spent += give
                ws.need[q] = wanted - give
                amount -= give
                if log < log_size(net.n, net.depth):
                    ws.log_edge[log] = pack(1, u, q)
                    ws.log_amount[log] = give
                log += 1
                if amount <= NOTHING:
                    ws.cursor[at] = q
                    ws.taken[at] = spent
                    break
        word &= word - ONE
    return amount, log


@inlined
def give_up(level: int, u: int, net: Any, ws: Any) -> None:
    """Remember that (level, u) cannot place any more, unless its chain may have held it up."""
    if ws.slack[u] > NOTHING:
        drop(ws.alive, level * net.n_words, u)


@inlined
def credit(
    gave: float, child: int, d: int, level: int, u: int, hop: int, log: int, net: Any, ws: Any
) -> int:
    """Book what went from (level, u) to a child over a hop, or from the source if d is 0."""
    if d == 0:
        ws.sent[child] += gave
        return log
    ws.taken[u * net.depth + hop - 1] += gave
    use_chain(gave, u, hop, level - 1, net, ws)
    if log < log_size(net.n, net.depth):
        ws.log_edge[log] = pack(hop - 1, u, child)
        ws.log_amount[log] = gave
    return log + 1


@inlined
def next_child(
    level: int, u: int, s: int, t: int, hop: int, left: float, short: float, log: int,
    net: Any, ws: Any,
) -> Any:  # fmt: skip
    """Serve level 1 if that is where (level, u) hops to, and find the next child otherwise.

    Returns the child or -1, what to offer it, and the hop, what is left, short and logged by now.
    """
    while left > NOTHING and hop <= level:
        room = through_chain(left, u, hop, level - 1, net, ws)
        if room <= NOTHING:
            hop += 1
        elif hop == 2:
            rest, log = serve_last(room, u, s, t, log, net, ws)
            use_chain(room - rest, u, 2, level - 1, net, ws)
            left -= room - rest
            short -= room - rest
            if rest > NOTHING:
                give_up(2, u, net, ws)
                hop = 3
        else:
            child = next_arc(u, s, t, hop - 1, net, ws)
            if child >= 0:
                unused = left_of(hop - 1, u, child, s, net, ws)
                unused -= ws.taken[u * net.depth + hop - 1]
                return child, min(room, unused), hop, left, short, log
            give_up(hop, u, net, ws)
            hop += 1
    return -1, 0.0, hop, left, short, log


@inlined
def prepare(level: int, t: int, first: int, end: int, net: Any, ws: Any) -> float:
    """Reset the workspace for a source at `level` and sink t; returns the sink's capacity.

    Only for positions first … end - 1, which are all that are looked at.
    """
    n, depth = net.n, net.depth
    for x in range(depth):
        at, into = x * n, (x * n + t) * n
        for u in range(first, end):
            ws.drops[at + u] = net.column[into + u]
            ws.used[at + u] = 0.0
            ws.swept[at + u] = 0.0
    for e in range(first * depth, end * depth):
        ws.cursor[e] = 0
        ws.taken[e] = 0.0
    total = 0.0
    for u in range(first, end):
        ws.need[u] = ws.drops[u]
        total += ws.need[u]
        ws.slack[u] = net.slack[level * n + u]
        ws.sent[u] = 0.0
    for x in range(depth):
        ws.drops[x * n + t] = 0.0  # the sink's own chain is a chain, not a drop
    for m in range(1, level):
        fill(ws.alive, m * net.n_words, net.n_words, first, end)
    return total


@kernel
def greedy_flow(level: int, s: int, t: int, network: Any, scratch: Any) -> tuple[float, int, int]:
    """A blocking flow from (level, s) to token t, for level >= 3, once `sort_edges` was called.

    Returns the value, how it ended and the number of pushes (those past the log are lost).

    Where even the source's own position, which gets half of all, is not tight, there is room
    enough: only tight positions hop at once, the others when all have delivered without hopping.
    The sink is full sooner then, and each hop that is spared saves time.

    Depth first with an explicit stack: d is the depth, 0 being the source. ws.frames holds level,
    position and hop of the nodes above, ws.amounts what they have left and what they were given.
    """
    net, ws = tables_of(network), workspace_of(network, scratch)
    row = ((level - 1) * net.n + s) * net.n
    first, end = span(s, t, net)
    total = prepare(level, t, first, end, net, ws)
    short = total - NOTHING * net.n  # rounding may leave this much of the last few needs
    u, hop, d, k, log = s, level, 0, 0, 0
    second, patient = False, net.causal is None and not is_tight(level, s, s, net)
    left = 0.0
    while True:
        if d == 0:
            if k == net.n or net.capacity[row + ws.order[k]] <= NOTHING:
                if second or not patient:
                    break
                second, k = True, 0
                continue
            child = ws.order[k]
            if patient and not second and not is_tight(level, s, child, net):
                short -= sweep_source(level, s, t, net, ws)
                if short <= NOTHING:
                    return total, SINK_FULL, log
                second, k = True, 0
                continue
            offer = net.capacity[row + child]
            k += 1
            if net.causal is not None and child < t:
                continue
        else:
            child, offer, hop, left, short, log = next_child(
                level, u, s, t, hop, left, short, log, net, ws
            )
        if child >= 0:
            if d == 0 and second:  # it has delivered all that it can without hopping
                rest, gave = offer - ws.sent[child], 0.0
            else:
                rest = absorb(offer, hop - 1, child, t, net, ws)
                gave = offer - rest
            if gave > 0:
                log = credit(gave, child, d, level, u, hop, log, net, ws)
                left -= gave
                short -= gave
            if rest > NOTHING and short > NOTHING:  # the child has to hop
                ws.frames[3 * d], ws.frames[3 * d + 1], ws.frames[3 * d + 2] = level, u, hop
                ws.amounts[2 * d] = left
                d += 1
                ws.amounts[2 * d + 1] = rest
                level, u, hop, left = hop - 1, child, 2, rest
                if d == 1 and u == s and net.causal is None:
                    gave = sweep_rows(level, left, s, t, net, ws)
                    left -= gave
                    short -= gave
        elif short > NOTHING:
            if left > NOTHING:
                drop(ws.alive, level * net.n_words, u)
            child = u
            gave = ws.amounts[2 * d + 1] - left
            d -= 1
            level, u, hop = ws.frames[3 * d], ws.frames[3 * d + 1], ws.frames[3 * d + 2]
            left = ws.amounts[2 * d]
            if gave > 0:
                log = credit(gave, child, d, level, u, hop, log, net, ws)
                left -= gave
        if short <= NOTHING:
            return total, SINK_FULL, log
    offered = 0.0
    delivered = 0.0
    for q in range(first, end):
        offered += net.capacity[row + q]
        delivered += ws.sent[q]
    if offered - delivered <= NOTHING * net.n:
        return offered, SOURCE_EMPTY, log
    return delivered, STUCK, log
