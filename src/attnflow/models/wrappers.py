"""Wrappers around models: torch.compile, data parallelism, PEFT; and where a model takes its input.

A wrapper hides the class of its model, which says what the model predicts. `unwrap` returns the
model that computes the same. PEFT and accelerate are not imported: their objects are recognized.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attnflow.errors import InputError
from attnflow.optional import import_optional

# Attributes under which wrappers of torch keep their model, by the name of the wrapper's class.
WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DataParallel": "module",
    "DistributedDataParallel": "module",
}


def unwrap(model: Any) -> Any:
    """Return the model inside wrappers of torch.compile, data parallelism and PEFT.

    Adapters of PEFT that change layers, such as LoRA, stay in place.
    Raises InputError for adapters that put virtual tokens before the input.
    """
    while True:
        names = {cls.__name__ for cls in type(model).__mro__}
        wrapper = next((name for name in WRAPPERS if name in names), None)
        if wrapper is not None:
            model = getattr(model, WRAPPERS[wrapper])
        elif names & {"PeftModel", "PeftMixedModel"}:
            _check_no_virtual_tokens(model)
            model = model.get_base_model()
        else:
            return model


def _check_no_virtual_tokens(model: Any) -> None:
    active: Any = getattr(model, "active_peft_config", None)
    if getattr(active, "is_prompt_learning", False):
        raise InputError(
            f"the adapter ({type(active).__name__}) puts {active.num_virtual_tokens} virtual "
            "tokens before the input",
            expected="an adapter that changes layers, such as LoRA, DoRA or IA3",
            fix="Explain the model without it: model.get_base_model().",
        )


@contextmanager
def without_compilation(model: Any) -> Iterator[None]:
    """Run compiled parts of a model as plain Python: compiled kernels hide attention."""
    is_compiled = any(
        getattr(module, "_compiled_call_impl", None) is not None
        or type(module).__name__ == "OptimizedModule"
        for module in model.modules()
    )
    if not is_compiled:
        yield
        return
    with import_optional("torch.compiler", "running a compiled model").set_stance("force_eager"):
        yield


def find_device(model: Any) -> Any:
    """Return the device for token ids: that of the input embeddings; the CPU without weights.

    Weights that accelerate keeps elsewhere, in memory or on disk, are moved to a device when they
    are needed. That device counts.
    """
    torch = import_optional("torch", "running a model")
    embeddings = _input_embeddings(model)
    for module in (embeddings, model, *model.modules()):
        place = _execution_device(module)
        if place is not None:
            return torch.device(place)
        first = next(iter(module.parameters()), None) if module is not None else None
        if first is not None and first.device.type != "meta":
            return first.device
    return torch.device("cpu")


def is_offloaded(model: Any) -> bool:
    """Whether accelerate moves weights of the model to a device and back while it runs."""
    return any(_execution_device(module) is not None for module in model.modules())


def _input_embeddings(model: Any) -> Any:
    try:
        return getattr(model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:
        return None


def _execution_device(module: Any) -> Any:
    """The device on which a hook of accelerate runs a module; None without such a hook."""
    hook = getattr(module, "_hf_hook", None)
    hooks = getattr(hook, "hooks", None) or [hook]
    places = (getattr(hook, "execution_device", None) for hook in hooks)
    return next((place for place in places if place is not None), None)
