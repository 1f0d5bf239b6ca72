"""Heat-maps of one position over tokens and layers: the paper's figures 2 and 3."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.attribution import Attribution, Normalize, Special
from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.figures.canvas import PAGE, choose_theme, new_sheet
from attnflow.figures.labels import draw_legend, legend_height, scale_text
from attnflow.figures.panels import (
    EDGE,
    METHODS,
    MapScale,
    Numbers,
    Panel,
    Source,
    arrange,
    check_scale,
    draw_row,
    fit,
    gather,
    largest,
    position_of,
    title_of,
)
from attnflow.selection import Layers, Position

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_maps(  # noqa: PLR0913 - one argument for each option
    sources: Source | Sequence[Explanation],
    *,
    position: Position | None = None,
    methods: Sequence[str] = METHODS,
    layers: Layers = None,
    normalize: Normalize = "rows",
    words: bool = False,
    special: Special = "show",
    scale: MapScale = "shared",
    titles: Sequence[str] = (),
    width: float = PAGE,
    dark: bool = False,
) -> "Figure":
    """Draw how much each token reaches a position at each layer, a panel for each method.

    Tokens go across and layers upward, the first at the bottom.
    sources: an Explanation, or several, each of which gets a row of panels; or Attributions, which
    share one row.
    position: the position to look from; the explained one if not given.
    methods, layers, words, special: what to compute of an Explanation, as in its methods.
    normalize: "rows" scales the scores at each layer to sum to 1, which is how the authors of the
    paper drew them; "none" or "receptive_field" as in the methods.
    scale: one scale of shades for all panels ("shared"), or for each its "own", both from 0; or,
    to see ranks where scores differ little, from the least to the most at each "layer".
    titles: a line above each row of panels.
    width: inches; about 3.3 is a column of a page, 6.9 the whole. Panels that would be too narrow
    beside each other go below each other, and too many tokens make the figure wider.
    dark: whether to draw on a dark ground.
    """
    if scale != "layer":
        check_scale(scale)
    options = {"methods": methods, "layers": layers, "normalize": normalize}
    options |= {"words": words, "special": special}
    groups = [_panels(one, position, options) for one in _several(sources)]
    if titles and len(titles) != len(groups):
        raise InputError(
            f"{len(titles)} titles were given for {len(groups)} rows",
            expected="as many",
            fix="Give a title for each Explanation.",
        )
    groups = _shade(groups, scale)
    rows = arrange(groups, titles, width, own_scale=scale == "own")
    fitted = [fit(row, width) for row in rows]
    width = max(width, *(row.width for row in fitted))
    fitted = [fit(row, width) for row in rows]
    height = EDGE + sum(row.height for row in fitted) + legend_height() + EDGE
    sheet = new_sheet(width, height, choose_theme(dark))
    top = EDGE
    for row in fitted:
        draw_row(sheet, top, row)
        top += row.height
    what = "share of attention" if normalize == "rows" else "attention"
    ends = {"shared": scale_text(groups[0][0].top), "own": "most in the map"}
    end, start = ends.get(scale, "most at the layer"), "least" if scale == "layer" else "0"
    draw_legend(sheet, top, width - EDGE, what, end, start=start)
    return sheet.figure


def _several(sources: Source | Sequence[Explanation]) -> list[Source]:
    """What goes into each row."""
    if isinstance(sources, Explanation | Attribution):
        return [sources]
    if sources and all(isinstance(one, Explanation) for one in sources):
        return list(sources)
    return [sources]  # type: ignore[list-item] # gather refuses what is no Attribution


def _panels(source: Source, position: Position | None, options: dict[str, Any]) -> list[Panel]:
    """The maps of one row, one for each method."""
    place = position_of(source, position, words=options["words"])
    panels = []
    for attribution in gather(source, positions=place, **options):
        tokens = tuple(attribution.tokens[i] for i in attribution.columns)
        values = attribution[place]
        panels.append(Panel(values, values, tokens, attribution.layers, title_of(attribution), 1.0))
    return panels


def _shade(groups: list[list[Panel]], scale: MapScale) -> list[list[Panel]]:
    """The panels with their shades."""
    if scale == "layer":
        return [
            [replace(panel, shades=_spread(panel.values)) for panel in group] for group in groups
        ]
    tops = iter(largest([panel.values for group in groups for panel in group], scale))
    return [[_with_top(panel, next(tops)) for panel in group] for group in groups]


def _with_top(panel: Panel, top: float) -> Panel:
    return replace(panel, shades=panel.values / top, top=top)


def _spread(values: Numbers) -> Numbers:
    """Values [layers, tokens] moved to reach from 0 to 1 at each layer; 0 where all are equal."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    spread: Numbers = (values - least) / np.where(most > least, most - least, 1.0)
    return spread
