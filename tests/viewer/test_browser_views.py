"""Every view in a real browser: in a single HTML file, with the network blocked."""

import io
from xml.etree import ElementTree

import numpy as np
import pytest

from attnflow import flow_path, head_rollout
from attnflow.explainer import explain
from attnflow.viewer.header import PAGE_METHODS
from attnflow.viewer.preview import visible
from tests.viewer.browser import ViewerPage
from tests.viewer.examples import HOSTILE, hostile_explanation, image_explanation

pytestmark = pytest.mark.slow

SENTENCE = "the author of the books on the old table"
VIEWS = ("text", "flow", "map", "heads")
FILE_NAMES = {"map": "heatmap"}  # where they differ
BRIGHTNESS = (
    "(e) => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3)"
    ".reduce((sum, part) => sum + Number(part), 0)"
)


@pytest.fixture(scope="module")
def explanation():
    return explain(SENTENCE)


@pytest.fixture(scope="module")
def file(explanation, tmp_path_factory):
    return explanation.to_html(tmp_path_factory.mktemp("page") / "page.html").as_uri()


@pytest.fixture
def viewer(browser, file):
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(file)
    yield viewer
    local = ("file:", "data:", "blob:")
    assert [url for url in viewer.requests if not url.startswith(local)] == []
    viewer.close()


def choose(viewer, view):
    viewer.page.get_by_test_id(f"view-{view}").click()


def choose_method(viewer, method):
    viewer.page.get_by_test_id(f"method-{method}").locator("..").click()


def set_slider(viewer, testid, value):
    slider = viewer.page.get_by_test_id(testid)
    slider.evaluate(
        "(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }", str(value)
    )


