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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError, ShapeError
from attnflow.maxflow.compiling import kernel

# Residual capacities at or below this count as used up. Capacities are scaled so that the
# largest finite row sum is about 1, so this is one rounding step of the largest flow.
NOTHING = 2.0**-52

# A value is certified when a cut agrees with it this closely (same scale).
CERTIFIED = 1e-12


class Network(NamedTuple):
    """Read-only capacities, shared by all threads."""

    n: int
    depth: int
    n_words: int
    capacity: NDArray[np.float64]  # [depth, n, n] flat: from (x + 1, u) to (x, q)
    column: NDArray[np.float64]  # [n, n, depth] flat: [t, u, x] is capacity[x, u, t]
    chain: NDArray[np.float64]  # [n, depth] flat: capacity[x, u, u]
    slack: NDArray[np.float64]  # [depth + 1, n] flat: least chain edge below a top level


class Workspace(NamedTuple):
    """Scratch arrays of one thread: a few vectors, a log of pushes, one residual graph."""

    need: Any  # [n] what level-1 positions can still hand to the sink
    sent: Any  # [n] what the source sent to each position
    slack: Any  # [n] a lower bound on what each chain can still carry
    drops: Any  # [n, depth] what is left of the edges into the sink's own chain
    used: Any  # [n, depth] chain use as differences: suffix sums give the flow
    cursor: Any  # [n, depth] first edge out of (x + 1, u) not yet used up
    taken: Any  # [n, depth] how much of the edge at the cursor is used
    alive: Any  # [depth + 1, words] positions that may still reach the sink
    frames: Any  # [3, depth + 1] the explicit stack of the depth-first search
    amounts: Any  # [2, depth + 1] its real numbers
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
            f"capacities have shape {capacities.shape}; expected [layers, positions, positions] "
            "with at least one of each. Pad narrower layers with zero rows and columns."
        )
    depth, n, _ = capacities.shape
    row_sums = capacities.sum(axis=2)
    if np.isnan(row_sums).any() or capacities.min() < 0:
        raise InputError(
            "capacities contain negative numbers or NaN; expected numbers from 0 to infinity. "
            "Build them with AttentionGraph, which checks its input."
        )
    unlimited = np.isinf(row_sums).any()
    if unlimited:
        endless = np.isinf(capacities)
        row_sums = np.where(endless, 0.0, capacities).sum(axis=2)
    largest = float(row_sums.max())
    factor = 2.0 ** round(math.log2(largest)) if largest > 0 else 1.0
    capacity = np.ascontiguousarray(capacities)  # attention's own rows sum to 1: no copy
    if factor != 1.0 or unlimited:
        capacity = capacity / factor
    endless_flow = np.inf
    if unlimited:
        # No finite cut is larger than the finite capacities of one whole layer, so an edge of
        # that size never limits a finite flow.
        endless_flow = 1.0 + float(row_sums.sum(axis=1).max()) / factor
        capacity[endless] = endless_flow
    column = np.empty(capacity.size)
    chain = np.empty(n * depth)
    slack = np.empty((depth + 1) * n)
    lay_out(capacity, column, chain, slack)
    network = Network(n, depth, (n + 63) // 64, capacity.reshape(-1), column, chain, slack)
    return network, factor, endless_flow


@kernel
def lay_out(capacity: Any, column: Any, chain: Any, slack: Any) -> None:
    """Fill the arrays of a Network from capacity [depth, n, n]."""
    depth, n, _ = capacity.shape
    for u in range(n):
        for t in range(n):
            for x in range(depth):
                column[(t * n + u) * depth + x] = capacity[x, u, t]
        least = np.inf
        for level in range(depth + 1):
            if level >= 3:  # chain edges 1 … level - 2 lie between the two ends
                least = min(least, capacity[level - 2, u, u])
            slack[level * n + u] = least
        for x in range(depth):
            chain[u * depth + x] = capacity[x, u, u]


def build_workspace(network: Network) -> Workspace:
    """Allocate one thread's scratch arrays."""
    n, depth, words = network.n, network.depth, network.n_words
    nodes = (depth + 1) * n
    log = 16 * n * depth + 1024  # several times what real attention needs
    touched = np.empty(2 * log, np.int64)
    touched[0] = touched.size  # more than fit: the first use fills the whole residual graph
    return Workspace(
        need=np.empty(n),
        sent=np.empty(n),
        slack=np.empty(n),
        drops=np.empty(n * depth),
        used=np.empty(n * depth),
        cursor=np.empty(n * depth, np.int64),
        taken=np.empty(n * depth),
        alive=np.empty((depth + 1) * words, np.uint64),
        frames=np.empty((3, depth + 1), np.int64),
        amounts=np.empty((2, depth + 1)),
        log_edge=np.empty(log, np.int64),
        log_amount=np.empty(log),
        residual=np.empty(network.capacity.size),
        touched=touched,
        inflow=np.zeros(depth * n * words, np.uint64),
        unseen=np.empty((depth + 1) * words, np.uint64),
        open=np.empty((depth + 1) * words, np.uint64),
        climbs=np.empty(nodes, np.int64),
        arc=np.empty(nodes, np.int64),
        queue=np.empty(nodes, np.int64),
        queue_level=np.empty(nodes, np.int64),
        path_edge=np.empty(nodes, np.int64),
        path_from=np.empty(nodes, np.int64),
    )
