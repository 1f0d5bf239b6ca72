"""Figures of a study: perturbation curves, and critical-difference diagrams (Demsar 2006).

Both take plain numbers by name, such as those of `attnflow.study`, and know nothing of studies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.arrays import read_numbers
from attnflow.errors import (
    InputError,
    ShapeError,
    check_names,
    check_number,
    check_type,
    check_whole,
)
from attnflow.figures.canvas import (
    PAGE,
    Sheet,
    Theme,
    choose_theme,
    label_ticks,
    new_sheet,
    width_for,
)
from attnflow.figures.display import Display
from attnflow.figures.labels import label, line_height, text_width, widest
from attnflow.figures.panels import caption_height, caption_lines, draw_caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 7.0  # points
LINE = line_height(SIZE)
EDGE = 0.06  # inches
GAP = 0.25
PANEL = 1.7  # inches: the height of a panel of curves
NARROWEST = 1.9  # inches: narrower panels are placed below each other
KEY = 0.32  # inches: the line of a legend
STYLES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
MARKS = ("o", "s", "^", "D")


@dataclass(frozen=True)
class Stroke:
    """How a curve is drawn: curves differ in color, dashes and marks, not in color alone."""

    color: str
    dashes: Any
    mark: str

    def draw(self, axes: "Axes", x: Any, y: Any, **options: Any) -> None:
        """Draw a line."""
        axes.plot(
            x, y, color=self.color, linestyle=self.dashes, marker=self.mark, linewidth=1.1,
            markersize=2.6, **options,
        )  # fmt: skip


def choose_strokes(names: Iterable[str], baselines: Sequence[str], theme: Theme) -> dict[str, Any]:
    """Return the stroke of each curve; baselines are gray, without marks."""
    strokes: dict[str, Any] = {}
    plain = gray = 0
    for name in names:
        if name in baselines:
            strokes[name] = Stroke(theme.faint, STYLES[1:][gray % 3], "")
            gray += 1
            continue
        n = len(theme.categories)
        around = plain // n
        strokes[name] = Stroke(
            theme.categories[plain % n], STYLES[around % 4], MARKS[(plain + around) % 4]
        )
        plain += 1
    return strokes


def draw_curves(
    curves: Mapping[str, ArrayLike],
    least: Mapping[str, ArrayLike] | None = None,
    *,
    baselines: Sequence[str] = ("random",),
    caption: str = "",
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw the probability of a prediction as more and more tokens are removed.

    curves: [points] by name, at equal shares from no token to all, the most relevant removed
    first: good explanations fall fast. least: the same with the least relevant removed first, in
    a second panel: good explanations stay high.
    baselines: names of curves to draw in gray. caption: the text below, such as the model and
    what takes the place of removed tokens. width, dark, ax: as in `draw_maps`.
    Raises InputError without curves, ShapeError for one with fewer than 2 points.
    """
    _check_caption(caption)
    check_names("baselines", baselines)
    width = width_for(ax, width)
    panels = {"most relevant removed first": _check_curves(curves)}
    if least is not None:
        panels["least relevant removed first"] = _check_curves(least)
    theme = choose_theme(dark)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    rows = _fill_rows(names, width - 2 * EDGE)
    said = label(caption) if caption else ""
    lines = caption_lines(said, width)
    left = EDGE + LINE + text_width("0.00", SIZE) + 0.08
    across = (width - left - EDGE - (len(panels) - 1) * (GAP + left)) / len(panels)
    beside = across >= NARROWEST or len(panels) == 1
    across = across if beside else width - left - EDGE
    block = LINE + 0.04 + PANEL + 2 * LINE + 0.12
    legend = len(rows) * (LINE + 0.03) + 0.04
    height = EDGE + block * (1 if beside else len(panels)) + legend + caption_height(lines) + EDGE
    sheet = new_sheet(width, height, theme, ax)
    strokes = choose_strokes(names, baselines, theme)
    for i, (title, panel) in enumerate(panels.items()):
        place = left + (i * (across + GAP + left) if beside else 0)
        top = EDGE + (0 if beside else i * block)
        _draw_panel(sheet, (place, top, across), title, panel, strokes)
    _draw_keys(sheet, height - EDGE - caption_height(lines) - legend, rows, strokes)
    draw_caption(sheet, lines)
    return sheet.finish(said)


def _check_caption(caption: object) -> None:
    """Raise InputError unless a caption is a text."""
    check_type(caption, str, "Pass the text below the figure.")


def _check_curves(curves: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.float64]]:
    check_type(curves, Mapping, "Pass curves by name, such as study.curves('morf').")
    if not curves:
        raise InputError(
            "there are no curves to draw", expected="at least one", fix="Pass curves by name."
        )
    checked = {str(name): read_numbers(values) for name, values in curves.items()}
    for name, values in checked.items():
        if values.ndim != 1 or len(values) < 2:
            raise ShapeError(
                f"the curve of {name!r} has shape {list(values.shape)}",
                expected="[points], 2 or more",
                fix="Pass mean curves, such as those of study.curves('morf').",
            )
    return checked


