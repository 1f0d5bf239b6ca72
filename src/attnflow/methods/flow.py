"""Attention flow: exact maximum flow through the attention graph (paper §3).

`flow` computes values for tokens or words, `group_flow` for any sets of positions and tokens,
`flow_bounds` bounds them, `flow_path` returns one flow edge by edge with its minimum cut, and
`saturation` tells how many flows are at their upper bound. The solver is in `attnflow.maxflow`.

The flow to a word is one maximum flow into all of its tokens together, not the sum of their flows,
which would count the same capacity several times. The flow from a word with several positions is
one maximum flow out of all of them, divided by their number: then it can be compared with that of
one position, and with rollout, which is averaged over the positions of a word. (From one position,
flow is at least rollout; from several it can be less, because they share the edges below them.)
`group_flow` does not divide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution, Normalize, Row, check_normalize, normalize_scores
from attnflow.errors import InputError, SelectionError, check_type, quote
from attnflow.graph import AttentionGraph
from attnflow.maxflow import FlowValues, group_flows, max_flows
from attnflow.maxflow import group_flow as solve_group
from attnflow.maxflow.solver import check_tolerance
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
from attnflow.units import Units

AT_BOUND = 1e-9  # a flow within this distance of its upper bound counts as saturated


def flow(  # noqa: PLR0913 - one argument for each option
    graph: AttentionGraph,
    *,
    layers: Layers = None,
    positions: Positions = None,
    tokens: Positions = None,
    rows: Sequence[Row] = (),
    units: Units | None = None,
    normalize: Normalize = "none",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Attribute positions to input tokens by the maximum flow between them (paper §3).

    layers: numbers from 1, -1 for the last. positions, tokens: indices or texts. All by default.
    rows: sets of positions instead of positions: one maximum flow out of all positions of a set,
    divided by their number.
    units: compute flows to words or other units instead of tokens: one maximum flow into all tokens
    of a unit. tokens are then units; and positions too, without rows.
    normalize: "none"; "rows" scales the row of each position to sum to 1; "receptive_field"
    divides by the flow under uniform attention first.
    threads: all processors by default. progress: called with pairs done and pairs in total.
    Returns scores: [layers, positions, tokens], float64 NumPy, exact to 1e-12 of the largest row
    sum: a cut of equal capacity proves each value. If rows sum to 1, no score exceeds 1.
    settings["proofs"] counts the kinds of proof, and settings["saturated"] gives, per layer, the
    share of flows that equal the total capacity out of their position.
    Raises SelectionError for a layer, position or token that does not exist, ShapeError for a
    batch.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]] * 2)
    >>> flow(graph, layers=2, positions=0).scores
    array([[[0.75, 0.5 ]]])
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    check_normalize(normalize)
    chosen = _choose(graph, layers, positions, tokens, rows, units)
    values = chosen.solve(threads=threads, progress=progress)
    result = chosen.attribution(values.values, "flow", {"proofs": _used(values.proofs)})
    result = replace(result, settings={**result.settings, "saturated": _share(chosen, result)})
    return normalize_scores(
        result,
        normalize,
        lambda: flow(
            graph.uniform(),
            layers=layers,
            positions=positions,
            tokens=tokens,
            rows=rows,
            units=units,
            threads=threads,
        ),
    )


@dataclass(frozen=True, eq=False)
class GroupFlow:
    """Maximum flows between sets of positions and sets of tokens.

    values: [layers, positions, tokens]; positions and tokens are sets here.
    layers: numbers from 1. positions, tokens: the indices in each set.
    proofs: how many values were proved in which way.
    """

    values: NDArray[np.float64]
    layers: tuple[int, ...]
    positions: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[int, ...], ...]
    proofs: Mapping[str, int]


def group_flow(
    graph: AttentionGraph,
    *,
    layers: Layers = None,
    positions: Sequence[Positions] | None = None,
    tokens: Sequence[Positions] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> GroupFlow:
    """Compute the maximum flow from each set of positions to each set of tokens.

    positions, tokens: sets, each a list of indices or texts, such as the tokens of a sentence or
    the positions of an answer; an index or text alone is a set of one. By default each position
    and each token is a set of its own. Other options: see `flow`.
    Returns values [layers, positions, tokens]: each is one maximum flow out of all positions of a
    set and into all tokens of a set, with unlimited capacity between set and members. It is not
    divided by the number of positions. Flow to a set is at least the flow to each subset, and at
    most the sum of the flows to its tokens.
    Raises SelectionError for a layer, position or token that does not exist.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]] * 2)
    >>> group_flow(graph, layers=2, positions=[0], tokens=[0, 1, [0, 1]]).values
    array([[[0.75, 0.5 , 1.  ]]])
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    numbers = resolve_layers(graph.n_layers, layers)
    sources, sinks = _resolve_groups(graph, positions), _resolve_groups(graph, tokens)
    solved = _solve_groups(graph, numbers, sources, sinks, threads=threads, progress=progress)
    return GroupFlow(solved.values, numbers, sources, sinks, _used(solved.proofs))


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
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    check_tolerance(tolerance)
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
    """A maximum flow from a position to a token, or between sets of them, and a minimum cut.

    value: the size of the flow. edges: [layer, queries, keys], the flow on every edge.
    position, token: an index, or the indices of a set.
    cut: the edges of a minimum cut, highest layer first; their capacities sum to the value.
    source_side: [layer + 1, positions], the nodes on the side of the position after the cut; row 0
    is the input.
    """

    value: float
    layer: int
    position: int | tuple[int, ...]
    token: int | tuple[int, ...]
    tokens: tuple[str, ...]
    edges: NDArray[np.float64]
    source_side: NDArray[np.bool_]
    cut: tuple[CutEdge, ...]

    def __repr__(self) -> str:
        way = f"{self._name(self.position)} at layer {self.layer} to {self._name(self.token)}"
        return f"FlowPath({way}: {self.value:.4g}, limited by {len(self.cut)} edges)"

    def _name(self, place: int | tuple[int, ...]) -> str:
        members = (place,) if isinstance(place, int) else place
        return " + ".join(repr(self.tokens[i]) for i in members)


