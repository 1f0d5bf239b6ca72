"""One layer's attention while a model runs: an `AttentionCall`.

A hook makes one call for each attention layer that runs and shows it to an observer. The observer
asks the call for weights, and may set its `output`, which then becomes the output of the layer.
`DotProductCall` is the only place where attention weights are computed. Merging heads is in
`merge`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError

# How many weights are computed at a time. On a CPU they should stay in its cache; a GPU needs
# enough of them to be busy.
BLOCK_SIZE = {"cpu": 2**18, "cuda": 2**25}

ALL = slice(None)

Observer: TypeAlias = "Callable[[AttentionCall], object]"


class AttentionCall(ABC):
    """The attention of one layer, while the layer runs.

    model: the model that runs. layer: the name of the layer in messages, such as "layer 3".
    module: the attention module, or None if it is not known.
    value: [batch, key heads, keys, width], or None if the model only returned its weights.
    output: [batch, heads, queries, width], or None. If an observer sets it, the layer returns it
    and attention is not computed again.
    on_output: called with the output that the layer returns, whatever its order of axes.
    signed: whether weights can be negative, as in layers without softmax.
    features_first: whether that output is [batch, channels, positions].
    """

    model: nn.Module
    layer: str = "the layer"
    module: nn.Module | None
    value: Tensor | None
    output: Tensor | None = None
    on_output: Callable[[Tensor], None] | None = None
    signed: bool = False
    features_first: bool = False

    def finish(self, output: Tensor) -> Tensor:
        """Tell the observer which tensor the layer returns, and return it."""
        if self.on_output is not None:
            self.on_output(output)
        return output

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes [batch, heads, queries, keys]."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of the weights."""

    @abstractmethod
    def weights(
        self, heads: slice = ALL, rows: slice = ALL, scratch: "Scratch | None" = None
    ) -> Tensor:
        """Attention weights [batch, heads, queries, keys] of some heads and queries.

        They are float32, or float64 if the model is. scratch: memory to compute in; weights that
        were computed in it before are overwritten.
        """

    @abstractmethod
    def set_output(self, weights: Tensor) -> None:
        """Compute the output of the layer from the weights of all heads, if it has not run."""

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Slices of heads and of queries with at most BLOCK_SIZE weights, or one row.

        All heads of some queries come one after another.
        """
        batch, n_heads, n_queries, n_keys = self.shape
        size = BLOCK_SIZE.get(self.device.type, BLOCK_SIZE["cuda"])
        rows = min(max(size // (batch * n_keys), 1), n_queries)
        heads = min(max(size // (batch * n_keys * rows), 1), n_heads)
        for row in range(0, n_queries, rows):
            for head in range(0, n_heads, heads):
                yield slice(head, head + heads), slice(row, row + rows)

    def for_heads(self, tensor: Tensor, heads: slice = ALL) -> Tensor:
        """Repeat keys or values [batch, key heads, ...] for each of the query heads."""
        n_heads = self.shape[1]
        shared = n_heads // tensor.shape[1]
        if shared == 1:
            return tensor[:, heads]
        return tensor[:, torch.arange(n_heads, device=tensor.device)[heads] // shared]


@dataclass(eq=False)
class DotProductCall(AttentionCall):
    """Attention computed from queries, keys and values, after rotary embeddings.

    query: [batch, heads, queries, width].
    key, value: [batch, key heads, keys, width]; several query heads may share a key head.
    scaling: factor of the dot products.
    mask: None, or broadcastable to [batch, heads, queries, keys]: True where a key is visible, or
    numbers to add to the scores.
    causal: whether later keys are hidden, in addition to the mask.
    position_bias: numbers to add to the scores, as in T5.
    softcap: scores are squashed to between -softcap and softcap, as in Gemma 2.
    sinks: [heads], score of an additional key that has no value, as in GPT-OSS.
    output_from_weights: whether to compute the output from the weights when all of them are
    computed anyway, instead of by the attention kernel of torch.
    in_one_block: whether to compute the weights of all heads at once, which is faster for batches
    of short texts and takes more memory.
    known_weights: those of all heads and queries, if they were computed before.
    window: how far a query sees at most, or None; only a hint, since the mask says it exactly.
    logsumexp: [batch, heads, queries], of the scores of each query, if it is known.
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
    output_from_weights: bool = False
    in_one_block: bool = False
    known_weights: Tensor | None = None
    window: int | None = None
    logsumexp: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes [batch, heads, queries, keys]."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.key.shape[2]

    @property
    def device(self) -> torch.device:
        """The device of the queries."""
        return self.query.device

    def weights(
        self, heads: slice = ALL, rows: slice = ALL, scratch: "Scratch | None" = None
    ) -> Tensor:
        """Attention weights [batch, heads, queries, keys] of some heads and queries.

        Rows sum to 1, or to less if there is a sink. A query that sees no key, such as padding,
        attends to all keys equally, so weights are never nan.
        """
        if self.known_weights is not None:
            return self.known_weights[:, heads, rows]
        scores = self._scores(heads, rows, scratch)
        if self.sinks is None:
            out = None if scratch is None else scratch.take(1, tuple(scores.shape), scores)
            return torch.softmax(scores, -1, out=out)
        sinks = self.sinks[heads].to(scores.dtype)[None, :, None, None]
        with_sink = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], -1)
        return with_sink.softmax(-1)[..., :-1]

    def _scores(self, heads: slice, rows: slice, scratch: "Scratch | None") -> Tensor:
        """Masked scores [batch, heads, queries, keys], before the softmax."""
        # Contiguous, so that the product needs no copies.
        query = self.query[:, heads, rows].to(_at_least_float32(self.query)) * self.scaling
        query = query.contiguous()
        key = self.for_heads(self._key_columns, heads)
        shape = (*query.shape[:3], key.shape[3])
        scores = torch.bmm(
            query.flatten(0, 1),
            key.flatten(0, 1),
            out=None if scratch is None else scratch.take(0, shape, query).flatten(0, 1),
        ).view(shape)
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        # In place: autograd needs neither the result of a matrix product nor that of a scaling.
        if self.position_bias is not None:
            scores.add_(_cut(self.position_bias, heads, rows))
        lowest = torch.finfo(scores.dtype).min
        if self.mask is not None and self.mask.dtype != torch.bool:
            added = _cut(self.mask, heads, rows).to(scores.dtype)
            scores.add_(added.clamp_min(lowest))
        visible = self.visible(heads, rows)
        if visible is not None:
            scores.masked_fill_(visible.logical_not(), lowest)
        return scores

    @cached_property
    def _key_columns(self) -> Tensor:
        """[batch, key heads, width, keys]; contiguous for blocks, which use it again and again."""
        key = self.key.to(_at_least_float32(self.query))
        if self.in_one_block:
            return key.contiguous().transpose(-1, -2)
        return key.transpose(-1, -2).contiguous()

    def visible(self, heads: slice = ALL, rows: slice = ALL) -> Tensor | None:
        """Whether a boolean mask and causality let queries see keys; None if all are visible.

        Returns a tensor that broadcasts to [batch, heads, queries, keys].
        """
        visible = None
        if self.mask is not None and self.mask.dtype == torch.bool:
            visible = _cut(self.mask, heads, rows)
        if self.causal:
            n_queries, n_keys = self.shape[2:]
            positions = torch.arange(max(n_queries, n_keys), device=self.query.device)
            earlier = positions[:n_queries][rows, None] >= positions[:n_keys]
            visible = earlier[None, None] if visible is None else visible & earlier
        return visible

    def set_output(self, weights: Tensor) -> None:
        """Compute the output of the layer from the weights of all heads."""
        self.output = weights.to(self.value.dtype) @ self.for_heads(self.value)

    def write_output(self, weights: Tensor, heads: slice, rows: slice) -> None:
        """Compute a block of the output of the layer from the weights of that block."""
        if self.output is None:
            batch, n_heads, n_queries, _ = self.shape
            # In memory [batch, queries, heads, width], which `pack_heads` then need not copy.
            packed = self.value.new_empty(batch, n_queries, n_heads, self.value.shape[-1])
            self.output = packed.transpose(1, 2)
        values = self.for_heads(self.value, heads)
        self.output[:, heads, rows] = weights.to(self.value.dtype) @ values

    def compute_output(self) -> Tensor:
        """Compute the output [batch, heads, queries, width] of the layer, block by block."""
        scratch = Scratch()
        for heads, rows in self.blocks():
            self.write_output(self.weights(heads, rows, scratch), heads, rows)
        assert self.output is not None
        return self.output


