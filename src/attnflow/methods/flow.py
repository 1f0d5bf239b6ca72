"""Attention flow: exact maximum flow through the attention graph (paper §3).

`flow` computes values, `flow_bounds` bounds them, `flow_path` returns one flow edge by edge with
its minimum cut, and `saturation` tells how many flows are at their upper bound. The solver is in
`attnflow.maxflow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution, Normalize, check_normalize, normalize_scores
from attnflow.errors import InputError, SelectionError, check_type
from attnflow.graph import AttentionGraph
from attnflow.maxflow import FlowValues, max_flow, max_flows
from attnflow.progress import Progress
from attnflow.selection import (
    Layers,
    Position,
    Positions,
    resolve_layer,
    resolve_layers,
    resolve_position,
    resolve_positions,
)

AT_BOUND = 1e-9  # a flow within this distance of its upper bound counts as saturated


def flow(
    graph: AttentionGraph,
    *,
    layers: Layers = None,
    positions: Positions = None,
    tokens: Positions = None,
    normalize: Normalize = "none",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Attribute positions to input tokens by the maximum flow between them (paper §3).

    layers: numbers from 1, -1 for the last. positions, tokens: indices or texts. All by default.
    normalize: "none"; "rows" scales the row of each position to sum to 1; "receptive_field"
    divides by the flow under uniform attention first.
    threads: all processors by default. progress: called with pairs done and pairs in total.
    Returns scores: [layers, positions, tokens], float64 NumPy, between 0 and 1, exact to 1e-12:
    a cut of equal capacity proves each value. settings["proofs"] counts the kinds of proof, and
    settings["saturated"] gives, per layer, the share of flows that equal the total capacity out of
    their position.
    Raises SelectionError for a layer, position or token that does not exist, ShapeError for a
    batch.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]] * 2)
    >>> flow(graph, layers=2, positions=0).scores
    array([[[0.75, 0.5 ]]])
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    check_normalize(normalize)
    chosen = _choose(graph, layers, positions, tokens)
    values = chosen.solve(threads=threads, progress=progress)
    result = chosen.attribution(values.values, "flow", {"proofs": _used(values.proofs)})
    result = replace(result, settings={**result.settings, "saturated": _share(graph, result)})
    return normalize_scores(
        result,
        normalize,
        lambda: flow(
            graph.uniform(), layers=layers, positions=positions, tokens=tokens, threads=threads
        ),
    )


@dataclass(frozen=True)
class FlowBounds:
    """Lower and upper bounds of flows: a flow of size `lower` exists, none exceeds `upper`."""

    lower: Attribution
    upper: Attribution


def flow_bounds(
    graph: AttentionGraph,
    *,
    tolerance: float,
    layers: Layers = None,
    positions: Positions = None,
    tokens: Positions = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> FlowBounds:
    """Compute lower and upper bounds of flows, faster than `flow`.

    tolerance: the largest difference between the bounds, from 0 (exact) to 1. Other options: see
    `flow`.
    Raises InputError for a negative tolerance.
    """
    if not tolerance >= 0:
        raise InputError(
            f"tolerance is {tolerance}",
            expected="a number of 0 or more",
            fix="Use flow() for exact values.",
        )
    chosen = _choose(graph, layers, positions, tokens)
    values = chosen.solve(threads=threads, progress=progress, tolerance=tolerance)
    settings = {"tolerance": tolerance, "proofs": _used(values.proofs)}
    return FlowBounds(
        lower=chosen.attribution(values.values, "flow_lower_bound", settings),
        upper=chosen.attribution(values.bounds, "flow_upper_bound", settings),
    )


@dataclass(frozen=True)
class CutEdge:
    """An edge of a minimum cut: it is saturated, and the edges of the cut together limit the flow.

    It leads from `position` at `layer` to the position `below` in the layer below.
    """

    layer: int
    position: int
    below: int
    capacity: float


@dataclass(frozen=True, eq=False)
class FlowPath:
    """A maximum flow from one position to one token, edge by edge, and a minimum cut.

    value: the size of the flow. edges: [layer, queries, keys], the flow on every edge.
    cut: the edges of a minimum cut, highest layer first; their capacities sum to the value.
    source_side: [layer + 1, positions], the nodes on the side of the position after the cut; row 0
    is the input.
    """

    value: float
    layer: int
    position: int
    token: int
    tokens: tuple[str, ...]
    edges: NDArray[np.float64]
    source_side: NDArray[np.bool_]
    cut: tuple[CutEdge, ...]

    def __repr__(self) -> str:
        way = f"{self.tokens[self.position]!r} at layer {self.layer} to {self.tokens[self.token]!r}"
        return f"FlowPath({way}: {self.value:.4g}, limited by {len(self.cut)} edges)"


def flow_path(
    graph: AttentionGraph, *, layer: int = -1, position: Position, token: Position
) -> FlowPath:
    """Compute one maximum flow from a position to a token, and a minimum cut.

    Other maximum flows and minimum cuts may exist.
    Raises SelectionError for a layer, position or token that does not exist.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]] * 2)
    >>> path = flow_path(graph, layer=2, position=0, token=1)
    >>> path.value, [(edge.layer, edge.position, edge.below) for edge in path.cut]
    (0.5, [(2, 0, 1), (1, 0, 1)])
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    number = resolve_layer(graph.n_layers, layer)
    n = graph.n_tokens
    source, sink = (resolve_position(graph.tokens, n, which) for which in (position, token))
    capacities = graph.capacities()
    pair = max_flow(capacities, layer=number, source=source, sink=sink)
    if np.isinf(pair.value):
        raise SelectionError(
            f"position {source} is still token {sink} at layer {number}: all layers so far pass it "
            "through unchanged, so the flow is unlimited",
            expected="a layer at which the position attends to others",
            fix="Use a higher layer.",
        )
    side = pair.source_side
    below = [side[level] for level in range(number)]
    below[0] = np.arange(n) != sink  # other tokens are on the source side
    cut = [
        CutEdge(level, int(u), int(q), float(capacities[level - 1, u, q]))
        for level in range(number, 0, -1)
        for u, q in np.argwhere(side[level][:, None] & ~below[level - 1][None, :])
        if capacities[level - 1, u, q] > 0
    ]
    return FlowPath(pair.value, number, source, sink, graph.tokens, pair.edges, side, tuple(cut))


