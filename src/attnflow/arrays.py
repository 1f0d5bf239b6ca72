"""NumPy arrays and torch tensors, treated alike.

Code that computes asks `array_namespace(x)` for the functions that fit `x`, so one implementation
serves both kinds and every device. torch is never imported here unless an array needs it.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_torch_array, to_device
from array_api_compat import device as device_of

from attnflow.errors import InputError, MissingDependencyError, ShapeError

# A NumPy array or a torch tensor. No type says "either of these, with the same methods".
Array: TypeAlias = Any

FLOAT_TYPES = ("float64", "float32", "float16", "bfloat16")


def as_array(value: Any, what: str) -> Array:
    """Take `value` as an array of floating-point numbers, without a copy where that is possible.

    NumPy arrays and torch tensors stay what they are, on their device; a tensor leaves its autograd
    graph. Anything else comes in through DLPack, `__array__` or nested lists. Integers become
    float64. `what` names the value in errors.
    Raises ShapeError for ragged lists, InputError for values that are no real numbers.

    >>> as_array([[1, 0], [0, 1]], "weights").dtype
    dtype('float64')
    """
    array = _convert(value, what)
    if dtype_name(array) in FLOAT_TYPES:
        return array
    xp = array_namespace(array)
    if dtype_name(array) != "object" and xp.isdtype(array.dtype, ("integral", "bool")):
        return xp.astype(array, xp.float64)
    given = type(value).__name__ if dtype_name(array) == "object" else dtype_name(array)
    raise InputError(
        f"{what} is of type {given}",
        expected=f"numbers in {', '.join(FLOAT_TYPES)}",
        fix="Give a NumPy array, a torch tensor or nested lists of numbers.",
    )


def as_stacked(value: Any, what: str) -> Array:
    """Take `value` as `as_array` does; arrays in a list are stacked along a new first axis.

    Raises ShapeError if those differ in shape, InputError if some are tensors and some are not.
    """
    if not isinstance(value, list | tuple) or not value:
        return as_array(value, what)
    arrays = [as_array(item, f"{what}[{i}]") for i, item in enumerate(value)]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(
                f"{what}[{i}] has shape {shape_text(array)} and {what}[0] {shape_text(arrays[0])}",
                expected="the same",
                fix="For layers of different sizes use AttentionGraph.from_layers.",
            )
        if is_torch_array(array) != is_torch_array(arrays[0]):
            raise InputError(
                f"{what}[{i}] is a {type(array).__name__} and {what}[0] a "
                f"{type(arrays[0]).__name__}",
                expected="one kind",
                fix="Convert all to one of them.",
            )
    return stack(arrays)


def _convert(value: Any, what: str) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if is_torch_array(value):
        return value.detach()
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, what)
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"{what} cannot be read as one array ({error})",
            expected="rows of equal length",
            fix="Give an array, or nested lists whose rows are equally long.",
        ) from error


def _from_dlpack(value: Any, what: str) -> Array:
    try:
        return np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        # NumPy has neither accelerators nor bfloat16; torch has both, and copies nothing.
        return import_torch(f"reading {what} ({error})").from_dlpack(value)


def import_torch(purpose: str) -> Any:
    """Import torch, or say what it is needed for and how to install it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingDependencyError(
            f"torch is not installed and {purpose} needs it. Install it: pip install torch"
        ) from error


def to_numpy(array: Array) -> "np.ndarray[Any, np.dtype[Any]]":
    """Copy an array to the host as NumPy, if it is not there already; bfloat16 becomes float32."""
    if is_torch_array(array):
        array = array.detach().cpu()
        return np.asarray(array.float() if dtype_name(array) == "bfloat16" else array)
    return np.asarray(array)


def stack(arrays: Sequence[Array]) -> Array:
    """Stack arrays of one shape, on a new first axis, in their common type.

    The result is on the device of the first: a model spread over several devices gives layers on
    each of them.
    """
    xp = array_namespace(*arrays)
    dtype = xp.result_type(*arrays)
    device = device_of(arrays[0])
    return xp.stack([to_device(xp.astype(a, dtype, copy=False), device) for a in arrays])


def dtype_name(array: Array) -> str:
    """The name of the element type, the same for both kinds: float32, bfloat16, and so on."""
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def compute_dtype(array: Array) -> Any:
    """The type to compute in: that of the array, but float32 for half precision."""
    xp = array_namespace(array)
    return xp.float32 if dtype_name(array) in ("float16", "bfloat16") else array.dtype


def shape_text(array: Array) -> str:
    """The shape as it is written in messages.

    >>> shape_text(np.zeros((2, 3)))
    '[2, 3]'
    """
    return str([int(size) for size in array.shape])
