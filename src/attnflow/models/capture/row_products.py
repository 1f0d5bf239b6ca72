"""Rows times the attention of a layer, without a matrix of all pairs of positions.

`multiply_rows` computes rows @ W, with W the weights of a layer merged over heads. W is computed
block by block from queries and keys, and never stored. There are three ways: kernels for NVIDIA
GPUs (`triton_kernels`); blocks of exp(scores - log-sum-exp), if the layer ran with
`fused_attention.attend`; and blocks of softmax weights, for everything else.
"""

from dataclasses import replace

import torch
from torch import Tensor

from attnflow.head_merge import Heads
from attnflow.models.capture.call import AttentionCall, DotProductCall
from attnflow.models.capture.fused_attention import has_kernels
from attnflow.models.capture.merge import merge_rows

BLOCK_ROWS = 128  # queries of a block on a CPU
BLOCK_SIZE = 2**17  # weights of a block for each thread, so that they stay in its cache


def multiply_rows(rows: Tensor, call: AttentionCall, heads: Heads = "mean") -> Tensor:
    """Multiply rows [batch, rows, queries] with a layer; returns [batch, rows, keys], float32.

    heads: how they are merged, as in `AttentionGraph.from_attentions`.
    """
    if isinstance(call, DotProductCall) and heads == "mean":
        if has_kernels(call):
            from attnflow.models.capture import triton_kernels

            return triton_kernels.multiply_rows(rows, call)
        if call.logsumexp is not None:
            return _multiply_scores(rows, call)
    return _multiply_weights(rows, call, heads)


def _multiply_weights(rows: Tensor, call: AttentionCall, heads: Heads) -> Tensor:
    """Multiply rows with softmax weights, some queries at a time."""
    total: Tensor | None = None
    for some, weights in merge_rows(call, heads):
        part = rows[..., some].to(weights.dtype) @ weights
        total = part if total is None else total.add_(part)
    assert total is not None
    return total.to(rows.dtype)


def _multiply_scores(rows: Tensor, call: DotProductCall) -> Tensor:
    """Multiply rows with exp(scores - log-sum-exp), some queries and keys at a time.

    The log-sum-exp is one more feature of each query, so that one matrix product subtracts it. A
    single row is another summand there: its logarithm.
    """
    assert call.logsumexp is not None
    batch, n_heads, n_queries, n_keys = call.shape
    is_single = rows.shape[1] == 1
    shift = -call.logsumexp.to(torch.float32)
    if is_single:
        shift = shift + rows.log()  # [batch, heads, queries]; -inf where the row is 0
    query = torch.cat([call.query.to(torch.float32) * call.scaling, shift.unsqueeze(-1)], -1)
    ones = torch.ones_like(call.key[..., :1], dtype=torch.float32)
    key = torch.cat([call.key.to(torch.float32), ones], -1)
    shared = n_heads // key.shape[1]
    # Heads that share keys are one matrix: [batch * key heads, heads that share, queries, width].
    query = query.view(batch * key.shape[1], shared, n_queries, -1)
    columns = key.flatten(0, 1).transpose(1, 2).contiguous()
    total = rows.new_zeros(batch, rows.shape[1], n_keys)
    positions = torch.arange(max(n_queries, n_keys), device=rows.device)
    size = BLOCK_SIZE * torch.get_num_threads()
    step = max(size // (batch * n_heads * BLOCK_ROWS), BLOCK_ROWS)
    for first in range(0, n_queries, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, n_queries)
        block = query[:, :, first:last].flatten(1, 2)
        for keys in torch.split(positions[: last if call.causal else n_keys], step):
            start, stop = int(keys[0]), int(keys[-1]) + 1
            weights = torch.bmm(block, columns[..., start:stop]).exp_()
            weights = weights.view(batch, n_heads, last - first, stop - start)
            if call.causal and stop > first:
                # Not multiplied by 0: the weight of a later key may be infinite.
                weights.masked_fill_(keys > positions[first:last, None], 0)
            if is_single:
                total[:, 0, start:stop] += weights.sum((1, 2))
            else:
                total[..., start:stop].baddbmm_(rows[..., first:last], weights.sum(1))
    return total.div_(n_heads)


def without_values(call: DotProductCall) -> DotProductCall:
    """The call with what its weights need alone, so that the rest can be freed."""
    kept = replace(call, value=call.key.new_empty(0), known_weights=None)
    kept.layer = call.layer
    return kept
