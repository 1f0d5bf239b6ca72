"""The static picture: its cells, colors and labels."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np

from attnflow import AttentionGraph, Explanation
from attnflow.explanation import ImageGrid
from attnflow.methods.registry import METHODS
from attnflow.viewer.header import PAGE_METHODS
from attnflow.viewer.preview import draw_picture, visible
from tests.viewer.examples import (
    HOSTILE,
    causal_explanation,
    classifier_explanation,
    hostile_explanation,
    random_explanation,
)
from tests.weights import random_attention

SVG = "{http://www.w3.org/2000/svg}"


def read_cells(svg):
    """The parsed picture, and the title and color of each cell."""
    root = ElementTree.fromstring(svg)
    cells = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    return root, [(cell.findtext(f"{SVG}title"), cell.get("fill")) for cell in cells]


def test_every_method_layer_and_token_has_a_cell():
    explanation = classifier_explanation()
    root, cells = read_cells(draw_picture(explanation))
    assert len(cells) == 3 * 2 * 6
    rollout = explanation.rollout().to_numpy()[:, 0]
    for layer in (1, 2):
        for token, score in zip(explanation.tokens, rollout[layer - 1], strict=True):
            assert any(text == f"{token}, layer {layer}: {score:.3g}" for text, _ in cells[12:24])
    text = "".join(root.itertext())
    assert explanation.prediction is not None
    assert explanation.prediction.label in text
    assert all(METHODS[name].title in text for name in PAGE_METHODS)


def test_the_highest_score_of_each_method_is_the_darkest():
    explanation = classifier_explanation()
    _, cells = read_cells(draw_picture(explanation))
    for i, name in enumerate(PAGE_METHODS):
        scores = explanation.attribute(name).to_numpy()[:, 0].ravel()
        colors = [color for _, color in cells[12 * i : 12 * (i + 1)]]
        assert colors[int(scores.argmax())] == "#08306b"
        darkness = [-int(color[1:3], 16) for color in colors]
        order = np.argsort(scores, kind="stable")
        assert np.all(np.diff(np.asarray(darkness)[order]) >= 0)


def test_the_picture_names_the_model_its_settings_and_notes():
    explanation = causal_explanation(6, 8)
    root, _ = read_cells(draw_picture(explanation))
    text = " ".join("".join(root.itertext()).split())
    assert "tiny · edges: attention · residual weight 0.5" in text
    assert "attention sink" in text


def test_flat_flows_have_contrast():
    graph = AttentionGraph.from_weights(random_attention(8, 6, 6))
    explanation = Explanation.from_graph(graph, position=2)
    root, cells = read_cells(draw_picture(explanation))
    flows = explanation.flow().to_numpy()[-1, 0]
    assert flows.min() > 0.4 * flows.max()
    colors = [color for _, color in cells[-6:]]  # the last layer of flow
    assert colors[int(flows.argmax())] == "#08306b"
    lightest = colors[int(flows.argmin())]
    assert int(lightest[1:3], 16) > 0xC0
    assert "each layer from lowest to highest" in "".join(root.itertext())


def test_of_long_texts_the_tokens_with_the_highest_rollout_are_shown():
    explanation = random_explanation(1, 60)
    root, cells = read_cells(draw_picture(explanation))
    assert len(cells) == 3 * 40
    assert "40 of 60 tokens" in "".join(root.itertext())
    best = int(explanation.rollout(layers=-1).to_numpy().argmax())
    assert any(text.startswith(f"{explanation.tokens[best]}, ") for text, _ in cells)


def test_hostile_tokens_are_text():
    svg = draw_picture(hostile_explanation())
    root, _ = read_cells(svg)  # valid XML, so without null characters and lone surrogates
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{name}" for name in ("svg", "rect", "text", "title")
    }
    assert "\u202e" not in svg
    shown = [text.text for text in root.iter(f"{SVG}text")]
    for token in HOSTILE:
        label = visible(token)
        assert (label if len(label) <= 14 else f"{label[:13]}…") in shown
    assert not re.search(r"<script|onerror=[^&<]*>", svg)


def test_the_patches_of_an_image_are_shaded():
    image = ImageGrid(b"png", rows=1, columns=4, first=1, width=40, height=10)
    explanation = replace(classifier_explanation(), image=image)
    root, _ = read_cells(draw_picture(explanation))
    patches = [r for r in root.iter(f"{SVG}rect") if r.get("fill-opacity") is not None]
    scores = explanation.rollout(layers=-1).to_numpy()[0, 0, 1:5]
    shades = [float(patch.get("fill-opacity") or 1) for patch in patches]
    np.testing.assert_allclose(shades, 0.8 * (1 - scores / scores.max()), atol=1e-3)
