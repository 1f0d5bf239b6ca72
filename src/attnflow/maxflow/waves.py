"""Waves: a maximum flow by whole rows, for causal graphs of few layers.

The source's edges and the last edges are saturated at once. That leaves a *surplus* at nodes that
receive more than they send on, and a *deficit* at those that send more. Waves move surplus to
deficits over edges with residual capacity, or up, by cancelling flow. A wave takes three steps:

1. `label_nodes` finds the distance of each node from the nearest deficit. Nodes at the same
   distance form a *ring*.
2. `measure_rooms` bounds from above what each node can move to deficits, ring by ring.
3. `push_ring` moves surplus one ring down, never more into a node than its room.

Rows are handled in blocks of 64 edges, without branches, so that the processor computes several
edges at a time. What no wave can move lies on the source's side of a minimum cut: no deficit can be
reached from there. Surplus on this side would go back to the source, and deficits on the
other side would not be filled, so that the flow over the cut is a flow from the source to the sink.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnflow.maxflow.jit import (
    ALL,
    NO_MEMBER,
    ONE,
    contains,
    fill,
    first_member,
    inlined,
    insert,
    kernel,
    last_member,
    pointer,
    vectorized,
)
from attnflow.maxflow.layout import BLOCK, RINGS, workspace_of
from attnflow.maxflow.network import EPSILON

QUARTER = BLOCK // 4
MOST_WAVES = 24
TOO_MANY = -1.0  # returned by `flow_by_waves` for a pair that needs more


class Wave(NamedTuple):
    """A pair in a causal graph, and the part of the graph that its paths can visit."""

    level: int
    source: int
    sink: int
    start: int  # the first word of the sets of positions
    last: int  # the end of the words
    capacity: Any  # [depth, n, n] flat
    into: Any  # [n], the capacities of the last edges


@kernel
def flow_by_waves(pair: Any, capacity: Any, into: Any, memory: Any) -> float:
    """Return the value of a maximum flow, from level 3 or higher; -1 if it takes too many waves.

    capacity: a pointer to all capacities; into: one to those of the last edges. `list_open_edges`
    must have been called. ws.unreached then holds the source's side of a minimum cut.
    """
    ws = workspace_of(memory)
    level, source, sink = pair
    wave = Wave(level, source, sink, sink >> 6, (source >> 6) + 1, capacity, into)
    start_waves(wave, ws)
    for _ in range(MOST_WAVES):
        farthest = label_nodes(wave, ws)
        if farthest <= 0:
            return value_of_waves(wave, ws) if farthest == 0 else TOO_MANY
        keep_ways_of_surplus(farthest, wave, ws)
        measure_rooms(farthest, wave, ws)
        for k in range(farthest, 0, -1):
            for level in range(wave.level - 1, 0, -1):
                push_ring(k, level, wave, ws)
    return TOO_MANY


@kernel
def flow_by_waves_if(causal: Any, pair: Any, capacity: Any, into: Any, memory: Any) -> float:
    """Do the same in causal graphs. For others, Numba then need not compile it."""
    if causal is None:
        return TOO_MANY
    return flow_by_waves(pair, capacity, into, memory)


@inlined
def start_waves(wave: Any, ws: Any) -> None:
    """Saturate the edges of the source and the last edges, and leave all others without flow."""
    n, n_words, width, top = ws.n, ws.n_words, ws.width, wave.level - 1
    for e in range(width, (top + 1) * width):
        ws.surplus[e] = 0.0
    for u in range(wave.sink, wave.source + 1):
        ws.surplus[top * width + u] = wave.capacity[(top * n + wave.source) * n + u]
        ws.surplus[width + u] -= wave.into[u]
    for e in range(n_words, top * n_words):
        ws.touched[e] = NO_MEMBER
    for x in range(1, top):
        rows = x * n + wave.sink, x * n + wave.source + 1
        for e in range(rows[0] * n_words, rows[1] * n_words):
            ws.ways[e] = ws.open_edges[e]
            ws.carrying[e] = NO_MEMBER


@inlined
def value_of_waves(wave: Any, ws: Any) -> float:
    """Return what arrives at the sink: the last edges, less deficits and what is not moved."""
    value = 0.0
    for u in range(wave.sink, wave.source + 1):
        value += wave.into[u]
    for level in range(1, wave.level):
        for u in range(wave.sink, wave.source + 1):
            surplus = ws.surplus[level * ws.width + u]
            if surplus < 0 or not contains(ws.unreached, level * ws.n_words, u):
                value -= abs(surplus)
    return value


# Step 1: distances


@kernel
def label_nodes(wave: Any, ws: Any) -> int:
    """Fill ws.ring, and return the farthest ring with surplus; 0 if no surplus can be moved.

    ws.ring: [distance, level], the nodes at this distance. Ends when all surplus is found. Returns
    -1 if surplus may be farther away than the last ring.
    """
    n_words, top = ws.n_words, wave.level - 1
    for level in range(1, top + 1):
        fill(ws.unreached, level * n_words, n_words, wave.sink, wave.source + 1)
        for w in range(wave.start, wave.last):
            at = level * n_words + w
            surplus = pointer(ws.surplus, level * ws.width + (w << 6))
            deficits = which_exceed(ws.nothing, surplus)
            ws.ring[at] = deficits
            ws.unreached[at] &= ~deficits
            ws.waiting[at] = which_exceed(surplus, ws.nothing)
    farthest = 0
    for k in range(1, RINGS):
        found, waiting, arrived = NO_MEMBER, NO_MEMBER, NO_MEMBER
        for level in range(1, top + 1):
            label_level(k, level, wave, ws)
            for w in range(wave.start, wave.last):
                at = level * n_words + w
                new = ws.ring[k * ws.shallow * n_words + at]
                found |= new
                arrived |= new & ws.waiting[at]
                waiting |= ws.waiting[at] & ws.unreached[at]
        if arrived != 0:
            farthest = k
        if found == 0 or (waiting == 0 and farthest > 0):
            return farthest
    return farthest if farthest > 0 else -1


@inlined
def label_level(k: int, level: int, wave: Any, ws: Any) -> None:
    """Find the nodes of a level at distance k, from those at distance k - 1."""
    n, n_words = ws.n, ws.n_words
    start, last = wave.start, wave.last
    old, new = (k - 1) * ws.shallow * n_words, (k * ws.shallow + level) * n_words
    for w in range(start, last):
        ws.ring[new + w] = NO_MEMBER
    if level < wave.level - 1:
        for w in range(start, last):
            word = ws.ring[old + (level + 1) * n_words + w]
            while word != 0:
                row = (level * n + first_member(word, w)) * n_words
                word &= word - ONE
                for v in range(start, w + 1):
                    ws.ring[new + v] |= ws.carrying[row + v]
    below, some = old + (level - 1) * n_words, NO_MEMBER
    for w in range(start, last if level > 1 else start):
        some |= ws.ring[below + w]
    for w in range(start, last):
        left = ws.unreached[level * n_words + w]
        found = ws.ring[new + w] & left
        word = left & ~found if some != 0 else NO_MEMBER
        while word != 0:
            u = first_member(word, w)
            bit = word & (~word + ONE)
            word ^= bit
            row = ((level - 1) * n + u) * n_words
            ways = NO_MEMBER
            for v in range(start, w + 1):
                ways |= ws.ways[row + v] & ws.ring[below + v]
            if ways != 0:
                found |= bit
        ws.ring[new + w] = found
        ws.unreached[level * n_words + w] = left & ~found


@kernel
def keep_ways_of_surplus(farthest: int, wave: Any, ws: Any) -> None:
    """Remove nodes from the rings that no surplus passes on its way to deficits."""
    n_words = ws.n_words
    start, last = wave.start, wave.last
    for level in range(1, wave.level):
        for w in range(start, last):
            at = level * n_words + w
            ws.ring[farthest * ws.shallow * n_words + at] &= ws.waiting[at]
    for k in range(farthest - 1, 0, -1):
        for level in range(1, wave.level):
            keep_on_ways(k, level, start, last, wave, ws)


@inlined
def keep_on_ways(k: int, level: int, start: int, last: int, wave: Any, ws: Any) -> None:
    """Do so for a level of ring k."""
    n, n_words = ws.n, ws.n_words
    here, far = (k * ws.shallow + level) * n_words, ((k + 1) * ws.shallow + level) * n_words
    missing = NO_MEMBER
    for w in range(start, last):
        ws.kept[w] = ws.waiting[level * n_words + w]
        missing |= ws.ring[here + w] & ~ws.kept[w]
    for w in range(start, last if level < wave.level - 1 else start):
        word = ws.ring[far + n_words + w]
        while word != 0 and missing != 0:
            row = (level * n + first_member(word, w)) * n_words
            word &= word - ONE
            missing = NO_MEMBER
            for v in range(start, last):
                if v <= w:
                    ws.kept[v] |= ws.ways[row + v]
                missing |= ws.ring[here + v] & ~ws.kept[v]
    for w in range(start, last if level > 1 else start):
        word = ws.ring[here + w] & ~ws.kept[w]
        while word != 0:
            bit = word & (~word + ONE)
            row = ((level - 1) * n + first_member(word, w)) * n_words
            word ^= bit
            flows = NO_MEMBER
            for v in range(start, w + 1):
                flows |= ws.carrying[row + v] & ws.ring[far - n_words + v]
            if flows != 0:
                ws.kept[w] |= bit
    for w in range(start, last):
        ws.ring[here + w] &= ws.kept[w]


# Step 2: rooms


@kernel
def measure_rooms(farthest: int, wave: Any, ws: Any) -> None:
    """Fill ws.room: [distance, level, width], for nodes of a ring, and 0 for all others."""
    n_words, width = ws.n_words, ws.width
    start, last = wave.start, wave.last
    for k in range(farthest):
        for level in range(1, wave.level):
            at = k * ws.shallow + level
            room = pointer(ws.room, at * width)
            for q in range(start << 6, last << 6):
                room[q] = 0.0
            for w in range(start, last):
                word = ws.ring[at * n_words + w]
                while word != 0:
                    u = first_member(word, w)
                    word &= word - ONE
                    if k == 0:
                        room[u] = -ws.surplus[level * width + u]
                    elif level > 1:
                        room[u] = room_below(k, level, u, start, wave, ws)
                        ws.trial[2] += 1
            if k > 0 and level < wave.level - 1:
                add_rooms_above(k, level, start, last, ws)


@inlined
def room_below(k: int, level: int, u: int, start: int, wave: Any, ws: Any) -> float:
    """Return what (level, u) can move down to the ring below k."""
    n, n_words = ws.n, ws.n_words
    row, below = (level - 1) * n + u, (k - 1) * ws.shallow + level - 1
    flow = flow_of_row(level - 1, u, ws)
    total = 0.0
    for w in range(start, (u >> 6) + 1):
        if ws.ways[row * n_words + w] & ws.ring[below * n_words + w] != 0:
            q = w << 6
            total += block_room(
                pointer(wave.capacity, row * n + q),
                pointer(flow, q),
                pointer(ws.room, below * ws.width + q),
            )
    return total


@inlined
def flow_of_row(x: int, u: int, ws: Any) -> Any:
    """Return the flow on the edges x of u, to be read only."""
    if contains(ws.touched, x * ws.n_words, u):
        return pointer(ws.row_flows, (x * ws.n + u) * ws.width)
    return pointer(ws.nothing, 0)


@inlined
def add_rooms_above(k: int, level: int, start: int, last: int, ws: Any) -> None:
    """Add to the rooms of a ring what its nodes can move up, by cancelling flow."""
    n, n_words, width = ws.n, ws.n_words, ws.width
    here, above = k * ws.shallow + level, (k - 1) * ws.shallow + level + 1
    for w in range(start, last):
        word = ws.ring[above * n_words + w]
        while word != 0:
            p = first_member(word, w)
            word &= word - ONE
            row = level * n + p
            room = ws.room[above * width + p]
            for v in range(start, w + 1):
                ends = ws.carrying[row * n_words + v] & ws.ring[here * n_words + v]
                if ends != 0:
                    q = v << 6
                    flow = pointer(ws.row_flows, row * width + q)
                    add_block(ends, flow, room, pointer(ws.room, here * width + q))


# Step 3: pushes


@kernel
def push_ring(k: int, level: int, wave: Any, ws: Any) -> None:
    """Move surplus from the nodes of a level in ring k to those in the ring below."""
    n_words, width = ws.n_words, ws.width
    start, last = wave.start, wave.last
    at = (k * ws.shallow + level) * n_words
    stuck = NO_MEMBER
    for w in range(last - 1, start - 1, -1):  # last positions first
        word = ws.ring[at + w]
        ws.waiting[level * n_words + w] = NO_MEMBER
        while word != 0:
            u = last_member(word, w)
            bit = ONE << np.uint64(u & 63)
            word ^= bit
            left = ws.surplus[level * width + u]
            if left > EPSILON and level > 1:
                left = push_down(left, k, level, u, start, wave, ws)
                ws.surplus[level * width + u] = left
            if left > EPSILON:
                ws.waiting[level * n_words + w] |= bit
                stuck |= bit
    if stuck != 0 and level < wave.level - 1:
        push_up(k, level, start, last, ws)


@inlined
def push_down(left: float, k: int, level: int, u: int, start: int, wave: Any, ws: Any) -> float:
    """Push up to `left` from (level, u) to the ring below k, first positions first.

    Returns the rest.
    """
    n, n_words, width, x = ws.n, ws.n_words, ws.width, level - 1
    row, below = x * n + u, (k - 1) * ws.shallow + x
    for w in range(start, (u >> 6) + 1):
        word = ws.ways[row * n_words + w] & ws.ring[below * n_words + w]
        if word == 0:
            continue
        if not contains(ws.touched, x * n_words, u):
            insert(ws.touched, x * n_words, u)
            for q in range(start << 6, ((u >> 6) + 1) << 6):
                ws.row_flows[row * width + q] = 0.0
        q = w << 6
        capacity, flow = pointer(wave.capacity, row * n + q), pointer(ws.row_flows, row * width + q)
        room, surplus = pointer(ws.room, below * width + q), pointer(ws.surplus, x * width + q)
        total = block_room(capacity, flow, room)
        if total <= left:
            left -= total
            push_block(capacity, flow, room, surplus)
            ws.ways[row * n_words + w] &= which_exceed(capacity, flow)
            ws.carrying[row * n_words + w] |= which_exceed(flow, ws.nothing)
        else:
            used, full = NO_MEMBER, NO_MEMBER
            while left > 0 and word != 0:
                bit = word & (~word + ONE)
                q = first_member(word, 0)
                word ^= bit
                free = capacity[q] - flow[q]
                amount = min(free, room[q], left)
                new_flow = flow[q] + amount
                flow[q] = new_flow
                room[q] -= amount
                surplus[q] += amount
                left -= amount
                used |= bit if new_flow > EPSILON else NO_MEMBER
                full |= bit if free - amount <= EPSILON else NO_MEMBER
            ws.carrying[row * n_words + w] |= used
            ws.ways[row * n_words + w] &= ~full
            return left
    return left


@inlined
def push_up(k: int, level: int, start: int, last: int, ws: Any) -> None:
    """Move surplus in ws.waiting up to the ring below k, by cancelling flow."""
    n, n_words, width = ws.n, ws.n_words, ws.width
    above = (k - 1) * ws.shallow + level + 1
    for w in range(start, last):
        word = ws.ring[above * n_words + w]
        while word != 0:
            p = first_member(word, w)
            word &= word - ONE
            row = level * n + p
            for v in range(start, w + 1):
                ends = ws.carrying[row * n_words + v] & ws.waiting[level * n_words + v]
                if ends != 0:
                    push_up_to(row, ends, v, level, above * width + p, (level + 1) * width + p, ws)


@inlined
def push_up_to(
    row: int, ends: Any, v: int, level: int, room_at: int, surplus_at: int, ws: Any
) -> None:
    """Cancel flow on edges of a row, in word v, from nodes with surplus."""
    width = ws.width
    room, moved = ws.room[room_at], 0.0
    emptied, done, freed = NO_MEMBER, NO_MEMBER, NO_MEMBER
    while ends != 0 and room - moved > EPSILON:
        bit = ends & (~ends + ONE)
        q = first_member(ends, v)
        ends ^= bit
        flow = ws.row_flows[row * width + q]
        left = ws.surplus[level * width + q]
        amount = min(flow, left, room - moved)
        ws.row_flows[row * width + q] = flow - amount
        ws.surplus[level * width + q] = left - amount
        moved += amount
        freed |= bit
        emptied |= bit if flow - amount <= EPSILON else NO_MEMBER
        done |= bit if left - amount <= EPSILON else NO_MEMBER
    ws.room[room_at] = room - moved
    ws.surplus[surplus_at] += moved
    ws.ways[row * ws.n_words + v] |= freed
    ws.carrying[row * ws.n_words + v] &= ~emptied
    ws.waiting[level * ws.n_words + v] &= ~done


# Blocks of edges


@vectorized
def block_room(capacity: Any, flow: Any, room: Any) -> float:
    """Return what a block of edges can move, if no node receives more than its room."""
    total = 0.0
    for i in range(QUARTER):  # four sums at a time: each waits for the one before it
        j, k, m = i + QUARTER, i + 2 * QUARTER, i + 3 * QUARTER
        total += (min(capacity[i] - flow[i], room[i]) + min(capacity[j] - flow[j], room[j])) + (
            min(capacity[k] - flow[k], room[k]) + min(capacity[m] - flow[m], room[m])
        )
    return total


@vectorized
def push_block(capacity: Any, flow: Any, room: Any, surplus: Any) -> None:
    """Move all this."""
    for i in range(BLOCK):
        amount = min(capacity[i] - flow[i], room[i])
        flow[i] += amount
        room[i] -= amount
        surplus[i] += amount


@vectorized
def add_block(members: Any, flow: Any, limit: float, room: Any) -> None:
    """Add flow to the rooms of a block's members, each up to a limit."""
    for i in range(BLOCK):
        room[i] += min(flow[i], limit) if (members >> np.uint64(i)) & ONE else 0.0


@vectorized
def which_exceed(numbers: Any, others: Any) -> Any:
    """Return the set of a block's members with a number above the other."""
    word = NO_MEMBER
    for i in range(BLOCK):
        word |= np.uint64(numbers[i] - others[i] > EPSILON) << np.uint64(i)
    return word


@kernel
def list_open_edges(capacity: Any, memory: Any) -> None:
    """Fill ws.open_edges with the edges of positive capacity; [depth, n, n] flat."""
    ws = workspace_of(memory)
    n, n_words = ws.n, ws.n_words
    for x in range(1, ws.shallow - 1):
        for u in range(n):
            row = x * n + u
            for w in range((u >> 6) + 1):
                word = which_exceed(pointer(capacity, row * n + (w << 6)), ws.nothing)
                if w == u >> 6:
                    word &= ALL >> np.uint64(63 - (u & 63))
                ws.open_edges[row * n_words + w] = word
