"""Colours and fonts of all figures, light and dark."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from attnflow.errors import MissingDependencyError

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
    """The colours of a figure.

    ramp: from nothing to most; its lightness only falls, or on a dark ground only rises, so that it
    reads the same without colour vision and in grey.
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
    """The colours for a light or a dark page."""
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


def colour_map(theme: Theme) -> Any:
    """The ramp of a theme as a matplotlib colour map."""
    colours = import_matplotlib("matplotlib.colors")
    return colours.LinearSegmentedColormap.from_list("attnflow", theme.ramp)


@cache
def font_family() -> list[str]:
    """The fonts of FONTS that are installed; matplotlib looks for each letter in all of them.

    The last stands for any font without serifs, for SVG files that are looked at elsewhere.
    """
    manager = import_matplotlib("matplotlib.font_manager").fontManager
    installed = set(manager.get_font_names())
    return [*(name for name in FONTS if name in installed), "sans-serif"]
