"""Heat maps of one position over tokens and layers: the paper's figures 2 and 3."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.attribution import Attribution, Normalize
from attnflow.errors import InputError, check_names
from attnflow.explanation import Explanation
from attnflow.figures.canvas import PAGE, choose_theme, new_sheet, width_for
from attnflow.figures.display import Display
from attnflow.figures.labels import draw_legend, label, legend_height, scale_text
from attnflow.figures.panels import (
    EDGE,
    PAPER_METHODS,
    MapScale,
    Numbers,
    Panel,
    Source,
    SpecialChoice,
    arrange,
    caption_height,
    caption_lines,
    caption_of,
    check_drawing,
    check_scale,
    choose_scale,
    choose_special,
    draw_caption,
    draw_row,
    fit,
    gather,
    hidden_note,
    largest,
    list_sources,
    position_of,
    title_of,
    what_is_drawn,
)
from attnflow.presentation import color_limit, color_share, row_ranges
from attnflow.selection import Layers, Position

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_maps(  # noqa: PLR0913 - one argument for each option
    sources: Source | Sequence[Explanation],
    *,
    position: Position | None = None,
    methods: Sequence[str] = PAPER_METHODS,
    layers: Layers = None,
    normalize: Normalize = "rows",
    words: bool = False,
    special: SpecialChoice = "auto",
    scale: MapScale = "auto",
    titles: Sequence[str] = (),
    caption: bool = True,
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw how much each token reaches a position at each layer, one panel for each method.

    Tokens are columns; layers are rows, the first at the bottom.
    sources: one Explanation, or several with a row of panels each; or Attributions, which share a
    row.
    position: the target position; the explained one by default.
    methods, layers, words: the options of Explanation.attribute.
    special: "show" or "hide" special tokens such as [CLS], without rescaling the others; "auto"
    hides them if they have more than 3 times the highest score of all others at half of the layers
    or more, because the others would be blank. The caption says so.
    normalize: "rows" scales the scores at each layer to sum to 1, as in the paper's figures;
    "none" or "receptive_field" as in Explanation.attribute.
    scale: the color scale: "shared" by all panels, or each its "own", both from 0; or from the
    lowest to the highest score of each "layer", to see ranks where scores differ little. "auto"
    is "shared", unless a panel would have hardly any contrast: then each panel has its own, and
    panels of flat scores one for each layer; and a single token that dominates in the same way has
    the darkest color without extending the scale. The figure says which.
    titles: a line above each row of panels.
    caption: name the model and its settings below; for one explanation, also what its rows do
    not tell (see `attnflow.notes`).
    width: inches; 3.3 is about a column of a page, 6.9 the full width. Panels that would be too
    narrow are placed below each other; many tokens make the figure wider.
    dark: use a dark background.
    ax: axes of any figure, which take all of it: width is theirs, and what does not fit is made
    smaller.
    """
    check_scale(scale, "layer")
    check_drawing(methods=methods, words=words, special=special, caption=caption)
    check_names("titles", titles)
    width = width_for(ax, width)
    options: dict[str, Any] = {"methods": methods, "layers": layers, "normalize": normalize}
    options["words"] = words
    options["special"] = choose_special(_rows(sources), special, options, position)
    drawn = [_gather(source, position, options) for source in _rows(sources)]
    if titles and len(titles) != len(drawn):
        raise InputError(
            f"titles has {len(titles)} entries for {len(drawn)} rows",
            expected=f"{len(drawn)} entries",
            fix="Pass a title for each Explanation.",
        )
    groups, (start, end) = _shade([_panels(row) for row in drawn], scale)
    rows = arrange(groups, titles, width)
    width = max(width, *(fit(row, width).width for row in rows))
    fitted = [fit(row, width) for row in rows]
    text = _caption(drawn, hidden=special == "auto") if caption else ""
    lines = caption_lines(text, width)
    height = EDGE + sum(row.height for row in fitted) + legend_height() + EDGE
    sheet = new_sheet(width, height + caption_height(lines), choose_theme(dark), ax)
    top = EDGE
    for row in fitted:
        draw_row(sheet, top, row)
        top += row.height
    what = what_is_drawn(drawn[0].attributions[0], normalize)
    draw_legend(sheet, top, width - EDGE, what, end, start=start)
    draw_caption(sheet, lines)
    return sheet.finish(text)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a row of panels shows: the scores of one position by each method."""

    source: Source
    attributions: list[Attribution]
    position: Position


def _gather(source: Source, position: Position | None, options: dict[str, Any]) -> Drawn:
    target = position_of(source, position, words=options["words"])
    return Drawn(source, gather(source, positions=target, **options), target)


def _caption(drawn: Sequence[Drawn], *, hidden: bool) -> str:
    """The caption. hidden: whether special tokens are hidden because they dominate, if they are."""
    explanations = [row.source if isinstance(row.source, Explanation) else None for row in drawn]
    attributions = [row.attributions for row in drawn]
    text = caption_of(explanations, attributions, position=drawn[0].position)
    options = drawn[0].attributions[0].settings
    if hidden and options.get("special") == "hide" and len(drawn) == 1:
        text = " ".join([text, *map(label, map(hidden_note, filter(None, explanations)))])
    return text


def _rows(sources: Source | Sequence[Explanation]) -> list[Source]:
    """The source of each row."""
    if isinstance(sources, Explanation | Attribution):
        return [sources]
    listed: list[Any] = list_sources(sources)
    return listed if isinstance(listed[0], Explanation) else [listed]


def _panels(drawn: Drawn) -> list[Panel]:
    """The panels of one row, one for each method."""
    panels = []
    for attribution in drawn.attributions:
        tokens = tuple(attribution.labels[i] for i in attribution.columns)
        values = attribution[drawn.position]
        panels.append(Panel(values, values, tokens, attribution.layers, title_of(attribution), 1.0))
    return panels


def _shade(groups: list[list[Panel]], scale: MapScale) -> tuple[list[list[Panel]], tuple[str, str]]:
    """Set the shades of all panels. Returns them, and the ends of the scale for the legend."""
    panels = [panel for group in groups for panel in group]
    if scale == "layer":
        stretched = [[replace(p, shades=_spread(p.values)) for p in group] for group in groups]
        return stretched, ("minimum", "maximum of the layer")
    values = [panel.values for panel in panels]
    flat = [scale == "auto" and row_ranges(panel) is not None for panel in values]
    chosen = choose_scale(values, scale)
    counted = values
    if scale == "auto":
        counted = [np.minimum(panel, color_limit(panel)) for panel in values]
        chosen = "own" if any(flat) else choose_scale(counted, scale)
    tops = iter(zip(largest(counted, chosen), flat, strict=True))
    shaded = [
        [_with_top(panel, *next(tops), own=chosen == "own") for panel in group] for group in groups
    ]
    if chosen == "shared":
        top = shaded[0][0].top
        exceeded = any(panel.max(initial=0.0) > top for panel in values)
        return shaded, ("0", f"{scale_text(top)}{' or more' if exceeded else ''}")
    if all(flat):
        return shaded, ("minimum", "maximum of the layer")
    start = "0, or minimum" if any(flat) else "0"
    return shaded, (start, "maximum" if any(flat) else "maximum of the map")


def _with_top(panel: Panel, top: float, flat: bool, *, own: bool) -> Panel:
    """A panel with its shades. flat: whether each layer has its own range."""
    if flat:
        ranges = row_ranges(panel.values) or []
        rows = [color_share(row, *ends) for row, ends in zip(panel.values, ranges, strict=True)]
        return replace(panel, shades=np.asarray(rows), scale="per layer")
    highest = float(panel.values.max(initial=0.0))
    text = f"max {scale_text(top)}" if highest <= top else f"{scale_text(top)} or more"
    shades = np.minimum(panel.values / top, 1.0)
    return replace(panel, shades=shades, top=top, scale=text if own else "")


def _spread(values: Numbers) -> Numbers:
    """Stretch values [layers, tokens] to the range 0 to 1 at each layer; 0 if all are equal."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    spread: Numbers = (values - least) / np.where(most > least, most - least, 1.0)
    return spread
