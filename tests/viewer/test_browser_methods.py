"""Registered methods in a real browser: chosen, ranked, and listed in the table of numbers."""

import pytest

from attnflow import show
from attnflow.viewer import payload as payload_module
from tests.viewer.browser import ViewerPage
from tests.viewer.examples import classifier_explanation
from tests.viewer.notebook_page import Notebook

pytestmark = pytest.mark.slow


def choose_toy_method(viewer):
    viewer.page.get_by_test_id("method-toy").locator("..").click()


def expect_toy_scores(viewer, toy_method, *, position, layer):
    graph = classifier_explanation().graph
    scores = toy_method.attribute(graph, layers=layer, positions=position).to_numpy()[0, 0]
    viewer.expect_scores("toy", scores)
    # The highest score is that of the last token.
    best = viewer.page.get_by_test_id("ranking").locator("li:visible").first
    viewer.wait_for(lambda: best.inner_text().split()[0] == classifier_explanation().tokens[-1])
    assert float(best.inner_text().split()[-1]) == pytest.approx(scores.max(), rel=5e-3)


@pytest.fixture
def file_viewer(browser, toy_method, tmp_path):  # noqa: ARG001 - registered before the file is made
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(classifier_explanation().to_html(tmp_path / "page.html").as_uri())
    yield viewer
    viewer.close()


def test_a_registered_method_can_be_chosen_in_a_file(file_viewer, toy_method):
    page = file_viewer.page
    assert page.get_by_text(toy_method.title).first.is_visible()  # as text, not as markup
    choose_toy_method(file_viewer)
    expect_toy_scores(file_viewer, toy_method, position=0, layer=2)
    page.get_by_test_id("token").nth(3).click()
    expect_toy_scores(file_viewer, toy_method, position=3, layer=2)
    file_viewer.press("ArrowDown")
    expect_toy_scores(file_viewer, toy_method, position=3, layer=1)


@pytest.mark.parametrize("view", ["flow", "map", "heads"])
def test_every_view_supports_a_registered_method(file_viewer, view):
    choose_toy_method(file_viewer)
    file_viewer.page.get_by_test_id(f"view-{view}").click()
    file_viewer.wait_for_drawing()
    assert file_viewer.page.get_by_test_id("method-toy").is_checked()
    assert file_viewer.find_violations() == []


def test_the_map_shows_a_registered_method_at_every_layer(file_viewer, toy_method):
    file_viewer.page.get_by_test_id("view-map").click()
    scores = toy_method.attribute(classifier_explanation().graph, positions=0).to_numpy()
    for layer in (1, 2):
        file_viewer.expect_scores(f"toy/{layer}", scores[layer - 1, 0])


@pytest.mark.parametrize("eager", [True, False])
def test_a_registered_method_can_be_chosen_in_a_notebook(browser, toy_method, monkeypatch, eager):
    if not eager:
        monkeypatch.setattr("attnflow.viewer.notebook.EAGER_BYTES", 0)
    notebook = Notebook(browser, show(classifier_explanation()))
    choose_toy_method(notebook)
    expect_toy_scores(notebook, toy_method, position=0, layer=2)
    assert ("0/scores/toy/2" in notebook.asked) is not eager
    notebook.close()


def test_of_large_graphs_only_the_explained_position_has_scores(
    browser, toy_method, tmp_path, monkeypatch
):
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", 1)
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(classifier_explanation().to_html(tmp_path / "page.html").as_uri())
    choose_toy_method(viewer)
    expect_toy_scores(viewer, toy_method, position=0, layer=2)
    viewer.page.get_by_test_id("token").nth(3).click()
    note = viewer.page.get_by_test_id("note").inner_text
    viewer.wait_for(lambda: "explained position" in note())
    viewer.page.get_by_test_id("method-rollout").locator("..").click()
    rollout = classifier_explanation().rollout(layers=2, positions=3).to_numpy()[0, 0]
    viewer.expect_scores("rollout", rollout)
    viewer.close()
