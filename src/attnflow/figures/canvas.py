"""The canvas of all figures: themes, fonts, and layout in inches, on a figure or inside axes."""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.errors import InputError, check_number, check_switch, check_type
from attnflow.figures.display import Display, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.3  # inches: one column of a two-column page
PAGE = 6.9  # inches: both columns

# The first font is part of matplotlib. The others, if installed, provide the glyphs that it lacks.
FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Noto Sans JP",
    "Noto Sans KR",
    "Source Han Sans",
    "WenQuanYi Micro Hei",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "Nirmala UI",
    "Noto Emoji",
    "Symbola",
    "Segoe UI Emoji",
    "Arial Unicode MS",
    "Unifont",
)

WIDEST = 500.0  # inches


@dataclass(frozen=True)
class Theme:
    """The colors of a figure.

    ramp: from the lowest to the highest score; its lightness is monotone, so it works in grayscale
    and without color vision.
    categories: a palette that is safe for color blindness (Okabe and Ito).
    """

    ground: str
    ink: str
    faint: str
    ramp: tuple[str, ...]
    edge: str
    highlight: str
    categories: tuple[str, ...]


LIGHT = Theme(
    ground="#ffffff",
    ink="#1a1c1f",
    faint="#63686e",
    ramp=("#f4f6f8", "#b9d6ea", "#5aa2d0", "#0b6aa8", "#062f57"),
    edge="#0b6aa8",
    highlight="#d55e00",
    categories=("#0072b2", "#e69f00", "#009e73", "#cc79a7"),
)
DARK = Theme(
    ground="#14171b",
    ink="#eceef0",
    faint="#9aa2ab",
    ramp=("#1e2329", "#16476e", "#1c7fbf", "#7cc4f0", "#f1f9ff"),
    edge="#63b3e6",
    highlight="#f5a04a",
    categories=("#56b4e9", "#f0a830", "#2cc79a", "#e59cc4"),
)


def choose_theme(dark: bool) -> Theme:
    """The theme for a light or a dark page."""
    check_switch("dark", dark)
    return DARK if dark else LIGHT


def color_map(theme: Theme) -> Any:
    """The ramp of a theme as a matplotlib colormap."""
    colors = import_matplotlib("matplotlib.colors")
    return colors.LinearSegmentedColormap.from_list("attnflow", theme.ramp)


@cache
def font_family() -> list[str]:
    """The installed fonts of FONTS; matplotlib looks for each glyph in all of them.

    The last entry is generic, for SVG files that are opened on other machines.
    """
    manager = import_matplotlib("matplotlib.font_manager").fontManager
    installed = set(manager.get_font_names())
    return [*(name for name in FONTS if name in installed), "sans-serif"]


@dataclass(frozen=True, eq=False)
class Sheet:
    """A figure, or axes in one, whose parts are placed in inches from the upper left corner.

    width, height: in inches. ax: the axes that it is drawn into, room: their size, and scale: the
    size of an inch of the sheet there. panels: the axes that were added.
    """

    figure: "Figure"
    theme: Theme
    width: float
    height: float
    ax: "Axes | None" = None
    room: tuple[float, float] = (0.0, 0.0)
    scale: float = 1.0
    panels: list["Axes"] = field(default_factory=list)

    def _place(self, left: float, top: float) -> tuple[float, float]:
        """A position as shares of the figure, or of the axes to draw into, from the lower left."""
        if self.ax is None:
            return left / self.width, 1 - top / self.height
        margin = (self.room[0] - self.scale * self.width) / 2
        return (margin + self.scale * left) / self.room[0], 1 - self.scale * top / self.room[1]

    def axes(self, left: float, top: float, width: float, height: float) -> "Axes":
        """Add empty axes with a thin frame and no ticks."""
        x, y = self._place(left, top + height)
        right, upper = self._place(left + width, top)
        if self.ax is None:
            axes = self.figure.add_axes((x, y, right - x, upper - y), facecolor="none")
        else:
            axes = self.ax.inset_axes((x, y, right - x, upper - y), facecolor="none")
        axes.tick_params(length=0, pad=2, colors=self.theme.ink, labelsize=7)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(self.theme.faint)
            spine.set_linewidth(0.5)
        self.panels.append(axes)
        return axes

    def write(self, left: float, top: float, text: str, size: float, **options: Any) -> None:
        """Write text at a position in inches; by default that of its upper left corner."""
        settings = {"color": self.theme.ink, "ha": "left", "va": "top"} | options
        settings |= {"fontsize": size, "family": font_family(), "parse_math": False}
        if self.ax is None:
            self.figure.text(*self._place(left, top), text, **settings)
        else:
            place = self._place(left, top)
            self.ax.text(*place, text, transform=self.ax.transAxes, **settings)

    def finish(self, caption: str = "") -> Display:
        """Make text and lines fit the scale of the sheet, and return what was drawn."""
        if self.ax is not None and self.scale < 1:
            _shrink(self.ax, self.scale)
        keys = ("key", "legend")
        panels = tuple(axes for axes in self.panels if axes.get_gid() not in keys)
        return Display(self.figure, panels, self.ax, caption)


