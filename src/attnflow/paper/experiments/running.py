"""How many threads a model runs on while it is measured."""

from collections.abc import Iterator
from contextlib import contextmanager

from attnflow.arrays import import_torch
from attnflow.models.loading import LoadedModel

SMALL = 10_000_000  # weights; a model with fewer runs on one thread


@contextmanager
def model_threads(loaded: LoadedModel, threads: int | None) -> Iterator[None]:
    """Run a model on so many threads; afterwards there are as many as before.

    If not given, a small model has one: it gains nothing by a second, and where another program
    keeps a processor busy its threads wait for each other, which takes ten times as long. Others
    have as many as torch chose.
    """
    torch = import_torch("running a model")
    before = torch.get_num_threads()
    if threads is None:
        threads = 1 if _n_weights(loaded) < SMALL else before
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _n_weights(loaded: LoadedModel) -> int:
    return sum(part.numel() for part in loaded.model.parameters())
