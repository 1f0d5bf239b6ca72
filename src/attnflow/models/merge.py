"""From the weights of one running layer to one matrix per example, without keeping all heads."""

from typing import Any

import torch
from torch import Tensor

from attnflow.merging import Heads, merge_heads
from attnflow.models.call import AttentionCall, DotProduct
from attnflow.models.scratch import Scratch
from attnflow.rows import rescale_rows

# How two heads are taken together. A mean is a sum until rows are rescaled.
COMBINE: dict[Any, Any] = {"mean": torch.add, "max": torch.maximum, "min": torch.minimum}


def merge_call(call: AttentionCall, heads: Heads, what: str) -> tuple[Tensor, Tensor | None]:
    """Merge the heads of a layer into [batch, queries, keys]; rows sum to 1.

    Mean, max and min are taken block by block, so that the weights of all heads never exist at
    once. heads: as in AttentionGraph.from_attentions. `what` names the layer in errors.
    Also returns the output of the layer, where it was wanted and all weights were computed.
    """
    n_heads = call.shape[1]
    if isinstance(heads, int) and -n_heads <= heads < n_heads:
        first = heads % n_heads
        return rescale(call, call.weights(slice(first, first + 1)))[:, 0], None
    if isinstance(heads, str) and heads in COMBINE:
        merged, output = _fold(call, COMBINE[heads])
        if heads == "min":  # which may leave nothing in a row
            return merge_examples(merged[:, None], heads, what), output
        return rescale_rows(merged), output
    return merge_examples(rescale(call, call.weights()), heads, what), None


def _fold(call: AttentionCall, combine: Any) -> tuple[Tensor, Tensor | None]:
    """Combine the heads, one after another, into [batch, queries, keys]."""
    batch, _, n_queries, n_keys = call.shape
    merged = torch.empty(0)
    scratch = Scratch()
    attending = call if isinstance(call, DotProduct) and call.wants_output else None
    output = None if attending is None else attending.empty_output()
    for heads, rows in call.blocks():
        weights = call.weights(heads, rows, scratch)
        if attending is not None and output is not None:
            attending.attend(weights, heads, rows, output)
        weights = rescale(call, weights)
        if heads.start == rows.start == 0:
            merged = weights.new_empty(batch, n_queries, n_keys)
        part = merged[:, rows]
        for head, head_weights in enumerate(weights.unbind(1)):
            if heads.start == head == 0:
                part.copy_(head_weights)
            else:
                combine(part, head_weights, out=part)
    return merged, output


def merge_examples(weights: Tensor, heads: Heads, what: str) -> Tensor:
    """Merge the heads of [batch, heads, queries, keys] by `merge_heads`, example by example."""
    return torch.stack([merge_heads(example, heads, what) for example in weights])


def rescale(call: AttentionCall, weights: Tensor) -> Tensor:
    """Weights whose rows sum to 1, where a sink has taken a part of them.

    A sink is no token and has no value, so nothing reaches a position through it.
    """
    if isinstance(call, DotProduct) and call.sinks is not None:
        scaled: Tensor = rescale_rows(weights)
        return scaled
    return weights
