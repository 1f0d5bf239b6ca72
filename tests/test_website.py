"""The gallery of the documentation, and the check of its links."""

import inspect
import io
import pydoc
import re

import numpy as np
import pytest
from PIL import Image

from tools.check_links import find_broken
from tools.website import (
    EXAMPLES,
    find_examples,
    load_example,
    mark_options,
    to_restructured_text,
    write_gallery,
)

GOOD = """<a href="b.html#there">b</a> <a href="#here">here</a> <p id="here"></p>
<a href="https://example.org/missing">elsewhere</a> <img src="picture.png">"""


@pytest.fixture
def site(tmp_path):
    """Two pages and a picture, without broken links."""
    (tmp_path / "a.html").write_text(GOOD)
    (tmp_path / "b.html").write_text('<h2 id="there"></h2>')
    (tmp_path / "picture.png").write_bytes(b"")
    return tmp_path


def test_links_to_existing_places_and_other_sites_are_fine(site):
    assert list(find_broken(site)) == []


@pytest.mark.parametrize(
    "link", ["c.html", "b.html#elsewhere", "#elsewhere", "../outside.html", "other/picture.png"]
)
def test_a_broken_link_is_found_with_its_page(site, link):
    (site.parent / "outside.html").write_text("")
    (site / "d.html").write_text(f'<a href="{link}">broken</a>')
    assert [(str(page), found) for page, found in find_broken(site)] == [("d.html", link)]


def test_each_example_of_the_gallery_says_what_it_shows():
    entries = [load_example(path) for path in find_examples()]
    assert len(entries) >= 7
    assert entries[0].name == "maps"
    assert all(entry.title and entry.description for entry in entries)


@pytest.mark.slow
def test_the_gallery_has_a_picture_for_each_theme_and_the_code(tmp_path):
    examples = tmp_path / "examples"
    examples.mkdir()
    code = (EXAMPLES / "own_weights.py").read_text(encoding="utf-8")
    (examples / "own_weights.py").write_text(code, encoding="utf-8")
    write_gallery(tmp_path / "gallery", examples)
    brightness = {}
    for scheme in ("light", "dark"):
        with Image.open(tmp_path / "gallery" / f"own_weights-{scheme}.png") as image:
            brightness[scheme] = np.asarray(image.convert("L")).mean()
    assert brightness["light"] > 180
    assert brightness["dark"] < 80
    page = (tmp_path / "gallery" / "own_weights.md").read_text(encoding="utf-8")
    assert page.startswith("# Attention weights that you have\n")
    assert code.strip() in page
    index = (tmp_path / "gallery" / "index.md").read_text(encoding="utf-8")
    assert "(own_weights.md)" in index


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maps", "graph", "two_sentences", "edges", "decoder", "curves"])
def test_the_examples_of_the_gallery_draw(name):
    assert load_example(EXAMPLES / f"{name}.py").module.draw(dark=True) is not None


def test_options_are_marked_in_inline_code_and_nowhere_else():
    text = '<code><span class="pre">attnflow</span> <span class="pre">--model</span></code> -'
    context = {"body": text}
    mark_options(None, "page", "page.html", context, None)
    assert context["body"] == text.replace('pre">--', 'pre option">--')


def documented():
    """What the API page documents, with the members of classes, by name."""
    page = (EXAMPLES.parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    for name in re.findall(r"^\.\. auto(?:class|function):: (\S+)", page, re.MULTILINE):
        thing = pydoc.locate(name)
        yield name, thing
        for member, value in vars(thing).items() if isinstance(thing, type) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                yield f"{name}.{member}", value


def test_sphinx_reads_the_docstrings_of_the_api_page_without_warnings():
    core = pytest.importorskip("docutils.core")
    docstrings = {name: inspect.getdoc(thing) or "" for name, thing in documented()}
    assert len(docstrings) > 100
    for name, text in docstrings.items():
        warnings = io.StringIO()
        source = "\n".join(to_restructured_text(text.splitlines()))
        core.publish_doctree(source, settings_overrides={"warning_stream": warnings})
        assert not warnings.getvalue(), f"{name}: {warnings.getvalue()}"
