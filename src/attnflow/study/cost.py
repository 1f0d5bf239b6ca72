"""Cost: the seconds and the peak memory of a computation."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from attnflow.optional import import_optional

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")  # writing 5 sets the peak to the present use
MEGABYTE = 2**20


@dataclass
class Cost:
    """What a computation took.

    seconds: of the clock. megabytes: the peak memory above that at its start: of the GPU, or of
    the process; nan where the system does not tell (outside Linux).
    """

    seconds: float = float("nan")
    megabytes: float = float("nan")


@contextmanager
def measure_cost(device: Any) -> Iterator[Cost]:
    """Measure what the block takes. device: of the model."""
    torch = import_optional("torch", "running a model")
    on_gpu = str(device).startswith("cuda")
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device) / MEGABYTE
    else:
        before = _reset_peak()
    cost, start = Cost(), perf_counter()
    try:
        yield cost
    finally:
        if on_gpu:
            torch.cuda.synchronize(device)
        cost.seconds = perf_counter() - start
        peak = torch.cuda.max_memory_allocated(device) / MEGABYTE if on_gpu else _read("VmHWM")
        cost.megabytes = max(peak - before, 0.0)


def _reset_peak() -> float:
    """Set the peak memory of the process to its present use, and return it in megabytes."""
    try:
        RESET.write_text("5", encoding="ascii")
    except OSError:
        return float("nan")
    return _read("VmRSS")


def _read(name: str) -> float:
    """Return a value of the process status in megabytes; nan if it cannot be read."""
    try:
        for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1]) / 1024
    except OSError:
        pass
    return float("nan")
