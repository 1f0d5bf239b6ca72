"""Published data sets, for tests with real data; without the data, the tests are skipped."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[4] / "shared" / "data"


def published(*names: str) -> Path:
    """Return the data folder; skip the test if it lacks one of these data sets."""
    for name in names:
        if not (FOLDER / name).is_dir():
            pytest.skip(f"the data set {name} is not in {FOLDER}")
    return FOLDER
