"""Figures as TikZ, for LaTeX: lines and areas as paths, text as text in the fonts of the document.

A renderer of matplotlib that writes one TikZ command for each thing drawn. Photographs cannot be
part of a TeX file; they are returned beside it.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import cos, radians, sin
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnflow.figures.display import import_matplotlib
from attnflow.figures.labels import text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 72  # per inch: one unit of the picture is a big point
SHARPER = 4  # pixels of photographs per big point
HEAD = r"""% Written by attnflow. Include it with \input; in the preamble: \usepackage{tikz}
% Letters beyond Latin need XeLaTeX or LuaLaTeX, and a font that has them.
"""
ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "-{}",
    "\N{OPEN BOX}": r"\textvisiblespace{}",
    "\N{MIDDLE DOT}": r"\textperiodcentered{}",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
} | {letter: f"\\{letter}" for letter in "$&#%_"}


def escape(text: str) -> str:
    r"""Write a text so that TeX prints it as it is.

    >>> print(escape("50% of $x_1$ {a}"))
    50\% of \$x\_1\$ \{a\}
    """
    return "".join(ESCAPES.get(letter, letter) for letter in text)


@dataclass(frozen=True)
class TikzPicture:
    """A figure for LaTeX. source: the text of the file. images: PNG files it includes, by name."""

    source: str
    images: dict[str, bytes]


def to_tikz(figure: "Figure", name: str = "figure") -> TikzPicture:
    """Write a matplotlib figure as a TikZ picture of the same size.

    name: of the file, without suffix; photographs are called name-1.png and so on.
    """
    before = figure.dpi
    renderer = _make_renderer(figure, name)
    try:
        figure.set_dpi(POINTS)
        figure.draw(renderer)
    finally:
        figure.set_dpi(before)
    width, height = (POINTS * inches for inches in figure.get_size_inches())
    lines = [
        r"\begin{tikzpicture}[x=1bp, y=1bp, every node/.style={inner sep=0, outer sep=0}]",
        rf"\useasboundingbox (0,0) rectangle ({_number(width)},{_number(height)});",
        *renderer.lines,
        r"\end{tikzpicture}",
    ]
    return TikzPicture(HEAD + "\n".join(lines) + "\n", renderer.images)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def _make_renderer(figure: "Figure", name: str) -> Any:
    """A renderer that collects TikZ commands; its class is made here, to import matplotlib late."""
    base: Any = import_matplotlib("matplotlib.backend_bases").RendererBase

    class Renderer(base):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []
            self.images: dict[str, bytes] = {}

        def get_canvas_width_height(self) -> tuple[float, float]:
            width, height = figure.get_size_inches()
            return POINTS * float(width), POINTS * float(height)

        def flipy(self) -> bool:
            return False

        def points_to_pixels(self, points: Any) -> Any:
            return points

        def get_image_magnification(self) -> float:
            return SHARPER

        def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> Any:
            del ismath
            size = prop.get_size_in_points()
            width = POINTS * text_width(s, size, prop.get_weight())
            return width, 0.95 * size, 0.22 * size

        def draw_path(self, gc: Any, path: Any, transform: Any, rgbFace: Any = None) -> None:  # noqa: N803
            options = [*_stroke(gc), *_fill(gc, rgbFace)]
            if options:
                steps = " ".join(_steps(path, transform))
                self.lines.extend(_clipped(gc, rf"\path[{', '.join(options)}] {steps};"))

        def draw_text(
            self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float,
            ismath: Any = False, mtext: Any = None,
        ) -> None:  # fmt: skip
            del ismath
            self.lines.append(_text_node(gc, (x, y), s, prop, angle, mtext))

        def draw_image(self, gc: Any, x: float, y: float, im: Any, transform: Any = None) -> None:
            del transform
            height, width = (size / SHARPER for size in im.shape[:2])
            if (im == im[:1]).all():
                self.lines.extend(_bars(im[0], x, y, height))
                return
            file = f"{name}-{len(self.images) + 1}.png"
            self.images[file] = _png(im)
            size = f"width={_number(width)}bp, height={_number(height)}bp"
            node = rf"\node[anchor=south west] at ({_number(x)},{_number(y)}) "
            node += rf"{{\includegraphics[{size}]{{{file}}}}};"
            self.lines.extend(_clipped(gc, node))

    return Renderer()


def _color(rgb: Any) -> str:
    return "{rgb,255:" + ";".join(
        f"{name},{round(255 * float(part))}"
        for name, part in zip(("red", "green", "blue"), rgb, strict=False)
    ) + "}"  # fmt: skip


def _stroke(gc: Any) -> list[str]:
    """The options of a line; none if it has no width or is transparent."""
    rgb = gc.get_rgb()
    alpha = gc.get_alpha() if gc.get_forced_alpha() else rgb[3] if len(rgb) > 3 else 1.0
    if not gc.get_linewidth() or not alpha:
        return []
    options = [f"draw={_color(rgb)}", f"line width={_number(gc.get_linewidth())}bp"]
    if alpha < 1:
        options.append(f"draw opacity={alpha:.3g}")
    if gc.get_capstyle() != "butt":
        cap = {"projecting": "rect"}.get(gc.get_capstyle(), gc.get_capstyle())
        options.append(f"line cap={cap}")
    offset, dashes = gc.get_dashes()
    if dashes is not None:
        pattern = " ".join(
            f"{'on' if i % 2 == 0 else 'off'} {_number(dash)}bp" for i, dash in enumerate(dashes)
        )
        options += [f"dash pattern={pattern}", f"dash phase={_number(offset)}bp"]
    return options


def _fill(gc: Any, rgb: Any) -> list[str]:
    if rgb is None:
        return []
    alpha = gc.get_alpha() if gc.get_forced_alpha() else rgb[3] if len(rgb) > 3 else 1.0
    if not alpha:
        return []
    return [f"fill={_color(rgb)}", *([f"fill opacity={alpha:.3g}"] if alpha < 1 else [])]


def _steps(path: Any, transform: Any) -> Iterator[str]:
    """The steps of a path in TikZ."""
    here = (0.0, 0.0)
    for points, code in path.iter_segments(transform, simplify=False):
        ends = [(float(points[i]), float(points[i + 1])) for i in range(0, len(points), 2)]
        if code == path.CLOSEPOLY:
            yield "-- cycle"
            continue
        if code == path.CURVE3:  # the control points of the same curve of degree 3
            [middle, end] = ends
            ends = [_between(here, middle, 2 / 3), _between(end, middle, 2 / 3), end]
        written = [f"({_number(x)},{_number(y)})" for x, y in ends]
        if len(written) == 3:
            yield f".. controls {written[0]} and {written[1]} .. {written[2]}"
        else:
            yield written[0] if code == path.MOVETO else f"-- {written[0]}"
        here = ends[-1]


def _between(a: tuple[float, float], b: tuple[float, float], part: float) -> tuple[float, float]:
    return a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])


def _clipped(gc: Any, command: str) -> Iterator[str]:
    box = gc.get_clip_rectangle()
    if box is None:
        yield command
        return
    corners = (
        f"({_number(box.x0)},{_number(box.y0)}) rectangle ({_number(box.x1)},{_number(box.y1)})"
    )
    yield rf"\begin{{scope}}\clip {corners}; {command}\end{{scope}}"


def _text_node(
    gc: Any, place: tuple[float, float], text: str, prop: Any, angle: float, mtext: Any
) -> str:
    """A text whose anchor is the end that stays in place if the document's font is wider."""
    size = prop.get_size_in_points()
    anchor, along = _anchor(mtext, angle)
    shift = along * POINTS * text_width(text, size, prop.get_weight())
    x = place[0] + shift * cos(radians(angle))
    y = place[1] + shift * sin(radians(angle))
    bold = r"\bfseries" if prop.get_weight() in ("bold", 700) else ""
    font = rf"\fontsize{{{_number(size)}bp}}{{{_number(1.2 * size)}bp}}\sffamily{bold}\selectfont"
    options = [f"anchor={anchor}", f"text={_color(gc.get_rgb())}", f"font={{{font}}}"]
    if angle:
        options.append(f"rotate={_number(angle)}")
    return rf"\node[{', '.join(options)}] at ({_number(x)},{_number(y)}) {{{escape(text)}}};"


