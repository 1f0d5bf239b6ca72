"""Scores of image patches drawn over the image."""

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
from attnflow.figures.panels import (
    PAPER_METHODS,
    Numbers,
    Scale,
    check_scale,
    gather,
    largest,
    title_of,
)
from attnflow.selection import Layers, Position, resolve_position

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = 7.0  # points
EDGE = 0.06  # inches
GAP = 0.06
SMALLEST = 0.62  # inches: the smallest width of an image
LARGEST = 1.8
COLOR = "#ff6a00"  # of patches: lighter than dark parts of an image, darker than light parts
DIMMED = (0.05, 0.75)  # the lightness of black and white in the image, so that patches stand out


def draw_overlay(  # noqa: PLR0913 - one argument for each option
    explanation: Explanation,
    *,
    position: Position | None = None,
    methods: Sequence[str] = PAPER_METHODS,
    layers: Layers = None,
    normalize: Normalize = "rows",
    scale: Scale = "own",
    opacity: float = 0.85,
    width: float = PAGE,
    dark: bool = False,
) -> "Figure":
    """Draw how much each patch of an image reaches a position, over the image, for each layer.

    Each method is a row, each layer an image, from left to right; long rows wrap. If the target
    position is a patch, it is framed.
    explanation: of an image. position: "[CLS]", "patch 2,3" or an index; the explained position by
    default.
    methods, layers, normalize: the options of Explanation.attribute. Tokens that are not patches,
    such as [CLS], are not drawn, but count when rows are normalized.
    scale: the color scale: "shared" by all images, or each its "own", with its maximum in the
    caption.
    opacity: of the patch with the highest score, from 0 to 1; others in proportion.
    width, dark: as in `draw_maps`.
    Raises InputError for an Explanation without an image.
    """
    image = _image_of(explanation)
    check_scale(scale)
    if not 0 <= opacity <= 1:
        raise InputError(
            f"opacity is {opacity}",
            expected="a number from 0 to 1",
            fix="Use opacity=0.85, the default.",
        )
    place = explanation.position
    if position is not None:
        place = resolve_position(explanation.tokens, len(explanation.tokens), position)
    attributions = gather(
        explanation, methods=methods, layers=layers, positions=place, normalize=normalize
    )
    maps = [
        patch_scores(image, result[place]) for result in attributions
    ]  # each [layers, rows, columns]
    tops = iter(largest([one for several in maps for one in several], scale))
    ends = [[next(tops) for _ in several] for several in maps]
    layout = _measure(image, len(attributions[0].layers), width, own=scale == "own")
    one_row = line_height(SIZE) + 0.03 + layout.lines * (layout.height + layout.head + GAP)
    height = EDGE + len(maps) * (one_row + 0.06) + legend_height() + EDGE
    sheet = new_sheet(width, height, choose_theme(dark))
    gray = _gray(image)
    for i, several in enumerate(maps):
        top = EDGE + i * (one_row + 0.06)
        sheet.write(EDGE, top, title_of(attributions[i]), SIZE, fontweight="bold")
        for j, scores in enumerate(several):
            axes = _place(sheet, layout, top + line_height(SIZE) + 0.03, j)
            end = scale_text(ends[i][j])
            caption = f"layer {attributions[i].layers[j]}"
            axes.annotate(
                f"{caption}, max {end}" if scale == "own" else caption,
                (0, 1),
                (0, 2),
                xycoords="axes fraction",
                textcoords="offset points",
                fontsize=SIZE,
                family=font_family(),
                color=sheet.theme.ink,
                annotation_clip=False,
            )
            _lay_over(axes, image, gray, scores / ends[i][j] * opacity)
            _frame(axes, sheet, image, place)
    ramp = import_matplotlib("matplotlib.colors").LinearSegmentedColormap.from_list(
        "overlay", [sheet.theme.ground, COLOR]
    )
    what = "share of attention" if normalize == "rows" else "attention"
    end = scale_text(ends[0][0]) if scale == "shared" else "maximum of the image"
    draw_legend(sheet, height - EDGE - legend_height(), width - EDGE, what, end, ramp=ramp)
    return sheet.figure


def patch_scores(image: ImageGrid, scores: Numbers) -> Numbers:
    """The scores of the patches, [..., rows, columns], from those of all tokens, [..., tokens]."""
    n = image.rows * image.columns
    patches = scores[..., image.first : image.first + n]
    return patches.reshape(*scores.shape[:-1], image.rows, image.columns)


@dataclass(frozen=True)
class Measures:
    """The number of images in a line, and their sizes in inches."""

    across: int
    lines: int
    width: float
    height: float

    @property
    def head(self) -> float:
        """The space above an image."""
        return line_height(SIZE) + 0.03


def _measure(image: ImageGrid, n_layers: int, width: float, *, own: bool) -> Measures:
    room = width - 2 * EDGE + GAP
    smallest = text_width("layer 00, max 0.0000", SIZE) if own else SMALLEST
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


def _lay_over(axes: "Axes", image: ImageGrid, gray: Numbers, strength: Numbers) -> None:
    """Draw the image in gray, and patches over it. strength: opacities [rows, columns]."""
    color = import_matplotlib("matplotlib.colors").to_rgb(COLOR)
    patches = np.empty((image.rows, image.columns, 4))
    patches[..., :3] = color
    patches[..., 3] = np.clip(strength, 0.0, 1.0)
    extent = (0, image.columns, image.rows, 0)
    axes.imshow(
        DIMMED[0] + (DIMMED[1] - DIMMED[0]) * gray,
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
    """Draw a frame around the target position, if it is a patch."""
    row, column = divmod(place - image.first, image.columns)
    if not 0 <= row < image.rows:
        return
    rectangle = import_matplotlib("matplotlib.patches").Rectangle
    for color, width in ((sheet.theme.ground, 2.0), (sheet.theme.ink, 1.0)):
        axes.add_patch(rectangle((column, row), 1, 1, fill=False, edgecolor=color, linewidth=width))


def _image_of(explanation: Explanation) -> ImageGrid:
    if explanation.image is None:
        raise InputError(
            "the explanation has no image",
            expected="an explanation of an image",
            fix="Use explain_image, or draw_maps for texts.",
        )
    return explanation.image


def _gray(image: ImageGrid) -> Numbers:
    """The lightness [height, width] of the image, from 0 to 1."""
    reader = import_matplotlib("matplotlib.image")
    pixels = np.asarray(reader.imread(io.BytesIO(image.png), format="png"), dtype=np.float64)
    if pixels.ndim == 2:
        return pixels
    lightness: Numbers = pixels[..., :3] @ np.asarray([0.299, 0.587, 0.114])
    return lightness
