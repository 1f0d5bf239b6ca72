"""What tests of experiments share: few sentences of the grammar, measured once."""

import pytest

from attnflow.paper.experiments.options import Options


@pytest.fixture(scope="session")
def options(tmp_path_factory):
    """Six sentences of the grammar, one thread, and a cache that all tests use."""
    folder = tmp_path_factory.mktemp("experiments")
    return Options(data="grammar", examples=6, out=folder, cache=folder / "cache", threads=1)
