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

# The values of all heads at one key should stay in the first cache, so that features are taken in
# tiles: so many numbers for all heads together.
TILE_SIZE = 6144

WORK_PER_THREAD = 2**24  # multiplications


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
        tile = np.empty(max(TILE_SIZE // n_heads, 64), np.float32)
        column = np.empty(n_queries, np.float32)
        for example in range(batch):
            numbers = [array[example] for array in (*arrays, kept, scores)]
            layer = [*numbers, (thread, n_threads, first), (tile, column)]
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
    """Score some keys against the queries that see them.

    scores: [keys, queries].
    keys: the first key, the step to the next one, and the key that is the first query itself.
    memory: for the vector of a pair, and for the sums of a key.
    """
    n_heads, n_queries, n_keys = weights.shape
    vector, column = memory
    n_features = total.shape[1]
    for k in range(keys[0], n_keys, keys[1]):
        column[:] = 0.0
        for first in range(0, n_features, vector.size):
            size = min(vector.size, n_features - first)
            tile = pointer(vector, 0)
            for q in range(n_queries):
                is_own = keys[2] + q == k and own.size > 0
                is_seen = is_own
                for h in range(n_heads):
                    is_seen |= weights[h, q, k] != 0.0
                if not is_seen:
                    continue
                whole = pointer(total, q * n_features + first)
                for d in range(size):
                    tile[d] = whole[d]
                if is_own:
                    kept = pointer(own, q * n_features + first)
                    for d in range(size):
                        tile[d] -= kept[d]
                subtract_heads(tile, size, weights, values, (q, k, first))
                nearer = np.float32(0.0)
                for d in range(size):
                    nearer += abs(whole[d]) - abs(tile[d])
                column[q] += nearer
        for q in range(n_queries):
            scores[k, q] = max(column[q], np.float32(0.0))


@fused
def subtract_heads(tile: Any, size: int, weights: Any, values: Any, place: Any) -> None:
    """Subtract the sum of weight * value over heads, four heads at a time.

    place: the query, the key, and the first feature of the tile.
    """
    q, k, first = place
    n_heads, n_keys, n_features = values.shape
    start, step = k * n_features + first, n_keys * n_features
    n_grouped = n_heads - n_heads % 4
    for h in range(0, n_grouped, 4):
        w0, w1 = weights[h, q, k], weights[h + 1, q, k]
        w2, w3 = weights[h + 2, q, k], weights[h + 3, q, k]
        v0 = pointer(values, h * step + start)
        v1, v2, v3 = pointer(v0, step), pointer(v0, 2 * step), pointer(v0, 3 * step)
        for d in range(size):
            tile[d] -= w0 * v0[d] + w1 * v1[d] + w2 * v2[d] + w3 * v3[d]
    for h in range(n_grouped, n_heads):
        w0, v0 = weights[h, q, k], pointer(values, h * step + start)
        for d in range(size):
            tile[d] -= w0 * v0[d]
