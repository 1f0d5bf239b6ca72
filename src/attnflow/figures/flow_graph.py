"""The attention graph over layers, one panel for each method: the paper's figure 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.attribution import Attribution, Normalize, Special
from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.figures.canvas import (
    PAGE,
    Sheet,
    choose_theme,
    font_family,
    label_ticks,
    new_sheet,
    width_for,
)
from attnflow.figures.display import Display, import_matplotlib
from attnflow.figures.labels import SMALLEST, label, line_height, scale_text, text_width, widest
from attnflow.figures.panels import (
    PAPER_METHODS,
    Numbers,
    Scale,
    Source,
    caption_height,
    caption_lines,
    caption_of,
    check_scale,
    choose_scale,
    draw_caption,
    gather,
    largest,
    title_of,
    what_is_drawn,
)
from attnflow.selection import Layers, Position, resolve_position

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 7.0  # points
EDGE = 0.06  # inches
GAP = 0.2
ROW = 0.2  # inches between tokens
TALLEST = 4.5
NARROWEST = 1.3  # inches: narrower panels are placed below each other
LAYER = 0.14  # inches: the smallest width of a layer
THICKEST = 0.35  # the thickest line, as a share of the distance between tokens
MANY = 12  # tokens: with more, the lines of other positions fade next to highlighted ones


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


def draw_graph(  # noqa: PLR0913 - one argument for each option
    source: Source,
    *,
    methods: Sequence[str] = PAPER_METHODS,
    layers: Layers = None,
    normalize: Normalize = "rows",
    words: bool = False,
    special: Special = "show",
    highlight: Position | None = None,
    threshold: float = 0.01,
    scale: Scale = "auto",
    caption: bool = True,
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw the attention of positions to tokens, layer by layer, as lines of different widths.

    Tokens are rows; layers go from the input on the left to the right. The lines that end at a
    position of a layer show what it attends to. For raw attention these are positions of the layer
    below. For rollout and flow they are input tokens, so the column to the left of the lines is
    the input at every layer. The paper's figure is drawn the same way; it shows how the residual
    connection, the horizontal lines, fades with depth. At the first layer all methods start from
    the input, and rollout equals flow.

    source: an Explanation, or Attributions of all positions and tokens.
    methods, layers, words, special, normalize, width, dark, ax: as in `draw_maps`.
    scale: line widths "shared" by all panels, or each panel its "own"; "auto" is "shared" unless
    the lines of a panel would hardly be visible.
    caption: name the model and its settings below; with `highlight`, also what the rows of that
    position do not tell.
    highlight: a position, by its index or text, whose lines have another color; with many tokens,
    the other lines fade.
    threshold: leave out lines below this share of the largest weight.
    Raises InputError if positions or tokens are missing.
    """
    check_scale(scale)
    width = width_for(ax, width)
    positions = None
    if isinstance(source, Explanation):
        positions = range(len(source.words.texts if words else source.tokens))
    attributions = gather(
        source,
        methods=methods,
        layers=layers,
        positions=positions,
        normalize=normalize,
        words=words,
        special=special,
    )
    panels = [_square(attribution) for attribution in attributions]
    first = attributions[0]
    texts = [label(first.labels[i]) for i in first.columns]
    chosen = None
    if highlight is not None:
        place = resolve_position(first.tokens, len(first.tokens), highlight)
        chosen = first.columns.index(place) if place in first.columns else None
    chosen_scale = choose_scale(panels, scale)
    tops = largest(panels, chosen_scale)
    measures = _measure(texts, len(panels), len(first.layers), width)
    explanation = source if isinstance(source, Explanation) else None
    text = caption_of([explanation], [attributions], position=highlight) if caption else ""
    lines = caption_lines(text, measures.width)
    height = measures.height + caption_height(lines)
    sheet = new_sheet(measures.width, height, choose_theme(dark), ax)
    for i, weights in enumerate(panels):
        axes, shown = _place(
            sheet, measures, i, title_of(attributions[i]), scale_text(tops[i]), chosen_scale
        )
        _draw_lines(axes, sheet, measures, weights / tops[i], threshold, chosen)
        _label(axes, sheet, measures, texts if shown else [], attributions[i].layers, chosen)
    top = tops[0] if chosen_scale == "shared" else None
    _draw_legend(sheet, measures, top, what_is_drawn(first, normalize))
    draw_caption(sheet, lines)
    return sheet.finish(text)


