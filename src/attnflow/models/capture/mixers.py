"""Layers that mix positions without attention: state spaces, linear attention, convolutions.

Hybrid models have such layers beside attention. Their kernels, functions in the modules of
transformers, are linear in their values, with decays and gates as they are: for each head,
output_i = sum_j M_ij value_j. `observe_mixers` applies a kernel to unit vectors, which gives M, and
shows it as a `MixingCall`. Weights of M can be negative. What a short convolution before the kernel
mixes belongs to the value. A layer whose kernel is not known is shown as a `ResidualOnlyCall`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from inspect import signature
from threading import RLock, get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnflow.models.capture.call import ALL, AttentionCall, Observer, Scratch

# Endings of the names of classes.
ENDINGS = (
    "ConvolutionModule",
    "DeltaAttention",
    "GatedDeltaNet",
    "LightningAttention",
    "LinearAttention",
    "MambaLayer",
    "Mixer",
    "RecurrentBlock",
    "RwkvSelfAttention",
    "ShortConv",
)
BLOCK_SIZE = 2**24  # numbers that a kernel may hold at once for unit vectors

# One observed pass at a time: the first to end would restore the kernels while the second runs.
_switch_lock = RLock()


class Kernel(NamedTuple):
    """A function that mixes values. values: the name of their argument.

    by_channel: whether values are [batch, channels, positions], and each channel is mixed by a
    matrix of its own; otherwise they are [batch, positions, heads, width].
    states: arguments that must be None, since they would add to the output.
    repeated: arguments [batch, ...] other than values, for kernels by channel.
    """

    values: str
    by_channel: bool = False
    states: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()


KERNELS = {
    "torch_chunk_gated_delta_rule": Kernel("value", states=("initial_state",)),
    "chunk_kimi_delta_attention": Kernel("value", states=("initial_state",)),
    "mamba2_chunk_scan": Kernel("hidden_states", states=("initial_states",)),
    "mamba_selective_scan": Kernel(
        "hidden_states", by_channel=True, repeated=("dt", "B", "C", "z")
    ),
}
# The kernel of layers that consist of a convolution; elsewhere it comes before another kernel.
CONVOLUTION = "causal_conv1d_fn"
CONVOLUTION_KERNEL = Kernel("hidden_states", by_channel=True, states=("bias", "activation"))


@dataclass(eq=False)
class MixingCall(AttentionCall):
    """A layer that mixes the values of positions by matrices that do not come from a softmax.

    matrices: [batch, heads, queries, keys]; they can be negative, and rows have any sum.
    value: [batch, heads, keys, width]. features_first: whether the layer returns channels before
    positions.
    """

    module: nn.Module | None
    matrices: Tensor
    value: Tensor
    features_first: bool = False
    signed = True

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes [batch, heads, queries, keys]."""
        batch, heads, queries, keys = self.matrices.shape
        return batch, heads, queries, keys

    @property
    def device(self) -> torch.device:
        """The device of the matrices."""
        return self.matrices.device

    def weights(
        self,
        heads: slice = ALL,
        rows: slice = ALL,
        scratch: Scratch | None = None,  # noqa: ARG002
    ) -> Tensor:
        """The matrices [batch, heads, queries, keys] of some heads and queries."""
        return self.matrices[:, heads, rows]

    def set_output(self, weights: Tensor) -> None:
        """Compute the output of the layer from the matrices of all heads."""
        self.output = weights.to(self.value.dtype) @ self.value


