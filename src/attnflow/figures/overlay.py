"""Patches laid over the picture that a vision model saw."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnflow.attribution import Normalize
from attnflow.errors import InputError
from attnflow.explanation import Explanation, ImageGrid
from attnflow.figures.canvas import (
    PAGE,
    Sheet,
    choose_theme,
    font_family,
    import_matplotlib,
    new_sheet,
)
from attnflow.figures.labels import draw_legend, legend_height, line_height, scale_text, text_width
from attnflow.figures.panels import METHODS, Numbers, Scale, check_scale, gather, largest, title_of
from attnflow.selection import Layers, Position, resolve_position

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = 7.0  # points
EDGE = 0.06  # inches
GAP = 0.06
SMALLEST = 0.62  # inches: a picture is not drawn smaller than this
LARGEST = 1.8
COLOR = "#ff6a00"  # of patches: lighter than the dark parts of a picture, darker than the light
DIMMED = (0.05, 0.75)  # the lightness of black and white in pictures, so that patches stand out


def draw_overlay(  # noqa: PLR0913 - one argument for each option
    explanation: Explanation,
    *,
    position: Position | None = None,
    methods: Sequence[str] = METHODS,
    layers: Layers = None,
    normalize: Normalize = "rows",
    scale: Scale = "own",
    opacity: float = 0.85,
    width: float = PAGE,
    dark: bool = False,
) -> "Figure":
    """Draw how much each patch of a picture reaches a position, over the picture, for each layer.

    A row for each method and a picture for each layer, from left to right; layers that have no
    room go on in the next line. A patch that is looked from has a frame.
    explanation: of an image. position: "[CLS]", "patch 2,3" or an index; the explained position if
    not given.
    methods, layers, normalize: as in the methods of an Explanation. Scores of tokens that are no
    patches, such as [CLS], are not drawn, but count in the scaling of rows.
    scale: one scale of shades for all pictures ("shared"), or for each its "own", with its end in
    the caption.
    opacity: of the patch with the highest score, from 0 to 1; the others less, as their scores.
    width, dark: as in `draw_maps`.
    Raises InputError for an Explanation without an image.
    """
    image = _image_of(explanation)
    check_scale(scale)
    if not 0 <= opacity <= 1:
        raise InputError(
            f"opacity is {opacity}",
            expected="a number from 0 to 1",
            fix="Choose one.",
        )
    place = explanation.position
    if position is not None:
        place = resolve_position(explanation.tokens, len(explanation.tokens), position)
    found = gather(
        explanation, methods=methods, layers=layers, positions=place, normalize=normalize
    )
    maps = [patch_scores(image, one[place]) for one in found]  # each [layers, rows, columns]
    tops = iter(largest([one for several in maps for one in several], scale))
    ends = [[next(tops) for _ in several] for several in maps]
    layout = _measure(image, len(found[0].layers), width, own=scale == "own")
    one_row = line_height(SIZE) + 0.03 + layout.lines * (layout.height + layout.head + GAP)
    height = EDGE + len(maps) * (one_row + 0.06) + legend_height() + EDGE
    sheet = new_sheet(width, height, choose_theme(dark))
    grey = _grey(image)
    for i, several in enumerate(maps):
        top = EDGE + i * (one_row + 0.06)
        sheet.write(EDGE, top, title_of(found[i]), SIZE, fontweight="bold")
        for j, scores in enumerate(several):
            axes = _place(sheet, layout, top + line_height(SIZE) + 0.03, j)
            end = scale_text(ends[i][j])
            caption = f"layer {found[i].layers[j]}"
            axes.annotate(
                f"{caption}, most {end}" if scale == "own" else caption,
                (0, 1),
                (0, 2),
                xycoords="axes fraction",
                textcoords="offset points",
                fontsize=SIZE,
                family=font_family(),
                color=sheet.theme.ink,
                annotation_clip=False,
            )
            _lay_over(axes, image, grey, scores / ends[i][j] * opacity)
            _frame(axes, sheet, image, place)
    ramp = import_matplotlib("matplotlib.colors").LinearSegmentedColormap.from_list(
        "overlay", [sheet.theme.ground, COLOR]
    )
    what = "share of attention" if normalize == "rows" else "attention"
    end = scale_text(ends[0][0]) if scale == "shared" else "most in the picture"
    draw_legend(sheet, height - EDGE - legend_height(), width - EDGE, what, end, ramp=ramp)
    return sheet.figure


def patch_scores(image: ImageGrid, scores: Numbers) -> Numbers:
    """The scores [..., rows, columns] of the patches, from those of all tokens [..., tokens]."""
    n = image.rows * image.columns
    patches = scores[..., image.first : image.first + n]
    return patches.reshape(*scores.shape[:-1], image.rows, image.columns)


@dataclass(frozen=True)
class Measures:
    """How many pictures there are in a line, and their sizes in inches."""

    across: int
    lines: int
    width: float
    height: float

    @property
    def head(self) -> float:
        """The room above a picture."""
        return line_height(SIZE) + 0.03


def _measure(image: ImageGrid, n_layers: int, width: float, *, own: bool) -> Measures:
    room = width - 2 * EDGE + GAP
    smallest = text_width("layer 00, most 0.0000", SIZE) if own else SMALLEST
    fitting = max(int(room / (smallest + GAP)), 1)
    lines = -(-n_layers // fitting)
    across = -(-n_layers // lines)
    size = min(room / across - GAP, LARGEST)
    return Measures(across, lines, size, size * image.height / image.width)


def _place(sheet: Sheet, layout: Measures, top: float, i: int) -> "Axes":
    line, column = divmod(i, layout.across)
    below = top + layout.head + line * (layout.height + layout.head + GAP)
    left = EDGE + column * (layout.width + GAP)
    return sheet.axes(left, below, layout.width, layout.height)


def _lay_over(axes: "Axes", image: ImageGrid, grey: Numbers, strength: Numbers) -> None:
    """The picture in grey, and patches over it; strength: [rows, columns], opacities."""
    color = import_matplotlib("matplotlib.colors").to_rgb(COLOR)
    patches = np.empty((image.rows, image.columns, 4))
    patches[..., :3] = color
    patches[..., 3] = np.clip(strength, 0.0, 1.0)
    extent = (0, image.columns, image.rows, 0)
    axes.imshow(
        DIMMED[0] + (DIMMED[1] - DIMMED[0]) * grey,
        cmap="gray",
        vmin=0,
        vmax=1,
        extent=extent,
        aspect="auto",
    )
    drawn = axes.imshow(patches, extent=extent, aspect="auto", interpolation="nearest")
    drawn.set_gid("patches")
    axes.set_xticks([])
    axes.set_yticks([])


def _frame(axes: "Axes", sheet: Sheet, image: ImageGrid, place: int) -> None:
    """A frame around the patch that is looked from, if it is one."""
    row, column = divmod(place - image.first, image.columns)
    if not 0 <= row < image.rows:
        return
    rectangle = import_matplotlib("matplotlib.patches").Rectangle
    for color, width in ((sheet.theme.ground, 2.0), (sheet.theme.ink, 1.0)):
        axes.add_patch(rectangle((column, row), 1, 1, fill=False, edgecolor=color, linewidth=width))


def _image_of(explanation: Explanation) -> ImageGrid:
    if explanation.image is None:
        raise InputError(
            "the explanation is of a text",
            expected="one of an image",
            fix="Use draw_maps, or make it with explain_image.",
        )
    return explanation.image


def _grey(image: ImageGrid) -> Numbers:
    """The lightness [height, width] of the picture, from 0 to 1."""
    reader = import_matplotlib("matplotlib.image")
    pixels = np.asarray(reader.imread(io.BytesIO(image.png), format="png"), dtype=np.float64)
    if pixels.ndim == 2:
        return pixels
    lightness: Numbers = pixels[..., :3] @ np.asarray([0.299, 0.587, 0.114])
    return lightness
