"""Maximum flows of a layered network: many pairs at once, or one pair in full.

Rows (one source, all its sinks) are shared out over threads; the compiled code runs without
Python's lock. Layers are solved from the bottom up, because what is known of a layer settles
much of the next (see `settling`). A value whose proof rounding spoils is solved again
in whole numbers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError
from attnflow.maxflow.jit import announce_compilation
from attnflow.maxflow.layout import (
    Network,
    Scratch,
    build_network,
    build_scratch,
    check_numbers,
    forget_residual,
)
from attnflow.maxflow.pair import (
    PROOFS,
    SOLVED_AGAIN,
    UNPROVED,
    solve_block,
    solve_in_whole_numbers,
)

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]  # pairs done, pairs in all
Block = tuple[int, int, int, int]  # the first layer and the one behind the last; the same of rows

PAIRS_PER_CALL = 2000  # so that a call takes well under a second and can be interrupted
BLOCKS_PER_THREAD = 16  # of each layer at least, so that no thread waits long for another
PAIRS_PER_THREAD = 500  # less work than this is not worth another thread
KEPT, KEPT_BYTES = 4, 16 * 2**20  # how many threads' memory is kept between jobs, and how large
NOT_NEEDED = np.empty(0)

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
    asked = np.arange(1, depth + 1) if layers is None else check_numbers("layer", layers, 1, depth)
    levels = np.asarray(sorted(set(asked.tolist())), np.int64)
    origins = np.arange(n) if sources is None else check_numbers("source", sources, 0, n - 1)
    targets = np.arange(n) if sinks is None else check_numbers("sink", sinks, 0, n - 1)
    shape = (levels.size, origins.size, targets.size)
    lower, upper, proofs = np.empty(shape), np.empty(shape), np.empty(shape, np.int64)
    workers = count_threads(threads, proofs.size)
    job = _Job(network, levels, origins, targets, tolerance / factor, lower, upper, proofs)
    job.run(workers, progress)
    if levels.tolist() != asked.tolist():  # not ascending, or one of them twice
        order = np.searchsorted(levels, asked)
        levels, lower, upper, proofs = levels[order], lower[order], upper[order], proofs[order]
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
            f"threads is {threads}",
            expected="a number from 1",
            fix="Leave it out to use all processors.",
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


class _Job:
    """All the pairs of one call, in blocks that threads take from a queue."""

    def __init__(
        self,
        network: Network,
        levels: NDArray[np.int64],
        sources: NDArray[np.int64],
        sinks: NDArray[np.int64],
        tolerance: float,
        lower: Floats,
        upper: Floats,
        proofs: np.ndarray[tuple[int, int, int], np.dtype[np.int64]],
    ) -> None:
        n = network.n
        self.network = network
        self.shape: tuple[int, int, int] = proofs.shape
        self.waiting: deque[Block] = deque()
        self.finished: deque[int] = deque()  # pairs that are solved and not yet reported
        self.stop = np.zeros(1, np.int64)
        everyone = sources.size == n and bool((sources == np.arange(n)).all())
        into = NOT_NEEDED
        if everyone:
            into = network.layout[: n * n].reshape(n, n).sum(axis=1)[sinks]  # its first: columns
        self.arguments = (
            levels, sources, sinks, into, everyone, tolerance, self.stop,
            lower, upper, proofs, n, network.depth, network.capacity, network.layout,
        )  # fmt: skip

    def run(self, threads: int, progress: Progress | None) -> None:
        """Solve all pairs, layer by layer. This thread works like the others, and reports."""
        net, (layers, rows, sinks) = self.network, self.shape
        total = layers * rows * sinks
        announce_compilation(solve_block, net.causal)
        report = _Report(self.finished, total, progress)
        scratches = [take_scratch(net.n, net.depth) for _ in range(threads)]
        if total <= PAIRS_PER_CALL:
            self.waiting.append((0, layers, 0, rows))
            self._work(scratches[0], report)
        elif threads == 1:
            for layer in range(layers):
                self._fill(layer, PAIRS_PER_CALL // sinks)
                self._work(scratches[0], report)
        else:
            wide = min(PAIRS_PER_CALL // sinks, rows // (BLOCKS_PER_THREAD * threads))
            with ThreadPoolExecutor(threads - 1) as pool:
                try:
                    for layer in range(layers):
                        self._fill(layer, wide)
                        others = [pool.submit(self._work, scratch) for scratch in scratches[1:]]
                        self._work(scratches[0], report)
                        for other in others:
                            other.result()
                        report()
                finally:
                    self.waiting.clear()  # after an interrupt or an error, nothing new is begun,
                    self.stop[0] = 1  # and what was begun ends at the next pair
        for scratch in scratches:  # for later jobs, now that no thread is running
            keep_scratch(net.n, net.depth, scratch)

    def _fill(self, layer: int, wide: int) -> None:
        """Queue all rows of a layer, so many at a time."""
        rows, step = self.shape[1], max(1, wide)
        for start in range(0, rows, step):
            self.waiting.append((layer, layer + 1, start, min(start + step, rows)))

    def _work(self, scratch: Scratch, report: Callable[[], None] | None = None) -> None:
        """Solve blocks from the queue until it is empty."""
        while True:
            try:
                block = self.waiting.popleft()
            except IndexError:
                return
            solve_block(self.network.causal, block, *self.arguments, *scratch)
            self.finished.append((block[1] - block[0]) * (block[3] - block[2]) * self.shape[2])
            if report is not None:
                report()


class _Report:
    """Tells the caller how many pairs are done."""

    def __init__(self, finished: deque[int], total: int, progress: Progress | None) -> None:
        self.finished = finished
        self.done = 0
        self.total = total
        self.progress = progress

    def __call__(self) -> None:
        """Count what was finished since the last time."""
        news = 0
        while self.finished:
            news += self.finished.popleft()
        self.done += news
        if news and self.progress is not None:
            self.progress(self.done, self.total)
