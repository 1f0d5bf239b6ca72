"""What the flows of one layer prove about the next one, without a flow.

The source's side of a cut has some positions S of the level below the source on it. The cut then
holds the source's edges to all others, and a cut between S and the sink. The latter is at least the
largest flow that a single position of S has, and need not be more than the sum of their flows. So
the layer below tells how small the smallest cut can be, and how large it is at most; where the two
meet, that is the flow.
"""

from __future__ import annotations

from typing import Any

from attnflow.maxflow.compiling import vectorised
from attnflow.maxflow.network import CERTIFIED

UNSETTLED = -1.0


@vectorised
def settled_flow(
    s: int, k: int, n: int, into: float, lower: Any, upper: Any, edges: Any, flows: Any
) -> float:
    """The flow from s to sink number k if the flows of the level below leave no choice.

    lower, upper: [positions, sinks], bounds of these flows; into: what the sink can take in;
    edges: [n], those of the source; flows: [n], scratch.
    """
    most = 0.0
    for u in range(n):
        most += min(edges[u], upper[u, k])
    most = min(most, into)
    for u in range(n):
        flows[u] = lower[u, k]
    enough = most - CERTIFIED / 4
    for j in range(n):
        u = (
            s + j if s + j < n else s + j - n
        )  # the source's own position first: it says no most often
        if flows[u] < enough:  # the smallest cut with u and nobody better on the source's side
            cut = flows[u]
            for w in range(n):
                cut += edges[w] if flows[w] > flows[u] else 0.0
            if cut < enough:
                return UNSETTLED
    return most
