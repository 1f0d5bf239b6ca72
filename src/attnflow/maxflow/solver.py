"""Maximum flows of many pairs at once: `max_flows`, on one or several threads.

A small job is solved by one call of compiled code. A larger one is cut into chunks of rows, a row
being one source with all its sinks. Threads take chunks from a queue, and compiled code solves them
without Python's global lock. Layers are solved from the lowest up, because the flows of one layer
determine many of the next (see `proofs`). Values whose proof fails by rounding are solved again
with integers.
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

from attnflow.errors import InputError, check_count, check_function, quote
from attnflow.maxflow.layout import TABLES, Memory
from attnflow.maxflow.network import Network, build_network, check_indices, read_capacities
from attnflow.maxflow.pair import (
    INTEGERS,
    PROOFS,
    UNPROVED,
    Job,
    solve_chunk,
    solve_with_integers,
)
from attnflow.maxflow.residual import allocate_workspace
from attnflow.progress import Progress

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PAIRS_PER_CALL = 2000  # a call then takes well under a second, and Ctrl-C waits for its end
CHUNKS_PER_THREAD = 16  # at least, in each layer, so that no thread waits long for another
PAIRS_PER_THREAD = 500  # below this, another thread does not pay off
POOL_SIZE = 4  # how many workspaces are kept for later jobs
POOL_BYTES = 16 * 2**20  # larger workspaces are not kept
NOT_NEEDED = np.empty(0)

_pool_lock = Lock()
_pool: list[tuple[tuple[int, int], Memory]] = []  # unused workspaces with their n and depth


@dataclass(frozen=True)
class FlowValues:
    """Maximum flows from all requested sources to all requested sinks.

    values: [layers, sources, sinks]; a flow of this value exists.
    bounds: the same shape; no flow is larger. Equal to the values within 1e-12 of the largest row
    sum, unless a tolerance was set.
    proofs: how many values were proved in which way; the names are those of `pair.PROOFS`.
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
    """Compute maximum flows from positions above the given layers to positions of the input.

    capacities: [layers, n, n]; capacities[i, u, q] is the capacity from u above layer i + 1 to q
    below it; layer 1 is the lowest. Infinity is allowed, and flows can be infinite too.
    layers: numbers from 1. sources, sinks: numbers from 0. All by default.
    threads: the number of processors by default. Results do not depend on it.
    tolerance: accept a value this close to an upper bound that is known without a search.
    progress: called with the number of pairs done and of pairs in total.
    Raises ShapeError for other shapes, and InputError for negative or NaN capacities and for
    layers, sources or sinks that do not exist.

    >>> max_flows(np.asarray([[[0.5, 0.5], [0.0, 1.0]]])).values
    array([[[0.5, 0.5],
            [0. , 1. ]]])
    """
    check_function("progress", progress)
    check_tolerance(tolerance)
    network, factor, unlimited = build_network(read_capacities(capacities))
    n, depth = network.n, network.depth
    asked = np.arange(1, depth + 1) if layers is None else check_indices("layer", layers, 1, depth)
    levels = asked if asked.size == 1 else np.asarray(sorted(set(asked.tolist())), np.int64)
    job = _create_job(
        network,
        levels=levels,
        sources=np.arange(n) if sources is None else check_indices("source", sources, 0, n - 1),
        sinks=np.arange(n) if sinks is None else check_indices("sink", sinks, 0, n - 1),
        tolerance=tolerance / factor,
    )
    n_threads = count_threads(threads, job.proofs.size)
    if job.proofs.size <= PAIRS_PER_CALL:
        _solve_at_once(network, job, progress)
    else:
        _Scheduler(network, job).run(n_threads, progress)
    if levels is not asked and levels.tolist() != asked.tolist():  # not ascending, or one twice
        job = _select_levels(job, asked)
    counts = count_proofs(job.proofs)
    if counts["unproved"]:
        _solve_unproved(network, job)
        counts = count_proofs(job.proofs)
    values, bounds = job.lower, job.upper
    if unlimited < np.inf:
        for flows in (values, bounds):
            flows[flows >= unlimited] = np.inf
    if factor != 1.0:
        values *= factor
        bounds *= factor
    return FlowValues(values, bounds, counts)


def check_tolerance(tolerance: Any) -> None:
    """Raise InputError unless this is a number from 0."""
    is_number = isinstance(tolerance, int | float | np.number) and not isinstance(tolerance, bool)
    if not is_number or not 0 <= tolerance < np.inf:
        raise InputError(
            f"tolerance is {quote(tolerance)}",
            expected="a number from 0",
            fix="Use 0, or flow(), for exact values.",
        )


def count_proofs(proofs: Integers) -> dict[str, int]:
    """Return the number of values for each name of PROOFS."""
    counts = np.bincount(proofs.reshape(-1), minlength=len(PROOFS))
    return dict(zip(PROOFS, counts.tolist(), strict=True))


def _create_job(
    network: Network, *, levels: Integers, sources: Integers, sinks: Integers, tolerance: float
) -> Job:
    n = network.n
    shape = (levels.size, sources.size, sinks.size)
    all_sources = sources.size == n and bool((sources == np.arange(n)).all())
    sink_capacity = NOT_NEEDED
    if all_sources:
        sink_capacity = (
            TABLES.array(network.tables, "column")[: n * n].reshape(n, n).sum(axis=1)[sinks]
        )
    return Job(
        levels,
        sources,
        sinks,
        sink_capacity,
        all_sources,
        tolerance,
        stop=np.zeros(1, np.int64),
        lower=np.empty(shape),
        upper=np.empty(shape),
        proofs=np.empty(shape, np.int64),
    )