def _anchor(mtext: Any, angle: float) -> tuple[str, float]:
    """The anchor of a text, and where it is along the text, from 0 to 1."""
    side = "left"
    if mtext is not None:
        side = mtext.get_ha()
        if angle == 90 and mtext.get_rotation_mode() != "anchor":
            side = {"top": "right", "bottom": "left", "center": "center"}.get(mtext.get_va(), side)
    places = {"left": ("base west", 0.0), "right": ("base east", 1.0)}
    return places.get(side, ("base", 0.5))


def _bars(row: NDArray[np.uint8], x: float, y: float, height: float) -> Iterator[str]:
    """A picture whose rows are equal, as areas; row: [columns, 4]."""
    starts = [0, *(np.flatnonzero((row[1:] != row[:-1]).any(axis=1)) + 1).tolist(), len(row)]
    for start, end in pairwise(starts):
        left, right = x + start / SHARPER, x + len(row) / SHARPER
        corners = (
            f"({_number(left)},{_number(y)}) rectangle ({_number(right)},{_number(y + height)})"
        )
        if end > start and row[start, 3]:
            yield rf"\fill[fill={_color(row[start, :3] / 255)}] {corners};"


def _png(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    import_matplotlib("matplotlib.image").imsave(buffer, pixels[::-1], format="png", origin="upper")
    return buffer.getvalue()
