"""Worker processes, which load the models and run tasks.

A worker can be killed at any moment without harm to the server, which makes a time limit possible.
Server and worker talk over a pipe: tasks in one direction, `Update`, `Result`, `Failure` and
`Crash` in the other.
"""

import multiprocessing
import queue
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from attnflow import errors
from attnflow.errors import AttnflowError
from attnflow.viewer.server.security import (
    Limits,
    TimeLimitError,
    abandoned_error,
    crash_error,
    shorten,
)
from attnflow.viewer.server.tasks import ModelInfo, Report, Task, describe_model, load_models

CHECK_SECONDS = 1.0  # between checks whether a task is still needed
START_SECONDS = 1800.0  # to load the models, which may have to be downloaded


@dataclass(frozen=True)
class Update:
    """Progress of a task, as `Report` takes it."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class Result:
    """The result of a task; of a worker that has started, its models."""

    value: Any


@dataclass(frozen=True)
class Failure:
    """The parts of an AttnflowError, which users can fix. name: its class in attnflow.errors."""

    name: str
    given: str
    expected: str
    fix: str

    @classmethod
    def from_error(cls, error: AttnflowError) -> "Failure":
        """Take an error apart; a class from elsewhere becomes its base in attnflow.errors."""
        known = (base for base in type(error).__mro__ if base.__module__ == errors.__name__)
        parts = (shorten(part) for part in (error.given, error.expected, error.fix))
        return cls(next(known).__name__, *parts)

    def to_error(self) -> AttnflowError:
        """Put the error together again."""
        error: AttnflowError = getattr(errors, self.name)(self.given, self.expected, self.fix)
        return error


@dataclass(frozen=True)
class Crash:
    """Any other error of a task, such as a bug in a model."""

    reason: str


class WorkerPool:
    """Workers that take turns. Thread-safe; each of `limits.workers` threads can run a task."""

    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        self._names, self._limits = tuple(names), limits
        self._closed = Event()
        self._workers: set[Worker] = set()
        # Idle workers; None for a worker that must be started first.
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(limits.workers):
            self._idle.put(None)

    def start(self, report: Report) -> list[ModelInfo]:
        """Start one worker and return its models; other workers start when they are needed.

        Raises InputError if a model cannot be loaded.
        """
        self._idle.get()
        worker = None
        try:
            worker = self._start_worker(report)
            return worker.models
        finally:
            self._idle.put(worker)

    def run(self, task: Task, report: Report, abandoned: Callable[[], bool] = bool) -> Any:
        """Wait for an idle worker, and run a task on it. The time limit excludes the wait.

        abandoned: whether the task should be stopped, because nobody needs its result.
        Raises the AttnflowError that the task raised, TimeLimitError or CrashError.
        """
        worker = self._idle.get()
        try:
            if worker is None or not worker.alive:
                worker = None
                worker = self._start_worker(report)
            return worker.run(task, report, self._limits.seconds, abandoned)
        finally:
            if worker is not None and not worker.alive:
                self._workers.discard(worker)
                worker = None
            self._idle.put(worker)

    def close(self) -> None:
        """Kill all workers; running tasks raise CrashError."""
        self._closed.set()
        for worker in list(self._workers):
            worker.kill()

    def _start_worker(self, report: Report) -> "Worker":
        if self._closed.is_set():
            raise crash_error("the server is closing")
        worker = Worker(self._names, self._limits)
        self._workers.add(worker)
        try:
            worker.wait_until_ready(report)
        except BaseException:
            self._workers.discard(worker)
            worker.close()
            raise
        return worker


class Worker:
    """A worker process. models: descriptions of its models, once it is ready."""

    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        # A fork would copy the server's sockets, and locks that its threads hold.
        context = multiprocessing.get_context("spawn")
        self._connection, worker_end = context.Pipe()
        self._process = context.Process(
            target=_work,
            args=(worker_end, tuple(names), limits),
            daemon=True,
            name="attnflow-worker",
        )
        self._process.start()
        worker_end.close()
        self.models: list[ModelInfo] = []

    def wait_until_ready(self, report: Report) -> None:
        """Wait until the models are loaded. Raises InputError if one cannot be loaded."""
        self.models = self._wait(report, START_SECONDS)

    def run(
        self, task: Task, report: Report, seconds: float, abandoned: Callable[[], bool] = bool
    ) -> Any:
        """Run a task. Raises what `WorkerPool.run` raises; the last two errors end the worker."""
        try:
            self._connection.send(task)
        except OSError:
            self.close()
            raise crash_error("the worker process had ended") from None
        return self._wait(report, seconds, abandoned)

    @property
    def alive(self) -> bool:
        """Whether the worker can run another task."""
        return not self._connection.closed and self._process.is_alive()

    def kill(self) -> None:
        """Kill the process; callable from any thread."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and release its resources; only from the thread that waits for it."""
        self.kill()
        self._process.join()
        self._connection.close()

    def _wait(self, report: Report, seconds: float, abandoned: Callable[[], bool] = bool) -> Any:
        """Wait for a result, and report progress until then."""
        deadline = monotonic() + seconds
        while True:
            try:
                left = max(0.0, deadline - monotonic())
                if not self._connection.poll(min(left, CHECK_SECONDS)):
                    if abandoned():
                        self.close()
                        raise abandoned_error()
                    if left > CHECK_SECONDS:
                        continue
                    self.close()
                    raise TimeLimitError(
                        f"the computation was stopped after {seconds:g} seconds, the time limit.",
                        fix="Shorten the text, or start the server with a larger --seconds.",
                    )
                message = self._connection.recv()
            except (EOFError, OSError):
                self.close()
                raise crash_error("the worker process ended") from None
            if isinstance(message, Update):
                report(message.stage, message.done, message.total)
            elif isinstance(message, Failure):
                raise message.to_error()
            elif isinstance(message, Crash):
                raise crash_error(message.reason)
            else:
                return message.value


def _work(connection: Connection, names: Sequence[str], limits: Limits) -> None:
    """Run in the worker process: load the models, then run tasks until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the server's to handle
    # If memory runs out, Linux should kill this process rather than the server.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")

    def report(stage: str, done: int, total: int) -> None:
        connection.send(Update(stage, done, total))

    models: list[Any] = []

    def start() -> list[ModelInfo]:
        models.extend(load_models(names, report))
        return [describe_model(model) for model in models]

    with suppress(BrokenPipeError, EOFError):  # the server has ended
        started = _attempt(start)
        connection.send(started)
        while isinstance(started, Result):
            task: Task = connection.recv()
            connection.send(_attempt(partial(task.run, models, limits, report)))


def _attempt(action: Callable[[], Any]) -> Result | Failure | Crash:
    try:
        return Result(action())
    except AttnflowError as error:
        return Failure.from_error(error)
    except BrokenPipeError:
        raise
    except Exception as error:  # models and tokenizers raise anything; the next task may succeed
        return Crash(f"{type(error).__name__}: {error}"[:300])