def flow_path(
    graph: AttentionGraph,
    *,
    layer: int = -1,
    position: Position | Sequence[Position],
    token: Position | Sequence[Position],
) -> FlowPath:
    """Compute one maximum flow from a position to a token, and a minimum cut.

    position, token: an index or text, or a list of them: then the flow goes from all of these
    positions together, or to all of these tokens together, as in `group_flow`.
    Other maximum flows and minimum cuts may exist.
    Raises SelectionError for a layer, position or token that does not exist.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]] * 2)
    >>> path = flow_path(graph, layer=2, position=0, token=1)
    >>> path.value, [(edge.layer, edge.position, edge.below) for edge in path.cut]
    (0.5, [(2, 0, 1), (1, 0, 1)])
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    number = resolve_layer(graph.n_layers, layer)
    source, sink = _resolve_place(graph, position), _resolve_place(graph, token)
    sources, sinks = _members(source), _members(sink)
    capacities = graph.capacities()
    pair = solve_group(capacities, layer=number, sources=sources, sinks=sinks)
    if np.isinf(pair.value):
        raise SelectionError(
            f"position {source} is still token {sink} at layer {number}: all layers so far pass it "
            "through unchanged, so the flow is unlimited",
            expected="a layer at which the position attends to others",
            fix="Use a higher layer.",
        )
    side = pair.source_side
    below = [side[level] for level in range(number)]
    below[0] = ~np.isin(np.arange(graph.n_tokens), sinks)  # other tokens are on the source side
    cut = [
        CutEdge(level, int(u), int(q), float(capacities[level - 1, u, q]))
        for level in range(number, 0, -1)
        for u, q in np.argwhere(side[level][:, None] & ~below[level - 1][None, :])
        if capacities[level - 1, u, q] > 0
    ]
    return FlowPath(pair.value, number, source, sink, graph.tokens, pair.edges, side, tuple(cut))


def saturation(
    graph: AttentionGraph, attribution: Attribution, *, units: Units | None = None
) -> NDArray[np.float64]:
    """The share of each position's flows that equal the total capacity out of the position.

    attribution: the result of `flow` for this graph, not normalized. units: those it was computed
    for, if any.
    Returns [layers, positions]. Saturated flows tie for the maximum, so flow does not rank their
    tokens. The share is large in deep layers.
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    check_type(attribution, Attribution, "Pass the result of flow(graph).")
    if attribution.method != "flow" or attribution.settings.get("normalize") != "none":
        raise InputError(
            f"the attribution is {attribution.method} with "
            f"normalize={attribution.settings.get('normalize')!r}",
            expected="flow with normalize='none'",
            fix="Call flow(graph).",
        )
    labels = graph.tokens if units is None else units.texts
    if attribution.tokens != labels:
        raise InputError(
            f"the attribution has {len(attribution.tokens)} tokens or units",
            expected=f"the {len(labels)} of the graph",
            fix="Pass the units of the attribution as units=.",
        )
    groups = [row.positions for row in attribution.rows] or [
        (p,) if units is None else units.groups[p] for p in attribution.positions
    ]
    capacities = graph.capacities()[np.asarray(attribution.layers) - 1]
    rows = np.where(np.isinf(capacities), 1.0, capacities).sum(axis=2)  # carried: rollout is 1
    leaving = np.stack([rows[:, list(group)].mean(axis=1) for group in groups], axis=1)
    full: NDArray[np.bool_] = attribution.to_numpy() >= leaving[:, :, None] - AT_BOUND
    return np.asarray(full.mean(axis=2))


