"""Worker processes: as many as may compute at the same time, replaced when they end."""

import multiprocessing
import queue
from collections.abc import Sequence
from threading import Event
from time import monotonic
from typing import Any

from attnflow.errors import InputError
from attnflow.viewer.limits import CrashError, Limits, TimeOutError
from attnflow.viewer.worker import ModelInfo, Report, Task, work

START_SECONDS = 1800.0  # to load the models, which may have to be downloaded


class Worker:
    """One process with the models loaded. models: what it says of them once it is ready."""

    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        # A fresh process: a fork would copy the server's sockets and threads' locks.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=work, args=(theirs, tuple(names), limits), daemon=True, name="attnflow-worker"
        )
        self._process.start()
        theirs.close()
        self.models: list[ModelInfo] = []

    def wait_until_ready(self, report: Report) -> None:
        """Wait for the models. Raises InputError if one cannot be loaded."""
        self.models = self._await(report, START_SECONDS)

    def run(self, task: Task, report: Report, seconds: float) -> Any:
        """Do a task. Raises InputError, TimeOutError or CrashError; the last two end the worker."""
        try:
            self._connection.send(task)
        except OSError:
            self.kill()
            raise CrashError("its process had ended") from None
        return self._await(report, seconds)

    @property
    def alive(self) -> bool:
        """Whether it can take another task."""
        return not self._connection.closed and self._process.is_alive()

    def end(self) -> None:
        """End the process at once, whatever it does; from any thread."""
        self._process.kill()

    def kill(self) -> None:
        """End the process, and clear it away; from the thread that waits for it."""
        self.end()
        self._process.join()
        self._connection.close()

    def _await(self, report: Report, seconds: float) -> Any:
        deadline = monotonic() + seconds
        while True:
            try:
                if not self._connection.poll(max(0.0, deadline - monotonic())):
                    self.kill()
                    raise TimeOutError(seconds)
                kind, *rest = self._connection.recv()
            except (EOFError, OSError):
                self.kill()
                raise CrashError("its process ended") from None
            if kind == "progress":
                report(*rest)
            elif kind == "refused":
                raise InputError(rest[0])
            elif kind == "failed":
                raise CrashError(rest[0])
            else:
                return rest[0]


class WorkerPool:
    """Workers that take turns. Used from threads, one for each worker."""

    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        self._names, self._limits = tuple(names), limits
        self._closed = Event()
        self._workers: set[Worker] = set()
        # Idle workers; None for one that has to be started first.
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(limits.workers):
            self._idle.put(None)

    def start(self, report: Report) -> list[ModelInfo]:
        """Start one worker, the others when they are needed, and say what models there are.

        Raises InputError if a model cannot be loaded.
        """
        self._idle.get()
        worker = None
        try:
            worker = self._new_worker(report)
            return worker.models
        finally:
            self._idle.put(worker)

    def run(self, task: Task, report: Report) -> Any:
        """Do a task with the next idle worker; waits for one. The time limit starts then.

        Raises InputError, TimeOutError or CrashError.
        """
        worker = self._idle.get()
        try:
            if worker is None or not worker.alive:
                worker = None
                worker = self._new_worker(report)
            return worker.run(task, report, self._limits.seconds)
        finally:
            if worker is not None and not worker.alive:
                self._workers.discard(worker)
                worker = None
            self._idle.put(worker)

    def close(self) -> None:
        """End all workers; tasks that run are given up."""
        self._closed.set()
        for worker in list(self._workers):
            worker.end()

    def _new_worker(self, report: Report) -> Worker:
        if self._closed.is_set():
            raise CrashError("the server is closing")
        worker = Worker(self._names, self._limits)
        self._workers.add(worker)
        try:
            worker.wait_until_ready(report)
        except BaseException:
            self._workers.discard(worker)
            worker.kill()
            raise
        return worker
