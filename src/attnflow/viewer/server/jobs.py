"""Computations that the page waits for, and their results; old ones are dropped."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from attnflow.errors import AttnflowError
from attnflow.viewer.payload import Payload
from attnflow.viewer.server.security import BusyError, CrashError, Limits, RequestError
from attnflow.viewer.server.workers import FlowTask, Task, WorkerPool


@dataclass(frozen=True)
class Job:
    """How far a computation is.

    state: "waiting", "running", "done" or "failed". stage, done, total: what is being done.
    result: the name of the result once it is done. error, status: what went wrong.
    """

    state: str = "waiting"
    stage: str = "waiting for its turn"
    done: int = 0
    total: int = 0
    result: str | None = None
    error: str | None = None
    status: int = 200


class Jobs:
    """Runs tasks in the background, keeps their results, and forgets the oldest."""

    def __init__(self, pool: WorkerPool, limits: Limits) -> None:
        self._pool, self._limits = pool, limits
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="attnflow-job")
        self._lock = Lock()
        self._pending = 0
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._results: OrderedDict[str, Payload] = OrderedDict()

    def submit(self, task: Task, *, after: Callable[[], None] | None = None) -> str:
        """Start a computation whose result is a payload; returns the name of its job.

        after: called when the task is done or given up.
        Raises BusyError if too much is waiting.
        """
        self._enter()
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._jobs[name] = Job()
            while len(self._jobs) > 4 * (self._limits.results + self._limits.waiting):
                self._jobs.popitem(last=False)

        def run() -> None:
            try:
                self._run(name, task)
            finally:
                self._leave()
                if after is not None:
                    after()

        self._threads.submit(run)
        return name

    def flow(self, payload: Payload, example: int, position: int, layer: int) -> "Future[Any]":
        """Compute the flow of one position at one layer; the row is the future's result.

        Raises BusyError if too much is waiting.
        """
        task = FlowTask(payload.examples[example].graph, position, layer)
        self._enter()
        future = self._threads.submit(self._pool.run, task, lambda *_: None)
        future.add_done_callback(lambda _: self._leave())
        return future

    def job(self, name: str) -> Job | None:
        """How far a job is; None if it is not known."""
        with self._lock:
            return self._jobs.get(name)

    def result(self, name: str) -> Payload | None:
        """A result, which then counts as used; None if it is not kept."""
        with self._lock:
            if name in self._results:
                self._results.move_to_end(name)
            return self._results.get(name)

    def close(self) -> None:
        """Give up what runs and what waits."""
        self._pool.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _enter(self) -> None:
        with self._lock:
            if self._pending >= self._limits.workers + self._limits.waiting:
                raise BusyError(self._pending)
            self._pending += 1

    def _leave(self) -> None:
        with self._lock:
            self._pending -= 1

    def _run(self, name: str, task: Task) -> None:
        def report(stage: str, done: int, total: int) -> None:
            self._change(name, state="running", stage=stage, done=done, total=total)

        try:
            payload = self._pool.run(task, report)
        except AttnflowError as error:
            status = error.status if isinstance(error, RequestError) else 422
            self._change(name, state="failed", error=str(error), status=status)
        except Exception as error:  # a bug of ours must not leave the page waiting
            crash = CrashError(type(error).__name__)
            self._change(name, state="failed", error=str(crash), status=crash.status)
        else:
            self._keep(name, payload)
            self._change(name, state="done", result=name)

    def _change(self, name: str, **changes: Any) -> None:
        with self._lock:
            if name in self._jobs:
                self._jobs[name] = replace(self._jobs[name], **changes)

    def _keep(self, name: str, payload: Payload) -> None:
        with self._lock:
            self._results[name] = payload
            while len(self._results) > 1 and (
                len(self._results) > self._limits.results
                or sum(one.n_bytes() for one in self._results.values()) > self._limits.result_bytes
            ):
                self._results.popitem(last=False)
