"""The other two hosts in a real browser: the local page, served for real, and the widget."""

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
from tests.viewer.browser import Watched, chromium
from tests.viewer.examples import HOSTILE, classified, hostile, made_up
from tests.viewer.notebook_page import Notebook

TEXT = "the keys to the old cabinet"
VIEWS = ("text", "flow", "map", "heads")


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def address(browser):  # noqa: ARG001 - no server without a browser
    """The address of `attnflow serve`, with the models that come with attnflow."""
    command = [sys.executable, "-m", "attnflow.cli.main", "serve", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        yield found[0]
        process.terminate()


@pytest.fixture
def watched(browser, address):
    made = Watched(browser, network=True)
    made.page.goto(address)
    made.page.locator("#open:enabled").wait_for()  # files can be set before the page listens
    yield made
    assert all(url.startswith((address, "data:", "blob:")) for url in made.requests)
    made.close()


def explain_in_page(watched, text):
    watched.page.locator("#text").fill(text)
    watched.page.keyboard.press("Enter")


def expect_scores(watched, explanation, *, position, layer, example=0):
    for method in ("raw", "rollout", "flow"):
        expected = getattr(explanation, method)(layers=layer, positions=position).to_numpy()[0, 0]
        watched.expect(method, expected, example=example)


def test_a_text_is_typed_and_explored(watched):
    page = watched.page
    example = page.locator("#text").input_value
    watched.wait_for(lambda: _true(example() != ""))
    expect_scores(watched, explain(example()), position=0, layer=6)  # without a click
    explain_in_page(watched, TEXT)
    explanation = explain(TEXT)
    expect_scores(watched, explanation, position=0, layer=6)
    page.get_by_test_id("token").nth(2).click()
    expect_scores(watched, explanation, position=2, layer=6)
    for view in VIEWS:
        page.get_by_test_id(f"view-{view}").click()
        page.wait_for_timeout(100)
    assert page.locator("#status").inner_text() == ""
    assert page.locator("#progress").is_hidden()


def _true(value):
    assert value


def test_a_link_brings_back_text_model_and_state(watched, browser):
    page = watched.page
    page.locator("#model").select_option("1")
    explain_in_page(watched, TEXT)
    explanation = explain(TEXT, "verb-number-causal")
    expect_scores(watched, explanation, position=explanation.position, layer=6)
    page.get_by_test_id("view-map").click()
    watched.wait_for(lambda: _true("map" in page.url))
    link = parse_qs(urlsplit(page.url).fragment)
    assert link["text"] == [TEXT]
    assert link["model"] == ["1"]
    assert json.loads(link["state"][0])["view"] == "map"
    again = Watched(browser, network=True)
    again.page.goto(page.url)
    expected = explanation.rollout(layers=3).to_numpy()[0, 0]
    again.expect("rollout/3", expected)
    assert again.page.locator("#text").input_value() == TEXT
    again.close()


def test_two_models_are_compared(watched):
    page = watched.page
    page.locator("#model").select_option("1")
    page.get_by_role("button", name="Compare").click()
    assert page.locator("#model2").input_value() == "1"
    page.locator("#model").select_option("0")
    page.locator("#text").fill(TEXT)
    page.locator("#text2").fill(TEXT)
    page.locator("#explain").click()
    expect_scores(watched, explain(TEXT), position=0, layer=6)
    other = explain(TEXT, "verb-number-causal")
    expect_scores(watched, other, position=other.position, layer=6, example=1)
    assert page.get_by_test_id("panel-1").is_visible()


def test_saved_attentions_are_opened(watched, tmp_path):
    explanation = made_up(3, 7)
    assert explanation.heads is not None
    explanation.heads.save(tmp_path / "saved.safetensors")
    watched.page.locator("#file").set_input_files(tmp_path / "saved.safetensors")
    expect_scores(watched, explanation, position=0, layer=3)
    assert watched.page.locator("h1.title").inner_text() == "saved.safetensors"
    watched.page.locator("#link").click()
    assert "only texts do" in watched.page.locator("#status").inner_text()


def test_what_is_refused_is_said(watched, tmp_path):
    page = watched.page
    expected = "The text has 72 tokens, special ones included"
    explain_in_page(watched, "key " * 71)
    watched.wait_for(lambda: _true(page.locator("#status").inner_text().startswith(expected)))
    assert page.locator("#status").inner_text().endswith("expected no more. Shorten the text.")
    explain_in_page(watched, "k" * 5_001)
    expected_too = "The text has 5001 characters; expected at most 5000"
    watched.wait_for(lambda: _true(expected_too in page.locator("#status").inner_text()))
    explain_in_page(watched, "k" * 200_000)
    watched.wait_for(lambda: _true("The text is too long" in page.locator("#status").inner_text()))
    page.locator("#text").fill(" ")
    page.locator("#explain").click()
    watched.wait_for(lambda: _true("There is no text" in page.locator("#status").inner_text()))
    (tmp_path / "no.safetensors").write_bytes(b"no")
    page.locator("#file").set_input_files(tmp_path / "no.safetensors")
    watched.wait_for(lambda: _true("The file is" in page.locator("#status").inner_text()))
    explain_in_page(watched, TEXT)  # and nothing is the worse for it
    expect_scores(watched, explain(TEXT), position=0, layer=6)
    # The browser itself reports answers of refused requests.
    watched.complaints = [one for one in watched.complaints if "status of 4" not in one]


def test_hostile_text_and_tokens_are_text_on_the_page(watched, tmp_path):
    page = watched.page
    explanation = hostile()
    assert explanation.heads is not None
    explanation.heads.save(tmp_path / "saved.safetensors")
    page.locator("#file").set_input_files(tmp_path / "saved.safetensors")
    shown = page.get_by_test_id("token").all_inner_texts
    watched.wait_for(lambda: _equal(shown(), [visible(token) for token in HOSTILE]))
    title = HOSTILE[0] + ' & "quoted" \''
    explain_in_page(watched, title)
    watched.wait_for(lambda: _true(title in page.locator("h1.title").inner_text()))
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


def _equal(one, other):
    assert one == other


def test_the_page_is_accessible(watched):
    page = watched.page
    page.get_by_test_id("token").first.wait_for()
    page.get_by_role("button", name="Compare").click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert watched.axe() == []
    page.set_viewport_size({"width": 340, "height": 700})
    page.wait_for_timeout(150)
    assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_two_widgets_in_one_notebook(browser):
    one, other = classified(), made_up(3, 5)
    assert other.heads is not None
    notebook = Notebook(browser, show(one), show(other))
    sections = notebook.page.locator("main > section")
    for i, explanation in enumerate((one, other)):
        expected = explanation.flow(layers=-1).to_numpy()[0, 0]
        notebook.expect("flow", expected, within=sections.nth(i))
        sections.nth(i).get_by_test_id("view-heads").click()
    notebook.expect("head/2", other.heads.layers[2][1, 0], within=sections.nth(1))
    assert "0/heads/3" in notebook.asked  # heads never go along
    notebook.wait_for(lambda: _true(len(notebook.states) == 2))
    assert notebook.states[1]["view"] == "heads"
    notebook.close()


def test_hostile_tokens_are_text_in_a_widget(browser):
    notebook = Notebook(browser, show(hostile()))
    shown = notebook.page.get_by_test_id("token").all_inner_texts
    notebook.wait_for(lambda: _equal(shown(), [visible(token) for token in HOSTILE]))
    assert notebook.page.evaluate("window.hacked") is None
    notebook.close()


def test_a_saved_notebook_works_without_a_kernel(browser):
    explanation = classified()
    notebook = Notebook(browser, show(explanation), kernel=False)
    for method in ("raw", "rollout", "flow"):
        expected = getattr(explanation, method)(layers=-1).to_numpy()[0, 0]
        notebook.expect(method, expected)
    assert notebook.asked == []  # all of it had gone along
    notebook.close()


def test_a_silent_kernel_is_said(browser, monkeypatch):
    monkeypatch.setattr("attnflow.viewer.notebook.ALONG", 0)
    notebook = Notebook(browser, show(classified()), kernel=False, clock=True)
    notebook.wait_for(lambda: _true(notebook.asked != []))
    notebook.page.clock.fast_forward(21_000)
    said = notebook.page.get_by_test_id("error").first.inner_text
    notebook.wait_for(lambda: _true("the kernel does not answer" in said()))
    notebook.close()


def test_the_picture_is_hidden_while_its_widget_is_there(browser):
    one, other = show(classified()), show(made_up(3, 5))
    notebook = Notebook(browser, one)
    page = notebook.page
    page.get_by_test_id("token").first.wait_for()
    for widget in (one, other):  # also where the picture comes later than the widget
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


# As JupyterLab does it: keys that nobody took mean something to the notebook.
HOST_KEYS = """
window.heard = [];
document.addEventListener("keydown", (event) => {
  window.heard.push(event.key);
  if (event.key.startsWith("Arrow")) event.preventDefault();
});
"""


def test_keys_in_a_widget_are_not_those_of_the_notebook(browser):
    notebook = Notebook(browser, show(classified()))
    page = notebook.page
    page.evaluate(HOST_KEYS)
    layer = page.get_by_test_id("layer")
    layer.focus()
    notebook.press("ArrowLeft")
    notebook.wait_for(lambda: _equal(layer.input_value(), "1"))
    notebook.press("d", "d", "0", "0", "a", "x", "Enter")  # JupyterLab: delete, restart, ...
    page.get_by_test_id("search").focus()
    notebook.press("b", "Backspace")
    page.get_by_test_id("view-map").focus()
    notebook.press("?", "d", "Escape")  # help, and out of it
    assert page.evaluate("heard") == ["Escape"]
    # Those of the notebook that mean nothing to the viewer still reach it.
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
    notebook = Notebook(browser, show(classified()))
    app = notebook.page.locator(".app")
    place = notebook.page.locator(element)
    for value, is_dark in ((dark, True), (light, False), (dark, True)):
        place.evaluate("(e, [name, value]) => e.setAttribute(name, value)", [attribute, value])
        notebook.wait_for(partial(_is_dark, app, is_dark))
    notebook.page.emulate_media(color_scheme="dark")  # which the notebook overrules
    place.evaluate("(e, [name, value]) => e.setAttribute(name, value)", [attribute, light])
    notebook.wait_for(partial(_is_dark, app, False))
    notebook.close()


def _is_dark(app, expected):
    color = app.evaluate("(e) => getComputedStyle(e).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", color)[:3])) < 150) is expected
