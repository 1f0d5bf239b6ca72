"""Running a model so that each of its attention layers is shown to an observer.

Three roads: the registry of transformers; `output_attentions=True` for its models that do not use
the registry; and plain torch.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError, InputError
from attnflow.models import torch_modules
from attnflow.models.call import AttentionCall, Observer, Returned, describe_model


def run(
    model: nn.Module, inputs: Mapping[str, Any], observer: Observer, *, differentiable: bool = False
) -> Any:
    """Run model(**inputs), and return its output, unchanged.

    observer: called with each layer's attention in the order in which layers run; the tensor that
    it may return takes the place of the layer's output.
    differentiable: whether to record what gradients need.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wrapped: kernels hide weights
    with torch.enable_grad() if differentiable else torch.no_grad():
        if not _has_transformers_model(model):
            with torch_modules.watched(model, observer):
                return model(**inputs)
        from attnflow.models import registry

        if registry.in_registry(model):
            seen = []

            def note(call: AttentionCall) -> Tensor | None:
                seen.append(type(call))
                return observer(call)

            asked = _asks_for_weights(model, inputs)
            with registry.watched(model, note, returns_weights=asked):
                output = model(**inputs)
            if seen or "output_attentions" not in signature(model.forward).parameters:
                return output
        return _run_returning(model, inputs, observer)


def check_run(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raise InputError for what is no model or no inputs, or for a model in training mode."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model is a {type(model).__name__}; expected a torch module. "
            "Load it first, for example with transformers.AutoModel.from_pretrained(...)."
        )
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs is a {type(inputs).__name__}; expected the arguments of the model by name. "
            'Give what the tokenizer returned with return_tensors="pt".'
        )
    if model.training:
        raise InputError(
            f"{describe_model(model)} is in training mode, where dropout changes its attention; "
            "expected evaluation mode. Call model.eval() first."
        )


def _has_transformers_model(model: nn.Module) -> bool:
    """Whether the module is or holds a model of transformers, without importing that."""
    return any(
        base.__module__ == "transformers.modeling_utils" and base.__name__ == "PreTrainedModel"
        for module in model.modules()
        for base in type(module).__mro__
    )


def _asks_for_weights(model: nn.Module, inputs: Mapping[str, Any]) -> bool:
    config = getattr(model, "config", None)
    return bool(inputs.get("output_attentions", getattr(config, "output_attentions", False)))


def _run_returning(model: nn.Module, inputs: Mapping[str, Any], observer: Observer) -> Any:
    """Let the model return its weights, show them, and take them out of its output again."""
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if implementation not in ("eager", None):
        # Such a model builds its mask for one kernel, and would compute weights by another.
        raise AttentionError(
            f"{describe_model(model)} does not use the attention registry of transformers, and was "
            f"loaded with {implementation!r} attention; expected 'eager', which can return "
            'weights. Load it with attn_implementation="eager".'
        )
    asked = _asks_for_weights(model, inputs)
    output = model(**{**inputs, "output_attentions": True, "return_dict": True})
    found = _returned(output)
    if not found:
        raise AttentionError(
            f"{describe_model(model)} does not use the attention registry of transformers, and "
            "returned no attentions; expected one tensor of them per layer. "
            'Load the model with attn_implementation="eager".'
        )
    for call in found:
        observer(call)
    if asked:
        return output
    kept = {name: part for name, part in output.items() if not name.endswith("attentions")}
    return type(output)(**kept)


def _returned(output: Any) -> list[Returned]:
    """The weights in an output, in the order in which layers run; none if some are missing."""
    layers = [Returned(layer) for layer in output.get("attentions") or ()]
    if not layers:
        layers = [Returned(layer, "encoder") for layer in output.get("encoder_attentions") or ()]
        blocks = (output.get(f"{name}_attentions") or () for name in ("decoder", "cross"))
        for decoder, cross in zip(*blocks, strict=False):
            layers += [Returned(decoder, "decoder"), Returned(cross, "cross")]
    return layers if all(isinstance(layer.returned, Tensor) for layer in layers) else []
