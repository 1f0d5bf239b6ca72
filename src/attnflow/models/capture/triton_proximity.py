"""ALTI edges on NVIDIA GPUs, compiled with Triton.

The vectors of all pairs of positions are never in memory. `head_weights` writes the weights of all
heads, keys before queries. `score_proximity` has one program for each tile of queries and features:
it keeps the tile of y in registers, goes through the keys, and sums how much shorter y is without
each of them, with the sum over heads on the matrix units.

Models in half precision are computed in float16, with sums in float32. bfloat16 would be too coarse
for projected values, so they are scaled to the range of float16.
"""

from math import log2

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnflow.models.capture.call import AttentionCall, DotProductCall
from attnflow.models.capture.contributions import LayerContributions
from attnflow.models.capture.fused_attention import has_kernels
from attnflow.models.capture.triton_kernels import kernel_arguments, log_sum_exp, tile_scores

# Tiles of queries and features, warps and stages, by the bytes of a value.
TILES = {2: (64, 128, 4, 3), 4: (64, 64, 4, 2)}
# Tiles of queries and keys for the weights of heads.
WEIGHT_TILES = {2: (128, 64, 4, 2), 4: (64, 32, 4, 2)}
REGISTERS = 168  # of a thread, so that three programs run side by side
SUM_TILE = (64, 32)  # of queries and keys, for the sums over features
BLOCK_SIZE = 2**27  # weights of all heads that are in memory at once
# In float16, weights are multiplied by the first, so that small ones keep their digits, and no
# projected value is larger than the second.
WEIGHT_SCALE, LARGEST = 4096.0, 2.0**15


