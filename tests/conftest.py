"""What all tests share: examples by Hypothesis may take their time, since machines are busy."""

import os

# Some virtual machines announce AMX, and end a process that uses it, as bfloat16 does. Before
# torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Files that must not run at the same time: each starts a Ray cluster, or measures time and memory.
ALONE = ("test_commands", "test_guide", "test_local_engine", "test_ray")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file, which share fixtures, in one process of pytest-xdist."""
    for item in items:
        name = Path(item.path).name
        group = "alone" if name.startswith(ALONE) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