def count_colors(viewer):
    """The number of colors of the drawing."""
    return (
        viewer.page.get_by_test_id("stage")
        .locator("canvas")
        .first.evaluate(
            """(canvas) => {
            const { data } = canvas.getContext('2d')
                .getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
        )
    )


def test_text_view(viewer, explanation):
    page = viewer.page
    viewer.expect_explanation(explanation, position=0, layer=6)
    chips = page.get_by_test_id("token")
    assert chips.all_inner_texts() == list(explanation.tokens)
    prediction = page.get_by_test_id("prediction").inner_text()
    assert "singular" in prediction
    chips.nth(5).click()  # "books"
    set_slider(viewer, "layer", 4)
    viewer.expect_explanation(explanation, position=5, layer=4)
    best = explanation.rollout(layers=4, positions=5).to_numpy()[0, 0]
    top = page.get_by_test_id("ranking").locator("li:visible").first.inner_text().split()
    assert top[0] == explanation.tokens[int(best.argmax())]
    assert float(top[-1]) == pytest.approx(best.max(), rel=5e-3)
    brightness = [chips.nth(i).evaluate(BRIGHTNESS) for i in range(10)]
    assert int(np.argmin(brightness)) == int(best.argmax())


def test_map_view(viewer, explanation):
    choose(viewer, "map")
    for method in PAGE_METHODS:
        expected = explanation.attribute(method).to_numpy()[:, 0]
        for layer in (1, 3, 6):
            viewer.expect_scores(f"{method}/{layer}", expected[layer - 1])
    assert count_colors(viewer) > 50


def test_heads_view(viewer, explanation):
    choose(viewer, "heads")
    set_slider(viewer, "layer", 3)
    assert explanation.heads is not None
    for head in (0, 7):
        expected = explanation.heads.layers[2][head, 0]
        viewer.expect_scores(f"head/{head}", expected)
    viewer.page.get_by_test_id("heads-of").check()
    expected = head_rollout(explanation.heads, layer=3, head=1, positions=0).to_numpy()[0, 0]
    viewer.expect_scores("head/1", expected, rtol=5e-3)
    assert count_colors(viewer) > 50


def test_flow_view_shows_the_flow_and_its_bottleneck(viewer, explanation):
    page = viewer.page
    choose(viewer, "flow")
    choose_method(viewer, "flow")
    set_slider(viewer, "layer", 3)
    viewer.expect_explanation(explanation, position=0, layer=3)
    page.get_by_test_id("stage").focus()
    token = explanation.tokens.index("books")
    page.get_by_test_id("ranking").get_by_role("button", name="books").click()
    path = flow_path(explanation.graph, layer=3, position=0, token=token)
    capacities = page.get_by_test_id("cut").locator("td[data-value]")
    values = "cells => cells.map((cell) => Number(cell.dataset.value))"

    def check():
        assert sum(capacities.evaluate_all(values)) == pytest.approx(path.value, rel=2e-3)

    viewer.wait_for(check)
    assert "books" in page.get_by_test_id("note").inner_text()
    assert count_colors(viewer) > 20


def test_image_view(browser, tmp_path):
    explanation = image_explanation()
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(explanation.to_html(tmp_path / "page.html").as_uri())
    assert viewer.page.get_by_test_id("view-image").get_attribute("aria-selected") == "true"
    viewer.expect_explanation(explanation, position=0, layer=2)
    viewer.page.get_by_test_id("stage").focus()
    viewer.press("ArrowRight", "ArrowRight", "ArrowDown")  # below the second patch
    viewer.expect_explanation(explanation, position=6, layer=2)
    assert count_colors(viewer) > 20
    for scheme in ("light", "dark"):
        viewer.page.emulate_media(color_scheme=scheme)
        assert viewer.find_violations() == []
    viewer.close()


def test_the_keyboard_reaches_every_control(viewer, explanation):
    page = viewer.page
    page.get_by_test_id("sentence").focus()
    viewer.press("ArrowRight", "ArrowRight", "ArrowDown")
    viewer.expect_explanation(explanation, position=2, layer=5)
    viewer.press("End", "PageUp")
    viewer.expect_explanation(explanation, position=9, layer=6)
    viewer.press("m")
    assert page.get_by_test_id("method-flow").is_checked()
    for key, view in zip("1234", VIEWS, strict=True):
        viewer.press(key)
        assert page.get_by_test_id(f"view-{view}").get_attribute("aria-selected") == "true"
    viewer.press("/", *"author", "Enter", "Escape")
    page.get_by_test_id("view-heads").focus()
    viewer.press("1")
    viewer.expect_explanation(explanation, position=2, layer=6)
    viewer.press("?")
    assert page.get_by_test_id("help").is_visible()
    viewer.press("Escape")
    assert not page.get_by_test_id("help").is_visible()


def test_tab_reaches_everything(viewer):
    page = viewer.page
    focused = "document.activeElement?.shadowRoot?.activeElement?.dataset?.testid ?? null"
    reached = set()
    for _ in range(35):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(focused))
    names = "view-text layer search threshold top-k special units normalize scale sentence"
    assert {
        *names.split(),
        "export-csv",
        "export-svg",
        "export-png",
        "export-pdf",
        "help-button",
    } <= reached


def test_special_tokens_words_and_limits(viewer, explanation):
    page = viewer.page
    page.get_by_test_id("special").uncheck()
    tokens = page.get_by_test_id("token").locator("visible=true")
    viewer.wait_for(lambda: "[CLS]" not in tokens.all_inner_texts())
    page.get_by_test_id("special").check()
    page.get_by_test_id("units").select_option("words")
    expected = explanation.rollout(layers=6, words=True).to_numpy()[0, 0]
    viewer.expect_scores("rollout", expected)
    set_slider(viewer, "top-k", 2)
    ranking = page.get_by_test_id("ranking").locator("li:visible")
    viewer.wait_for(lambda: ranking.count() == 2)
    page.get_by_test_id("normalize").select_option("rows")
    choose_method(viewer, "flow")
    expected = explanation.flow(layers=6, normalize="rows").to_numpy()[0, 0]
    viewer.expect_scores("flow", expected)


def test_the_address_holds_the_state(viewer, browser, explanation):
    page = viewer.page
    choose(viewer, "map")
    viewer.wait_for(lambda: "map" in page.url)
    again = ViewerPage(browser, network=False)
    again.page.goto(page.url)
    assert again.page.get_by_test_id("view-map").get_attribute("aria-selected") == "true"
    expected = explanation.rollout(layers=2).to_numpy()[0, 0]
    again.expect_scores("rollout/2", expected)
    again.close()


def test_views_are_exported_as_svg_and_png(viewer):
    from PIL import Image

    page = viewer.page
    for view in VIEWS:
        choose(viewer, view)
        viewer.wait_for_drawing()
        with page.expect_download() as download:
            page.get_by_test_id("export-svg").click()
        assert download.value.suggested_filename.startswith(
            f"attnflow-{FILE_NAMES.get(view, view)}-"
        )
        assert "-the-author" in download.value.suggested_filename
        root = ElementTree.parse(download.value.path()).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        text = " ".join(root.itertext())
        assert "author" in text
        assert len(list(root.iter())) > 20
        if view not in ("text", "flow"):
            continue  # PNG is slow, and uses the same code
        with page.expect_download() as download:
            page.get_by_test_id("export-png").click()
        with Image.open(io.BytesIO(download.value.path().read_bytes())) as image:
            assert image.format == "PNG"
            assert image.width > 400
            colors = image.convert("RGB").getcolors(1_000_000)
            assert colors is None or len(colors) > 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(viewer, scheme):
    viewer.page.emulate_media(color_scheme=scheme)
    violations = {}
    for view in VIEWS:
        choose(viewer, view)
        viewer.wait_for_drawing()
        violations[view] = viewer.find_violations()
    assert violations == {view: [] for view in VIEWS}


def test_dark_colors_and_narrow_windows(viewer):
    page = viewer.page
    app = page.locator(".app")
    light = app.evaluate(BRIGHTNESS)
    page.emulate_media(color_scheme="dark")
    assert app.evaluate(BRIGHTNESS) < 150
    assert light > 600
    page.set_viewport_size({"width": 340, "height": 700})
    for view in VIEWS:
        choose(viewer, view)
        viewer.wait_for_drawing()
        assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_hostile_tokens_are_text(browser, tmp_path):
    uri = hostile_explanation().to_html(tmp_path / "page.html", title=HOSTILE[1]).as_uri()
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(uri)
    shown = viewer.page.get_by_test_id("token").all_inner_texts()
    assert shown == [visible(token) for token in HOSTILE]
    assert viewer.page.title() == HOSTILE[1]
    for view in VIEWS:
        choose(viewer, view)
        viewer.wait_for_drawing()
    assert viewer.page.evaluate("window.hacked") is None
    assert viewer.page.locator("img").count() == 0
    assert viewer.requests == [uri]
    viewer.close()


def test_without_scripts_the_page_shows_a_picture(browser, file):
    viewer = ViewerPage(browser, network=False, java_script_enabled=False)
    viewer.page.goto(file)
    assert viewer.page.locator("noscript svg, svg").first.is_visible()
    viewer.close()


def test_registered_methods_and_settings_are_shown(browser, toy_method, tmp_path, monkeypatch):
    explanation = explain(SENTENCE)
    monkeypatch.setattr("attnflow.viewer.payload.FLOW_PAIRS", 0)
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(explanation.to_html(tmp_path / "page.html").as_uri())
    choose_method(viewer, toy_method.name)
    expected = explanation.attribute("toy", layers=6, positions=0).to_numpy()[0, 0]
    viewer.expect_scores("toy", expected)
    assert viewer.page.get_by_test_id("ranking").is_visible()
    settings = viewer.page.get_by_test_id("settings").inner_text()
    assert all(part in settings for part in ("verb-number", "attention", "0.5", "mean"))
    viewer.page.get_by_test_id("token").nth(5).click()
    note = viewer.page.get_by_test_id("note").inner_text
    viewer.wait_for(lambda: "Only the explained position" in note())
    viewer.close()
