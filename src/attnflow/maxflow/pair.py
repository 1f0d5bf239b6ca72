"""One pair from start to proof, and blocks of pairs, compiled."""

from __future__ import annotations

from typing import Any

from attnflow.maxflow.compiling import inlined, kernel
from attnflow.maxflow.cuts import guessed_cut
from attnflow.maxflow.greedy import STUCK, greedy_flow
from attnflow.maxflow.network import (
    CERTIFIED,
    NOTHING,
    Network,
    Scratch,
    log_size,
    span,
    tables_of,
    workspace_of,
)
from attnflow.maxflow.ordering import sort_edges
from attnflow.maxflow.pointers import place
from attnflow.maxflow.residual import (
    clear_inflow,
    cut_capacity,
    load_greedy,
    maximise,
    put_back,
)
from attnflow.maxflow.settling import UNSETTLED, settled_flow

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
    level: int, s: int, t: int, tolerance: float, network: Any, scratch: Any
) -> tuple[float, float, int]:
    """The maximum flow from (level, s) to token t, a cut's capacity and how it was proved.

    `sort_edges` must have been called for this source.
    """
    net, ws = tables_of(network), workspace_of(network, scratch)
    n = net.n
    if net.causal is not None and s < t:
        return 0.0, 0.0, CLOSED_FORM
    if level == 1:
        value = net.capacity[s * n + t]
        return value, value, CLOSED_FORM
    if level == 2:
        value = 0.0
        for q in range(n):
            value += min(net.capacity[(n + s) * n + q], net.column[t * n + q])
        return value, value, CLOSED_FORM
    value, end, log = greedy_flow(level, s, t, network, scratch)
    if end != STUCK:
        return value, value, END_CUT
    if log <= log_size(net.n, net.depth):
        cut = guessed_cut(level, s, t, value, network, scratch)
        if cut - value <= CERTIFIED:
            return cut, cut, GUESSED_CUT
        if tolerance > 0:
            cut = min(cut, end_capacity(level, s, t, net))
            if cut - value <= tolerance:
                return value, cut, WITHIN_TOLERANCE
        load_greedy(level, s, t, log, network, scratch)
    else:
        value = 0.0
        clear_inflow(level, net, ws)
        put_back(net, ws)
    added, rounds = maximise(level, s, t, NOTHING, net.capacity, ws.residual, network, scratch)
    value += added
    cut = cut_capacity(level, s, t, net.capacity, network, scratch)
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
        out += net.capacity[((level - 1) * n + s) * n + q]
        into += net.column[t * n + q]
    return min(out, into)


@kernel
def solve_block(
    causal: Any, block: Any, levels: Any, sources: Any, sinks: Any, into: Any,
    everyone: bool, tolerance: float, stop: Any, lower: Any, upper: Any, proofs: Any,
    n: int, depth: int, capacity: Any, layout: Any, reals: Any, wholes: Any, words: Any,
) -> None:  # fmt: skip
    """Solve some rows of some layers, a row being one source with all its sinks.

    block: the first layer and the one behind the last, as places in `levels` (ascending); the same
    of rows, as places in `sources`.
    into: [sinks], what each sink can take in.
    everyone: all positions are sources, in order, so that a layer settles some of the next.
    stop: stop[0] is read before every pair, so that another thread can end the work early.
    Fills lower, upper and proofs, [levels, sources, sinks].
    """
    network = Network(n, depth, causal, capacity, layout)
    scratch = Scratch(reals, wholes, words)
    ws = workspace_of(network, scratch)
    for i in range(block[0], block[1]):
        level = levels[i]
        settling = everyone and i > 0 and level > 2 and levels[i - 1] == level - 1
        for r in range(block[2], block[3]):
            s = sources[r]
            if level > 2:
                sort_edges(level, s, network, scratch)
            edges = place(capacity, ((level - 1) * n + s) * n)
            for k in range(sinks.size):
                if stop[0] != 0:
                    return
                if settling:
                    value = settled_flow(
                        s, k, n, into[k], lower[i - 1], upper[i - 1], edges, ws.need
                    )
                    if value != UNSETTLED:
                        lower[i, r, k] = upper[i, r, k] = value
                        proofs[i, r, k] = SETTLED_BELOW
                        continue
                value, cut, proof = solve_pair(level, s, sinks[k], tolerance, network, scratch)
                lower[i, r, k] = value
                upper[i, r, k] = cut
                proofs[i, r, k] = proof
