"""ALTI edges on NVIDIA GPUs, compiled with Triton.

The vectors of all pairs of positions are never in memory: each program sums the distances of one
tile of queries to some keys over the features, with the sum over heads on the matrix units.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Tiles of queries, keys and features, warps and stages, by the bytes of a value.
TILES = {2: (128, 8, 64, 8, 2), 4: (64, 4, 64, 4, 2)}
LARGEST = 1024.0  # of values in float16


@triton.jit
def _proximity_kernel(
    weights,
    values,
    total,
    own,
    lengths,
    out,
    scale,
    n_queries,
    n_keys,
    n_features,
    first,
    has_own: tl.constexpr,
    n_heads: tl.constexpr,
    padded_heads: tl.constexpr,
    precision: tl.constexpr,
    tile_q: tl.constexpr,
    tile_k: tl.constexpr,
    tile_d: tl.constexpr,
):
    """One tile of queries and some keys.

    weights: [batch, keys, queries, heads]. values: [batch, keys, heads, features], divided by
    scale. total, own: [batch, queries, features]. lengths: [batch, queries], L1 norms of total.
    out: [batch, queries, keys].
    """
    start_key = tl.program_id(0) * tile_k
    tile = tl.program_id(1)
    example = tl.program_id(2).to(tl.int64)
    queries = tile * tile_q + tl.arange(0, tile_q)
    inside = queries < n_queries
    heads = tl.arange(0, padded_heads)
    present = inside[:, None] & (heads[None, :] < n_heads)
    columns = tl.arange(0, tile_k)
    cells = weights + queries[:, None] * n_heads + heads[None, :]
    connected = 0.0
    for i in range(tile_k):
        key = tl.minimum(start_key + i, n_keys - 1)  # columns beyond the last key are not stored
        place = (example * n_keys + key) * n_queries * n_heads
        seen = tl.load(cells + place, mask=present, other=0.0)
        connected = tl.maximum(connected, tl.max(tl.max(tl.abs(seen.to(tl.float32)), 1), 0))
    own_start = first + tile * tile_q
    holds_own = (own_start < start_key + tile_k) & (start_key < own_start + tile_q) & has_own
    distance = tl.zeros([tile_q, tile_k], dtype=tl.float32)
    length = tl.load(lengths + example * n_queries + queries, mask=inside, other=0.0)
    if (connected > 0) | holds_own:
        factor = tl.load(scale)
        for start in range(0, n_features, tile_d):
            features = start + tl.arange(0, tile_d)
            place = (example * n_queries + queries[:, None]) * n_features + features[None, :]
            here = inside[:, None] & (features[None, :] < n_features)
            goal = tl.load(total + place, mask=here, other=0.0)
            for i in range(tile_k):
                key = tl.minimum(start_key + i, n_keys - 1)
                weight_tile = tl.load(
                    cells + (example * n_keys + key) * n_queries * n_heads, mask=present, other=0.0
                )
                value_tile = tl.load(
                    values
                    + (example * n_keys + key) * n_heads * n_features
                    + heads[:, None] * n_features
                    + features[None, :],
                    mask=(heads[:, None] < n_heads) & (features[None, :] < n_features),
                    other=0.0,
                )
                rest = goal - factor * tl.dot(weight_tile, value_tile, input_precision=precision)
                if holds_own:
                    is_own = first + queries == key
                    rest -= tl.load(own + place, mask=here & is_own[:, None], other=0.0)
                part = tl.sum(tl.abs(rest), 1)
                distance += tl.where(columns[None, :] == i, part[:, None], 0.0)
        scores = tl.maximum(length[:, None] - distance, 0.0)
    else:
        scores = distance
    tl.store(
        out + (example * n_queries + queries[:, None]) * n_keys + start_key + columns[None, :],
        scores,
        mask=inside[:, None] & (start_key + columns[None, :] < n_keys),
    )


def score_proximity(
    weights: Tensor,
    values: Tensor,
    own: Tensor | None,
    total: Tensor,
    first: int = 0,
    *,
    half: bool = False,
) -> Tensor:
    """The scores of `attnflow.models.capture.proximity.score_proximity`.

    half: compute products of weights and values in float16; sums and distances are float32.
    """
    batch, n_heads, n_queries, n_keys = weights.shape
    scale = total.new_ones(1)
    if half:
        tiny = torch.finfo(values.dtype).tiny
        scale = (values.abs().amax() / LARGEST).clamp_min(tiny).reshape(1)
        values = (values / scale).to(torch.float16)
    by_key = weights.permute(0, 3, 2, 1).to(values.dtype).contiguous()
    out = total.new_empty(batch, n_queries, n_keys, dtype=torch.float32)
    tile_q, tile_k, tile_d, warps, stages = TILES[values.element_size()]
    grid = (triton.cdiv(n_keys, tile_k), triton.cdiv(n_queries, tile_q), batch)
    with torch.cuda.device(out.device) if out.is_cuda else torch.no_grad():
        _proximity_kernel[grid](
            by_key,
            values.transpose(1, 2).contiguous(),
            total.contiguous(),
            total if own is None else own.contiguous(),
            total.abs().sum(-1),
            out,
            scale,
            n_queries,
            n_keys,
            total.shape[-1],
            first,
            has_own=own is not None,
            n_heads=n_heads,
            padded_heads=max(16, triton.next_power_of_2(n_heads)),
            precision="ieee" if half else "tf32x3",
            tile_q=tile_q,
            tile_k=tile_k,
            tile_d=tile_d,
            num_warps=warps,
            num_stages=stages,
        )
    return out
