"""The first run of a kernel compiles it and the kernels it calls: how far that is.

Compilation is reported to the display that `attnflow.progress.compilation_shown` installs, and
logged if there is none. `refused_compilation` tells whether kernels are compiled already. Nothing
here knows about flows.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

from attnflow.errors import AttnflowError
from attnflow.progress import compilation_display

logger = logging.getLogger(__name__)

# Numba makes many objects that live until the kernel is compiled. Python's garbage collector would
# look through all of them at each 700 new ones, which takes a fifth of the time.
COLLECTOR_THRESHOLDS = (20_000, 20, 100)

LONG = 10_000  # bytes of code, which take a few seconds to compile


class NotCompiledError(AttnflowError):
    """A kernel is not compiled yet, and compiling it was refused."""


class _Watch(event.Listener):
    """Reports how much of the code of a kernel is compiled, from the events of Numba.

    Numba compiles one kernel at a time: it holds a global lock.
    """

    def __init__(self) -> None:
        self.inlines: dict[Any, bool] = {}  # all kernels, and whether each is inlined
        self.depth = self.done = self.total = 0
        self.thresholds = gc.get_threshold()
        self.refused = False

    def on_start(self, event: Any) -> None:
        """Report that nothing is done, if this kernel is called by no other that is compiled."""
        kernel = event.data["dispatcher"]
        if kernel not in self.inlines:
            return
        self.depth += 1
        if self.refused:
            raise NotCompiledError(f"{kernel.py_func.__name__} is not compiled")
        if self.depth == 1:
            parts = called_kernels(kernel, self.inlines)
            self.done, self.total = 0, sum(self.size(part) for part in parts)
            if compilation_display() is None and self.total >= LONG:
                logger.warning("compiling %s (once, up to 30 seconds)", kernel.__module__)
            self.report()
            self.thresholds = gc.get_threshold()
            gc.set_threshold(*COLLECTOR_THRESHOLDS)

    def on_end(self, event: Any) -> None:
        """Report the code of this kernel as done."""
        kernel = event.data["dispatcher"]
        if kernel not in self.inlines:
            return
        self.depth -= 1
        if self.depth == 0 and gc.get_threshold() == COLLECTOR_THRESHOLDS:
            gc.set_threshold(*self.thresholds)
        self.done = min(self.total, self.done + self.size(kernel)) if self.depth else self.total
        self.report()

    def size(self, kernel: Any) -> int:
        """The bytes of code of a kernel, with what is inlined into it: time grows with them."""
        inlined = [part for part in _names_in(kernel, self.inlines) if self.inlines[part]]
        return len(kernel.py_func.__code__.co_code) + sum(map(self.size, inlined))

    def report(self) -> None:
        """Call the display, if there is one."""
        display = compilation_display()
        if display is not None and not self.refused:
            display(self.done, self.total)


def called_kernels(kernel: Any, inlines: dict[Any, bool]) -> set[Any]:
    """Return a kernel with those that it calls, directly or not, and that have code of their own.

    Kernels that this process has loaded already are left out.
    """
    found, waiting = set(), [kernel]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += _names_in(part, inlines)
    return {part for part in found if part is kernel or not (inlines[part] or part.signatures)}


def _names_in(kernel: Any, kernels: dict[Any, bool]) -> list[Any]:
    """Return the kernels that the code of a kernel names."""
    function = kernel.py_func
    values = map(function.__globals__.get, function.__code__.co_names)
    return [value for value in values if _is_key(value, kernels)]


def _is_key(value: Any, kernels: dict[Any, bool]) -> bool:
    return type(value).__hash__ is not None and value in kernels


_watch = _Watch()
event.register("numba:compile", _watch)  # type: ignore[no-untyped-call]


def watch(kernel: Any, *, inlined: bool) -> None:
    """Report the compilation of this kernel."""
    _watch.inlines[kernel] = inlined


@contextmanager
def refused_compilation() -> Iterator[None]:
    """Raise NotCompiledError if a kernel would have to be compiled in this block."""
    _watch.refused = True
    try:
        yield
    finally:
        _watch.refused = False
