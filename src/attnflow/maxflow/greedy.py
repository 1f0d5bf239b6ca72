"""The greedy flow: a blocking flow, built from the source down, and often already maximum.

Flow that arrives at a position first goes to the sink directly (see `direct_flow`). The rest
*hops*: it goes down the chain of the position and over an edge to another position, lowest
levels first, and continues from there in the same way, depth first. A position that could not
send on all it received is *blocked*, and receives nothing more. The order of the source's edges
follows one rule: use first what others cannot use.

There is no residual graph. Hops out of a position are used in order, so a cursor and the flow on
the edge at the cursor describe the flow on all of them. Pushes over hops are logged, so that
`residual` can augment the flow where it is not maximum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from attnflow.maxflow.direct_flow import (
    limit_by_chain,
    push_direct,
    push_down_chain,
    push_own_rows,
    push_source_row,
)
from attnflow.maxflow.jit import (
    ONE,
    fill,
    first_member,
    inlined,
    kernel,
    members_from,
    remove,
)
from attnflow.maxflow.layout import SHALLOW, pack_edge, workspace_of
from attnflow.maxflow.network import EPSILON, graph_of, span

# An edge of the source is tight if its capacity exceeds this part of the capacity with which its
# position can pass flow on to other chains.
TIGHT = 0.3

# How the greedy flow ended.
SINK_FULL = 0  # all last edges are saturated, so the flow equals their capacity
SOURCE_EMPTY = 1  # all edges out of the source are saturated, so the flow equals their capacity
BLOCKED = 2  # neither: the minimum cut lies in between, or the flow is not maximum


class Tally(NamedTuple):
    """Running totals of a greedy flow."""

    unmet: Any  # what the last edges can still carry
    pushes: Any  # number of pushes over hops, including those that the log could not hold


@kernel
def greedy_flow(pair: Any, network: Any, memory: Any) -> tuple[float, int, int]:
    """Compute a blocking flow for a source at level 3 or higher, once its edges are in order.

    Returns the value, how it ended (see above) and the number of pushes.

    If even the edge to the source's own position, with half of the capacity, is not tight, then
    only tight edges are finished one by one. All other positions first push what needs no hops,
    and hop afterwards. The sink is full sooner, and each hop that is saved saves time.
    """
    net, ws = graph_of(network), workspace_of(memory)
    row = ((pair.level - 1) * net.n + pair.source) * net.n
    sink_capacity = reset(pair, net, ws)
    tally = Tally(sink_capacity - EPSILON * net.n, 0)  # rounding may leave some demand
    defer = not is_tight(pair.source, pair, net)
    again = False  # whether positions have pushed before
    all_words = net.n_words if net.causal is None else 2 * net.n_words
    words = all_words if pair.level <= SHALLOW else net.n_words  # of the hops in use
    k = 0
    while tally.unmet > EPSILON:
        if k == net.n or net.capacity[row + ws.order[k]] <= EPSILON:
            if words == all_words:
                return value_at_source(row, pair, tally.pushes, net, ws)
            words, again, k = all_words, True, 0
            unblock(pair, net, ws)
        elif defer and not again and not is_tight(ws.order[k], pair, net):
            tally = Tally(tally.unmet - push_source_row(pair, net, ws), tally.pushes)
            again, k = True, 0
        else:
            u = ws.order[k]
            k += 1
            if net.causal is None or u >= pair.sink:
                tally = push_source_edge(
                    u, net.capacity[row + u], again, words, tally, pair, net, ws
                )
    return sink_capacity, SINK_FULL, tally.pushes


@inlined
def unblock(pair: Any, net: Any, ws: Any) -> None:
    """Mark all positions as unblocked."""
    first, end = span(pair, net)
    for level in range(1, pair.level):
        fill(ws.unblocked, level * net.n_words, net.n_words, first, end)
    for u in range(first, end):
        ws.used_up[net.n + u] = 2


@kernel
def reset(pair: Any, net: Any, ws: Any) -> float:
    """Prepare the workspace for a pair; returns the sum of the last edges' capacities."""
    first, end = span(pair, net)
    n, depth, t = net.n, net.depth, pair.sink
    for x in range(depth):
        at, into = x * n, (x * n + t) * n
        for u in range(first, end):
            ws.entry[at + u] = net.column[into + u]
            ws.chain_steps[at + u] = 0.0
            ws.row_flow[at + u] = 0.0
    for e in range(first * depth, end * depth):
        ws.cursor[e] = 0
        ws.cursor_flow[e] = 0.0
    total = 0.0
    for u in range(first, end):
        ws.demand[u] = ws.entry[u]
        total += ws.demand[u]
        ws.chain_free[u] = net.chain_least[pair.level * n + u]
        ws.source_flow[u] = 0.0
    for u in range(first, end):
        ws.used_up[u] = 1
    for x in range(depth):
        ws.entry[x * n + t] = 0.0  # the chain of the sink has no entry edge to itself
    unblock(pair, net, ws)
    return total


