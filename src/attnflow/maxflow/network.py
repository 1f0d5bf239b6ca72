"""The network to solve: validated capacities, scaled and arranged for the kernels.

`build_network` is where input enters the solver. What it returns is shared by all threads and
never written. The kernels see it through `graph_of`, and a source with its sink as a `Pair`.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError, ShapeError, quote
from attnflow.maxflow.jit import NO_MEMBER, inlined, kernel, pointer, vectorized
from attnflow.maxflow.layout import TABLES, Memory, tables_of

# Residual capacities up to this count as zero: their edges are saturated. Capacities are scaled so
# that the largest finite row sum is about 1, so this is one rounding step of the largest flow.
EPSILON = 2.0**-52

# An edge is large if it has more than this many times the mean capacity of its row off the chain.
LARGE = 1.0

SQUARE = 16  # the side of a square of numbers that fits into the nearest cache

# A cut proves a flow if their values differ by no more than this, on the same scale.
PROOF_TOLERANCE = 1e-12


class Network(NamedTuple):
    """Capacities of a layered network, as Python passes them to kernels."""

    n: int
    depth: int
    causal: Any  # True if no edge leads to a later position, else None: Numba compiles for each
    capacity: NDArray[np.float64]  # [depth, n, n] flat: edge x from u to q
    tables: Memory  # see `layout.TABLES`


class Graph(NamedTuple):
    """The same network inside kernels: pointers to its arrays."""

    n: int
    depth: int
    n_words: int
    causal: Any
    capacity: Any
    column: Any
    chain: Any
    chain_least: Any
    off_chain: Any
    large: Any


class Pair(NamedTuple):
    """A source and a sink."""

    level: int  # of the source
    source: int
    sink: int


def build_network(capacities: NDArray[np.float64]) -> tuple[Network, float, float]:
    """Validate capacities [depth, n, n], scale them and compute the tables.

    Returns the network; the factor from its flows to flows on the caller's scale, a power of two,
    so that scaling does not round; and the value from which on a flow of the network is
    unlimited (infinity if no capacity is infinite).
    Raises ShapeError for other shapes, and InputError for negative capacities or NaN.
    """
    depth, n = check_shape(capacities)
    capacity = np.ascontiguousarray(capacities)  # no copy for rows that sum to 1, as in attention
    tables = TABLES.allocate(n, depth)
    are_valid, largest = fill_tables(capacity.reshape(-1), tables)
    if not are_valid:
        raise InputError(
            "capacities contain negative numbers or NaN",
            expected="numbers from 0 to infinity",
            fix="Build them with AttentionGraph, which checks its input.",
        )
    infinite = np.isinf(capacity) if largest == np.inf else None
    if infinite is not None:
        row_sums = np.where(infinite, 0.0, capacity).sum(axis=2)
        largest = float(row_sums.max())
    factor = 2.0 ** round(math.log2(largest)) if largest > 0 else 1.0
    unlimited = np.inf
    if factor != 1.0 or infinite is not None:
        capacity = capacity / factor
        if infinite is not None:
            # No finite cut exceeds the sum of one layer's finite capacities, so an edge with
            # more than this never limits a finite flow.
            unlimited = 1.0 + float(row_sums.sum(axis=1).max()) / factor
            capacity[infinite] = unlimited
        fill_tables(capacity.reshape(-1), tables)
    flat = capacity.reshape(-1)
    causal = True if is_causal(n, depth, flat) else None
    if causal is not None:
        list_large_edges(flat, tables)
    return Network(n, depth, causal, flat, tables), factor, unlimited


def read_capacities(capacities: Any) -> NDArray[np.float64]:
    """Return capacities as an array. Raises InputError if they are not numbers."""
    try:
        return np.asarray(capacities, dtype=np.float64)
    except Exception as error:  # arrays of other packages raise anything
        raise InputError(
            f"capacities are {quote(capacities)}",
            expected="numbers [layers, positions, positions]",
            fix="Pass such an array.",
        ) from error


def check_shape(capacities: NDArray[np.float64]) -> tuple[int, int]:
    """Return depth and n of capacities [depth, n, n]; raise ShapeError for other shapes."""
    shape = capacities.shape
    if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
        raise ShapeError(
            f"capacities have shape {shape}",
            expected="[layers, positions, positions] with at least one of each",
            fix="Pad narrower layers with zero rows and columns.",
        )
    return shape[0], shape[1]


def check_indices(name: str, indices: Any, first: int, last: int) -> NDArray[np.int64]:
    """Return the indices as an array; raise InputError for any outside first … last.

    Kernels do not check indices: this does.
    """
    try:
        numbers = [index(number) for number in indices]
    except Exception as error:  # arrays of other packages raise anything
        raise InputError(
            f"{name} is {quote(indices)}",
            expected=f"numbers from {first} to {last}",
            fix="Pass a list of whole numbers.",
        ) from error
    for number in numbers:
        if not first <= number <= last:
            raise InputError(
                f"{name} is {number}",
                expected=f"numbers from {first} to {last}",
                fix="Layers count from 1 (the lowest), positions from 0.",
            )
    return np.asarray(numbers, np.int64)


@inlined
def graph_of(network: Any) -> Any:
    """Return the Graph of a Network."""
    tables = tables_of(network.tables)
    return Graph(
        n=network.n,
        depth=network.depth,
        n_words=tables.n_words,
        causal=network.causal,
        capacity=pointer(network.capacity, 0),
        column=tables.column,
        chain=tables.chain,
        chain_least=tables.chain_least,
        off_chain=tables.off_chain,
        large=tables.large,
    )


@inlined
def span(pair: Any, net: Any) -> tuple[int, int]:
    """Return the first position that a path of the pair can visit, and the end of their range.

    In a causal network, paths visit no position after the source or before the sink.
    """
    return (0, net.n) if net.causal is None else (pair.sink, pair.source + 1)


@vectorized
def fill_tables(capacity: Any, block: Any) -> tuple[bool, float]:
    """Compute the tables of capacity [depth, n, n] flat.

    Returns whether all capacities are numbers from 0, and the largest row sum.
    """
    tables = tables_of(block)
    n, depth = tables.n, tables.depth
    source = pointer(capacity, 0)
    n_bad = 0
    largest = 0.0
    for row in range(depth * n):
        x, u = row // n, row % n
        total = 0.0
        for q in range(n):
            total += source[row * n + q]
            n_bad += not source[row * n + q] >= 0
        largest = max(largest, total)
        tables.chain[u * depth + x] = source[row * n + u]
        tables.off_chain[row + n] = max(total - source[row * n + u], 0.0)
    for x in range(depth):
        transpose(n, pointer(source, x * n * n), pointer(tables.column, x * n * n))
    for u in range(n):
        least = np.inf
        for level in range(depth + 1):
            if level >= 3:  # edges 1 … level - 2 lie between the source's and the last edges
                least = min(least, source[((level - 2) * n + u) * n + u])
            tables.chain_least[level * n + u] = least
        for level in range(depth, -1, -1):  # replace single layers by sums over these edges
            total = 0.0
            for x in range(1, level - 1):
                total += tables.off_chain[(x + 1) * n + u]
            tables.off_chain[level * n + u] = total
    return n_bad == 0, largest


@inlined
def transpose(n: int, source: Any, target: Any) -> None:
    """Transpose a matrix [n, n] in squares, each of which fits into the processor's cache."""
    for top in range(0, n, SQUARE):
        for left in range(0, n, SQUARE):
            for q in range(left, min(left + SQUARE, n)):
                for u in range(top, min(top + SQUARE, n)):
                    target[q * n + u] = source[u * n + q]


@vectorized
def list_large_edges(capacity: Any, block: Any) -> None:
    """Fill the table of large edges of a causal network. capacity: [depth, n, n] flat."""
    tables = tables_of(block)
    n = tables.n
    source = pointer(capacity, 0)
    for row in range(tables.depth * n):
        u = row % n
        total = 0.0
        for q in range(u):
            total += source[row * n + q]
        large = LARGE * total / (u + 1)
        for w in range(tables.n_words):
            word = NO_MEMBER
            for q in range(w << 6, min((w + 1) << 6, u)):
                word |= np.uint64(source[row * n + q] > large) << np.uint64(q & 63)
            tables.large[row * tables.n_words + w] = word


@kernel
def is_causal(n: int, depth: int, capacity: Any) -> bool:
    """Return whether there are several positions and no edge to a later one.

    capacity: [depth, n, n] flat.
    """
    source = pointer(capacity, 0)
    for row in range(depth * n):
        n_later = 0
        for q in range(row % n + 1, n):
            n_later += source[row * n + q] > 0
        if n_later > 0:
            return False
    return bool(n > 1)
