"""The Ray engine: workers on a cluster that hold the model, and the shards they score.

A worker scores a shard with the same code as the local engine, and so gives the same bytes. If
models run on GPUs, the workers only run the model, and tasks on processors compute the scores. A
lost worker is replaced, but no shard waits for the replacement, because a cluster that lost a node
may have no room for it: its shards go to the workers that are running.
"""

import os
import signal
import socket
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import Any

from attnflow.corpus.example import Example, Result
from attnflow.corpus.settings import RunSettings
from attnflow.errors import AttnflowError, FileError, first_line
from attnflow.optional import import_optional

IN_FLIGHT = 2  # shards per worker: one that is being scored, and one that waits
RETRIES = 5  # of a shard whose worker was lost
WORKER_TIMEOUT = 30.0  # seconds without a worker until a warning
# Ray ends the process if its own server on this machine ends, so this must be said before.
LOST = (
    "a worker of the Ray cluster was lost: its shard is computed again. If this process ends, the "
    "cluster itself ended: start it again, and run the same command. All finished shards are kept."
)
CONNECT_TIMEOUT = 5.0  # seconds for a cluster to answer
# How a client of gRPC, which is based on HTTP/2, greets a server: with the preface of the protocol
# and an empty frame of settings. The server answers with its own settings.
HTTP2_HEADER, HTTP2_SETTINGS = 9, 4  # bytes of a frame's header, type of a frame
HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, HTTP2_SETTINGS, 0, 0, 0, 0, 0])


def run_on_cluster(
    settings: RunSettings,
    shards: Iterable[list[Example]],
    report: Callable[[int, int], None],
    *,
    workers: int | None = None,
    split: bool | None = None,
) -> Generator[list[Result], None, None]:
    """Score shards on the connected cluster, and yield the results of each, in order.

    workers: actors that hold the model, one processor each; as many as the cluster has GPUs or
    processors if not given. split: whether scores are computed in separate tasks; by default if
    models run on GPUs. At most two shards per worker are in flight.
    Raises AttnflowError if a shard loses its worker repeatedly.
    """
    ray = import_optional("ray", "the engine ray")
    on_gpu = str(settings.device).startswith("cuda")
    split = on_gpu if split is None else split
    n_workers = workers or max(_count_places(ray, on_gpu), 1)
    _warn_if_too_many(ray, n_workers, on_gpu)
    actor_class = ray.remote(
        # With separate tasks, these get the processors.
        num_cpus=0 if split else 1,
        num_gpus=1 if on_gpu else 0,
        max_restarts=0,
        max_task_retries=0,
    )(Worker)
    score_task = ray.remote(num_cpus=1, max_retries=RETRIES)(_score_captured) if split else None
    stored_settings = ray.put(settings)

    def submit(actor: Any, examples: list[Example]) -> Any:
        if score_task is None:
            return actor.score.remote(examples)
        return score_task.remote(stored_settings, actor.capture.remote(examples))

    pool = WorkerPool(ray, n_workers, lambda: actor_class.remote(settings), submit)
    try:
        for results in pool.compute(shards):
            report(len(results), settings.count_pairs(results))
            yield results
    finally:
        pool.close()


@contextmanager
def connect(address: str | None) -> Iterator[str]:
    """Connect to a cluster, or start one; yields "cuda" if it has GPUs, otherwise "cpu".

    address: "auto" for a running cluster, "local" or None to start one, or host:port. An existing
    connection of the caller is used, and left open.
    Raises FileError if there is no cluster at the address.
    """
    ray = import_optional("ray", "the engine ray")
    opened = not ray.is_initialized()
    if opened:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address in (None, "local"):
            options["include_dashboard"] = False
        reachable = False
        try:
            reachable = _check_reachable(address)
            with _keep_signal_handler():
                ray.init(address=address or "local", **options)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            raise _connection_error(address, reachable, error) from error
    try:
        yield "cuda" if ray.cluster_resources().get("GPU", 0) > 0 else "cpu"
    finally:
        if opened:
            ray.shutdown()


