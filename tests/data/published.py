"""Published data sets, for tests that want real data; they are skipped where it is not there."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data"


def published(*names: str) -> Path:
    """The folder of data, if it has these sets; otherwise the test is skipped."""
    for name in names:
        if not (FOLDER / name).is_dir():
            pytest.skip(f"the data set {name} is not in {FOLDER}")
    return FOLDER
