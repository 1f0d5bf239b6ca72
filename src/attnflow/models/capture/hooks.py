"""Seeing every layer's attention in models of transformers, through its registry.

The registry holds named functions that compute attention, and every model looks its function up by
name each time a layer runs. One function of ours is registered there; a model is switched to it for
one forward pass and then back.

Running a model so that each of its attention layers is shown to an observer.

Three roads: the registry of transformers; `output_attentions=True` for its models that do not use
the registry; and plain torch.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import signature
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from attnflow.errors import AttentionError, InputError
from attnflow.models.capture import torch_modules
from attnflow.models.capture.call import (
    AttentionCall,
    DotProduct,
    Observer,
    Returned,
    describe_model,
    pack_heads,
    prefers_weights,
)

NAME = "attnflow"

# Arguments that change which keys are attended to, beyond the mask.
REFUSED = ("cache", "indices", "block_indices", "block_table")


@dataclass(frozen=True)
class _Watch:
    """What to do while a model is watched. eager: ids of configurations with eager attention."""

    observer: Observer
    returns_weights: bool
    eager: frozenset[int]


# Not a global variable: other threads may run the same model at the same time, unobserved.
_watch: ContextVar[_Watch | None] = ContextVar("attnflow_watch", default=None)

# One capture at a time: the first to end would switch the model back under the second.
_switching = RLock()


def attend(  # noqa: PLR0913, PLR0917 - the registry sets the signature
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as transformers' own "sdpa" does, and show the call to the observer.

    A model that was loaded with "eager" gets what that computes: for queries that see nothing, as
    padding may be, the two differ.

    Returns the output [batch, queries, heads, width], and the weights if they were asked for.
    """
    _refuse(module, dropout, kwargs)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    watch = _watch.get()
    eager = watch is not None and id(getattr(module, "config", None)) in watch.eager
    beyond_sdpa = softcap is not None or s_aux is not None
    call = DotProduct(
        module=module,
        query=query,
        key=key,
        value=value,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        mask=attention_mask,
        # Models leave the mask out where it would be nothing but causal.
        causal=is_causal and attention_mask is None and query.shape[2] > 1,
        position_bias=position_bias,
        softcap=softcap,
        sinks=s_aux,
        wants_output=eager or beyond_sdpa or prefers_weights(query, attention_mask),
    )
    output = None if watch is None else watch.observer(call)
    weights = call.weights().to(query.dtype) if watch and watch.returns_weights else None
    if output is not None:
        return pack_heads(output), weights
    if eager or beyond_sdpa:
        return pack_heads(call.attended()), weights
    packed, _ = sdpa_attention_forward(
        module,
        query,
        key,
        value,
        attention_mask,
        scaling=scaling,
        is_causal=is_causal,
        position_bias=position_bias,
    )
    return packed, weights


def _refuse(module: nn.Module, dropout: float, kwargs: dict[str, Any]) -> None:
    if dropout:
        raise InputError(
            f"{type(module).__name__} runs with dropout {dropout}",
            expected="none, since dropped weights are not the model's attention",
            fix="Call model.eval() first.",
        )
    for name in REFUSED:
        if kwargs.get(name) is not None:
            raise AttentionError(
                f"{type(module).__name__} chooses its keys by {name!r}",
                expected="attention with a mask only",
                fix="Run the model without paged caches; sparse attention of this kind cannot "
                "be captured.",
            )


@contextmanager
def watched(model: nn.Module, observer: Observer, *, returns_weights: bool) -> Iterator[None]:
    """Show every call of attention in the model to the observer, and leave no trace.

    returns_weights: whether modules shall hand their weights on, as with output_attentions=True.
    """
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    with _switching:
        before = [(config, config._attn_implementation) for config in _configs(model)]
        eager = frozenset(id(config) for config, name in before if name == "eager")
        token = _watch.set(_Watch(observer, returns_weights, eager))
        try:
            for part in outermost(model):
                part.set_attn_implementation(NAME)
            yield
        finally:
            _watch.reset(token)
            for config, name in before:
                # Not set_attn_implementation: parts of one model may have had different ones.
                config._attn_implementation_internal = name


def switch(model: nn.Module) -> None:
    """Switch a model over for good, so that `observed` need not; for models of one's own.

    Unless it is observed, it computes what "sdpa" does.
    """
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    for part in outermost(model):
        part.set_attn_implementation(NAME)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Show the calls of attention in this thread to the observer, for models switched already.

    Several threads can run one model at the same time, each with an observer of its own.
    """
    token = _watch.set(_Watch(observer, returns_weights=False, eager=frozenset()))
    try:
        yield
    finally:
        _watch.reset(token)


def outermost(model: nn.Module) -> list[PreTrainedModel]:
    """The models of transformers in a module: itself, or those that it is made of."""
    if isinstance(model, PreTrainedModel):
        return [model]
    return [part for child in model.children() for part in outermost(child)]


def in_registry(model: nn.Module) -> bool:
    """Whether some part of the model looks its attention up in the registry."""
    return any(
        part._can_set_attn_implementation()
        for part in model.modules()
        if isinstance(part, PreTrainedModel) and _has_attention(part)
    )


def _has_attention(model: PreTrainedModel) -> bool:
    """Whether the model has layers of its own, rather than only other models."""
    return not any(isinstance(child, PreTrainedModel) for child in model.children())


def _configs(model: nn.Module) -> list[Any]:
    """Every configuration that modules of the model may look at, once."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    while waiting:
        config = waiting.pop()
        if id(config) in found or not hasattr(config, "_attn_implementation_internal"):
            continue
        found[id(config)] = config
        waiting += [getattr(config, name, None) for name in config.sub_configs]
    return list(found.values())


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

        if in_registry(model):
            seen = []

            def note(call: AttentionCall) -> Tensor | None:
                seen.append(type(call))
                return observer(call)

            asked = _asks_for_weights(model, inputs)
            with watched(model, note, returns_weights=asked):
                output = model(**inputs)
            if seen or "output_attentions" not in signature(model.forward).parameters:
                return output
        return _run_returning(model, inputs, observer)


def check_run(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raise InputError for what is no model or no inputs, or for a model in training mode."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model is a {type(model).__name__}",
            expected="a torch module",
            fix="Load it first, for example with transformers.AutoModel.from_pretrained(...).",
        )
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs is a {type(inputs).__name__}",
            expected="the arguments of the model by name",
            fix='Give what the tokenizer returned with return_tensors="pt".',
        )
    if model.training:
        raise InputError(
            f"{describe_model(model)} is in training mode, where dropout changes its attention",
            expected="evaluation mode",
            fix="Call model.eval() first.",
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
            f"{describe_model(model)} does not use the attention registry of transformers, and "
            f"was loaded with {implementation!r} attention",
            expected="'eager', which can return weights",
            fix='Load it with attn_implementation="eager".',
        )
    asked = _asks_for_weights(model, inputs)
    output = model(**{**inputs, "output_attentions": True, "return_dict": True})
    found = _returned(output)
    if not found:
        raise AttentionError(
            f"{describe_model(model)} does not use the attention registry of "
            "transformers, and returned no attentions",
            expected="one tensor of them per layer",
            fix='Load the model with attn_implementation="eager".',
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
