"""Effective attention: attention without the part that cannot change the output of the layer.

The method is that of Brunner et al. (2020), "On Identifiability in Transformers".
"""

import torch
from torch import Tensor

from attnflow.edges.projection import head_projections
from attnflow.head_merge import Heads
from attnflow.models.capture.call import AttentionCall, DotProductCall, require_dot_product
from attnflow.models.capture.merge import merge_edges

# Directions of the values below this fraction of the largest are rounding errors: float32 resolves
# 2**-23, and values are the result of several operations.
RANK_TOLERANCE = 1e-5


def effective_edges(call: AttentionCall, *, heads: Heads) -> Tensor:
    """Return the absolute effective attention, merged over heads, [batch, queries, keys].

    Absolute values, because a key with a negative weight changes the output as much as one with a
    positive weight.
    Raises AttentionError if values or output projection are not known.
    """
    effective = effective_attention(require_dot_product(call))
    return merge_edges(effective.abs(), heads, call.layer)


def effective_attention(call: DotProductCall) -> Tensor:
    """Return the part of each head's attention that can change the output of the layer.

    A head adds up the rows of T = V W_O, [keys, hidden], with its attention weights. The part of an
    attention row in the left null space of T (x with x T = 0) adds up to 0. Effective attention is
    the rest: the row projected on the column space of T. Only visible keys take part, so that
    effective attention of a causal model is causal.

    Returns [batch, heads, queries, keys], which may be negative. With at most as many keys as a
    head has dimensions, it usually equals attention.
    """
    # T has the column space of V R, where R R' = W_O W_O', with only as many columns as V.
    roots = _square_root(head_projections(call).double())  # [heads, width, width]
    visible = _visible_keys(call)
    parts = []
    for i in range(call.shape[1]):
        head = slice(i, i + 1)
        values = call.for_heads(call.value, head).double() @ roots[i]
        keys = visible[:, head] if visible is not None and visible.shape[1] > 1 else visible
        parts.append(_project(call.weights(head).double(), values, keys).to(torch.float32))
    return torch.cat(parts, dim=1)


def _project(weights: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    """Project rows of weights [..., queries, keys] on the columns of values [..., keys, width].

    visible: which keys each query sees, or None for all; the values of other keys count as 0.
    """
    moments = weights @ values  # [..., queries, width]
    if visible is None:
        gram = values.transpose(-1, -2) @ values
        return moments @ _pseudo_inverse(gram) @ values.transpose(-1, -2)
    if bool((visible == visible[..., :1, :]).all()):  # padding: the same keys for all queries
        return _project(weights, values * visible[..., 0, :, None], None)
    # One Gram matrix for each query: [..., queries, width, width].
    outer = values.unsqueeze(-1) * values.unsqueeze(-2)
    grams = visible.to(values) @ outer.flatten(-2)
    grams = grams.reshape(*grams.shape[:-1], *outer.shape[-2:])
    solved = (_pseudo_inverse(grams) @ moments.unsqueeze(-1)).squeeze(-1)
    return solved @ values.transpose(-1, -2) * visible


def _visible_keys(call: DotProductCall) -> Tensor | None:
    """The keys that queries see, broadcastable to [batch, heads, queries, keys]; None for all."""
    if call.mask is None or call.mask.dtype == torch.bool:
        return call.visible()
    visible = call.mask > torch.finfo(call.mask.dtype).min / 2
    causal = call.visible()
    return visible if causal is None else visible & causal


def _square_root(matrix: Tensor) -> Tensor:
    """R [..., n, n] with R R' = M M', for M [..., n, m]."""
    left, singular, _ = torch.linalg.svd(matrix, full_matrices=False)
    root = left * singular.unsqueeze(-2)
    missing = matrix.shape[-2] - root.shape[-1]
    return torch.nn.functional.pad(root, (0, missing))


def _pseudo_inverse(gram: Tensor) -> Tensor:
    """The pseudo-inverse of Gram matrices; directions of rounding errors become 0."""
    inverse: Tensor = torch.linalg.pinv(gram, rtol=RANK_TOLERANCE**2, hermitian=True)
    return inverse
