"""The state of a model while it runs: evaluation mode, and the device.

Context managers set it for a block and restore it afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from attnflow.errors import InputError, first_line, quote
from attnflow.models.wrappers import is_offloaded
from attnflow.optional import import_optional

# Modules in evaluation mode by id: how many blocks use them, and the flag to restore.
_evaluated: dict[int, tuple[int, bool]] = {}
_evaluated_lock = Lock()


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Run a block with the model in evaluation mode, and restore the mode of each module.

    Several threads may do so with one model; the last to finish restores it. Flags are set
    directly, because a module may override `train` to change its weights.
    """
    modules = list(model.modules())
    with _evaluated_lock:
        for module in modules:
            users, training = _evaluated.get(id(module), (0, module.training))
            _evaluated[id(module)] = (users + 1, training)
            if module.training:
                module.training = False
    try:
        yield
    finally:
        with _evaluated_lock:
            for module in modules:
                users, training = _evaluated.pop(id(module))
                if users > 1:
                    _evaluated[id(module)] = (users - 1, training)
                elif training:
                    module.training = True


@contextmanager
def on_device(model: Any, device: Any) -> Iterator[None]:
    """Run a block with the model on a device, and move the model back afterwards.

    device: anything that `torch.device` takes; None leaves the model where it is.
    Raises InputError if the model cannot be moved there, or is spread over several devices.
    """
    if device is None:
        yield
        return
    before = sorted({str(weights.device) for weights in model.parameters()})
    if len(before) > 1 or is_offloaded(model):
        raise InputError(
            f"device is {device}, and the model is spread over {', '.join(before)} or offloaded",
            expected="a model on one device",
            fix="Leave device out, or load the model without device_map.",
        )
    try:
        move_model(model, device)
        yield
    finally:
        if before:
            model.to(before[0])


def check_device(device: Any) -> None:
    """Raise InputError unless torch can use a device here; None is the default."""
    if device is not None:
        move_model(import_optional("torch", "using a device").nn.Linear(1, 1), device)


def move_model(model: Any, device: Any) -> None:
    """Move a model to a device. Raises InputError if it cannot be moved there."""
    torch = import_optional("torch", "moving a model to a device")
    try:
        place = torch.device(device)
        if place.type == "meta":
            raise RuntimeError("tensors on meta have no values")
        model.to(place)
    except Exception as error:  # torch raises many kinds of errors
        raise InputError(
            f"the model cannot be moved to the device {quote(device)} ({first_line(error)})",
            expected='a device that torch can use here, such as "cpu" or "cuda"',
            fix="Choose another device with --device (device=...).",
        ) from error
