"""Merge the heads of a layer of attention weights into one matrix.

Everything works on NumPy arrays and torch tensors on their device; half precision is computed in
float32.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from array_api_compat import array_namespace

from attnflow.arrays import Array, as_array, compute_dtype, rescale_rows, shape_text
from attnflow.errors import AttentionError, InputError, SelectionError, ShapeError, quote

Heads: TypeAlias = Literal["mean", "max", "min"] | int | Callable[[Array], Array]


def merge_heads(layer: Array, heads: Heads, what: str) -> Array:
    """Merge a layer [heads, queries, keys] into one matrix [queries, keys] whose rows sum to 1.

    heads: "mean", "max" or "min" over heads, the index of one head, or a function of the layer.
    what: the name of the layer in errors.
    Raises InputError or SelectionError for invalid heads, AttentionError if a row has no weight.

    >>> import numpy as np
    >>> merge_heads(np.asarray([[[0.75, 0.25]], [[0.25, 0.75]]]), "mean", "layer 1")
    array([[0.5, 0.5]])
    """
    xp = array_namespace(layer)
    dtype = compute_dtype(layer)
    n_heads = int(layer.shape[0])
    check_heads(heads)
    if isinstance(heads, int):
        check_head(heads, n_heads, what)
    if callable(heads):
        merged = _call(heads, xp.astype(layer, dtype, copy=False), what)
    elif heads == "mean":
        merged = xp.sum(layer, axis=0, dtype=dtype) / n_heads
    elif heads in ("max", "min"):
        merged = xp.astype((xp.max if heads == "max" else xp.min)(layer, axis=0), dtype)
    else:
        merged = xp.astype(layer[heads], dtype)
    _check_merged(merged, heads, what)
    return rescale_rows(merged)


def check_head(head: int, n_heads: int, what: str) -> None:
    """Raise SelectionError unless there is such a head; negative ones count from the last."""
    if not -n_heads <= head < n_heads:
        raise SelectionError(
            f"heads is {head} for {what}",
            expected=f"0 to {n_heads - 1}",
            fix="Heads count from 0.",
        )


def check_heads(heads: Any) -> None:
    """Raise InputError unless this is a way to merge heads; the index of a head may be any."""
    is_name = isinstance(heads, str) and heads in ("mean", "max", "min")
    is_index = isinstance(heads, int) and not isinstance(heads, bool)
    if not (is_name or is_index or (callable(heads) and not isinstance(heads, type))):
        raise InputError(
            f"heads is {quote(heads)}",
            expected="'mean', 'max', 'min', the index of a head, or a function",
            fix="Use heads='mean', the default.",
        )


def _call(heads: Callable[[Array], Array], layer: Array, what: str) -> Array:
    try:
        result = heads(layer)
    except Exception as error:  # code of the caller
        raise InputError(
            f"the function heads failed for {what} ({type(error).__name__}: {error})",
            expected="a function from [heads, queries, keys] to [queries, keys]",
            fix="Fix the function.",
        ) from error
    merged = as_array(result, f"the result of heads for {what}")
    if merged.shape != layer.shape[1:]:
        raise ShapeError(
            f"the function heads returned shape {shape_text(merged)} for {what}",
            expected=f"[queries, keys], here {shape_text(layer[0])}",
            fix="Reduce the first axis only.",
        )
    return merged


def _check_merged(merged: Array, heads: Heads, what: str) -> None:
    xp = array_namespace(merged)
    if bool(xp.min(merged) >= 0) and bool(xp.all(xp.sum(merged, axis=-1) > 0)):
        return
    raise AttentionError(
        f"heads={describe_heads(heads)!r} leaves {what} with a row that has no "
        "weight, or with weights below 0",
        expected="some weight in each row",
        fix="Use heads='mean'.",
    )


def describe_heads(heads: Heads) -> str | int:
    """How results record the way heads were merged; functions by their name."""
    return getattr(heads, "__name__", type(heads).__name__) if callable(heads) else heads
