"""The web server and the notebook widget in a real browser."""

import json
import re
import subprocess
import sys
from functools import partial
from urllib.parse import parse_qs, urlsplit

import pytest

from attnflow import show
from attnflow.explainer import explain
from attnflow.viewer.preview import visible
from tests.viewer.browser import ViewerPage
from tests.viewer.examples import (
    HOSTILE,
    classifier_explanation,
    hostile_explanation,
    random_explanation,
)
from tests.viewer.notebook_page import Notebook

pytestmark = pytest.mark.slow

TEXT = "the keys to the old cabinet"
VIEWS = ("text", "flow", "map", "heads")


@pytest.fixture(scope="module")
def address(browser):  # noqa: ARG001 - no server without a browser
    """The address of a running `attnflow serve`."""
    command = [sys.executable, "-m", "attnflow.cli.main", "serve", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert url, line
        yield url[0]
        process.terminate()


@pytest.fixture
def viewer(browser, address):
    viewer = ViewerPage(browser, network=True)
    viewer.page.goto(address)
    viewer.page.locator("#open:enabled").wait_for()  # the page handles events from now on
    yield viewer
    assert all(url.startswith((address, "data:", "blob:")) for url in viewer.requests)
    viewer.close()


def explain_in_page(viewer, text):
    viewer.page.locator("#text").fill(text)
    viewer.page.keyboard.press("Enter")


def test_a_text_is_explained(viewer):
    page = viewer.page
    example = page.locator("#text").input_value
    viewer.wait_for(lambda: example() != "")
    viewer.expect_explanation(explain(example()), position=0, layer=6)  # without a click
    explain_in_page(viewer, TEXT)
    explanation = explain(TEXT)
    viewer.expect_explanation(explanation, position=0, layer=6)
    page.get_by_test_id("token").nth(2).click()
    viewer.expect_explanation(explanation, position=2, layer=6)
    for view in VIEWS:
        page.get_by_test_id(f"view-{view}").click()
        viewer.wait_for_drawing()
    assert page.locator("#status").inner_text() == ""
    assert page.locator("#progress").is_hidden()


def test_a_link_restores_text_model_and_state(viewer, browser):
    page = viewer.page
    page.locator("#model").select_option("1")
    explain_in_page(viewer, TEXT)
    explanation = explain(TEXT, "verb-number-causal")
    viewer.expect_explanation(explanation, position=explanation.position, layer=6)
    page.get_by_test_id("view-map").click()
    viewer.wait_for(lambda: "map" in page.url)
    link = parse_qs(urlsplit(page.url).fragment)
    assert link["text"] == [TEXT]
    assert link["model"] == ["1"]
    assert json.loads(link["state"][0])["view"] == "map"
    again = ViewerPage(browser, network=True)
    again.page.goto(page.url)
    expected = explanation.rollout(layers=3).to_numpy()[0, 0]
    again.expect_scores("rollout/3", expected)
    assert again.page.locator("#text").input_value() == TEXT
    again.close()


def test_two_models_are_compared(viewer):
    page = viewer.page
    page.locator("#model").select_option("1")
    page.get_by_role("button", name="Compare").click()
    assert page.locator("#model2").input_value() == "1"
    page.locator("#model").select_option("0")
    page.locator("#text").fill(TEXT)
    page.locator("#text2").fill(TEXT)
    page.locator("#explain").click()
    viewer.expect_explanation(explain(TEXT), position=0, layer=6)
    other = explain(TEXT, "verb-number-causal")
    viewer.expect_explanation(other, position=other.position, layer=6, example=1)
    assert page.get_by_test_id("panel-1").is_visible()


def test_saved_attentions_are_opened(viewer, tmp_path):
    explanation = random_explanation(3, 7)
    assert explanation.heads is not None
    explanation.heads.save(tmp_path / "saved.safetensors")
    viewer.page.locator("#file").set_input_files(tmp_path / "saved.safetensors")
    viewer.expect_explanation(explanation, position=0, layer=3)
    assert viewer.page.locator("h1.title").inner_text() == "saved.safetensors"
    viewer.page.locator("#link").click()
    assert "not for opened files" in viewer.page.locator("#status").inner_text()


def test_errors_are_displayed(viewer, tmp_path):
    page = viewer.page
    status = page.locator("#status").inner_text

    def expect_status(*fragments):
        viewer.wait_for(lambda: all(fragment in status() for fragment in fragments))

    explain_in_page(viewer, "key " * 71)
    expect_status("72 tokens", "Shorten")
    explain_in_page(viewer, "k" * 5_001)
    expect_status("5001 characters", "at most 5000", "--max-text")
    explain_in_page(viewer, "k" * 200_000)
    expect_status("bytes", "at most 5000", "--max-text")
    page.locator("#text").fill(" ")
    page.locator("#explain").click()
    expect_status("no text")
    (tmp_path / "no.safetensors").write_bytes(b"no")
    page.locator("#file").set_input_files(tmp_path / "no.safetensors")
    expect_status("The file is")
    explain_in_page(viewer, TEXT)  # the page still works
    viewer.expect_explanation(explain(TEXT), position=0, layer=6)
    # The browser itself reports responses with an error status.
    viewer.console = [message for message in viewer.console if "status of 4" not in message]


def test_hostile_text_and_tokens_are_text_on_the_page(viewer, tmp_path):
    page = viewer.page
    explanation = hostile_explanation()
    assert explanation.heads is not None
    explanation.heads.save(tmp_path / "saved.safetensors")
    page.locator("#file").set_input_files(tmp_path / "saved.safetensors")
    shown = page.get_by_test_id("token").all_inner_texts
    viewer.wait_for(lambda: shown() == [visible(token) for token in HOSTILE])
    title = HOSTILE[0] + ' & "quoted" \''
    explain_in_page(viewer, title)
    viewer.wait_for(lambda: title in page.locator("h1.title").inner_text())
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


def test_the_page_is_accessible(viewer):
    page = viewer.page
    page.get_by_test_id("token").first.wait_for()
    page.get_by_role("button", name="Compare").click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert viewer.find_violations() == []
    page.set_viewport_size({"width": 340, "height": 700})
    viewer.wait_for_drawing()
    assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_two_widgets_in_one_notebook(browser):
    first, second = classifier_explanation(), random_explanation(3, 5)
    assert second.heads is not None
    notebook = Notebook(browser, show(first), show(second))
    sections = notebook.page.locator("main > section")
    for i, explanation in enumerate((first, second)):
        expected = explanation.flow(layers=-1).to_numpy()[0, 0]
        notebook.expect_scores("flow", expected, within=sections.nth(i))
        sections.nth(i).get_by_test_id("view-heads").click()
    notebook.expect_scores("head/1", second.heads.layers[2][1, 0], within=sections.nth(1))
    assert "0/heads/3" in notebook.asked  # heads are never sent at the start
    notebook.wait_for(lambda: len(notebook.states) == 2)
    assert notebook.states[1]["view"] == "heads"
    notebook.close()


def test_hostile_tokens_are_text_in_a_widget(browser):
    notebook = Notebook(browser, show(hostile_explanation()))
    shown = notebook.page.get_by_test_id("token").all_inner_texts
    notebook.wait_for(lambda: shown() == [visible(token) for token in HOSTILE])
    assert notebook.page.evaluate("window.hacked") is None
    notebook.close()


def test_a_saved_notebook_works_without_a_kernel(browser):
    explanation = classifier_explanation()
    notebook = Notebook(browser, show(explanation), kernel=False)
    notebook.expect_explanation(explanation, position=explanation.position, layer=-1)
    assert notebook.asked == []  # all arrays were sent at the start
    notebook.close()


def test_a_kernel_that_does_not_answer_is_reported(browser, monkeypatch):
    monkeypatch.setattr("attnflow.viewer.notebook.EAGER_BYTES", 0)
    notebook = Notebook(browser, show(classifier_explanation()), kernel=False, clock=True)
    notebook.wait_for(lambda: notebook.asked != [])
    notebook.page.clock.fast_forward(21_000)
    error = notebook.page.get_by_test_id("error").first.inner_text
    notebook.wait_for(lambda: "kernel does not respond" in error())
    notebook.close()


def test_the_picture_is_hidden_while_its_widget_exists(browser):
    shown, later = show(classifier_explanation()), show(random_explanation(3, 5))
    notebook = Notebook(browser, shown)
    page = notebook.page
    page.get_by_test_id("token").first.wait_for()
    for widget in (shown, later):  # only the first has its widget on the page
        page.evaluate(
            """(name) => {
              const output = document.createElement("div");
              output.className = "jp-OutputArea-child";
              output.innerHTML = `<i>prompt</i><div class="${name}">picture</div>`;
              document.body.append(output);
            }""",
            widget.picture,
        )
    outputs = page.locator(".jp-OutputArea-child")
    assert [outputs.nth(i).is_visible() for i in range(2)] == [False, True]
    page.locator("main > section").evaluate("(e) => e.remove()")
    assert [outputs.nth(i).is_visible() for i in range(2)] == [True, True]
    notebook.close()


# Like JupyterLab, which handles all keys that reach the document.
HOST_KEYS = """
window.heard = [];
document.addEventListener("keydown", (event) => {
  window.heard.push(event.key);
  if (event.key.startsWith("Arrow")) event.preventDefault();
});
"""


def test_keys_in_a_widget_do_not_reach_the_notebook(browser):
    notebook = Notebook(browser, show(classifier_explanation()))
    page = notebook.page
    page.evaluate(HOST_KEYS)
    layer = page.get_by_test_id("layer")
    layer.focus()
    notebook.press("ArrowLeft")
    notebook.wait_for(lambda: layer.input_value() == "1")
    notebook.press("d", "d", "0", "0", "a", "x", "Enter")  # JupyterLab: delete, restart, ...
    page.get_by_test_id("search").focus()
    notebook.press("b", "Backspace")
    page.get_by_test_id("view-map").focus()
    notebook.press("?", "d", "Escape")  # open and close the help
    assert page.evaluate("heard") == ["Escape"]
    # Keys that the viewer does not handle reach the notebook.
    notebook.press("Control+s", "Shift+Enter", "Escape", "Tab")
    assert [key for key in page.evaluate("heard")[1:] if key not in ("Control", "Shift")] == [
        "s",
        "Enter",
        "Escape",
        "Tab",
    ]
    notebook.close()


@pytest.mark.parametrize(
    ("element", "attribute", "dark", "light"),
    [
        ("body", "data-jp-theme-light", "false", "true"),  # JupyterLab
        ("body", "data-vscode-theme-kind", "vscode-dark", "vscode-light"),
        ("html", "theme", "dark", "light"),  # Colab
        ("body", "class", "dark dark-theme", "light light-theme"),  # marimo
    ],
)
def test_a_widget_has_the_theme_of_its_notebook(browser, element, attribute, dark, light):
    notebook = Notebook(browser, show(classifier_explanation()))
    app = notebook.page.locator(".app")
    place = notebook.page.locator(element)
    for value, is_dark in ((dark, True), (light, False), (dark, True)):
        place.evaluate("(e, [name, value]) => e.setAttribute(name, value)", [attribute, value])
        notebook.wait_for(partial(_is_dark, app, is_dark))
    notebook.page.emulate_media(color_scheme="dark")  # the notebook's theme has priority
    place.evaluate("(e, [name, value]) => e.setAttribute(name, value)", [attribute, light])
    notebook.wait_for(partial(_is_dark, app, False))
    notebook.close()


def _is_dark(app, expected):
    color = app.evaluate("(e) => getComputedStyle(e).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", color)[:3])) < 150) is expected
