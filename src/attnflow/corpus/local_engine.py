"""The local engine: scores shards on all processors of this machine, in order.

Without a GPU, each thread runs the model on a batch and then computes its scores, so that forward
passes and flows overlap. With a GPU, one thread runs the model and the others compute the scores.
Both release the global interpreter lock while they compute. At most two shards are in memory.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Any, TypeAlias, TypeVar

from attnflow.corpus.batches import Plan, Task
from attnflow.corpus.example import Example, Result
from attnflow.corpus.scorer import order_results
from attnflow.corpus.settings import RunSettings
from attnflow.errors import InputError
from attnflow.optional import import_optional

IN_FLIGHT = 2  # shards: one whose results are being written, and one that is being scored
# Called with the numbers of examples and flow pairs finished since the last call.
Report: TypeAlias = Callable[[int, int], None]
Part: TypeAlias = dict[int, Result]  # by index in the shard
Item = TypeVar("Item")
Value = TypeVar("Value")


def run_local(
    settings: RunSettings,
    shards: Iterable[list[Example]],
    report: Report | None = None,
    *,
    threads: int | None = None,
) -> Generator[list[Result], None, None]:
    """Score shards on this machine, and yield the results of each, in order.

    report: called from any thread. threads: all processors if not given; the numbers do not depend
    on it.
    """
    yield from score_shards(settings.open_scorer(threads), shards, report)


def score_shards(
    scorer: Any, shards: Iterable[list[Example]], report: Report | None = None
) -> Generator[list[Result], None, None]:
    """Score shards with a loaded model, and yield the results of each, in order.

    scorer: a `Scorer`, or that of other settings.
    """
    on_gpu = scorer.settings.device != "cpu"
    stages = (_TwoStages if on_gpu else _OneStage)(scorer, report or (lambda *_: None))
    waiting: deque[tuple[Plan, list[Future[Any]]]] = deque()
    stream = iter(shards)
    at_end = False
    with scorer.torch_threads(), stages:
        while True:
            while not at_end and len(waiting) < IN_FLIGHT:
                examples = next(stream, None)
                if examples is None:
                    at_end = True
                    break
                plan = scorer.plan(examples)
                waiting.append((plan, [stages.submit(batch) for batch in plan.batches]))
            if not waiting:
                return
            plan, futures = waiting.popleft()
            parts = [stages.wait(future) for future in futures]
            if plan.rejected:
                stages.report(len(plan.rejected), 0)
            yield order_results(plan.size, plan.rejected, parts)


def find_device() -> str:
    """Return "cuda" if this machine has a GPU, otherwise "cpu"."""
    return "cuda" if import_optional("torch", "running a model").cuda.is_available() else "cpu"


def map_threads(
    function: Callable[[Item], Value], items: Sequence[Item], threads: int | None = None
) -> list[Value]:
    """Call a function with each item on several threads, and return the values in order."""
    n_threads = min(count_threads(threads), len(items))
    if n_threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n_threads, "attnflow") as pool:
        return list(pool.map(function, items))


def count_threads(threads: int | None) -> int:
    """Return the number of threads: as many as this process may use processors if None."""
    if threads is not None and threads < 1:
        raise InputError(
            f"threads is {threads}",
            expected="1 or more",
            fix="Remove the option to use all processors.",
        )
    if threads is not None:
        return threads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _OneStage:
    """Threads that each run the model on a batch and compute its scores."""

    def __init__(self, scorer: Any, report: Report) -> None:
        self.scorer, self.report = scorer, report
        self.pool = ThreadPoolExecutor(
            count_threads(scorer.threads), "attnflow", initializer=scorer.limit_torch
        )

    def __enter__(self) -> "_OneStage":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, batch: Sequence[Task]) -> Future[Any]:
        return self.pool.submit(lambda: self.score(self.scorer.run_batch(batch)))

    def wait(self, future: Future[Any]) -> Part:
        part: Part = future.result()
        return part

    def score(self, captured: Any) -> Part:
        part: Part = self.scorer.score_batch(captured)
        self.report(len(part), self.scorer.settings.count_pairs(part.values()))
        return part


class _TwoStages(_OneStage):
    """One thread that runs the model on its device, and threads that compute the scores.

    The model waits when it is more than two batches per thread ahead.
    """

    def __init__(self, scorer: Any, report: Report) -> None:
        super().__init__(scorer, report)
        self.model = ThreadPoolExecutor(1, "attnflow-model", initializer=scorer.limit_torch)
        self.ahead = BoundedSemaphore(2 * count_threads(scorer.threads))

    def __exit__(self, *_: object) -> None:
        # In this order, because the model thread may be waiting for the others.
        self.model.shutdown(wait=True, cancel_futures=True)
        super().__exit__()

    def submit(self, batch: Sequence[Task]) -> Future[Any]:
        return self.model.submit(self._run_model, batch)

    def wait(self, future: Future[Any]) -> Part:
        part: Part = future.result().result()
        return part

    def _run_model(self, batch: Sequence[Task]) -> Future[Part]:
        self.ahead.acquire()
        try:
            captured = self.scorer.run_batch(batch)
            return self.pool.submit(self._score_and_release, captured)
        except BaseException:
            self.ahead.release()
            raise

    def _score_and_release(self, captured: Any) -> Part:
        try:
            return self.score(captured)
        finally:
            self.ahead.release()