def _draw_panel(
    sheet: Sheet,
    place: tuple[float, float, float],
    title: str,
    curves: Mapping[str, NDArray[np.float64]],
    strokes: Mapping[str, Stroke],
) -> None:
    """Draw one panel. place: left, top and width in inches, with the title inside."""
    left, top, across = place
    sheet.write(left, top, title, SIZE)
    below = top + LINE + 0.04
    axes = sheet.axes(left, below, across, PANEL)
    axes.set_gid("curves")
    highest = max(1.0, *(float(np.nanmax(values)) for values in curves.values()))
    for name, values in curves.items():
        strokes[name].draw(axes, np.linspace(0, 1, len(values)), values, gid=name, clip_on=False)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, highest)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    faint = {"color": sheet.theme.faint}
    places = [0.0, 0.25, 0.5, 0.75, 1.0]
    label_ticks(axes, "x", places, [f"{value:.0%}" for value in places], SIZE - 1, **faint)
    axes.xaxis.get_ticklabels()[0].set_horizontalalignment("left")
    axes.xaxis.get_ticklabels()[-1].set_horizontalalignment("right")
    label_ticks(axes, "y", places, [f"{value:g}" for value in places], SIZE - 1, **faint)
    bottom = below + PANEL + LINE + 0.06
    sheet.write(left + across / 2, bottom, "share of tokens removed", SIZE, ha="center", **faint)
    middle = below + PANEL / 2
    room = text_width("0.00", SIZE) + 0.08
    sheet.write(
        left - room, middle, "p of the prediction", SIZE, rotation=90, ha="right", va="center",
        **faint,
    )  # fmt: skip


def _fill_rows(names: Sequence[str], width: float) -> list[list[str]]:
    """Return the names of a legend in lines of at most this width."""
    rows: list[list[str]] = []
    room = 0.0
    for name in names:
        wide = KEY + 0.06 + text_width(label(name), SIZE) + 0.16
        if not rows or wide > room:
            rows.append([])
            room = width
        rows[-1].append(name)
        room -= wide
    return rows


def _draw_keys(
    sheet: Sheet, top: float, rows: Sequence[Sequence[str]], strokes: Mapping[str, Stroke]
) -> None:
    """Draw the legend below the panels."""
    for i, row in enumerate(rows):
        middle = top + i * (LINE + 0.03) + LINE / 2
        left = EDGE
        for name in row:
            axes = sheet.axes(left, middle - 0.04, KEY, 0.08)
            axes.set_axis_off()
            axes.set_gid("key")
            axes.set_xlim(0, 2)
            axes.set_ylim(-1, 1)
            strokes[name].draw(axes, [0, 1, 2], [0, 0, 0], clip_on=False)
            sheet.write(left + KEY + 0.06, middle, label(name), SIZE, va="center")
            left += KEY + 0.06 + text_width(label(name), SIZE) + 0.16


