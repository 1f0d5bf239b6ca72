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

MAX_HEADS = 256  # whose products with each other are stored for each key
PROJECTED = 2**25  # numbers of projected values that are in memory at once


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
    gram = _gram(projected)
    batch, _, n_queries, n_keys = call.shape
    lengths = gram.new_empty(batch, n_queries, n_keys)
    for rows in _row_blocks(call):
        lengths[:, rows] = _combined_lengths(call.weights(rows=rows), gram)
    return lengths


def _gram(projected: Tensor) -> Tensor:
    """The products of the vectors of all heads at each key, [batch, keys, heads, heads].

    |sum_h w_h f_h|^2 = sum_gh w_g w_h f_g.f_h, so that they give the length of any sum over heads.
    projected: [batch, heads, keys, hidden].
    """
    projected = projected.transpose(1, 2)
    return projected @ projected.transpose(-1, -2)


def _combined_lengths(weights: Tensor, gram: Tensor) -> Tensor:
    """The lengths of weighted sums over heads, [batch, queries, keys].

    weights: [batch, heads, queries, keys]. gram: [batch, keys, heads, heads], perhaps of more keys.
    """
    by_key = weights.permute(0, 3, 2, 1)  # [batch, keys, queries, heads]
    squares = ((by_key @ gram[:, : by_key.shape[1]]) * by_key).sum(-1)
    return squares.clamp_min_(0).sqrt_().transpose(-1, -2)


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
    return layer.score(_length, heads=heads, fused=_fused_length)


def globenc_edges(layer: LayerContributions, *, heads: Heads) -> Tensor:
    """Return |T_ij| after the normalizations of the block: N-Enc.

    In models with post-normalization these are the one after attention and the one after the
    feed-forward layer, whose own output is left out. Models with pre-normalization have none, and
    the edges equal `norm_edges`.
    """
    return layer.score(_length, heads=heads, norms=2, fused=_fused_length)


def _fused_length(layer: LayerContributions, heads: slice, norms: int) -> Tensor | None:
    """The same without the vectors of pairs; None if heads are so many that vectors are faster."""
    n_heads = layer.call.shape[1]
    if n_heads > MAX_HEADS:
        return None
    values, matrix = layer.values(heads), layer.matrix(heads, norms)
    step = max(PROJECTED // (values.shape[0] * matrix.shape[0] * matrix.shape[-1]), 1)
    gram = torch.cat([_gram(part @ matrix) for part in torch.split(values, step, dim=2)], dim=1)

    def products(weights: Tensor, _: slice) -> Tensor:
        return _combined_lengths(weights, gram)

    return layer.score_products(products, _length, heads, norms)


def _length(parts: Tensor, _total: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(parts, dim=-1)
    return length
