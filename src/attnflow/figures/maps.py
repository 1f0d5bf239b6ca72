"""Heat maps of one position over tokens and layers: the paper's figures 2 and 3."""

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
    PAPER_METHODS,
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
    methods: Sequence[str] = PAPER_METHODS,
    layers: Layers = None,
    normalize: Normalize = "rows",
    words: bool = False,
    special: Special = "show",
    scale: MapScale = "shared",
    titles: Sequence[str] = (),
    width: float = PAGE,
    dark: bool = False,
) -> "Figure":
    """Draw how much each token reaches a position at each layer, one panel for each method.

    Tokens are columns; layers are rows, the first at the bottom.
    sources: one Explanation, or several with a row of panels each; or Attributions, which share a
    row.
    position: the target position; the explained one by default.
    methods, layers, words, special: the options of Explanation.attribute.
    normalize: "rows" scales the scores at each layer to sum to 1, as in the paper's figures;
    "none" or "receptive_field" as in Explanation.attribute.
    scale: the color scale: "shared" by all panels, or each its "own", both from 0; or from the
    lowest to the highest score of each "layer", to see ranks where scores differ little.
    titles: a line above each row of panels.
    width: inches; 3.3 is about a column of a page, 6.9 the full width. Panels that would be too
    narrow are placed below each other; many tokens make the figure wider.
    dark: use a dark background.
    """
    if scale != "layer":
        check_scale(scale)
    options = {"methods": methods, "layers": layers, "normalize": normalize}
    options |= {"words": words, "special": special}
    groups = [_panels(source, position, options) for source in _rows(sources)]
    if titles and len(titles) != len(groups):
        raise InputError(
            f"titles has {len(titles)} entries for {len(groups)} rows",
            expected=f"{len(groups)} entries",
            fix="Pass a title for each Explanation.",
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
    ends = {"shared": scale_text(groups[0][0].top), "own": "maximum of the map"}
    end, start = ends.get(scale, "maximum of the layer"), "minimum" if scale == "layer" else "0"
    draw_legend(sheet, top, width - EDGE, what, end, start=start)
    return sheet.figure


def _rows(sources: Source | Sequence[Explanation]) -> list[Source]:
    """The source of each row."""
    if isinstance(sources, Explanation | Attribution):
        return [sources]
    if sources and all(isinstance(source, Explanation) for source in sources):
        return list(sources)
    return [sources]  # type: ignore[list-item] # gather checks the type


def _panels(source: Source, position: Position | None, options: dict[str, Any]) -> list[Panel]:
    """The panels of one row, one for each method."""
    target = position_of(source, position, words=options["words"])
    panels = []
    for attribution in gather(source, positions=target, **options):
        tokens = tuple(attribution.tokens[i] for i in attribution.columns)
        values = attribution[target]
        panels.append(Panel(values, values, tokens, attribution.layers, title_of(attribution), 1.0))
    return panels


def _shade(groups: list[list[Panel]], scale: MapScale) -> list[list[Panel]]:
    """Set the shades of all panels."""
    if scale == "layer":
        return [
            [replace(panel, shades=_spread(panel.values)) for panel in group] for group in groups
        ]
    tops = iter(largest([panel.values for group in groups for panel in group], scale))
    return [[_with_top(panel, next(tops)) for panel in group] for group in groups]


def _with_top(panel: Panel, top: float) -> Panel:
    return replace(panel, shades=panel.values / top, top=top)


def _spread(values: Numbers) -> Numbers:
    """Stretch values [layers, tokens] to the range 0 to 1 at each layer; 0 if all are equal."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    spread: Numbers = (values - least) / np.where(most > least, most - least, 1.0)
    return spread
