"""What the solver reads and what it writes: the layered network and a thread's workspace.

A network of `depth` layers over `n` positions has levels 0 (the tokens) to `depth`.
Edge index x runs from level x + 1 down to level x, so `capacity[x, u, q]` is what can
pass from position u at level x + 1 to position q at level x. The edges from a position
to itself (the residual connections) form that position's *chain*.

Arrays are flat and C-ordered, because index arithmetic on flat arrays is what Numba
turns into the tightest loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError, ShapeError
from attnflow.maxflow.jit import inlined, kernel, place, uncompiled

# Residual capacities at or below this count as used up. Capacities are scaled so that the
# largest finite row sum is about 1, so this is one rounding step of the largest flow.
NOTHING = 2.0**-52

# A value is certified when a cut agrees with it this closely (same scale).
CERTIFIED = 1e-12


class Network(NamedTuple):
    """Read-only capacities, shared by all threads."""

    n: int
    depth: int
    causal: Any  # True if no edge leads to a later position, or None: kernels are compiled for each
    capacity: NDArray[np.float64]  # [depth, n, n] flat: from (x + 1, u) to (x, q)
    layout: NDArray[np.float64]  # what `lay_out` made of them


class Tables(NamedTuple):
    """A network as kernels read it."""

    n: int
    depth: int
    n_words: int
    causal: Any
    capacity: Any  # [depth, n, n] flat, as above
    column: Any  # [depth, n, n] flat: [x, t, u] is capacity[x, u, t]
    chain: Any  # [n, depth] flat: capacity[x, u, u]
    slack: Any  # [depth + 1, n] flat: least chain edge below a top level
    ways: Any  # [depth + 1, n] flat: all edges off the chain below a top level


class Scratch(NamedTuple):
    """The memory of one thread, in three pieces.

    Kernels are handed a network and these, and cut them up themselves: every array that is handed
    over takes seven numbers, and a call with dozens of them as long as a small flow.
    """

    reals: NDArray[np.float64]
    wholes: NDArray[np.int64]
    words: NDArray[np.uint64]


class Workspace(NamedTuple):
    """Scratch arrays of one thread: a few vectors, a log of pushes, one residual graph."""

    need: Any  # [n] what level-1 positions can still hand to the sink
    sent: Any  # [n] what the source sent to each position
    slack: Any  # [n] a lower bound on what each chain can still carry
    drops: Any  # [depth, n] what is left of the edges into the sink's own chain
    used: Any  # [depth, n] chain use as differences: suffix sums give the flow
    cursor: Any  # [n, depth] first edge out of (x + 1, u) not yet used up
    taken: Any  # [n, depth] how much of the edge at the cursor is used
    alive: Any  # [depth + 1, words] positions that may still reach the sink
    swept: Any  # [depth, n] what the source's own position gave away by whole rows
    dropped: Any  # [n] what each position of a row drops into the sink's chain
    landed: Any  # [n] what each delivers over its own edge
    order: Any  # [n] positions, those first that get most for the ways on they have
    frames: Any  # [depth + 1, 3] the explicit stack of the depth-first search
    amounts: Any  # [depth + 1, 2] its real numbers
    log_edge: Any  # pushes over edges that are neither chain nor drop, packed
    log_amount: Any
    residual: Any  # [depth, n, n] flat, equal to the capacities once `put_back` was called
    touched: Any  # how many entries of `residual` have to be put back, then which
    inflow: Any  # [depth, n, words] who may be sending flow into (x, q)
    unseen: Any  # [depth + 1, words] positions the residual search has not reached
    open: Any  # [depth + 1, words] positions it has reached that may lead on
    climbs: Any  # [depth + 1, n] by how many steps back up it reached them
    arc: Any  # [depth + 1, n] which edge of theirs is tried next
    queue: Any  # [depth + 1, n] nodes in the order of the search, then the path
    queue_level: Any  # [depth + 1, n] their levels
    path_edge: Any  # [depth + 1, n] the edges between them; inverted where flow is taken back
    path_from: Any  # [depth + 1, n] the positions these edges come from


def build_network(capacities: NDArray[np.float64]) -> tuple[Network, float, float]:
    """Check capacities [depth, n, n], scale them and lay them out for the kernels.

    Returns the network, the factor that takes its flows back to the caller's scale (a power
    of two, so nothing is rounded), and the flow from which on a value means "unlimited"
    (infinity where no edge is).
    """
    if capacities.ndim != 3 or capacities.shape[1] != capacities.shape[2] or 0 in capacities.shape:
        raise ShapeError(
            f"capacities have shape {capacities.shape}",
            expected="[layers, positions, positions] with at least one of each",
            fix="Pad narrower layers with zero rows and columns.",
        )
    depth, n, _ = capacities.shape
    capacity = np.ascontiguousarray(capacities)  # attention's own rows sum to 1: no copy
    layout = np.empty(n * (n * depth + 3 * depth + 2))
    lowest, largest = lay_out(capacity, layout)
    if lowest < 0:
        raise InputError(
            "capacities contain negative numbers or NaN",
            expected="numbers from 0 to infinity",
            fix="Build them with AttentionGraph, which checks its input.",
        )
    endless = np.isinf(capacity) if largest == np.inf else None
    if endless is not None:
        row_sums = np.where(endless, 0.0, capacity).sum(axis=2)
        largest = float(row_sums.max())
    factor = 2.0 ** round(math.log2(largest)) if largest > 0 else 1.0
    endless_flow = np.inf
    if factor != 1.0 or endless is not None:
        capacity = capacity / factor
        if endless is not None:
            # No finite cut is larger than the finite capacities of one whole layer, so an edge
            # of that size never limits a finite flow.
            endless_flow = 1.0 + float(row_sums.sum(axis=1).max()) / factor
            capacity[endless] = endless_flow
        lay_out(capacity, layout)
    causal = True if is_causal(capacity) else None
    return Network(n, depth, causal, capacity.reshape(-1), layout), factor, endless_flow


def check_numbers(name: str, asked: Sequence[int], first: int, last: int) -> NDArray[np.int64]:
    """Refuse numbers that are out of range: kernels would read whatever lies there."""
    numbers = [int(number) for number in asked]
    for number in numbers:
        if not first <= number <= last:
            raise InputError(
                f"{name} is {number}",
                expected=f"numbers from {first} to {last}.",
            )
    return np.asarray(numbers, np.int64)


@inlined
def tables_of(network: Any) -> Any:
    """Cut up what `lay_out` made of the capacities."""
    n, depth, layout = network.n, network.depth, network.layout
    chain = depth * n * n
    slack = chain + depth * n
    ways = slack + (depth + 1) * n
    words = (n + 63) // 64
    return Tables(
        n, depth, words, network.causal, place(network.capacity, 0),
        place(layout, 0), place(layout, chain), place(layout, slack), place(layout, ways),
    )  # fmt: skip


@inlined
def log_size(n: int, depth: int) -> int:
    """How many pushes the log holds."""
    return 16 * n * depth + 1024


@inlined
def span(s: int, t: int, net: Any) -> tuple[int, int]:
    """The first position that may lie on a way from s to t, and the one behind the last."""
    return (0, net.n) if net.causal is None else (t, s + 1)


@kernel
def lay_out(capacity: Any, layout: Any) -> tuple[float, float]:
    """Fill column, chain, slack and ways of Tables from capacity [depth, n, n].

    Returns the smallest capacity, or -1 if one is negative or NaN, and the largest row sum.
    """
    depth, n, _ = capacity.shape
    chain = depth * n * n
    slack = chain + depth * n
    ways = slack + (depth + 1) * n
    lowest = np.inf
    largest = 0.0
    for x in range(depth):
        for u in range(n):
            total = 0.0
            for t in range(n):
                here = capacity[x, u, t]
                if not here >= lowest:
                    lowest = here if here >= 0 else -1.0
                total += here
                layout[(x * n + t) * n + u] = here
            largest = max(largest, total)
            layout[chain + u * depth + x] = capacity[x, u, u]
            layout[ways + (x + 1) * n + u] = max(total - capacity[x, u, u], 0.0)
    for u in range(n):
        least = np.inf
        for level in range(depth + 1):
            if level >= 3:  # chain edges 1 … level - 2 lie between the two ends
                least = min(least, capacity[level - 2, u, u])
            layout[slack + level * n + u] = least
        for level in range(depth, -1, -1):  # from each layer's own to sums over those between
            total = 0.0
            for x in range(1, level - 1):
                total += layout[ways + (x + 1) * n + u]
            layout[ways + level * n + u] = total
    return lowest, largest


@kernel
def is_causal(capacity: Any) -> bool:
    """Say whether there are later positions, and no edge to one; capacity: [depth, n, n]."""
    depth, n, _ = capacity.shape
    for x in range(depth):
        for u in range(n):
            for q in range(u + 1, n):
                if capacity[x, u, q] > 0:
                    return False
    return bool(n > 1)


def build_scratch(n: int, depth: int) -> Scratch:
    """Allocate one thread's memory, for networks of one size."""
    words, log, nodes = (n + 63) // 64, uncompiled(log_size)(n, depth), (depth + 1) * n
    reals = 5 * n + 4 * n * depth + 2 * (depth + 1) + log + depth * n * n
    wholes = n + n * depth + 3 * (depth + 1) + 3 * log + 6 * nodes
    scratch = Scratch(
        np.empty(reals),
        np.empty(wholes, np.int64),
        np.zeros((3 * (depth + 1) + depth * n) * words, np.uint64),
    )
    forget_residual(scratch, n, depth)
    return scratch


