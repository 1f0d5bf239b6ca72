"""From the heads of a layer to one matrix, and from that to the layer with its residual connection.

Both work on NumPy arrays and torch tensors, where they are. Half precision is computed in float32.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from attnflow.arrays import Array, as_array, compute_dtype, shape_text
from attnflow.errors import AttentionError, InputError, SelectionError, ShapeError
from attnflow.rows import rescale_rows

Heads: TypeAlias = Literal["mean", "max", "min"] | int | Callable[[Array], Array]
ResidualWeight: TypeAlias = float | Sequence[float]


def merge_heads(layer: Array, heads: Heads, what: str) -> Array:
    """One matrix [queries, keys], with rows that sum to 1, from a layer [heads, queries, keys].

    heads: "mean", "max" or "min" over heads, the number of one head, or a function of the layer.
    `what` names the layer in errors.
    Raises InputError or SelectionError for heads that mean nothing here, AttentionError if a row
    is left without weight.

    >>> merge_heads(np.asarray([[[0.75, 0.25]], [[0.25, 0.75]]]), "mean", "layer 1")
    array([[0.5, 0.5]])
    """
    xp = array_namespace(layer)
    dtype = compute_dtype(layer)
    n_heads = int(layer.shape[0])
    if callable(heads):
        merged = _call(heads, xp.astype(layer, dtype, copy=False), what)
    elif heads == "mean":
        merged = xp.sum(layer, axis=0, dtype=dtype) / n_heads
    elif heads in ("max", "min"):
        merged = xp.astype((xp.max if heads == "max" else xp.min)(layer, axis=0), dtype)
    elif isinstance(heads, int) and -n_heads <= heads < n_heads:
        merged = xp.astype(layer[heads], dtype)
    elif isinstance(heads, int):
        raise SelectionError(
            f"{what} has no head {heads}; expected 0 to {n_heads - 1}. Heads count from 0."
        )
    else:
        raise InputError(
            f"heads is {heads!r}; expected 'mean', 'max', 'min', the number of a head, or a "
            "function. Choose one of these."
        )
    _check_merged(merged, heads, what)
    return rescale_rows(merged)


def _call(heads: Callable[[Array], Array], layer: Array, what: str) -> Array:
    merged = as_array(heads(layer), f"what heads made of {what}")
    if merged.shape != layer.shape[1:]:
        raise ShapeError(
            f"heads made {shape_text(merged)} of {what}; expected [queries, keys], here "
            f"{shape_text(layer[0])}. Let the function merge the first axis."
        )
    return merged


def _check_merged(merged: Array, heads: Heads, what: str) -> None:
    xp = array_namespace(merged)
    if bool(xp.min(merged) >= 0) and bool(xp.all(xp.sum(merged, axis=-1) > 0)):
        return
    raise AttentionError(
        f"heads={describe_heads(heads)!r} leaves {what} with a row that has no weight, or with "
        "weights below 0; expected some weight in each row. Use heads='mean'."
    )


def describe_heads(heads: Heads) -> str | int:
    """How results record the way heads were merged: functions by their name."""
    return getattr(heads, "__name__", type(heads).__name__) if callable(heads) else heads


def resolve_residual(residual_weight: ResidualWeight, n_layers: int) -> tuple[float, ...]:
    """One residual weight per layer, each between 0 and 1.

    >>> resolve_residual(0.5, 2)
    (0.5, 0.5)
    """
    try:
        values = np.asarray(residual_weight, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.asarray(np.nan)
    if values.ndim == 0:
        values = np.full(n_layers, values)
    if values.shape != (n_layers,):
        raise ShapeError(
            f"residual_weight has {values.size} values; expected one number, or one for each of "
            f"the {n_layers} layers. Give a number such as 0.5."
        )
    for value in values:
        if not 0 <= value <= 1:
            raise InputError(
                f"residual_weight is {residual_weight!r}; expected numbers from 0 (no residual "
                "connection) to 1 (nothing else). The paper uses 0.5."
            )
    return tuple(float(value) for value in values)


def mix_residual(
    attention: Array, residual: Sequence[float], own: NDArray[np.bool_] | None = None
) -> Array:
    """A = (1 - r) W + r I for each layer of [..., layers, n, n].

    residual: r of each layer.
    own: [layers, n], which positions have a residual connection; all if not given.

    >>> mix_residual(np.asarray([[[0.0, 1.0], [1.0, 0.0]]]), [0.25])
    array([[[0.25, 0.75],
            [0.75, 0.25]]])
    """
    xp = array_namespace(attention)
    place = {"dtype": attention.dtype, "device": device_of(attention)}
    r = xp.asarray(list(residual), **place)[:, None, None]
    if own is not None:
        r = r * xp.astype(xp.asarray(own, device=place["device"]), attention.dtype)[:, :, None]
    return (1 - r) * attention + r * xp.eye(int(attention.shape[-1]), **place)
