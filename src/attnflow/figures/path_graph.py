"""The strongest paths of one position through the layers, one panel for each method."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.arrays import to_numpy
from attnflow.errors import check_number, check_type, check_whole
from attnflow.explanation import Explanation
from attnflow.figures.canvas import PAGE, Sheet, choose_theme, new_sheet, width_for
from attnflow.figures.display import Display, import_matplotlib
from attnflow.figures.graph_layout import SIZE, draw_widths, label_axes, measure, place_panel
from attnflow.figures.labels import label, scale_text, text_width
from attnflow.figures.panels import (
    PAPER_METHODS,
    Numbers,
    caption_height,
    caption_lines,
    check_drawing,
    draw_caption,
)
from attnflow.figures.paths import ENOUGH, MOST_PATHS, Followed, follow, strongest_paths
from attnflow.presentation import describe_settings, title_with_edges
from attnflow.selection import Position, resolve_layer, resolve_position, resolve_positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TIED = 0.01  # flows within this share of the highest count as equal
WIDEST = 7.0  # points: the line of all that leaves the position


def draw_paths(  # noqa: PLR0913 - one argument for each option
    explanation: Any,
    *,
    position: Position | Sequence[Position] | None = None,
    token: Position | None = None,
    layer: int = -1,
    methods: Sequence[str] = PAPER_METHODS,
    paths: int = MOST_PATHS,
    enough: float = ENOUGH,
    caption: bool = True,
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw along which paths the input reaches a position, as lines of different widths.

    Tokens are rows; layers go from the input on the left to the right. Raw attention and rollout
    are followed from the position down to the input: the width of a line is the share that passes
    it. For flow, it is one maximum flow to a token, and its minimum cut has another color. Lines
    between equal positions, which are mostly the residual connection, are gray. What is drawn are
    whole paths, the strongest first; above each panel is the share that they have together.

    position: the target position, or several; the explained ones by default.
    token: where the flow goes to; by default the token with the highest flow that is neither
    special nor the position; of those within 1% of it, the one with the highest rollout.
    layer: of the position. methods: of "raw", "rollout" and "flow".
    paths: the most paths to draw. enough: the share of the whole at which to stop.
    caption, width, dark, ax: as in `draw_maps`.
    Raises InputError for other methods, SelectionError for a layer, position or token that does
    not exist.
    """
    check_type(explanation, Explanation, "Pass what explain returned; paths need its graph.")
    check_drawing(methods=methods, caption=caption)
    check_whole("paths", paths)
    check_number("enough", enough, above=0, high=1)
    width = width_for(ax, width)
    number = resolve_layer(explanation.graph.n_layers, layer)
    places = _positions(explanation, position)
    sink = _sink(explanation, places, number, token) if "flow" in methods else None
    methods = _distinct(explanation, methods)
    followed = [follow(explanation, method, places, number, sink) for method in methods]
    kept = [strongest_paths(part.edges, most=paths, enough=enough) for part in followed]
    texts = [label(token) for token in explanation.raw(layers=1).labels]
    measures = measure(texts, len(methods), number, width)
    text = _caption(explanation, methods) if caption else ""
    lines = caption_lines(text, measures.width)
    height = measures.height + caption_height(lines)
    sheet = new_sheet(measures.width, height, choose_theme(dark), ax)
    for i, (method, part, (edges, n)) in enumerate(zip(methods, followed, kept, strict=True)):
        title = title_with_edges(method, explanation.graph.settings)
        if part.token is not None:
            title += f" to \u201c{texts[part.token]}\u201d"
        note = _share_note(part, edges, n, measures.panel_width - text_width(title, SIZE))
        axes, shown = place_panel(sheet, measures, i, title, note)
        _draw_edges(axes, sheet, edges / part.total if part.total else edges, part)
        chosen = places[0] if len(places) == 1 else None
        names = texts if shown else []
        label_axes(axes, sheet, measures, names, range(1, number + 1), chosen)
        if shown:
            _fade_labels(axes, sheet, [edges for edges, _ in kept], places)
    draw_widths(sheet, measures, None, "of what leaves the position")
    draw_caption(sheet, lines)
    return sheet.finish(text)


def _positions(explanation: Explanation, position: Any) -> tuple[int, ...]:
    names = explanation.tokens
    if position is not None:
        several = [position] if isinstance(position, int | str) else position
        return resolve_positions(names, len(names), several)
    rows = explanation.raw(layers=1).rows
    return rows[0].positions if rows else (explanation.position,)


