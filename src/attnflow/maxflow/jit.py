"""Compilation of the solver's kernels, and what compiled code needs that Numba lacks.

Here are the decorators of all kernels, the folder of their cache, pointers into arrays, and sets
of positions stored as bits. Kernels are compiled once per machine, cached on disk, and release
Python's global lock. Nothing here knows about flows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from attnflow.maxflow.compilation import watch

Function = TypeVar("Function", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

# No reference counting ("_nrt"): its atomic operations would cost ten times the arithmetic.
# Kernels allocate nothing, and the caller keeps their arrays alive.
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}

COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]

# Name, time and size of every file of the solver. Part of the cache key of each kernel.
SOURCES = [
    (path.name, path.stat().st_mtime, path.stat().st_size)
    for path in sorted(Path(__file__).parent.glob("*.py"))
]

_uncached: list[Exception] = []  # the first error of the cache


# Decorators


def kernel(function: Function) -> Function:
    """Compile a function that reads and writes only the arrays it receives."""
    return _compile(function)


def vectorized(function: Function) -> Function:
    """Compile a function and allow sums in any order, so that loops use vector instructions."""
    return _compile(function, fastmath={"reassoc", "nsz"})


def fused(function: Function) -> Function:
    """The same as `vectorized`, and round a product and a sum together, where processors can."""
    return _compile(function, fastmath={"reassoc", "nsz", "contract"})


def inlined(function: Function) -> Function:
    """Compile a function into its callers, where a call would cost more than its body."""
    return _compile(function, inline="always")


def _compile(function: Function, **options: Any) -> Function:
    compiled: Any
    try:
        compiled = numba.njit(**OPTIONS, **options)(function)
    except (RuntimeError, OSError) as error:  # there is no folder that the cache can be written to
        _report_uncached(error)
        compiled = numba.njit(**{**OPTIONS, "cache": False}, **options)(function)
    if COMPILED:
        watch(compiled, inlined="inline" in options)
    _guard_cache(getattr(compiled, "_cache", None))
    index: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):  # Numba checks only the kernel's own file for changes
        index._source_stamp = (index._source_stamp, SOURCES)
    return compiled  # type: ignore[no-any-return]


def _guard_cache(cache: Any) -> None:
    """Let a kernel run if its cache cannot be read or written: it is compiled again."""
    for name in ("load_overload", "save_overload"):
        if hasattr(cache, name):
            setattr(cache, name, _reported(getattr(cache, name)))


def _reported(access: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return access(*arguments)
        except Exception as error:  # a full disk, or any error of a damaged pickle
            _report_uncached(error)
            return None

    return call


def _report_uncached(error: Exception) -> None:
    """Log once that compiled code is not stored, or not read."""
    if not _uncached:
        _uncached.append(error)
        logger.warning(
            "compiled code cannot be cached (%s): each process compiles it again, which takes "
            "about 15 seconds for the flow solver. Set NUMBA_CACHE_DIR to a folder that can be "
            "written.",
            str(error).splitlines()[0] if str(error) else type(error).__name__,
        )


def cache_folder(kernel: Any) -> str | None:
    """Return the folder that stores the compiled code of a kernel; None if it is not stored."""
    path = getattr(getattr(kernel, "_cache", None), "cache_path", None)
    return None if path is None else str(path)


# Pointers
#
# To the compiler, an array is seven numbers and a pointer one. Also, Numba checks every array
# index for being negative, and these checks prevent vectorization. With dozens of arrays in a
# kernel, pointers save a third of the compile time and most of the cost of a call. Nothing checks
# an index into a pointer: arguments from outside are validated before a kernel runs.


def _pointer(_typing_context: Any, base: Any, _offset: Any) -> Any:
    """Return a pointer to an element of an array, or of memory that another pointer refers to."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = address(context, builder, signature.args[0], arguments[0])
        return builder.gep(start, [arguments[1]])

    return pointer_type(base.dtype)(base, types.intp), generate


def _pointer_in_python(base: Any, offset: int) -> Any:
    """Return the rest of an array: replaces `pointer` when Numba's compiler is switched off."""
    return base[offset:]


pointer: Any = intrinsic(_pointer) if COMPILED else _pointer_in_python


def pointer_type(dtype: Any) -> Any:
    """Return Numba's type for pointers to numbers of one of Numba's types."""
    return types.CPointer(dtype)  # type: ignore[no-untyped-call]


def address(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return the address of the first element of an array or pointer, while code is generated."""
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, builder, value).data
    return value


# Sets of positions
#
# A set is a row of 64-bit words, one bit per position. The next member is found by one machine
# instruction, which keeps searches proportional to the members and not to all positions.

ONE = np.uint64(1)
ALL = ~np.uint64(0)
NO_MEMBER = np.uint64(0)


def _lowest_bit(_typing_context: Any, _word: Any) -> Any:
    """Return the index of the lowest set bit of a non-zero word."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, 1))

    return types.uint64(types.uint64), generate


def _lowest_bit_in_python(word: Any) -> int:
    """Replace `lowest_bit` when Numba's compiler is switched off."""
    return (int(word) & -int(word)).bit_length() - 1


lowest_bit: Any = intrinsic(_lowest_bit) if COMPILED else _lowest_bit_in_python


def _highest_bit(_typing_context: Any, _word: Any) -> Any:
    """Return the index of the highest set bit of a non-zero word."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        zeros = builder.ctlz(arguments[0], context.get_constant(types.boolean, 1))
        return builder.sub(context.get_constant(types.uint64, 63), zeros)

    return types.uint64(types.uint64), generate


def _highest_bit_in_python(word: Any) -> int:
    """Replace `highest_bit` when Numba's compiler is switched off."""
    return int(word).bit_length() - 1


highest_bit: Any = intrinsic(_highest_bit) if COMPILED else _highest_bit_in_python


@kernel
def first_member(word: Any, w: int) -> Any:
    """Return the smallest member in a non-zero word; w: the number of the word in its set."""
    return (w << 6) + np.int64(lowest_bit(word))


@kernel
def last_member(word: Any, w: int) -> Any:
    """Return the largest member in a non-zero word; w: the number of the word in its set."""
    return (w << 6) + np.int64(highest_bit(word))


@kernel
def fill(words: Any, start: int, n_words: int, first: int, end: int) -> None:
    """Make the set that begins at word `start` hold the members first … end - 1."""
    for w in range(n_words):
        skipped, wanted = first - (w << 6), end - (w << 6)
        word = ALL if skipped < 64 and wanted > 0 else NO_MEMBER
        if skipped > 0:
            word &= ALL << np.uint64(skipped & 63)
        if wanted < 64:
            word &= (ONE << np.uint64(wanted & 63)) - ONE
        words[start + w] = word


@kernel
def contains(words: Any, start: int, member: int) -> bool:
    """Return whether `member` is in the set that begins at word `start`."""
    return bool((words[start + (member >> 6)] >> np.uint64(member & 63)) & ONE)


@kernel
def insert(words: Any, start: int, member: int) -> None:
    """Add `member` to the set that begins at word `start`."""
    words[start + (member >> 6)] |= ONE << np.uint64(member & 63)


@kernel
def remove(words: Any, start: int, member: int) -> None:
    """Remove `member` from the set that begins at word `start`."""
    words[start + (member >> 6)] &= ~(ONE << np.uint64(member & 63))


@inlined
def members_from(word: Any, member: int) -> Any:
    """Return the word of `member` without the members before it."""
    return word & ~((ONE << np.uint64(member & 63)) - ONE)