def forget_residual(scratch: Scratch, n: int, depth: int) -> None:
    """Make the memory fit for another network: the first use fills the whole residual graph."""
    log = uncompiled(log_size)(n, depth)
    touched = n + n * depth + 3 * (depth + 1) + log  # where it starts, see `workspace_of`
    scratch.wholes[touched] = 2 * log  # more than fit


@inlined
def workspace_of(network: Any, scratch: Any) -> Any:
    """Cut up the memory of one thread."""
    n, depth = network.n, network.depth
    reals, wholes, words = scratch.reals, scratch.wholes, scratch.words
    log, nodes, edges = log_size(n, depth), (depth + 1) * n, n * depth
    levels, inflow = (depth + 1) * ((n + 63) // 64), edges * ((n + 63) // 64)
    used = 3 * n + edges
    amounts = used + 2 * edges
    swept = amounts + 2 * (depth + 1)
    dropped = swept + edges
    logged = dropped + 2 * n
    frames = n + edges
    log_edge = frames + 3 * (depth + 1)
    touched = log_edge + log
    climbs = touched + 2 * log
    return Workspace(
        need=place(reals, 0),
        sent=place(reals, n),
        slack=place(reals, 2 * n),
        drops=place(reals, 3 * n),
        used=place(reals, used),
        cursor=place(wholes, n),
        taken=place(reals, used + edges),
        alive=place(words, 0),
        order=place(wholes, 0),
        frames=place(wholes, frames),
        amounts=place(reals, amounts),
        swept=place(reals, swept),
        dropped=place(reals, dropped),
        landed=place(reals, dropped + n),
        log_edge=place(wholes, log_edge),
        log_amount=place(reals, logged),
        residual=place(reals, logged + log),
        touched=place(wholes, touched),
        inflow=place(words, levels),
        unseen=place(words, levels + inflow),
        open=place(words, 2 * levels + inflow),
        climbs=place(wholes, climbs),
        arc=place(wholes, climbs + nodes),
        queue=place(wholes, climbs + 2 * nodes),
        queue_level=place(wholes, climbs + 3 * nodes),
        path_edge=place(wholes, climbs + 4 * nodes),
        path_from=place(wholes, climbs + 5 * nodes),
    )
