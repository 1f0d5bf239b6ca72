"""Places in arrays, for the compiled solver: what indices are counted from.

An array is seven numbers to the compiler, a place in one is a single number. And every index into
an array is looked at for being negative, so that loops cannot run on several numbers at a time; an
index counted from a place is not. With dozens of arrays in every kernel that saves a third of
compiling, and most of a call. Nothing checks these indices: what comes from outside is checked
before.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.extending import intrinsic


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
