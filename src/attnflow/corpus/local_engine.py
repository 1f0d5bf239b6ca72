"""The engine on this machine: batches on all processors, results of shards in order.

On processors alone, each thread runs the model on a batch and then computes its flow: one batch's
forward pass overlaps with the flow of others, and no processor waits. With a GPU, one thread runs
the model, and the others compute what it leaves to do. Both release Python's lock while they
compute. No more than two shards are in memory at a time, however many there are.

Where shards are computed: on this machine, or on the workers of a Ray cluster.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore
from typing import Any, TypeAlias, TypeVar

from attnflow.arrays import import_torch
from attnflow.corpus.batches import Plan, Task
from attnflow.corpus.example import Example, Result
from attnflow.corpus.scorer import (
    Computer,
    GraphBatch,
    PaddedBatch,
    arrange,
    attribute_batch,
    one_thread_of_torch,
)
from attnflow.corpus.settings import Settings
from attnflow.corpus.store import count_pairs
from attnflow.errors import InputError

IN_FLIGHT = 2  # shards: one that is finished and handed out, one that is computed meanwhile
Report = Callable[[int, int], None]  # examples and flow pairs done since the last call
Part = dict[int, Result]  # by place in the shard
Item = TypeVar("Item")
Made = TypeVar("Made")


def run_local(
    settings: Settings,
    shards: Iterable[list[Example]],
    *,
    threads: int | None = None,
    report: Report | None = None,
) -> Generator[list[Result], None, None]:
    """Compute shards on this machine, and give the results of each, in order.

    threads: all processors if not given. The numbers do not depend on it.
    report: called from any thread with the examples and flow pairs done since the last call.
    """
    yield from run_shards(Computer(settings, threads), shards, report)


def run_shards(
    computer: Computer, shards: Iterable[list[Example]], report: Report | None = None
) -> Generator[list[Result], None, None]:
    """Compute shards with a model that is loaded, and give the results of each, in order."""
    on_gpu = computer.settings.device != "cpu"
    stages = (_TwoStages if on_gpu else _OneStage)(computer, report or (lambda *_: None))
    waiting: deque[tuple[Plan, list[Future[Any]]]] = deque()
    stream = iter(shards)
    at_end = False
    with one_thread_of_torch(), stages:
        while True:
            while not at_end and len(waiting) < IN_FLIGHT:
                examples = next(stream, None)
                if examples is None:
                    at_end = True
                    break
                plan = computer.plan(examples)
                waiting.append((plan, [stages.submit(batch) for batch in plan.batches]))
            if not waiting:
                return
            plan, futures = waiting.popleft()
            parts = [stages.wait(future) for future in futures]
            if plan.refused:
                stages.report(len(plan.refused), 0)
            yield arrange(plan.size, plan.refused, parts)


class _OneStage:
    """Threads that each take a batch through the model and what follows."""

    def __init__(self, computer: Computer, report: Report) -> None:
        self.computer, self.report = computer, report
        self.pool = ThreadPoolExecutor(
            count_threads(computer.threads), "attnflow", initializer=_use_one_thread
        )

    def __enter__(self) -> "_OneStage":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, batch: Sequence[Task]) -> Future[Any]:
        return self.pool.submit(lambda: self.attribute(self.computer.run_batch(batch)))

    def wait(self, future: Future[Any]) -> Part:
        part: Part = future.result()
        return part

    def attribute(self, captured: PaddedBatch | GraphBatch) -> Part:
        settings = self.computer.settings
        part = attribute_batch(settings, captured)
        self.report(len(part), count_pairs(settings, part.values()))
        return part


class _TwoStages(_OneStage):
    """One thread for the model on its device, and threads for what follows.

    The model waits when it is more than two batches a thread ahead.
    """

    def __init__(self, computer: Computer, report: Report) -> None:
        super().__init__(computer, report)
        self.model = ThreadPoolExecutor(1, "attnflow-model", initializer=_use_one_thread)
        self.ahead = BoundedSemaphore(2 * count_threads(computer.threads))

    def __exit__(self, *_: object) -> None:
        # In this order: the model may be waiting for what follows.
        self.model.shutdown(wait=True, cancel_futures=True)
        super().__exit__()

    def submit(self, batch: Sequence[Task]) -> Future[Any]:
        return self.model.submit(self._run, batch)

    def wait(self, future: Future[Any]) -> Part:
        part: Part = future.result().result()
        return part

    def _run(self, batch: Sequence[Task]) -> Future[Part]:
        self.ahead.acquire()
        try:
            captured = self.computer.run_batch(batch)
            return self.pool.submit(self._follow, captured)
        except BaseException:
            self.ahead.release()
            raise

    def _follow(self, captured: PaddedBatch | GraphBatch) -> Part:
        try:
            return self.attribute(captured)
        finally:
            self.ahead.release()


def map_threads(
    function: Callable[[Item], Made], items: Sequence[Item], threads: int | None = None
) -> list[Made]:
    """What a function makes of each item, in order."""
    n_threads = min(count_threads(threads), len(items))
    if n_threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n_threads, "attnflow") as pool:
        return list(pool.map(function, items))


def count_threads(threads: int | None) -> int:
    """How many threads to use: as many as this process may use processors if not given."""
    if threads is not None and threads < 1:
        raise InputError(
            f"threads is {threads}",
            expected="a number from 1",
            fix="Leave it out to use all processors.",
        )
    if threads is not None:
        return threads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _use_one_thread() -> None:
    """Let torch compute on the calling thread alone; see `one_thread_of_torch`."""
    import_torch("running a model").set_num_threads(1)


EngineReport: TypeAlias = Callable[
    [int, int], None
]  # examples and flow pairs done since the last call
# Takes the examples of each shard, gives the results of each shard, in the same order.
Engine: TypeAlias = Callable[
    [Settings, Iterable[list[Example]], EngineReport], Generator[list[Result], None, None]
]


@contextmanager
def open_engine(
    name: str,
    *,
    threads: int | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> Iterator[tuple[Engine, str]]:
    """The engine of this name, and where its models run: "cuda" if there is a GPU, else "cpu".

    Raises InputError for an unknown engine, for options of the other, or without a cluster.
    """
    if name == "local":
        if workers is not None or address is not None:
            raise InputError(
                "workers or an address were given for this machine",
                expected="them for a cluster",
                fix="Choose --engine ray (engine='ray'), or --threads (threads=...).",
            )
        yield partial(_run_local, threads), _device_here()
    elif name == "ray":
        if threads is not None:
            raise InputError(
                "threads were given for a cluster",
                expected="workers, each of which has one",
                fix="Use --workers (workers=...).",
            )
        from attnflow.corpus.ray_engine import connected, run_on_cluster

        with connected(address) as device:
            yield partial(run_on_cluster, workers=workers), device
    else:
        raise InputError(
            f"engine is {name!r}",
            expected="'local' or 'ray'",
            fix="Choose one of these.",
        )


def _run_local(
    threads: int | None, settings: Settings, shards: Iterable[list[Example]], report: EngineReport
) -> Generator[list[Result], None, None]:

    yield from run_local(settings, shards, threads=threads, report=report)


def _device_here() -> str:
    return "cuda" if import_torch("running a model").cuda.is_available() else "cpu"
