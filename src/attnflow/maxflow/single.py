"""One pair in full: its value, the flow on every edge, and the minimum cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.maxflow.bits import holds
from attnflow.maxflow.compiling import kernel
from attnflow.maxflow.network import (
    CERTIFIED,
    NOTHING,
    Network,
    build_network,
    build_scratch,
    check_numbers,
    span,
    tables_of,
    workspace_of,
)
from attnflow.maxflow.pointers import place
from attnflow.maxflow.residual import clear_inflow, cut_capacity, maximise

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
def maximise_from_nothing(
    level: int, s: int, t: int, nothing: Any,
    capacity: Any, residual: Any, side: Any, network: Any, scratch: Any,
) -> Any:  # fmt: skip
    """A maximum flow found by the residual search alone; fills `residual` and `side`."""
    net, ws = tables_of(network), workspace_of(network, scratch)
    capacity, residual = place(capacity, 0), place(residual, 0)
    _, end = span(s, t, net)
    clear_inflow(level, net, ws)
    value, _ = maximise(level, s, t, nothing, capacity, residual, network, scratch)
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
    value, cut = maximise_from_nothing(
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
    value, cut = maximise_from_nothing(
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
