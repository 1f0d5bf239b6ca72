"""Single HTML files: complete, and with hostile tokens as text."""

import base64
import errno
import hashlib
import json
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnflow import FileError, InputError, to_html
from attnflow.viewer import page as page_module
from attnflow.viewer import payload as payload_module
from attnflow.viewer.compression import LEVELS
from attnflow.viewer.header import PAGE_METHODS
from attnflow.viewer.page import MODULE, inline_module, pack_chunks, read_asset
from attnflow.viewer.payload import make_payload
from tests.refusal import refusal
from tests.viewer.examples import (
    HOSTILE,
    classifier_explanation,
    hostile_explanation,
    random_explanation,
)


class Page(HTMLParser):
    """A parsed page: scripts (attributes and text), content security policy, title and tags."""

    def __init__(self, path):
        super().__init__()
        self.scripts: list[list[Any]] = []
        self.tags: list[str] = []
        self.policy, self.title, self._open = "", "", ""
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)
        self.header = json.loads(self.scripts[0][1])

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        self._open = tag
        if tag == "script":
            self.scripts.append([attributes, ""])
        elif attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_endtag(self, _):
        self._open = ""

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1][1] += data
        elif self._open == "title" and "svg" not in self.tags:
            self.title += data


@pytest.fixture
def page(tmp_path):
    return Page(to_html(tmp_path / "page.html", classifier_explanation()))


def unpack(attributes, text):
    """The bytes of a chunk, as the script of the page unpacks them."""
    grouped = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    return grouped.reshape(int(attributes["data-width"]), -1).T.tobytes()


@pytest.mark.usefixtures("toy_method")
def test_the_page_holds_header_and_arrays(tmp_path):
    page = Page(to_html(tmp_path / "page.html", classifier_explanation()))
    payload = make_payload([classifier_explanation()])
    assert page.header == payload.header()
    _, *chunks, _ = page.scripts
    arrays = {attributes["data-key"]: unpack(attributes, text) for attributes, text in chunks}
    assert arrays == {key: payload.chunk(key) for key in payload.chunks}
    assert np.frombuffer(arrays["0/flow/1"], "<f2").size == 36
    assert np.frombuffer(arrays["0/scores/toy/1"], "<f2").size == 36


def test_the_policy_allows_only_the_script_of_the_page(page):
    attributes, script = page.scripts[-1]
    assert attributes == {"type": "module"}
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page.policy
    assert page.policy.startswith("default-src 'none';")
    assert "connect-src" not in page.policy
    assert {"link", "iframe", "object", "base"}.isdisjoint(page.tags)


def test_two_explanations_are_compared_under_a_title(tmp_path):
    explanations = classifier_explanation(), random_explanation(1, 3)
    page = Page(to_html(tmp_path / "page.html", *explanations, title="<b>&"))
    assert page.title == "<b>&"
    assert len(page.header["examples"]) == 2


def test_hostile_tokens_stay_inside_the_header(tmp_path):
    page = Page(to_html(tmp_path / "page.html", hostile_explanation(), title=HOSTILE[1]))
    assert page.header["examples"][0]["tokens"] == list(HOSTILE)
    # The header; attention, flow and heads of two layers; three methods, normalized; notes; and
    # the module. None from a token.
    assert len(page.scripts) == 1 + 6 + 6 + 1 + 1
    assert "img" not in page.tags
    assert page.title == HOSTILE[1]
    assert "\0" not in page.text
    assert "\u202e" not in page.text


def test_heads_are_left_out_if_they_are_too_large(tmp_path, monkeypatch):
    def n_heads(**options):
        explanations = classifier_explanation(), random_explanation(1, 3)
        page = Page(to_html(tmp_path / "page.html", *explanations, **options))
        return [example["n_heads"] for example in page.header["examples"]]

    needed = 2 * (4 * 6 * 6 + 2 * 3 * 3)  # bytes: four heads of six tokens, two of three
    monkeypatch.setattr(page_module, "HEADS_LIMIT", needed)
    assert n_heads() == [2, 2]
    assert n_heads(keep_heads=False) == [0, 0]
    monkeypatch.setattr(page_module, "HEADS_LIMIT", needed - 1)
    assert n_heads() == [0, 0]
    assert n_heads(keep_heads=True) == [2, 2]


