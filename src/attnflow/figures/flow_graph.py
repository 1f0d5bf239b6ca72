"""The attention graph over layers, one panel for each method: the paper's figure 1."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from attnflow.attribution import Attribution, Normalize, Special, check_normalize
from attnflow.errors import InputError, check_choice, check_number
from attnflow.explanation import Explanation
from attnflow.figures.canvas import (
    PAGE,
    Sheet,
    choose_theme,
    new_sheet,
    width_for,
)
from attnflow.figures.display import Display, import_matplotlib
from attnflow.figures.graph_layout import Measures, draw_widths, label_axes, measure, place_panel
from attnflow.figures.labels import label, scale_text
from attnflow.figures.panels import (
    PAPER_METHODS,
    Numbers,
    Scale,
    Source,
    caption_height,
    caption_lines,
    caption_of,
    check_drawing,
    check_scale,
    choose_scale,
    draw_caption,
    gather,
    largest,
    list_sources,
    title_of,
    what_is_drawn,
)
from attnflow.figures.path_graph import draw_paths
from attnflow.figures.paths import METHODS as FOLLOWED
from attnflow.selection import Layers, Position, resolve_position

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines: TypeAlias = Literal["auto", "all", "paths"]

MANY = 12  # tokens: with more, the lines of other positions fade next to highlighted ones
DEEP = 8  # layers: with more, only paths are drawn


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
    lines: Lines = "auto",
    caption: bool = True,
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw the attention of positions to tokens, layer by layer, as lines of different widths.

    lines: "all" lines between positions, as described here, or only the strongest "paths" of one
    position, see `draw_paths`. "auto": paths of an Explanation of more than 12 tokens or 8 layers,
    where nobody could follow all lines, unless `layers`, `words` or other options ask for these.

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
    check_choice("lines", lines, ("auto", "all", "paths"))
    check_drawing(methods=methods, words=words, special=special, caption=caption)
    check_normalize(normalize)
    check_number("threshold", threshold, low=0, high=1)
    list_sources(source)
    drawing: dict[str, Any] = {"caption": caption, "width": width, "dark": dark, "ax": ax}
    chosen_options = layers is not None or words or special != "show" or normalize != "rows"
    if lines == "paths" or (lines == "auto" and not chosen_options and _crowded(source, methods)):
        return draw_paths(source, position=highlight, methods=methods, **drawing)
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
    measures = measure(texts, len(panels), len(first.layers), width)
    explanation = source if isinstance(source, Explanation) else None
    text = caption_of([explanation], [attributions], position=highlight) if caption else ""
    said = caption_lines(text, measures.width)
    height = measures.height + caption_height(said)
    sheet = new_sheet(measures.width, height, choose_theme(dark), ax)
    for i, weights in enumerate(panels):
        note = f"max {scale_text(tops[i])}" if chosen_scale == "own" else ""
        axes, shown = place_panel(sheet, measures, i, title_of(attributions[i]), note)
        _draw_lines(axes, sheet, measures, weights / tops[i], threshold, chosen)
        label_axes(axes, sheet, measures, texts if shown else [], attributions[i].layers, chosen)
    top = tops[0] if chosen_scale == "shared" else None
    what = what_is_drawn(first, normalize) if top is not None else "of the maximum"
    draw_widths(sheet, measures, top, what)
    draw_caption(sheet, said)
    return sheet.finish(text)


def _crowded(source: Source, methods: Sequence[str]) -> bool:
    """Whether an Explanation has too many lines, and paths can be drawn instead."""
    if not isinstance(source, Explanation) or not set(methods) <= set(FOLLOWED):
        return False
    return len(source.tokens) > MANY or source.graph.n_layers > DEEP


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
