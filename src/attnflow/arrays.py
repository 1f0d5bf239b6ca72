"""NumPy arrays and torch tensors through one interface.

Computations ask `array_namespace(x)` for the functions that fit `x`, so one implementation serves
NumPy, torch and every device. torch is imported only when an array needs it.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_torch_array, to_device
from array_api_compat import device as device_of
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import InputError, ShapeError, quote
from attnflow.optional import import_optional

# A NumPy array or a torch tensor. No static type covers both.
Array: TypeAlias = Any

FLOAT_TYPES = ("float64", "float32", "float16", "bfloat16")


def as_array(value: Any, what: str) -> Array:
    """Convert `value` to an array of floating-point numbers, without a copy where possible.

    NumPy arrays and torch tensors keep their type and device; tensors are detached. Other values
    are converted through DLPack, `__array__` or nested lists. Integers become float64.
    what: the name of the value in errors.
    Raises ShapeError for ragged lists, InputError for values that are not real numbers.

    >>> as_array([[1, 0], [0, 1]], "weights").dtype
    dtype('float64')
    """
    array = _convert(value, what)
    name = dtype_name(array)
    if name in FLOAT_TYPES:
        return array
    xp = array_namespace(array)
    if name.startswith(("int", "uint", "bool")):
        return xp.astype(array, xp.float64)
    given = type(value).__name__ if name == "object" else name
    raise InputError(
        f"{what} has type {given}",
        expected=f"numbers in {', '.join(FLOAT_TYPES)}",
        fix="Pass a NumPy array, a torch tensor or nested lists of numbers.",
    )


def as_stacked(value: Any, what: str) -> Array:
    """Convert `value` like `as_array`; stack a list of arrays along a new first axis.

    Raises ShapeError if the arrays differ in shape, InputError if only some are tensors.
    """
    if not isinstance(value, list | tuple) or not value:
        return as_array(value, what)
    arrays = [as_array(item, f"{what}[{i}]") for i, item in enumerate(value)]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(
                f"{what}[{i}] has shape {shape_text(array)} and {what}[0] {shape_text(arrays[0])}",
                expected="equal shapes",
                fix="For layers of different sizes use AttentionGraph.from_layers.",
            )
        if is_torch_array(array) != is_torch_array(arrays[0]):
            raise InputError(
                f"{what}[{i}] is a {type(array).__name__} and {what}[0] a "
                f"{type(arrays[0]).__name__}",
                expected="arrays of one type",
                fix="Convert all to NumPy arrays, or all to torch tensors.",
            )
    return stack(arrays)


def _convert(value: Any, what: str) -> Array:
    if isinstance(value, np.ndarray):
        return _convert_numpy(value, what)
    if is_torch_array(value):
        return _convert_tensor(value, what)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, what)
    try:
        return np.asarray(value)
    except Exception as error:  # `__array__` is code of other packages
        raise ShapeError(
            f"{what} cannot be read as one array ({error})",
            expected="rows of equal length",
            fix="Pass an array, or nested lists with rows of equal length.",
        ) from error


def _convert_numpy(array: Any, what: str) -> Array:
    if np.ma.is_masked(array):
        raise InputError(
            f"{what} is a masked array with {int(np.ma.getmaskarray(array).sum())} masked values",
            expected="a value in every place",
            fix="Fill them: array.filled(0).",
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.asarray(array)


def _convert_tensor(tensor: Any, what: str) -> Array:
    layout = str(tensor.layout).removeprefix("torch.")
    if tensor.is_meta or tensor.is_nested or layout != "strided":
        kind = "on the device meta, without values" if tensor.is_meta else f"of layout {layout}"
        raise InputError(
            f"{what} is a tensor {'nested' if tensor.is_nested else kind}",
            expected="a dense tensor with values",
            fix="Load the weights, or convert the tensor with to_dense() or to_padded_tensor(0).",
        )
    return tensor.detach().resolve_conj().resolve_neg()


def _from_dlpack(value: Any, what: str) -> Array:
    try:
        return np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        # NumPy supports neither accelerators nor bfloat16; torch supports both without a copy.
        torch = import_optional("torch", f"reading {what} ({error})")
        try:
            return torch.from_dlpack(value)
        except Exception as failure:  # code of other packages
            raise InputError(
                f"{what} is a {type(value).__name__} that cannot be read ({failure})",
                expected="an array",
                fix="Convert it to a NumPy array or a torch tensor.",
            ) from failure


def to_numpy(array: Array) -> "np.ndarray[Any, np.dtype[Any]]":
    """Return an array as NumPy, copied to the host if needed; bfloat16 becomes float32."""
    if is_torch_array(array):
        array = array.detach().cpu()
        return np.asarray(array.float() if dtype_name(array) == "bfloat16" else array)
    return np.asarray(array)


def stack(arrays: Sequence[Array]) -> Array:
    """Stack arrays of equal shape along a new first axis, in their common type.

    The result is on the device of the first array: layers of a model that is split over several
    devices are on several devices.
    """
    xp = array_namespace(*arrays)
    dtype = xp.result_type(*arrays)
    device = device_of(arrays[0])
    return xp.stack([to_device(xp.astype(a, dtype, copy=False), device) for a in arrays])


def dtype_name(array: Array) -> str:
    """The name of the element type, the same for NumPy and torch: float32, bfloat16 and so on."""
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def compute_dtype(array: Array) -> Any:
    """The type to compute in: the type of the array, or float32 for half precision."""
    xp = array_namespace(array)
    return xp.float32 if dtype_name(array) in ("float16", "bfloat16") else array.dtype


def shape_text(array: Array) -> str:
    """The shape as written in messages.

    >>> shape_text(np.zeros((2, 3)))
    '[2, 3]'
    """
    return str([int(size) for size in array.shape])


def rescale_rows(weights: Array) -> Array:
    """Divide each row of [..., queries, keys] by its sum; rows of zeros stay zero.

    >>> rescale_rows(np.asarray([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    xp = array_namespace(weights)
    sums = xp.sum(weights, axis=-1, keepdims=True)
    return weights / xp.where(sums == 0, xp.ones_like(sums), sums)


def read_numbers(values: ArrayLike) -> NDArray[np.float64]:
    """Return scores as an array on the host. Raises InputError if they are not numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except Exception as error:  # arrays of other packages raise anything
        raise InputError(
            f"the scores are {quote(values)}", expected="numbers", fix="Pass an array of numbers."
        ) from error
