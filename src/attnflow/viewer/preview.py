"""A static SVG picture of an explanation, for places where no script runs, and visible text.

The picture shows layers by tokens for the explained position, as figures 2 and 3 of the paper do,
or the patches of an image. It needs no drawing library, and is readable on light and dark pages.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from textwrap import wrap

import numpy as np
from numpy.typing import NDArray

from attnflow.explanation import Explanation, ImageGrid
from attnflow.methods.registry import METHODS
from attnflow.notes import explanation_notes
from attnflow.presentation import (
    color_range,
    color_share,
    describe_settings,
    row_ranges,
    title_with_edges,
)
from attnflow.token_text import readable_tokens
from attnflow.viewer.header import PAGE_METHODS, shorten, stored_layers

MAX_TOKENS = 40  # of longer texts, those with the highest rollout at the last layer are shown
MAX_LABEL = 14  # characters of a token
MAX_ANSWER = 50  # characters of an answer
CELL = 22  # pixels, the width of a token
LEFT, GAP, TOP = 64, 30, 62  # pixels
NARROWEST = 560  # pixels: room for headings and notes
LINE = 17  # pixels, the height of a line of text
CHARACTER = 6.6  # pixels, the width of a character on average
IMAGE_WIDTH = 400.0  # pixels
LIGHT, DARK = np.asarray([247, 251, 255]), np.asarray([8, 48, 107])  # one hue: color-blind safe
STYLE = 'font-family="system-ui, sans-serif" font-size="12" fill="#1b1f24"'

# Controls, soft hyphen, zero-width and bidirectional controls, line separators, invisible
# operators, surrogates, byte order mark, interlinear marks and tags. Not the joiners U+200C and
# U+200D, which Persian words and joined emoji need.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\ufff9-\ufffc\ud800-\udfff\U000e0000-\U000e007f]"
)


def draw_picture(explanation: Explanation) -> str:
    """An `svg` element with the scores of the explained position, by method, layer and token."""
    if explanation.image is not None:
        return _draw_image(explanation, explanation.image)
    n_layers = explanation.graph.n_layers
    rollout = explanation.rollout(layers=-1).to_numpy()[0, 0]
    columns = np.sort(np.argsort(-rollout, kind="stable")[:MAX_TOKENS])
    names = readable_tokens(explanation.tokens, text=explanation.text)
    labels = [_label(names[i]) for i in columns]
    row_height = max(4, min(16, 240 // n_layers))
    panel_height = row_height * n_layers
    parts = []
    top = TOP
    methods = [m for m in PAGE_METHODS if len(stored_layers(explanation, m)) == n_layers]
    for name in methods:
        scores = explanation.attribute(name).to_numpy()[:, 0][:, columns]
        title = title_with_edges(name, explanation.graph.settings)
        parts.append(_draw_panel(scores, title, labels, top, row_height))
        top += panel_height + GAP
    bottom = top - GAP
    for i, label in enumerate(labels):
        x, y = LEFT + i * CELL + CELL / 2 + 4, bottom + 8
        parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="end" transform="rotate(-60 {x:g} {y:g})" '
            f'unicode-bidi="isolate">{escape(label)}</text>'
        )
    width = max(LEFT + len(labels) * CELL + 24, NARROWEST)
    end = bottom + 24 + 7 * max(len(label) for label in labels)
    lines = [line for name in methods for line in _notes(explanation, name, width)]
    for line in lines:
        parts.append(f'<text x="12" y="{end + 4:g}" fill="#57606a">{escape(line)}</text>')
        end += LINE
    return _wrap_svg(width, end, explanation, parts)


def _notes(explanation: Explanation, method: str, width: float) -> list[str]:
    """The notes on the last layer of a method, as lines of this width in pixels."""
    notes = explanation_notes(explanation, explanation.attribute(method))
    if not notes:
        return []
    title = title_with_edges(method, explanation.graph.settings)
    return wrap(visible(f"{title}: {' '.join(notes)}"), int((width - 24) / CHARACTER))


def embed_picture(explanation: Explanation) -> str:
    """The picture as an `img` element: untrusted notebooks keep these, but no `svg`."""
    svg = b64encode(draw_picture(explanation).encode("utf-8")).decode("ascii")
    label = escape(f"attnflow: {_heading(explanation)}", quote=True)
    return f'<img alt="{label}" src="data:image/svg+xml;base64,{svg}"/>'


def visible(text: str) -> str:
    r"""Replace characters that hide, reorder or break text by symbols.

    The front end does the same, in `viewer/src/data/text.ts`.

    >>> visible("a\0b"), visible("x\u202ey"), visible("  "), visible("")
    ('a⟨U+0000⟩b', 'x⟨U+202E⟩y', '␣␣', '∅')
    """
    shown = _HIDDEN.sub(_symbol, text)
    if not shown:
        return "∅"
    return "␣" * min(len(shown), 8) if shown.isspace() else shown


def _symbol(match: re.Match[str]) -> str:
    known = {"\n": "↵", "\t": "⇥"}
    return known.get(match[0], f"⟨U+{ord(match[0]):04X}⟩")


def _draw_panel(
    scores: NDArray[np.floating], title: str, labels: Sequence[str], top: int, row_height: int
) -> str:
    """The scores of a method, [layers, tokens], with the last layer on top."""
    ranges = row_ranges(scores)
    low, high = color_range(scores)
    scale = f"{low:.3g} to {high:.3g}" if ranges is None else "each layer from lowest to highest"
    parts = [f'<text x="{LEFT}" y="{top - 6}">{escape(title)}, {scale}</text>']
    ends = ranges or [(low, high)] * len(scores)
    n_layers = len(scores)
    for layer, row in enumerate(scores, start=1):
        y = top + (n_layers - layer) * row_height
        if layer in (1, n_layers):
            parts.append(
                f'<text x="{LEFT - 6}" y="{y + row_height / 2 + 4:g}" text-anchor="end">'
                f"layer {layer}</text>"
            )
        for i, score in enumerate(row):
            color = _color(float(color_share(score, *ends[layer - 1])))
            parts.append(
                f'<rect x="{LEFT + i * CELL}" y="{y}" width="{CELL}" height="{row_height}" '
                f'fill="{color}">'
                f"<title>{escape(labels[i])}, layer {layer}: {score:.3g}</title></rect>"
            )
    return "".join(parts)


def _draw_image(explanation: Explanation, image: ImageGrid) -> str:
    """The image, with its patches shaded by rollout at the last layer."""
    rollout = explanation.rollout(layers=-1).to_numpy()[0, 0]
    patches = rollout[image.first : image.first + image.rows * image.columns]
    grid = patches.reshape(image.rows, image.columns)
    width, height = IMAGE_WIDTH, IMAGE_WIDTH * image.height / image.width
    source = f"data:image/png;base64,{b64encode(image.png).decode('ascii')}"
    place = f'x="12" y="{TOP}" width="{width:g}" height="{height:g}"'
    parts = [f'<image href="{source}" {place} preserveAspectRatio="none"/>']
    patch_width, patch_height = width / image.columns, height / image.rows
    low, high = color_range(grid)
    for (row, column), score in np.ndenumerate(grid):
        veil = 0.8 * (1 - float(color_share(score, low, high)))
        parts.append(
            f'<rect x="{12 + column * patch_width:g}" y="{TOP + row * patch_height:g}" '
            f'width="{patch_width:g}" height="{patch_height:g}" '
            f'fill="#08306b" fill-opacity="{veil:.3f}">'
            f"<title>row {row + 1}, column {column + 1}: {score:.3g}</title></rect>"
        )
    parts.append(
        f'<text x="12" y="{TOP + height + 18:g}">Lighter patches have higher scores '
        f"({escape(METHODS['rollout'].title)}, last layer, {low:.3g} to {high:.3g})</text>"
    )
    return _wrap_svg(max(width + 24, NARROWEST), TOP + height + 32, explanation, parts)


def _heading(explanation: Explanation) -> str:
    """The explained position, the prediction, and which tokens are shown."""
    names = readable_tokens(explanation.tokens, text=explanation.text)
    token = _label(names[explanation.position])
    heading = f"position {explanation.position} {token}"
    if explanation.answer is not None:
        heading = f"answer {shorten(visible(explanation.answer.text.strip()), MAX_ANSWER)}"
    elif explanation.prediction is not None:
        kind, target = explanation.prediction.kind, explanation.prediction.target
        heading += (
            f" · {kind} {_label(readable_tokens([target.label])[0])} {target.probability:.3f}"
        )
    n = len(explanation.tokens)
    if n > MAX_TOKENS and explanation.image is None:
        heading += f" · the {MAX_TOKENS} of {n} tokens with the highest rollout"
    return heading


def _wrap_svg(width: float, height: float, explanation: Explanation, parts: Sequence[str]) -> str:
    heading = _heading(explanation)
    settings = visible(" · ".join(describe_settings(explanation.graph.settings)))
    if explanation.model:
        settings = f"{shorten(visible(explanation.model), 30)} · {settings}"
    label = escape(f"attnflow: {heading}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}" {STYLE}>'
        f'<rect width="{width:g}" height="{height:g}" rx="6" fill="#ffffff"/>'
        f'<text x="12" y="18" font-weight="600">{escape(heading)}</text>'
        f'<text x="12" y="36" fill="#57606a">{escape(settings)}</text>{"".join(parts)}</svg>'
    )


def _label(text: str) -> str:
    """A token as it is shown: visible, and not too long."""
    return shorten(visible(text), MAX_LABEL)


def _color(share: float) -> str:
    """The color of a score, from light to dark. share: of the highest score, from 0 to 1."""
    red, green, blue = (LIGHT + (DARK - LIGHT) * min(max(share, 0.0), 1.0)).round().astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"