def _solve_at_once(network: Network, job: Job, progress: Progress | None) -> None:
    """Solve a small job by one call, without a queue."""
    plain_network = tuple(network)
    memory = acquire_workspace(network)
    n_levels, n_sources, _ = job.proofs.shape
    solve_chunk(plain_network, (0, n_levels, 0, n_sources), tuple(job), memory)
    release_workspace(network, memory)
    if progress is not None:
        progress(job.proofs.size, job.proofs.size)


def _select_levels(job: Job, levels: Integers) -> Job:
    """Return a solved job with these of its levels, in this order."""
    order = np.searchsorted(job.levels, levels)
    lower, upper, proofs = job.lower[order], job.upper[order], job.proofs[order]
    return job._replace(levels=levels, lower=lower, upper=upper, proofs=proofs)


def _solve_unproved(network: Network, job: Job) -> None:
    """Solve all unproved pairs of a job with integers."""
    for i, j, k in np.argwhere(job.proofs == UNPROVED):
        value, _, _ = solve_with_integers(network, job.levels[i], job.sources[j], job.sinks[k])
        job.lower[i, j, k] = job.upper[i, j, k] = value
        job.proofs[i, j, k] = INTEGERS


# Threads


def count_threads(threads: int | None, n_pairs: int) -> int:
    """Return how many threads to use for this many pairs.

    threads: the most to use, or None for the number of processors.
    """
    check_count("threads", threads)
    most = n_pairs // PAIRS_PER_THREAD
    return 1 if most < 2 else min(threads or _count_processors(), most)


def _count_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Scheduler:
    """Solves a job in chunks, which threads take from a queue."""

    def __init__(self, network: Network, job: Job) -> None:
        self.network = network
        self.job = job
        self.plain_network, self.plain_job = tuple(network), tuple(job)
        self.queue: deque[tuple[int, int, int, int]] = deque()  # fields of Chunk
        self.solved: deque[int] = deque()  # numbers of pairs, solved and not yet reported

    def run(self, n_threads: int, progress: Progress | None) -> None:
        """Solve all pairs, layer by layer. The calling thread works too, and reports progress."""
        n_levels, n_sources, n_sinks = self.job.proofs.shape
        report = _Report(self.solved, self.job.proofs.size, progress)
        memories = [acquire_workspace(self.network) for _ in range(n_threads)]
        rows = PAIRS_PER_CALL // n_sinks
        if n_threads == 1:
            for i in range(n_levels):
                self._enqueue(i, rows)
                self._work(memories[0], report)
        else:
            rows = min(rows, n_sources // (CHUNKS_PER_THREAD * n_threads))
            self._run_threads(rows, memories, report)
        for memory in memories:  # no thread runs any more
            release_workspace(self.network, memory)

    def _run_threads(self, rows: int, memories: list[Memory], report: _Report) -> None:
        """Solve all layers in chunks of so many rows, with one thread for each workspace."""
        with ThreadPoolExecutor(len(memories) - 1) as pool:
            try:
                for i in range(self.job.levels.size):
                    self._enqueue(i, rows)
                    others = [pool.submit(self._work, memory) for memory in memories[1:]]
                    self._work(memories[0], report)
                    for other in others:
                        other.result()
                    report()
            finally:  # after an interrupt or an error, the other threads end at the next pair
                self.queue.clear()
                self.job.stop[0] = 1

    def _enqueue(self, i: int, rows: int) -> None:
        """Queue all rows of level number i, so many at a time."""
        n_sources, step = self.job.sources.size, max(1, rows)
        for start in range(0, n_sources, step):
            self.queue.append((i, i + 1, start, min(start + step, n_sources)))

    def _work(self, memory: Memory, report: Callable[[], None] | None = None) -> None:
        """Solve chunks from the queue until it is empty."""
        while True:
            try:
                chunk = self.queue.popleft()
            except IndexError:
                return
            solve_chunk(self.plain_network, chunk, self.plain_job, memory)
            first_level, end_level, first_source, end_source = chunk
            n_rows = (end_level - first_level) * (end_source - first_source)
            self.solved.append(n_rows * self.job.sinks.size)
            if report is not None:
                report()


class _Report:
    """Reports to the caller how many pairs are done."""

    def __init__(self, solved: deque[int], total: int, progress: Progress | None) -> None:
        self.solved = solved
        self.done = 0
        self.total = total
        self.progress = progress

    def __call__(self) -> None:
        """Report the pairs solved since the last call, if any."""
        new = 0
        while self.solved:
            new += self.solved.popleft()
        self.done += new
        if new and self.progress is not None:
            self.progress(self.done, self.total)


# Workspaces


def acquire_workspace(network: Network) -> Memory:
    """Return a thread's workspace for a network: that of an earlier job, or a new one."""
    size = (network.n, network.depth)
    with _pool_lock:
        for i, (pooled_size, memory) in enumerate(_pool):
            if pooled_size == size:
                del _pool[i]
                return memory
    return allocate_workspace(*size)


def release_workspace(network: Network, memory: Memory) -> None:
    """Keep a workspace for a later job, unless it is large or there are enough."""
    if memory.nbytes <= POOL_BYTES:
        with _pool_lock:
            _pool.append(((network.n, network.depth), memory))
            del _pool[:-POOL_SIZE]
