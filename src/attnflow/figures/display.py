"""What drawing returns: a Display, which notebooks show, and its export to files."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnflow.errors import (
    FileError,
    InputError,
    check_choice,
    check_number,
    check_path,
    check_type,
)
from attnflow.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 200  # pixels per inch of the picture in notebooks
SCREEN = 110  # pixels per inch at which notebooks show it


def import_matplotlib(module: str = "matplotlib") -> Any:
    """Import matplotlib, or one of its modules."""
    return import_optional(module, "drawing figures")


MAX_DPI = 10_000
FORMATS = ("svg", "pdf", "png", "tex")

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
class Display:
    """What was drawn. Notebooks show it if it is the last value of a cell.

    figure_: the matplotlib figure. axes_: the axes of its panels, in the order they were drawn.
    bounding_ax_: the axes that were passed as `ax`, or None: then figure_ is a figure of its own.
    caption_: the text below.
    """

    figure_: "Figure"
    axes_: tuple["Axes", ...]
    bounding_ax_: "Axes | None" = None
    caption_: str = ""

    @property
    def ax_(self) -> "Axes":
        """The axes that were passed as `ax`, or else those of the first panel."""
        return self.axes_[0] if self.bounding_ax_ is None else self.bounding_ax_

    def save(self, path: str | PathLike[str], *, dpi: int = 300) -> None:
        """Write the figure to a file; see `save`."""
        save(self, path, dpi=dpi)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """A picture for notebooks; none for axes of a figure that the caller shows."""
        if self.bounding_ax_ is not None:
            return {"text/plain": repr(self)}
        width, height = self.figure_.get_size_inches()
        size = {"width": round(SCREEN * width), "height": round(SCREEN * height)}
        data = {"image/png": render(self, "png", dpi=SHOWN), "text/plain": repr(self)}
        return data, {"image/png": size}

    def __repr__(self) -> str:
        width, height = self.figure_.get_size_inches()
        panels = f"{len(self.axes_)} panel{'' if len(self.axes_) == 1 else 's'}"
        return f"Display({panels}, {width:.3g} x {height:.3g} inches)"


def save(figure: "Figure | Display", path: str | PathLike[str], *, dpi: int = 300) -> None:
    """Write a figure to a .svg, .pdf, .png or .tex file; the suffix selects the format.

    Text stays text in SVG, PDF and TeX, and equal figures give equal files. A .tex file is a TikZ
    picture in the fonts of the document that inputs it; photographs are PNG files beside it.
    dpi: pixels per inch, for PNG and for dense maps inside SVG and PDF.
    Raises InputError for another suffix, FileError if the file cannot be written. Warns about
    characters that no installed font has.
    """
    check_path(path)
    name = Path(path)
    kind = name.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError(
            f"the file name is {name}",
            expected="a name that ends in .svg, .pdf, .png or .tex",
            fix="Add one of these suffixes.",
        )
    files = {name.name: b""}
    if kind == "tex":
        picture = _to_tikz(figure, name.stem)
        files = {name.name: picture.source.encode(), **picture.images}
    else:
        files[name.name] = render(figure, kind, dpi=dpi)
    try:
        for file, content in files.items():
            name.with_name(file).write_bytes(content)
    except OSError as error:
        raise FileError(
            f"{name} cannot be written ({error.strerror})",
            expected="a file in an existing folder",
            fix="Create the folder, or choose another.",
        ) from error


def render(figure: "Figure | Display", kind: str = "png", *, dpi: int = 300) -> bytes:
    """Return the bytes of the file that `save` writes; kind: "svg", "pdf", "png" or "tex".

    Raises InputError for "tex" if the figure has photographs, which need files of their own.
    """
    check_choice("kind", kind, FORMATS)
    check_number("dpi", dpi, low=1, high=MAX_DPI)
    if kind == "tex":
        picture = _to_tikz(figure, "figure")
        if picture.images:
            raise InputError(
                f"the figure has {len(picture.images)} photographs, which TeX keeps in files",
                expected="a figure without photographs",
                fix="Use save(figure, 'name.tex'), which writes them beside it.",
            )
        return str(picture.source).encode()
    figure = _figure_of(figure)
    buffer = io.BytesIO()
    with import_matplotlib().rc_context(SETTINGS), _one_warning_for_missing_glyphs():
        figure.savefig(
            buffer, format=kind, dpi=dpi, metadata=METADATA[kind], facecolor=figure.get_facecolor()
        )
    return buffer.getvalue()


def _to_tikz(figure: "Figure | Display", name: str) -> Any:
    from attnflow.figures.tikz import to_tikz  # it needs the labels, which need this module

    return to_tikz(_figure_of(figure), name)


def _figure_of(figure: Any) -> "Figure":
    """The figure of matplotlib. Raises InputError for anything but a figure or a Display."""
    inner = figure.figure_ if isinstance(figure, Display) else figure
    kind = import_matplotlib("matplotlib.figure").FigureBase
    check_type(inner, kind, "Pass what a function of attnflow.figures returned.")
    found: Figure = inner
    return found


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
