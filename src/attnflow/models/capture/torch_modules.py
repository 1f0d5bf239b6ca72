"""Seeing every layer's attention in plain torch models.

Whatever calls `scaled_dot_product_attention` is seen: `nn.MultiheadAttention`, the layers of
`nn.Transformer`, timm's fused attention, and models written by hand. PyTorch's fast path for
inference, which computes whole layers in one kernel and leaves padding out, keeps away while calls
are watched or hooks are there; what a model returns at padding may differ by that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from threading import RLock, get_ident
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from attnflow.errors import InputError
from attnflow.models.capture.call import DotProduct, Observer, prefers_weights

_DOT_PRODUCT = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
_FORWARD = signature(nn.MultiheadAttention.forward)

# The functions of torch are there once for the whole process.
_switching = RLock()


class _Watch(TorchFunctionMode):
    """While active, shows every scaled dot-product attention of this thread to the observer."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer
        self.running: list[_Running] = []  # nn.MultiheadAttention modules, innermost last

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            return self.attend(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            with self._inside():
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """See what a function of torch calls, while torch has this mode switched off for it."""
        thread = get_ident()

        def attend(*args: Any, **kwargs: Any) -> Any:
            chosen = self.attend if get_ident() == thread else scaled_dot_product_attention
            return chosen(*args, **kwargs)

        functional.scaled_dot_product_attention = attend
        try:
            yield
        finally:
            functional.scaled_dot_product_attention = scaled_dot_product_attention

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        """Show one call to the observer, and compute its output."""
        running = self.running[-1] if self.running else None
        given = dict(zip(_DOT_PRODUCT, args, strict=False)) | kwargs
        call = _as_call(given, None if running is None else running.module)
        if running is not None and running.needs_weights:
            running.weights = call.weights().to(call.query.dtype)
        output = self.observer(call)
        return scaled_dot_product_attention(*args, **kwargs) if output is None else output

    def enter(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Before a MultiheadAttention runs: keep it from the road that does without the kernel."""
        given = _FORWARD.bind(module, *args, **kwargs)
        given.apply_defaults()
        self.running.append(
            _Running(
                module, given.arguments["need_weights"], given.arguments["average_attn_weights"]
            )
        )
        given.arguments["need_weights"] = False
        return given.args[1:], given.kwargs

    def leave(self, _module: nn.Module, args: Any, output: Any) -> Any:
        """After it ran: put the weights in that the model asked for."""
        running = self.running.pop()
        weights = running.weights
        if weights is None:
            return output
        if not args[0].is_nested and args[0].dim() == 2:  # without a batch
            weights = weights[0]
        return output[0], weights.mean(-3) if running.averages else weights


class _Running:
    """A MultiheadAttention that is running, and the weights it shall return."""

    def __init__(self, module: nn.Module, needs_weights: bool, averages: bool) -> None:
        self.module = module
        self.needs_weights = needs_weights
        self.averages = averages
        self.weights: Tensor | None = None


def _as_call(given: dict[str, Any], module: nn.Module | None) -> DotProduct:
    if given.get("dropout_p"):
        raise InputError(
            f"attention runs with dropout {given['dropout_p']}",
            expected="none, since dropped weights are not the model's attention",
            fix="Call model.eval() first.",
        )
    query, mask, scale = given["query"], given.get("attn_mask"), given.get("scale")
    if query.dim() != 4 or given["key"].dim() != 4:
        raise InputError(
            f"attention runs on queries of shape {list(query.shape)}",
            expected="[batch, heads, queries, width]",
            fix="Give the model a batch, if only of one example.",
        )
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
    return DotProduct(
        module=module,
        query=query,
        key=given["key"],
        value=given["value"],
        scaling=query.shape[-1] ** -0.5 if scale is None else scale,
        mask=mask,
        causal=bool(given.get("is_causal", False)),
        wants_output=prefers_weights(query, mask),
    )


@contextmanager
def watched(model: nn.Module, observer: Observer) -> Iterator[None]:
    """Show every call of attention in the model to the observer, and leave no trace."""
    watch = _Watch(observer)
    hooks = []
    with _switching:
        try:
            for module in model.modules():
                if isinstance(module, nn.MultiheadAttention):
                    hooks += [
                        module.register_forward_pre_hook(watch.enter, with_kwargs=True),
                        module.register_forward_hook(watch.leave),
                    ]
            with watch:
                yield
        finally:
            for hook in hooks:
                hook.remove()
