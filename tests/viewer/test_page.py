"""Single HTML files: all of it inside, nothing of it alive that should be text."""

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from attnflow import FileError, InputError, to_html
from attnflow.viewer import page as assets
from attnflow.viewer import page as single_file
from attnflow.viewer.page import inline_module, read_asset
from attnflow.viewer.payload import make_payload
from tests.refusal import refusal
from tests.viewer.examples import HOSTILE, classified, hostile, made_up


class Page(HTMLParser):
    """The parts of a page that matter here."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.policy, self.title, self.names, self._open = [], "", "", [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        given = dict(attrs)
        self._open = tag
        if tag == "script":
            self.scripts.append([given, ""])
        elif given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_endtag(self, _):
        self._open = None

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1][1] += data
        elif self._open == "title" and "svg" not in self.names:
            self.title += data


@pytest.fixture
def page(tmp_path):
    return Page(to_html(tmp_path / "page.html", classified()).read_text(encoding="utf-8"))


def test_the_arrays_lie_in_the_page(page):
    payload = make_payload([classified()])
    header, *chunks, _ = page.scripts
    assert json.loads(header[1]) == payload.header()
    found = {given["data-key"]: base64.b64decode(text) for given, text in chunks}
    assert found == {key: payload.chunk(key) for key in payload.chunk_keys()}
    assert np.frombuffer(found["0/flow/1"], "<f2").size == 36


def test_the_policy_lets_only_the_pages_own_script_run(page):
    given, script = page.scripts[-1]
    assert given == {"type": "module"}
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page.policy
    assert page.policy.startswith("default-src 'none';")
    assert "connect-src" not in page.policy
    assert {"link", "iframe", "object", "base"}.isdisjoint(page.names)


def test_two_can_be_compared_under_a_title(tmp_path):
    path = to_html(tmp_path / "page.html", classified(), made_up(1, 3), title="<b>&")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.title == "<b>&"
    assert len(json.loads(page.scripts[0][1])["examples"]) == 2


def test_hostile_tokens_stay_inside_the_header(tmp_path):
    explanation = hostile()
    text = to_html(tmp_path / "page.html", explanation, title=HOSTILE[1]).read_text("utf-8")
    page = Page(text)
    assert json.loads(page.scripts[0][1])["examples"][0]["tokens"] == list(HOSTILE)
    # One header, attention, flow and heads of two layers, one module; and no tag of a token's.
    assert len(page.scripts) == 1 + 6 + 1
    assert "img" not in page.names
    assert page.title == HOSTILE[1]
    assert "\0" not in text
    assert "\u202e" not in text


def test_heads_are_left_out_where_they_take_too_much(tmp_path, monkeypatch):
    def n_heads(**options):
        path = to_html(tmp_path / "page.html", classified(), made_up(1, 3), **options)
        header = json.loads(Page(path.read_text(encoding="utf-8")).scripts[0][1])
        return [one["n_heads"] for one in header["examples"]]

    needed = 2 * (4 * 6 * 6 + 2 * 3 * 3)  # bytes: four heads of six tokens, two of three
    monkeypatch.setattr(single_file, "HEADS_LIMIT", needed)
    assert n_heads() == [2, 2]
    assert n_heads(keep_heads=False) == [0, 0]
    monkeypatch.setattr(single_file, "HEADS_LIMIT", needed - 1)
    assert n_heads() == [0, 0]
    assert n_heads(keep_heads=True) == [2, 2]


def test_something_else_is_refused(tmp_path):
    with refusal(InputError, "str was given; expected Explanation"):
        to_html(tmp_path / "page.html", "text")  # type: ignore[arg-type]


def test_progress_is_told(tmp_path):
    seen = []
    to_html(tmp_path / "page.html", made_up(1, 3), progress=lambda *done: seen.append(done))
    assert seen[-1] == (9, 9)


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    with refusal(FileError, "there is no folder", "Create it first"):
        to_html(tmp_path / "none" / "page.html", classified())
    with refusal(FileError, f"{tmp_path} is a folder", "Name a file in it"):
        to_html(tmp_path, classified())
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")

    def fail(*_):
        raise OSError(28, "the disk is full", str(tmp_path / ".attnflow-x"))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FileError, match=r"cannot write .*: the disk is full; .* Choose") as caught:
        to_html(path, classified())
    assert ".attnflow" not in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text(encoding="utf-8") == "old"


def test_the_built_module_can_be_put_into_a_page():
    source, mount = inline_module(read_asset(assets.MODULE))
    assert "export" not in source[-200:]
    assert mount.isidentifier() or "$" in mount
    assert not source.lstrip().startswith("import")
    assert "\0" not in source  # which HTML would replace, and the hash would not fit


def test_a_front_end_that_is_missing_or_strange_is_said():
    with refusal(FileError, "the viewer's file none.js is missing", "make viewer"):
        read_asset("none.js")
    with refusal(FileError, "does not end in a list of exports that has mount"):
        inline_module("export{a as b};")
