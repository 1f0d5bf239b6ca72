"""How the solver is compiled: once per machine, kept on disk, free of Python's lock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

# Without Numba's reference counts, whose atomic operations would cost ten times the arithmetic:
# kernels allocate nothing, and their arrays are kept alive by the caller.
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def kernel(function: Function) -> Function:
    """Compile a function that only reads and writes the arrays it is given."""
    compiled: Function = numba.njit(**OPTIONS)(function)
    return compiled


def inlined(function: Function) -> Function:
    """Compile it into its callers: for the innermost steps, where a call is too dear."""
    compiled: Function = numba.njit(**OPTIONS, inline="always")(function)
    return compiled


def uncompiled(function: Function) -> Function:
    """The Python function that one of the above was compiled from."""
    plain: Function = getattr(function, "py_func", function)
    return plain


@cache
def announce_compilation(function: Any) -> None:
    """Say once that `function` will be compiled now, unless it lies on disk already."""
    index = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if not function.signatures and (index is None or not index._load_index()):
        logger.warning("compiling the flow solver for this machine, once; some 15 seconds")
