import numpy as np
import pytest
import torch

from attnflow import optional
from attnflow.arrays import as_array, compute_dtype, dtype_name, stack, to_numpy
from attnflow.errors import InputError, MissingDependencyError, ShapeError
from tests.refusal import refusal
from tests.weights import OnlyDLPack


def test_numpy_arrays_stay_as_they_are():
    array = np.eye(2)
    assert as_array(array, "weights") is array


def test_tensors_stay_where_they_are_and_leave_their_autograd_graph():
    tensor = torch.eye(2, requires_grad=True)
    taken = as_array(tensor, "weights")
    assert taken.data_ptr() == tensor.data_ptr()
    assert not taken.requires_grad


def test_dlpack_is_read_without_a_copy():
    array = np.eye(2)
    taken = as_array(OnlyDLPack(array), "weights")
    assert isinstance(taken, np.ndarray)
    assert np.shares_memory(taken, array)


def test_dlpack_that_numpy_cannot_hold_is_read_by_torch():
    tensor = torch.eye(2, dtype=torch.bfloat16)
    taken = as_array(OnlyDLPack(tensor), "weights")
    assert taken.dtype == torch.bfloat16
    assert taken.data_ptr() == tensor.data_ptr()


def raise_import_error(name):
    raise ImportError(name)


def test_without_torch_such_an_array_names_what_to_install(monkeypatch):
    tensor = OnlyDLPack(torch.eye(2, dtype=torch.bfloat16))
    monkeypatch.setattr(optional, "import_module", raise_import_error)
    with refusal(MissingDependencyError, "pip install 'attnflow[models]'"):
        as_array(tensor, "weights")


def test_objects_with_an_array_method_are_read():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return np.eye(2, dtype=np.float32)

    assert dtype_name(as_array(Wrapped(), "weights")) == "float32"


def test_integers_become_float64():
    assert dtype_name(as_array([[1, 0], [0, 1]], "weights")) == "float64"
    assert dtype_name(as_array(torch.eye(2, dtype=torch.int64), "weights")) == "float64"


def test_ragged_lists_are_refused():
    with refusal(ShapeError, "weights"):
        as_array([[1.0], [0.5, 0.5]], "weights")


@pytest.mark.parametrize(
    ("value", "given"),
    [({"a": 1}, "dict"), (["text"], "str"), (np.eye(2, dtype=complex), "complex128")],
)
def test_what_is_no_real_number_is_refused(value, given):
    with refusal(InputError, given, "float64"):
        as_array(value, "weights")


def test_half_precision_is_computed_in_float32():
    assert compute_dtype(np.zeros(1, dtype=np.float16)) == np.float32
    assert compute_dtype(torch.zeros(1, dtype=torch.bfloat16)) == torch.float32
    assert compute_dtype(np.zeros(1)) == np.float64


def test_bfloat16_comes_to_numpy_as_float32():
    host = to_numpy(torch.full((1,), 0.5, dtype=torch.bfloat16))
    assert host.dtype == np.float32
    assert host.tolist() == [0.5]


def test_stack_takes_the_common_type():
    assert stack([np.zeros(1, dtype=np.float32), np.zeros(1)]).dtype == np.float64
    assert stack([torch.zeros(1), torch.zeros(1, dtype=torch.float64)]).dtype == torch.float64
