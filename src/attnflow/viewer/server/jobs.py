"""Jobs: computations in the background that the page polls, and their stored results."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from logging import getLogger
from threading import Lock
from time import monotonic
from typing import Any

from attnflow.errors import AttnflowError
from attnflow.viewer.payload import Payload
from attnflow.viewer.server.security import (
    BusyError,
    Limits,
    RequestError,
    abandoned_error,
    crash_error,
    shorten_message,
)
from attnflow.viewer.server.tasks import FlowTask, Task
from attnflow.viewer.server.workers import WorkerPool

logger = getLogger(__name__)

ABANDONED = 10.0  # seconds after which a job that no page asks for is given up


@dataclass(frozen=True)
class Job:
    """The state of a computation.

    state: "waiting", "running", "done" or "failed". stage, done, total: the progress.
    result: the ID of the result, once it is done. error, status: why it failed.
    """

    state: str = "waiting"
    stage: str = "waiting in the queue"
    done: int = 0
    total: int = 0
    result: str | None = None
    error: str | None = None
    status: int = 200


class Jobs:
    """Runs tasks in the background and stores their results; the oldest are dropped."""

    def __init__(self, pool: WorkerPool, limits: Limits) -> None:
        self._pool, self._limits = pool, limits
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="attnflow-job")
        self._lock = Lock()
        self._pending = 0  # running and waiting
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._seen: dict[str, float] = {}  # when the page last asked for a job
        self._results: OrderedDict[str, Payload] = OrderedDict()

    def submit(self, task: Task, *, cleanup: Callable[[], None] | None = None) -> str:
        """Start a task whose result is a payload; returns the ID of the job.

        cleanup: called when the task has ended in any way.
        Raises BusyError if the queue is full.
        """
        self._enter()
        job_id = secrets.token_urlsafe(12)
        with self._lock:
            self._jobs[job_id], self._seen[job_id] = Job(), monotonic()
            while len(self._jobs) > 4 * (self._limits.results + self._limits.waiting):
                old, _ = self._jobs.popitem(last=False)
                self._seen.pop(old, None)

        def end(_: object) -> None:
            self._leave()
            if cleanup is not None:
                cleanup()

        # Called also if the job is cancelled before it runs.
        self._threads.submit(self._run, job_id, task).add_done_callback(end)
        return job_id

    def cancel(self, job_id: str) -> bool:
        """Give up a job; a running one ends when another waits for its worker.

        Returns whether there is such a job.
        """
        with self._lock:
            if job_id in self._jobs:
                self._seen[job_id] = -ABANDONED
            return job_id in self._jobs

    def flow(self, payload: Payload, example: int, positions: range, layer: int) -> "Future[Any]":
        """Compute the flow of one position at one layer; the future's result is [tokens].

        Raises BusyError if the queue is full.
        """
        task = FlowTask(payload.examples[example].graph, positions, layer)
        self._enter()
        future = self._threads.submit(self._pool.run, task, lambda *_: None)
        future.add_done_callback(lambda _: self._leave())
        return future

    def job(self, job_id: str) -> Job | None:
        """The state of a job; None if there is no such job."""
        with self._lock:
            if self._seen.get(job_id, -ABANDONED) > 0:
                self._seen[job_id] = monotonic()
            return self._jobs.get(job_id)

    def _is_abandoned(self, job_id: str) -> bool:
        """Whether no page waits for a job any more."""
        with self._lock:
            return monotonic() - self._seen.get(job_id, -ABANDONED) > ABANDONED

    def _is_in_the_way(self, job_id: str) -> bool:
        """Whether a running job is abandoned while others wait."""
        return self._is_abandoned(job_id) and self._pending > self._limits.workers

    def result(self, result_id: str) -> Payload | None:
        """A stored result, which becomes the most recently used; None if there is none."""
        with self._lock:
            if result_id in self._results:
                self._results.move_to_end(result_id)
            return self._results.get(result_id)

    def close(self) -> None:
        """Cancel running and waiting jobs."""
        self._pool.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _enter(self) -> None:
        with self._lock:
            if self._pending >= self._limits.workers + self._limits.waiting:
                raise BusyError(
                    f"the server is busy with {self._pending} computations.",
                    fix="Try again in a moment.",
                )
            self._pending += 1

    def _leave(self) -> None:
        with self._lock:
            self._pending -= 1

    def _run(self, job_id: str, task: Task) -> None:
        def report(stage: str, done: int, total: int) -> None:
            self._update(job_id, state="running", stage=stage, done=done, total=total)

        try:
            if self._is_abandoned(job_id):
                raise abandoned_error()
            payload = self._pool.run(task, report, lambda: self._is_in_the_way(job_id))
        except AttnflowError as error:
            status = error.status if isinstance(error, RequestError) else 422
            self._update(job_id, state="failed", error=shorten_message(error), status=status)
        except Exception as error:  # a bug of ours must not leave the page waiting
            logger.exception("a job failed")
            crash = crash_error(type(error).__name__)
            self._update(job_id, state="failed", error=str(crash), status=crash.status)
        else:
            self._store(job_id, payload)
            self._update(job_id, state="done", result=job_id)

    def _update(self, job_id: str, **changes: Any) -> None:
        with self._lock:
            if job_id in self._jobs:
                self._jobs[job_id] = replace(self._jobs[job_id], **changes)

    def _store(self, result_id: str, payload: Payload) -> None:
        """Store a result, and drop the least recently used ones beyond the limits."""
        with self._lock:
            self._results[result_id] = payload
            while len(self._results) > 1 and (
                len(self._results) > self._limits.results
                or sum(stored.n_bytes() for stored in self._results.values())
                > self._limits.result_bytes
            ):
                self._results.popitem(last=False)
