"""How the solver is compiled: once per machine, kept on disk, free of Python's lock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

# Without Numba's reference counts, whose atomic operations would cost ten times the arithmetic:
# kernels allocate nothing, and their arrays are kept alive by the caller.
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}

# What tells whether the files that kernels are made of have changed.
SOURCES = [
    (path.name, path.stat().st_mtime, path.stat().st_size)
    for path in sorted(Path(__file__).parent.glob("*.py"))
]


def kernel(function: Function) -> Function:
    """Compile a function that only reads and writes the arrays it is given."""
    return _compile(function)


def vectorised(function: Function) -> Function:
    """Compile it with sums in any order, so that several numbers are added at a time."""
    return _compile(function, fastmath={"reassoc", "nsz"})


def inlined(function: Function) -> Function:
    """Compile it into its callers: for the innermost steps, where a call is too dear."""
    return _compile(function, inline="always")


def _compile(function: Function, **options: Any) -> Function:
    compiled: Function = numba.njit(**OPTIONS, **options)(function)
    index: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):  # Numba looks at this kernel's file, not at those it calls
        index._source_stamp = (index._source_stamp, SOURCES)
    return compiled


def uncompiled(function: Function) -> Function:
    """The Python function that one of the above was compiled from."""
    plain: Function = getattr(function, "py_func", function)  # the same with the compiler off
    return plain


@cache
def announce_compilation(function: Any, first: Any) -> None:
    """Say once that `function` will be compiled now, unless it is, or lies on disk already.

    first: its first argument, whose type tells what it is compiled for.
    """
    if not hasattr(function, "signatures"):  # the compiler is switched off
        return
    index = getattr(getattr(function, "_cache", None), "_cache_file", None)
    stored = [] if index is None else [key[0] for key in index._load_index()]
    kind = function.typeof_pyval(first)
    if all(types[0] != kind for types in (*function.signatures, *stored)):
        logger.warning("compiling the flow solver for this kind of graph, once; some 15 seconds")
