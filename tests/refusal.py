"""Check that an error is raised, with its parts, without depending on its wording."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from attnflow.errors import AttnflowError


@contextmanager
def refusal(kind: type[Exception], *values: object) -> Iterator[None]:
    """Expect an error of exactly this class that mentions all values.

    values: names, numbers, options and paths, as they appear in the message; not sentences.
    An AttnflowError must also say what was given, and what was expected or how to fix it.
    """
    with pytest.raises(kind) as caught:
        yield
    error = caught.value
    assert caught.type is kind
    if isinstance(error, AttnflowError):
        assert error.given
        assert error.expected or error.fix
    for value in values:
        assert str(value) in str(error)
