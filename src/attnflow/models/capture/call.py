"""One call of attention: queries, keys and values of all heads, and the weights they give.

Whoever runs the model makes one `AttentionCall` for each layer that runs. An observer looks at it,
and may return the output itself if it had to compute it another way.

Memory to compute block after block in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn


class Scratch:
    """Memory that is used again and again: fresh memory costs more than the arithmetic in it."""

    def __init__(self) -> None:
        self.held: dict[int, Tensor] = {}

    def take(self, place: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of this shape, of the type and on the device of `like`; its values are random.

        There is one for each place at a time.
        """
        size = prod(shape)
        if place not in self.held or self.held[place].numel() < size:
            self.held[place] = like.new_empty(size)
        return self.held[place][:size].view(shape)


# How many weights are computed at a time: on a CPU they should stay in its cache, while a GPU needs
# enough of them to be busy.
BLOCK_SIZE = {"cpu": 2**18, "cuda": 2**25}

Observer: TypeAlias = "Callable[[AttentionCall], Tensor | None]"


class AttentionCall(ABC):
    """One layer that runs. module: its attention module, or None where that is not known."""

    module: nn.Module | None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of [batch, heads, queries, keys]."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the weights are computed."""

    @abstractmethod
    def weights(
        self,
        heads: slice = slice(None),
        rows: slice = slice(None),
        scratch: Scratch | None = None,
    ) -> Tensor:
        """The weights [batch, heads, queries, keys] of some heads and queries, at least float32.

        scratch: memory to compute in; what was computed in it before is lost.
        """

    @abstractmethod
    def output(self, weights: Tensor) -> Tensor | None:
        """The values [batch, heads, queries, width] that the weights of all heads add up to.

        None where the model has computed them already.
        """

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Heads and queries in blocks of bounded size, all heads of some queries in turn."""
        batch, n_heads, n_queries, n_keys = self.shape
        size = BLOCK_SIZE.get(self.device.type, BLOCK_SIZE["cuda"])
        rows = min(max(size // (batch * n_keys), 1), n_queries)
        heads = min(max(size // (batch * n_keys * rows), 1), n_heads)
        for row in range(0, n_queries, rows):
            for head in range(0, n_heads, heads):
                yield slice(head, head + heads), slice(row, row + rows)


@dataclass(frozen=True, eq=False)
class Returned(AttentionCall):
    """The weights [batch, heads, queries, keys] that a model returned.

    role: "self", "encoder", "decoder" or "cross".
    """

    returned: Tensor
    role: str = "self"
    module: nn.Module | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of [batch, heads, queries, keys]."""
        batch, heads, queries, keys = self.returned.shape
        return batch, heads, queries, keys

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.returned.device

    def weights(
        self,
        heads: slice = slice(None),
        rows: slice = slice(None),
        scratch: Scratch | None = None,  # noqa: ARG002
    ) -> Tensor:
        """The weights of some heads and queries."""
        return self.returned[:, heads, rows].to(_at_least_float32(self.returned))

    def output(self, weights: Tensor) -> None:
        """None: the model has run."""