@dataclass(eq=False)
class ReturnedCall(AttentionCall):
    """Attention weights that a model computed by itself: queries and keys are not known.

    returned: [batch, heads, queries, keys]. role: "self", "encoder", "decoder" or "cross".
    value: [batch, heads, keys, width], if the product of weights and values was observed.
    """

    returned: Tensor
    role: str = "self"
    module: nn.Module | None = None
    value: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes [batch, heads, queries, keys]."""
        batch, heads, queries, keys = self.returned.shape
        return batch, heads, queries, keys

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.returned.device

    def weights(
        self,
        heads: slice = ALL,
        rows: slice = ALL,
        scratch: "Scratch | None" = None,  # noqa: ARG002
    ) -> Tensor:
        """Attention weights [batch, heads, queries, keys] of some heads and queries."""
        return self.returned[:, heads, rows].to(_at_least_float32(self.returned))

    def set_output(self, weights: Tensor) -> None:
        """Do nothing: the model has run already."""


class Scratch:
    """Memory for one block after another: allocating it anew costs more than the arithmetic."""

    def __init__(self) -> None:
        self.buffers: dict[int, Tensor] = {}

    def take(self, slot: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return an uninitialized tensor with the type and device of `like`.

        Tensors that were taken from the same slot before share its memory.
        """
        size = prod(shape)
        if slot not in self.buffers or self.buffers[slot].numel() < size:
            self.buffers[slot] = like.new_empty(size)
        return self.buffers[slot][:size].view(shape)


