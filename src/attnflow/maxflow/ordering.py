"""Which of the source's edges the greedy flow takes first: the tightest."""

from __future__ import annotations

from typing import Any

from attnflow.maxflow.compiling import inlined, kernel
from attnflow.maxflow.network import NOTHING, tables_of, workspace_of

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