def _shrink(ax: "Axes", scale: float) -> None:
    """Make text, lines and marks inside of axes smaller."""
    for text in ax.findobj(import_matplotlib("matplotlib.text").Text):
        text.set_fontsize(scale * text.get_fontsize())
    for line in ax.findobj(import_matplotlib("matplotlib.lines").Line2D):
        line.set_linewidth(scale * line.get_linewidth())
        line.set_markersize(scale * line.get_markersize())
    collections = import_matplotlib("matplotlib.collections")
    for lines in ax.findobj(collections.Collection):
        lines.set_linewidths([scale * width for width in np.atleast_1d(lines.get_linewidths())])
    for marks in ax.findobj(collections.PathCollection):
        marks.set_sizes(scale**2 * np.asarray(marks.get_sizes()))


def new_sheet(width: float, height: float, theme: Theme, ax: "Axes | None" = None) -> Sheet:
    """Create an empty sheet of a size in inches.

    ax: axes of any figure to draw into; without it, the sheet is a figure of its own, independent
    of pyplot and of any window. If the sheet does not fit into the axes, all of it is made smaller.
    """
    if ax is None:
        figure = import_matplotlib("matplotlib.figure").Figure(
            figsize=(width, height), dpi=100, facecolor=theme.ground, layout=None
        )
        return Sheet(figure, theme, width, height)
    ax.set_axis_off()
    room = size_of(ax)
    scale = min(room[0] / width, room[1] / height, 1.0)
    return Sheet(_root_of(ax), theme, width, height, ax, room, scale)


def _root_of(ax: "Axes") -> "Figure":
    """The figure of axes, also of those in a subfigure."""
    inner: Any = ax.figure
    root: Figure = inner.figure
    return root


def size_of(ax: "Axes") -> tuple[float, float]:
    """The width and the height of axes in inches; the figure is laid out first.

    Raises InputError for anything but axes, or for axes without an area.
    """
    axes = import_matplotlib("matplotlib.axes").Axes
    check_type(ax, axes, "Pass axes of matplotlib, such as those of plt.subplots().")
    figure = _root_of(ax)
    figure.draw_without_rendering()
    box = ax.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    if not (box.width > 0 and box.height > 0):
        raise InputError(
            f"the axes are {box.width:.2g} x {box.height:.2g} inches",
            expected="axes with an area",
            fix="Use a larger figure.",
        )
    return float(box.width), float(box.height)


def width_for(ax: "Axes | None", width: float) -> float:
    """The width of a figure: that of the axes to draw into, if there are any.

    Raises InputError for anything but a number of inches.
    """
    check_number("width", width, above=0, high=WIDEST)
    return width if ax is None else size_of(ax)[0]


def label_ticks(
    axes: "Axes", axis: str, places: list[float], texts: list[str], size: float, **options: Any
) -> None:
    """Set the tick labels of the "x" or "y" axis; text is literal, never a formula."""
    chosen = axes.xaxis if axis == "x" else axes.yaxis
    chosen.set_ticks(places)
    chosen.set_ticklabels(texts, fontsize=size, family=font_family(), parse_math=False, **options)