@kernel
def value_at_source(row: int, pair: Any, pushes: int, net: Any, ws: Any) -> tuple[float, int, int]:
    """Return value, end and pushes of a flow that has tried all edges of the source."""
    first, end = span(pair, net)
    offered = 0.0
    sent = 0.0
    for q in range(first, end):
        offered += net.capacity[row + q]
        sent += ws.source_flow[q]
    if offered - sent <= EPSILON * net.n:
        return offered, SOURCE_EMPTY, pushes
    return sent, BLOCKED, pushes


@inlined
def push_source_edge(
    child: int, offer: float, again: bool, words: int, tally: Any, pair: Any, net: Any, ws: Any
) -> Any:
    """Push up to `offer` from the source to one position, and on to the sink, depth first.

    again: the position has already sent everything that needs no hops.
    Stops early when the sink is full. Returns the new tally.

    A recursion with an explicit stack, of height `top`. The current node (level, u) offers flow to
    a child over an edge from level `hop` of its chain; `left` is what it still has to push.
    """
    level, u, hop, left, top = pair.level, pair.source, pair.level, 0.0, 0
    while True:
        if child >= 0:
            if top == 0 and again:
                rest = offer - ws.source_flow[child]
                flow = 0.0
            else:
                rest = push_direct(offer, hop - 1, child, pair.sink, net, ws)
                flow = offer - rest
            tally = Tally(tally.unmet - flow, tally.pushes)
        else:  # (level, u) has no hop left: return to its parent
            if left > EPSILON:
                remove(ws.unblocked, level * net.n_words, u)
            child, rest = u, 0.0
            flow = ws.stack_amounts[2 * top + 1] - left
            top -= 1
            level, u, hop, left = load_node(top, ws)
        if flow > 0:
            if top == 0:
                ws.source_flow[child] += flow
            else:
                tally = record_hop(flow, child, level, u, hop, tally, net, ws)
            left -= flow
        if rest > EPSILON and tally.unmet > EPSILON:  # the child has to hop
            save_node(top, level, u, hop, left, ws)
            top += 1
            ws.stack_amounts[2 * top + 1] = rest
            level, u, hop, left = hop - 1, child, ws.used_up[net.n + child], rest
            if top == 1 and u == pair.source:
                flow = push_own_rows(left, level, pair, net, ws)
                left -= flow
                tally = Tally(tally.unmet - flow, tally.pushes)
        if top == 0 or tally.unmet <= EPSILON:
            return tally
        child, offer, hop, left, tally = next_hop(level, u, hop, left, words, tally, pair, net, ws)
        if tally.unmet <= EPSILON:
            return tally


@inlined
def save_node(top: int, level: int, u: int, hop: int, left: float, ws: Any) -> None:
    """Save the current node on the stack."""
    ws.stack[3 * top], ws.stack[3 * top + 1], ws.stack[3 * top + 2] = level, u, hop
    ws.stack_amounts[2 * top] = left


@inlined
def load_node(top: int, ws: Any) -> tuple[int, int, int, float]:
    """Return level, u, hop and left of a saved node."""
    return (
        ws.stack[3 * top],
        ws.stack[3 * top + 1],
        ws.stack[3 * top + 2],
        ws.stack_amounts[2 * top],
    )


