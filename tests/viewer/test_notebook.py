"""The widget: its messages to the front end, and the static picture beside it."""

import json
import sys
from base64 import b64decode
from xml.etree import ElementTree

import numpy as np
import pytest

from attnflow import MissingDependencyError, flow, show
from attnflow.viewer import notebook
from attnflow.viewer.notebook import answer
from attnflow.viewer.payload import make_payload
from attnflow.viewer.preview import draw_picture
from tests.refusal import refusal
from tests.viewer.examples import (
    HOSTILE,
    classifier_explanation,
    hostile_explanation,
    random_explanation,
)


def test_arrays_are_sent_on_request():
    payload = make_payload([classifier_explanation()])
    content, buffers = answer(payload, {"kind": "load", "key": "0/attention/2", "id": 7})
    assert content == {"kind": "chunk", "id": 7, "key": "0/attention/2"}
    assert buffers == [payload.chunk("0/attention/2")]


def test_flow_is_sent_on_request():
    payload = make_payload([classifier_explanation()])
    message = {"kind": "flow", "example": 0, "position": 3, "layer": 2, "id": "a"}
    content, [row] = answer(payload, message)
    assert content == {"kind": "flow", "id": "a"}
    expected = flow(classifier_explanation().graph, layers=2, positions=3).to_numpy()[0, 0]
    np.testing.assert_array_equal(np.frombuffer(row, "<f4"), expected.astype("<f4"))


def test_scores_of_registered_methods_are_sent_on_request(toy_method):
    explanation = classifier_explanation()
    message = {"kind": "load", "key": "0/scores/toy/1", "id": 1}
    content, [buffer] = answer(make_payload([explanation]), message)
    assert content["kind"] == "chunk"
    expected = toy_method.attribute(explanation.graph).to_numpy()[0]
    np.testing.assert_array_equal(
        np.frombuffer(buffer, "<f2").reshape(6, 6), expected.astype("<f2")
    )


@pytest.mark.parametrize(
    ("message", "fragment"),
    [
        ({"kind": "load", "key": "0/flow/9", "id": 1}, "'0/flow/9'"),
        ({"kind": "load", "id": 1}, "'None'"),
        ({"kind": "flow", "example": 0, "position": "x", "layer": 1, "id": 1}, "'x'"),
        ({"kind": "flow", "example": 5, "position": 0, "layer": 1, "id": 1}, "example 5"),
        ({"kind": "dance", "id": 1}, "'dance'"),
    ],
)
def test_invalid_messages_are_answered_by_an_error(message, fragment):
    content, buffers = answer(make_payload([classifier_explanation()]), message)
    assert content["kind"] == "error"
    assert content["id"] == 1
    assert fragment in content["message"]
    assert buffers == []


def test_a_message_that_is_not_an_object_is_answered_by_an_error():
    assert answer(make_payload([classifier_explanation()]), None)[0]["kind"] == "error"


def test_a_widget_holds_the_header_and_answers():
    widget = classifier_explanation().show(title="a title")
    assert json.loads(widget.header)["title"] == "a title"
    sent = []
    widget.send = lambda content, buffers: sent.append((content, buffers))
    # Messages from a browser arrive through the widget's own dispatch.
    widget._handle_custom_msg({"kind": "load", "key": "0/heads/1", "id": 1}, [])
    [(content, buffers)] = sent
    assert content == {"kind": "chunk", "id": 1, "key": "0/heads/1"}
    assert len(buffers[0]) == 2 * 6 * 6 * 2


def test_two_widgets_are_independent():
    first, second = show(classifier_explanation()), show(random_explanation(1, 3))
    assert first.model_id != second.model_id
    assert len(json.loads(first.header)["examples"][0]["tokens"]) == 6
    assert len(json.loads(second.header)["examples"][0]["tokens"]) == 3


@pytest.mark.usefixtures("toy_method")
def test_small_arrays_are_sent_at_the_start_and_large_ones_are_not(monkeypatch):
    widget = show(classifier_explanation())
    methods = ("raw", "rollout", "flow", "toy")
    kinds = ("attention", "flow", "scores/toy", *(f"normalized/{name}" for name in methods))
    arrays = {f"0/{kind}/{layer}" for kind in kinds for layer in (1, 2)}
    assert set(widget.chunks) == arrays | {"0/notes"}
    monkeypatch.setattr(notebook, "EAGER_BYTES", 6 * 36 * 2 - 1)
    assert show(classifier_explanation()).chunks == {}


def read_pictures(html):
    """The pictures in a piece of HTML, which must hold nothing else."""
    pictures = []
    for element in ElementTree.fromstring(f"<main>{html}</main>"):
        [image] = element
        assert (element.tag, image.tag, set(image.attrib)) == ("div", "img", {"alt", "src"})
        kind, data = image.attrib["src"].split(",")
        assert kind == "data:image/svg+xml;base64"
        pictures.append(b64decode(data).decode("utf-8"))
    return pictures


def test_a_picture_is_beside_the_widget():
    data, _ = show(classifier_explanation(), random_explanation(1, 3))._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    # As img elements: untrusted notebooks remove inline SVG.
    assert read_pictures(data["text/html"]) == [
        draw_picture(classifier_explanation()),
        draw_picture(random_explanation(1, 3)),
    ]
    assert data["text/plain"].splitlines()[0] == repr(classifier_explanation())


def record_outputs(widget, monkeypatch):
    """The outputs that IPython displays for a widget."""
    outputs: list[dict[str, object]] = []

    def record(data, *, raw):
        assert raw
        outputs.append(data)

    monkeypatch.setattr("IPython.display.display", record)
    widget._ipython_display_()
    return outputs


def test_the_picture_is_a_separate_output(monkeypatch):
    # For a widget that is gone, JupyterLab shows an error instead of the other formats of the same
    # output; an exported notebook would show nothing at all.
    widget = show(classifier_explanation(), random_explanation(1, 3))
    other = show(classifier_explanation())
    live, picture = record_outputs(widget, monkeypatch)
    assert set(live) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert set(picture) == {"text/html"}
    [box] = ElementTree.fromstring(f"<main>{picture['text/html']}</main>")
    assert box.attrib == {"class": widget.picture}
    assert len(box.findall("div/img")) == 2
    assert widget.picture != other.picture


def test_front_ends_without_widgets_show_the_picture(monkeypatch):
    widget = show(classifier_explanation())
    monkeypatch.setattr("anywidget.AnyWidget._repr_mimebundle_", lambda *_, **__: None)
    [picture] = record_outputs(widget, monkeypatch)
    assert set(picture) == {"text/html"}


def test_hostile_tokens_are_text_in_widget_and_picture():
    widget = show(hostile_explanation())
    assert widget.header.isascii()
    assert json.loads(widget.header)["examples"][0]["tokens"] == list(HOSTILE)
    html = widget._repr_mimebundle_()[0]["text/html"]
    assert read_pictures(html) == [draw_picture(hostile_explanation())]
    assert "\u202e" not in html


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    notebook._widget_class.cache_clear()
    with refusal(MissingDependencyError, "anywidget", "pip install 'attnflow[notebook]'"):
        classifier_explanation().show()
