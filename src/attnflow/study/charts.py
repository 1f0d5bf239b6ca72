"""Charts of a report as inline SVG: perturbation curves, mean ranks, and intervals of gains.

Colors are those of the style sheet of the report, by class, so that charts follow light and dark
pages. All text is escaped here.
"""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor
from textwrap import wrap

import numpy as np
from numpy.typing import ArrayLike

from attnflow.figures.evaluation import connect_ranks
from attnflow.study.table import MetricTable, Row

# The dashes of curves, so that they differ in more than color.
DASHES = ("", "7 3", "2 2", "8 2 2 2", "4 4", "1 3")
MARKS = 6  # kinds of marks
CHART = (344, 220)  # width and height of a chart of curves
ROW = 26  # height of a row of ranks, for two lines
LETTERS = 24  # of a line of a name
LETTER = 6.0  # width of a letter at the font size of charts


def draw_curve_chart(curves: Mapping[str, ArrayLike], places: Mapping[str, int], title: str) -> str:
    """Return a chart of curves [points] from no token removed to all.

    curves: by name; places: the number of the style of each. title: for screen readers.
    """
    width, height = CHART
    left, right, top, bottom = 34, 8, 8, 38
    across, deep = width - left - right, height - top - bottom
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = top + (1 - share) * deep, left + share * across
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{left - 5}" y="{y + 4}" {END}>{share:g}</text>')
        anchor = END if share == 1 else MIDDLE
        parts.append(
            f'<text class="tick" x="{x}" y="{top + deep + 15}" {anchor}>{share:.0%}</text>'
        )
    for name, curve in curves.items():
        values = np.asarray(curve, dtype=np.float64)
        xs = np.linspace(left, left + across, len(values))
        ys = top + (1 - np.clip(values, 0, 1)) * deep
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        place = places[name]
        parts.append(
            f'<g class="curve s{place}"><title>{escape(name)}</title>'
            f'<polyline points="{points}"{_dashes(place)}/>'
            + "".join(_mark(place, x, y) for x, y in zip(xs[1::2], ys[1::2], strict=True))
            + "</g>"
        )
    middle = left + across / 2
    parts.append(
        f'<text class="tick" x="{middle}" y="{height - 6}" {MIDDLE}>share of tokens removed</text>'
    )
    return _svg(width, height, title, parts)


END = 'text-anchor="end"'
MIDDLE = 'text-anchor="middle"'


def _dashes(place: int) -> str:
    dashes = DASHES[place % len(DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _mark(place: int, x: float, y: float) -> str:
    """Return a mark on a curve; its shape depends on the place."""
    shapes = (
        "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0",
        "M-3,-3h6v6h-6z",
        "M0,-4L4,3H-4z",
        "M0,-4L4,0L0,4L-4,0z",
        "M-3,-3L3,3M3,-3L-3,3",
        "M-4,0H4",
    )
    return f'<path d="{shapes[place % MARKS]}" transform="translate({x:.1f} {y:.1f})"/>'


def draw_key(place: int) -> str:
    """Return the line of a legend."""
    return (
        f'<svg class="key curve s{place}" width="34" height="12" aria-hidden="true">'
        f'<polyline points="1,6 33,6"{_dashes(place)}/>{_mark(place, 17, 6)}</svg>'
    )


def draw_rank_chart(
    ranks: Mapping[str, float], titles: Mapping[str, str], difference: float, title: str
) -> str:
    """Return a critical-difference diagram with one row for each explainer, the best first.

    difference: the critical difference; bars at the right join explainers that are closer.
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    lines = {name: wrap(titles[name], LETTERS) or [""] for name in names}
    left = 12 + LETTER * max(len(line) for name in names for line in lines[name])
    across = 140.0
    low, high = floor(min(ranks.values())), ceil(max(ranks.values()))
    high = max(high, low + 1)
    groups = connect_ranks(ranks, difference)
    columns = _pack(groups, names)
    top = 44
    width = left + across + 22 + 9 * (max(columns, default=-1) + 1)
    height = top + ROW * len(names) + 4

    def place(rank: float) -> float:
        return left + across * (rank - low) / (high - low)

    long = min(difference / (high - low), 1.0) * across
    parts = [
        f'<text class="tick" x="{left}" y="12">critical difference {difference:.2f}</text>',
        f'<path class="ruler" d="M{left},18v6m0,-3h{long:.1f}m0,-3v6"/>',
    ]
    step = max(1, ceil((high - low) / 6))
    for number in range(low, high + 1, step):
        x = place(number)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{top - 6}" {MIDDLE}>{number}</text>')
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height}"/>')
    for i, name in enumerate(names):
        y = top + ROW * (i + 0.5)
        parts.append(
            f"{_name(lines[name], left - 8, y)}"
            f'<circle class="dot" cx="{place(ranks[name]):.1f}" cy="{y}" r="4">'
            f"<title>{escape(titles[name])}: {ranks[name]:.2f}</title></circle>"
        )
    for group, column in zip(groups, columns, strict=True):
        x = left + across + 16 + 9 * column
        start, end = (top + ROW * (names.index(group[i]) + 0.5) for i in (0, -1))
        parts.append(f'<path class="join" d="M{x},{start - 5}V{end + 5}"/>')
    return _svg(ceil(width), height, title, parts)


def _name(lines: Sequence[str], x: float, y: float) -> str:
    """Return the lines of a name, to the left of a row."""
    first = y + 4 - 6 * (len(lines) - 1)
    return "".join(
        f'<text class="name" x="{x}" y="{first + 12 * i}" {END}>{escape(line)}</text>'
        for i, line in enumerate(lines)
    )


def _pack(groups: Sequence[tuple[str, ...]], names: Sequence[str]) -> list[int]:
    """Return a column for each group; groups in one column share no row."""
    ends: list[int] = []
    columns = []
    for group in groups:
        start, end = names.index(group[0]), names.index(group[-1])
        column = next((i for i, last in enumerate(ends) if last < start), len(ends))
        ends[column : column + 1] = [end]
        columns.append(column)
    return columns


def draw_gain(row: Row, table: MetricTable) -> str:
    """Return the gain of a row over the reference as a bar from 0, with its interval.

    All rows of a table share a scale.
    """
    if not np.isfinite(row.gain):
        return ""
    ends = [(r.gain, r.gain_low, r.gain_high) for r in table.rows if np.isfinite(r.gain)]
    low, high = min(0.0, float(np.min(ends))), max(0.0, float(np.max(ends)))
    width = 120

    def place(value: float) -> float:
        return 3 + (width - 6) * (value - low) / (high - low) if high > low else width / 2

    zero, gain = place(0), place(row.gain)
    kind = "up" if row.gain > 0 else "down"
    return (
        f'<svg class="gain" width="{width}" height="16" aria-hidden="true">'
        f'<rect class="{kind}" x="{min(zero, gain):.1f}" y="4" '
        f'width="{abs(gain - zero):.1f}" height="8"/>'
        f'<path class="whisker" d="M{place(row.gain_low):.1f},8H{place(row.gain_high):.1f}"/>'
        f'<path class="zero" d="M{zero:.1f},0V16"/></svg>'
    )


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