# Hops


@inlined
def record_hop(
    flow: float, child: int, level: int, u: int, hop: int, tally: Any, net: Any, ws: Any
) -> Any:
    """Record that `flow` went from (level, u) down its chain to `hop`, and on to a child."""
    ws.cursor_flow[u * net.depth + hop - 1] += flow
    push_down_chain(flow, u, hop, level - 1, net, ws)
    return Tally(tally.unmet, log_push(flow, hop - 1, u, child, tally.pushes, ws))


@inlined
def next_hop(
    level: int, u: int, hop: int, left: float, words: int, tally: Any, pair: Any, net: Any, ws: Any
) -> Any:
    """Find the next hop of (level, u) that has capacity, at level `hop` of its chain or above.

    Hops to level 1 are pushed at once, since flow continues from there over last edges only.
    Returns the child, or -1 if there is no hop left, what to offer it, and the new values of hop,
    left and tally.
    """
    while left > EPSILON and hop <= level:
        room = limit_by_chain(left, u, hop, level - 1, net, ws)
        if room <= EPSILON:
            hop += 1
        elif hop == 2:
            rest, pushes = push_lowest_hops(room, u, words, tally.pushes, pair, net, ws)
            push_down_chain(room - rest, u, 2, level - 1, net, ws)
            left -= room - rest
            tally = Tally(tally.unmet - (room - rest), pushes)
            if rest > EPSILON:
                block(2, u, net, ws)
                hop = 3
        else:
            child = next_child(hop - 1, u, words, pair, net, ws)
            if child >= 0:
                unused = hop_capacity(hop - 1, u, child, pair, net, ws)
                unused -= ws.cursor_flow[u * net.depth + hop - 1]
                return child, min(room, unused), hop, left, tally
            block(hop, u, net, ws)
            hop += 1
    return -1, 0.0, hop, left, tally


@inlined
def block(level: int, u: int, net: Any, ws: Any) -> None:
    """Mark (level, u) as blocked, unless only its chain may have limited the flow."""
    if ws.used_up[net.n + u] == level:
        ws.used_up[net.n + u] = level + 1
    if ws.chain_free[u] > EPSILON:
        remove(ws.unblocked, level * net.n_words, u)


@inlined
def hop_capacity(x: int, u: int, q: int, pair: Any, net: Any, ws: Any) -> Any:
    """Return the capacity of edge x from u to q, less what was pushed by whole rows."""
    edge = net.capacity[(x * net.n + u) * net.n + q]
    return edge - ws.row_flow[x * net.n + q] if u == pair.source else edge


@inlined
def next_child(x: int, u: int, words: int, pair: Any, net: Any, ws: Any) -> Any:
    """Return the end of the first edge x out of u that is not saturated, or -1.

    Large edges come first. Moves the cursor there. Edges to blocked positions, to u and to the
    sink's position are no hops.
    """
    words = net.n_words if net.causal is None else words
    at = u * net.depth + x
    cursor = ws.cursor[at]
    used = ws.cursor_flow[at]
    w = cursor >> 6
    if w >= words:
        return -1
    word = members_from(hops_in_word(x, u, w, net, ws), cursor)
    while True:
        while word == 0:
            w += 1
            if w == words:
                ws.cursor[at] = w << 6
                return -1
            word = hops_in_word(x, u, w, net, ws)
        here = first_member(word, w)
        q = hop_end(here, w, net)
        if here != cursor:
            used = 0.0
        if q != u and q != pair.sink and hop_capacity(x, u, q, pair, net, ws) - used > EPSILON:
            ws.cursor[at] = here
            ws.cursor_flow[at] = used
            return q
        word &= word - ONE


@inlined
def hop_end(cursor: int, w: int, net: Any) -> int:
    """Return the position to which the hop at a cursor leads, in word w of its row's hops."""
    return cursor if net.causal is None or w < net.n_words else cursor - (net.n_words << 6)


