"""One forward pass of a model, with each attention layer shown to an observer.

There are three ways to see the layers: hooks in the attention registry of transformers
(`transformers_hooks`), the weights that models outside that registry return with
`output_attentions=True`, and hooks on `scaled_dot_product_attention` of torch (`torch_hooks`).
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError, InputError
from attnflow.models.caches import without_cache
from attnflow.models.capture.call import (
    AttentionCall,
    Observer,
    ReturnedCall,
    describe_model,
    name_layers,
)
from attnflow.models.capture.mixers import find_mixers, observe_mixers
from attnflow.models.model_state import evaluation_mode
from attnflow.models.wrappers import unwrap, without_compilation


def run_model(
    model: nn.Module,
    inputs: Mapping[str, Any],
    observer: Observer,
    *,
    differentiable: bool = False,
    values: bool = False,
) -> Any:
    """Run model(**inputs) in evaluation mode, and return its output.

    observer: called with each layer's AttentionCall, in the order in which layers run.
    differentiable: whether to record the operations for gradients.
    values: whether the observer needs values. The weights that a model returns do not suffice then.
    A cache of earlier tokens is ignored if the input has these tokens as well.
    Training flags and attention implementation of the model are restored, also after an error.
    """
    check_arguments(model, inputs)
    inputs = without_cache(inputs)
    model = unwrap(model)
    observer = name_layers(model, observer)
    gradients = torch.enable_grad() if differentiable else torch.no_grad()
    with evaluation_mode(model), without_compilation(model), gradients:
        # Hooks are imported where they are used: plain torch models do not need transformers.
        if not _has_transformers_model(model):
            from attnflow.models.capture import torch_hooks

            with torch_hooks.observe_model(model, observer):
                return model(**inputs)
        from attnflow.models.capture import transformers_hooks

        calls_seen = 0

        def count_calls(call: AttentionCall) -> None:
            nonlocal calls_seen
            calls_seen += 1
            observer(call)

        wanted = _wants_weights(model, inputs)
        with observe_mixers(model, count_calls) as observe:
            if transformers_hooks.uses_registry(model):
                with transformers_hooks.observe_model(model, observe, returns_weights=wanted):
                    output = model(**inputs)
                if calls_seen or "output_attentions" not in signature(model.forward).parameters:
                    return output
            elif _implementation(model) == "sdpa" and not wanted:  # calls the function of torch
                from attnflow.models.capture import torch_hooks

                with torch_hooks.observe_model(model, observe):
                    output = model(**inputs)
                if calls_seen:
                    return output
            elif find_mixers(model):
                return model(**inputs)
        if values:
            return _run_observing_products(model, inputs, observer)
        return _run_returning_weights(model, inputs, observer)


def check_arguments(model: Any, inputs: Any) -> None:
    """Raise InputError unless the model is a torch module and inputs are a mapping."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model is a {type(model).__name__}",
            expected="a torch module",
            fix="Load it first, for example with transformers.AutoModel.from_pretrained(...).",
        )
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs is a {type(inputs).__name__}",
            expected="a mapping from names to arguments of the model",
            fix='Use the result of the tokenizer with return_tensors="pt".',
        )


def _has_transformers_model(model: nn.Module) -> bool:
    """Whether the module is or contains a model of transformers, which is not imported here."""
    return any(
        base.__module__ == "transformers.modeling_utils" and base.__name__ == "PreTrainedModel"
        for module in model.modules()
        for base in type(module).__mro__
    )


def _implementation(model: nn.Module) -> str | None:
    """The name of the attention implementation that a model of transformers was loaded with."""
    return getattr(getattr(model, "config", None), "_attn_implementation", None)


def _wants_weights(model: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether the caller or the configuration asks for attention weights in the output."""
    config = getattr(model, "config", None)
    return bool(inputs.get("output_attentions", getattr(config, "output_attentions", False)))


def _run_observing_products(model: nn.Module, inputs: Mapping[str, Any], observer: Observer) -> Any:
    """Run a model that computes attention by itself, and observe products of weights and values.

    Raises AttentionError if there are none.
    """
    from attnflow.models.capture.torch_hooks import ObservedProducts

    batch = next(value.shape[0] for value in inputs.values() if isinstance(value, Tensor))
    with ObservedProducts(observer, batch) as products:
        output = model(**inputs)
    if products.n_calls:
        return output
    raise AttentionError(
        f"the values of the attention of {describe_model(model)} could not be observed",
        expected="attention as a softmax, followed by a product with the values",
        fix="Load the model with attn_implementation='sdpa' or 'eager', or use edges='attention' "
        "or edges='gradient'.",
    )


def _run_returning_weights(model: nn.Module, inputs: Mapping[str, Any], observer: Observer) -> Any:
    """Run the model with output_attentions=True, and remove the weights from its output again."""
    implementation = _implementation(model)
    if implementation not in ("eager", None):
        # The model would build its mask for one kernel and compute the weights with another.
        raise AttentionError(
            f"{describe_model(model)} does not use the attention registry of transformers, and "
            f"was loaded with {implementation!r} attention",
            expected="'eager' attention, which can return weights",
            fix='Load the model with attn_implementation="eager".',
        )
    wanted = _wants_weights(model, inputs)
    output = model(**{**inputs, "output_attentions": True, "return_dict": True})
    calls = _returned_calls(output)
    if not calls:
        raise AttentionError(
            f"{describe_model(model)} does not use the attention registry of transformers, and "
            "returned no attention weights",
            expected="one tensor per layer",
            fix='Load the model with attn_implementation="eager".',
        )
    for call in calls:
        observer(call)
    if wanted:
        return output
    rest = {name: part for name, part in output.items() if not name.endswith("attentions")}
    return type(output)(**rest)


def _returned_calls(output: Any) -> list[ReturnedCall]:
    """The weights in an output, in the order in which layers run; empty if any are missing."""
    calls = [ReturnedCall(layer) for layer in output.get("attentions") or ()]
    if not calls:
        calls = [ReturnedCall(layer, "encoder") for layer in output.get("encoder_attentions") or ()]
        blocks = (output.get(f"{name}_attentions") or () for name in ("decoder", "cross"))
        for decoder, cross in zip(*blocks, strict=False):
            calls += [ReturnedCall(decoder, "decoder"), ReturnedCall(cross, "cross")]
    return calls if all(isinstance(call.returned, Tensor) for call in calls) else []
