"""Where shards are computed: on this machine, or on the workers of a Ray cluster."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from attnflow.arrays import import_torch
from attnflow.corpus.example import Example, Result
from attnflow.corpus.settings import Settings
from attnflow.errors import InputError

Report: TypeAlias = Callable[[int, int], None]  # examples and flow pairs done since the last call
# Takes the examples of each shard, gives the results of each shard, in the same order.
Engine: TypeAlias = Callable[
    [Settings, Iterable[list[Example]], Report], Generator[list[Result], None, None]
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
                "workers or an address were given for this machine; expected them for a cluster. "
                "Choose --engine ray (engine='ray'), or --threads (threads=...)."
            )
        yield partial(_run_local, threads), _device_here()
    elif name == "ray":
        if threads is not None:
            raise InputError(
                "threads were given for a cluster; expected workers, each of which has one. Use "
                "--workers (workers=...)."
            )
        from attnflow.corpus.cluster import connected, run_on_cluster

        with connected(address) as device:
            yield partial(run_on_cluster, workers=workers), device
    else:
        raise InputError(f"engine is {name!r}; expected 'local' or 'ray'. Choose one of these.")


def _run_local(
    threads: int | None, settings: Settings, shards: Iterable[list[Example]], report: Report
) -> Generator[list[Result], None, None]:
    from attnflow.corpus.pipeline import run_local

    yield from run_local(settings, shards, threads=threads, report=report)


def _device_here() -> str:
    return "cuda" if import_torch("running a model").cuda.is_available() else "cpu"