class Worker:
    """Holds the model on a machine of the cluster, and scores with one thread.

    The model is loaded on first use, so that a model that cannot be loaded is the error of a task
    and not the end of the actor, which would be replaced.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self._scorer: Any = None

    def ready(self) -> None:
        """Return as soon as the cluster has started this worker."""

    def score(self, examples: list[Example]) -> list[Result]:
        """Return the results of a shard."""
        results: list[Result] = self._load().score(examples)
        return results

    def capture(self, examples: list[Example]) -> Any:
        """Run the model on a shard, for `score_captured`."""
        return self._load().capture(examples)

    def _load(self) -> Any:
        if self._scorer is None:
            self._scorer = self.settings.open_scorer(threads=1)
        return self._scorer


@dataclass
class _Member:
    """A worker of the pool. starting: the reference of `Worker.ready`; None once it is running."""

    actor: Any
    starting: Any


@dataclass
class _Assignment:
    """A shard assigned to a worker. result: the reference of its results. losses: lost workers."""

    examples: list[Example]
    member: _Member
    result: Any
    losses: int = 0


class WorkerPool:
    """Workers that each hold the model, and the shards assigned to them.

    start: starts a worker, which may wait for room in the cluster. submit: assigns a shard to a
    worker, and returns the reference of its results.
    """

    def __init__(
        self,
        ray: Any,
        n: int,
        start: Callable[[], Any],
        submit: Callable[[Any, list[Example]], Any],
    ) -> None:
        self.ray, self.start, self.submit = ray, start, submit
        errors = ray.exceptions
        self.loss_errors = (
            errors.RayActorError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,
        )
        self.members = [self._start_member() for _ in range(n)]
        self.waiting: deque[_Assignment] = deque()

    def compute(self, shards: Iterable[list[Example]]) -> Iterator[list[Result]]:
        """Yield the results of shards, in order; at most two per worker are in flight."""
        stream = iter(shards)
        at_end = False
        while True:
            while not at_end and len(self.waiting) < IN_FLIGHT * len(self._running()):
                examples = next(stream, None)
                if examples is None:
                    at_end = True
                    break
                self.waiting.append(self._assign(examples))
            if not self.waiting:
                return
            yield self._fetch(self.waiting.popleft())

    def close(self) -> None:
        """Stop all workers."""
        for member in self.members:
            self.ray.kill(member.actor)

    def _start_member(self) -> _Member:
        actor = self.start()
        return _Member(actor, actor.ready.remote())

    def _running(self) -> list[_Member]:
        """Return the running workers, at least one; waits for the first."""
        warned = False
        while True:
            starting = {m.starting: m for m in self.members if m.starting is not None}
            if starting:
                any_running = len(starting) < len(self.members)
                timeout = 0 if any_running else WORKER_TIMEOUT
                n = len(starting) if any_running else 1
                for ready in self.ray.wait(list(starting), num_returns=n, timeout=timeout)[0]:
                    starting[ready].starting = None
            running = [member for member in self.members if member.starting is None]
            if running:
                return running
            self._check_nodes()
            if not warned:
                warnings.warn("the Ray cluster has no room for a worker yet; waiting", stacklevel=2)
                warned = True

    def _check_nodes(self) -> None:
        """Raise AttnflowError if no machine of the cluster is left."""
        try:
            alive = any(node["Alive"] for node in self.ray.nodes())
        except (OSError, RuntimeError, self.ray.exceptions.RayError) as error:
            raise _cluster_error(error) from error
        if not alive:
            raise _cluster_error(None)

    def _assign(self, examples: list[Example], losses: int = 0) -> _Assignment:
        """Assign a shard to the worker with the fewest unfinished ones."""
        members = {assigned.result: assigned.member for assigned in self.waiting}
        references = list(members)
        unfinished = []
        if references:
            unfinished = self.ray.wait(references, num_returns=len(references), timeout=0)[1]
        busy = [id(members[reference]) for reference in unfinished]
        member = min(self._running(), key=lambda m: busy.count(id(m)))
        return _Assignment(examples, member, self.submit(member.actor, examples), losses)

    def _fetch(self, assigned: _Assignment) -> list[Result]:
        """Return the results of a shard; it is assigned again if its worker is lost."""
        while True:
            try:
                results: list[Result] = self.ray.get(assigned.result)
            except self.ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, AttnflowError):
                    raise error.cause from None
                raise
            except self.loss_errors as error:
                warnings.warn(LOST, stacklevel=2)
                self._check_nodes()
                self._replace(assigned.member)
                if assigned.losses == RETRIES:
                    raise _lost_error(error) from error
                assigned = self._assign(assigned.examples, assigned.losses + 1)
            except self.ray.exceptions.RayError as error:  # such as a raylet that died
                raise _cluster_error(error) from error
            else:
                return results

    def _replace(self, lost: _Member) -> None:
        """Start a worker in place of a lost one, once."""
        for i, member in enumerate(self.members):
            if member is lost:
                self.ray.kill(lost.actor)  # it may only be unreachable, and still use resources
                self.members[i] = self._start_member()


def _lost_error(error: Exception) -> AttnflowError:
    return AttnflowError(
        f"a shard lost its worker {RETRIES + 1} times ({first_line(error)})",
        expected="workers that keep running",
        fix="They may lack memory: use a lower --batch-tokens or --shard-size, and run the same "
        "command again. All finished shards are kept.",
    )


def _cluster_error(error: Exception | None) -> AttnflowError:
    detail = "" if error is None else f" ({first_line(error)})"
    return AttnflowError(
        f"the Ray cluster is no longer running{detail}",
        expected="a cluster that runs until all shards are finished",
        fix="Start it again, and run the same command again. All finished shards are kept.",
    )


def _connection_error(address: str | None, reachable: bool, error: Exception) -> FileError:
    if reachable:
        return FileError(
            f"the server at {address!r} rejects the connection ({first_line(error)})",
            expected="a Ray cluster of the same version with access for this user",
            fix="If it requires a token, set RAY_AUTH_MODE=token, or use --address auto on a "
            "machine of the cluster.",
        )
    return FileError(
        f"there is no Ray cluster at {address!r} ({first_line(error)})",
        expected="the address of a cluster, 'auto' or 'local'",
        fix="Start one with `ray start --head`, or use --address local.",
    )


@contextmanager
def _keep_signal_handler() -> Iterator[None]:
    """Restore the caller's handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if callable(before) and current_thread() is main_thread():
        signal.signal(signal.SIGTERM, before)


