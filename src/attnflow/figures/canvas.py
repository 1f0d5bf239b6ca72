"""Figures measured in inches, and files made of them.

Colors and fonts of all figures, light and dark.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnflow.errors import FileError, InputError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.3  # inches: one column of a two-column page
PAGE = 6.9  # inches: both columns

# The first of these is in matplotlib itself; the others, where they are installed, have the
# letters that it lacks.
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


@dataclass(frozen=True)
class Theme:
    """The colors of a figure.

    ramp: from nothing to most; its lightness only falls, or on a dark ground only rises, so that it
    reads the same without color vision and in grey.
    categories: told apart by everyone (Okabe and Ito), as many as a figure has need of.
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
    """The colors for a light or a dark page."""
    return DARK if dark else LIGHT


def import_matplotlib(module: str = "matplotlib") -> Any:
    """Import matplotlib, or a module of it, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            "matplotlib is not installed and drawing figures needs it. "
            "Install it: pip install 'attnflow[figures]'"
        ) from error


def color_map(theme: Theme) -> Any:
    """The ramp of a theme as a matplotlib color map."""
    colors = import_matplotlib("matplotlib.colors")
    return colors.LinearSegmentedColormap.from_list("attnflow", theme.ramp)


@cache
def font_family() -> list[str]:
    """The fonts of FONTS that are installed; matplotlib looks for each letter in all of them.

    The last stands for any font without serifs, for SVG files that are looked at elsewhere.
    """
    manager = import_matplotlib("matplotlib.font_manager").fontManager
    installed = set(manager.get_font_names())
    return [*(name for name in FONTS if name in installed), "sans-serif"]


FORMATS = ("svg", "pdf", "png")

# Text stays text; the same figure gives the same file.
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attnflow",
    "pdf.fonttype": 42,
    "pdf.use14corefonts": False,
    # Where the first is not installed, the others take about as much room.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "text.hinting": "none",  # letters where they are measured, not moved to whole pixels
}
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "attnflow"},
    "pdf": {"CreationDate": None, "Creator": "attnflow", "Producer": None},
    "png": {"Software": "attnflow"},
}


@dataclass(frozen=True, eq=False)
class Sheet:
    """A figure on which things are placed in inches from its upper left corner."""

    figure: "Figure"
    theme: Theme
    width: float
    height: float

    def axes(self, left: float, top: float, width: float, height: float) -> "Axes":
        """Empty axes, with a thin frame and without ticks."""
        bottom = self.height - top - height
        box = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box, facecolor="none")
        axes.tick_params(length=0, pad=2, colors=self.theme.ink, labelsize=7)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(self.theme.faint)
            spine.set_linewidth(0.5)
        return axes

    def write(self, left: float, top: float, text: str, size: float, **options: Any) -> None:
        """Text whose upper left corner, unless options say otherwise, is at a place in inches."""
        settings = {"color": self.theme.ink, "ha": "left", "va": "top"} | options
        self.figure.text(
            left / self.width,
            1 - top / self.height,
            text,
            fontsize=size,
            family=font_family(),
            parse_math=False,
            **settings,
        )


def new_sheet(width: float, height: float, theme: Theme) -> Sheet:
    """An empty figure of a size in inches. It belongs to no window and to no pyplot."""
    figure = import_matplotlib("matplotlib.figure").Figure(
        figsize=(width, height), dpi=100, facecolor=theme.ground, layout=None
    )
    return Sheet(figure, theme, width, height)


def label_ticks(
    axes: "Axes", axis: str, places: list[float], texts: list[str], size: float, **options: Any
) -> None:
    """Write labels at places of the "x" or "y" axis; text is taken as it is, never as a formula."""
    chosen = axes.xaxis if axis == "x" else axes.yaxis
    chosen.set_ticks(places)
    chosen.set_ticklabels(texts, fontsize=size, family=font_family(), parse_math=False, **options)


def save(figure: "Figure", path: str | PathLike[str], *, dpi: int = 300) -> None:
    """Write a figure to a .svg, .pdf or .png file; the ending says which.

    Text stays text in SVG and PDF, and the same figure gives the same file.
    dpi: pixels per inch, for PNG and for dense maps inside the others.
    Raises InputError for another ending, FileError if the file cannot be written. Warns of letters
    that no installed font has.
    """
    name = Path(path)
    kind = name.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError(
            f"the figure is to be written to {name}",
            expected="a name that ends in .svg, .pdf or .png",
            fix="Rename it.",
        )
    content = render(figure, kind, dpi=dpi)
    try:
        name.write_bytes(content)
    except OSError as error:
        raise FileError(
            f"{name} cannot be written ({error.strerror})",
            expected="a file in a folder that exists",
            fix="Make the folder, or name another.",
        ) from error


def render(figure: "Figure", kind: str = "png", *, dpi: int = 300) -> bytes:
    """The content of the file that `save` writes; kind: "svg", "pdf" or "png"."""
    if kind not in FORMATS:
        raise InputError(
            f"the format is {kind!r}",
            expected="'svg', 'pdf' or 'png'",
            fix="Choose one.",
        )
    buffer = io.BytesIO()
    with import_matplotlib().rc_context(SETTINGS), _one_warning_for_missing_letters():
        figure.savefig(
            buffer, format=kind, dpi=dpi, metadata=METADATA[kind], facecolor=figure.get_facecolor()
        )
    return buffer.getvalue()


@contextmanager
def _one_warning_for_missing_letters() -> Iterator[None]:
    """Turn matplotlib's warnings, one for each letter that no font has, into a single one."""
    missing: dict[str, None] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        found = re.match(r"Glyph (\d+) .*missing from font", str(warning.message))
        if found:
            missing[chr(int(found[1]))] = None
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    if missing:
        warnings.warn(
            f"no font that is installed has {' '.join(missing)}; drawn as boxes. Install one that "
            "has, such as Noto Sans CJK or Noto Emoji, or save as SVG, where text stays text.",
            UserWarning,
            stacklevel=4,
        )
