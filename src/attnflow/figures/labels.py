"""Labels and legends: the text of tokens, its size, and how it fits.

Labels are never shortened. If they do not fit they are rotated, then made smaller, and finally the
figure is made wider.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import cos, radians, sin
from typing import Any

import numpy as np

from attnflow.figures.canvas import Sheet, color_map, font_family
from attnflow.figures.display import import_matplotlib

JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
POINT = 1 / 72  # inches
LINE = 1.2  # the height of a line of text, relative to its font size
SMALLEST = 4.0  # points: the smallest size of a label
OVERHANG = 0.5  # inches that a slanted label may extend to the left


def label(token: str) -> str:
    r"""The label of a token, given as readable text, in figures.

    Invisible and direction-changing characters are escaped, spaces alone are shown, and a mark
    without its letter is on a dotted circle.

    >>> label("key"), label("##s"), label(" "), label("a\x00b\u202e"), label("\u0301")
    ('key', '##s', '\u2423', 'a\\x00b\\u202e', '\u25cc\u0301')
    """
    if token and unicodedata.category(token[0]).startswith("M"):
        token = "\N{DOTTED CIRCLE}" + token
    joins = any(unicodedata.category(letter)[0] in "LS" for letter in token)
    written = "".join(c if joins and c in JOINERS else _visible(c) for c in token)
    return written if written.strip() else "\N{OPEN BOX}" * max(len(written), 1)


def _visible(letter: str) -> str:
    if letter == "\n":
        return "\\n"
    hidden = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    if not hidden:
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@cache
def _rulers() -> list[tuple[int, Any]]:
    """Renderers to measure text with. Each rounds glyphs to its pixels, so sizes differ."""
    agg = import_matplotlib("matplotlib.backends.backend_agg")
    return [(dpi, agg.RendererAgg(8, 8, dpi)) for dpi in (100, 200, 300)]


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """The width in inches of a line of text at a size in points, for every output format."""
    import warnings

    manager = import_matplotlib("matplotlib.font_manager")
    font = manager.FontProperties(family=font_family(), size=size, weight=weight)
    with warnings.catch_warnings():  # about missing glyphs, which are drawn as boxes
        warnings.simplefilter("ignore", UserWarning)
        widths = [
            ruler.get_text_width_height_descent(text, font, ismath=False)[0] / dpi
            for dpi, ruler in _rulers()
        ]
    return float(max(widths))


def widest(texts: Iterable[str], size: float) -> float:
    """The width in inches of the widest of several texts."""
    return max((text_width(text, size) for text in texts), default=0.0)


def line_height(size: float) -> float:
    """The height in inches that a line of text needs at a size in points."""
    return LINE * size * POINT


def wrap(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """Split a text into lines of at most this width; a wider word gets a line of its own."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, weight) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines or [""]


@dataclass(frozen=True)
class Slanted:
    """Labels below the columns of a map: their size in points, angle in degrees, and extent.

    height: inches below the map. left: inches by which the first labels extend to the left of it.
    cell: the width of a column that the labels need, in inches.
    """

    size: float
    angle: int
    height: float
    left: float
    cell: float


def fit_below(texts: Sequence[str], cell: float, size: float) -> Slanted:
    """Fit labels under columns `cell` inches wide: horizontal, slanted or vertical.

    The size is the largest, up to `size`, at which lines do not touch. If even the smallest is too
    large, `cell` of the result is the width that columns need.
    """
    longest = widest(texts, size)
    if longest + 0.6 * size * POINT <= cell:
        return Slanted(size, 0, line_height(size), 0.0, cell)
    slope = radians(45)
    if line_height(size) <= cell * sin(slope):
        left = max(
            text_width(text, size) * cos(slope) - (i + 0.5) * cell for i, text in enumerate(texts)
        )
        height = longest * sin(slope) + line_height(size) * cos(slope)
        if left <= OVERHANG:
            return Slanted(size, 45, height, max(left, 0.0), cell)
    smaller = max(min(size, cell / (LINE * POINT)), SMALLEST)
    cell = max(cell, line_height(smaller))
    return Slanted(smaller, 90, widest(texts, smaller), 0.0, cell)


BAR = (0.9, 0.07)  # inches
SIZE = 6.5


def scale_text(top: float) -> str:
    """The number at the end of a scale, as text.

    >>> scale_text(0.4567), scale_text(0.00123)
    ('0.46', '0.0012')
    """
    return f"{top:.2g}"


def legend_height() -> float:
    """The height of the legend in inches."""
    return line_height(SIZE) + 0.02


def draw_legend(
    sheet: Sheet,
    top: float,
    right: float,
    what: str,
    end: str,
    *,
    start: str = "0",
    ramp: Any = None,
) -> None:
    """Draw the legend of the color scale, from start to end, aligned to the right.

    what: left out where there is no room for it.
    top, right: in inches. ramp: a colormap; that of the theme by default.
    """
    width, height = BAR
    middle = top + line_height(SIZE) / 2
    style = {"va": "center", "color": sheet.theme.faint}
    end_width = text_width(end, SIZE)
    left = right - end_width - 0.05 - width
    sheet.write(right - end_width, middle, end, SIZE, **style)
    sheet.write(left - 0.05, middle, start, SIZE, ha="right", **style)
    place = left - 0.05 - text_width(f"{start}00", SIZE)
    if place - text_width(what, SIZE) >= sheet.width - right:
        sheet.write(place, middle, what, SIZE, ha="right", **style)
    axes = sheet.axes(left, middle - height / 2, width, height)
    axes.imshow(np.linspace(0, 1, 64)[None], aspect="auto", cmap=ramp or color_map(sheet.theme))
    axes.set_gid("legend")
