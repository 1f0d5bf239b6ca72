"""Details of the viewer in a real browser."""

import csv
import io
import json
import re
import zlib
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import attnflow
from attnflow import AttentionGraph, Attentions, Explanation
from attnflow.methods.registry import METHODS
from attnflow.notes import explanation_notes
from attnflow.predictions import Outcome, Prediction
from attnflow.viewer.header import PAGE_METHODS
from attnflow.viewer.preview import visible
from tests.viewer.browser import ViewerPage
from tests.viewer.examples import (
    HOSTILE,
    causal_explanation,
    hostile_explanation,
    image_explanation,
    random_explanation,
)
from tests.weights import random_attention

pytestmark = pytest.mark.slow

LONG = "W" * 200
TOKENS = ("[CLS]", "the", "key", "to", "the", "cabinet", LONG)


def cls_explanation():
    """An explanation in which [CLS] gets nearly all attention."""
    n = len(TOKENS)
    weights = np.full((2, 3, n, n), 0.1 / (n - 1))
    weights[..., 0] = 0.9
    return Explanation.from_attentions(Attentions(weights, TOKENS), text="the key to the cabinet")


@pytest.fixture
def opened(browser, tmp_path):
    """A function that opens an explanation as a file, without a network."""
    pages: list[ViewerPage] = []

    def open_(explanation, state="", view=None, **options):
        uri = explanation.to_html(tmp_path / f"{len(pages)}.html", **(view or {})).as_uri()
        viewer = ViewerPage(browser, network=False, **options)
        pages.append(viewer)
        viewer.page.goto(f"{uri}#{state}")
        viewer.page.get_by_test_id("ranking").locator("li").first.wait_for()
        return viewer

    yield open_
    for viewer in pages:
        viewer.close()


def export_svg(page):
    with page.expect_download() as download:
        page.get_by_test_id("export-svg").click()
    return ElementTree.parse(download.value.path()).getroot()


def test_a_button_hides_special_tokens_that_dominate_the_colors(opened):
    page = opened(cls_explanation()).page
    button = page.get_by_test_id("hide-special")
    button.wait_for()
    button.focus()
    page.keyboard.press("Enter")
    button.wait_for(state="hidden")
    assert not page.get_by_test_id("special").is_checked()
    focused = "document.activeElement?.shadowRoot?.activeElement?.dataset?.testid"
    assert page.evaluate(focused) == "special"  # the focus does not vanish with the button
    assert not opened(random_explanation(2, 8)).page.get_by_test_id("hide-special").is_visible()


def test_keys_in_a_select_element_do_not_switch_views(opened):
    page = opened(cls_explanation()).page
    page.get_by_test_id("view-heads").click()
    page.get_by_test_id("head").wait_for()
    page.get_by_test_id("head").focus()
    page.keyboard.press("2")
    assert page.get_by_test_id("head").input_value() == "2"
    assert page.get_by_test_id("view-heads").get_attribute("aria-selected") == "true"


def test_long_tokens_are_shortened_in_exports(opened):
    root = export_svg(opened(cls_explanation(), "%7B%22special%22:false%7D").page)
    texts = [text for element in root.iter() if (text := element.text or "").startswith("WW")]
    assert texts
    assert all(text.endswith("…") and len(text) < 60 for text in texts)


