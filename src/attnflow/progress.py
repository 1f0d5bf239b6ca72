"""Progress of long computations: the one type of callback that the library reports to.

Only the command line draws progress bars; the library calls a function. Compilation, which happens
where compiled code is first called, is reported to the function of `compilation_shown`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

# Called with the number of steps done and the number of steps in total.
Progress: TypeAlias = Callable[[int, int], None]

_displays: list[Progress] = []


@contextmanager
def compilation_shown(display: Progress) -> Iterator[None]:
    """Report the compilation of the solver, if any, to a function while the block runs."""
    _displays.append(display)
    try:
        yield
    finally:
        _displays.remove(display)


def compilation_display() -> Progress | None:
    """The function that compilation is reported to, or None."""
    return _displays[-1] if _displays else None
