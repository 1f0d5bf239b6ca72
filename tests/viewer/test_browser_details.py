"""Details of the viewer in a real browser: what is easily overlooked, and easily lost again."""

from xml.etree import ElementTree

import numpy as np
import pytest

from attnflow import Attentions, Explanation
from attnflow.viewer.preview import visible
from tests.viewer.browser import Watched, chromium
from tests.viewer.examples import HOSTILE, hostile, made_up

LONG = "W" * 200
TOKENS = ("[CLS]", "the", "key", "to", "the", "cabinet", LONG)


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


def outshone():
    """An explanation whose [CLS] takes nearly all attention."""
    n = len(TOKENS)
    weights = np.full((2, 3, n, n), 0.1 / (n - 1))
    weights[..., 0] = 0.9
    return Explanation.from_attentions(Attentions(weights, TOKENS), text="the key to the cabinet")


@pytest.fixture
def opened(browser, tmp_path):
    """Opens an explanation as a file, offline; nothing may be complained about."""
    pages: list[Watched] = []

    def open_(explanation, state="", **options):
        uri = explanation.to_html(tmp_path / f"{len(pages)}.html").as_uri()
        watched = Watched(browser, network=False, **options)
        pages.append(watched)
        watched.page.goto(f"{uri}#{state}")
        watched.page.get_by_test_id("ranking").locator("li").first.wait_for()
        return watched

    yield open_
    for watched in pages:
        watched.close()


def export_svg(page):
    with page.expect_download() as download:
        page.get_by_test_id("export-svg").click()
    return ElementTree.parse(download.value.path()).getroot()


def test_special_tokens_that_outshine_the_others_are_hidden_by_a_button(opened):
    page = opened(outshone()).page
    button = page.get_by_test_id("hide-special")
    button.wait_for()
    button.focus()
    page.keyboard.press("Enter")
    button.wait_for(state="hidden")
    assert not page.get_by_test_id("special").is_checked()
    focused = "document.activeElement?.shadowRoot?.activeElement?.dataset?.testid"
    assert page.evaluate(focused) == "special"  # the keyboard is not lost with the button
    assert not opened(made_up(2, 8)).page.get_by_test_id("hide-special").is_visible()


def test_keys_of_a_choice_are_its_own(opened):
    page = opened(outshone()).page
    page.get_by_test_id("view-heads").click()
    page.get_by_test_id("head").wait_for()
    page.get_by_test_id("head").focus()
    page.keyboard.press("2")
    assert page.get_by_test_id("head").input_value() == "2"
    assert page.get_by_test_id("view-heads").get_attribute("aria-selected") == "true"


def test_long_tokens_stay_in_their_boxes_in_a_picture(opened):
    root = export_svg(opened(outshone(), "%7B%22special%22:false%7D").page)
    texts = [text for one in root.iter() if (text := one.text or "").startswith("WW")]
    assert texts
    assert all(text.endswith("…") and len(text) < 60 for text in texts)


# The first texts that overlap on a line, and those that a picture cuts off.
COLLISIONS = """(svg) => {
  const holder = document.body.appendChild(document.createElement("div"));
  holder.innerHTML = svg;
  const edge = holder.firstElementChild.getBoundingClientRect().right;
  const titles = [...holder.querySelectorAll("text")].filter(
    (one) => /^(Raw attention|Rollout|Flow|0 to .*)$/.test(one.textContent));
  const boxes = titles.map((one) => [one.textContent, one.getBoundingClientRect()]);
  holder.remove();
  const found = boxes.filter(([, box]) => box.right > edge).map(([text]) => text);
  for (const [i, [text, box]] of boxes.entries())
    for (const [other, beside] of boxes.slice(i + 1))
      if (box.top < beside.bottom && beside.top < box.bottom
          && box.left < beside.right + 3 && beside.left < box.right + 3)
        found.push(`${text} and ${other}`);
  return [boxes.length, found];
}"""


@pytest.mark.parametrize("n", [2, 7])
def test_titles_of_maps_do_not_run_into_their_scales(opened, n):
    page = opened(made_up(6, n)).page
    page.get_by_test_id("view-map").click()
    for width in (340, 600, 900, 940, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(200)
        svg = ElementTree.tostring(export_svg(page), encoding="unicode")
        assert page.evaluate(COLLISIONS, svg.replace("ns0:", "").replace(":ns0", "")) == [6, []]


def test_hostile_tokens_are_text_in_a_picture(opened):
    page = opened(hostile()).page
    for view in ("text", "flow", "map", "heads"):
        page.get_by_test_id(f"view-{view}").click()
        page.wait_for_timeout(300)
        root = export_svg(page)  # which parses, null bytes and half surrogates and all
        names = {one.tag.rpartition("}")[2] for one in root.iter()}
        assert names <= {"svg", "title", "g", "path", "rect", "circle", "line", "text", "image"}
        if view == "text":
            assert {visible(token) for token in HOSTILE} <= {one.text for one in root.iter()}
    assert page.evaluate("window.hacked") is None


def test_the_page_has_one_color_in_the_dark(opened):
    page = opened(made_up(2, 8), color_scheme="dark").page
    color = "(e) => getComputedStyle(e).backgroundColor"
    assert page.locator("body").evaluate(color) == page.locator(".app").evaluate(color)


def test_the_bottleneck_is_read_aloud(opened):
    watched = opened(made_up(3, 6))
    watched.page.get_by_test_id("view-flow").click()
    watched.page.get_by_test_id("stage").wait_for()  # what is hidden takes no focus
    watched.page.get_by_test_id("stage").focus()
    watched.press("m", "Shift+ArrowRight")  # rollout, then flow

    def check():
        live = watched.page.get_by_test_id("live").inner_text()
        assert "by flow" in live
        assert "Here is the bottleneck" in live

    watched.wait_for(check)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_folded_away_is_accessible_too(opened, scheme):
    watched = opened(made_up(2, 8), color_scheme=scheme)
    page = watched.page
    page.set_viewport_size({"width": 380, "height": 800})
    page.get_by_test_id("options").locator("summary").click()
    page.get_by_text("Numbers as a table", exact=True).click()
    assert watched.axe() == []
    page.get_by_test_id("help-button").click()
    assert page.get_by_test_id("help").is_visible()
    assert watched.axe() == []


def test_numbers_are_read_in_browsers_without_a_base64_of_their_own(opened):
    explanation = made_up(2, 6)
    watched = opened(explanation)
    watched.context.add_init_script("delete Uint8Array.fromBase64")
    watched.page.reload()
    assert watched.page.evaluate("Uint8Array.fromBase64 === undefined")
    watched.expect("raw", explanation.raw(layers=2, positions=0).to_numpy()[0, 0])


def test_the_tooltip_of_a_long_token_stays_in_the_window(opened):
    page = opened(outshone()).page
    page.set_viewport_size({"width": 700, "height": 420})
    token = page.get_by_test_id("token").last
    token.scroll_into_view_if_needed()
    box = token.bounding_box()
    page.mouse.move(box["x"] + 30, min(box["y"] + box["height"] - 4, 415))
    tooltip = page.get_by_test_id("tooltip")
    tooltip.wait_for()
    shown = tooltip.bounding_box()
    assert shown["y"] >= 0
    assert shown["y"] + shown["height"] <= 420
    assert "Rollout 0." in tooltip.inner_text()
    assert len(tooltip.inner_text()) < 200
