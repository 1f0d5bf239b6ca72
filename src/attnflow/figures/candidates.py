"""A masked word: what the model would fill in, beside what it attends to; the paper's figure 4."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.figures.canvas import Sheet, label_ticks, new_sheet
from attnflow.figures.gather import METHODS, TITLES, Numbers, gather
from attnflow.figures.labels import label, line_height, text_width, widest, wrap
from attnflow.figures.legend import scale_text
from attnflow.figures.style import PAGE, choose_theme
from attnflow.normalisation import Normalise
from attnflow.selection import Position, resolve_positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 7.0  # points
EDGE = 0.06  # inches
GAP = 0.14
LAYER = 0.17  # inches
LOWEST = 1.0  # inches: a panel with few layers is this high


@dataclass(frozen=True, eq=False)
class CandidateCase:
    """A masked word, the words that may stand there, and the words that these may refer to.

    explanation: of a text with a mask, at the position of the mask.
    probabilities: of each word that may stand there; only their ratios are drawn.
    candidates: words of the text, by index or text, in the order of `probabilities`: the first is
    the one that the first word would refer to, and is drawn in the same colour.
    title: what is written above; the text if not given.
    Raises InputError unless there are as many candidates as words.
    """

    explanation: Explanation
    probabilities: Mapping[str, float]
    candidates: tuple[Position, ...]
    title: str = ""

    def __post_init__(self) -> None:
        if len(self.probabilities) != len(self.candidates) or not self.candidates:
            raise InputError(
                f"{len(self.probabilities)} words and {len(self.candidates)} candidates were "
                "given; expected one candidate for each word. Give as many of both."
            )

    @property
    def relative(self) -> dict[str, float]:
        """The probabilities, scaled to sum to 1."""
        total = sum(self.probabilities.values()) or 1.0
        return {word: value / total for word, value in self.probabilities.items()}

    @property
    def columns(self) -> tuple[int, ...]:
        """The indices of the candidates among the words of the text."""
        texts = self.explanation.words.texts
        return resolve_positions(texts, len(texts), self.candidates)

    def attention(self, method: str, *, normalise: Normalise = "rows") -> Numbers:
        """The attention [layers, candidates] of the mask; the subwords of a word are summed."""
        mask = self.explanation.words.word_of(self.explanation.position)
        [found] = gather(
            self.explanation, methods=[method], positions=mask, normalise=normalise, words=True
        )
        scores: Numbers = found[mask][:, list(self.columns)]
        return scores


@dataclass(frozen=True)
class Measures:
    """Sizes in inches, and titles broken into lines."""

    bars: float
    left: float
    panel_width: float
    panel_height: float
    titles: list[list[str]]

    @property
    def head(self) -> float:
        """The height of the titles of the panels."""
        return max(map(len, self.titles)) * line_height(SIZE) + 0.05


def draw_candidates(
    cases: CandidateCase | Sequence[CandidateCase],
    *,
    methods: Sequence[str] = METHODS,
    normalise: Normalise = "rows",
    width: float = PAGE,
    dark: bool = False,
) -> "Figure":
    """Draw which word a model would fill in, beside its attention to what the word may refer to.

    For each case: bars of the relative probabilities of the words that may stand at the mask, and
    for each method the attention of the mask to the candidates at each layer, the first at the
    bottom. A word and the candidate it would refer to have one colour, so that a method agrees
    with the model where the longer bar has the colour of the higher one.
    normalise: "rows" scales the scores at each layer to sum to 1 over all words of the text.
    width, dark: as in `draw_maps`. One scale serves all cases and methods.
    """
    several = [cases] if isinstance(cases, CandidateCase) else list(cases)
    if not several:
        raise InputError("no case was given to draw; expected at least one. Give a CandidateCase.")
    scores = [
        [case.attention(method, normalise=normalise) for method in methods] for case in several
    ]
    top = max(float(one.max()) for row in scores for one in row) or 1.0
    theme = choose_theme(dark)
    measures = [
        _measure(case, methods, row[0].shape[0], width)
        for case, row in zip(several, scores, strict=True)
    ]
    headings = [
        wrap(case.title or case.explanation.text, SIZE, width - 2 * EDGE) for case in several
    ]
    heights = [
        len(lines) * line_height(SIZE)
        + 0.08
        + one.head
        + one.panel_height
        + 2 * line_height(SIZE)
        + 0.2
        for lines, one in zip(headings, measures, strict=True)
    ]
    sheet = new_sheet(width, EDGE + sum(heights), theme)
    place = EDGE
    for case, row, lines, one, height in zip(
        several, scores, headings, measures, heights, strict=True
    ):
        for i, text in enumerate(lines):
            sheet.write(EDGE, place + i * line_height(SIZE), text, SIZE, fontweight="bold")
        below = place + len(lines) * line_height(SIZE) + 0.08 + one.head
        _draw_probabilities(sheet, below, case, one)
        for i, values in enumerate(row):
            left = one.left + i * (one.panel_width + GAP)
            for j, text in enumerate(reversed(one.titles[i + 1])):
                sheet.write(left, below - 0.05 - j * line_height(SIZE), text, SIZE, va="bottom")
            _draw_layers(sheet, (left, below), values, one, top, numbered=i == 0)
        _draw_key(sheet, below + one.panel_height + line_height(SIZE) + 0.05, case, one, normalise)
        place += height
    return sheet.figure


def _measure(case: CandidateCase, methods: Sequence[str], n_layers: int, width: float) -> Measures:
    words = [label(word) for word in case.probabilities]
    bars = len(words) * max(widest(words, SIZE) + 0.08, text_width("100%", SIZE) + 0.06, width / 16)
    left = EDGE + bars + GAP + line_height(SIZE) + text_width(str(n_layers), SIZE) + 0.1
    across = (width - left - EDGE - GAP * (len(methods) - 1)) / len(methods)
    titles = [wrap("Filled in", SIZE, bars)]
    titles += [wrap(TITLES[method], SIZE, across) for method in methods]
    return Measures(bars, left, across, max(LAYER * n_layers, LOWEST), titles)


def _draw_probabilities(sheet: Sheet, top: float, case: CandidateCase, measures: Measures) -> None:
    for i, text in enumerate(reversed(measures.titles[0])):
        sheet.write(EDGE, top - 0.05 - i * line_height(SIZE), text, SIZE, va="bottom")
    axes = sheet.axes(EDGE, top, measures.bars, measures.panel_height)
    axes.set_gid("probabilities")
    values = list(case.relative.values())
    places = list(range(len(values)))
    colours = [_colour(sheet, i) for i in places]
    axes.bar(places, values, color=colours, width=0.7)
    room = line_height(SIZE) / measures.panel_height
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_ylim(0, 1 + 1.6 * room)
    for place, value in zip(places, values, strict=True):
        axes.annotate(
            f"{value:.0%}",
            (place, value),
            xytext=(0, 1.5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=SIZE,
            color=sheet.theme.ink,
        )
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    label_ticks(
        axes, "x", [float(i) for i in places], [label(word) for word in case.probabilities], SIZE
    )


def _draw_layers(
    sheet: Sheet,
    place: tuple[float, float],
    values: Numbers,
    measures: Measures,
    top: float,
    *,
    numbered: bool,
) -> None:
    """Bars for values [layers, candidates], those of one layer next to each other."""
    axes = sheet.axes(*place, measures.panel_width, measures.panel_height)
    n_layers, n = values.shape
    thickness = 0.76 / n
    for i in range(n):
        # The first candidate is the upper bar of its layer.
        offset = ((n - 1) / 2 - i) * thickness
        bars = axes.barh(
            np.arange(1, n_layers + 1) + offset,
            values[:, i],
            height=thickness * 0.92,
            color=_colour(sheet, i),
            linewidth=0,
        )
        for bar in bars:
            bar.set_gid(f"candidate {i}")
    axes.set_xlim(0, top * 1.02)
    axes.set_ylim(0.45, n_layers + 0.55)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    label_ticks(axes, "x", [0.0, top], ["0", scale_text(top)], SIZE - 1, color=sheet.theme.faint)
    axes.xaxis.get_ticklabels()[0].set_horizontalalignment("left")
    axes.xaxis.get_ticklabels()[1].set_horizontalalignment("right")
    if numbered:
        numbers = list(range(1, n_layers + 1))
        label_ticks(axes, "y", [float(n) for n in numbers], [str(n) for n in numbers], SIZE)
        sheet.write(
            EDGE + measures.bars + GAP,
            place[1] + measures.panel_height / 2,
            "layer",
            SIZE,
            rotation=90,
            va="center",
            color=sheet.theme.faint,
        )


def _draw_key(
    sheet: Sheet, top: float, case: CandidateCase, measures: Measures, normalise: Normalise
) -> None:
    """Which colour is which candidate."""
    middle = top + line_height(SIZE) / 2
    texts = [label(case.explanation.words.texts[i]) for i in case.columns]
    what = "share of the mask's attention to" if normalise == "rows" else "attention of the mask to"
    total = sum(text_width(text, SIZE) + 0.3 for text in texts) + text_width(what, SIZE)
    left = max(min(measures.left, sheet.width - EDGE - total), EDGE)
    sheet.write(left, middle, what, SIZE, va="center", color=sheet.theme.faint)
    left += text_width(what, SIZE) + 0.1
    for i, text in enumerate(texts):
        axes = sheet.axes(left, middle - 0.04, 0.08, 0.08)
        axes.set_facecolor(_colour(sheet, i))
        axes.set_gid("key")
        sheet.write(left + 0.12, middle, text, SIZE, va="center")
        left += text_width(text, SIZE) + 0.3


def _colour(sheet: Sheet, i: int) -> Any:
    return sheet.theme.categories[i % len(sheet.theme.categories)]