def saturation(graph: AttentionGraph, attribution: Attribution) -> NDArray[np.float64]:
    """The share of each position's flows that equal the total capacity out of the position.

    attribution: the result of `flow` for this graph, not normalized.
    Returns [layers, positions]. Saturated flows tie for the maximum, so flow does not rank their
    tokens. The share is large in deep layers.
    """
    if attribution.method != "flow" or attribution.settings.get("normalize") != "none":
        raise InputError(
            f"the attribution is {attribution.method} with "
            f"normalize={attribution.settings.get('normalize')!r}",
            expected="flow with normalize='none'",
            fix="Call flow(graph).",
        )
    capacities = np.minimum(graph.capacities(), 1.0)
    leaving = capacities.sum(axis=2)[
        np.asarray(attribution.layers)[:, None] - 1, np.asarray(attribution.positions)[None, :]
    ]
    full: NDArray[np.bool_] = attribution.to_numpy() >= leaving[:, :, None] - AT_BOUND
    return np.asarray(full.mean(axis=2))


def _share(graph: AttentionGraph, result: Attribution) -> dict[str, float]:
    """The mean share of saturated flows by layer number, as JSON values."""
    plain = replace(result, settings={"normalize": "none"})
    shares = saturation(graph, plain).mean(axis=1)
    return {
        str(layer): round(float(share), 4)
        for layer, share in zip(result.layers, shares, strict=True)
    }


def _used(proofs: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in proofs.items() if count}


@dataclass(frozen=True)
class _Choice:
    """The selected pairs of a graph."""

    graph: AttentionGraph
    layers: tuple[int, ...]
    positions: tuple[int, ...]
    columns: tuple[int, ...]

    def solve(self, **options: Any) -> FlowValues:
        return max_flows(
            self.graph.capacities(),
            layers=self.layers,
            sources=self.positions,
            sinks=self.columns,
            **options,
        )

    def attribution(
        self, scores: NDArray[np.float64], method: str, settings: Mapping[str, Any]
    ) -> Attribution:
        # A position that was only carried so far is the token itself; its rollout is 1 too.
        scores = np.where(np.isinf(scores), 1.0, scores)
        return Attribution(
            scores=scores,
            tokens=self.graph.tokens,
            method=method,
            layers=self.layers,
            positions=self.positions,
            columns=self.columns,
            settings={**self.graph.settings, **settings},
        )


def _choose(
    graph: AttentionGraph, layers: Layers, positions: Positions, tokens: Positions
) -> _Choice:
    n = graph.n_tokens
    return _Choice(
        graph=graph,
        layers=resolve_layers(graph.n_layers, layers),
        positions=resolve_positions(graph.tokens, n, positions),
        columns=resolve_positions(graph.tokens, n, tokens),
    )
