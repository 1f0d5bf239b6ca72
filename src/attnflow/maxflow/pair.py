"""One pair from start to proof, and blocks of pairs, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnflow.maxflow.compiling import inlined, kernel
from attnflow.maxflow.cuts import guessed_cut
from attnflow.maxflow.greedy import STUCK, greedy_flow
from attnflow.maxflow.network import CERTIFIED, NOTHING, network_of, span, workspace_of
from attnflow.maxflow.ordering import sort_edges
from attnflow.maxflow.residual import (
    clear_inflow,
    cut_capacity,
    load_greedy,
    maximise,
    put_back,
)

U = np.uint64

# How a value was proved. The code of a proof is its place in this list.
PROOFS = (
    "closed_form",  # one or two layers: a sum of minima is flow and cut at once; or no way at all
    "end_cut",  # the source or the sink is used up
    "guessed_cut",  # a cut guessed from the greedy flow has its value
    "searched_cut",  # a search of the residual graph found no way on
    "augmented",  # a search found ways on, then none
    "within_tolerance",  # as close to a known bound as the caller allowed
    "settled_below",  # the values of the layer below leave no choice
    "solved_again",  # rounding kept flow and cut apart; solved in whole numbers
    "unproved",  # the same, before it is solved again
)
CLOSED_FORM, END_CUT, GUESSED_CUT, SEARCHED_CUT, AUGMENTED = 0, 1, 2, 3, 4
WITHIN_TOLERANCE, SETTLED_BELOW, SOLVED_AGAIN, UNPROVED = 5, 6, 7, 8


@inlined
def solve_pair(
    level: int, s: int, t: int, tolerance: float, net: Any, ws: Any
) -> tuple[float, float, int]:
    """The maximum flow from (level, s) to token t, a cut's capacity and how it was proved.

    `sort_edges` must have been called for this source.
    """
    n = net.n
    if net.causal is not None and s < t:
        return 0.0, 0.0, CLOSED_FORM
    if level == 1:
        value = net.capacity[U(s * n + t)]
        return value, value, CLOSED_FORM
    if level == 2:
        value = 0.0
        for q in range(n):
            value += min(net.capacity[U((n + s) * n + q)], net.column[U(t * n + q)])
        return value, value, CLOSED_FORM
    value, end, log = greedy_flow(level, s, t, net, ws)
    if end != STUCK:
        return value, value, END_CUT
    if log <= ws.log_edge.size:
        cut = guessed_cut(level, s, t, value, net, ws)
        if cut - value <= CERTIFIED:
            return cut, cut, GUESSED_CUT
        if tolerance > 0:
            cut = min(cut, end_capacity(level, s, t, net))
            if cut - value <= tolerance:
                return value, cut, WITHIN_TOLERANCE
        load_greedy(level, s, t, log, net, ws)
    else:
        value = 0.0
        clear_inflow(level, net, ws)
        put_back(net, ws)
    added, rounds = maximise(level, s, t, NOTHING, net.capacity, ws.residual, net, ws)
    value += added
    cut = cut_capacity(level, s, t, net.capacity, net, ws)
    if abs(cut - value) > CERTIFIED:
        return value, cut, UNPROVED
    return cut, cut, (AUGMENTED if rounds else SEARCHED_CUT)


@inlined
def end_capacity(level: int, s: int, t: int, net: Any) -> float:
    """The smaller of what can leave the source towards the sink, and enter the sink from it."""
    n = net.n
    first, end = span(s, t, net)
    out = 0.0
    into = 0.0
    for q in range(first, end):
        out += net.capacity[U(((level - 1) * n + s) * n + q)]
        into += net.column[U(t * n + q)]
    return min(out, into)


@kernel
def solve_rows(
    causal: Any, first: int, last: int, level: int, sources: Any, sinks: Any, known: Any,
    tolerance: float, stop: Any, lower: Any, upper: Any, proofs: Any, n: int, depth: int,
    capacity: Any, layout: Any, reals: Any, wholes: Any, words: Any,
) -> None:  # fmt: skip
    """Rows first … last - 1: one source to all sinks each, unless its value is known already.

    stop[0] is read before every pair, so that another thread can end the work early.
    """
    net = network_of(n, depth, causal, capacity, layout)
    ws = workspace_of(n, depth, reals, wholes, words)
    for r in range(first, last):
        s = sources[r]
        if level > 2:
            sort_edges(level, s, net, ws)
        for k in range(sinks.size):
            if stop[0] != 0:
                return
            if known[r, k]:
                proofs[r, k] = SETTLED_BELOW
                continue
            value, cut, proof = solve_pair(level, s, sinks[k], tolerance, net, ws)
            lower[r, k] = value
            upper[r, k] = cut
            proofs[r, k] = proof