@dataclass(frozen=True, eq=False)
class DotProduct(AttentionCall):
    """What one layer attends with, after rotary positions.

    query: [batch, heads, queries, width].
    key, value: [batch, key heads, keys, width]; each key head serves as many query heads.
    scaling: what the products of queries and keys are multiplied with.
    mask: None, or of a shape that fits [batch, heads, queries, keys]: true where a key is visible,
    or numbers to add.
    causal: whether queries see no later keys, in addition to the mask.
    position_bias: numbers to add, as in T5.
    softcap: scores are squeezed between -softcap and softcap, as in Gemma 2.
    sinks: [heads], scores of a key that is no token and has no value, as in GPT-OSS.
    wants_output: whether the output may as well come from the weights, should all be computed.
    """

    module: nn.Module | None
    query: Tensor
    key: Tensor
    value: Tensor
    scaling: float
    mask: Tensor | None = None
    causal: bool = False
    position_bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    wants_output: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of [batch, heads, queries, keys]."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.key.shape[2]

    @property
    def device(self) -> torch.device:
        """Where the queries are."""
        return self.query.device

    def weights(
        self,
        heads: slice = slice(None),
        rows: slice = slice(None),
        scratch: Scratch | None = None,
    ) -> Tensor:
        """The weights [batch, heads, queries, keys] of some heads and queries.

        Rows sum to 1, or to less where a sink takes a part. A query that sees no key, as padding
        may be, spreads its weight evenly, so that there is never a nan.
        """
        dtype = _at_least_float32(self.query)
        query = self._scaled_query[:, heads, rows]
        key = self.for_heads(self._columns_of_keys, heads)
        shape = (*query.shape[:3], key.shape[3])
        scores = torch.bmm(
            query.flatten(0, 1),
            key.flatten(0, 1),
            out=None if scratch is None else scratch.take(0, shape, query).flatten(0, 1),
        ).view(shape)
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        if self.position_bias is not None:
            scores = scores + _cut(self.position_bias, heads, rows).to(dtype)
        lowest = torch.finfo(dtype).min
        if self.mask is not None and self.mask.dtype != torch.bool:
            scores = scores + _cut(self.mask, heads, rows).to(dtype).clamp_min(lowest)
        visible = self.visible(heads, rows)
        if visible is not None:
            scores = scores.masked_fill(~visible, lowest)
        if self.sinks is None:
            return torch.softmax(
                scores, -1, out=None if scratch is None else scratch.take(1, shape, scores)
            )
        sinks = self.sinks[heads].to(dtype)[None, :, None, None]
        with_sink = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], -1)
        return with_sink.softmax(-1)[..., :-1]

    @cached_property
    def _scaled_query(self) -> Tensor:
        """[batch, heads, queries, width], laid out head by head once for all blocks."""
        return (self.query.to(_at_least_float32(self.query)) * self.scaling).contiguous()

    @cached_property
    def _columns_of_keys(self) -> Tensor:
        """[batch, key heads, width, keys], laid out head by head once for all blocks."""
        return self.key.to(_at_least_float32(self.query)).transpose(-1, -2).contiguous()

    def visible(self, heads: slice = slice(None), rows: slice = slice(None)) -> Tensor | None:
        """Where a boolean mask or causality lets keys be seen; None if it is everywhere.

        Fits [batch, heads, queries, keys].
        """
        visible = None
        if self.mask is not None and self.mask.dtype == torch.bool:
            visible = _cut(self.mask, heads, rows)
        if self.causal:
            n_queries, n_keys = self.shape[2:]
            places = torch.arange(max(n_queries, n_keys), device=self.query.device)
            earlier = places[:n_queries][rows, None] >= places[:n_keys]
            visible = earlier[None, None] if visible is None else visible & earlier
        return visible

    def output(self, weights: Tensor) -> Tensor:
        """The values [batch, heads, queries, width] that the weights of all heads add up to."""
        return weights.to(self.value.dtype) @ self.for_heads(self.value)

    def attended(self) -> Tensor:
        """The output [batch, heads, queries, width], block by block."""
        output = self.empty_output()
        scratch = Scratch()
        for heads, rows in self.blocks():
            self.attend(self.weights(heads, rows, scratch), heads, rows, output)
        return output

    def attend(self, weights: Tensor, heads: slice, rows: slice, output: Tensor) -> None:
        """Write what the weights of some heads and queries add up to into the output."""
        values = self.for_heads(self.value, heads)
        output[:, heads, rows] = weights.to(self.value.dtype) @ values

    def empty_output(self) -> Tensor:
        """Room for the output [batch, heads, queries, width], laid out as models expect it."""
        batch, n_heads, n_queries, _ = self.shape
        return self.value.new_empty(batch, n_queries, n_heads, self.value.shape[-1]).transpose(1, 2)

    def for_heads(self, tensor: Tensor, heads: slice = slice(None)) -> Tensor:
        """Keys or values [batch, key heads, ...] for each of the query heads."""
        n_heads = self.shape[1]
        shared = n_heads // tensor.shape[1]
        if shared == 1:
            return tensor[:, heads]
        return tensor[:, torch.arange(n_heads, device=tensor.device)[heads] // shared]


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _cut(tensor: Tensor, heads: slice, rows: slice) -> Tensor:
    """A part of [batch, heads, queries, keys], where axes of size 1 stand for all."""
    if tensor.shape[1] > 1:
        tensor = tensor[:, heads]
    return tensor[:, :, rows] if tensor.shape[2] > 1 else tensor


def pack_heads(output: Tensor) -> Tensor:
    """[batch, heads, queries, width] as models expect it: [batch, queries, heads, width]."""
    return output.transpose(1, 2).contiguous()


def prefers_weights(query: Tensor, mask: Tensor | None) -> bool:
    """Whether the output is got faster from weights that are there than from torch's kernel.

    It is on a CPU. The kernel has its own ways with half precision, and with queries that a mask
    leaves with nothing to see; there its output is taken.
    """
    half = query.dtype in (torch.float16, torch.bfloat16)
    return query.device.type == "cpu" and mask is None and not half


def describe_model(model: Any) -> str:
    """How messages name a model."""
    name = getattr(getattr(model, "config", None), "name_or_path", "")
    return f"{type(model).__name__} ({name})" if name else type(model).__name__
