"""Rows of attention weights: how exactly they must sum to 1, the check, and rescaling."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from attnflow.arrays import Array, compute_dtype, dtype_name, to_numpy
from attnflow.errors import AttentionError

# How far a row's sum may be from 1. All weights are positive, so rounding each of them to a
# relative error u moves the sum by at most u, however long the row: u is 2**-8 for bfloat16,
# 2**-11 for float16, 2**-24 for float32. Kernels that round the exponentials, their sum and the
# quotient make a few such errors; sums of thousands of terms in float32 make more, and tiny
# float16 weights lose digits (2**-25 each). float64 has to take in float32 weights that were
# widened on the way.
ROW_SUM_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2}


def check_rows(weights: Array, what: str, *, leading: str) -> None:
    """Check that weights [..., queries, keys] are finite, not negative, and that rows sum to 1.

    `what` names the array and `leading` its leading axis in errors, as in "head 3".
    Raises AttentionError naming the first cell or row that is wrong.

    >>> check_rows(np.asarray([[0.5, 0.4]]), "layer 1", leading="head")
    Traceback (most recent call last):
    attnflow.errors.AttentionError: layer 1 has a row that sums to 0.9 (query 0); expected 1, ...
    """
    xp = array_namespace(weights)
    sums = xp.sum(weights, axis=-1, dtype=compute_dtype(weights))
    tolerance = ROW_SUM_TOLERANCE[dtype_name(weights)]
    # NaN fails both comparisons, and infinity the second.
    if bool(xp.min(weights) >= 0) and bool(xp.all(xp.abs(sums - 1) <= tolerance)):
        return
    host = to_numpy(weights)
    _refuse_values(host, what, leading)
    host_sums = to_numpy(sums)
    row = _first(~(np.abs(host_sums - 1) <= tolerance))
    columns = np.sum(host, axis=-2, dtype=host_sums.dtype)
    if host.shape[-1] == host.shape[-2] and np.all(np.abs(columns - 1) <= tolerance):
        fix = "Its columns sum to 1, so swap its last two axes."
    else:
        fix = "Switch dropout off with model.eval(), or divide each row by its sum."
    raise AttentionError(
        f"{what} has a row that sums to {host_sums[row]:.8g} ({_cell(row, host.ndim, leading)}); "
        f"expected 1, within {tolerance:g} for {dtype_name(weights)}. {fix}"
    )


def _refuse_values(weights: "np.ndarray[Any, np.dtype[Any]]", what: str, leading: str) -> None:
    finite = np.isfinite(weights)
    if not finite.all():
        cell = _first(~finite)
        where = _cell(cell, weights.ndim, leading)
        raise AttentionError(
            f"{what} has the weight {weights[cell]} ({where}); expected finite numbers. "
            "A query whose keys are all masked gives nan: cut padding away with "
            "Attentions.batch(..., padding_mask=...)."
        )
    if (weights < 0).any():
        cell = _first(weights < 0)
        where = _cell(cell, weights.ndim, leading)
        raise AttentionError(
            f"{what} has the weight {weights[cell]:.6g} ({where}); expected none below 0. "
            "Give the weights after the softmax, not the scores before it."
        )


def _first(wrong: "np.ndarray[Any, np.dtype[Any]]") -> tuple[int, ...]:
    return tuple(int(index) for index in np.argwhere(wrong)[0])


def _cell(index: tuple[int, ...], n_axes: int, leading: str) -> str:
    """Name a row of an array with `n_axes` axes, or with one index more, a cell."""
    names = [leading] * (n_axes - 2) + ["query", "key"]
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=False))


def rescale_rows(weights: Array) -> Array:
    """Divide each row of [..., queries, keys] by its sum; rows of zeros stay zero.

    >>> rescale_rows(np.asarray([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    xp = array_namespace(weights)
    sums = xp.sum(weights, axis=-1, keepdims=True)
    return weights / xp.where(sums == 0, xp.ones_like(sums), sums)
