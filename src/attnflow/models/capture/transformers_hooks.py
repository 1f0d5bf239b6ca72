"""Hooks in the attention registry of transformers.

The registry holds named functions that compute attention, and every layer looks up its function by
name each time it runs. `compute_attention` is registered there under HOOK. Models are switched to
it for one forward pass (`observe_model`), or permanently (`install_hooks`), which lets several
threads observe one model (`observe_thread`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import RLock
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from attnflow.errors import AttentionError, InputError
from attnflow.models.capture.call import DotProductCall, Observer, pack_heads, prefers_weights

HOOK = "attnflow"  # the name in the registry

# Arguments of attention functions that select keys without a mask.
UNSUPPORTED = ("cache", "indices", "block_indices", "block_table")


@dataclass(frozen=True)
class _Observation:
    """The observer of a thread. eager: ids of configurations that were set to eager attention.

    needs_masks: whether causal masks are made for the model, see `needs_masks`.
    """

    observer: Observer
    returns_weights: bool = False
    eager: frozenset[int] = frozenset()
    needs_masks: bool = False


# A context variable: other threads may run the same model at the same time without an observer.
_observation: ContextVar[_Observation | None] = ContextVar("attnflow_observation", default=None)

# One observed pass at a time: the first to end would restore the model while the second runs.
_switch_lock = RLock()


@contextmanager
def observe_model(model: nn.Module, observer: Observer, *, returns_weights: bool) -> Iterator[None]:
    """Show every attention call of the model to the observer, and restore the model afterwards.

    returns_weights: whether modules return their weights, as with output_attentions=True.
    """
    _register()
    with _switch_lock:
        before = [(config, config._attn_implementation) for config in _configs(model)]
        eager = frozenset(id(config) for config, name in before if name == "eager")
        observation = _Observation(observer, returns_weights, eager, needs_masks(model))
        token = _observation.set(observation)
        try:
            for part in outermost_models(model):
                part.set_attn_implementation(HOOK)
            yield
        finally:
            _observation.reset(token)
            for config, name in before:
                # Not set_attn_implementation, because the parts of a model may differ.
                config._attn_implementation_internal = name


def install_hooks(model: nn.Module) -> None:
    """Switch a model to `compute_attention` permanently, so that `observe_thread` can be used.

    Without an observer, the model computes the same as with "sdpa" attention.
    """
    _register()
    for part in outermost_models(model):
        part.set_attn_implementation(HOOK)


@contextmanager
def observe_thread(model: nn.Module, observer: Observer) -> Iterator[None]:
    """Show the attention calls of this thread to the observer, for models with `install_hooks`.

    Several threads can run one model at the same time, each with its own observer.
    """
    token = _observation.set(_Observation(observer, needs_masks=needs_masks(model)))
    try:
        yield
    finally:
        _observation.reset(token)


def needs_masks(model: nn.Module) -> bool:
    """Whether causal attention of the model needs its mask.

    "sdpa" leaves out masks that are causal only, and asks the module whether it is causal. Models
    that know "eager" attention only never ask, and may be wrong about it (BigBird-Pegasus).
    """
    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    return not all(part._supports_sdpa for part in parts) and not all(
        getattr(module, "is_causal", True) for module in model.modules()
    )


def uses_registry(model: nn.Module) -> bool:
    """Whether some part of the model looks up its attention function in the registry."""
    return any(
        part._can_set_attn_implementation()
        for part in model.modules()
        if isinstance(part, PreTrainedModel) and _has_own_layers(part)
    )


def outermost_models(model: nn.Module) -> list[PreTrainedModel]:
    """The models of transformers in a module that are not inside another one; may be itself."""
    if isinstance(model, PreTrainedModel):
        return [model]
    return [part for child in model.children() for part in outermost_models(child)]


def compute_attention(  # noqa: PLR0913, PLR0917 - the registry sets the signature
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
    """Compute attention as "sdpa" of transformers does, and show the call to the observer.

    A model that was loaded with "eager" attention gets the output of that. The two differ for
    queries that see no key, such as padding.
    Returns the output [batch, queries, heads, width], and the weights if they are wanted.
    Raises InputError for dropout, AttentionError for arguments that select keys.
    """
    _check_supported(module, dropout, kwargs)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    if is_causal and getattr(attention_mask, "is_only_causal", False):
        attention_mask = None
    observation = _observation.get()
    eager = observation is not None and id(getattr(module, "config", None)) in observation.eager
    beyond_sdpa = softcap is not None or s_aux is not None
    call = DotProductCall(
        module=module,
        query=query,
        key=key,
        value=value,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        mask=attention_mask,
        # Models pass no mask if it would be causal only.
        causal=is_causal and attention_mask is None and query.shape[2] > 1,
        position_bias=position_bias,
        softcap=softcap,
        sinks=s_aux,
        window=kwargs.get("sliding_window"),
        output_from_weights=eager or beyond_sdpa or prefers_weights(query, attention_mask),
    )
    weights = None
    if observation is not None:
        observation.observer(call)
        weights = call.weights().to(query.dtype) if observation.returns_weights else None
    if call.output is not None:
        return call.finish(pack_heads(call.output)), weights
    if eager or beyond_sdpa:
        return call.finish(pack_heads(call.compute_output())), weights
    output, _ = sdpa_attention_forward(
        module,
        query,
        key,
        value,
        attention_mask,
        scaling=scaling,
        is_causal=is_causal,
        position_bias=position_bias,
    )
    return call.finish(output), weights


def _check_supported(module: nn.Module, dropout: float, kwargs: dict[str, Any]) -> None:
    if dropout:
        raise InputError(
            f"{type(module).__name__} applies dropout {dropout} to its attention weights in "
            "evaluation mode",
            expected="no dropout, since it changes the weights at random",
            fix="Set the dropout of the attention module to 0.",
        )
    for name in UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise AttentionError(
                f"{type(module).__name__} selects keys by {name!r}",
                expected="attention that selects keys by a mask",
                fix="Run the model without a paged cache. Sparse attention of this kind is not "
                "supported.",
            )


def _make_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Make the mask of "sdpa", and for some models also one that is causal only."""
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    observation = _observation.get()
    is_skipped = mask is None and kwargs.get("allow_is_causal_skip", True)
    if is_skipped and observation is not None and observation.needs_masks:
        mask = sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
        if mask is not None:
            mask.is_only_causal = True  # type: ignore[attr-defined]
    return mask


def _register() -> None:
    AttentionInterface.register(HOOK, compute_attention)
    AttentionMaskInterface.register(HOOK, _make_mask)


def _has_own_layers(model: PreTrainedModel) -> bool:
    """Whether the model contains more than other models of transformers."""
    return not any(isinstance(child, PreTrainedModel) for child in model.children())


def _configs(model: nn.Module) -> list[Any]:
    """Every configuration that modules of the model may read, each once."""
    configs: dict[int, Any] = {}
    attributes = map(vars, model.modules())
    waiting: list[Any] = [some["config"] for some in attributes if "config" in some]
    while waiting:
        config = waiting.pop()
        if id(config) in configs or not hasattr(config, "_attn_implementation_internal"):
            continue
        configs[id(config)] = config
        waiting += [getattr(config, name, None) for name in config.sub_configs]
    return list(configs.values())
