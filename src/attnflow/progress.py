"""Progress of long computations: the one type of callback that the library reports to.

Only the command line draws progress bars; the library calls a function.
"""

from collections.abc import Callable
from typing import TypeAlias

# Called with the number of steps done and the number of steps in total.
Progress: TypeAlias = Callable[[int, int], None]
