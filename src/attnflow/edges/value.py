"""Edges by the length of vectors: value norms, N-Res and GlobEnc.

`value_edges` are those of Kobayashi et al. (2020): the vector that a key adds to the output of the
layer. `norm_edges` (Kobayashi et al. 2021) and `globenc_edges` (Modarressi et al. 2022) include the
residual stream of the position itself.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnflow.edges.projection import head_projections
from attnflow.head_merge import Heads
from attnflow.models.capture.call import AttentionCall, require_values
from attnflow.models.capture.contributions import LayerContributions
from attnflow.models.capture.merge import merge_edges


def value_edges(call: AttentionCall, *, heads: Heads) -> Tensor:
    """Return the length of what each key adds to the output of each query, [batch, queries, keys].

    Key j adds sum_h weight_hij v_hj W_h, with the values v_h and the output projection W_h of head
    h. heads="mean" adds up the heads before taking the length, so that heads can cancel each other.
    For one head, or other ways to merge heads, the length is taken for each head.
    Raises AttentionError if values or output projection are not known.
    """
    value = require_values(call)
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    matrices = head_projections(call)
    if heads == "mean" and call.shape[1] > matrices.shape[-1]:
        return _channel_lengths(call, value, matrices)
    projected = value @ matrices  # [batch, heads, keys, hidden]
    if heads != "mean":
        lengths = torch.linalg.vector_norm(projected, dim=-1)
        return merge_edges(call.weights().abs() * lengths.unsqueeze(-2), heads, call.layer)
    # |sum_h w_h f_h|^2 = sum_gh w_g w_h f_g.f_h, with a Gram matrix over heads for each key.
    projected = projected.transpose(1, 2)  # [batch, keys, heads, hidden]
    gram = projected @ projected.transpose(-1, -2)  # [batch, keys, heads, heads]
    batch, _, n_queries, n_keys = call.shape
    squares = gram.new_empty(batch, n_queries, n_keys)
    for rows in _row_blocks(call):
        weights = call.weights(rows=rows).permute(0, 3, 2, 1)  # [batch, keys, queries, heads]
        squares[:, rows] = ((weights @ gram) * weights).sum(-1).transpose(-1, -2)
    return squares.clamp_min(0).sqrt()


def _channel_lengths(call: AttentionCall, value: Tensor, matrices: Tensor) -> Tensor:
    """The same for heads that are many and narrow, as the channels of state spaces: row by row."""
    rows = []
    for i in range(call.shape[2]):
        weights = call.weights(rows=slice(i, i + 1))  # [batch, heads, 1, keys]
        vectors = weights.transpose(-1, -2) * value  # [batch, heads, keys, width]
        summed = torch.einsum("bhkw,hwd->bkd", vectors, matrices)
        rows.append(torch.linalg.vector_norm(summed, dim=-1))
    return torch.stack(rows, dim=1)


def _row_blocks(call: AttentionCall) -> Iterator[slice]:
    """Blocks of queries, for all heads at once."""
    return (rows for heads, rows in call.blocks() if heads.start == 0)


def norm_edges(layer: LayerContributions, *, heads: Heads) -> Tensor:
    """Return |T_ij|, the length of what j contributes to i: N-Res.

    T_ij is what j adds to i through attention, and for j = i also the residual stream.
    """
    return layer.score(_length, heads=heads)


def globenc_edges(layer: LayerContributions, *, heads: Heads) -> Tensor:
    """Return |T_ij| after the normalizations of the block: N-Enc.

    In models with post-normalization these are the one after attention and the one after the
    feed-forward layer, whose own output is left out. Models with pre-normalization have none, and
    the edges equal `norm_edges`.
    """
    return layer.score(_length, heads=heads, norms=2)


def _length(parts: Tensor, _total: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(parts, dim=-1)
    return length
