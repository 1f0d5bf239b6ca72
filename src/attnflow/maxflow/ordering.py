"""Which of the source's edges the greedy flow takes first: the tightest."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.compiling import inlined, kernel
from attnflow.maxflow.network import NOTHING

U = np.uint64  # unsigned indices spare Numba the test for negative ones

# A position is tight if the source gives it more than this part of the ways on it has.
TIGHT = 0.3


@kernel
def sort_edges(level: int, s: int, net: Any, ws: Any) -> None:
    """Put the positions into ws.order, those first that get most for the ways on they have.

    What they get is the edge from (level, s); with few ways to place it they must choose first.
    Merges runs of doubling length; equal ones keep their order, and those without an edge are last.
    """
    n = net.n
    first = ((level - 1) * n + s) * n
    for u in range(n):
        given = net.capacity[U(first + u)]
        ways = net.ways[U(level * n + u)]
        ws.sent[U(u)] = given / (ways + NOTHING) if given > NOTHING else 0.0
        ws.order[U(u)] = u
    run = 1
    while run < n:
        for start in range(0, n, 2 * run):
            i, middle, end = start, min(start + run, n), min(start + 2 * run, n)
            j = middle
            for k in range(start, end):
                left = i < middle
                if left and j < end:
                    a, b = ws.order[U(i)], ws.order[U(j)]
                    left = ws.sent[U(a)] >= ws.sent[U(b)]
                if left:
                    ws.queue[U(k)] = ws.order[U(i)]
                    i += 1
                else:
                    ws.queue[U(k)] = ws.order[U(j)]
                    j += 1
        for k in range(n):
            ws.order[U(k)] = ws.queue[U(k)]
        run *= 2


@inlined
def is_tight(level: int, s: int, u: int, net: Any) -> bool:
    """Say whether u has few ways on for what (level, s) can give it."""
    given = net.capacity[U(((level - 1) * net.n + s) * net.n + u)]
    return bool(given > TIGHT * net.ways[U(level * net.n + u)])
