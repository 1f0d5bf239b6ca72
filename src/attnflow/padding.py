"""Cutting the padding of a batch away, left, right or both."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from attnflow.arrays import Array, as_array, compute_dtype, dtype_name, shape_text, to_numpy
from attnflow.errors import AttentionError, InputError, ShapeError
from attnflow.rows import ROW_SUM_TOLERANCE

Kept = NDArray[np.bool_]  # [positions], true for a token


def kept_positions(padding_mask: Any, n_examples: int, n: int) -> list[Kept]:
    """For each example, which of the n positions are tokens; all of them without a mask.

    >>> kept_positions([[0, 1, 1]], 1, 3)
    [array([False,  True,  True])]
    """
    if padding_mask is None:
        return [np.ones(n, dtype=bool) for _ in range(n_examples)]
    mask = to_numpy(as_array(padding_mask, "padding_mask"))
    if mask.shape != (n_examples, n):
        raise ShapeError(
            f"padding_mask has shape {shape_text(mask)}; expected [batch, positions], here "
            f"[{n_examples}, {n}]. Give the attention_mask that the tokenizer returned."
        )
    if not np.isin(mask, (0, 1)).all():
        raise InputError(
            "padding_mask has values other than 0 and 1; expected 1 for a token and 0 for padding. "
            "Give the attention_mask that the tokenizer returned."
        )
    for example, row in enumerate(mask):
        if not row.any():
            raise InputError(
                f"padding_mask has only padding in example {example}; expected at least one token. "
                "Leave that example out."
            )
    return [row.astype(bool) for row in mask]


def cut_layer(layer: Array, kept: Kept, what: str) -> Array:
    """The tokens' part of one example's layer [heads, queries, keys].

    Raises AttentionError if a token attends to padding.
    """
    if kept.all():
        return layer
    indices = np.flatnonzero(kept)
    if len(indices) == indices[-1] - indices[0] + 1:  # one run: a view instead of a copy
        run = slice(int(indices[0]), int(indices[-1]) + 1)
        rows = layer[:, run, :]
        cut = rows[:, :, run]
    else:
        rows = layer[:, indices, :]
        cut = rows[:, :, indices]
    xp = array_namespace(layer)
    dtype = compute_dtype(layer)
    lost = xp.max(xp.sum(rows, axis=-1, dtype=dtype) - xp.sum(cut, axis=-1, dtype=dtype))
    if float(lost) > ROW_SUM_TOLERANCE[dtype_name(layer)]:
        raise AttentionError(
            f"{what} gives {float(lost):.3g} of a token's attention to padding; expected none. "
            "Give the model and Attentions.batch the same mask, with 1 for a token and 0 for "
            "padding."
        )
    return cut


def cut_tokens(tokens: Sequence[str], kept: Kept) -> Sequence[str]:
    """The tokens without padding, whether they came with it or without."""
    if len(tokens) != len(kept):
        return tokens
    return [token for token, keep in zip(tokens, kept, strict=True) if keep]
