"""Edges beyond attention weights: what a key passes on, rather than how much it is looked at.

Each function turns one running layer into a matrix [batch, queries, keys] without values below 0.
Its rows sum to 1; a row in which there is nothing stays 0, and becomes a position that only its
residual connection reaches.
"""

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from attnflow.attentions import rescale_rows
from attnflow.edges.projection import head_projections
from attnflow.errors import AttentionError, InputError
from attnflow.layers import Heads
from attnflow.models.capture.build import merge_call, merge_examples
from attnflow.models.capture.call import AttentionCall, DotProduct, describe_model

Edges: TypeAlias = Literal["attention", "effective", "gradient", "value"]
EDGES = ("attention", "effective", "gradient", "value")

# Directions of the values below this part of the largest are rounding: float32 has 2**-23, and a
# few operations lie between the values and the numbers they came from.
RANK_TOLERANCE = 1e-5


def check_edges(edges: str) -> None:
    """Raise InputError unless there are such edges."""
    if edges not in EDGES:
        raise InputError(
            f"edges is {edges!r}",
            expected=f"{', '.join(map(repr, EDGES))}",
            fix="Choose one of these.",
        )


def weigh(
    model: nn.Module, call: AttentionCall, edges: Edges, heads: Heads, what: str
) -> tuple[Tensor, Tensor | None]:
    """The edges [batch, queries, keys] of a layer, for all weightings but gradients.

    Also returns the output of the layer, where that was had on the way.
    """
    if edges == "attention":
        return merge_call(call, heads, what)
    if not isinstance(call, DotProduct):
        raise AttentionError(
            f"{describe_model(model)} shows its weights but not its values",
            expected=f"both for edges={edges!r}",
            fix="Use edges='attention' or edges='gradient'.",
        )
    if edges == "effective":
        return merge_edges(effective_attention(model, call).abs(), heads, what), None
    return value_edges(model, call, heads, what), None


def effective_attention(model: nn.Module, call: DotProduct) -> Tensor:
    """The part of each head's attention that can change the layer's output (Brunner et al. 2020).

    A head gives T = V W_O, [keys, hidden], weighted by its attention. What of a row of attention
    lies in the left null space of T (x with x T = 0) adds up to nothing, and is taken away: what
    remains is the row projected on the columns of T. Only keys that the query sees take part, so
    that a causal model does not get weight on later tokens.

    Returns [batch, heads, queries, keys], with values below 0 where others are counterbalanced.
    Where there are no more keys than dimensions of a head, it is the attention itself.
    As edges, its absolute values are taken: a token with a weight below 0 moves the output as much
    as one above 0.
    """
    # T has the column space of V R, where R R' = W_O W_O': as many columns as a head has.
    factors = _square_root(head_projections(model, call).double())  # [heads, width, width]
    visible = _visible(call)
    parts = []
    for head in range(call.shape[1]):
        one = slice(head, head + 1)
        values = call.for_heads(call.value, one).double() @ factors[head]
        seen = visible[:, one] if visible is not None and visible.shape[1] > 1 else visible
        parts.append(_project(call.weights(one).double(), values, seen).to(torch.float32))
    return torch.cat(parts, dim=1)


def _project(weights: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Rows of weights [..., queries, keys], projected on the columns of values [..., keys, width].

    seen: None, or which keys each query sees; its row of values is 0 for the others.
    """
    moments = weights @ values  # [..., queries, width]
    if seen is None:
        gram = values.transpose(-1, -2) @ values
        return moments @ _inverse(gram) @ values.transpose(-1, -2)
    if bool((seen == seen[..., :1, :]).all()):  # padding: all queries see the same keys
        return _project(weights, values * seen[..., 0, :, None], None)
    # One Gram matrix for each query: [..., queries, width, width].
    outer = values.unsqueeze(-1) * values.unsqueeze(-2)
    grams = seen.to(values) @ outer.flatten(-2)
    grams = grams.reshape(*grams.shape[:-1], *outer.shape[-2:])
    solved = (_inverse(grams) @ moments.unsqueeze(-1)).squeeze(-1)
    return solved @ values.transpose(-1, -2) * seen


def _visible(call: DotProduct) -> Tensor | None:
    """Where queries see keys, [batch or 1, heads or 1, queries or 1, keys]; None if everywhere."""
    if call.mask is None or call.mask.dtype == torch.bool:
        return call.visible()
    seen = call.mask > torch.finfo(call.mask.dtype).min / 2
    return seen & call.visible() if call.causal else seen  # type: ignore[operator]


def _square_root(matrix: Tensor) -> Tensor:
    """R [..., n, n] with R R' = M M', for M [..., n, m]."""
    left, singular, _ = torch.linalg.svd(matrix, full_matrices=False)
    root = left * singular.unsqueeze(-2)
    missing = matrix.shape[-2] - root.shape[-1]
    return torch.nn.functional.pad(root, (0, missing))


def _inverse(gram: Tensor) -> Tensor:
    """The inverse of Gram matrices on the directions that are there, and 0 on the others."""
    inverse: Tensor = torch.linalg.pinv(gram, rtol=RANK_TOLERANCE**2, hermitian=True)
    return inverse


def value_edges(model: nn.Module, call: DotProduct, heads: Heads, what: str) -> Tensor:
    """The length of what each key adds to each query's output (Kobayashi et al. 2020).

    Key j adds the sum over heads of weight_ij * v_j W_O; the edge is the length of that vector.
    heads="mean" adds the heads up before taking the length, so that heads can cancel out; for one
    head, or any other way to merge them, lengths are taken head by head.
    """
    # v_j W_O of each head: [batch, heads, keys, hidden].
    value = call.for_heads(call.value)
    added = value.to(torch.promote_types(value.dtype, torch.float32)) @ head_projections(
        model, call
    )
    if heads != "mean":
        lengths = torch.linalg.vector_norm(added, dim=-1)
        return merge_edges(call.weights() * lengths.unsqueeze(-2), heads, what)
    # |sum_h w_h f_h|^2 = sum_gh w_g w_h f_g.f_h, with a Gram matrix of heads for each key.
    added = added.transpose(1, 2)  # [batch, keys, heads, hidden]
    gram = added @ added.transpose(-1, -2)  # [batch, keys, heads, heads]
    batch, _, n_queries, n_keys = call.shape
    squares = gram.new_empty(batch, n_queries, n_keys)
    for _, rows in _row_blocks(call):
        weights = call.weights(rows=rows).permute(0, 3, 2, 1)  # [batch, keys, queries, heads]
        squares[:, rows] = ((weights @ gram) * weights).sum(-1).transpose(-1, -2)
    scaled: Tensor = rescale_rows(squares.clamp_min(0).sqrt())
    return scaled


def _row_blocks(call: DotProduct) -> list[tuple[slice, slice]]:
    """The blocks of queries, without those of heads."""
    return [(heads, rows) for heads, rows in call.blocks() if heads.start == 0]


def merge_edges(weights: Tensor, heads: Heads, what: str) -> Tensor:
    """Merge heads [batch, heads, queries, keys] of any scale; rows sum to 1, or are 0.

    A row is 0 only where it is in every head that is merged.
    """
    n_heads = weights.shape[1]
    if isinstance(heads, int) and -n_heads <= heads < n_heads:
        weights, heads = weights[:, heads, None], 0
    empty = weights.sum((1, 3)) == 0  # [batch, queries]
    filled = torch.where(empty[:, None, :, None], 1.0, weights)
    return merge_examples(filled, heads, what).masked_fill(empty.unsqueeze(-1), 0.0)