def connect_ranks(mean_ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """Return the groups of names whose mean ranks differ by less than a critical difference.

    Only the largest groups, of 2 names or more, the best first.

    >>> connect_ranks({"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0}, 1.0)
    [('a', 'b'), ('b', 'c')]
    """
    names = sorted(mean_ranks, key=lambda name: mean_ranks[name])
    groups: list[tuple[str, ...]] = []
    end = 0
    for start, first in enumerate(names):
        last = start
        while last + 1 < len(names) and (
            mean_ranks[names[last + 1]] - mean_ranks[first] < difference
        ):
            last += 1
        if last > start and last >= end and (not groups or last > end):
            groups.append(tuple(names[start : last + 1]))
        end = max(end, last)
    return groups


def draw_critical_difference(
    mean_ranks: Mapping[str, float],
    n_texts: int,
    difference: float,
    *,
    caption: str = "",
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw mean ranks on an axis, and connect those that a test does not tell apart.

    mean_ranks: by name, 1 for the best, over n_texts texts. difference: the critical difference;
    names closer than it are connected by a bar (`connect_ranks`).
    caption: the text below; it follows the number of texts. width, dark, ax: as in `draw_maps`.
    Raises InputError for fewer than 2 names, ranks that are not finite, or a difference below 0.
    """
    _check_caption(caption)
    check_whole("n_texts", n_texts)
    ranks = _check_ranks(mean_ranks, difference)
    width = width_for(ax, width)
    names = sorted(ranks, key=lambda name: ranks[name])
    half = (len(names) + 1) // 2
    texts = {name: f"{label(name)}  {ranks[name]:.2f}" for name in names}
    side = max(widest(list(texts.values()), SIZE) + 0.12, 0.3)
    width = max(width, 2 * (side + EDGE) + 1.0)
    groups = connect_ranks(ranks, difference)
    said = f"Mean ranks over {n_texts} texts; 1 is the best. {caption}".strip()
    lines = caption_lines(label(said), width)
    ruler = 2 * LINE + 0.1
    scale = _Scale(ranks.values(), side, width - 2 * EDGE - side)
    levels = _stack([(scale(ranks[g[0]]) - 0.03, scale(ranks[g[-1]]) + 0.03) for g in groups])
    bars = 0.09 * (max(levels, default=-1) + 1) + 0.1
    deep = half * (LINE + 0.03)
    height = EDGE + ruler + LINE + 0.1 + bars + deep + 0.05 + caption_height(lines) + EDGE
    sheet = new_sheet(width, height, choose_theme(dark), ax)
    axes = sheet.axes(EDGE, EDGE, width - 2 * EDGE, ruler + LINE + 0.1 + bars + deep)
    axes.set_gid("ranks")
    _lay_out(axes, width - 2 * EDGE, ruler + LINE + 0.1 + bars + deep)
    axis = ruler + LINE + 0.05
    _draw_axis(sheet, axes, scale, axis, difference)
    for i, name in enumerate(names):
        row = i if i < half else len(names) - 1 - i
        place = axis + bars + (row + 0.5) * (LINE + 0.03)
        end = side if i < half else width - 2 * EDGE - side
        x = scale(ranks[name])
        axes.plot([x, x, end], [axis, place, place], color=sheet.theme.faint, lw=0.7, gid=name)
        align, gap = ("right", -0.04) if i < half else ("left", 0.04)
        sheet.write(EDGE + end + gap, EDGE + place, texts[name], SIZE, ha=align, va="center")
    for level, group in zip(levels, groups, strict=True):
        place = axis + 0.1 + 0.09 * level
        ends = [scale(ranks[group[0]]) - 0.03, scale(ranks[group[-1]]) + 0.03]
        axes.plot(ends, [place, place], color=sheet.theme.edge, lw=2.4, gid=" ".join(group))
    draw_caption(sheet, lines)
    return sheet.finish(said)


def _check_ranks(mean_ranks: Mapping[str, float], difference: float) -> dict[str, float]:
    check_type(mean_ranks, Mapping, "Pass mean ranks by name.")
    check_number("difference", difference, low=0)
    values = read_numbers(list(mean_ranks.values()))
    if values.shape != (len(mean_ranks),):
        raise ShapeError(
            f"the mean ranks have shape {list(values.shape)}",
            expected="one number for each name",
            fix="Pass mean ranks by name.",
        )
    ranks = dict(zip(map(str, mean_ranks), values.tolist(), strict=True))
    if len(ranks) < 2 or not np.isfinite(values).all():
        raise InputError(
            f"there are {len(ranks)} mean ranks, and the critical difference is {difference}",
            expected="2 finite ranks or more, and a difference of 0 or more",
            fix="Leave out explainers without values.",
        )
    return ranks


class _Scale:
    """From a mean rank to inches; the ends are whole ranks."""

    def __init__(self, ranks: Iterable[float], left: float, right: float) -> None:
        values = list(ranks)
        self.low, self.high = floor(min(values)), ceil(max(values))
        self.high = max(self.high, self.low + 1)
        self.left, self.right = left, right

    def __call__(self, rank: float) -> float:
        share = (rank - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)


def _stack(bars: Sequence[tuple[float, float]]) -> list[int]:
    """Return the level of each bar, given by its ends: bars on one level do not touch."""
    ends: list[float] = []
    levels = []
    for start, end in bars:
        level = next((i for i, last in enumerate(ends) if last + 0.1 < start), len(ends))
        ends[level : level + 1] = [end]
        levels.append(level)
    return levels


def _lay_out(axes: "Axes", width: float, height: float) -> None:
    """Let data coordinates be inches from the upper left corner."""
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()


def _draw_axis(sheet: Sheet, axes: "Axes", scale: _Scale, place: float, difference: float) -> None:
    """Draw the axis of ranks, and above it a ruler of the critical difference."""
    ink = sheet.theme.ink
    axes.plot([scale.left, scale.right], [place, place], color=ink, lw=0.8)
    step = max(1, ceil((scale.high - scale.low) / ((scale.right - scale.left) / 0.3)))
    for number in range(scale.low, scale.high + 1, step):
        x = scale(number)
        axes.plot([x, x], [place - 0.04, place], color=ink, lw=0.8)
        sheet.write(EDGE + x, EDGE + place - 0.06, str(number), SIZE - 1, ha="center", va="bottom")
    long = min(difference / (scale.high - scale.low), 1.0) * (scale.right - scale.left)
    ends = [scale.left, scale.left + long]
    top = LINE + 0.08
    axes.plot(ends, [top, top], color=ink, lw=1.2, gid="critical difference")
    for x in ends:
        axes.plot([x, x], [top - 0.03, top + 0.03], color=ink, lw=1.2)
    said = f"critical difference {difference:.2f}"
    sheet.write(EDGE + scale.left, EDGE, said, SIZE)
