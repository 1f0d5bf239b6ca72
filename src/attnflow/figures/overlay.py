"""Scores of image patches drawn over the image."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from attnflow.attribution import Normalize
from attnflow.errors import InputError, check_number, check_type
from attnflow.explanation import Explanation, ImageGrid
from attnflow.figures.canvas import (
    PAGE,
    Sheet,
    choose_theme,
    font_family,
    new_sheet,
    width_for,
)
from attnflow.figures.display import Display, import_matplotlib
from attnflow.figures.labels import draw_legend, legend_height, line_height, scale_text, text_width
from attnflow.figures.panels import (
    PAPER_METHODS,
    Numbers,
    Scale,
    caption_height,
    caption_lines,
    caption_of,
    check_drawing,
    check_scale,
    draw_caption,
    gather,
    largest,
    title_of,
    what_is_drawn,
)
from attnflow.presentation import color_range, color_share
from attnflow.selection import Layers, Position, resolve_position

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    scale: Scale = "auto",
    opacity: float = 0.85,
    caption: bool = True,
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw how much each patch of an image reaches a position, over the image, for each layer.

    Each method is a row, each layer an image, from left to right; long rows wrap. If the target
    position is a patch, it is framed.
    explanation: of an image. position: "[CLS]", "patch 2,3" or an index; the explained position by
    default.
    methods, layers, normalize: the options of Explanation.attribute. Tokens that are not patches,
    such as [CLS], are not drawn, but count when rows are normalized.
    scale: the color scale: "shared" by all images, or each its "own", both from 0; "auto": each its
    own, from its lowest score if scores are close to each other. The range is above each image.
    opacity: of the patch with the highest score, from 0 to 1; others in proportion.
    caption, width, dark, ax: as in `draw_maps`.
    Raises InputError for an Explanation without an image.
    """
    image = _image_of(explanation)
    check_scale(scale)
    check_drawing(methods=methods, caption=caption)
    width = width_for(ax, width)
    check_number("opacity", opacity, low=0, high=1)
    place = explanation.position
    if position is not None:
        place = resolve_position(explanation.tokens, len(explanation.tokens), position)
    attributions = gather(
        explanation, methods=methods, layers=layers, positions=place, normalize=normalize
    )
    maps = [
        patch_scores(image, result[place]) for result in attributions
    ]  # each [layers, rows, columns]
    ranges = _ranges(maps, scale)
    layout = _measure(image, len(attributions[0].layers), width, own=scale != "shared")
    one_row = line_height(SIZE) + 0.03 + layout.lines * (layout.height + layout.head + GAP)
    text = caption_of([explanation], [attributions], position=place) if caption else ""
    lines = caption_lines(text, width)
    height = EDGE + len(maps) * (one_row + 0.06) + legend_height() + EDGE
    sheet = new_sheet(width, height + caption_height(lines), choose_theme(dark), ax)
    gray = _gray(image)
    for i, several in enumerate(maps):
        top = EDGE + i * (one_row + 0.06)
        sheet.write(EDGE, top, title_of(attributions[i]), SIZE, fontweight="bold")
        for j, scores in enumerate(several):
            axes = _place(sheet, layout, top + line_height(SIZE) + 0.03, j)
            head = f"layer {attributions[i].layers[j]}"
            _write_above(
                axes, sheet, head if scale == "shared" else f"{head}, {_text(ranges[i][j])}"
            )
            _lay_over(axes, image, gray, color_share(scores, *ranges[i][j]) * opacity)
            _frame(axes, sheet, image, place)
    ramp = import_matplotlib("matplotlib.colors").LinearSegmentedColormap.from_list(
        "overlay", [sheet.theme.ground, COLOR]
    )
    start, end = _legend(ranges, scale)
    what = what_is_drawn(attributions[0], normalize)
    top = height - EDGE - legend_height()
    draw_legend(sheet, top, width - EDGE, what, end, start=start, ramp=ramp)
    draw_caption(sheet, lines)
    return sheet.finish(text)


Range: TypeAlias = tuple[float, float]


def _ranges(maps: Sequence[Numbers], scale: Scale) -> list[list[Range]]:
    """The color range of each image. maps: [layers, rows, columns] for each method."""
    if scale == "auto":
        return [[color_range(image) for image in several] for several in maps]
    tops = iter(largest([image for several in maps for image in several], scale))
    return [[(0.0, next(tops)) for _ in several] for several in maps]


def _text(ends: Range) -> str:
    """A color range above an image."""
    low, high = ends
    return f"{scale_text(low)} to {scale_text(high)}" if low > 0 else f"max {scale_text(high)}"


def _legend(ranges: Sequence[Sequence[Range]], scale: Scale) -> tuple[str, str]:
    """The ends of the scale."""
    if scale == "shared":
        return "0", scale_text(ranges[0][0][1])
    stretched = [low > 0 for several in ranges for low, _ in several]
    start = "0, or minimum" if any(stretched) else "0"
    return "minimum" if all(stretched) else start, "maximum of the image"


def _write_above(axes: "Axes", sheet: Sheet, text: str) -> None:
    axes.annotate(
        text,
        (0, 1),
        (0, 2),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=SIZE,
        family=font_family(),
        color=sheet.theme.ink,
        annotation_clip=False,
    )


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
    smallest = text_width("layer 00, 0.000 to 0.000", SIZE) if own else SMALLEST
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
    check_type(explanation, Explanation, "Pass what explain_image returned.")
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
