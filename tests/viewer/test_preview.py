"""The picture for where nothing runs: its cells, its colors and its words."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np

from attnflow.explanation import ImageGrid
from attnflow.viewer.preview import draw_picture, visible
from tests.viewer.examples import HOSTILE, classified, hostile, made_up

SVG = "{http://www.w3.org/2000/svg}"


def cells_of(svg):
    """Text and color of each cell."""
    root = ElementTree.fromstring(svg)
    cells = [one for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    return root, [(cell.findtext(f"{SVG}title"), cell.get("fill")) for cell in cells]


def test_every_method_layer_and_token_has_a_cell():
    explanation = classified()
    root, cells = cells_of(draw_picture(explanation))
    assert len(cells) == 3 * 2 * 6
    rollout = explanation.rollout().to_numpy()[:, 0]
    for layer in (1, 2):
        for token, score in zip(explanation.tokens, rollout[layer - 1], strict=True):
            assert any(text == f"{token}, layer {layer}: {score:.3g}" for text, _ in cells[12:24])
    assert explanation.prediction is not None
    assert explanation.prediction.label in "".join(root.itertext())


def test_the_largest_of_each_method_is_the_darkest():
    explanation = classified()
    _, cells = cells_of(draw_picture(explanation))
    for i, name in enumerate(("raw", "rollout", "flow")):
        scores = getattr(explanation, name)().to_numpy()[:, 0].ravel()
        colors = [color for _, color in cells[12 * i : 12 * (i + 1)]]
        assert colors[int(scores.argmax())] == "#08306b"
        darkness = [-int(color[1:3], 16) for color in colors]
        order = np.argsort(scores, kind="stable")
        assert np.all(np.diff(np.asarray(darkness)[order]) >= 0)


def test_of_long_texts_the_tokens_that_matter_are_shown():
    explanation = made_up(1, 60)
    root, cells = cells_of(draw_picture(explanation))
    assert len(cells) == 3 * 40
    assert "the 40 of 60 tokens with the highest rollout" in "".join(root.itertext())
    best = int(explanation.rollout(layers=-1).to_numpy().argmax())
    assert any(text.startswith(f"{explanation.tokens[best]}, ") for text, _ in cells)


def test_hostile_tokens_are_text():
    svg = draw_picture(hostile())
    root, _ = cells_of(svg)  # which is XML, and so has no null bytes and no half characters
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{name}" for name in ("svg", "rect", "text", "title")
    }
    assert "\u202e" not in svg
    shown = [text.text for text in root.iter(f"{SVG}text")]
    for token in HOSTILE:
        label = visible(token)
        assert (label if len(label) <= 14 else f"{label[:13]}…") in shown
    assert not re.search(r"<script|onerror=[^&<]*>", svg)


def test_an_image_is_shaded_by_its_patches():
    image = ImageGrid(b"png", rows=1, columns=4, first=1, width=40, height=10)
    explanation = replace(classified(), image=image)
    root, _ = cells_of(draw_picture(explanation))
    patches = [r for r in root.iter(f"{SVG}rect") if r.get("fill-opacity") is not None]
    scores = explanation.rollout(layers=-1).to_numpy()[0, 0, 1:5]
    shades = [float(patch.get("fill-opacity") or 1) for patch in patches]
    np.testing.assert_allclose(shades, 0.8 * (1 - scores / scores.max()), atol=1e-3)
