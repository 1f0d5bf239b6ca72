"""The engine on a Ray cluster: models in actors, shards handed out, lost workers replaced.

A shard is computed as a whole, by the same code as on one machine, and so gives the same bytes.
Where models run on GPUs, their actors only run the model, and tasks on processors compute flow.

The crew: workers of a Ray cluster, who is there, who is lost, and what each has in hand.

A worker that is lost is replaced, but nobody waits for its successor: a cluster that lost a node
may have no room for it. Its shards go to those who are there.
"""

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
from attnflow.corpus.packages import import_ray
from attnflow.corpus.settings import Settings
from attnflow.corpus.store import count_pairs
from attnflow.errors import AttnflowError, FileError

IN_FLIGHT = 2  # shards for each worker: one that it computes, and one that waits
RETRIES = 5  # of a shard whose worker was lost
CREW_PATIENCE = 30.0  # seconds until it is said that there is no room for a worker


@dataclass
class _Member:
    """A worker. coming: its first answer, which it gives when there is room for it; None then."""

    actor: Any
    coming: Any


@dataclass
class _Handed:
    """A shard that is on the way. result: what it will be. losses: how often it was lost."""

    examples: list[Example]
    member: _Member
    result: Any
    losses: int = 0


class Crew:
    """Workers, each of which holds the model.

    start: starts a worker, which may wait for room. submit: gives a shard to a worker, and returns
    what will be its results.
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
        self.losses = (
            errors.RayActorError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,
        )
        self.members = [self._hire() for _ in range(n)]
        self.waiting: deque[_Handed] = deque()

    def compute(self, shards: Iterable[list[Example]]) -> Iterator[list[Result]]:
        """The results of shards, in their order; no more than two a worker are on the way."""
        stream = iter(shards)
        at_end = False
        while True:
            while not at_end and len(self.waiting) < IN_FLIGHT * len(self._here()):
                examples = next(stream, None)
                if examples is None:
                    at_end = True
                    break
                self.waiting.append(self._hand_out(examples))
            if not self.waiting:
                return
            yield self._fetch(self.waiting.popleft())

    def dismiss(self) -> None:
        """End all workers."""
        for member in self.members:
            self.ray.kill(member.actor)

    def _hire(self) -> _Member:
        actor = self.start()
        return _Member(actor, actor.here.remote())

    def _here(self) -> list[_Member]:
        """Those who are there, of whom there is at least one; waits for the first."""
        warned = False
        while True:
            coming = {m.coming: m for m in self.members if m.coming is not None}
            if coming:
                anybody = len(coming) < len(self.members)
                patience = 0 if anybody else CREW_PATIENCE
                n = len(coming) if anybody else 1
                for one in self.ray.wait(list(coming), num_returns=n, timeout=patience)[0]:
                    coming[one].coming = None
            here = [member for member in self.members if member.coming is None]
            if here:
                return here
            if not warned:
                warnings.warn(
                    "the Ray cluster has no room for a worker yet; waiting for it", stacklevel=2
                )
                warned = True

    def _hand_out(self, examples: list[Example], losses: int = 0) -> _Handed:
        """Give a shard to the worker with the fewest unfinished ones."""
        of = {handed.result: handed.member for handed in self.waiting}
        unfinished = self.ray.wait(list(of), num_returns=len(of), timeout=0)[1] if of else []
        busy = [id(of[one]) for one in unfinished]
        member = min(self._here(), key=lambda one: busy.count(id(one)))
        return _Handed(examples, member, self.submit(member.actor, examples), losses)

    def _fetch(self, handed: _Handed) -> list[Result]:
        """The results of a shard, which is handed out again if its worker is lost."""
        while True:
            try:
                results: list[Result] = self.ray.get(handed.result)
            except self.ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, AttnflowError):
                    raise error.cause from None
                raise
            except self.losses as error:
                self._replace(handed.member)
                if handed.losses == RETRIES:
                    raise _lost(error) from error
                handed = self._hand_out(handed.examples, handed.losses + 1)
            else:
                return results

    def _replace(self, lost: _Member) -> None:
        """Hire another in the place of one who is lost, once."""
        for i, member in enumerate(self.members):
            if member is lost:
                self.ray.kill(lost.actor)  # it may be out of reach only, and take up room
                self.members[i] = self._hire()


def _lost(error: Exception) -> AttnflowError:
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return AttnflowError(
        f"a shard lost its worker {RETRIES + 1} times ({why})",
        expected="workers that stay",
        fix="They may lack memory: use a lower --batch-tokens or --shard-size. All shards "
        "finished before are kept; the same command goes on.",
    )


PATIENCE = 10.0  # seconds for a cluster to answer


@contextmanager
def connected(address: str | None) -> Iterator[str]:
    """Connect to a cluster, or start one here; gives "cuda" if it has GPUs, else "cpu".

    address: "auto" for one that runs, "local" or None to start one, or where one is. A connection
    that the caller made is used, and left open.
    Raises FileError if there is no cluster at the address.
    """
    ray = import_ray("the engine ray")
    ours = not ray.is_initialized()
    if ours:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address in (None, "local"):
            options["include_dashboard"] = False
        reached = False
        try:
            reached = _reach(address)
            with _signals_kept():
                ray.init(address=address or "local", **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise _not_connected(address, reached, error) from error
    try:
        yield "cuda" if ray.cluster_resources().get("GPU", 0) > 0 else "cpu"
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep how the caller handles a TERM signal, such as to finish a shard; Ray takes it over."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if callable(before) and current_thread() is main_thread():
        signal.signal(signal.SIGTERM, before)


def _reach(address: str | None) -> bool:
    """Whether something listens at host:port; False if the address is none of that kind.

    Raises OSError if nothing does, which Ray would wait for for minutes.
    """
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        return False
    with socket.create_connection((host, int(port)), timeout=PATIENCE):
        return True


def _not_connected(address: str | None, reached: bool, error: Exception) -> FileError:
    why = (str(error).splitlines() or [type(error).__name__])[0]
    if reached:
        return FileError(
            f"what listens at {address!r} takes no connection ({why})",
            expected="a Ray cluster of the same version that lets this user in",
            fix="If it asks for a token, as new ones do, set RAY_AUTH_MODE=token, or use "
            "--address auto on a machine of the cluster.",
        )
    return FileError(
        f"there is no Ray cluster at {address!r} ({why})",
        expected="the address of one, 'auto' or 'local'",
        fix="Start one with `ray start --head`, or use --address local.",
    )


def run_on_cluster(
    settings: Settings,
    shards: Iterable[list[Example]],
    report: Callable[[int, int], None],
    *,
    workers: int | None = None,
    split: bool | None = None,
) -> Generator[list[Result], None, None]:
    """Compute shards on the cluster that is connected, and give their results in order.

    workers: actors that hold the model, one processor each; as many as the cluster has GPUs or
    processors if not given. split: whether flow is computed apart from the model; on GPUs if not
    given. No more than two shards a worker are on the way at a time.
    Raises AttnflowError if a shard loses its worker again and again.
    """
    ray = import_ray("the engine ray")
    on_gpu = settings.device.startswith("cuda")
    split = on_gpu if split is None else split
    n_workers = workers or max(int(_resources(ray, on_gpu)), 1)
    _warn_of_too_many(ray, n_workers, on_gpu)
    kind = ray.remote(
        # Where flow is computed apart, the processors are left to it.
        num_cpus=0 if split else 1,
        num_gpus=1 if on_gpu else 0,
        max_restarts=0,
        max_task_retries=0,
    )(Worker)
    finish = ray.remote(num_cpus=1, max_retries=RETRIES)(_attribute) if split else None
    held = ray.put(settings)

    def submit(actor: Any, examples: list[Example]) -> Any:
        if finish is None:
            return actor.compute.remote(examples)
        return finish.remote(held, actor.capture.remote(examples))

    crew = Crew(ray, n_workers, lambda: kind.remote(settings), submit)
    try:
        for results in crew.compute(shards):
            report(len(results), count_pairs(settings, results))
            yield results
    finally:
        crew.dismiss()


def _resources(ray: Any, on_gpu: bool) -> float:
    """How many GPUs the cluster has, or processors."""
    return float(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1))


def _warn_of_too_many(ray: Any, n_workers: int, on_gpu: bool) -> None:
    room = int(_resources(ray, on_gpu))
    if n_workers > room:
        what = "GPUs" if on_gpu else "processors"
        warnings.warn(
            f"{n_workers} workers were asked for, and the Ray cluster has {room} {what}; the "
            "others wait for it to grow",
            stacklevel=2,
        )


class Worker:
    """Holds the model on a worker of the cluster, and computes with one thread.

    The model is loaded when it is first used, so that what is wrong with it is the error of a task,
    and not the death of an actor, which would be tried again.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._computer: Any = None

    def here(self) -> None:
        """Answer, when there is room for this worker."""

    def compute(self, examples: list[Example]) -> list[Result]:
        """The results of a shard."""
        results: list[Result] = self._loaded().compute(examples)
        return results

    def capture(self, examples: list[Example]) -> Any:
        """What the model gives for a shard, for `attribute` to go on from."""
        return self._loaded().capture(examples)

    def _loaded(self) -> Any:
        if self._computer is None:
            from attnflow.corpus.scorer import Computer

            self._computer = Computer(self.settings, threads=1)
        return self._computer


def _attribute(settings: Settings, captured: Any) -> list[Result]:
    from attnflow.corpus.scorer import attribute

    return attribute(settings, captured, threads=1)
