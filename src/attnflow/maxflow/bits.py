"""Sets of positions as rows of 64-bit words, for the compiled solver.

Finding the next member costs one machine instruction instead of a walk over
positions, which is what keeps the searches in this package sparse.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from attnflow.maxflow.compiling import kernel

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
