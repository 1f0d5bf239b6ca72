"""A picture of an explanation in SVG, for where nothing can run: exported notebooks and the like.

Layers x tokens for the explained position, as in the paper's figures 2 and 3, or the patches of an
image. It needs no drawing library, and is readable on light and on dark pages.

Text from strangers made visible: what hides or reorders text becomes a symbol.

The front end does the same in `viewer/src/visible.ts`.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.explanation import Explanation, ImageGrid

# Controls, soft hyphen, zero-width and bidi controls, separators of lines, invisible operators,
# surrogates, byte order mark, interlinear marks and tags. Joiners (U+200C, U+200D) stay: Persian
# words and joined emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\ufff9-\ufffc\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""The text with nothing in it that hides, reorders or breaks what is around it.

    >>> visible("a\0b"), visible("x\u202ey"), visible("  "), visible("")
    ('a⟨U+0000⟩b', 'x⟨U+202E⟩y', '␣␣', '∅')
    """
    shown = _HIDDEN.sub(_symbol, text)
    if not shown:
        return "∅"
    return "␣" * min(len(shown), 8) if shown.isspace() else shown


def _symbol(found: re.Match[str]) -> str:
    known = {"\n": "↵", "\t": "⇥"}
    return known.get(found[0], f"⟨U+{ord(found[0]):04X}⟩")


MOST = 40  # tokens; of longer texts those with the highest rollout at the last layer
CELL = 22  # pixels, the width of a token
LEFT, GAP, TOP = 64, 30, 44
WIDEST = 14  # characters of a token
METHODS = (("raw", "raw attention"), ("rollout", "rollout"), ("flow", "flow"))
LIGHT, DARK = np.asarray([247, 251, 255]), np.asarray([8, 48, 107])  # color-blind safe: one hue
STYLE = 'font-family="system-ui, sans-serif" font-size="12" fill="#1b1f24"'


def draw_picture(explanation: Explanation) -> str:
    """An `svg` element that shows the explained position at every layer by each method."""
    if explanation.image is not None:
        return _draw_image(explanation, explanation.image)
    n_layers = explanation.graph.n_layers
    rollout = to_numpy(explanation.rollout(layers=-1).scores)[0, 0]
    columns = np.sort(np.argsort(-rollout, kind="stable")[:MOST])
    height = max(4, min(16, 240 // n_layers))
    panel = height * n_layers
    labels = [_cut(explanation.tokens[i]) for i in columns]
    parts = []
    for i, (name, title) in enumerate(METHODS):
        scores = to_numpy(getattr(explanation, name)().scores)[:, 0][:, columns]
        parts.append(_panel(scores, title, labels, TOP + i * (panel + GAP), height))
    foot = TOP + len(METHODS) * (panel + GAP) - GAP
    for i, label in enumerate(labels):
        x, y = LEFT + i * CELL + CELL / 2 + 4, foot + 8
        parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="end" transform="rotate(-60 {x:g} {y:g})" '
            f'unicode-bidi="isolate">{escape(label)}</text>'
        )
    width = max(LEFT + len(labels) * CELL + 24, 420)
    longest = max(len(label) for label in labels)
    return _svg(width, foot + 24 + 7 * min(longest, WIDEST), _heading(explanation), parts)


def embed_picture(explanation: Explanation) -> str:
    """The same as an `img` element: notebooks that are not trusted keep these, but no `svg`."""
    svg = b64encode(draw_picture(explanation).encode("utf-8")).decode("ascii")
    label = escape(f"attnflow: {_heading(explanation)}", quote=True)
    return f'<img alt="{label}" src="data:image/svg+xml;base64,{svg}"/>'


def _panel(
    scores: NDArray[np.floating], title: str, labels: Sequence[str], top: int, height: int
) -> str:
    """One method: scores [layers, tokens], the last layer on top."""
    most = float(scores.max())
    parts = [f'<text x="{LEFT}" y="{top - 6}">{title}, 0 to {most:.3g}</text>']
    n_layers = len(scores)
    for layer, row in enumerate(scores, start=1):
        y = top + (n_layers - layer) * height
        if layer in (1, n_layers):
            parts.append(
                f'<text x="{LEFT - 6}" y="{y + height / 2 + 4:g}" text-anchor="end">'
                f"layer {layer}</text>"
            )
        for i, score in enumerate(row):
            parts.append(
                f'<rect x="{LEFT + i * CELL}" y="{y}" width="{CELL}" height="{height}" '
                f'fill="{_color(float(score) / most if most > 0 else 0)}">'
                f"<title>{escape(labels[i])}, layer {layer}: {score:.3g}</title></rect>"
            )
    return "".join(parts)


def _draw_image(explanation: Explanation, image: ImageGrid) -> str:
    """The picture with its patches shaded by rollout at the last layer."""
    rollout = to_numpy(explanation.rollout(layers=-1).scores)[0, 0]
    patches = rollout[image.first : image.first + image.rows * image.columns]
    grid = patches.reshape(image.rows, image.columns)
    width, height = 400.0, 400.0 * image.height / image.width
    source = f"data:image/png;base64,{b64encode(image.png).decode('ascii')}"
    place = f'x="12" y="{TOP}" width="{width:g}" height="{height:g}"'
    parts = [f'<image href="{source}" {place} preserveAspectRatio="none"/>']
    across, down = width / image.columns, height / image.rows
    most = float(grid.max()) or 1.0
    for (row, column), score in np.ndenumerate(grid):
        parts.append(
            f'<rect x="{12 + column * across:g}" y="{TOP + row * down:g}" width="{across:g}" '
            f'height="{down:g}" fill="#08306b" fill-opacity="{0.8 * (1 - score / most):.3f}">'
            f"<title>row {row + 1}, column {column + 1}: {score:.3g}</title></rect>"
        )
    parts.append(
        f'<text x="12" y="{TOP + height + 18:g}">the lighter a patch, the more of it arrives '
        "(rollout, last layer)</text>"
    )
    return _svg(width + 24, TOP + height + 32, _heading(explanation), parts)


def _heading(explanation: Explanation) -> str:
    """What is explained, and how much of it is shown."""
    token = _cut(explanation.tokens[explanation.position])
    words = f"position {explanation.position} {token}"
    if explanation.prediction is not None:
        target = explanation.prediction.target
        words += f" · {explanation.prediction.kind} {_cut(target.label)} {target.probability:.3f}"
    n = len(explanation.tokens)
    if n > MOST and explanation.image is None:
        words += f" · the {MOST} of {n} tokens with the highest rollout"
    return words


def _svg(width: float, height: float, heading: str, parts: Sequence[str]) -> str:
    label = escape(f"attnflow: {heading}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}" {STYLE}>'
        f'<rect width="{width:g}" height="{height:g}" rx="6" fill="#ffffff"/>'
        f'<text x="12" y="18" font-weight="600">{escape(heading)}</text>{"".join(parts)}</svg>'
    )


def _cut(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 1]}…"


def _color(share: float) -> str:
    """From light to dark as the share goes from 0 to 1."""
    red, green, blue = (LIGHT + (DARK - LIGHT) * min(max(share, 0.0), 1.0)).round().astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"