@triton.jit
def _head_weights_kernel(
    query,
    key,
    shift,
    mask,
    out,
    query_batch,
    query_head,
    query_row,
    key_batch,
    key_head,
    key_row,
    mask_batch,
    mask_head,
    mask_queries,
    mask_keys,
    n_heads,
    n_queries,
    n_keys,
    factor,
    softcap,
    window,
    first,
    n_rows,
    width: tl.constexpr,
    padded_width: tl.constexpr,
    shared: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    has_softcap: tl.constexpr,
    has_window: tl.constexpr,
    precision: tl.constexpr,
    tile_q: tl.constexpr,
    tile_k: tl.constexpr,
):
    """One tile of the weights of one head.

    shift: [batch, heads, queries], log-sum-exp times log2(e).
    out: [batch, heads, keys, rows], of the queries from `first` on. With causal attention, tiles
    that no query sees are left out.
    """
    example = tl.program_id(2) // n_heads
    head = tl.program_id(2) % n_heads
    rows = tl.program_id(1) * tile_q + tl.arange(0, tile_q)
    keys = tl.program_id(0) * tile_k + tl.arange(0, tile_k)
    queries = first + rows
    weights = tl.zeros([tile_k, tile_q], dtype=tl.float32)
    reached = True
    last = first + (tl.program_id(1) + 1) * tile_q
    if causal:
        reached = tl.program_id(0) * tile_k < last
    if has_window:
        before = last - tile_q - (tl.program_id(0) + 1) * tile_k
        reached = tl.maximum(before, tl.program_id(0) * tile_k - last) <= window
    if reached:
        features = tl.arange(0, padded_width)
        key_start = key + example.to(tl.int64) * key_batch + (head // shared) * key_head
        key_tile = tl.load(
            key_start + keys[:, None].to(tl.int64) * key_row + features[None, :],
            mask=(keys[:, None] < n_keys) & (features[None, :] < width),
            other=0.0,
        )
        query_start = query + example.to(tl.int64) * query_batch + head * query_head
        query_tile = tl.load(
            query_start + queries[None, :].to(tl.int64) * query_row + features[:, None],
            mask=(queries[None, :] < n_queries) & (features[:, None] < width),
            other=0.0,
        )
        scores = tile_scores(
            key_tile,
            query_tile,
            mask + example.to(tl.int64) * mask_batch + head * mask_head,
            queries[None, :],
            keys[:, None],
            n_queries,
            n_keys,
            softcap,
            mask_queries,
            mask_keys,
            factor,
            causal,
            mask_kind,
            has_softcap,
            precision,
            True,
        )
        shifts = tl.load(
            shift + (example * n_heads + head).to(tl.int64) * n_queries + queries,
            mask=queries < n_queries,
            other=float("inf"),
        )
        weights = tl.exp2(scores - shifts[None, :])
    if reached or not causal:
        out_start = out + (example * n_heads + head).to(tl.int64) * n_keys * n_rows
        tl.store(
            out_start + keys[:, None].to(tl.int64) * n_rows + rows[None, :],
            weights.to(out.dtype.element_ty),
            mask=(keys[:, None] < n_keys) & (rows[None, :] < n_rows),
        )


@triton.jit
def _score_key(
    key,
    weight_cells,
    value_cells,
    own_cells,
    out_cells,
    goal,
    minus,
    length,
    queries,
    first,
    n_queries,
    n_features,
    has_weight,
    has_value,
    features,
    is_own: tl.constexpr,
    precision: tl.constexpr,
):
    """Score one key for a tile of queries and features."""
    weight_tile = tl.load(weight_cells + key * n_queries, mask=has_weight, other=0)
    value_tile = tl.load(value_cells + key * n_features, mask=has_value, other=0)
    moved = tl.dot(tl.trans(weight_tile), value_tile, input_precision=precision)
    rest = goal + minus[:, None] * moved
    if is_own:  # one of the queries may be this key, which keeps its residual stream
        query = key - first
        seen = (features < n_features) & (query >= 0) & (query < n_queries)
        own = tl.load(own_cells + query * n_features, mask=seen, other=0)
        rest -= tl.where(queries[:, None] == query, own[None, :], 0.0)
    distance = tl.sum(tl.abs(rest), 1)
    tl.store(out_cells + key * n_queries, length - distance, mask=queries < n_queries)


@triton.jit
def _proximity_kernel(
    weights,
    values,
    own,
    total,
    factor,
    out,
    n_queries,
    n_keys,
    n_features,
    first,
    has_own: tl.constexpr,
    n_heads: tl.constexpr,
    padded_heads: tl.constexpr,
    causal: tl.constexpr,
    precision: tl.constexpr,
    tile_q: tl.constexpr,
    tile_d: tl.constexpr,
):
    """One tile of queries and features: all keys.

    weights: [batch, heads, keys, queries]. values: [batch, heads, keys, features].
    own: [batch, queries, features], added to T for key first + query.
    total: [batch, queries, features], y. factor: [batch, queries], of the sums over heads.
    out: [batch, tiles of features, keys, queries], the sums of |y| - |y - T| over each tile. With
    causal attention, keys that no query of a tile sees are left out.
    """
    part = tl.program_id(0)
    tile = tl.num_programs(1) - 1 - tl.program_id(1)  # with a causal mask the longest come first
    example = tl.program_id(2).to(tl.int64)
    queries = tile * tile_q + tl.arange(0, tile_q)
    features = part * tile_d + tl.arange(0, tile_d)
    heads = tl.arange(0, padded_heads)
    inside = queries < n_queries
    goal = tl.load(
        total + (example * n_queries + queries[:, None]) * n_features + features[None, :],
        mask=inside[:, None] & (features[None, :] < n_features),
        other=0.0,
    )
    # Negative, because a subtraction would need an instruction more for each number.
    minus = -tl.load(factor + example * n_queries + queries, mask=inside, other=0.0)
    # A product with zeros has the layout of those below: without it, each of them would go through
    # shared memory. Sums over the same layout are equal to the last bit for keys without weight.
    no_weights = tl.zeros([tile_q, padded_heads], dtype=weights.dtype.element_ty)
    no_values = tl.zeros([padded_heads, tile_d], dtype=weights.dtype.element_ty)
    goal = tl.dot(no_weights, no_values, acc=goal, input_precision=precision)
    length = tl.sum(tl.abs(goal), 1)
    rows = (example * n_heads + heads[:, None]) * n_keys
    weight_cells = weights + rows * n_queries + queries[None, :]
    has_weight = (heads[:, None] < n_heads) & inside[None, :]
    value_cells = values + rows * n_features + features[None, :]
    has_value = (heads[:, None] < n_heads) & (features[None, :] < n_features)
    own_cells = own + example * n_queries * n_features + features
    out_cells = out + (example * tl.num_programs(0) + part) * n_keys * n_queries + queries
    last = n_keys
    if causal:
        last = tl.minimum(n_keys, first + (tile + 1) * tile_q)
    own_start = last
    own_end = last
    if has_own:
        own_start = tl.minimum(last, first + tile * tile_q)
        own_end = tl.minimum(last, first + (tile + 1) * tile_q)
    # The keys before the queries, those that are queries, and those after them.
    for section in tl.static_range(3 if has_own and not causal else 2 if has_own else 1):
        begin = 0 if section == 0 else own_start if section == 1 else own_end
        end = own_start if section == 0 else own_end if section == 1 else last
        for key in range(begin, end):
            _score_key(
                key,
                weight_cells,
                value_cells,
                own_cells,
                out_cells,
                goal,
                minus,
                length,
                queries,
                first,
                n_queries,
                n_features,
                has_weight,
                has_value,
                features,
                section == 1,
                precision,
            )


@triton.jit
def _sum_kernel(
    parts,
    out,
    n_parts,
    n_queries,
    n_keys,
    first,
    causal: tl.constexpr,
    tile_q: tl.constexpr,
    tile_k: tl.constexpr,
):
    """One tile of scores: the sum over tiles of features, 0 where it is negative or not visible.

    parts: [batch, tiles of features, keys, queries]. out: [batch, queries, keys].
    """
    example = tl.program_id(2).to(tl.int64)
    keys = tl.program_id(0) * tile_k + tl.arange(0, tile_k)
    queries = tl.program_id(1) * tile_q + tl.arange(0, tile_q)
    inside = (keys[:, None] < n_keys) & (queries[None, :] < n_queries)
    visible = inside
    if causal:
        visible = inside & (keys[:, None] <= first + queries[None, :])
    cells = parts + example * n_parts * n_keys * n_queries + keys[:, None] * n_queries + queries
    total = tl.zeros([tile_k, tile_q], dtype=tl.float32)
    for _ in range(n_parts):
        total += tl.load(cells, mask=visible, other=0.0)
        cells += n_keys * n_queries
    tl.store(
        out + (example * n_queries + queries[None, :]) * n_keys + keys[:, None],
        tl.maximum(total, 0.0),
        mask=inside,
    )


def score_layer(layer: LayerContributions, heads: slice, norms: int) -> Tensor:
    """The scores of `attnflow.edges.alti` for some heads of a layer, [batch, queries, keys]."""
    call = layer.call
    assert call.value is not None
    batch, n_heads, n_queries, n_keys = call.shape
    own, total = layer.own(norms), layer.total(norms)
    half = call.value.dtype.itemsize == 2
    values, matrix, scale = _narrow(call.value, layer.matrix(heads, norms), half)
    projected = call.for_heads(values, heads) @ matrix
    factor = layer.factor(norms) * scale
    causal = isinstance(call, DotProductCall) and call.causal
    step = max(BLOCK_SIZE // (batch * n_heads * n_keys), 1)
    blocks = []
    for first in range(0, n_queries, step):
        rows = slice(first, min(first + step, n_queries))
        weights = _weights(call, heads, rows, values.dtype)
        kept = None if layer.is_cross else own[:, rows]
        some = (total[:, rows], factor[:, rows])
        blocks.append(score_proximity(weights, projected, kept, *some, first=first, causal=causal))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)


def _narrow(values: Tensor, matrix: Tensor, half: bool) -> tuple[Tensor, Tensor, Tensor | float]:
    """Values and output projection in the precision of products, and what to multiply results by.

    values: [batch, key heads, keys, width]. matrix: [heads, width, features].
    """
    if not half:
        return values.to(matrix.dtype), matrix, 1.0
    tiny = torch.finfo(torch.float32).tiny
    largest = LARGEST / triton.next_power_of_2(values.shape[-1])
    narrow, scale = [], 1 / (largest * WEIGHT_SCALE)
    for part, goal in ((values, 1.0), (matrix, largest)):
        length = torch.linalg.vector_norm(part, float("inf")).float().clamp_min(tiny)
        length = length.log2().ceil().exp2()  # scaling by a power of two rounds nothing
        half_part = torch.empty_like(part, dtype=torch.float16)
        narrow.append(torch.mul(part, goal / length, out=half_part))
        scale = length * scale
    return narrow[0], narrow[1], scale


def _weights(call: AttentionCall, heads: slice, rows: slice, dtype: torch.dtype) -> Tensor:
    """The weights of some heads and queries, [batch, heads, keys, queries]: keys come first.

    dtype: float16, for which they are multiplied by WEIGHT_SCALE, or that of the weights.
    """
    scale = WEIGHT_SCALE if dtype == torch.float16 else 1.0
    if isinstance(call, DotProductCall) and has_kernels(call) and call.sinks is None:
        return head_weights(call, rows, dtype, scale)[:, heads].contiguous()
    weights = call.weights(heads, rows) * scale
    return weights.to(dtype).transpose(2, 3).contiguous()


def head_weights(call: DotProductCall, rows: slice, dtype: torch.dtype, scale: float) -> Tensor:
    """The weights of some queries times a scale, [batch, heads, keys, queries]."""
    batch, n_heads, _, n_keys = call.shape
    out = call.query.new_empty(batch, n_heads, n_keys, rows.stop - rows.start, dtype=dtype)
    tile_q, tile_k, warps, stages = WEIGHT_TILES[call.query.element_size()]
    shift = log_sum_exp(call) - log2(scale)
    (query, key, mask, *numbers), constants = kernel_arguments(call)
    grid = (triton.cdiv(n_keys, tile_k), triton.cdiv(out.shape[-1], tile_q), batch * n_heads)
    with torch.cuda.device(out.device) if out.is_cuda else torch.no_grad():
        _head_weights_kernel[grid](
            query,
            key,
            shift.contiguous(),
            mask,
            out,
            *numbers,
            rows.start,
            out.shape[-1],
            **constants,
            tile_q=tile_q,
            tile_k=tile_k,
            num_warps=warps,
            num_stages=stages,
        )
    return out


def score_proximity(
    weights: Tensor,
    values: Tensor,
    own: Tensor | None,
    total: Tensor,
    factor: Tensor,
    *,
    first: int = 0,
    causal: bool = False,
) -> Tensor:
    """Return max(0, |y_i| - |y_i - T_ij|) with L1 norms, [batch, queries, keys].

    T_ij is factor_i times the sum over heads of weight_ij * value_j, and for j = first + i also
    own_i. weights: [batch, heads, keys, queries]. values: [batch, heads, keys, features].
    own: [batch, queries, features], or None if keys are positions of another sequence.
    total: [batch, queries, features], the vectors y. factor: [batch, queries].
    causal: whether query i sees keys up to first + i only; the others get 0.
    """
    batch, n_heads, n_keys, n_queries = weights.shape
    n_features = total.shape[-1]
    tile_q, tile_d, warps, stages = TILES[values.element_size()]
    n_parts = triton.cdiv(n_features, tile_d)
    parts = total.new_empty(batch, n_parts, n_keys, n_queries, dtype=torch.float32)
    out = total.new_empty(batch, n_queries, n_keys, dtype=torch.float32)
    sum_q, sum_k = SUM_TILE
    with torch.cuda.device(out.device) if out.is_cuda else torch.no_grad():
        _proximity_kernel[n_parts, triton.cdiv(n_queries, tile_q), batch](
            weights,
            values,
            total if own is None else own.contiguous(),
            total.contiguous(),
            factor.contiguous(),
            parts,
            n_queries,
            n_keys,
            n_features,
            first,
            has_own=own is not None,
            n_heads=n_heads,
            padded_heads=max(16, triton.next_power_of_2(n_heads)),
            causal=causal,
            precision="ieee" if values.element_size() == 2 else "tf32x3",
            tile_q=tile_q,
            tile_d=tile_d,
            num_warps=warps,
            num_stages=stages,
            maxnreg=REGISTERS,
        )
        _sum_kernel[triton.cdiv(n_keys, sum_k), triton.cdiv(n_queries, sum_q), batch](
            parts,
            out,
            n_parts,
            n_queries,
            n_keys,
            first,
            causal=causal,
            tile_q=sum_q,
            tile_k=sum_k,
        )
    return out
