import pickle

import pytest

from attnflow import errors
from tests.refusal import refusal


@pytest.mark.parametrize(
    "name", ["ShapeError", "AttentionError", "SelectionError", "FileError", "InputError"]
)
def test_wrong_input_is_a_value_error_of_attnflow(name):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.InputError)
    assert issubclass(kind, errors.AttnflowError)
    assert issubclass(kind, ValueError)


def test_a_missing_package_is_an_import_error_and_no_wrong_input():
    assert issubclass(errors.MissingDependencyError, errors.AttnflowError)
    assert issubclass(errors.MissingDependencyError, ImportError)
    assert not issubclass(errors.MissingDependencyError, errors.InputError)


def test_check_type_names_what_was_given_and_the_way_out():
    errors.check_type(1, int, "")
    with refusal(errors.InputError, "list(x)"):
        errors.check_type((), list, "Make one: list(x).")


def test_the_middle_of_a_long_part_is_left_out():
    error = errors.InputError(f"{'a' * 5000}/end does not exist", expected="x" * 1000)
    assert error.given.startswith("aaa")
    assert error.given.endswith("/end does not exist")
    assert len(error.given) < 1100
    assert error.expected == "x" * 1000
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
