"""ALTI edges on NVIDIA GPUs, compiled with Triton.

The vectors of all pairs of positions are never in memory: each program sums the distances of one
tile of queries to four keys over the features, with the sum over heads on the matrix units.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Tiles of queries and features, warps and stages, by the bytes of a value.
TILES = {2: (128, 32, 8, 3), 4: (32, 32, 4, 2)}
LARGEST = 60000.0  # of values in float16


@triton.jit
def _distances(
    weights,
    values,
    total,
    own,
    ratio,
    is_own,
    inside,
    n_features,
    n_heads: tl.constexpr,
    head_ids,
    with_own: tl.constexpr,
    precision: tl.constexpr,
    tile_q: tl.constexpr,
    tile_d: tl.constexpr,
):
    """The L1 distances of a tile of queries to the contributions of four keys.

    weights, values, is_own: of each key. total, own: pointers to the rows of the queries.
    """
    w0, w1, w2, w3 = weights
    v0, v1, v2, v3 = values
    own0, own1, own2, own3 = is_own
    sum0 = tl.zeros([tile_q, tile_d], dtype=tl.float32)
    sum1 = tl.zeros([tile_q, tile_d], dtype=tl.float32)
    sum2 = tl.zeros([tile_q, tile_d], dtype=tl.float32)
    sum3 = tl.zeros([tile_q, tile_d], dtype=tl.float32)
    for start in range(0, n_features, tile_d):
        features = start + tl.arange(0, tile_d)
        here = inside[:, None] & (features[None, :] < n_features)
        there = (head_ids[:, None] < n_heads) & (features[None, :] < n_features)
        goal = tl.load(total + features[None, :], mask=here, other=0.0).to(tl.float32)
        columns = features[None, :]
        part0 = tl.dot(w0, tl.load(v0 + columns, mask=there, other=0.0), input_precision=precision)
        rest0 = goal - ratio * part0
        part1 = tl.dot(w1, tl.load(v1 + columns, mask=there, other=0.0), input_precision=precision)
        rest1 = goal - ratio * part1
        part2 = tl.dot(w2, tl.load(v2 + columns, mask=there, other=0.0), input_precision=precision)
        rest2 = goal - ratio * part2
        part3 = tl.dot(w3, tl.load(v3 + columns, mask=there, other=0.0), input_precision=precision)
        rest3 = goal - ratio * part3
        if with_own:
            kept = tl.load(own + features[None, :], mask=here, other=0.0)
            rest0 -= tl.where(own0[:, None], kept, 0.0)
            rest1 -= tl.where(own1[:, None], kept, 0.0)
            rest2 -= tl.where(own2[:, None], kept, 0.0)
            rest3 -= tl.where(own3[:, None], kept, 0.0)
        sum0 += tl.abs(rest0)
        sum1 += tl.abs(rest1)
        sum2 += tl.abs(rest2)
        sum3 += tl.abs(rest3)
    return tl.sum(sum0, 1), tl.sum(sum1, 1), tl.sum(sum2, 1), tl.sum(sum3, 1)


@triton.jit
def _proximity_kernel(
    weights,
    values,
    total,
    own,
    lengths,
    out,
    ratio,
    scale,
    n_queries,
    n_keys,
    n_value_keys,
    n_features,
    first,
    has_own: tl.constexpr,
    n_heads: tl.constexpr,
    padded_heads: tl.constexpr,
    precision: tl.constexpr,
    tile_q: tl.constexpr,
    tile_d: tl.constexpr,
):
    """One tile of queries and four keys.

    weights: [batch, heads, queries, keys]. values: [batch, heads, value keys, features].
    total, own: [batch, queries, features], divided by scale. lengths: [batch, queries], L1 norms of
    total. out: [batch, queries, keys]. ratio: what to multiply sums of weighted values with.
    """
    tile = tl.program_id(1)
    example = tl.program_id(2).to(tl.int64)
    queries = tile * tile_q + tl.arange(0, tile_q)
    inside = queries < n_queries
    heads = tl.arange(0, padded_heads)
    # Keys beyond the last one repeat it, and are not stored.
    key0 = tl.program_id(0) * 4
    key1 = tl.minimum(key0 + 1, n_keys - 1)
    key2 = tl.minimum(key0 + 2, n_keys - 1)
    key3 = tl.minimum(key0 + 3, n_keys - 1)
    rows = (example * n_heads + heads[None, :]) * n_queries + queries[:, None]
    cells = weights + rows * n_keys
    present = inside[:, None] & (heads[None, :] < n_heads)
    w0 = tl.load(cells + key0, mask=present, other=0.0)
    w1 = tl.load(cells + key1, mask=present, other=0.0)
    w2 = tl.load(cells + key2, mask=present, other=0.0)
    w3 = tl.load(cells + key3, mask=present, other=0.0)
    largest = tl.maximum(tl.maximum(tl.abs(w0), tl.abs(w1)), tl.maximum(tl.abs(w2), tl.abs(w3)))
    connected = tl.max(tl.max(largest.to(tl.float32), 1), 0)
    starts = values + ((example * n_heads + heads[:, None]) * n_value_keys) * n_features
    places = (example * n_queries + queries[:, None]) * n_features
    own_start = first + tile * tile_q
    holds_own = (own_start < key0 + 4) & (key0 < own_start + tile_q)
    four = (
        starts + key0.to(tl.int64) * n_features,
        starts + key1.to(tl.int64) * n_features,
        starts + key2.to(tl.int64) * n_features,
        starts + key3.to(tl.int64) * n_features,
    )
    mine = first + queries
    is_own = (mine == key0, mine == key1, mine == key2, mine == key3)
    length = tl.load(lengths + example * n_queries + queries, mask=inside, other=0.0)
    d0, d1, d2, d3 = length, length, length, length
    if has_own:
        if holds_own:
            d0, d1, d2, d3 = _distances(
                (w0, w1, w2, w3),
                four,
                total + places,
                own + places,
                tl.load(ratio),
                is_own,
                inside,
                n_features,
                n_heads,
                heads,
                True,
                precision,
                tile_q,
                tile_d,
            )
        elif connected > 0:
            d0, d1, d2, d3 = _distances(
                (w0, w1, w2, w3),
                four,
                total + places,
                own + places,
                tl.load(ratio),
                is_own,
                inside,
                n_features,
                n_heads,
                heads,
                False,
                precision,
                tile_q,
                tile_d,
            )
    elif connected > 0:
        d0, d1, d2, d3 = _distances(
            (w0, w1, w2, w3),
            four,
            total + places,
            own + places,
            tl.load(ratio),
            is_own,
            inside,
            n_features,
            n_heads,
            heads,
            False,
            precision,
            tile_q,
            tile_d,
        )
    unit = tl.load(scale)
    cells = out + (example * n_queries + queries) * n_keys + key0
    left = n_keys - key0 + tl.zeros([tile_q], dtype=tl.int32)
    tl.store(cells, tl.maximum(length - d0, 0.0) * unit, mask=inside)
    tl.store(cells + 1, tl.maximum(length - d1, 0.0) * unit, mask=inside & (left > 1))
    tl.store(cells + 2, tl.maximum(length - d2, 0.0) * unit, mask=inside & (left > 2))
    tl.store(cells + 3, tl.maximum(length - d3, 0.0) * unit, mask=inside & (left > 3))


def score_proximity(
    weights: Tensor,
    values: Tensor,
    own: Tensor | None,
    total: Tensor,
    first: int = 0,
    *,
    half: bool = False,
    scale: Tensor | None = None,
) -> Tensor:
    """The scores of `attnflow.models.capture.proximity.score_proximity`.

    half: compute products of weights and values in float16; sums and distances are float32.
    scale: [1], what float16 values were divided by, if they were.
    """
    batch, n_heads, n_queries, n_keys = weights.shape
    if half:
        if scale is None:
            scale = _scale_of(values)
            values = (values / scale).to(torch.float16)
        unit = _scale_of(total)
        total = (total / unit).to(torch.float16)
        own = None if own is None else own / unit
    else:
        unit = scale = total.new_ones(1)
    weights = weights.to(values.dtype).contiguous()
    out = torch.empty(batch, n_queries, n_keys, dtype=torch.float32, device=total.device)
    tile_q, tile_d, warps, stages = TILES[values.element_size()]
    grid = (triton.cdiv(n_keys, 4), triton.cdiv(n_queries, tile_q), batch)
    total = total.contiguous()
    with torch.cuda.device(out.device) if out.is_cuda else torch.no_grad():
        _proximity_kernel[grid](
            weights,
            values.contiguous(),
            total,
            total if own is None else own.contiguous(),
            total.abs().sum(-1, dtype=torch.float32),
            out,
            scale / unit,
            unit,
            n_queries,
            n_keys,
            values.shape[2],
            total.shape[-1],
            first,
            has_own=own is not None,
            n_heads=n_heads,
            padded_heads=max(16, triton.next_power_of_2(n_heads)),
            precision="ieee" if half else "tf32x3",
            tile_q=tile_q,
            tile_d=tile_d,
            num_warps=warps,
            num_stages=stages,
        )
    return out


def _scale_of(tensor: Tensor) -> Tensor:
    """What to divide a tensor by before it is converted to float16, [1]."""
    largest = torch.linalg.vector_norm(tensor, torch.inf, dtype=torch.float32)
    return (largest / LARGEST).clamp_min(torch.finfo(torch.float32).tiny).reshape(1)
