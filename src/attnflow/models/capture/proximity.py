"""The L1 proximity of contributions to their sum, compiled for CPUs.

What `LayerContributions` computes in blocks of vectors, `score_proximity` computes pair by pair:
the vector of a pair never leaves the cache of the processor. Pairs that no head connects cost
nothing, such as later keys in a decoder.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnflow.maxflow.jit import fused, pointer
from attnflow.models.capture.contributions import LayerContributions

# The values of all heads at one key should stay in the first cache, so that features are taken in
# tiles: so many numbers for all heads together.
TILE_SIZE = 6144

WORK_PER_THREAD = 2**24  # multiplications
BLOCK_SIZE = 2**23  # weights of all heads that are in memory at once


def score_layer(layer: LayerContributions, heads: slice, norms: int) -> Tensor:
    """The scores of `attnflow.edges.alti` for some heads of a layer, [batch, queries, keys]."""
    values = layer.project_values(heads, norms)
    own, total = layer.own(norms), layer.total(norms)
    batch, n_heads, n_queries, n_keys = layer.call.shape
    scores = values.new_zeros(batch, n_queries, n_keys)
    step = BLOCK_SIZE // (batch * n_heads * n_keys)
    for rows, weights in layer.weight_blocks(heads, norms, step):
        kept = None if layer.is_cross else own[:, rows]
        seen = weights.shape[-1]  # keys after the last query are left out if attention is causal
        scores[:, rows, :seen] = score_proximity(
            weights, values[:, :, :seen], kept, total[:, rows], rows.start
        )
    return scores


def score_proximity(
    weights: Tensor, values: Tensor, own: Tensor | None, total: Tensor, first: int = 0
) -> Tensor:
    """Return max(0, |y_i| - |y_i - T_ij|) with L1 norms, [batch, queries, keys].

    T_ij is the sum over heads of weight_ij * value_j, and for j = i also own_i.
    weights: [batch, heads, queries, keys]. values: [batch, heads, keys, hidden], projected.
    own: [batch, queries, hidden]; None if keys are positions of another sequence.
    total: [batch, queries, hidden], the vectors y. first: the key that is the first query itself.
    """
    batch, n_heads, n_queries, n_keys = weights.shape
    # By key, so that threads write to memory of their own.
    scores = np.zeros((batch, n_keys, n_queries), np.float32)
    arrays = [tensor.detach().contiguous().numpy() for tensor in (weights, values, total)]
    kept = np.zeros((batch, 0, 0), np.float32) if own is None else own.detach().contiguous().numpy()
    work = n_heads * n_queries * n_keys * total.shape[-1]
    n_threads = max(1, min(torch.get_num_threads(), work // WORK_PER_THREAD, n_keys))

    def run(thread: int) -> None:
        tiles = np.empty((2, max(TILE_SIZE // n_heads, 64)), np.float32)
        factors = np.empty((n_queries, n_heads), np.float32)
        seen = np.empty(n_queries, np.int64)
        for example in range(batch):
            numbers = [array[example] for array in (*arrays, kept, scores)]
            layer = [*numbers, (thread, n_threads, first), (tiles, factors, seen)]
            score_keys(*layer)

    if n_threads == 1:
        run(0)
    else:
        with ThreadPoolExecutor(n_threads - 1) as pool:
            others = [pool.submit(run, thread) for thread in range(1, n_threads)]
            run(0)
            for other in others:
                other.result()
    return torch.from_numpy(scores).transpose(1, 2)


@fused
def score_keys(
    weights: Any, values: Any, total: Any, own: Any, scores: Any, keys: Any, memory: Any
) -> None:
    """Score some keys against the queries that see them, two queries at a time.

    scores: [keys, queries], zeros.
    keys: the first key, the step to the next one, and the key that is the first query itself.
    memory: for the vectors of two pairs, for the weights [queries, heads] of a key, and for the
    queries that see it.
    """
    n_heads, n_queries, n_keys = weights.shape
    tiles, factors, seen = memory
    n_features, longest = total.shape[1], tiles.shape[1]
    for k in range(keys[0], n_keys, keys[1]):
        own_query = k - keys[2] if own.size > 0 else -1
        n_seen = 0
        for q in range(n_queries):
            is_seen = q == own_query
            for h in range(n_heads):
                factors[n_seen, h] = weights[h, q, k]
                is_seen |= weights[h, q, k] != 0.0
            if is_seen:
                seen[n_seen] = q
                n_seen += 1
        column = pointer(scores, k * n_queries)
        for first in range(0, n_features, longest):
            place = (k, first, min(longest, n_features - first))
            for i in range(0, n_seen, 2):
                n_tiles, some_factors = min(2, n_seen - i), pointer(factors, i * n_heads)
                for j in range(n_tiles):
                    q, tile = seen[i + j], pointer(tiles, j * longest)
                    start_tile(tile, q, pointer(some_factors, j * n_heads), total, values, place)
                    if q == own_query:
                        subtract(tile, pointer(own, q * n_features + first), place[2])
                if n_tiles == 2:
                    subtract_from_two(tiles, some_factors, values, place)
                else:
                    subtract_from_one(tiles, some_factors, values, place)
                for j in range(n_tiles):
                    whole = pointer(total, seen[i + j] * n_features + first)
                    column[seen[i + j]] += shorten(pointer(tiles, j * longest), whole, place[2])
        for q in range(n_queries):
            column[q] = max(column[q], np.float32(0.0))


@fused
def start_tile(tile: Any, q: int, factors: Any, total: Any, values: Any, place: Any) -> None:
    """Set a tile to y, without the value of the first head unless groups of four have it.

    factors: the weights of the query, [heads].
    place: the key, the first feature of the tile, and the number of its features.
    """
    k, first, size = place
    n_heads, _, n_features = values.shape
    whole, value = pointer(total, q * n_features + first), pointer(values, k * n_features + first)
    w = factors[0] if n_heads % 4 else np.float32(0.0)
    for d in range(size):
        tile[d] = whole[d] - w * value[d]


@fused
def subtract(tile: Any, vector: Any, size: int) -> None:
    """Subtract a vector from a tile."""
    for d in range(size):
        tile[d] -= vector[d]


@fused
def subtract_from_two(tiles: Any, factors: Any, values: Any, place: Any) -> None:
    """Subtract the values of the other heads from two tiles, four heads at a time.

    Values are read once for both tiles. factors: the weights of two queries, [2, heads].
    """
    k, first, size = place
    n_heads, n_keys, n_features = values.shape
    start, step = k * n_features + first, n_keys * n_features
    tile, other = pointer(tiles, 0), pointer(tiles, tiles.shape[1])
    w, u = factors, pointer(factors, n_heads)
    n_single = n_heads % 4
    for h in range(1, n_single):
        w0, u0, v0 = w[h], u[h], pointer(values, h * step + start)
        for d in range(size):
            tile[d] -= w0 * v0[d]
            other[d] -= u0 * v0[d]
    for h in range(n_single, n_heads, 4):
        w0, w1, w2, w3 = w[h], w[h + 1], w[h + 2], w[h + 3]
        u0, u1, u2, u3 = u[h], u[h + 1], u[h + 2], u[h + 3]
        v0 = pointer(values, h * step + start)
        v1, v2, v3 = pointer(v0, step), pointer(v0, 2 * step), pointer(v0, 3 * step)
        for d in range(size):
            a, b, c, e = v0[d], v1[d], v2[d], v3[d]
            tile[d] -= w0 * a + w1 * b + w2 * c + w3 * e
            other[d] -= u0 * a + u1 * b + u2 * c + u3 * e


@fused
def subtract_from_one(tile: Any, factors: Any, values: Any, place: Any) -> None:
    """The same for a single tile, of the last of an odd number of queries."""
    k, first, size = place
    n_heads, n_keys, n_features = values.shape
    whole = pointer(tile, 0)
    for h in range(min(n_heads % 4, 1), n_heads):
        w, v = factors[h], pointer(values, (h * n_keys + k) * n_features + first)
        for d in range(size):
            whole[d] -= w * v[d]


@fused
def shorten(tile: Any, whole: Any, size: int) -> Any:
    """By how much y without a contribution is shorter than y, in the features of a tile."""
    nearer = np.float32(0.0)
    for d in range(size):
        nearer += abs(whole[d]) - abs(tile[d])
    return nearer
