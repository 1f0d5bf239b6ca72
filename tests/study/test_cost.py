"""The cost of a computation: seconds, and the memory above that at its start."""

import mmap
import sys
from math import isnan
from pathlib import Path

import pytest

from attnflow.study import cost
from attnflow.study.cost import MEGABYTE, measure_cost

SIZE = 50  # megabytes
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak memory")


def allocate():
    """Take memory from the system, use all of it, and give it back at once."""
    with mmap.mmap(-1, SIZE * MEGABYTE) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


@linux
def test_the_peak_is_seen_although_the_memory_is_freed():
    with measure_cost("cpu") as used:
        allocate()
    if isnan(used.megabytes):
        pytest.skip("the system does not let a process reset its peak memory")
    assert 0.8 * SIZE < used.megabytes < 2 * SIZE
    assert used.seconds > 0


@linux
def test_an_earlier_peak_does_not_count():
    allocate()
    with measure_cost("cpu") as used:
        pass
    if isnan(used.megabytes):
        pytest.skip("the system does not let a process reset its peak memory")
    assert used.megabytes < SIZE / 2


def test_what_was_used_before_an_error_is_known():
    with pytest.raises(ZeroDivisionError), measure_cost("cpu") as used:
        1 / 0  # noqa: B018
    assert used.seconds > 0


@pytest.mark.parametrize("missing", ["STATUS", "RESET"])
def test_memory_is_nan_where_the_system_does_not_tell(monkeypatch, missing):
    monkeypatch.setattr(cost, missing, Path("/nowhere/at/all"))
    with measure_cost("cpu") as used:
        allocate()
    assert isnan(used.megabytes)
    assert used.seconds > 0