def test_only_explanations_can_be_written(tmp_path):
    with refusal(InputError, "str", "Explanation"):
        to_html(tmp_path / "page.html", "text")  # type: ignore[arg-type]


def test_progress_is_reported(tmp_path):
    seen = []
    explanation = random_explanation(1, 3)
    to_html(tmp_path / "page.html", explanation, progress=lambda *done: seen.append(done))
    assert seen[-1] == (9, 9)


def test_an_unusable_path_is_reported_before_computing(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "make_payload", lambda *_, **__: pytest.fail("computed"))
    with refusal(FileError, str(tmp_path / "none"), "Create"):
        to_html(tmp_path / "none" / "page.html", classifier_explanation())
    with refusal(FileError, f"{tmp_path} is a folder", str(tmp_path / "page.html")):
        to_html(tmp_path, classifier_explanation())


@pytest.mark.parametrize(
    ("code", "fragment"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "Permission denied")]
)
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, code, fragment):
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")

    def fail(*_):
        raise PermissionError(code, "Permission denied", "temporary")

    monkeypatch.setattr(Path, "replace", fail)
    with refusal(FileError, str(path), fragment):
        to_html(path, classifier_explanation())
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text(encoding="utf-8") == "old"


def test_the_built_module_can_be_inlined():
    source, mount = inline_module(read_asset(MODULE))
    assert "export" not in source[-200:]
    assert mount.isidentifier() or "$" in mount
    assert not source.lstrip().startswith("import")
    assert "\0" not in source  # HTML parsers replace it, and the hash would not match


def test_a_missing_or_invalid_front_end_is_reported():
    with refusal(FileError, "none.js", "make viewer"):
        read_asset("none.js")
    with refusal(FileError, "mount", "make viewer"):
        inline_module("export{a as b};")


def test_weights_are_rounded_where_a_page_would_be_too_large(monkeypatch):
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", 1)  # only rows of the explained position
    explanation = random_explanation(2, 40)
    payload = make_payload([replace(explanation, heads=None)])
    exact, chunks = pack_chunks(payload)
    assert exact.levels is None
    assert exact.header()["examples"][0]["rounding"] is None
    monkeypatch.setattr(page_module, "CHUNKS_LIMIT", sum(map(len, chunks.values())) - 1)
    rounded, smaller = pack_chunks(payload)
    assert rounded.levels == LEVELS[0]
    example = rounded.header()["examples"][0]
    assert example["chunks"]["0/attention/2"]["dtype"] == f"log{LEVELS[0]}"
    codes = np.frombuffer(rounded.chunk("0/attention/2"), "<u2").reshape(40, 40)
    weights = np.where(codes == 0, 0, 2.0 ** (8 - (codes.astype(float) - 1) / LEVELS[0]))
    expected = explanation.graph.attention[1]
    np.testing.assert_allclose(weights, expected, rtol=1.01 * example["rounding"])
    # Scores of the explained position are stored, and not rounded.
    for method in PAGE_METHODS:
        scores = np.frombuffer(rounded.chunk(f"0/{method}/2"), "<f2")
        assert example["chunks"][f"0/{method}/2"]["dtype"] == "float16"
        exact_scores = explanation.attribute(method, layers=2).to_numpy()[0, 0]
        np.testing.assert_allclose(scores, exact_scores, rtol=1e-3, atol=1e-6)
    assert len(smaller["0/attention/1"]) < len(chunks["0/attention/1"])
    monkeypatch.setattr(page_module, "CHUNKS_LIMIT", 0)
    coarse, _ = pack_chunks(payload)
    assert coarse.levels == LEVELS[-1]
    data = coarse.chunk("0/attention/2")  # the highest weight, then a byte for each
    top, bytes_ = np.frombuffer(data[:4], "<f4")[0], np.frombuffer(data[4:], "u1").reshape(40, 40)
    assert top == expected.max().astype("<f4")
    weights = np.where(bytes_ == 0, 0, top * 2.0 ** ((1 - bytes_.astype(float)) / LEVELS[-1]))
    rounding = coarse.header()["examples"][0]["rounding"]
    np.testing.assert_allclose(weights, expected, rtol=1.01 * rounding, atol=1e-12)