def require_dot_product(call: AttentionCall) -> DotProductCall:
    """Return the call if it has queries, keys and values.

    Raises AttentionError if the model computed its weights by itself.
    """
    if isinstance(call, DotProductCall):
        return call
    raise _hidden_values(call)


def require_values(call: AttentionCall) -> Tensor:
    """Return the values [batch, heads, keys, width] of a call, repeated for each head.

    Raises AttentionError if the model computed its weights by itself.
    """
    if call.value is None or isinstance(call, ReturnedCall):
        raise _hidden_values(call)
    return call.for_heads(call.value)


def _hidden_values(call: AttentionCall) -> AttentionError:
    return AttentionError(
        f"{call.layer} of {describe_model(call.model)} shows no queries, keys and values",
        expected="a model whose attention can be observed while it runs",
        fix="Load the model with attn_implementation='sdpa', or use edges='attention' or "
        "edges='gradient'.",
    )


def name_layers(model: nn.Module, observer: Observer) -> Observer:
    """Wrap an observer, so that calls know their model and are named "layer 1", "layer 2", ..."""
    numbers = count(1)

    def observe(call: AttentionCall) -> None:
        call.model = model
        call.layer = f"layer {next(numbers)}"
        observer(call)

    return observe


def pack_heads(output: Tensor) -> Tensor:
    """Reorder [batch, heads, queries, width] to [batch, queries, heads, width], contiguous."""
    return output.transpose(1, 2).contiguous()


def prefers_weights(query: Tensor, mask: Tensor | None) -> bool:
    """Whether computing the output from existing weights is faster than the kernel of torch.

    On a CPU it is. The kernel rounds half precision differently, and treats queries that see no
    key differently; there the kernel computes the output.
    """
    half = query.dtype in (torch.float16, torch.bfloat16)
    return query.device.type == "cpu" and mask is None and not half


def describe_model(model: Any) -> str:
    """The class of a model, and its name if it has one, for messages."""
    name = getattr(getattr(model, "config", None), "name_or_path", "")
    return f"{type(model).__name__} ({name})" if name else type(model).__name__


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _cut(tensor: Tensor, heads: slice, rows: slice) -> Tensor:
    """Some heads and queries of [batch, heads, queries, keys]; axes of size 1 are broadcast."""
    if tensor.shape[1] > 1:
        tensor = tensor[:, heads]
    return tensor[:, :, rows] if tensor.shape[2] > 1 else tensor
