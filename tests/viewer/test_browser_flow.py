"""Flow that the page computes, in workers and without them, against the solver of the library."""

import json
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from attnflow import Attentions, Explanation
from tests.viewer.browser import ViewerPage

pytestmark = pytest.mark.slow

TOKENS, LAYERS = 130, 26  # large enough for workers


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    """An explanation of a decoder, with words of several tokens."""
    random = np.random.default_rng(5)
    layers = []
    for _ in range(LAYERS):
        weights = np.tril(np.exp(2 * random.normal(size=(1, TOKENS, TOKENS))))
        layers.append(weights / weights.sum(-1, keepdims=True))
    tokens = [f"word{i}" for i in range(TOKENS)]
    return Explanation.from_attentions(Attentions(layers, tokens), text=" ".join(tokens))


def opened(browser: Any, file: str, *, workers: bool = True) -> ViewerPage:
    viewer = ViewerPage(browser, network=False)
    if not workers:
        viewer.page.add_init_script("window.Worker = class { constructor() { throw Error(); } }")
    state = {"method": "flow", "positions": [100]}
    viewer.page.goto(f"{file}#{quote(json.dumps(state))}")
    return viewer


@pytest.mark.parametrize("workers", [True, False])
def test_flow_of_another_position_equals_that_of_the_library(
    browser, tmp_path, explanation, workers
):
    file = explanation.to_html(tmp_path / "page.html").as_uri()
    viewer = opened(browser, file, workers=workers)
    for layer in (LAYERS, 7):
        if layer != LAYERS:
            viewer.page.get_by_test_id("layer").fill(str(layer))
        expected = explanation.flow(layers=layer, positions=100).to_numpy()[0, 0]
        viewer.expect_scores("flow", expected)
    assert bool(viewer.page.workers) is workers
    viewer.close()


def test_a_new_selection_ends_the_flow_of_the_last_one(browser, tmp_path, explanation):
    viewer = opened(browser, explanation.to_html(tmp_path / "page.html").as_uri())
    progress = viewer.page.get_by_test_id("progress")
    # The flow of one position may be computed before its progress is read, so several are tried.
    for token in range(128, 68, -5):
        if any(progress.inner_text() for _ in range(20)):
            break
        viewer.page.get_by_test_id("token").nth(token).click()
    else:
        pytest.fail("no flow was seen in progress")
    viewer.page.get_by_test_id("method-raw").check(force=True)
    viewer.wait_for(lambda: progress.inner_text() == "")
    viewer.page.get_by_test_id("token").nth(60).click()
    viewer.page.get_by_test_id("method-flow").check(force=True)
    expected = explanation.flow(layers=LAYERS, positions=60).to_numpy()[0, 0]
    viewer.expect_scores("flow", expected)
    viewer.close()


def test_the_graph_shows_a_maximum_flow_and_its_cut(browser, tmp_path, explanation):
    viewer = opened(browser, explanation.to_html(tmp_path / "page.html").as_uri())
    viewer.page.get_by_test_id("view-flow").click()
    told = viewer.page.get_by_test_id("explanation").first.inner_text
    viewer.wait_for(lambda: "maximum flow" in told().lower())
    viewer.page.get_by_test_id("cut").first.wait_for(state="attached")
    viewer.close()