# The number of titles and scales in a picture, and those that overlap or are cut off.
COLLISIONS = """(svg) => {
  const holder = document.body.appendChild(document.createElement("div"));
  holder.innerHTML = svg;
  const edge = holder.firstElementChild.getBoundingClientRect().right;
  const titles = [...holder.querySelectorAll("text")].filter(
    (one) => /^(Raw attention|Attention (rollout|flow)|\\d[^ ]* to \\d[^ ]*|per layer)$/
      .test(one.textContent));
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
def test_titles_of_maps_do_not_overlap_their_scales(opened, n):
    viewer = opened(random_explanation(6, n))
    page = viewer.page
    page.get_by_test_id("view-map").click()
    for width in (340, 600, 900, 940, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        viewer.wait_for_drawing()
        svg = ElementTree.tostring(export_svg(page), encoding="unicode")
        assert page.evaluate(COLLISIONS, svg.replace("ns0:", "").replace(":ns0", "")) == [6, []]


def test_notes_on_the_explained_position_are_shown(opened):
    explanation = causal_explanation(6, 8)
    viewer = opened(explanation)
    page = viewer.page
    notes = page.get_by_test_id("row-notes")
    expected = " ".join(explanation_notes(explanation, explanation.rollout()))
    assert "sink" in expected
    viewer.wait_for(lambda: notes.inner_text() == expected)
    assert expected.partition(":")[0] in " ".join(export_svg(page).itertext())
    page.get_by_test_id("token").nth(3).click()  # another position
    viewer.wait_for(lambda: not notes.is_visible())


def test_flat_scores_have_contrast_and_the_legend_shows_the_range(opened):
    graph = AttentionGraph.from_weights(random_attention(8, 6, 6))
    explanation = Explanation.from_graph(graph, position=2)
    flows = explanation.flow().to_numpy()[-1, 0]
    viewer = opened(explanation)
    page = viewer.page
    page.get_by_test_id("method-flow").check(force=True)
    legend = page.get_by_test_id("legend")
    viewer.wait_for(lambda: legend.inner_text().startswith(f"{flows.min():.3f}"))
    assert "not at 0" in legend.inner_text()
    page.get_by_test_id("scale").select_option("zero")
    viewer.wait_for(lambda: legend.inner_text().split() == ["0", f"{flows.max():.2f}"])


def test_scores_can_be_normalized_by_the_receptive_field(opened):
    explanation = causal_explanation(3, 6)
    viewer = opened(explanation)
    viewer.page.get_by_test_id("normalize").select_option("receptive_field")
    for method in PAGE_METHODS:
        scores = explanation.attribute(method, layers=3, normalize="receptive_field")
        viewer.expect_scores(method, scores.to_numpy()[0, 0])
    settings = viewer.page.get_by_test_id("settings")
    viewer.wait_for(lambda: "receptive field" in settings.inner_text())
    assert "tiny" in settings.inner_text()
    assert viewer.page.title() == "word0 word1 word2 word3 word4 word5 · tiny · edges: attention"


def test_hostile_tokens_are_text_in_exports(opened):
    viewer = opened(hostile_explanation())
    page = viewer.page
    for view in ("text", "flow", "map", "heads"):
        page.get_by_test_id(f"view-{view}").click()
        viewer.wait_for_drawing()
        root = export_svg(page)  # valid XML, in spite of null characters and lone surrogates
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert names <= {"svg", "title", "g", "path", "rect", "circle", "line", "text", "image"}
        if view == "text":
            assert {visible(token) for token in HOSTILE} <= {
                element.text for element in root.iter()
            }
    assert page.evaluate("window.hacked") is None


def test_page_and_viewer_have_the_same_dark_background(opened):
    page = opened(random_explanation(2, 8), color_scheme="dark").page
    color = "(e) => getComputedStyle(e).backgroundColor"
    assert page.locator("body").evaluate(color) == page.locator(".app").evaluate(color)


def test_screen_readers_announce_the_bottleneck(opened):
    viewer = opened(random_explanation(3, 6))
    viewer.page.get_by_test_id("view-flow").click()
    viewer.page.get_by_test_id("stage").wait_for()  # hidden elements cannot be focused
    viewer.page.get_by_test_id("stage").focus()
    viewer.press("m", "Shift+ArrowRight")  # rollout, then flow

    def check():
        live = viewer.page.get_by_test_id("live").inner_text()
        assert live.startswith(METHODS["flow"].title)
        assert "Bottleneck" in live

    viewer.wait_for(check)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_options_table_and_help_are_accessible(opened, scheme):
    viewer = opened(random_explanation(2, 8), color_scheme=scheme)
    page = viewer.page
    page.set_viewport_size({"width": 380, "height": 800})
    page.get_by_test_id("options").locator("summary").click()
    page.get_by_test_id("table").locator("summary").click()
    assert viewer.find_violations() == []
    page.get_by_test_id("help-button").click()
    assert page.get_by_test_id("help").is_visible()
    assert viewer.find_violations() == []


def test_browsers_without_uint8array_frombase64_are_supported(opened):
    explanation = random_explanation(2, 6)
    viewer = opened(explanation)
    viewer.context.add_init_script("delete Uint8Array.fromBase64")
    viewer.page.reload()
    assert viewer.page.evaluate("Uint8Array.fromBase64 === undefined")
    viewer.expect_scores("raw", explanation.raw(layers=2, positions=0).to_numpy()[0, 0])


def test_the_tooltip_of_a_long_token_fits_the_window(opened):
    page = opened(cls_explanation()).page
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
    assert f"{METHODS['rollout'].title}: 0." in tooltip.inner_text()
    assert len(tooltip.inner_text()) < 200


def test_a_file_opens_with_its_options(opened):
    view = {"method": "flow", "layer": 1, "words": True, "normalize": "rows", "special": "hide"}
    page = opened(random_explanation(3, 6), view=view).page
    assert page.get_by_test_id("method-flow").is_checked()
    assert page.get_by_test_id("layer").input_value() == "1"
    assert page.get_by_test_id("units").input_value() == "words"
    assert not page.get_by_test_id("special").is_checked()
    assert page.get_by_test_id("normalize").input_value() == "rows"
    assert "flow" in page.get_by_test_id("ranking").locator("..").locator("h2").inner_text()
    link = opened(random_explanation(3, 6), '{"layer":2}', view=view).page
    assert link.get_by_test_id("layer").input_value() == "2"
    assert link.get_by_test_id("method-flow").is_checked()


def test_the_prediction_says_which_position_it_belongs_to(opened):
    outcome = Outcome("word", 0, 0.75)
    explanation = replace(
        causal_explanation(2, 5), prediction=Prediction("next token", (outcome,), outcome)
    )
    page = opened(explanation).page
    assert page.get_by_test_id("elsewhere").is_hidden()
    page.get_by_test_id("token").nth(1).click()
    page.get_by_test_id("elsewhere").wait_for()
    box = page.get_by_test_id("prediction").inner_text()
    assert "“word4”" in box
    assert "“word1”" in box
    page.get_by_test_id("explained-position").click()
    page.get_by_test_id("elsewhere").wait_for(state="hidden")
    heading = page.get_by_test_id("ranking").locator("..").locator("h2").inner_text()
    assert "“word4”" in heading


def test_the_prediction_of_another_position_is_shown_if_there_is_one(browser, tmp_path):
    def predicted(label: str) -> Prediction:
        outcome = Outcome(label, 0, 0.75)
        return Prediction("next token", (outcome,), outcome)

    explanation = replace(
        causal_explanation(2, 5),
        prediction=predicted("last"),
        predictions=(None, predicted("earlier"), None, None, predicted("last")),
    )
    path = explanation.to_html(tmp_path / "page.html")
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(path.as_uri())
    viewer.page.get_by_test_id("token").nth(1).click()
    box = viewer.page.get_by_test_id("prediction")
    viewer.wait_for(lambda: "earlier" in box.inner_text() and "word1" in box.inner_text())
    assert viewer.page.get_by_test_id("elsewhere").is_hidden()
    viewer.page.get_by_test_id("token").nth(2).click()
    viewer.page.get_by_test_id("elsewhere").wait_for()
    assert "position 4 only" in box.inner_text()
    assert "earlier" not in box.inner_text()
    viewer.close()


@pytest.mark.parametrize("view", ["text", "flow", "map", "heads", "difference"])
def test_a_view_is_printed_whole_in_light_colors_without_controls(opened, view):
    state = json.dumps({"view": view, "fit": False})
    viewer = opened(random_explanation(3, 60), state, color_scheme="dark")
    page = viewer.page
    viewer.wait_for_drawing()
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") == 1
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for control in ("layer", "export-pdf", f"view-{view}"):
        assert page.get_by_test_id(control).is_hidden(), control
    sheet = page.get_by_test_id("sheet")
    if view == "text":
        assert sheet.is_hidden()
        assert page.get_by_test_id("token").last.is_visible()
        ground = page.get_by_test_id("sentence").locator("xpath=ancestor::*[@role='region']").first
        color = ground.evaluate("element => getComputedStyle(element).backgroundColor")
        assert color == "rgb(255, 255, 255)"
    else:
        assert sheet.locator("svg rect").first.get_attribute("fill") == "#ffffff"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="dark")
    assert page.get_by_test_id("layer").is_visible()
    assert sheet.is_hidden()


def read_objects(file):
    """The objects of a PDF file, at the places in its table, with their streams decompressed."""
    [table] = map(int, re.findall(rb"startxref\n(\d+)\n%%EOF\n$", file))
    assert file.startswith(b"xref", table)
    objects = []
    for offset in re.findall(rb"(\d{10}) 00000 n", file[table:]):
        head, _, rest = file[int(offset) :].partition(b"stream\n")
        [(entries, end)] = re.findall(rb"\A\d+ 0 obj\n<<(.*?)>>\n(endobj)?", head, re.DOTALL)
        sizes = [] if end else list(map(int, re.findall(rb"/Length (\d+)", entries)))
        objects.append((entries.decode(), zlib.decompress(rest[: sizes[0]]) if sizes else b""))
    return objects


@pytest.mark.parametrize("view", ["text", "flow", "map", "heads"])
def test_a_view_is_saved_as_pdf_in_light_colors(opened, view):
    weights = np.full((2, 1, 4, 4), 0.25)
    tokens = ["[CLS]", "café", "مدينة", "[SEP]"]  # one is Arabic
    explanation = Explanation.from_attentions(Attentions(weights, tokens))
    viewer = opened(explanation, json.dumps({"view": view}), color_scheme="dark")
    viewer.wait_for_drawing()
    with viewer.page.expect_download() as download:
        viewer.page.get_by_test_id("export-pdf").click()
    assert download.value.suggested_filename.endswith(".pdf")
    objects = read_objects(download.value.path().read_bytes())
    content = objects[3][1].decode()
    assert re.search(r"1\.000 1\.000 1\.000 rg\s0 0 [\d.]+ [\d.]+ re f", content)  # the ground
    assert "<636166e9> Tj" in content  # café
    images = [entries for entries, _ in objects if "/SMask" in entries]
    assert len(images) == len(re.findall(r"/I\d+ Do", content)) > 0
    for entries, pixels in objects[5:]:
        [(width, height)] = re.findall(r"/Width (\d+) /Height (\d+)", entries)
        assert len(pixels) == int(width) * int(height) * (3 if "DeviceRGB" in entries else 1)


def test_pictures_have_no_options_without_effect(opened):
    page = opened(image_explanation()).page
    page.get_by_test_id("view-image").wait_for()
    for option in ("top-k", "units", "search", "fit", "edges"):
        assert page.get_by_test_id(option).is_hidden(), option
    page.get_by_test_id("view-image").focus()
    page.keyboard.press("2")
    page.get_by_test_id("sentence").wait_for()
    page.keyboard.press("1")
    page.get_by_test_id("sentence").wait_for(state="hidden")
    assert page.get_by_test_id("view-image").get_attribute("aria-selected") == "true"


@pytest.mark.parametrize("view", ["flow", "map"])
def test_token_labels_are_in_view_on_a_low_screen(opened, view):
    viewer = opened(random_explanation(12, 30))
    page = viewer.page
    page.set_viewport_size({"width": 1200, "height": 850})
    page.get_by_test_id(f"view-{view}").click()
    viewer.wait_for_drawing()
    box = page.get_by_test_id("stage").bounding_box()
    assert box["y"] + box["height"] <= 850


def test_a_drawing_that_scrolls_says_so(opened):
    state = '{"view":"map","fit":false}'
    viewer = opened(random_explanation(2, 120), state)
    assert "Fit to width" in viewer.page.get_by_test_id("scroll-cue").inner_text()
    viewer.page.get_by_test_id("fit").check()
    viewer.page.get_by_test_id("scroll-cue").wait_for(state="hidden")


def test_tabs_are_whole_on_a_narrow_screen(opened):
    page = opened(image_explanation()).page
    page.set_viewport_size({"width": 360, "height": 800})
    for tab in page.get_by_role("tab").all():
        box = tab.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_scores_are_saved_as_csv(opened):
    explanation = random_explanation(2, 5)
    page = opened(explanation).page
    with page.expect_download() as download:
        page.get_by_test_id("export-csv").click()
    assert download.value.suggested_filename.endswith(".csv")
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text(encoding="utf-8"))))
    assert [row["token"] for row in rows] == list(explanation.tokens)
    for method in PAGE_METHODS:
        scores = [float(row[method]) for row in rows]
        expected = explanation.attribute(method, layers=2).to_numpy()[0, 0]
        np.testing.assert_allclose(scores, expected, rtol=2e-3)


def test_two_texts_are_compared_token_by_token(browser, tmp_path):
    rows = np.asarray([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    pair = []
    for tokens, weights in ((["the", "keys", "are"], rows), (["the", "key", "are"], rows[:, ::-1])):
        attentions = Attentions(np.asarray([[weights]]), tokens)
        pair.append(Explanation.from_attentions(attentions, text=" ".join(tokens)))
    page = attnflow.to_html(tmp_path / "two.html", *pair).as_uri()
    viewer = ViewerPage(browser, network=False)
    viewer.page.goto(f'{page}#{{"view":"difference","method":"raw"}}')
    viewer.expect_scores("difference", [0.25, 0, -0.25])
    names = viewer.page.get_by_test_id("numbers").locator("tbody th").all_text_contents()
    assert names == ["the", "keys | key", "are"]
    viewer.page.get_by_test_id("versus").select_option("method:rollout")
    viewer.expect_scores("difference", [-0.25, 0.125, 0.125])
    viewer.close()
