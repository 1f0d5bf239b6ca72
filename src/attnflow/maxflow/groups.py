"""Flows between sets of positions and sets of tokens: one maximum flow for each pair of sets.

A set of sinks is a super-sink with an unlimited edge from each of them. That is the same as one
token whose edges are the sums of theirs, so the columns of the lowest layer are added up. In the
same way, the rows of a set of sources are added up in the source's own layer. What remains is a
pair of one source and one sink, which `solver` and `pair` solve and prove.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError, check_function, quote
from attnflow.maxflow.network import check_indices, check_shape, read_capacities
from attnflow.maxflow.pair import PROOFS, PairFlow, max_flow
from attnflow.maxflow.solver import FlowValues, max_flows
from attnflow.progress import Progress

Floats = NDArray[np.float64]
Group = tuple[int, ...]


def group_flows(
    capacities: NDArray[np.floating[Any]],
    *,
    layers: Sequence[int] | None = None,
    sources: Sequence[Sequence[int]],
    sinks: Sequence[Sequence[int]],
    threads: int | None = None,
    progress: Progress | None = None,
) -> FlowValues:
    """Compute maximum flows from sets of positions above the given layers to sets of tokens.

    capacities, layers, threads, progress: as in `max_flows`.
    sources, sinks: sets of positions and of tokens; sets may overlap.
    Returns values [layers, sources, sinks]. Each is one maximum flow from all positions of a set
    together to all tokens of a set together.
    Raises InputError for an empty set, or a layer or position that does not exist.

    >>> halves = np.full((2, 2, 2), 0.5)
    >>> group_flows(halves, layers=[2], sources=[[0], [0, 1]], sinks=[[0], [0, 1]]).values
    array([[[1., 1.],
            [1., 2.]]])
    """
    network = read_capacities(capacities)
    depth, n = check_shape(network)
    numbers = check_indices("layer", range(1, depth + 1) if layers is None else layers, 1, depth)
    starts, ends = _check_groups("sources", sources, n), _check_groups("sinks", sinks, n)
    check_function("progress", progress)
    values = np.empty((numbers.size, len(starts), len(ends)))
    bounds, proofs = np.empty_like(values), dict.fromkeys(PROOFS, 0)
    done = 0
    for columns in _distinct(ends, min):
        merged = merge_sinks(network, [ends[k] for k in columns])
        for axes, rows, pairs in _networks(merged, numbers.tolist(), starts):
            part = max_flows(
                pairs,
                layers=[numbers[i] for i in axes],
                sources=[max(starts[j]) for j in rows],
                sinks=[min(ends[k]) for k in columns],
                threads=threads,
                progress=part_of(progress, done, values.size),
            )
            values[np.ix_(axes, rows, columns)] = part.values
            bounds[np.ix_(axes, rows, columns)] = part.bounds
            proofs = {name: count + part.proofs[name] for name, count in proofs.items()}
            done += part.values.size
    return FlowValues(values, bounds, proofs)


def _check_groups(name: str, groups: Any, n: int) -> list[Any]:
    """The sets of positions. Raises InputError for anything but a list of sets."""
    try:
        listed = list(groups)
    except Exception as error:
        raise InputError(
            f"{name} is {quote(groups)}",
            expected="a list of sets of positions",
            fix="For the positions 0 and 1 together: [[0, 1]].",
        ) from error
    return [check_group(name, group, n) for group in listed]


def group_flow(
    capacities: Floats, *, layer: int, sources: Sequence[int], sinks: Sequence[int]
) -> PairFlow:
    """Compute one maximum flow from a set of positions to a set of tokens, edge by edge.

    capacities, layer: as in `max_flow`.
    Returns flow and cut on the edges of the original network; all sources are on the source's side.
    Raises InputError for an empty set, or a layer or position that does not exist.

    >>> pair = group_flow(np.full((2, 2, 2), 0.5), layer=2, sources=[0], sinks=[0, 1])
    >>> pair.value, float(pair.edges[0].sum())
    (1.0, 1.0)
    """
    capacities = read_capacities(capacities)
    depth, n = check_shape(capacities)
    check_indices("layer", [layer], 1, depth)
    start, end = check_group("sources", sources, n), check_group("sinks", sinks, n)
    network = merge_sources(merge_sinks(capacities[:layer], [end]), [start])
    pair = max_flow(network, layer=layer, source=max(start), sink=min(end))
    edges, top = pair.edges, layer - 1
    if layer == 1:
        total = edges[0, max(start), min(end)]
        shares = _shares(np.asarray([total]), capacities[0][np.ix_(start, end)].reshape(-1, 1))
        edges[0] = 0.0
        edges[0][np.ix_(start, end)] = shares.reshape(len(start), len(end))
    else:
        row, column = edges[top, max(start)].copy(), edges[0, :, min(end)].copy()
        edges[top], edges[0] = 0.0, 0.0
        edges[top, start] = _shares(row, capacities[top, start])
        edges[0][:, end] = _shares(column, capacities[0][:, end].T).T
    side = pair.source_side.copy()
    side[layer, start] = True
    return PairFlow(pair.value, edges, side)


def part_of(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Return a callback for one of several jobs, when so many pairs were done before it."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)


def check_group(name: str, group: Sequence[int], n: int) -> Group:
    """Return the members of a set of positions, ascending.

    Raises InputError for an empty set and for positions outside 0 … n - 1.
    """
    members = tuple(sorted(set(check_indices(name, group, 0, n - 1).tolist())))
    if not members:
        raise InputError(
            f"one of the {name} is an empty set",
            expected="at least one position in each set",
            fix="Leave the set out.",
        )
    return members


def merge_sinks(capacities: Floats, groups: Sequence[Group]) -> Floats:
    """Return capacities in which one token stands for each set: its first member.

    groups: sets with different first members. In a causal network no path to the set visits a
    position before it, so the network stays causal. Other tokens have no edges any more.
    """
    merged = capacities.copy()
    merged[0] = 0.0
    for group in groups:
        merged[0, :, min(group)] = capacities[0][:, group].sum(axis=1)
    return merged


def merge_sources(capacities: Floats, groups: Sequence[Group]) -> Floats:
    """Return capacities in which one position of the highest layer stands for each set: its last.

    groups: sets with different last members. Other positions of the layer have no edges any more.
    """
    merged = capacities.copy()
    merged[-1] = 0.0
    for group in groups:
        merged[-1, max(group)] = capacities[-1][list(group)].sum(axis=0)
    return merged


def _networks(
    capacities: Floats, layers: Sequence[int], groups: Sequence[Group]
) -> Iterator[tuple[list[int], list[int], Floats]]:
    """Yield networks with the indices of the layers and of the sets of sources to solve there.

    Single positions of all layers share one network. For a set, the source's own layer is merged,
    so each layer needs its own.
    """
    single = [j for j, group in enumerate(groups) if len(group) == 1]
    if single:
        yield list(range(len(layers))), single, capacities
    several = [j for j, group in enumerate(groups) if len(group) > 1]
    for part in _distinct([groups[j] for j in several], max):
        rows = [several[k] for k in part]
        for i, layer in enumerate(layers):
            yield [i], rows, merge_sources(capacities[:layer], [groups[j] for j in rows])


def _distinct(groups: Sequence[Group], member: Any) -> Iterator[list[int]]:
    """Divide sets into parts in which `member`, min or max, differs; yields indices of sets."""
    left = list(range(len(groups)))
    while left:
        part = {member(groups[k]): k for k in reversed(left)}
        chosen = sorted(part.values())
        left = [k for k in left if k not in chosen]
        yield chosen


def _shares(flow: Floats, capacity: Floats) -> Floats:
    """Divide merged flow [edges] among the edges it stands for, [members, edges], in order."""
    most = np.minimum(capacity, flow)
    before = np.cumsum(most, axis=0) - most
    return np.asarray(np.clip(flow - before, 0.0, most))
