"""The engine on a Ray cluster: models in actors, shards handed out, lost workers replaced.

A shard is computed as a whole, by the same code as on one machine, and so gives the same bytes.
Where models run on GPUs, their actors only run the model, and tasks on processors compute flow.
"""

import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from attnflow.corpus.example import Example, Result
from attnflow.corpus.packages import import_ray
from attnflow.corpus.settings import Settings
from attnflow.corpus.shards import count_pairs
from attnflow.errors import AttnflowError, FileError

IN_FLIGHT = 2  # shards for each worker: one that it computes, and one that waits
PATIENCE = 10.0  # seconds for a cluster to answer
RETRIES = 5  # of a shard whose worker was lost


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
        try:
            _reach(address)
            ray.init(address=address or "local", **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise FileError(
                f"there is no Ray cluster at {address!r} ({why}); expected the address of one, "
                "'auto' or 'local'. Start one with `ray start --head`, or use --address local."
            ) from error
    try:
        yield "cuda" if ray.cluster_resources().get("GPU", 0) > 0 else "cpu"
    finally:
        if ours:
            ray.shutdown()


def _reach(address: str | None) -> None:
    """Raise OSError if nothing listens at host:port, which Ray would wait for for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        with socket.create_connection((host, int(port)), timeout=PATIENCE):
            pass


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
    available = ray.cluster_resources()
    n_workers = workers or max(int(available.get("GPU" if on_gpu else "CPU", 1)), 1)
    actors = _start_actors(ray, settings, n_workers, on_gpu)
    finish = ray.remote(num_cpus=1, max_retries=RETRIES)(_attribute) if split else None
    held = ray.put(settings)

    def submit(actor: Any, examples: list[Example]) -> Any:
        if finish is None:
            return actor.compute.remote(examples)
        return finish.remote(held, actor.capture.remote(examples))

    try:
        for results in _hand_out(ray, actors, submit, shards):
            report(len(results), count_pairs(settings, results))
            yield results
    finally:
        for actor in actors:
            ray.kill(actor)


class Worker:
    """Holds the model on a worker of the cluster, and computes with one thread.

    The model is loaded when it is first used, so that what is wrong with it is the error of a task,
    and not the death of an actor, which would be tried again.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._computer: Any = None

    def compute(self, examples: list[Example]) -> list[Result]:
        """The results of a shard."""
        results: list[Result] = self._loaded().compute(examples)
        return results

    def capture(self, examples: list[Example]) -> Any:
        """What the model gives for a shard, for `attribute` to go on from."""
        return self._loaded().capture(examples)

    def _loaded(self) -> Any:
        if self._computer is None:
            from attnflow.corpus.computing import Computer

            self._computer = Computer(self.settings, threads=1)
        return self._computer


def _attribute(settings: Settings, captured: Any) -> list[Result]:
    from attnflow.corpus.computing import attribute

    return attribute(settings, captured, threads=1)


def _start_actors(ray: Any, settings: Settings, n: int, on_gpu: bool) -> list[Any]:
    kind = ray.remote(
        num_cpus=1,
        num_gpus=1 if on_gpu else 0,
        max_restarts=-1,
        max_task_retries=RETRIES,
    )(Worker)
    return [kind.remote(settings) for _ in range(n)]


def _hand_out(
    ray: Any,
    actors: list[Any],
    submit: Callable[[Any, list[Example]], Any],
    shards: Iterable[list[Example]],
) -> Iterator[list[Result]]:
    """Give each shard to the actor with the least to do; results come in the order of shards."""
    stream = iter(shards)
    waiting: deque[tuple[Any, int]] = deque()  # what will be the result, and whose it is
    at_end = False
    while True:
        while not at_end and len(waiting) < IN_FLIGHT * len(actors):
            examples = next(stream, None)
            if examples is None:
                at_end = True
                break
            least = _least_busy(ray, waiting, len(actors))
            waiting.append((submit(actors[least], examples), least))
        if not waiting:
            return
        yield _fetch(ray, waiting.popleft()[0])


def _least_busy(ray: Any, waiting: Iterable[tuple[Any, int]], n: int) -> int:
    """The actor with the fewest unfinished shards."""
    of = dict(waiting)
    load = [0] * n
    if of:
        _, unfinished = ray.wait(list(of), num_returns=len(of), timeout=0)
        for one in unfinished:
            load[of[one]] += 1
    return load.index(min(load))


def _fetch(ray: Any, reference: Any) -> list[Result]:
    try:
        results: list[Result] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, AttnflowError):
            raise error.cause from None
        raise
    except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError) as error:
        raise AttnflowError(
            f"a shard lost its worker {RETRIES + 1} times ({str(error).splitlines()[0]}); expected "
            "workers that stay. They may lack memory: use a lower --batch-tokens or --shard-size. "
            "All shards finished before are kept; the same command goes on."
        ) from error
    return results
