"""Maximum flows of a layered network: many pairs at once, or one pair in full.

Rows (one source, all its sinks) are shared out over threads; the compiled code runs without
Python's lock. Layers are solved from the bottom up, because what is known of a layer settles
much of the next (see `settled_from_below`). A value whose proof rounding spoils is solved again
in whole numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError
from attnflow.maxflow.compiling import announce_compilation
from attnflow.maxflow.network import (
    Network,
    Scratch,
    build_network,
    build_scratch,
    forget_residual,
)
from attnflow.maxflow.pair import PROOFS, SOLVED_AGAIN, UNPROVED, solve_rows
from attnflow.maxflow.settling import settled_from_below
from attnflow.maxflow.single import solve_in_whole_numbers

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]  # pairs done, pairs in all

PAIRS_PER_CALL = 2000  # so that a call takes well under a second and can be interrupted
PAIRS_PER_THREAD = 500  # less work than this is not worth another thread
KEPT, KEPT_BYTES = 4, 16 * 2**20  # how many threads' memory is kept between jobs, and how large

_keeping = Lock()
_kept: list[tuple[tuple[int, int], Scratch]] = []  # sizes with memory that no thread uses


@dataclass(frozen=True)
class FlowValues:
    """Maximum flows from every source asked for to every sink asked for.

    values: [layers, sources, sinks], a flow of this size exists.
    bounds: the same shape, no flow can be larger. Equal to the values within 1e-12 of the
    largest row sum, unless a tolerance was given.
    proofs: how many values were proved in which way.
    """

    values: Floats
    bounds: Floats
    proofs: Mapping[str, int]


def max_flows(
    capacities: NDArray[np.floating[Any]],
    *,
    layers: Sequence[int] | None = None,
    sources: Sequence[int] | None = None,
    sinks: Sequence[int] | None = None,
    threads: int | None = None,
    tolerance: float = 0.0,
    progress: Progress | None = None,
) -> FlowValues:
    """The maximum flow from positions of some layers down to positions of the input.

    capacities: [layers, n, n]; capacities[i, u, q] from u above layer i + 1 to q below it, so
    layer 1 is the lowest. Infinity is allowed, and so is a flow of that size.
    layers: from 1; sources, sinks: from 0; all if not given.
    threads: as many as there are processors if not given. The answer does not depend on it.
    tolerance: stop at a value this close to a bound that is known without a search.
    progress: called with the number of pairs done and of all pairs.

    >>> max_flows(np.asarray([[[0.5, 0.5], [0.0, 1.0]]])).values
    array([[[0.5, 0.5],
            [0. , 1. ]]])
    """
    network, factor, unlimited = build_network(np.asarray(capacities, dtype=np.float64))
    n, depth = network.n, network.depth
    levels = np.arange(1, depth + 1) if layers is None else np.asarray(layers, np.int64)
    origins = np.arange(n) if sources is None else np.asarray(sources, np.int64)
    targets = np.arange(n) if sinks is None else np.asarray(sinks, np.int64)
    shape = (levels.size, origins.size, targets.size)
    lower, upper = np.empty(shape), np.empty(shape)
    proofs = np.empty(shape, np.int64)
    known = np.zeros(shape, bool)
    workers = count_threads(threads, proofs.size)
    run = _Run(network, origins, targets, tolerance / factor, workers, progress, proofs.size)
    everyone = origins.size == n and np.array_equal(origins, np.arange(n))
    rows = {level: i for i, level in enumerate(levels.tolist())}
    for level, i in sorted(rows.items()):
        if everyone and level > 2 and level - 1 in rows:
            below = lower[rows[level - 1]]
            known[i] = settled_from_below(network, level, targets, below, lower[i], upper[i])
        run.solve_layer(level, known[i], lower[i], upper[i], proofs[i])
    run.give_back()
    counts = np.bincount(proofs.reshape(-1), minlength=len(PROOFS))
    if counts[UNPROVED]:
        _solve_again(network, levels, origins, targets, lower, upper, proofs)
        counts = np.bincount(proofs.reshape(-1), minlength=len(PROOFS))
    if unlimited < np.inf:
        for flows in (lower, upper):
            flows[flows >= unlimited] = np.inf
    if factor != 1.0:
        lower *= factor
        upper *= factor
    return FlowValues(lower, upper, dict(zip(PROOFS, counts.tolist(), strict=True)))


def _solve_again(
    network: Network,
    levels: NDArray[np.int64],
    sources: NDArray[np.int64],
    sinks: NDArray[np.int64],
    lower: Floats,
    upper: Floats,
    proofs: NDArray[np.int64],
) -> None:
    """Solve in whole numbers what is unproved."""
    for i, j, k in np.argwhere(proofs == UNPROVED):
        value, _, _ = solve_in_whole_numbers(network, levels[i], sources[j], sinks[k])
        lower[i, j, k] = upper[i, j, k] = value
        proofs[i, j, k] = SOLVED_AGAIN


def count_threads(threads: int | None, pairs: int) -> int:
    """How many threads to use for so many pairs."""
    if threads is not None and threads < 1:
        raise InputError(
            f"threads is {threads}; expected a number from 1. Leave it out to use all processors."
        )
    most = pairs // PAIRS_PER_THREAD
    return 1 if most < 2 else min(threads or _processors(), most)


def take_scratch(n: int, depth: int) -> Scratch:
    """A thread's memory for networks of this size: that of an earlier job, or fresh."""
    with _keeping:
        for i, (size, scratch) in enumerate(_kept):
            if size == (n, depth):
                del _kept[i]
                forget_residual(scratch, n, depth)
                return scratch
    return build_scratch(n, depth)