def _sink(
    explanation: Explanation, places: Sequence[int], layer: int, token: Position | None
) -> int:
    """The token that the flow goes to."""
    names = explanation.tokens
    if token is not None:
        return resolve_position(names, len(names), token)
    options: dict[str, Any] = {"layers": layer, "positions": [list(places)]}
    flows = explanation.flow(**options).to_numpy()[0, 0]
    others = explanation.rollout(**options).to_numpy()[0, 0]
    ordinary = [i for i, mark in enumerate(explanation.special) if not mark and i not in places]
    candidates = ordinary or list(range(len(names)))
    best = max(float(flows[i]) for i in candidates)
    tied = [i for i in candidates if flows[i] >= (1 - TIED) * best]
    return max(tied, key=lambda i: float(others[i]))


def _distinct(explanation: Explanation, methods: Sequence[str]) -> tuple[str, ...]:
    """The methods without raw edge weights, if these are what rollout multiplies."""
    graph = explanation.graph
    if "rollout" in methods and np.array_equal(to_numpy(graph.weights), to_numpy(graph.attention)):
        return tuple(method for method in methods if method != "raw")
    return tuple(methods)


def _share_note(part: Followed, edges: Numbers, n: int, room: float) -> str:
    """How much of the whole the drawn paths have, in as many words as there is room for."""
    share = float(edges[-1].sum()) / part.total if part.total else 0.0
    drawn = f"{share:.0%}" if part.token is None else f"{share:.0%} of {scale_text(part.total)}"
    texts = (f"{n} path{'' if n == 1 else 's'}: {drawn}", drawn)
    return next((text for text in texts if text_width(text, SIZE - 1) + 0.08 <= room), "")


def _draw_edges(axes: Any, sheet: Sheet, edges: Numbers, part: Followed) -> None:
    """Draw shares [layers, positions, tokens] as curves; stronger ones are darker and on top."""
    collections = import_matplotlib("matplotlib.collections")
    colors = import_matplotlib("matplotlib.colors")
    path = import_matplotlib("matplotlib.path").Path
    layer, query, key = np.nonzero(edges > 0)
    share = edges[layer, query, key]
    order = np.lexsort((share, query != key))
    curves, shades, widths = [], [], []
    codes = [path.MOVETO, path.CURVE4, path.CURVE4, path.CURVE4]
    for i in order:
        x, q, k = int(layer[i]), int(query[i]), int(key[i])
        curves.append(path([(x, k), (x + 0.5, k), (x + 0.5, q), (x + 1, q)], codes))
        color = sheet.theme.faint if q == k else sheet.theme.edge
        if (x, q, k) in part.cut:
            color = sheet.theme.highlight
        shades.append(colors.to_rgba(color, 0.35 + 0.55 * float(share[i]) ** 0.5))
        widths.append(max(WIDEST * float(share[i]), 0.3))
    lines = collections.PathCollection(
        curves, facecolors="none", edgecolors=shades, linewidths=widths, capstyle="butt"
    )
    lines.set_gid("paths")
    axes.add_collection(lines)
    _draw_nodes(axes, sheet, edges)


def _draw_nodes(axes: Any, sheet: Sheet, edges: Numbers) -> None:
    """Draw a point for each position that paths pass, the larger the more passes."""
    n_layers, n, _ = edges.shape
    passing = np.vstack([edges.sum(axis=1), np.zeros(n)])  # from the input up
    passing[1:] += edges.sum(axis=2) * (passing[1:] == 0)
    level, place = np.nonzero(passing > 0)
    sizes = 1 + 10 * passing[level, place]
    axes.scatter(level, place, s=sizes, color=sheet.theme.ink, zorder=3, linewidths=0)
    axes.set_xlim(-0.15, n_layers + 0.15)
    axes.set_ylim(n - 0.5, -0.5)


def _fade_labels(axes: Any, sheet: Sheet, panels: Sequence[Numbers], places: Sequence[int]) -> None:
    """Write tokens that no drawn path reaches in gray."""
    received = np.sum([edges[0].sum(axis=0) for edges in panels], axis=0)
    for i, tick in enumerate(axes.yaxis.get_ticklabels()):
        if not received[i] > 0 and i not in places:
            tick.set_color(sheet.theme.faint)


def _caption(explanation: Explanation, methods: Sequence[str]) -> str:
    settings = " \N{MIDDLE DOT} ".join(
        describe_settings(explanation.graph.settings, model=explanation.model)
    )
    cut = " Orange: the minimum cut of the flow." if "flow" in methods else ""
    said = f"Gray: from a position to itself.{cut}"
    return label(f"{settings}. {said}" if settings else said)
