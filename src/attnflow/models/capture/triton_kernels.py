"""Attention on NVIDIA GPUs without the weights of all heads in memory, compiled with Triton.

From queries, keys and the log-sum-exp of each row, `multiply_rows` computes rows times the
attention of all heads, and `average_heads` the mean over heads, tile by tile. Scores are computed
in the precision of the model, everything after them in float32. `log_sum_exp` is for calls whose
attention kernel did not return it.

Import this module only if `attnflow.models.capture.fused_attention.has_kernels` says so.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634
NO_MASK, BOOLEAN, ADDITIVE = 0, 1, 2

# Tiles of queries and keys, warps and stages, by the bytes of a number of the model. Tiles of heads
# wider than 128 must be smaller, to fit into shared memory.
ROW_TILES = {2: (64, 128, 8, 3), 4: (64, 64, 4, 2)}
ONE_ROW_TILES = {2: (64, 128, 4, 3), 4: (64, 64, 4, 2)}
MEAN_TILES = {2: (128, 128, 8, 3), 4: (64, 64, 4, 2)}
WIDE_TILES = {2: (64, 64, 4, 2), 4: (32, 32, 4, 2)}
MANY_ROWS = 64  # how many rows are multiplied at a time
SHORT = 128  # keys that are one tile, so that no log-sum-exp is needed


@triton.jit
def tile_scores(
    left,
    right,
    mask,
    queries,
    keys,
    n_queries,
    n_keys,
    softcap,
    mask_queries,
    mask_keys,
    factor,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    has_softcap: tl.constexpr,
    precision: tl.constexpr,
    at_edge: tl.constexpr,
):
    """Scores of a tile, times log2(e); -inf where a key is hidden.

    left, right: one tile of queries and one of keys, either first. queries, keys: their indices,
    shaped like the rows and columns of the result.
    """
    scores = tl.dot(left, right, input_precision=precision) * factor
    if has_softcap:
        # tanh(x) = 2 sigmoid(2 x) - 1; scores are multiplied by log2(e) before and after.
        ratio = scores / (softcap * 1.4426950408889634)
        scores = (2 * tl.sigmoid(2 * ratio) - 1) * softcap * 1.4426950408889634
    if mask_kind != 0:
        inside = (queries < n_queries) & (keys < n_keys)
        cells = mask + queries.to(tl.int64) * mask_queries + keys * mask_keys
        if mask_kind == 1:
            scores = tl.where(tl.load(cells, mask=inside, other=0) != 0, scores, float("-inf"))
        else:
            added = tl.load(cells, mask=inside, other=float("-inf")).to(tl.float32)
            scores = tl.where(added > -1e30, scores + added * 1.4426950408889634, float("-inf"))
    if at_edge:
        if causal:
            scores = tl.where(keys <= queries, scores, float("-inf"))
        scores = tl.where(keys < n_keys, scores, float("-inf"))
    return scores


@triton.jit
def _multiply_rows_kernel(
    query,
    key,
    shift,
    rows,
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
    n_rows,
    factor,
    softcap,
    window,
    width: tl.constexpr,
    padded_width: tl.constexpr,
    shared: tl.constexpr,
    padded_rows: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    has_softcap: tl.constexpr,
    has_window: tl.constexpr,
    precision: tl.constexpr,
    tile_q: tl.constexpr,
    tile_k: tl.constexpr,
):
    """One tile of keys and one head: all queries.

    shift: [batch, heads, queries], log-sum-exp times log2(e); for a single row, minus the logarithm
    of its weights. rows: [batch, queries, rows], used if padded_rows > 1.
    out: [batch, heads, rows, keys].

    Programs that run at the same time read the queries of one head, the last ones first: so they
    read the same queries, whose tiles are in the cache of the GPU then.
    """
    tile = tl.program_id(0)
    example = tl.program_id(1) // n_heads
    head = tl.program_id(1) % n_heads
    keys = tile * tile_k + tl.arange(0, tile_k)
    features = tl.arange(0, padded_width)
    key_start = key + example.to(tl.int64) * key_batch + (head // shared).to(tl.int64) * key_head
    # [keys, width]
    key_tile = tl.load(
        key_start + keys[:, None].to(tl.int64) * key_row + features[None, :],
        mask=(keys[:, None] < n_keys) & (features[None, :] < width),
        other=0.0,
    )
    first = (tile * tile_k // tile_q) * tile_q if causal else 0
    last = n_queries
    if has_window:
        first = tl.maximum(tile * tile_k - window - 1, 0) // tile_q * tile_q
        last = tl.minimum(n_queries, (tile + 1) * tile_k + window + 1)
    if padded_rows == 1:
        total = tl.zeros([tile_k, tile_q], dtype=tl.float32)
    else:
        total = tl.zeros([tile_k, padded_rows], dtype=tl.float32)
    row_ids = tl.arange(0, padded_rows)
    query_start = query + example.to(tl.int64) * query_batch + head.to(tl.int64) * query_head
    shift_start = shift + (example * n_heads + head).to(tl.int64) * n_queries
    mask_start = mask + example.to(tl.int64) * mask_batch + head.to(tl.int64) * mask_head
    edge = tl.minimum(((tile + 1) * tile_k + tile_q - 1) // tile_q * tile_q, last)
    if not causal:
        edge = first
    for part in tl.static_range(2):  # tiles on the diagonal, then the others
        begin = first if part == 0 else edge
        end = edge if part == 0 else last
        n_tiles = (end - begin + tile_q - 1) // tile_q
        for i in range(n_tiles):
            start = begin + (n_tiles - 1 - i) * tile_q
            queries = start + tl.arange(0, tile_q)
            inside = queries < n_queries
            query_tile = tl.load(
                query_start + queries[None, :].to(tl.int64) * query_row + features[:, None],
                mask=inside[None, :] & (features[:, None] < width),
                other=0.0,
            )
            shifts = tl.load(shift_start + queries, mask=inside, other=float("inf"))
            scores = tile_scores(
                key_tile,
                query_tile,
                mask_start,
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
                part == 0,
            )
            weights = tl.exp2(scores - shifts[None, :])
            if padded_rows == 1:
                total += weights
            else:
                row_tile = tl.load(
                    rows
                    + (example.to(tl.int64) * n_queries + queries[:, None]) * n_rows
                    + row_ids[None, :],
                    mask=inside[:, None] & (row_ids[None, :] < n_rows),
                    other=0.0,
                )
                total += tl.dot(weights, row_tile, input_precision="tf32x3")
    out_start = out + (example * n_heads + head).to(tl.int64) * n_rows * n_keys
    if padded_rows == 1:
        tl.store(out_start + keys, tl.sum(total, 1), mask=keys < n_keys)
    else:
        tl.store(
            out_start + row_ids[None, :].to(tl.int64) * n_keys + keys[:, None],
            total,
            mask=(row_ids[None, :] < n_rows) & (keys[:, None] < n_keys),
        )


@triton.jit
def _log_sum_exp_kernel(
    query,
    key,
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
    """One tile of queries of one head; the result times log2(e), +inf if no key is visible."""
    tile = tl.program_id(0)
    example = tl.program_id(1) // n_heads
    head = tl.program_id(1) % n_heads
    queries = tile * tile_q + tl.arange(0, tile_q)
    features = tl.arange(0, padded_width)
    query_start = query + example.to(tl.int64) * query_batch + head.to(tl.int64) * query_head
    query_tile = tl.load(
        query_start + queries[:, None].to(tl.int64) * query_row + features[None, :],
        mask=(queries[:, None] < n_queries) & (features[None, :] < width),
        other=0.0,
    )
    key_start = key + example.to(tl.int64) * key_batch + (head // shared).to(tl.int64) * key_head
    mask_start = mask + example.to(tl.int64) * mask_batch + head.to(tl.int64) * mask_head
    first = 0
    last = tl.minimum(n_keys, (tile + 1) * tile_q) if causal else n_keys
    if has_window:
        first = tl.maximum(tile * tile_q - window - 1, 0) // tile_k * tile_k
        last = tl.minimum(n_keys, (tile + 1) * tile_q + window + 1)
    largest = tl.full([tile_q], -1e30, dtype=tl.float32)
    total = tl.zeros([tile_q], dtype=tl.float32)
    for start in range(first, last, tile_k):
        keys = start + tl.arange(0, tile_k)
        key_tile = tl.load(
            key_start + keys[None, :].to(tl.int64) * key_row + features[:, None],
            mask=(keys[None, :] < n_keys) & (features[:, None] < width),
            other=0.0,
        )
        scores = tile_scores(
            query_tile,
            key_tile,
            mask_start,
            queries[:, None],
            keys[None, :],
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
        higher = tl.maximum(largest, tl.max(scores, 1))
        total = total * tl.exp2(largest - higher) + tl.sum(tl.exp2(scores - higher[:, None]), 1)
        largest = higher
    result = tl.where(total > 0, largest + tl.log2(total), float("inf"))
    cells = out + (example * n_heads + head).to(tl.int64) * n_queries + queries
    tl.store(cells, result, mask=queries < n_queries)


@triton.jit
def _average_heads_kernel(
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
    width: tl.constexpr,
    padded_width: tl.constexpr,
    shared: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    has_softcap: tl.constexpr,
    has_window: tl.constexpr,
    precision: tl.constexpr,
    whole_rows: tl.constexpr,
    tile_q: tl.constexpr,
    tile_k: tl.constexpr,
):
    """One tile of the mean over heads, [batch, queries, keys].

    shift: [batch, heads, queries], log-sum-exp times log2(e); not used if a tile has all keys.
    """
    example = tl.program_id(2)
    queries = tl.program_id(1) * tile_q + tl.arange(0, tile_q)
    keys = tl.program_id(0) * tile_k + tl.arange(0, tile_k)
    features = tl.arange(0, padded_width)
    total = tl.zeros([tile_q, tile_k], dtype=tl.float32)
    reached = True
    if causal:
        reached = tl.program_id(0) * tile_k < (tl.program_id(1) + 1) * tile_q
    if has_window:
        before = tl.program_id(1) * tile_q - (tl.program_id(0) + 1) * tile_k
        after = tl.program_id(0) * tile_k - (tl.program_id(1) + 1) * tile_q
        reached = tl.maximum(before, after) <= window
    if reached:
        for key_head_index in range(n_heads // shared):
            key_start = key + example.to(tl.int64) * key_batch + key_head_index * key_head
            key_tile = tl.load(
                key_start + keys[None, :].to(tl.int64) * key_row + features[:, None],
                mask=(keys[None, :] < n_keys) & (features[:, None] < width),
                other=0.0,
            )
            for member in range(shared):
                head = key_head_index * shared + member
                query_start = query + example.to(tl.int64) * query_batch + head * query_head
                query_tile = tl.load(
                    query_start + queries[:, None].to(tl.int64) * query_row + features[None, :],
                    mask=(queries[:, None] < n_queries) & (features[None, :] < width),
                    other=0.0,
                )
                scores = tile_scores(
                    query_tile,
                    key_tile,
                    mask + example.to(tl.int64) * mask_batch + head * mask_head,
                    queries[:, None],
                    keys[None, :],
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
                if whole_rows:
                    largest = tl.maximum(tl.max(scores, 1), -1e30)
                    powers = tl.exp2(scores - largest[:, None])
                    sums = tl.maximum(tl.sum(powers, 1), 1e-30)
                    total += powers / sums[:, None]
                else:
                    shifts = tl.load(
                        shift + (example * n_heads + head).to(tl.int64) * n_queries + queries,
                        mask=queries < n_queries,
                        other=float("inf"),
                    )
                    total += tl.exp2(scores - shifts[:, None])
    out_start = out + example.to(tl.int64) * n_queries * n_keys
    tl.store(
        out_start + queries[:, None].to(tl.int64) * n_keys + keys[None, :],
        (total / n_heads).to(out.dtype.element_ty),
        mask=(queries[:, None] < n_queries) & (keys[None, :] < n_keys),
    )


def log_sum_exp(call: Any) -> Tensor:
    """The log-sum-exp of each row of scores, in base 2, [batch, heads, queries].

    The sink of a call is left out, so that weights are shares of what the keys get.
    """
    batch, n_heads, n_queries, _ = call.shape
    if call.logsumexp is not None:
        return call.logsumexp.to(torch.float32) * LOG2_E
    out = call.query.new_empty(batch, n_heads, n_queries, dtype=torch.float32)
    tile_q, tile_k, warps, stages = _tiles(MEAN_TILES, call)
    arguments, constants = kernel_arguments(call)
    query, key, mask, *numbers = arguments
    grid = (triton.cdiv(n_queries, tile_q), batch * n_heads)
    with torch.cuda.device(out.device) if out.is_cuda else torch.no_grad():
        _log_sum_exp_kernel[grid](
            query,
            key,
            mask,
            out,
            *numbers,
            **constants,
            tile_q=tile_q,
            tile_k=tile_k,
            num_warps=warps,
            num_stages=stages,
        )
    return out


def multiply_rows(rows: Tensor, call: Any) -> Tensor:
    """Multiply rows [batch, rows, queries] with the mean over heads; [batch, rows, keys]."""
    batch, n_heads, _, n_keys = call.shape
    shift = log_sum_exp(call)
    parts = []
    for some in rows.to(torch.float32).split(MANY_ROWS, dim=1):
        n_rows = some.shape[1]
        # +inf where a row is 0
        shifts = (shift - some.log2() if n_rows == 1 else shift).contiguous()
        padded = 1 if n_rows == 1 else max(16, triton.next_power_of_2(n_rows))
        out = rows.new_empty(batch, n_heads, n_rows, n_keys, dtype=torch.float32)
        tile_q, tile_k, warps, stages = _tiles(ONE_ROW_TILES if n_rows == 1 else ROW_TILES, call)
        arguments, constants = kernel_arguments(call)
        query, key, mask, *numbers = arguments
        strides, sizes, scalars = numbers[:10], numbers[10:13], numbers[13:]
        grid = (triton.cdiv(n_keys, tile_k), batch * n_heads)
        by_query = some.transpose(1, 2).contiguous()
        with torch.cuda.device(out.device) if out.is_cuda else torch.no_grad():
            _multiply_rows_kernel[grid](
                query,
                key,
                shifts,
                by_query,
                mask,
                out,
                *strides,
                *sizes,
                n_rows,
                *scalars,
                **constants,
                padded_rows=padded,
                tile_q=tile_q,
                tile_k=tile_k,
                num_warps=warps,
                num_stages=stages,
            )
        parts.append(out.sum(1) / n_heads)
    return torch.cat(parts, dim=1)


def average_heads(call: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """The mean over heads of the attention weights, [batch, queries, keys]."""
    batch, _, n_queries, n_keys = call.shape
    out = call.query.new_empty(batch, n_queries, n_keys, dtype=dtype)
    tile_q, tile_k, warps, stages = _tiles(MEAN_TILES, call)
    is_short = n_keys <= SHORT
    if is_short:
        shift = out
        tile_k = max(16, triton.next_power_of_2(n_keys))
        tile_q, warps = min(tile_k, 64), 4
    else:
        shift = log_sum_exp(call).contiguous()
    arguments, constants = kernel_arguments(call)
    query, key, mask, *numbers = arguments
    grid = (triton.cdiv(n_keys, tile_k), triton.cdiv(n_queries, tile_q), batch)
    with torch.cuda.device(out.device) if out.is_cuda else torch.no_grad():
        _average_heads_kernel[grid](
            query,
            key,
            shift,
            mask,
            out,
            *numbers,
            **constants,
            whole_rows=is_short,
            tile_q=tile_q,
            tile_k=tile_k,
            num_warps=warps,
            num_stages=stages,
        )
    return out


def _tiles(tiles: dict[int, tuple[int, int, int, int]], call: Any) -> tuple[int, int, int, int]:
    """Tiles of queries and keys, warps and stages for a call."""
    return (WIDE_TILES if call.query.shape[-1] > 128 else tiles)[call.query.element_size()]


def kernel_arguments(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that all kernels share: tensors, strides, sizes and numbers; constants."""
    batch, n_heads, n_queries, n_keys = call.shape
    query = call.query if call.query.stride(-1) == 1 else call.query.contiguous()
    key = call.key if call.key.stride(-1) == 1 else call.key.contiguous()
    mask = call.mask
    kind = NO_MASK
    strides = (0, 0, 0, 0)
    if mask is not None:
        kind = BOOLEAN if mask.dtype == torch.bool else ADDITIVE
        mask = mask.expand(batch, n_heads, n_queries, n_keys)
        strides = mask.stride()
        if kind == BOOLEAN:
            mask = mask.view(torch.uint8)
    # The mask says exactly which keys are visible; the window, which tiles need not be looked at.
    window = call.window if call.window and mask is not None else 0
    width = query.shape[-1]
    tensors = (query, key, query if mask is None else mask)
    numbers = (
        *query.stride()[:3],
        *key.stride()[:3],
        *strides,
        n_heads,
        n_queries,
        n_keys,
        call.scaling * LOG2_E,
        call.softcap or 0.0,
        window,
    )
    constants = {
        "width": width,
        "padded_width": max(16, triton.next_power_of_2(width)),
        "shared": n_heads // key.shape[1],
        "causal": call.causal,
        "mask_kind": kind,
        "has_softcap": call.softcap is not None,
        "has_window": window > 0,
        "precision": "ieee" if query.element_size() == 2 else "tf32x3",
    }
    return (*tensors, *numbers), constants
