"""Fixtures of the viewer's tests."""

import numpy as np
import pytest

from attnflow import Attribution
from attnflow.methods.registry import METHODS, register_method
from attnflow.selection import resolve_layers, resolve_positions
from tests.viewer.browser import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def toy_scores(graph, *, layers=None, positions=None):
    """Scores that differ in every layer, position and token: the last token has the highest."""
    numbers = resolve_layers(graph.n_layers, layers)
    rows = resolve_positions(graph.tokens, graph.n_tokens, positions)
    scores = (
        np.asarray(numbers)[:, None, None] / 4
        + np.asarray(rows)[None, :, None] / 64
        + np.arange(graph.n_tokens)[None, None, :] / 1024
    )
    return Attribution(scores, graph.tokens, "toy", numbers, rows)


@pytest.fixture
def toy_method():
    """A method that is registered during the test."""
    yield register_method("toy", toy_scores, title="Toy <method>", summary="for tests & more.")
    METHODS.unregister("toy")
