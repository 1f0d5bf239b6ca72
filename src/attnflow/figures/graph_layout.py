"""The layout of graphs over layers: tokens are rows, layers go from left to right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnflow.figures.canvas import Sheet, font_family, label_ticks
from attnflow.figures.labels import SMALLEST, line_height, scale_text, text_width, widest

SIZE = 7.0  # points
EDGE = 0.06  # inches
GAP = 0.2
ROW = 0.2  # inches between tokens
TALLEST = 4.5
STACKED = 2.5  # inches: the height of each of several panels below each other
READABLE = 4.8  # points: labels get smaller than this only in a single panel
NARROWEST = 1.3  # inches: narrower panels are placed below each other
LAYER = 0.14  # inches: the smallest width of a layer
THICKEST = 0.35  # the thickest line, as a share of the distance between tokens


@dataclass(frozen=True)
class Measures:
    """Sizes in inches, and the number of panels side by side."""

    across: int
    left: float
    panel_width: float
    panel_height: float
    width: float
    height: float
    label_size: float
    thickest: float  # points


def measure(texts: Sequence[str], n_panels: int, n_layers: int, width: float) -> Measures:
    """Compute the sizes of a figure of this width; it may need more."""
    row = _row_height(len(texts), TALLEST, SMALLEST)
    size = min(SIZE, row / line_height(1))
    while size > SMALLEST and widest(texts, size) > 0.4 * width:
        size = max(size - 0.5, SMALLEST)
    left = EDGE + max(widest(texts, size), text_width("layer", SIZE)) + 0.08
    least = max(NARROWEST, LAYER * n_layers)
    side_by_side = (width - left - EDGE - GAP * (n_panels - 1)) / n_panels
    across = n_panels if side_by_side >= least else 1
    panel_width = max(side_by_side if across > 1 else width - left - EDGE, least)
    if across == 1 and n_panels > 1:  # below each other
        row = min(row, _row_height(len(texts), STACKED, READABLE))
        size = min(size, row / line_height(1))
    panel_height = row * len(texts)
    down = -(-n_panels // across)
    one = panel_height + 2 * line_height(SIZE) + 0.14
    return Measures(
        across=across,
        left=left,
        panel_width=panel_width,
        panel_height=panel_height,
        width=left + across * panel_width + (across - 1) * GAP + EDGE,
        height=EDGE + down * one + line_height(SIZE) + EDGE,
        label_size=size,
        thickest=THICKEST * 72 * row,
    )


def _row_height(n_tokens: int, tallest: float, smallest: float) -> float:
    """The distance between tokens in a panel of a height, with labels of a smallest size."""
    return min(ROW, max(tallest / n_tokens, line_height(smallest)))


def place_panel(
    sheet: Sheet, measures: Measures, i: int, title: str, note: str = ""
) -> tuple[Any, bool]:
    """Add the axes and the title of a panel; also return whether to write its tokens.

    note: text on the right above the panel.
    """
    column, row = i % measures.across, i // measures.across
    left = measures.left + column * (measures.panel_width + GAP)
    above = EDGE + row * (measures.panel_height + 2 * line_height(SIZE) + 0.14)
    sheet.write(left, above, title, SIZE)
    if note:
        right = left + measures.panel_width
        sheet.write(right, above, note, SIZE - 1, ha="right", color=sheet.theme.faint)
    below = above + line_height(SIZE) + 0.03
    axes = sheet.axes(left, below, measures.panel_width, measures.panel_height)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_gid(f"graph {title}")
    return axes, column == 0


def label_axes(
    axes: Any,
    sheet: Sheet,
    measures: Measures,
    texts: Sequence[str],
    layers: Sequence[int],
    chosen: int | None,
) -> None:
    """Write tokens on the left, and layer numbers below."""
    if texts:
        label_ticks(axes, "y", list(range(len(texts))), list(texts), measures.label_size)
        if chosen is not None:
            axes.yaxis.get_ticklabels()[chosen].set_color(sheet.theme.highlight)
    room = measures.panel_width / len(layers)
    every = max(1, -int(-(text_width("00", SIZE) + 0.04) // room))
    shown = [i for i in range(len(layers)) if (len(layers) - 1 - i) % every == 0]
    numbers = [str(layers[i]) for i in shown]
    label_ticks(axes, "x", [i + 1 for i in shown], numbers, SIZE)
    if texts:
        below = {"xy": (0, 0), "xycoords": "axes fraction", "textcoords": "offset points"}
        axes.annotate(
            "layer",
            xytext=(-3.5, -2),
            ha="right",
            va="top",
            fontsize=SIZE,
            family=font_family(),
            color=sheet.theme.faint,
            **below,
        )


def draw_widths(sheet: Sheet, measures: Measures, top: float | None, what: str) -> None:
    """Draw the legend of line widths.

    top: what the widest line stands for; None for shares. what: of which the widths are.
    """
    size = SIZE - 0.5
    middle = measures.height - EDGE - line_height(size) / 2
    style = {"va": "center", "color": sheet.theme.faint}
    right = sheet.width - EDGE
    for part in (1.0, 0.5, 0.25):
        text = f"{part:.0%}" if top is None else scale_text(part * top)
        width = text_width(text, size)
        sheet.write(right - width, middle, text, size, **style)
        right -= width + 0.05
        axes = sheet.axes(right - 0.2, middle - 0.06, 0.2, 0.12)
        axes.set_axis_off()
        axes.plot(
            [0, 1],
            [0, 0],
            color=sheet.theme.edge,
            lw=measures.thickest * part,
            solid_capstyle="butt",
        )
        axes.set_xlim(0, 1)
        axes.set_ylim(-1, 1)
        axes.set_gid("key")
        right -= 0.2 + 0.1
    sheet.write(right, middle, what, size, ha="right", **style)
