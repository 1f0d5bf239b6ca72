"""Options that tests of experiments share: few generated sentences, measured once."""

import pytest

from attnflow.paper.experiments.experiment import Options


@pytest.fixture(scope="session")
def options(tmp_path_factory):
    """Six generated sentences, one thread, and a cache that all tests share."""
    folder = tmp_path_factory.mktemp("experiments")
    return Options(data="grammar", examples=6, out=folder, cache=folder / "cache", threads=1)
