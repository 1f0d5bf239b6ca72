"""The widget: what it says to its front end, and the picture beside it."""

import json
import sys
from base64 import b64decode
from xml.etree import ElementTree

import numpy as np

from attnflow import MissingDependencyError, flow, show
from attnflow.viewer import notebook
from attnflow.viewer.notebook import answer
from attnflow.viewer.payload import make_payload
from attnflow.viewer.preview import draw_picture
from tests.refusal import refusal
from tests.viewer.examples import HOSTILE, classified, hostile, made_up


def test_arrays_are_sent_when_they_are_asked_for():
    payload = make_payload([classified()])
    content, buffers = answer(payload, {"kind": "load", "key": "0/attention/2", "id": 7})
    assert content == {"kind": "chunk", "id": 7, "key": "0/attention/2"}
    assert buffers == [payload.chunk("0/attention/2")]
    asked = {"kind": "flow", "example": 0, "position": 3, "layer": 2, "id": "a"}
    content, [row] = answer(payload, asked)
    assert content == {"kind": "flow", "id": "a"}
    expected = flow(classified().graph, layers=2, positions=3).to_numpy()[0, 0]
    np.testing.assert_array_equal(np.frombuffer(row, "<f4"), expected.astype("<f4"))


def test_what_cannot_be_answered_is_an_error_with_a_sentence():
    payload = make_payload([classified()])
    for message, wording in [
        ({"kind": "load", "key": "0/flow/9", "id": 1}, "there is no array '0/flow/9'"),
        ({"kind": "load", "id": 1}, "there is no array 'None'"),
        ({"kind": "flow", "example": 0, "position": "x", "layer": 1, "id": 1}, "whole numbers"),
        ({"kind": "flow", "example": 5, "position": 0, "layer": 1, "id": 1}, "no example 5"),
        ({"kind": "dance", "id": 1}, "a message of the kind 'dance'"),
    ]:
        content, buffers = answer(payload, message)
        assert content["kind"] == "error"
        assert content["id"] == 1
        assert wording in content["message"]
        assert buffers == []
    assert answer(payload, None)[0]["kind"] == "error"


def test_a_widget_holds_the_header_and_answers():
    explanation = classified()
    widget = explanation.show(title="a title")
    assert json.loads(widget.header)["title"] == "a title"
    sent = []
    widget.send = lambda content, buffers: sent.append((content, buffers))
    # What arrives from a browser goes through the widget's own dispatch.
    widget._handle_custom_msg({"kind": "load", "key": "0/heads/1", "id": 1}, [])
    [(content, buffers)] = sent
    assert content == {"kind": "chunk", "id": 1, "key": "0/heads/1"}
    assert len(buffers[0]) == 2 * 6 * 6 * 2


def test_two_widgets_do_not_mix():
    one, other = show(classified()), show(made_up(1, 3))
    assert one.model_id != other.model_id
    assert len(json.loads(one.header)["examples"][0]["tokens"]) == 6
    assert len(json.loads(other.header)["examples"][0]["tokens"]) == 3


def test_small_arrays_go_along_and_large_ones_do_not(monkeypatch):
    widget = show(classified())
    assert set(widget.chunks) == {f"0/{name}/{i}" for name in ("attention", "flow") for i in (1, 2)}
    monkeypatch.setattr(notebook, "ALONG", 4 * 36 * 2 - 1)
    assert show(classified()).chunks == {}


def pictures_in(html):
    """The pictures of a page that has nothing but them."""
    found = []
    for element in ElementTree.fromstring(f"<main>{html}</main>"):
        [image] = element
        assert (element.tag, image.tag, set(image.attrib)) == ("div", "img", {"alt", "src"})
        kind, data = image.attrib["src"].split(",")
        assert kind == "data:image/svg+xml;base64"
        found.append(b64decode(data).decode("utf-8"))
    return found


def test_a_picture_is_beside_the_widget():
    data, _ = show(classified(), made_up(1, 3))._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    # As images: notebooks that are not trusted leave out what is drawn in the page itself.
    assert pictures_in(data["text/html"]) == [
        draw_picture(classified()),
        draw_picture(made_up(1, 3)),
    ]
    assert data["text/plain"].splitlines()[0] == repr(classified())


def displayed(widget, monkeypatch):
    """What IPython is given to show, output by output."""
    outputs: list[dict[str, object]] = []

    def record(data, *, raw):
        assert raw
        outputs.append(data)

    monkeypatch.setattr("IPython.display.display", record)
    widget._ipython_display_()
    return outputs


def test_notebooks_keep_the_picture_in_an_output_of_its_own(monkeypatch):
    # JupyterLab shows an error in place of a widget that it does not know any more, and never what
    # is beside it; exported with its widgets and offline there would be nothing at all.
    widget, other = show(classified(), made_up(1, 3)), show(classified())
    live, picture = displayed(widget, monkeypatch)
    assert set(live) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert set(picture) == {"text/html"}
    [box] = ElementTree.fromstring(f"<main>{picture['text/html']}</main>")
    assert box.attrib == {"class": widget.picture}
    assert len(box.findall("div/img")) == 2
    assert widget.picture != other.picture


def test_without_a_front_end_for_widgets_the_picture_is_shown(monkeypatch):
    widget = show(classified())
    monkeypatch.setattr("anywidget.AnyWidget._repr_mimebundle_", lambda *_, **__: None)
    [picture] = displayed(widget, monkeypatch)
    assert set(picture) == {"text/html"}


def test_hostile_tokens_are_text_in_both():
    widget = show(hostile())
    assert widget.header.isascii()
    assert json.loads(widget.header)["examples"][0]["tokens"] == list(HOSTILE)
    html = widget._repr_mimebundle_()[0]["text/html"]
    assert pictures_in(html) == [draw_picture(hostile())]
    assert "\u202e" not in html


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    notebook._widget_class.cache_clear()
    with refusal(
        MissingDependencyError, "anywidget is not installed", "pip install 'attnflow[notebook]'"
    ):
        classified().show()
