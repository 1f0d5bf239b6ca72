"""Which scores to draw, and panels of heat maps laid out in rows.

`gather` turns an Explanation or Attributions into the scores to draw. `arrange`, `fit` and
`draw_row` place panels side by side where there is room, and below each other otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import shape_text
from attnflow.attribution import Attribution, Normalize, Special, check_normalize, normalize_rows
from attnflow.errors import (
    InputError,
    ShapeError,
    check_choice,
    check_names,
    check_switch,
    check_type,
    quote,
)
from attnflow.explanation import Explanation
from attnflow.figures.canvas import Sheet, color_map, label_ticks
from attnflow.figures.labels import (
    Slanted,
    fit_below,
    label,
    line_height,
    text_width,
    widest,
    wrap,
)
from attnflow.notes import explanation_notes
from attnflow.presentation import (
    PALE,
    describe_settings,
    edges_name,
    special_dominate,
    title_with_edges,
)
from attnflow.selection import Layers, Position

Source: TypeAlias = Explanation | Attribution | Sequence[Attribution]


Scale: TypeAlias = Literal["auto", "shared", "own"]


# What to do with special tokens; "auto" hides them where they dominate the colors.
SpecialChoice: TypeAlias = Special | Literal["auto"]


MapScale: TypeAlias = Literal["auto", "shared", "own", "layer"]


Numbers: TypeAlias = NDArray[np.float64]


PAPER_METHODS = ("raw", "rollout", "flow")  # the default of all figures, as in the paper


SIZE = 7.0  # points


GAP = 0.12  # inches between panels


EDGE = 0.06  # inches to the edge of the figure


CELL_HEIGHT = 0.14


TALLEST = 2.1


NARROWEST = 0.85  # inches: narrower panels are placed below each other


CAPTION = 6.0  # points


DENSE = 4000  # cells: larger maps are drawn as pixels


def check_drawing(
    *, methods: Any, words: Any = False, special: Any = "show", caption: Any = True
) -> None:
    """Raise InputError for options of wrong kinds that several figures have."""
    check_names("methods", methods)
    if not methods:
        raise InputError(
            "methods is empty", expected="at least one", fix="Leave methods out for its default."
        )
    check_switch("words", words)
    check_choice("special", special, ("show", "hide", "auto"))
    check_switch("caption", caption)


def list_sources(source: Any) -> list[Explanation | Attribution]:
    """The Explanations or Attributions to draw. Raises InputError for anything else."""
    items = [source] if isinstance(source, Explanation | Attribution) else source
    if not isinstance(items, list | tuple) or not items:
        raise InputError(
            f"what to draw is {quote(source)}",
            expected="an Explanation, or at least one Attribution",
            fix="Pass what explain, rollout or flow returned.",
        )
    for item in items:
        kind = Explanation if isinstance(items[0], Explanation) else Attribution
        check_type(item, kind, "Pass what explain, rollout or flow returned.")
    return list(items)


def gather(
    source: Source,
    *,
    methods: Sequence[str] = PAPER_METHODS,
    layers: Layers = None,
    positions: Any = None,
    normalize: Normalize = "rows",
    words: bool = False,
    special: Special = "show",
) -> list[Attribution]:
    """Return the Attributions to draw, one for each method, with scores in NumPy.

    source: an Explanation, whose methods are computed, or Attributions, which are only normalized:
    their layers, words and special tokens were chosen when they were computed.
    Returns scores [layers, positions, tokens].
    Raises InputError for another type, or for options that Attributions no longer allow.
    """
    check_normalize(normalize)
    if isinstance(source, Explanation):
        options: dict[str, Any] = {"layers": layers, "normalize": normalize, "words": words}
        options |= {"positions": positions, "special": special}
        return [_on_host(source.attribute(method, **options)) for method in methods]
    attributions: list[Any] = list_sources(source)
    if words or special != "show" or layers is not None or normalize == "receptive_field":
        raise InputError(
            "layers, words, special or normalize='receptive_field' is set for Attributions",
            expected="these options for an Explanation only",
            fix="Pass an Explanation, or compute the Attributions with these options.",
        )
    return [_on_host(normalize_rows(a) if normalize == "rows" else a) for a in attributions]


def _on_host(attribution: Attribution) -> Attribution:
    scores = attribution.to_numpy().astype(np.float64)
    if scores.ndim != 3:
        raise ShapeError(
            f"scores has shape {shape_text(scores)}, a batch",
            expected="one example",
            fix="Select one with attribution.example(i).",
        )
    return replace(attribution, scores=scores)


def position_of(source: Source, position: Position | None, *, words: bool = False) -> Position:
    """The position to draw: by default the explained one, or the only one of an Attribution."""
    if position is not None:
        return position
    if isinstance(source, Explanation):
        return source.words.word_of(source.position) if words else source.position
    first = source if isinstance(source, Attribution) else source[0]
    if len(first.positions) != 1:
        raise InputError(
            f"the Attribution has {len(first.positions)} positions",
            expected="one position, or position=...",
            fix="Select one with position=...",
        )
    return first.positions[0]


def choose_special(
    sources: Sequence[Source],
    special: SpecialChoice,
    options: Mapping[str, Any],
    position: Position | None = None,
) -> Special:
    """Decide what "auto" is: "hide" if special tokens dominate the colors of an Explanation.

    options: those of `gather`. position: the row that counts; all of them without it.
    Attributions show their special tokens, or were computed without them.
    """
    if special != "auto":
        return special
    for source in sources:
        if not isinstance(source, Explanation):
            continue
        place = position_of(source, position, words=options["words"])
        marks = source.words.special if options["words"] else source.special
        for attribution in gather(source, positions=place, **options):
            if special_dominate(attribution[place], marks):
                return "hide"
    return "show"


def hidden_note(explanation: Explanation, *, words: bool = False) -> str:
    """A sentence that names the special tokens that are hidden."""
    units = explanation.words if words else None
    names = units.texts if units else explanation.tokens
    marks = units.special if units else explanation.special
    listed = dict.fromkeys(name for name, mark in zip(names, marks, strict=True) if mark)
    return f"{', '.join(listed)} would take most of the color scale."


def title_of(attribution: Attribution) -> str:
    """The title of a panel."""
    return title_with_edges(attribution.method, attribution.settings)


def what_is_drawn(attribution: Attribution, normalize: Normalize) -> str:
    """What colors and line widths stand for."""
    if normalize != "rows":
        return "score"
    return "share of attention" if edges_name(attribution.settings) == "attention" else "share"


def check_scale(scale: str, *others: str) -> None:
    """Raise InputError for an invalid `scale` option; call it before a long computation."""
    check_choice("scale", scale, ("auto", "shared", "own", *others))


def choose_scale(panels: Sequence[Numbers], scale: Scale) -> Literal["shared", "own"]:
    """Decide what "auto" is: "shared", unless a panel would be nearly blank on a shared scale."""
    if scale != "auto":
        return scale
    tops = [float(np.max(panel, initial=0.0)) for panel in panels]
    return "shared" if min(tops) >= PALE * max(tops) else "own"


def largest(panels: Sequence[Numbers], scale: Scale) -> list[float]:
    """The upper end of the scale of each panel: the largest score of all panels, or its own."""
    tops = [float(np.max(panel, initial=0.0)) or 1.0 for panel in panels]
    return [max(tops)] * len(tops) if scale == "shared" else tops


def caption_of(
    explanations: Sequence[Explanation | None],
    attributions: Sequence[Sequence[Attribution]],
    *,
    position: Position | None = None,
) -> str:
    """The caption of a figure: model and settings, and notes on a single explanation.

    attributions: those drawn of each explanation. position: that of the notes; none without it.
    """
    lines = [
        " · ".join(
            describe_settings(drawn[0].settings, model=explanation.model if explanation else "")
        )
        for explanation, drawn in zip(explanations, attributions, strict=True)
    ]
    parts = [f"{line}." for line in dict.fromkeys(lines) if line]
    if len(explanations) == 1 and explanations[0] is not None and position is not None:
        for drawn in attributions[0]:
            notes = explanation_notes(explanations[0], drawn, position=position, advice=False)
            if notes:
                parts.append(f"{title_of(drawn)}, layer {drawn.layers[-1]}: {' '.join(notes)}")
    return " ".join(label(part) for part in parts)


def caption_lines(text: str, width: float) -> list[str]:
    """Split a caption into lines for a figure of a width in inches; none for an empty text."""
    return wrap(text, CAPTION, width - 2 * EDGE) if text else []


def caption_height(lines: Sequence[str]) -> float:
    """The height of a caption in inches."""
    return len(lines) * line_height(CAPTION) + (0.05 if lines else 0.0)


def draw_caption(sheet: Sheet, lines: Sequence[str]) -> None:
    """Write the caption at the bottom of a figure."""
    top = sheet.height - EDGE - len(lines) * line_height(CAPTION)
    for i, line in enumerate(lines):
        place = top + i * line_height(CAPTION)
        sheet.write(EDGE, place, line, CAPTION, color=sheet.theme.faint)


@dataclass(frozen=True, eq=False)
class Panel:
    """One heat map and its labels.

    values: [layers, tokens]. shades: [layers, tokens], from 0 to 1.
    top: the value of shade 1, if it is the same for all layers.
    scale: a text that says where the scale ends; empty if the legend does.
    """

    values: Numbers
    shades: Numbers
    tokens: tuple[str, ...]
    layers: tuple[int, ...]
    title: str
    top: float
    scale: str = ""


@dataclass(frozen=True, eq=False)
class Row:
    """Panels side by side.

    heading: a line above them. labelled: whether to write the tokens below; not if the next row has
    the same tokens.
    """

    panels: tuple[Panel, ...]
    heading: str
    labelled: bool


@dataclass(frozen=True, eq=False)
class Fitted:
    """A row with its sizes in inches; titles and heading are split into lines."""

    row: Row
    heading: list[str]
    titles: list[list[str]]
    left: float
    panel_width: float
    panel_height: float
    labels: Slanted

    @property
    def head(self) -> float:
        """The height of heading and titles."""
        lines = len(self.heading) + max(map(len, self.titles))
        return lines * line_height(SIZE) + (0.05 if self.heading else 0.0) + 0.04

    @property
    def height(self) -> float:
        """The height of the row, including the space below it."""
        below = self.labels.height + 0.14 if self.row.labelled else 0.06
        return self.head + self.panel_height + below

    @property
    def width(self) -> float:
        """The width of the row."""
        n = len(self.row.panels)
        return self.left + n * self.panel_width + (n - 1) * GAP + EDGE


def arrange(groups: Sequence[Sequence[Panel]], headings: Sequence[str], width: float) -> list[Row]:
    """Place panels side by side where there is room, and below each other otherwise.

    groups: the panels of each example. If each example has one panel, these share a row.
    """
    if len(groups) > 1 and all(len(group) == 1 for group in groups):
        panels = [
            replace(group[0], title=headings[i] if headings else group[0].title)
            for i, group in enumerate(groups)
        ]
        if _has_room(panels, width):
            return [Row(tuple(panels), "", True)]
        return [Row((panel,), "", True) for panel in panels]
    rows = []
    for i, group in enumerate(groups):
        heading = headings[i] if headings else ""
        if _has_room(group, width):
            rows.append(Row(tuple(group), heading, True))
            continue
        for j, panel in enumerate(group):
            last = j == len(group) - 1 or group[j + 1].tokens != panel.tokens
            rows.append(Row((panel,), heading if j == 0 else "", last))
    return rows


def _has_room(panels: Sequence[Panel], width: float) -> bool:
    """Whether panels side by side are wide enough, also for labels of full size."""
    across = (width - 0.35 - GAP * (len(panels) - 1)) / len(panels)
    cells = max(len(panel.tokens) for panel in panels)
    return across >= max(NARROWEST, min(cells * line_height(SIZE - 1), width))


def fit(row: Row, width: float) -> Fitted:
    """Compute the sizes of a row for a figure of this width; the row may need more."""
    texts = [[label(token) for token in panel.tokens] for panel in row.panels]
    numbers = widest([str(n) for panel in row.panels for n in panel.layers], SIZE)
    left = EDGE + line_height(SIZE) + numbers + 0.07
    n = len(row.panels)
    for _ in range(2):  # labels may extend to the left, which leaves less room
        across = (width - left - EDGE - GAP * (n - 1)) / n
        candidates = [fit_below(row, across / len(row), SIZE) for row in texts]
        labels = max(candidates, key=lambda fit: (fit.angle, -fit.size, fit.height))
        left = max(left, labels.left + EDGE) if row.labelled else left
    across = max(across, *(labels.cell * len(row) for row in texts if labels.angle == 90), 0.0)
    layers = max(len(panel.layers) for panel in row.panels)
    height = min(max(CELL_HEIGHT * layers, 0.3), TALLEST)
    room = across - max(text_width(panel.scale, SIZE - 1) + 0.04 for panel in row.panels)
    return Fitted(
        row=row,
        heading=wrap(row.heading, SIZE, width - 2 * EDGE, "bold") if row.heading else [],
        titles=[wrap(panel.title, SIZE, room) for panel in row.panels],
        left=left,
        panel_width=across,
        panel_height=height,
        labels=replace(labels, height=max(fit.height for fit in candidates)),
    )


def draw_row(sheet: Sheet, top: float, fitted: Fitted) -> None:
    """Draw a row of panels with its upper edge at a position in inches."""
    row, line = fitted.row, line_height(SIZE)
    for i, text in enumerate(fitted.heading):
        sheet.write(EDGE, top + i * line, text, SIZE, fontweight="bold")
    below = top + fitted.head
    for i, panel in enumerate(row.panels):
        left = fitted.left + i * (fitted.panel_width + GAP)
        for j, text in enumerate(reversed(fitted.titles[i])):
            sheet.write(left, below - 0.04 - j * line, text, SIZE, va="bottom")
        if panel.scale:
            sheet.write(
                left + fitted.panel_width,
                below - 0.04,
                panel.scale,
                SIZE - 1,
                va="bottom",
                ha="right",
                color=sheet.theme.faint,
            )
        _draw_panel(sheet, (left, below), panel, fitted, numbered=i == 0)
    sheet.write(
        EDGE,
        below + fitted.panel_height / 2,
        "layer",
        SIZE,
        rotation=90,
        va="center",
        color=sheet.theme.faint,
    )


def _draw_panel(
    sheet: Sheet, place: tuple[float, float], panel: Panel, fitted: Fitted, *, numbered: bool
) -> None:
    axes = sheet.axes(*place, fitted.panel_width, fitted.panel_height)
    n_layers, n_tokens = panel.values.shape
    dense = panel.values.size > DENSE
    mesh = axes.pcolormesh(
        panel.shades,
        cmap=color_map(sheet.theme),
        vmin=0.0,
        vmax=1.0,
        edgecolors="face" if dense else sheet.theme.ground,
        linewidth=0.0 if dense else 0.4,
        rasterized=dense,
    )
    mesh.set_gid(f"map {panel.title}")
    if numbered:
        every = max(1, round(line_height(SIZE) * n_layers / fitted.panel_height + 0.3))
        shown = [i for i in range(n_layers) if (n_layers - 1 - i) % every == 0]
        numbers = [str(panel.layers[i]) for i in shown]
        label_ticks(axes, "y", [i + 0.5 for i in shown], numbers, SIZE)
    if fitted.row.labelled:
        angle = fitted.labels.angle
        options = {"rotation": angle, "rotation_mode": "anchor"} if angle == 45 else {}
        options |= {"ha": "right", "va": "top"} if angle == 45 else {"rotation": angle}
        texts = [label(token) for token in panel.tokens]
        places = [i + 0.5 for i in range(n_tokens)]
        label_ticks(axes, "x", places, texts, fitted.labels.size, **options)
