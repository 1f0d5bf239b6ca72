"""How the solver is compiled: once per machine, kept on disk, free of Python's lock.

Places in arrays, for the compiled solver: what indices are counted from.

An array is seven numbers to the compiler, a place in one is a single number. And every index into
an array is looked at for being negative, so that loops cannot run on several numbers at a time; an
index counted from a place is not. With dozens of arrays in every kernel that saves a third of
compiling, and most of a call. Nothing checks these indices: what comes from outside is checked
before.

Sets of positions as rows of 64-bit words, for the compiled solver.

Finding the next member costs one machine instruction instead of a walk over
positions, which is what keeps the searches in this package sparse.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

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


def vectorized(function: Function) -> Function:
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


def _place(_typing_context: Any, base: Any, _offset: Any) -> Any:
    """The place of an element by its number, from the start of an array or from another place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = arguments[0]
        if isinstance(signature.args[0], types.Array):
            start = context.make_array(signature.args[0])(context, builder, start).data
        return builder.gep(start, [arguments[1]])

    pointer: Any = types.CPointer(base.dtype)  # type: ignore[no-untyped-call]
    return pointer(base, types.intp), generate


def _place_uncompiled(base: Any, offset: int) -> Any:
    """The same in Python, for debugging with Numba's compiler switched off."""
    return base[offset:]


place: Any = _place_uncompiled if numba.config.DISABLE_JIT else intrinsic(_place)  # type: ignore[attr-defined]

ONE = np.uint64(1)
ALL = ~np.uint64(0)


def _lowest_bit(_typing_context: Any, _word: Any) -> Any:
    """Index of the lowest set bit of a non-zero word: one instruction of the processor."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, 1))

    return types.uint64(types.uint64), generate


def _lowest_bit_uncompiled(word: Any) -> int:
    """The same in Python, for debugging with Numba's compiler switched off."""
    return (int(word) & -int(word)).bit_length() - 1


lowest_bit: Any = _lowest_bit_uncompiled if numba.config.DISABLE_JIT else intrinsic(_lowest_bit)  # type: ignore[attr-defined]


@kernel
def first_member(word: Any, w: int) -> Any:
    """The smallest member of a set that is not empty, from its first filled word, number w."""
    return (w << 6) + np.int64(lowest_bit(word))


@kernel
def fill(words: Any, start: int, n_words: int, first: int, end: int) -> None:
    """Make the set stored at `start` hold the members first … end - 1."""
    for w in range(n_words):
        skipped, wanted = first - (w << 6), end - (w << 6)
        word = ALL if skipped < 64 and wanted > 0 else ~ALL
        if skipped > 0:
            word &= ALL << np.uint64(skipped & 63)
        if wanted < 64:
            word &= (ONE << np.uint64(wanted & 63)) - ONE
        words[start + w] = word


@kernel
def holds(words: Any, start: int, member: int) -> bool:
    """Say whether `member` is in the set stored at `start`."""
    return bool((words[start + (member >> 6)] >> np.uint64(member & 63)) & ONE)


@kernel
def add(words: Any, start: int, member: int) -> None:
    """Put `member` into the set stored at `start`."""
    words[start + (member >> 6)] |= ONE << np.uint64(member & 63)


@kernel
def drop(words: Any, start: int, member: int) -> None:
    """Take `member` out of the set stored at `start`."""
    words[start + (member >> 6)] &= ~(ONE << np.uint64(member & 63))


@kernel
def pack(x: int, u: int, q: int) -> int:
    """The edge from (x + 1, u) to (x, q) as one number, to be taken apart without divisions."""
    return (x << 40) | (u << 20) | q