@inlined
def hops_in_word(x: int, u: int, w: int, net: Any, ws: Any) -> Any:
    """Return word w of the unblocked positions.

    In causal graphs, the first words are those at large edges x of u, and the others follow.
    """
    if net.causal is None:
        return ws.unblocked[x * net.n_words + w]
    large = (x * net.n + u) * net.n_words
    if w < net.n_words:
        return ws.unblocked[x * net.n_words + w] & net.large[large + w]
    w -= net.n_words
    return ws.unblocked[x * net.n_words + w] & ~net.large[large + w]


@inlined
def push_lowest_hops(
    amount: float, u: int, words: int, pushes: int, pair: Any, net: Any, ws: Any
) -> Any:
    """Push up to `amount` from (2, u) over hops to level 1 and last edges; returns the rest.

    Also returns the number of pushes.
    """
    words = net.n_words if net.causal is None else words
    at = u * net.depth + 1
    cursor = ws.cursor[at]
    used = ws.cursor_flow[at]
    w = cursor >> 6
    if w >= words:
        return amount, pushes
    word = members_from(hops_in_word(1, u, w, net, ws), cursor)
    while True:
        while word == 0:
            w += 1
            if w == words:
                ws.cursor[at] = w << 6
                return amount, pushes
            word = hops_in_word(1, u, w, net, ws)
        here = first_member(word, w)
        q = hop_end(here, w, net)
        if here != cursor:
            cursor = here
            used = 0.0
        demand = ws.demand[q]
        if demand <= EPSILON:
            remove(ws.unblocked, net.n_words, q)
        elif q != u and q != pair.sink:
            flow = hop_capacity(1, u, q, pair, net, ws) - used
            flow = demand if demand < flow else flow
            flow = amount if amount < flow else flow
            if flow > EPSILON:
                used += flow
                ws.demand[q] = demand - flow
                amount -= flow
                pushes = log_push(flow, 1, u, q, pushes, ws)
                if amount <= EPSILON:
                    ws.cursor[at] = here
                    ws.cursor_flow[at] = used
                    return amount, pushes
        word &= word - ONE


@inlined
def log_push(flow: float, x: int, u: int, q: int, pushes: int, ws: Any) -> int:
    """Log a push over edge x from u to q, if there is room; returns the new number of pushes."""
    if pushes < ws.log_size:
        ws.log_edge[pushes] = pack_edge(x, u, q)
        ws.log_amount[pushes] = flow
    return pushes + 1


# The order of the source's edges


@kernel
def order_source_edges(level: int, s: int, network: Any, memory: Any) -> None:
    """Fill ws.order: the positions below source (level, s), tightest edges first.

    The tightest edge has the largest ratio of its capacity to the capacity with which its position
    can pass flow on to other chains. A stable merge sort; positions without an edge come last.
    """
    net, ws = graph_of(network), workspace_of(memory)
    n = net.n
    row = ((level - 1) * n + s) * n
    for u in range(n):
        edge = net.capacity[row + u]
        ws.source_flow[u] = (
            edge / (net.off_chain[level * n + u] + EPSILON) if edge > EPSILON else 0.0
        )
        ws.order[u] = u
    run = 1
    while run < n:
        for start in range(0, n, 2 * run):
            merge_runs(start, min(start + run, n), min(start + 2 * run, n), ws)
        for k in range(n):
            ws.order[k] = ws.path[k]
        run *= 2


@inlined
def merge_runs(start: int, middle: int, end: int, ws: Any) -> None:
    """Merge two sorted runs of ws.order, which meet at `middle`, into ws.path."""
    i, j = start, middle
    for k in range(start, end):
        left = i < middle
        if left and j < end:
            left = ws.source_flow[ws.order[i]] >= ws.source_flow[ws.order[j]]
        if left:
            ws.path[k] = ws.order[i]
            i += 1
        else:
            ws.path[k] = ws.order[j]
            j += 1


@inlined
def is_tight(u: int, pair: Any, net: Any) -> bool:
    """Return whether the source's edge to u is tight."""
    edge = net.capacity[((pair.level - 1) * net.n + pair.source) * net.n + u]
    return bool(edge > TIGHT * net.off_chain[pair.level * net.n + u])
