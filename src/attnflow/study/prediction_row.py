"""Linear layers after the last attention, computed only at the position that predicts.

A prediction at one position needs the keys and values of all positions, but nothing that the model
computes for other positions after its last attention layer: the output projection, the feed-forward
layer, and the vocabulary of a masked language model. `at_position` leaves that out. Which layers
these are is found by trying, so that no model is known by name: a layer gets one position of its
input, sums with other tensors broadcast, and the logits must stay the same.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

from attnflow.optional import import_optional

TOLERANCE = 1e-4  # of logits, relative to the largest
MAX_MISSES = 3  # layers in a row that need all positions, before the search ends

# The layers of each model. Found once, because the architecture decides, and not the text.
_found: WeakKeyDictionary[Any, tuple[Any, ...]] = WeakKeyDictionary()


def find_layers(model: Any, run: Callable[[], Any], n: int, position: int) -> tuple[Any, ...]:
    """Return the linear layers of a model that need only the position of the prediction.

    run: returns the logits of some texts of n tokens, at this position.
    """
    if model not in _found:
        _found[model] = _search(model, run, n, position)
    return _found[model]


@contextmanager
def at_position(layers: Sequence[Any], n: int, position: int) -> Iterator[None]:
    """Run layers on one of n positions, [texts, n, width], in this thread."""
    thread = get_ident()

    def cut(_: Any, args: tuple[Any, ...]) -> Any:
        if get_ident() != thread or not _has_positions(args, n):
            return None
        return (args[0][:, position : position + 1], *args[1:])

    hooks = [layer.register_forward_pre_hook(cut) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _has_positions(args: tuple[Any, ...], n: int) -> bool:
    return bool(args) and args[0].dim() == 3 and args[0].shape[1] == n


def _search(model: Any, run: Callable[[], Any], n: int, position: int) -> tuple[Any, ...]:
    """Try layers from the last one backwards, and keep those that leave the logits as they are."""
    ran: list[Any] = []
    with _recorded(model, ran, n):
        expected = _try(run)
    if expected is None:
        return ()
    chosen: list[Any] = []
    misses = 0
    for layer in reversed([layer for layer in ran if ran.count(layer) == 1]):
        with at_position([*chosen, layer], n, position):
            logits = _try(run)
        if logits is not None and _are_same(logits, expected):
            chosen.append(layer)
            misses = 0
        else:
            misses += 1
        if misses > MAX_MISSES:
            break
    return tuple(chosen)


@contextmanager
def _recorded(model: Any, ran: list[Any], n: int) -> Iterator[None]:
    """Record the linear layers that run on all positions, in order."""
    torch = import_optional("torch", "running a model")

    def record(layer: Any, args: tuple[Any, ...]) -> None:
        if _has_positions(args, n):
            ran.append(layer)

    linear = [layer for layer in model.modules() if type(layer) is torch.nn.Linear]
    hooks = [layer.register_forward_pre_hook(record) for layer in linear]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _try(run: Callable[[], Any]) -> Any:
    """The logits; None if the model fails, as most do where keys have a single position."""
    torch = import_optional("torch", "running a model")
    try:
        return run()
    except torch.OutOfMemoryError:
        raise
    except Exception:  # models raise many kinds of errors for tensors of other shapes
        return None


def _are_same(logits: Any, expected: Any) -> bool:
    torch = import_optional("torch", "running a model")
    scale = float(expected.abs().max())
    return logits.shape == expected.shape and bool(
        torch.allclose(logits, expected, rtol=0, atol=TOLERANCE * scale)
    )