@dataclass(eq=False)
class ResidualOnlyCall(AttentionCall):
    """A layer that mixes positions in a way that is not known: only its residual counts.

    n_examples, n_positions: the sizes of its input. place: the device.
    """

    module: nn.Module | None
    n_examples: int
    n_positions: int
    place: torch.device
    value = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes [batch, heads, queries, keys], with one head."""
        return self.n_examples, 1, self.n_positions, self.n_positions

    @property
    def device(self) -> torch.device:
        """The device of the layer."""
        return self.place

    def weights(
        self,
        heads: slice = ALL,
        rows: slice = ALL,
        scratch: Scratch | None = None,  # noqa: ARG002
    ) -> Tensor:
        """The identity: each position attends to itself."""
        identity = torch.eye(self.n_positions, device=self.place)
        return identity.repeat(self.n_examples, 1, 1, 1)[:, heads, rows]

    def set_output(self, weights: Tensor) -> None:
        """Do nothing: the output does not come from the weights."""


def find_mixers(model: nn.Module) -> list[nn.Module]:
    """The modules of a model that mix positions without attention, by the name of their class."""
    return [module for module in model.modules() if type(module).__name__.endswith(ENDINGS)]


@dataclass
class _Running:
    """What runs in the observed thread: mixers, innermost last, and the calls seen so far."""

    observer: Observer
    thread: int = field(default_factory=get_ident)
    mixers: list[nn.Module] = field(default_factory=list)
    calls_before: list[int] = field(default_factory=list)
    n_calls: int = 0

    def observe(self, call: AttentionCall) -> None:
        """Show a call of any kind."""
        self.n_calls += 1
        self.observer(call)

    def enter(self, module: nn.Module, _args: Any) -> None:
        """Before a mixer runs."""
        if get_ident() == self.thread:
            self.mixers.append(module)
            self.calls_before.append(self.n_calls)

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        """After a mixer has run: if nothing was seen of it, only its residual counts."""
        if get_ident() != self.thread:
            return
        self.mixers.pop()
        if self.n_calls > self.calls_before.pop() or result is None:
            return
        tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        entering = next((tensor for tensor in tensors if tensor.dim() == 3), None)
        if entering is not None:
            batch, n = entering.shape[:2]
            self.observe(ResidualOnlyCall(module, batch, n, entering.device))


@contextmanager
def observe_mixers(model: nn.Module, observer: Observer) -> Iterator[Observer]:
    """Show layers that mix positions without attention to the observer, in a block.

    Yields the observer to use for attention layers, so that the two are not mixed up.
    """
    mixers = find_mixers(model)
    if not mixers:
        yield observer
        return
    running = _Running(observer)
    hooks = []
    for module in mixers:
        hooks.append(module.register_forward_pre_hook(running.enter))
        hooks.append(
            module.register_forward_hook(running.leave, with_kwargs=True, always_call=True)
        )
    with _switch_lock:
        kernels = _find_kernels(mixers)
        try:
            for (place, name), (function, kernel) in kernels.items():
                setattr(sys.modules[place], name, _wrap_kernel(running, function, kernel))
            yield running.observe
        finally:
            for (place, name), (function, _) in kernels.items():
                setattr(sys.modules[place], name, function)
            for hook in hooks:
                hook.remove()


def _find_kernels(
    mixers: list[nn.Module],
) -> dict[tuple[str, str], tuple[Callable[..., Any], Kernel]]:
    """The kernels in the modules that define the mixers, by module and name."""
    kernels = {}
    for mixer in mixers:
        place = type(mixer).__module__
        known = {name: kernel for name, kernel in KERNELS.items() if _has(place, name)}
        if not known and type(mixer).__name__.endswith("ShortConv") and _has(place, CONVOLUTION):
            known = {CONVOLUTION: CONVOLUTION_KERNEL}
        for name, kernel in known.items():
            kernels[place, name] = getattr(sys.modules[place], name), kernel
    return kernels


def _has(place: str, name: str) -> bool:
    return callable(getattr(sys.modules.get(place), name, None))


def _wrap_kernel(
    running: _Running, function: Callable[..., Any], kernel: Kernel
) -> Callable[..., Any]:
    """A kernel that computes the same, and shows what it mixes."""

    @wraps(function)
    def compute(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if get_ident() != running.thread or not running.mixers:
            return result
        bound = signature(function).bind(*args, **kwargs)
        arguments = dict(bound.arguments)
        options = arguments.pop("kwargs", {})  # the name that transformers uses
        has_state = any(arguments.get(name) is not None for name in kernel.states)
        if has_state or not isinstance(arguments.get(kernel.values), Tensor):
            return result
        run = partial(_run_kernel, function, {**arguments, **options})
        output = result[0] if isinstance(result, tuple) else result
        observed = _observe_kernel(running, kernel, arguments, run, output)
        return (observed, *result[1:]) if isinstance(result, tuple) else observed

    return compute


def _run_kernel(
    function: Callable[..., Any], arguments: Mapping[str, Any], **changed: Any
) -> Tensor:
    """The output of a kernel, with some arguments changed."""
    result = function(**{**arguments, **changed})
    output: Tensor = result[0] if isinstance(result, tuple) else result
    return output


def _observe_kernel(
    running: _Running,
    kernel: Kernel,
    arguments: Mapping[str, Any],
    run: Callable[..., Tensor],
    output: Tensor,
) -> Tensor:
    """Show what a kernel mixes, and return its output, or the one that the observer sets."""
    values: Tensor = arguments[kernel.values]
    with torch.no_grad():
        if kernel.by_channel:
            repeated = {
                name: arguments[name]
                for name in kernel.repeated
                if isinstance(arguments.get(name), Tensor)
            }
            matrices = _mix_channels(values, repeated, partial(_rename, run, kernel.values))
        else:
            matrices = _mix_heads(values, partial(_rename, run, kernel.values))
    heads = values.unsqueeze(-1) if kernel.by_channel else values.transpose(1, 2)
    matrices *= (heads != 0).any(-1).unsqueeze(2)  # masked positions have no value
    call = MixingCall(running.mixers[-1], matrices, heads, features_first=kernel.by_channel)
    running.observe(call)
    if call.output is None:
        return call.finish(output)
    own = call.output.squeeze(-1) if kernel.by_channel else call.output.transpose(1, 2)
    return call.finish(own.to(output.dtype).contiguous())


def _rename(run: Callable[..., Tensor], name: str, values: Tensor, **changed: Tensor) -> Tensor:
    return run(**{name: values}, **changed)


def _mix_heads(values: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """The matrices [batch, heads, queries, keys] of a kernel, from unit vectors as values.

    values: [batch, positions, heads, width]. The unit vectors of `width` positions at a time.
    """
    batch, n, heads, width = values.shape
    columns = []
    for first in range(0, n, width):
        unit = torch.zeros(n, width, dtype=values.dtype, device=values.device)
        chosen = torch.arange(first, min(first + width, n), device=values.device)
        unit[chosen, chosen - first] = 1
        mixed = run(unit[None, :, None].expand(batch, n, heads, width).contiguous())
        columns.append(mixed.transpose(1, 2)[..., : len(chosen)].float())
    return torch.cat(columns, dim=-1)


def _mix_channels(
    values: Tensor, repeated: Mapping[str, Tensor], run: Callable[..., Tensor]
) -> Tensor:
    """The matrices [batch, channels, queries, keys] of a kernel, from unit vectors as values.

    values: [batch, channels, positions]. Some keys at a time, each as an example of a batch.
    """
    batch, channels, n = values.shape
    step = max(BLOCK_SIZE // (batch * channels * n * 16), 1)  # a state has about 16 numbers
    matrices = torch.empty(batch, channels, n, n, device=values.device)
    for first in range(0, n, step):
        keys = torch.arange(first, min(first + step, n), device=values.device)
        unit = torch.zeros(len(keys), n, dtype=values.dtype, device=values.device)
        unit[torch.arange(len(keys), device=values.device), keys] = 1
        unit = unit[None, :, None].expand(batch, len(keys), channels, n).flatten(0, 1)
        copies = {name: part.repeat_interleave(len(keys), 0) for name, part in repeated.items()}
        mixed = run(unit.contiguous(), **copies).reshape(batch, len(keys), channels, n)
        matrices[..., keys] = mixed.permute(0, 2, 3, 1).float()
    return matrices