def _square(attribution: Attribution) -> Numbers:
    """The weights [layers, tokens, tokens]; hidden tokens are also removed from the positions."""
    missing = set(attribution.columns) - set(attribution.positions)
    if missing:
        raise InputError(
            f"the attribution ({attribution.method}) lacks {len(missing)} of "
            f"{len(attribution.columns)} positions",
            expected="all positions, because each is a node of the graph",
            fix="Compute it with positions=range(n), where n is the number of tokens.",
        )
    rows = [attribution.positions.index(i) for i in attribution.columns]
    scores: Numbers = attribution.scores[:, rows, :]
    return scores


def _measure(texts: Sequence[str], n_panels: int, n_layers: int, width: float) -> Measures:
    row = min(ROW, max(TALLEST / len(texts), line_height(SMALLEST)))
    size = min(SIZE, row / line_height(1))
    while size > SMALLEST and widest(texts, size) > 0.4 * width:
        size = max(size - 0.5, SMALLEST)
    left = EDGE + max(widest(texts, size), text_width("layer", SIZE)) + 0.08
    least = max(NARROWEST, LAYER * n_layers)
    side_by_side = (width - left - EDGE - GAP * (n_panels - 1)) / n_panels
    across = n_panels if side_by_side >= least else 1
    panel_width = max(side_by_side if across > 1 else width - left - EDGE, least)
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


def _place(
    sheet: Sheet, measures: Measures, i: int, title: str, top: str, scale: Scale
) -> tuple[Any, bool]:
    """Add the axes and the title of a panel; also return whether to write its tokens."""
    column, row = i % measures.across, i // measures.across
    left = measures.left + column * (measures.panel_width + GAP)
    above = EDGE + row * (measures.panel_height + 2 * line_height(SIZE) + 0.14)
    sheet.write(left, above, title, SIZE)
    if scale == "own":
        right = left + measures.panel_width
        sheet.write(right, above, f"max {top}", SIZE - 1, ha="right", color=sheet.theme.faint)
    below = above + line_height(SIZE) + 0.03
    axes = sheet.axes(left, below, measures.panel_width, measures.panel_height)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_gid(f"graph {title}")
    return axes, column == 0


def _draw_lines(
    axes: Any,
    sheet: Sheet,
    measures: Measures,
    weights: Numbers,
    threshold: float,
    chosen: int | None,
) -> None:
    """Draw weights [layers, positions, tokens], from 0 to 1, as lines; the strongest on top."""
    collections = import_matplotlib("matplotlib.collections")
    colors = import_matplotlib("matplotlib.colors")
    n_layers, n, _ = weights.shape
    layer, query, key = np.nonzero(weights >= max(threshold, 1e-9))
    strength = weights[layer, query, key]
    order = np.lexsort((strength, query == chosen if chosen is not None else strength * 0))
    layer, query, key, strength = layer[order], query[order], key[order], strength[order]
    ends = np.stack(
        [np.stack([layer, key], axis=-1), np.stack([layer + 1, query], axis=-1)], axis=1
    )  # [lines, 2 ends, x and y]
    shades = np.asarray([colors.to_rgba(sheet.theme.edge)] * len(strength)).reshape(-1, 4)
    shades[:, 3] = 0.07 + 0.93 * strength**0.75
    if chosen is not None:
        # With many tokens, the lines of all positions would hide the highlighted ones.
        lit, faded = query == chosen, min(1.0, MANY / n)
        shades[lit, :3] = colors.to_rgb(sheet.theme.highlight)
        shades[~lit, 3] *= faded
        shades[lit, 3] **= max(faded, 0.5)
    lines = collections.LineCollection(
        ends,
        linewidths=np.maximum(measures.thickest * strength, 0.1),
        colors=shades,
        capstyle="butt",
    )
    lines.set_gid("lines")
    axes.add_collection(lines)
    nodes = [(x, y) for x in range(n_layers + 1) for y in range(n)]
    axes.scatter(*zip(*nodes, strict=True), s=2.2, color=sheet.theme.ink, zorder=3, linewidths=0)
    axes.set_xlim(-0.08, n_layers + 0.08)
    axes.set_ylim(n - 0.5, -0.5)


def _label(
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


def _draw_legend(sheet: Sheet, measures: Measures, top: float | None, what: str) -> None:
    """Draw the legend of line widths. top: the largest weight, if the scale is shared."""
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
    sheet.write(
        right, middle, what if top is not None else "of the maximum", size, ha="right", **style
    )
