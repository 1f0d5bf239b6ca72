"""The heads of a captured layer: merged into one matrix, or kept beside the graph.

`merge_call` merges attention weights block by block, so that the weights of all heads are never in
memory at once. `merge_edges` merges edges that were computed for each head. `KeptHeads` stores the
weights of all heads in half precision.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from attnflow.arrays import rescale_rows
from attnflow.attentions import Attentions
from attnflow.head_merge import Heads, merge_heads
from attnflow.models.capture.call import BLOCK_SIZE, AttentionCall, DotProductCall, Scratch
from attnflow.models.capture.fused_attention import attend, has_kernels
from attnflow.models.capture.graphs import Padding
from attnflow.models.capture.roles import Role

# How heads are combined: one after another, and along an axis. Rows are rescaled afterwards, so a
# sum serves as the mean.
COMBINE: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "mean": (torch.add, torch.sum),
    "max": (torch.maximum, torch.amax),
    "min": (torch.minimum, torch.amin),
}

BYTES_PER_WEIGHT = 2  # float16
REUSED_WEIGHTS = 2**22  # how many weights of a layer are held until its edges are computed


def merge_call(call: AttentionCall, heads: Heads) -> Tensor:
    """Merge the heads of a layer into [batch, queries, keys]; rows sum to 1.

    heads: as in `AttentionGraph.from_attentions`. For "mean", "max" and "min", the weights of all
    heads are never in memory at once. Sets the output of the call if `output_from_weights` is set
    and the weights of all heads were computed.
    Raises SelectionError for a head that does not exist, AttentionError if a row is left empty.
    """
    n_heads = call.shape[1]
    if isinstance(heads, int) and -n_heads <= heads < n_heads:
        first = heads % n_heads
        return as_shares(call, call.weights(slice(first, first + 1)))[:, 0]
    if heads == "mean" and _has_cheap_output(call):
        from attnflow.models.capture.triton_kernels import average_heads

        return average_heads(call)
    if isinstance(heads, str) and heads in COMBINE:
        merged = _combine_heads(call, heads)
        if heads == "min":  # may leave a row empty, which merge_heads refuses
            return merge_examples(merged[:, None], heads, call.layer)
        return _rescale_merged(merged)
    return merge_examples(as_shares(call, call.weights()), heads, call.layer)


def _rescale_merged(merged: Tensor) -> Tensor:
    """Divide rows by their sums, which are 0 only for some padding; such rows stay 0."""
    sums = merged.sum(-1, keepdim=True).clamp_min_(torch.finfo(merged.dtype).tiny)
    return merged.div_(sums)


def _has_cheap_output(call: AttentionCall) -> bool:
    """Whether a kernel averages the heads, and nothing else needs the weights of single heads."""
    if not isinstance(call, DotProductCall) or not has_kernels(call):
        return False
    return attend(call) or not call.output_from_weights


def _combine_heads(call: AttentionCall, heads: str) -> Tensor:
    """Combine the heads into [batch, queries, keys], block by block."""
    combine, reduce = COMBINE[heads]
    writer = call if isinstance(call, DotProductCall) and call.output_from_weights else None
    if isinstance(call, DotProductCall) and call.in_one_block:
        weights = call.weights()
        if writer is not None:
            writer.set_output(weights)
        return reduce(as_shares(call, weights), dim=1)
    batch, _, n_queries, n_keys = call.shape
    merged: Tensor | None = None
    scratch = Scratch()
    for some_heads, rows in call.blocks():
        weights = call.weights(some_heads, rows, scratch)
        if writer is not None:
            writer.write_output(weights, some_heads, rows)
        weights = as_shares(call, weights)
        if merged is None:
            merged = weights.new_empty(batch, n_queries, n_keys)
        part = merged[:, rows]
        # On a CPU, adding one head after another is faster than a sum along their axis.
        one_by_one = weights.device.type == "cpu"
        parts = weights.unbind(1) if one_by_one else (reduce(weights, dim=1),)
        for i, matrix in enumerate(parts):
            if some_heads.start == i == 0:
                part.copy_(matrix)
            else:
                combine(part, matrix, out=part)
    assert merged is not None
    return merged


def merge_rows(call: AttentionCall, heads: Heads) -> Iterator[tuple[slice, Tensor]]:
    """Some queries at a time, and their merged weights [batch, queries, keys]; rows sum to 1.

    For a function of heads, all queries come at once.
    """
    batch, n_heads, n_queries, n_keys = call.shape
    if not isinstance(heads, str | int):
        yield slice(0, n_queries), merge_call(call, heads)
        return
    step = BLOCK_SIZE.get(call.device.type, BLOCK_SIZE["cuda"]) // (batch * n_heads * n_keys)
    step = min(max(step, 1), n_queries)
    for first in range(0, n_queries, step):
        rows = slice(first, min(first + step, n_queries))
        weights = as_shares(call, call.weights(rows=rows))
        if isinstance(heads, int) and -n_heads <= heads < n_heads:
            yield rows, weights[:, heads]
        elif heads in ("mean", "max"):
            _, reduce = COMBINE[str(heads)]
            yield rows, _rescale_merged(reduce(weights, dim=1))
        else:
            yield rows, merge_examples(weights, heads, call.layer)


def merge_edges(edges: Tensor, heads: Heads, layer: str) -> Tensor:
    """Merge edges [batch, heads, queries, keys] of any scale into [batch, queries, keys].

    Rows sum to 1, or are 0 where they are 0 in every head that is merged. layer: its name in
    errors.
    """
    n_heads = edges.shape[1]
    if isinstance(heads, int) and -n_heads <= heads < n_heads:
        edges, heads = edges[:, heads, None], 0
    empty = edges.sum((1, 3)) == 0  # [batch, queries]
    filled = torch.where(empty[:, None, :, None], 1.0, edges)
    return merge_examples(filled, heads, layer).masked_fill(empty.unsqueeze(-1), 0.0)


def merge_unscaled(edges: Tensor, heads: Heads) -> Tensor:
    """Merge edges [batch, heads, queries, keys] into [batch, queries, keys], rows as they are."""
    if isinstance(heads, int):
        return edges[:, heads]
    if heads == "mean":
        return edges.mean(1)
    if isinstance(heads, str):
        return edges.amax(1) if heads == "max" else edges.amin(1)
    return torch.stack([torch.as_tensor(heads(example)) for example in edges])


def merge_examples(weights: Tensor, heads: Heads, layer: str) -> Tensor:
    """Merge [batch, heads, queries, keys] by `merge_heads`, example by example."""
    return torch.stack([merge_heads(example, heads, layer) for example in weights])


def as_shares(call: AttentionCall, weights: Tensor) -> Tensor:
    """Rescale weights to rows that sum to 1, if a sink takes part of the weight.

    A sink has no value, so no information reaches a position through it. Of weights that can be
    negative, the absolute values count.
    """
    if call.signed:
        weights = weights.abs()
        sums = weights.sum(-1, keepdim=True)
        return weights / sums.clamp_min(torch.finfo(weights.dtype).tiny)
    if isinstance(call, DotProductCall) and call.sinks is not None:
        rescaled: Tensor = rescale_rows(weights)
        return rescaled
    return weights


class KeptHeads:
    """The attention weights of all heads, in float16, unless they need more than `limit` bytes.

    limit: bytes for all layers and examples together; None for no limit.
    examples: after the run, one Attentions per example. None if the weights exceed the limit, or
    if the model is an encoder-decoder, whose cross-attention is not square.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.examples: list[Attentions] | None = None
        self._layers: list[Tensor] | None = []
        self._bytes = 0

    def add(self, call: AttentionCall, role: Role) -> None:
        """Store the weights of a layer. Above the limit, drop all layers and compute no more."""
        if self._layers is None:
            return
        batch, n_heads, n_queries, n_keys = call.shape
        self._bytes += batch * n_heads * n_queries * n_keys * BYTES_PER_WEIGHT
        if role != "self" or (self.limit is not None and self._bytes > self.limit):
            self._layers = None
            return
        is_small = batch * n_heads * n_queries * n_keys <= REUSED_WEIGHTS
        if is_small and isinstance(call, DotProductCall) and not torch.is_grad_enabled():
            call.known_weights = call.weights()  # the edges need them too
        with torch.no_grad():
            halves = [
                as_shares(call, call.weights(slice(head, head + 1))).to(torch.float16).cpu()
                for head in range(n_heads)
            ]
        self._layers.append(torch.cat(halves, 1))

    def finish(self, padding: Padding, tokens: Sequence[Sequence[str]] | None) -> None:
        """Build the examples, with padding cut away."""
        layers, self._layers = self._layers, None
        if not layers:
            return
        self.examples = []
        for example in range(layers[0].shape[0]):
            # Cutting checks row sums, for which float16 is too coarse.
            cut = [
                padding.cut(layer[example].float(), "self", example, f"layer {i + 1}")
                for i, layer in enumerate(layers)
            ]
            halves = [np.asarray(layer.to(torch.float16)) for layer in cut]
            self.examples.append(Attentions(halves, None if tokens is None else tokens[example]))
