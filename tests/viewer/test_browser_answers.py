"""Prompt and answer in a real browser: parts of the answer, where tokens went, the token map."""

import csv
import io
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.study.small_models import make_llama
from tests.viewer.answers import ANSWER, PROMPT, answer_explanation, chat_explanation
from tests.viewer.browser import ViewerPage

pytestmark = pytest.mark.slow

FIRST = 6  # token of the answer
TEMPLATE = "{% for m in messages %}{{ m.content + ' ' }}{% endfor %}"


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of an explanation."""
    viewers: list[ViewerPage] = []

    def open_page(explanation, **view):
        viewer = ViewerPage(browser, network=False)
        viewer.page.goto(explanation.to_html(tmp_path / f"{len(viewers)}.html", **view).as_uri())
        viewer.page.get_by_test_id("dialogue").wait_for()
        viewers.append(viewer)
        return viewer

    yield open_page
    for viewer in viewers:
        viewer.close()


def expect_part(viewer, explanation, part, methods=("raw", "rollout", "flow")):
    """Wait until the scores are those of a part of the answer; part: a slice of its tokens."""
    for method in methods:
        scores = explanation.attribute(method, layers=-1, answer=part).to_numpy()[0, 0]
        viewer.expect_scores(method, scores)


def select_method(viewer, method):
    viewer.page.get_by_test_id(f"method-{method}").locator("..").click()


def test_the_page_opens_with_the_whole_answer(opened):
    explanation = answer_explanation()
    viewer = opened(explanation)
    expect_part(viewer, explanation, "whole")
    page = viewer.page
    text = page.get_by_test_id("dialogue").inner_text()
    assert PROMPT in text
    assert ANSWER in text
    assert "answer: given" in page.get_by_test_id("settings").inner_text()
    assert page.locator(".piece.part").count() == 5
    assert "5 tokens" in page.get_by_test_id("prediction").inner_text()
    assert page.locator(".piece.unlikely").count() == 5
    ranked = page.get_by_test_id("ranking").locator("li:visible")
    assert ranked.count() == 6  # the prompt
    assert viewer.find_violations() == []


def test_tokens_of_the_answer_are_clicked_dragged_and_extended(opened):
    explanation = answer_explanation()
    viewer = opened(explanation)
    pieces = viewer.page.get_by_test_id("piece")
    pieces.nth(FIRST + 1).click()
    expect_part(viewer, explanation, slice(1, 2))
    shown = viewer.page.get_by_test_id("prediction").inner_text()
    assert "here" in shown
    assert "9.2%" in shown
    pieces.nth(FIRST + 3).click(modifiers=["Shift"])
    expect_part(viewer, explanation, slice(1, 4))
    start, end = (pieces.nth(FIRST + i).bounding_box() for i in (4, 2))
    viewer.page.mouse.move(start["x"] + 4, start["y"] + 8)
    viewer.page.mouse.down()
    viewer.page.mouse.move(end["x"] + 4, end["y"] + 8, steps=8)
    viewer.page.mouse.up()
    expect_part(viewer, explanation, slice(2, 5))
    pieces.nth(FIRST).click()
    expect_part(viewer, explanation, slice(0, 1))


def test_the_keyboard_moves_through_prompt_and_answer(opened):
    explanation = answer_explanation()
    viewer = opened(explanation)
    page = viewer.page
    page.get_by_test_id("piece").nth(FIRST + 1).click()
    page.get_by_test_id("dialogue").focus()
    viewer.press("ArrowRight", "Shift+ArrowRight")
    expect_part(viewer, explanation, slice(2, 4))
    viewer.press("a")
    expect_part(viewer, explanation, "whole")
    viewer.press("ArrowLeft")
    assert "traced" in (page.get_by_test_id("piece").nth(FIRST - 1).get_attribute("class") or "")
    viewer.press("Escape")
    assert page.locator(".piece.traced").count() == 0


def test_a_token_of_the_prompt_shows_where_it_went(opened):
    explanation = answer_explanation()
    viewer = opened(explanation)
    viewer.page.get_by_test_id("piece").nth(2).click()
    for method in ("rollout", "flow", "raw"):
        select_method(viewer, method)
        rows = explanation.attribute(method, layers=-1, answer="tokens").to_numpy()[0]
        viewer.expect_scores("reverse", [0] * FIRST + list(rows[:, 2]))
    ranking = viewer.page.get_by_test_id("ranking").locator("li:visible")
    assert ranking.count() == 5
    ranking.first.locator("button").click()  # explains that token
    viewer.wait_for(lambda: viewer.page.locator(".piece.part").count() == 1)


def test_the_token_map(opened):
    explanation = answer_explanation()
    viewer = opened(explanation)
    page = viewer.page
    page.get_by_test_id("view-alignment").click()
    rows = explanation.rollout(layers=-1, answer="tokens").to_numpy()[0]
    for i, row in enumerate(rows):
        viewer.expect_scores(f"answer/{FIRST + i}", row)
    with page.expect_download() as download:
        page.get_by_test_id("export-csv").click()
    lines = list(csv.DictReader(io.StringIO(download.value.path().read_text(encoding="utf-8"))))
    assert [float(line["answer/7"]) for line in lines] == pytest.approx(list(rows[1]), abs=1e-3)
    with page.expect_download() as download:
        page.get_by_test_id("export-svg").click()
    root = ElementTree.parse(download.value.path()).getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"cabinets", "here"} <= set(texts)
    stage = page.get_by_test_id("stage")
    box = stage.bounding_box()
    stage.click(position={"x": 12, "y": box["height"] - 14})  # the label of the last row
    page.get_by_test_id("view-text").click()
    expect_part(viewer, explanation, slice(4, 5))


def test_roles_units_and_one_token_in_other_views(opened):
    explanation = chat_explanation()
    viewer = opened(explanation, units="sentences", special="hide")
    page = viewer.page
    assert page.locator(".role:visible").all_inner_texts() == ["user", "answer"]
    assert page.get_by_test_id("piece").first.is_hidden()
    assert page.get_by_test_id("units").input_value() == "sentences"
    page.get_by_test_id("units").select_option("tokens")
    page.get_by_test_id("special").check()
    page.get_by_test_id("piece").nth(FIRST + 1).click()
    for view in ("flow", "map"):
        page.get_by_test_id(f"view-{view}").click()
        title = page.get_by_test_id("ranking").locator("..")
        viewer.wait_for(lambda title=title: "“here”" in title.inner_text())
    expected = explanation.rollout(layers=1, answer=slice(1, 2)).to_numpy()[0, 0]
    viewer.expect_scores("rollout/1", expected)


@pytest.fixture(scope="module")
def address(browser, tmp_path_factory):  # noqa: ARG001 - no server without a browser
    """The address of a running `attnflow serve` with a small model for chats."""
    loaded = make_llama()
    loaded.tokenizer.chat_template = TEMPLATE
    folder = tmp_path_factory.mktemp("llama")
    for part in (loaded.model, loaded.tokenizer):
        part.save_pretrained(folder)
    command = [sys.executable, "-m", "attnflow.cli.main", "serve", "--no-open", "--port", "0"]
    command += ["--model", str(folder), "--max-generate", "6"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert url
        yield url[0]
        process.terminate()


def test_a_chat_is_answered_on_the_local_page(browser, address):
    viewer = ViewerPage(browser, network=True)
    page = viewer.page
    page.goto(address)
    page.get_by_test_id("dialogue").wait_for()  # the example
    assert page.locator("#kind").input_value() == "chat"
    page.locator("#messages textarea").first.fill("the key to")
    page.locator("#add-message").click()
    page.locator("#messages li").nth(1).locator("select").select_option("user")
    page.locator("#messages textarea").nth(1).fill("the cabinets")
    page.locator("#generate").fill("3")
    page.locator("#explain").click()
    viewer.wait_for(lambda: page.locator(".role:visible").count() == 3)
    assert page.locator(".role:visible").all_inner_texts() == ["user", "user", "answer"]
    assert page.locator(".block.answer .piece").count() == 3
    link = page.url
    assert "messages" in link
    assert "seed" not in link
    page.locator("#temperature").fill("2.5")
    page.locator("#seed").fill("4")
    page.locator("#explain").click()
    settings = page.get_by_test_id("settings").first
    viewer.wait_for(lambda: "seed 4" in settings.inner_text())
    assert "temperature 2.5" in settings.inner_text()
    viewer.wait_for(lambda: "temperature=2.5" in page.url)
    page.reload()  # the link has the options
    viewer.wait_for(lambda: "seed 4" in page.get_by_test_id("settings").first.inner_text())
    assert page.locator("#seed").input_value() == "4"
    page.locator("#generate").fill("7")
    page.locator("#explain").click()
    viewer.wait_for(lambda: "1 to 6" in page.locator("#status").inner_text())
    page.locator("#kind").select_option("text")
    page.locator("#text").fill("the key")
    page.locator("#answer").select_option("continuation")
    page.locator("#continuation").fill("is here")
    page.locator("#explain").click()
    viewer.wait_for(lambda: page.locator(".block.answer .piece").count() == 2)
    viewer.console = [line for line in viewer.console if "400" not in line]
    viewer.close()
