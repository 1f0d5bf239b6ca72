"""One pair from start to proof, and blocks of pairs, compiled.

One pair in full: its value, the flow on every edge, and the minimum cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.maxflow.greedy import STUCK, greedy_flow, sort_edges
from attnflow.maxflow.jit import holds, inlined, kernel, place
from attnflow.maxflow.layout import (
    CERTIFIED,
    NOTHING,
    Network,
    Scratch,
    build_network,
    build_scratch,
    check_numbers,
    log_size,
    span,
    tables_of,
    workspace_of,
)
from attnflow.maxflow.proofs import UNSETTLED, guessed_cut, settled_flow
from attnflow.maxflow.residual import clear_inflow, cut_capacity, load_greedy, maximize, put_back

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
    added, rounds = maximize(level, s, t, NOTHING, net.capacity, ws.residual, network, scratch)
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


WHOLE = 2.0**50  # capacities of 1 become this whole number; sums of thousands still fit


@dataclass(frozen=True)
class PairFlow:
    """A maximum flow from one position to one token, with its minimum cut.

    value: the size of the flow, and of the cut.
    edges: [layer, n, n], the flow on every edge, indexed like the capacities.
    source_side: [layer + 1, n], the positions (row 0: tokens) on the source's side of the cut.
    The edges from this side to the other are full, and removing them parts source and sink.
    """

    value: float
    edges: NDArray[np.float64]
    source_side: NDArray[np.bool_]


@kernel
def maximize_from_nothing(
    level: int, s: int, t: int, nothing: Any,
    capacity: Any, residual: Any, side: Any, network: Any, scratch: Any,
) -> Any:  # fmt: skip
    """A maximum flow found by the residual search alone; fills `residual` and `side`."""
    net, ws = tables_of(network), workspace_of(network, scratch)
    capacity, residual = place(capacity, 0), place(residual, 0)
    _, end = span(s, t, net)
    clear_inflow(level, net, ws)
    value, _ = maximize(level, s, t, nothing, capacity, residual, network, scratch)
    cut = cut_capacity(level, s, t, capacity, network, scratch)
    for m in range(1, level):
        for u in range(end):  # those before the first are reached, but lead nowhere
            side[m, u] = not holds(ws.unseen, m * net.n_words, u)
    side[level, s] = True
    return value, cut


def solve_in_full(
    network: Network, level: int, source: int, sink: int
) -> tuple[float, NDArray[np.float64], NDArray[np.bool_]]:
    """Value, residual capacities (flat) and source side, in floating point if that proves it."""
    if level == 1:
        return _one_edge(network, source, sink)
    residual = network.capacity.copy()
    side = np.zeros((level + 1, network.n), np.bool_)
    value, cut = maximize_from_nothing(
        level, source, sink, NOTHING, network.capacity, residual, side,
        network, build_scratch(network.n, network.depth),
    )  # fmt: skip
    if abs(value - cut) <= CERTIFIED:
        return float(value), residual, side
    return solve_in_whole_numbers(network, level, source, sink)


def solve_in_whole_numbers(
    network: Network, level: int, source: int, sink: int
) -> tuple[float, NDArray[np.float64], NDArray[np.bool_]]:
    """The same without rounding, once the capacities are rounded to multiples of 2**-50."""
    if level == 1:
        return _one_edge(network, source, sink)
    capacity = np.rint(network.capacity * WHOLE).astype(np.int64)
    residual = capacity.copy()
    side = np.zeros((level + 1, network.n), np.bool_)
    value, cut = maximize_from_nothing(
        level, source, sink, np.int64(0), capacity, residual, side,
        network, build_scratch(network.n, network.depth),
    )  # fmt: skip
    assert value == cut, "a maximum flow in whole numbers must equal its cut"
    return float(value) / WHOLE, residual / WHOLE, side


def _one_edge(
    network: Network, source: int, sink: int
) -> tuple[float, NDArray[np.float64], NDArray[np.bool_]]:
    residual = network.capacity.copy()
    edge = source * network.n + sink
    value = float(residual[edge])
    residual[edge] = 0.0
    side = np.zeros((2, network.n), np.bool_)
    side[1, source] = True
    return value, residual, side


def max_flow(capacities: NDArray[np.float64], *, layer: int, source: int, sink: int) -> PairFlow:
    """A maximum flow from a position above `layer` to a position of the input, in full.

    capacities: [layers, n, n] as in `max_flows`.

    >>> pair = max_flow(np.asarray([[[0.5, 0.5], [0.0, 1.0]]] * 2), layer=2, source=0, sink=1)
    >>> pair.value
    1.0
    >>> pair.edges[1, 0]
    array([0.5, 0.5])
    """
    given = np.asarray(capacities, dtype=np.float64)
    network, factor, unlimited = build_network(given)
    check_numbers("layer", [layer], 1, network.depth)
    check_numbers("position", [source, sink], 0, network.n - 1)
    value, residual, side = solve_in_full(network, layer, source, sink)
    shape = (network.depth, network.n, network.n)
    edges = (network.capacity - residual).reshape(shape)[:layer] * factor
    value = np.inf if value >= unlimited else float(value * factor)
    return PairFlow(value, np.maximum(edges, 0.0), side)
