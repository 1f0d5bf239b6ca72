"""The line below a figure that says what its shades stand for."""

from typing import Any

import numpy as np

from attnflow.figures.canvas import Sheet
from attnflow.figures.labels import line_height, text_width
from attnflow.figures.style import colour_map

BAR = (0.9, 0.07)  # inches
SIZE = 6.5


def scale_text(top: float) -> str:
    """The number at the end of a scale.

    >>> scale_text(0.4567), scale_text(0.00123)
    ('0.46', '0.0012')
    """
    return f"{top:.2g}"


def legend_height() -> float:
    """The inches that the legend takes."""
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
    """What the shades mean, from a start to an end, set to the right.

    top, right: in inches. ramp: a colour map; that of the theme if not given.
    """
    width, height = BAR
    middle = top + line_height(SIZE) / 2
    style = {"va": "center", "color": sheet.theme.faint}
    end_width = text_width(end, SIZE)
    left = right - end_width - 0.05 - width
    sheet.write(right - end_width, middle, end, SIZE, **style)
    sheet.write(left - 0.05, middle, start, SIZE, ha="right", **style)
    sheet.write(
        left - 0.05 - text_width(f"{start}00", SIZE), middle, what, SIZE, ha="right", **style
    )
    axes = sheet.axes(left, middle - height / 2, width, height)
    axes.imshow(np.linspace(0, 1, 64)[None], aspect="auto", cmap=ramp or colour_map(sheet.theme))
    axes.set_gid("legend")
