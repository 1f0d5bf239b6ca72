"""The canvas of all figures: themes, fonts, layout in inches, and export to files."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnflow.errors import FileError, InputError, check_choice
from attnflow.optional import import_optional

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
    return DARK if dark else LIGHT


def import_matplotlib(module: str = "matplotlib") -> Any:
    """Import matplotlib, or one of its modules."""
    return import_optional(module, "drawing figures")


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


FORMATS = ("svg", "pdf", "png")

# Text stays text, and equal figures give equal files.
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attnflow",
    "pdf.fonttype": 42,
    "pdf.use14corefonts": False,
    # If the first is not installed, the others have similar widths.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "text.hinting": "none",  # draw glyphs where they are measured, without rounding to pixels
}
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "attnflow"},
    "pdf": {"CreationDate": None, "Creator": "attnflow", "Producer": None},
    "png": {"Software": "attnflow"},
}


@dataclass(frozen=True, eq=False)
class Sheet:
    """A figure whose parts are placed in inches from its upper left corner."""

    figure: "Figure"
    theme: Theme
    width: float
    height: float

    def axes(self, left: float, top: float, width: float, height: float) -> "Axes":
        """Add empty axes with a thin frame and no ticks."""
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
        """Write text at a position in inches; by default that of its upper left corner."""
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
    """Create an empty figure of a size in inches, independent of pyplot and of any window."""
    figure = import_matplotlib("matplotlib.figure").Figure(
        figsize=(width, height), dpi=100, facecolor=theme.ground, layout=None
    )
    return Sheet(figure, theme, width, height)


def label_ticks(
    axes: "Axes", axis: str, places: list[float], texts: list[str], size: float, **options: Any
) -> None:
    """Set the tick labels of the "x" or "y" axis; text is literal, never a formula."""
    chosen = axes.xaxis if axis == "x" else axes.yaxis
    chosen.set_ticks(places)
    chosen.set_ticklabels(texts, fontsize=size, family=font_family(), parse_math=False, **options)


def save(figure: "Figure", path: str | PathLike[str], *, dpi: int = 300) -> None:
    """Write a figure to a .svg, .pdf or .png file; the suffix selects the format.

    Text stays text in SVG and PDF, and equal figures give equal files.
    dpi: pixels per inch, for PNG and for dense maps inside SVG and PDF.
    Raises InputError for another suffix, FileError if the file cannot be written. Warns about
    characters that no installed font has.
    """
    name = Path(path)
    kind = name.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError(
            f"the file name is {name}",
            expected="a name that ends in .svg, .pdf or .png",
            fix="Add one of these suffixes.",
        )
    content = render(figure, kind, dpi=dpi)
    try:
        name.write_bytes(content)
    except OSError as error:
        raise FileError(
            f"{name} cannot be written ({error.strerror})",
            expected="a file in an existing folder",
            fix="Create the folder, or choose another.",
        ) from error


def render(figure: "Figure", kind: str = "png", *, dpi: int = 300) -> bytes:
    """Return the bytes of the file that `save` writes; kind: "svg", "pdf" or "png"."""
    check_choice("kind", kind, FORMATS)
    buffer = io.BytesIO()
    with import_matplotlib().rc_context(SETTINGS), _one_warning_for_missing_glyphs():
        figure.savefig(
            buffer, format=kind, dpi=dpi, metadata=METADATA[kind], facecolor=figure.get_facecolor()
        )
    return buffer.getvalue()


@contextmanager
def _one_warning_for_missing_glyphs() -> Iterator[None]:
    """Merge matplotlib's warnings about missing glyphs, one for each, into a single warning."""
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
            f"no installed font has {' '.join(missing)}; drawn as boxes. Install a font with these "
            "characters, such as Noto Sans CJK or Noto Emoji, or save as SVG to keep text as text.",
            UserWarning,
            stacklevel=4,
        )
