"""The steps between attention and the residual stream that are followed, as affine maps.

`STEPS` has the operations of torch by name, each with a function from a followed tensor and the
arguments of the operation to the map so far. `residual_stream` applies them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from attnflow.models.capture.affine import Affine
from attnflow.models.capture.call import AttentionCall


@dataclass(eq=False)
class TracedLayer:
    """One attention layer: its call, and how its output enters the residual stream.

    index: of the layer, from 0.
    branch: the map from the heads' output [batch, positions, heads * width] to what is added.
    residual: [batch, positions, hidden], the residual stream that it is added to.
    added: [batch, positions, hidden], what the model itself added for this layer.
    norms: the normalization of the sum, in models with post-normalization; then, if a feed-forward
    layer follows, the normalization after that layer.
    normalized: the sum after its normalization.
    """

    call: AttentionCall
    index: int
    branch: Affine | None = None
    residual: Tensor | None = None
    added: Tensor | None = None
    norms: list[Affine] = field(default_factory=list)
    normalized: Tensor | None = None

    @property
    def positions(self) -> tuple[int, int]:
        """The sizes of the batch and of the positions."""
        return self.call.shape[0], self.call.shape[2]


# What a followed tensor is: attention on its way to the residual stream; the mean of that over its
# features; the stream after the sum, possibly normalized; the stream after the feed-forward layer,
# if it is normalized before the next layer ("block"), or left as it is ("tail").
Stage: TypeAlias = Literal["branch", "mean", "stream", "block", "tail"]


@dataclass(frozen=True, eq=False)
class Followed:
    """A tensor that is followed, and its map from the start of its stage.

    sequence_first: whether its axes are [positions, batch, ...].
    features_first: whether its axes are [batch, features, positions].
    addend: the branch of attention alone, if another branch was added to it.
    beside: branches of other layers that were added to it, as in blocks with two mixers.
    """

    tensor: Tensor
    layer: TracedLayer
    stage: Stage
    map: Affine
    sequence_first: bool = False
    features_first: bool = False
    addend: Tensor | None = None
    beside: "tuple[Followed, ...]" = ()

    @property
    def alone(self) -> Tensor:
        """The branch of attention, without other branches that were added to it."""
        return self.tensor if self.addend is None else self.addend

    def batched(self, tensor: Tensor) -> Tensor:
        """A tensor with the axes of this one, as [batch, positions, features]."""
        if self.sequence_first:
            tensor = tensor.transpose(0, 1)
        if self.features_first:
            tensor = tensor.transpose(1, 2)
        return tensor.detach().reshape(*self.layer.positions, -1)


def _project(source: Followed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Affine | None:
    """F.linear(input, weight, bias)."""
    weight = args[1] if len(args) > 1 else kwargs["weight"]
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    return source.map.project(weight.T, bias) if args[0] is source.tensor else None


def _add_product(source: Followed, args: tuple[Any, ...], _: dict[str, Any]) -> Affine | None:
    """torch.addmm(bias, input, weight)."""
    return source.map.project(args[2], args[0]) if args[1] is source.tensor else None


def _multiply_matrix(source: Followed, args: tuple[Any, ...], _: dict[str, Any]) -> Affine | None:
    """torch.matmul(input, weight)."""
    fits = args[0] is source.tensor and args[1].dim() == 2
    return source.map.project(args[1], None) if fits else None


def _multiply(source: Followed, args: tuple[Any, ...], _: dict[str, Any]) -> Affine | None:
    return _scale(source, args[1] if args[0] is source.tensor else args[0])


def _divide(source: Followed, args: tuple[Any, ...], _: dict[str, Any]) -> Affine | None:
    return _scale(source, 1 / args[1]) if args[0] is source.tensor else None


def _negate(source: Followed, _args: tuple[Any, ...], _: dict[str, Any]) -> Affine | None:
    return _scale(source, -1.0)


def _scale(source: Followed, factor: Any) -> Affine | None:
    """Multiply by a number, or by a factor for each position, feature, or both."""
    batch, n = positions = source.layer.positions
    if not isinstance(factor, Tensor) or factor.numel() == 1:
        return source.map.multiply(factor, positions)
    tensor = source.tensor
    if source.features_first:
        if factor.dim() != 3:
            return None
        tensor, factor = tensor.transpose(1, 2), factor.transpose(1, 2)
    n_features = tensor.numel() // (batch * n)
    by_head = tensor.shape[-1] < n_features  # the axis of heads is still there
    if by_head and (tensor.shape[:2] == (batch, n) or tensor.dim() == 2):
        whole = factor.broadcast_to(tensor.shape).reshape(batch, n, n_features)
        is_same = factor.numel() == factor.shape[-1]  # at all positions and heads
        return source.map.multiply(whole[0, 0] if is_same else whole, positions)
    if factor.dim() > 1:
        is_same = factor.numel() == factor.shape[-1]
        if tensor.shape[:2] == (batch, n) and factor.numel() > batch * n and not is_same:
            factor = factor.broadcast_to(tensor.shape)
        elif factor.dim() == 3 and source.sequence_first:
            factor = factor.transpose(0, 1)
    return source.map.multiply(factor, positions)


def _layer_norm(source: Followed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Affine | None:
    """F.layer_norm(input, normalized_shape, weight, bias, eps), with its statistics frozen."""
    bound = _LAYER_NORM.bind(*args, **kwargs)
    bound.apply_defaults()
    value = source.batched(source.tensor)
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    deviation = (value.var(-1, unbiased=False, keepdim=True) + bound.arguments["eps"]).rsqrt()
    return _normalized(source.map.center(), deviation, source, bound.arguments)


def _rms_norm(source: Followed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Affine | None:
    """F.rms_norm(input, normalized_shape, weight, eps), with its statistics frozen."""
    bound = _RMS_NORM.bind(*args, **kwargs)
    bound.apply_defaults()
    value = source.batched(source.tensor)
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    eps = bound.arguments["eps"] or torch.finfo(source.tensor.dtype).eps
    length = (value.square().mean(-1, keepdim=True) + eps).rsqrt()
    return _normalized(source.map, length, source, bound.arguments)


def _normalized(
    step: Affine | None, scale: Tensor, source: Followed, arguments: dict[str, Any]
) -> Affine | None:
    """Follow a map by a factor per position, then by weight and bias of the normalization."""
    step = step and step.multiply(scale, source.layer.positions)
    for name in ("weight", "bias"):
        value = arguments.get(name)
        if step is not None and value is not None:
            is_weight = name == "weight"
            step = step.multiply(value, source.layer.positions) if is_weight else step.add(value)
    return step


_LAYER_NORM = signature(functional.layer_norm)
_RMS_NORM = signature(functional.rms_norm)

PROJECTIONS: dict[str, Callable[..., Affine | None]] = {
    "linear": _project,
    "addmm": _add_product,
    "matmul": _multiply_matrix,
}
STEPS: dict[str, Callable[..., Affine | None]] = {
    **PROJECTIONS,
    "mul": _multiply,
    "div": _divide,
    "neg": _negate,
    "mean": lambda *_: None,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