def _share(chosen: _Choice, result: Attribution) -> dict[str, float]:
    """The mean share of saturated flows by layer number, as JSON values."""
    plain = replace(result, settings={"normalize": "none"})
    shares = saturation(chosen.graph, plain, units=chosen.units).mean(axis=1)
    return {
        str(layer): round(float(share), 4)
        for layer, share in zip(result.layers, shares, strict=True)
    }


def _used(proofs: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in proofs.items() if count}


# Selections


@dataclass(frozen=True)
class _Choice:
    """The selected pairs of a graph. With units, columns are units; with rows, positions are rows.

    Without rows, positions are units too.
    """

    graph: AttentionGraph
    layers: tuple[int, ...]
    positions: tuple[int, ...]
    columns: tuple[int, ...]
    rows: tuple[Row, ...] = ()
    units: Units | None = None

    def solve(self, **options: Any) -> FlowValues:
        if self.units is None and not self.rows:
            return max_flows(
                self.graph.capacities(),
                layers=self.layers,
                sources=self.positions,
                sinks=self.columns,
                **options,
            )
        groups: Groups = tuple((i,) for i in range(self.graph.n_tokens))
        if self.units is not None:
            groups = self.units.groups
        sources = tuple(row.positions for row in self.rows)
        sources = sources or tuple(groups[i] for i in self.positions)
        sinks = tuple(groups[i] for i in self.columns)
        solved = _solve_groups(self.graph, self.layers, sources, sinks, **options)
        sizes = np.asarray([len(group) for group in sources], dtype=np.float64)[:, None]
        return FlowValues(solved.values / sizes, solved.bounds / sizes, solved.proofs)

    def attribution(
        self, scores: NDArray[np.float64], method: str, settings: Mapping[str, Any]
    ) -> Attribution:
        # A position that was only carried so far is the token itself; its rollout is 1 too.
        scores = np.where(np.isinf(scores), 1.0, scores)
        by_words = {} if self.units is None else {"words": True}
        return Attribution(
            scores=scores,
            tokens=self.graph.tokens if self.units is None else self.units.texts,
            method=method,
            layers=self.layers,
            positions=self.positions,
            columns=self.columns,
            settings={**self.graph.settings, **settings, **by_words},
            rows=self.rows,
        )


def _choose(
    graph: AttentionGraph,
    layers: Layers,
    positions: Positions,
    tokens: Positions,
    rows: Sequence[Row] = (),
    units: Units | None = None,
) -> _Choice:
    labels = graph.tokens if units is None else units.texts
    places = tuple(range(len(rows))) or resolve_positions(labels, len(labels), positions)
    return _Choice(
        graph=graph,
        layers=resolve_layers(graph.n_layers, layers),
        positions=places,
        columns=resolve_positions(labels, len(labels), tokens),
        rows=tuple(rows),
        units=units,
    )


Groups = tuple[tuple[int, ...], ...]


def _resolve_groups(graph: AttentionGraph, groups: Any) -> Groups:
    if groups is None:
        return tuple((i,) for i in range(graph.n_tokens))
    if not isinstance(groups, Sequence) or isinstance(groups, str):
        raise SelectionError(
            f"the sets of positions are {quote(groups)}",
            expected="a list of sets, each a list of positions",
            fix="Pass such a list: [[0, 1], [2]].",
        )
    return tuple(resolve_positions(graph.tokens, graph.n_tokens, group) for group in groups)


def _resolve_place(
    graph: AttentionGraph, place: Position | Sequence[Position]
) -> int | tuple[int, ...]:
    """The index of a position or token, or the indices of a set."""
    if isinstance(place, Sequence) and not isinstance(place, str):
        return resolve_positions(graph.tokens, graph.n_tokens, place)
    return resolve_position(graph.tokens, graph.n_tokens, place)


def _members(place: int | tuple[int, ...]) -> tuple[int, ...]:
    return (place,) if isinstance(place, int) else place


def _solve_groups(
    graph: AttentionGraph,
    layers: tuple[int, ...],
    sources: Groups,
    sinks: Groups,
    **options: Any,
) -> FlowValues:
    """Solve all pairs of sets. Positions that all layers so far carried are their own tokens.

    Their flow is unlimited and counts as 1, as the flow of a single one does. No other flow
    passes through them, so the flow of the other positions is added to it.
    """
    capacities = graph.capacities()
    solved = group_flows(capacities, layers=layers, sources=sources, sinks=sinks, **options)
    chains = np.isinf(np.diagonal(capacities, axis1=1, axis2=2))
    for i, j, k in np.argwhere(np.isinf(solved.values)):
        own = set(np.flatnonzero(np.all(chains[: layers[i]], axis=0)).tolist())
        value = float(len(own & set(sources[j]) & set(sinks[k])))
        others = [u for u in sources[j] if u not in own]
        if others:
            rest = group_flows(capacities, layers=[layers[i]], sources=[others], sinks=[sinks[k]])
            value += float(rest.values.item())
        solved.values[i, j, k] = solved.bounds[i, j, k] = value
    return solved
