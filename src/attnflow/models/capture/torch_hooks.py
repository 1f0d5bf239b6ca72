"""Hooks on `scaled_dot_product_attention`, for plain torch models.

They see every caller of that function: `nn.MultiheadAttention`, the layers of `nn.Transformer`,
fused attention in timm, and models written from scratch. PyTorch has a fast path for inference that
computes whole layers in one kernel and skips padding; it is off while hooks are registered, so the
output at padding may differ.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from threading import RLock, get_ident
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from attnflow.errors import InputError
from attnflow.models.capture.call import DotProductCall, Observer, ReturnedCall, prefers_weights

_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
_FORWARD = signature(nn.MultiheadAttention.forward)

# The functions of torch are replaced for the whole process.
_switch_lock = RLock()


@contextmanager
def observe_model(model: nn.Module, observer: Observer) -> Iterator[None]:
    """Show every attention call of the model to the observer, and remove the hooks afterwards."""
    mode = _ObservedAttention(observer)
    hooks = []
    with _switch_lock:
        try:
            for module in model.modules():
                if isinstance(module, nn.MultiheadAttention):
                    hooks += [
                        module.register_forward_pre_hook(mode.enter, with_kwargs=True),
                        module.register_forward_hook(mode.leave),
                    ]
            with mode:
                yield
        finally:
            for hook in hooks:
                hook.remove()


@dataclass
class _RunningModule:
    """An nn.MultiheadAttention that is running, and the weights that it has to return."""

    module: nn.Module
    needs_weights: bool
    averages_heads: bool
    weights: Tensor | None = None


class _ObservedAttention(TorchFunctionMode):
    """While active, shows every scaled dot-product attention of this thread to the observer."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer
        self.running: list[_RunningModule] = []  # innermost last

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            return self.attend(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            with self._replace_function():
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    @contextmanager
    def _replace_function(self) -> Iterator[None]:
        """Replace the function itself: torch disables this mode inside its own functions."""
        thread = get_ident()

        def attend(*args: Any, **kwargs: Any) -> Any:
            function = self.attend if get_ident() == thread else scaled_dot_product_attention
            return function(*args, **kwargs)

        functional.scaled_dot_product_attention = attend
        try:
            yield
        finally:
            functional.scaled_dot_product_attention = scaled_dot_product_attention

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        """Show one call to the observer, and return the output of the layer."""
        running = self.running[-1] if self.running else None
        arguments = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
        call = _make_call(arguments, None if running is None else running.module)
        if running is not None and running.needs_weights:
            running.weights = call.weights().to(call.query.dtype)
        self.observer(call)
        output = call.output
        if output is None:
            output = scaled_dot_product_attention(*args, **kwargs)
        return call.finish(output)

    def enter(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Before an nn.MultiheadAttention runs: set need_weights=False, which uses the function."""
        bound = _FORWARD.bind(module, *args, **kwargs)
        bound.apply_defaults()
        self.running.append(
            _RunningModule(
                module, bound.arguments["need_weights"], bound.arguments["average_attn_weights"]
            )
        )
        bound.arguments["need_weights"] = False
        return bound.args[1:], bound.kwargs

    def leave(self, _module: nn.Module, args: Any, output: Any) -> Any:
        """After an nn.MultiheadAttention ran: add the weights that its caller asked for."""
        running = self.running.pop()
        weights = running.weights
        if weights is None:
            return output
        if not args[0].is_nested and args[0].dim() == 2:  # without a batch
            weights = weights[0]
        return output[0], weights.mean(-3) if running.averages_heads else weights


class ObservedProducts(TorchFunctionMode):
    """While active, shows products of attention weights and values to the observer.

    For models that compute attention step by step: a softmax, perhaps dropout, and a product with
    the values, whose batch and heads may be one axis. batch: the size of the batch.
    """

    KEEP = frozenset({"dropout", "to", "type_as", "float", "half", "view", "reshape"})

    def __init__(self, observer: Observer, batch: int) -> None:
        super().__init__()
        self.observer = observer
        self.batch = batch
        self.n_calls = 0
        self.weights: dict[int, Tensor] = {}  # kept, so that no id is used twice

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor):
            return result
        name = getattr(func, "__name__", "").strip("_")
        if name == "softmax" and result.dim() in (3, 4):
            self.weights = {id(result): result}
        elif args and id(args[0]) in self.weights:
            if name in self.KEEP:
                self.weights[id(result)] = result
            elif name in {"matmul", "bmm"}:
                self._show(args[0], args[1], result)
        return result

    def _show(self, weights: Tensor, values: Tensor, output: Tensor) -> None:
        batched = [
            tensor.reshape(self.batch, -1, *tensor.shape[-2:]) for tensor in (weights, values)
        ]
        call = ReturnedCall(batched[0], value=batched[1])
        self.weights = {}
        self.n_calls += 1
        self.observer(call)
        call.finish(output)


def _make_call(arguments: dict[str, Any], module: nn.Module | None) -> DotProductCall:
    """The call for these arguments of scaled_dot_product_attention."""
    if arguments.get("dropout_p"):
        raise InputError(
            f"attention runs with dropout {arguments['dropout_p']} in evaluation mode",
            expected="no dropout, since it changes the weights at random",
            fix="Call scaled_dot_product_attention with dropout_p=0 unless self.training.",
        )
    query, mask, scale = arguments["query"], arguments.get("attn_mask"), arguments.get("scale")
    if query.dim() != 4 or arguments["key"].dim() != 4:
        raise InputError(
            f"attention runs on queries of shape {list(query.shape)}",
            expected="[batch, heads, queries, width]",
            fix="Add a batch axis to the inputs; one example is a batch of size 1.",
        )
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
    return DotProductCall(
        module=module,
        query=query,
        key=arguments["key"],
        value=arguments["value"],
        scaling=query.shape[-1] ** -0.5 if scale is None else scale,
        mask=mask,
        causal=bool(arguments.get("is_causal", False)),
        output_from_weights=prefers_weights(query, mask),
    )
