"""Every view in a real browser, in a single HTML file, with the network blocked."""

import io
from xml.etree import ElementTree

import numpy as np
import pytest

from attnflow import flow_path, head_rollout
from attnflow.explainer import explain
from attnflow.viewer.preview import visible
from tests.viewer.browser import Watched, chromium
from tests.viewer.examples import HOSTILE, hostile, pictured

SENTENCE = "the author of the books on the old table"
VIEWS = ("text", "flow", "map", "heads")
BRIGHTNESS = (
    "(e) => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3)"
    ".reduce((sum, part) => sum + Number(part), 0)"
)


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def explanation():
    return explain(SENTENCE)


@pytest.fixture(scope="module")
def file(explanation, tmp_path_factory):
    return explanation.to_html(tmp_path_factory.mktemp("page") / "page.html").as_uri()


@pytest.fixture
def watched(browser, file):
    made = Watched(browser, network=False)
    made.page.goto(file)
    yield made
    assert [url for url in made.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    made.close()


def choose(watched, view):
    watched.page.get_by_test_id(f"view-{view}").click()


def choose_method(watched, method):
    watched.page.get_by_test_id(f"method-{method}").locator("..").click()


def set_slider(watched, testid, value):
    slider = watched.page.get_by_test_id(testid)
    slider.evaluate(
        "(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }", str(value)
    )


def expect_scores(watched, explanation, *, position, layer):
    for method in ("raw", "rollout", "flow"):
        expected = getattr(explanation, method)(layers=layer, positions=position).to_numpy()[0, 0]
        watched.expect(method, expected)


def colors_on_stage(watched):
    """How many colors the drawing has."""
    return (
        watched.page.get_by_test_id("stage")
        .locator("canvas")
        .first.evaluate(
            """(canvas) => {
            const { data } = canvas.getContext('2d')
                .getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
        )
    )


def test_text_view(watched, explanation):
    page = watched.page
    expect_scores(watched, explanation, position=0, layer=6)
    chips = page.get_by_test_id("token")
    assert chips.all_inner_texts() == list(explanation.tokens)
    prediction = page.get_by_test_id("prediction").inner_text()
    assert "singular" in prediction
    chips.nth(5).click()  # "books"
    set_slider(watched, "layer", 4)
    expect_scores(watched, explanation, position=5, layer=4)
    best = explanation.rollout(layers=4, positions=5).to_numpy()[0, 0]
    top = page.get_by_test_id("ranking").locator("li:visible").first.inner_text().split()
    assert top[0] == explanation.tokens[int(best.argmax())]
    assert float(top[-1]) == pytest.approx(best.max(), rel=5e-3)
    brightness = [chips.nth(i).evaluate(BRIGHTNESS) for i in range(10)]
    assert int(np.argmin(brightness)) == int(best.argmax())


def test_map_view(watched, explanation):
    choose(watched, "map")
    for method in ("raw", "rollout", "flow"):
        expected = getattr(explanation, method)().to_numpy()[:, 0]
        for layer in (1, 3, 6):
            watched.expect(f"{method}/{layer}", expected[layer - 1])
    assert colors_on_stage(watched) > 50


def test_heads_view(watched, explanation):
    choose(watched, "heads")
    set_slider(watched, "layer", 3)
    assert explanation.heads is not None
    for head in (1, 8):
        expected = explanation.heads.layers[2][head - 1, 0]
        watched.expect(f"head/{head}", expected)
    watched.page.get_by_test_id("heads-of").check()
    expected = head_rollout(explanation.heads, layer=3, head=1, positions=0).to_numpy()[0, 0]
    watched.expect("head/2", expected, rtol=5e-3)
    assert colors_on_stage(watched) > 50


def test_flow_view_shows_the_flow_and_its_bottleneck(watched, explanation):
    page = watched.page
    choose(watched, "flow")
    choose_method(watched, "flow")
    set_slider(watched, "layer", 3)
    expect_scores(watched, explanation, position=0, layer=3)
    page.get_by_test_id("stage").focus()
    token = explanation.tokens.index("books")
    page.get_by_test_id("ranking").get_by_role("button", name="books").click()
    path = flow_path(explanation.graph, layer=3, position=0, token=token)
    capacities = page.get_by_test_id("cut").locator("td[data-value]")
    values = "cells => cells.map((cell) => Number(cell.dataset.value))"

    def check():
        assert sum(capacities.evaluate_all(values)) == pytest.approx(path.value, rel=2e-3)

    watched.wait_for(check)
    assert "books" in page.get_by_test_id("note").inner_text()
    assert colors_on_stage(watched) > 20


def test_image_view(browser, tmp_path):
    explanation = pictured()
    watched = Watched(browser, network=False)
    watched.page.goto(explanation.to_html(tmp_path / "page.html").as_uri())
    assert watched.page.get_by_test_id("view-image").get_attribute("aria-selected") == "true"
    expect_scores(watched, explanation, position=0, layer=2)
    watched.page.get_by_test_id("stage").focus()
    watched.press("ArrowRight", "ArrowRight", "ArrowDown")  # the patch below the second one
    expect_scores(watched, explanation, position=6, layer=2)
    assert colors_on_stage(watched) > 20
    for scheme in ("light", "dark"):
        watched.page.emulate_media(color_scheme=scheme)
        assert watched.axe() == []
    watched.close()


def test_keys_alone_are_enough(watched, explanation):
    page = watched.page
    page.get_by_test_id("sentence").focus()
    watched.press("ArrowRight", "ArrowRight", "ArrowDown")
    expect_scores(watched, explanation, position=2, layer=5)
    watched.press("End", "PageUp")
    expect_scores(watched, explanation, position=9, layer=6)
    watched.press("m")
    assert page.get_by_test_id("method-flow").is_checked()
    for key, view in zip("1234", VIEWS, strict=True):
        watched.press(key)
        assert page.get_by_test_id(f"view-{view}").get_attribute("aria-selected") == "true"
    watched.press("/", *"author", "Enter", "Escape")
    page.get_by_test_id("view-heads").focus()
    watched.press("1")
    expect_scores(watched, explanation, position=2, layer=6)
    watched.press("?")
    assert page.get_by_test_id("help").is_visible()
    watched.press("Escape")
    assert not page.get_by_test_id("help").is_visible()


def test_everything_can_be_reached_with_tab(watched):
    page = watched.page
    focused = "document.activeElement?.shadowRoot?.activeElement?.dataset?.testid ?? null"
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(focused))
    names = "view-text layer search threshold top-k special words normalize scale sentence"
    assert {*names.split(), "export-svg", "export-png", "help-button"} <= reached


def test_special_tokens_words_and_limits(watched, explanation):
    page = watched.page
    page.get_by_test_id("special").uncheck()
    page.wait_for_timeout(200)
    assert "[CLS]" not in page.get_by_test_id("token").locator("visible=true").all_inner_texts()
    page.get_by_test_id("special").check()
    page.get_by_test_id("words").check()
    expected = explanation.rollout(layers=6, words=True).to_numpy()[0, 0]
    watched.expect("rollout", expected)
    set_slider(watched, "top-k", 2)
    page.wait_for_timeout(200)
    assert page.get_by_test_id("ranking").locator("li:visible").count() == 2
    page.get_by_test_id("normalize").check()
    choose_method(watched, "flow")
    expected = explanation.flow(layers=6, normalize="rows").to_numpy()[0, 0]
    watched.expect("flow", expected)


def test_the_address_holds_the_state(watched, browser, explanation):
    page = watched.page
    choose(watched, "map")
    page.wait_for_timeout(500)
    again = Watched(browser, network=False)
    again.page.goto(page.url)
    assert again.page.get_by_test_id("view-map").get_attribute("aria-selected") == "true"
    expected = explanation.rollout(layers=2).to_numpy()[0, 0]
    again.expect("rollout/2", expected)
    again.close()


def test_what_is_on_screen_is_saved_as_svg_and_png(watched):
    from PIL import Image

    page = watched.page
    for view in VIEWS:
        choose(watched, view)
        watched.page.wait_for_timeout(300)
        with page.expect_download() as download:
            page.get_by_test_id("export-svg").click()
        assert download.value.suggested_filename.startswith(f"attnflow-{view}-")
        assert "-the-author" in download.value.suggested_filename
        root = ElementTree.parse(download.value.path()).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        text = " ".join(root.itertext())
        assert "author" in text
        assert len(list(root.iter())) > 20
        if view not in ("text", "flow"):
            continue  # PNG takes a while, and is painted by the same code
        with page.expect_download() as download:
            page.get_by_test_id("export-png").click()
        with Image.open(io.BytesIO(download.value.path().read_bytes())) as image:
            assert image.format == "PNG"
            assert image.width > 400
            colors = image.convert("RGB").getcolors(1_000_000)
            assert colors is None or len(colors) > 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_inaccessible(watched, scheme):
    watched.page.emulate_media(color_scheme=scheme)
    found = {}
    for view in VIEWS:
        choose(watched, view)
        watched.page.wait_for_timeout(300)
        found[view] = watched.axe()
    assert found == {view: [] for view in VIEWS}


def test_dark_is_dark_and_narrow_fits(watched):
    page = watched.page
    app = page.locator(".app")
    light = app.evaluate(BRIGHTNESS)
    page.emulate_media(color_scheme="dark")
    assert app.evaluate(BRIGHTNESS) < 150
    assert light > 600
    page.set_viewport_size({"width": 340, "height": 700})
    for view in VIEWS:
        choose(watched, view)
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_hostile_tokens_are_text(browser, tmp_path):
    uri = hostile().to_html(tmp_path / "page.html", title=HOSTILE[1]).as_uri()
    watched = Watched(browser, network=False)
    watched.page.goto(uri)
    shown = watched.page.get_by_test_id("token").all_inner_texts()
    assert shown == [visible(token) for token in HOSTILE]
    assert watched.page.title() == HOSTILE[1]
    for view in VIEWS:
        choose(watched, view)
        watched.page.wait_for_timeout(200)
    assert watched.page.evaluate("window.hacked") is None
    assert watched.page.locator("img").count() == 0
    assert watched.requests == [uri]
    watched.close()


def test_without_scripts_there_is_a_picture(browser, file):
    watched = Watched(browser, network=False, java_script_enabled=False)
    watched.page.goto(file)
    assert watched.page.locator("noscript svg, svg").first.is_visible()
    watched.close()
