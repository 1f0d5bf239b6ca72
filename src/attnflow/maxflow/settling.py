"""What the flows of one layer prove about the next one, without a search."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.maxflow.compiling import kernel
from attnflow.maxflow.network import CERTIFIED, Network

Floats = NDArray[np.float64]
U = np.uint64


def settled_from_below(
    network: Network,
    level: int,
    sinks: NDArray[np.int64],
    below: Floats,
    lower: Floats,
    upper: Floats,
) -> NDArray[np.bool_]:
    """Fill in the values at `level` that those of the level below prove, and say which.

    below: [positions, sinks], the flows from all positions one level lower. Flows are convex:
    shares of the flows of several positions add up to a flow. So if a source has enough edges,
    by capacity, to positions that each fill the sink, it fills the sink as well; and if each
    position it sends to passes on all that the source has, the source is emptied.
    """
    n, depth = network.n, network.depth
    into = network.column[: n * n].reshape(n, n)[sinks].sum(axis=1)
    out = network.capacity.reshape(depth, n, n)[level - 1].sum(axis=1)
    add_up_edges(
        level, below, into - CERTIFIED / 4, out.max() - CERTIFIED / 4, lower, upper, network
    )
    fills, leaks = lower >= into, upper > 0
    ends = np.minimum(into[None, :], out[:, None])
    sink_smaller = into[None, :] <= out[:, None]
    known: NDArray[np.bool_] = np.where(sink_smaller, fills, ~leaks)
    lower[known] = upper[known] = ends[known]
    return known


@kernel
def add_up_edges(
    level: int, below: Any, full: Any, all_out: float, filling: Any, leaking: Any, net: Any
) -> None:
    """Add up every source's edges to positions that fill a sink, and to those that hold some back.

    full: [sinks], from which flow on each is full; all_out: from which on nothing is held back.
    Fills filling and leaking, [positions, sinks]. Two matrix products, but not NumPy's: its
    threads stay awake after a product, and get in the way of those that solve.
    """
    for s in range(net.n):
        filling[s] = 0.0
        leaking[s] = 0.0
        for u in range(net.n):
            edge = net.capacity[U(((level - 1) * net.n + s) * net.n + u)]
            for k in range(full.size):
                filling[s, k] += edge if below[u, k] >= full[k] else 0.0
                leaking[s, k] += edge if below[u, k] < all_out else 0.0
