"""What the flows of one layer prove about the next one, without a search."""

from __future__ import annotations

from typing import Any

from attnflow.maxflow.compiling import kernel
from attnflow.maxflow.network import CERTIFIED
from attnflow.maxflow.pointers import place


@kernel
def settle_row(
    level: int, s: int, proof: int, below: Any, into: Any,
    lower: Any, upper: Any, proofs: Any, network: Any,
) -> None:  # fmt: skip
    """Fill in the values from (level, s) that those of the level below prove, with `proof`.

    below: [positions, sinks], the flows from all positions one level lower; into: [sinks], what
    each sink can take in. Flows are convex: shares of the flows of several positions add up to a
    flow. So if a source has enough edges, by capacity, to positions that each fill the sink, it
    fills the sink as well; and if each position it sends to passes on all that the source has, the
    source is emptied.
    """
    n = network.n
    edges = place(network.capacity, ((level - 1) * n + s) * n)
    out = 0.0
    for u in range(n):
        out += edges[u]
    for k in range(into.size):
        lower[k] = 0.0  # here: edges to positions that fill the sink
        upper[k] = 0.0  # here: edges to those that hold something back
    for u in range(n):
        for k in range(into.size):
            lower[k] += edges[u] if below[u, k] >= into[k] - CERTIFIED / 4 else 0.0
            upper[k] += edges[u] if below[u, k] < out - CERTIFIED / 4 else 0.0
    for k in range(into.size):
        if lower[k] >= into[k] if into[k] <= out else upper[k] == 0:
            lower[k] = upper[k] = min(into[k], out)
            proofs[k] = proof