def _check_reachable(address: str | None) -> bool:
    """Whether a server of Ray's kind listens at host:port; False for other kinds of address.

    Raises OSError if there is none. Ray itself would wait for minutes, or forever for a server that
    is not Ray.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        return False
    with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT) as server:
        if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
            return True
        server.sendall(HTTP2_HELLO)
        answer = b""
        while len(answer) < HTTP2_HEADER:
            part = server.recv(HTTP2_HEADER)
            if not part:
                break
            answer += part
    if len(answer) < HTTP2_HEADER or answer[3] != HTTP2_SETTINGS:
        raise OSError("the server does not speak gRPC, as Ray does")
    return True


def _count_places(ray: Any, on_gpu: bool) -> int:
    """Return the number of GPUs or processors of the cluster."""
    return int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1))


def _warn_if_too_many(ray: Any, n_workers: int, on_gpu: bool) -> None:
    places = _count_places(ray, on_gpu)
    if n_workers > places:
        kind = "GPUs" if on_gpu else "processors"
        warnings.warn(
            f"{n_workers} workers were requested, but the Ray cluster has {places} {kind}; the "
            "others start when it grows",
            stacklevel=2,
        )


def _score_captured(settings: RunSettings, captured: Any) -> list[Result]:
    results: list[Result] = settings.score_captured(captured, threads=1)
    return results
