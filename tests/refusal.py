"""Checking that something is refused, and in which words."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusal(kind: type[Exception], *wording: str) -> Iterator[None]:
    """Expect an error of this kind whose message has all of the wording."""
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    assert caught.type is kind
    for words in wording:
        assert words in message