def keep_scratch(n: int, depth: int, scratch: Scratch) -> None:
    """Keep a thread's memory for a later job, unless it is much or there is much already."""
    if scratch.reals.nbytes + scratch.wholes.nbytes + scratch.words.nbytes <= KEPT_BYTES:
        with _keeping:
            _kept.append(((n, depth), scratch))
            del _kept[:-KEPT]


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Run:
    """The rows of one job, shared out over threads."""

    def __init__(
        self,
        network: Network,
        sources: NDArray[np.int64],
        sinks: NDArray[np.int64],
        tolerance: float,
        threads: int,
        progress: Progress | None,
        n_pairs: int,
    ) -> None:
        self.network = network
        self.sources = sources
        self.sinks = sinks
        self.tolerance = tolerance
        self.progress = progress
        self.done = 0
        self.total = n_pairs
        self.scratches = [take_scratch(network.n, network.depth) for _ in range(threads)]

    def solve_layer(
        self,
        level: int,
        known: NDArray[np.bool_],
        lower: Floats,
        upper: Floats,
        proofs: NDArray[np.int64],
    ) -> None:
        """Solve all rows of one layer, except what is known; fills lower, upper and proofs."""
        net = self.network
        step = max(1, PAIRS_PER_CALL // self.sinks.size)
        starts = range(0, self.sources.size, step)
        stop = np.zeros(1, np.int64)
        announce_compilation(solve_rows, net.causal)

        def work(start: int, scratch: Scratch) -> int:
            end = min(start + step, self.sources.size)
            solve_rows(
                net.causal, start, end, level, self.sources, self.sinks, known, self.tolerance,
                stop, lower, upper, proofs, net.n, net.depth, net.capacity, net.layout, *scratch,
            )  # fmt: skip
            return (end - start) * int(self.sinks.size)

        if len(self.scratches) == 1:
            for start in starts:
                self._report(work(start, self.scratches[0]))
        else:
            self._share_out(starts, work, stop)

    def _share_out(
        self, starts: Sequence[int], work: Callable[[int, Scratch], int], stop: NDArray[np.int64]
    ) -> None:
        """Give every thread one call at a time, until all are done or something goes wrong."""
        waiting = list(reversed(starts))
        idle = list(self.scratches)
        running: dict[Future[int], Scratch] = {}
        with ThreadPoolExecutor(len(idle)) as pool:
            try:
                while waiting or running:
                    while waiting and idle:
                        scratch = idle.pop()
                        running[pool.submit(work, waiting.pop(), scratch)] = scratch
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        idle.append(running.pop(future))
                        self._report(future.result())
            finally:
                stop[0] = 1  # after an interrupt or an error: end the threads at the next pair

    def give_back(self) -> None:
        """Keep the threads' memory for later jobs, now that none is running."""
        for scratch in self.scratches:
            keep_scratch(self.network.n, self.network.depth, scratch)

    def _report(self, pairs: int) -> None:
        self.done += pairs
        if self.progress is not None:
            self.progress(self.done, self.total)
