"""A masked word: what the model fills in, next to what it attends to; the paper's figure 4."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.attribution import Normalize
from attnflow.errors import InputError, check_type
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
from attnflow.figures.display import Display
from attnflow.figures.labels import label, line_height, scale_text, text_width, widest, wrap
from attnflow.figures.panels import (
    PAPER_METHODS,
    Numbers,
    caption_height,
    caption_lines,
    check_drawing,
    draw_caption,
    gather,
)
from attnflow.presentation import describe_settings, title_with_edges
from attnflow.selection import Position, resolve_positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class CandidateCase:
    """A masked word, the words that could fill it, and the words of the text they refer to.

    explanation: of a text with a mask, at the position of the mask.
    probabilities: the probability of each word that could fill the mask; drawn relative to each
    other.
    candidates: words of the text, by index or text, in the order of `probabilities`: the first
    word refers to the first candidate, and both have the same color.
    title: the line above; the text by default.
    Raises InputError unless there is one candidate for each word.
    """

    explanation: Explanation
    probabilities: Mapping[str, float]
    candidates: tuple[Position, ...]
    title: str = ""

    def __post_init__(self) -> None:
        if len(self.probabilities) != len(self.candidates) or not self.candidates:
            raise InputError(
                f"there are {len(self.probabilities)} words and {len(self.candidates)} candidates",
                expected="one candidate for each word",
                fix="Pass equal numbers of both.",
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

    def attention(self, method: str, *, normalize: Normalize = "rows") -> Numbers:
        """The attention [layers, candidates] of the mask to words."""
        mask = self.explanation.words.word_of(self.explanation.position)
        [attribution] = gather(
            self.explanation, methods=[method], positions=mask, normalize=normalize, words=True
        )
        scores: Numbers = attribution[mask][:, list(self.columns)]
        return scores


SIZE = 7.0  # points
LINE = line_height(SIZE)
EDGE = 0.06  # inches
GAP = 0.14
LAYER = 0.17  # inches
LOWEST = 1.0  # inches: the height of a panel with few layers


@dataclass(frozen=True, eq=False)
class Block:
    """A case with its scores, [layers, candidates] for each method, and its sizes in inches.

    heading and titles are split into lines; the first title is that of the probabilities.
    """

    case: CandidateCase
    scores: list[Numbers]
    heading: list[str]
    titles: list[list[str]]
    bars: float
    left: float
    panel_width: float
    panel_height: float

    @property
    def head(self) -> float:
        """The height of heading and titles."""
        return (len(self.heading) + max(map(len, self.titles))) * LINE + 0.13

    @property
    def height(self) -> float:
        """The height of the block, including the space below it."""
        return self.head + self.panel_height + 2 * LINE + 0.2

    @property
    def width(self) -> float:
        """The width of the block."""
        n = len(self.scores)
        return self.left + n * self.panel_width + (n - 1) * GAP + EDGE


def draw_candidates(
    cases: CandidateCase | Sequence[CandidateCase],
    *,
    methods: Sequence[str] = PAPER_METHODS,
    normalize: Normalize = "rows",
    caption: bool = True,
    width: float = PAGE,
    dark: bool = False,
    ax: "Axes | None" = None,
) -> Display:
    """Draw which word a model fills in, next to its attention to the candidates it could refer to.

    For each case: bars with the relative probabilities of the words that could fill the mask, and
    for each method the attention of the mask to the candidates at each layer, the first at the
    bottom. A word and its candidate have the same color: a method agrees with the model where the
    longer attention bar has the color of the higher probability.
    normalize: "rows" scales the scores at each layer to sum to 1 over all words of the text.
    caption: name the models and their settings below.
    width, dark, ax: as in `draw_maps`. All cases and methods share one scale.
    """
    check_drawing(methods=methods, caption=caption)
    several = [cases] if isinstance(cases, CandidateCase) else cases
    if not isinstance(several, list | tuple):
        check_type(cases, CandidateCase, "Pass a CandidateCase, or a list of them.")
    for case in several:
        check_type(case, CandidateCase, "Pass a CandidateCase, or a list of them.")
    if not several:
        raise InputError(
            "there are no cases to draw",
            expected="at least one",
            fix="Pass a CandidateCase.",
        )
    width = width_for(ax, width)
    scores = [
        [case.attention(method, normalize=normalize) for method in methods] for case in several
    ]
    top = max(float(values.max()) for row in scores for values in row) or 1.0
    for _ in range(2):  # long words make the figure wider
        blocks = [
            _measure(case, row, methods, width) for case, row in zip(several, scores, strict=True)
        ]
        width = max(width, *(block.width for block in blocks))
    text = _caption(several, normalize) if caption else ""
    lines = caption_lines(text, width)
    height = EDGE + sum(block.height for block in blocks) + caption_height(lines)
    sheet = new_sheet(width, height, choose_theme(dark), ax)
    place = EDGE
    for block in blocks:
        _draw_block(sheet, place, block, top, normalize)
        place += block.height
    draw_caption(sheet, lines)
    return sheet.finish(text)


def _caption(cases: Sequence[CandidateCase], normalize: Normalize) -> str:
    """The models and their settings."""
    lines = []
    for case in cases:
        settings = {**case.explanation.graph.settings, "normalize": normalize}
        lines.append(" · ".join(describe_settings(settings, model=case.explanation.model)))
    return label(" ".join(f"{line}." for line in dict.fromkeys(lines)))


def _measure(
    case: CandidateCase, scores: list[Numbers], methods: Sequence[str], width: float
) -> Block:
    n_layers = len(scores[0])
    settings = case.explanation.graph.settings
    words = [label(word) for word in case.probabilities]
    bars = len(words) * max(widest(words, SIZE) + 0.08, text_width("100%", SIZE) + 0.06, width / 16)
    left = EDGE + bars + GAP + LINE + text_width(str(n_layers), SIZE) + 0.1
    across = (width - left - EDGE - GAP * (len(methods) - 1)) / len(methods)
    across = max(across, text_width("Attention", SIZE))
    return Block(
        case=case,
        scores=scores,
        heading=wrap(case.title or case.explanation.text, SIZE, width - 2 * EDGE, "bold"),
        titles=[
            wrap("Prediction", SIZE, bars),
            *(wrap(title_with_edges(method, settings), SIZE, across) for method in methods),
        ],
        bars=bars,
        left=left,
        panel_width=across,
        panel_height=max(LAYER * n_layers, LOWEST),
    )


def _draw_block(sheet: Sheet, top: float, block: Block, end: float, normalize: Normalize) -> None:
    for i, text in enumerate(block.heading):
        sheet.write(EDGE, top + i * LINE, text, SIZE, fontweight="bold")
    below = top + block.head
    lefts = [block.left + i * (block.panel_width + GAP) for i in range(len(block.scores))]
    for left, lines in zip([EDGE, *lefts], block.titles, strict=True):
        for i, text in enumerate(reversed(lines)):
            sheet.write(left, below - 0.05 - i * LINE, text, SIZE, va="bottom")
    _draw_probabilities(sheet, below, block)
    for left, values in zip(lefts, block.scores, strict=True):
        _draw_layers(sheet, (left, below), values, block, end)
    sheet.write(
        EDGE + block.bars + GAP,
        below + block.panel_height / 2,
        "layer",
        SIZE,
        rotation=90,
        va="center",
        color=sheet.theme.faint,
    )
    _draw_legend(sheet, below + block.panel_height + LINE + 0.05, block, normalize)


def _draw_probabilities(sheet: Sheet, top: float, block: Block) -> None:
    axes = sheet.axes(EDGE, top, block.bars, block.panel_height)
    axes.set_gid("probabilities")
    values = list(block.case.relative.values())
    places = list(range(len(values)))
    colors = [_color(sheet, i) for i in places]
    axes.bar(places, values, color=colors, width=0.7)
    room = LINE / block.panel_height
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
            family=font_family(),
            color=sheet.theme.ink,
        )
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    words = [label(word) for word in block.case.probabilities]
    label_ticks(axes, "x", [float(i) for i in places], words, SIZE)


def _draw_layers(
    sheet: Sheet, place: tuple[float, float], values: Numbers, block: Block, end: float
) -> None:
    """Bars for values [layers, candidates], grouped by layer."""
    axes = sheet.axes(*place, block.panel_width, block.panel_height)
    n_layers, n = values.shape
    thickness = 0.76 / n
    for i in range(n):
        # The first candidate is the upper bar of its layer.
        offset = ((n - 1) / 2 - i) * thickness
        bars = axes.barh(
            np.arange(1, n_layers + 1) + offset,
            values[:, i],
            height=thickness * 0.92,
            color=_color(sheet, i),
            linewidth=0,
        )
        for bar in bars:
            bar.set_gid(f"candidate {i}")
    axes.set_xlim(0, end * 1.02)
    axes.set_ylim(0.45, n_layers + 0.55)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    label_ticks(axes, "x", [0.0, end], ["0", scale_text(end)], SIZE - 1, color=sheet.theme.faint)
    axes.xaxis.get_ticklabels()[0].set_horizontalalignment("left")
    axes.xaxis.get_ticklabels()[1].set_horizontalalignment("right")
    if place[0] == block.left:
        numbers = list(range(1, n_layers + 1))
        label_ticks(axes, "y", [float(n) for n in numbers], [str(n) for n in numbers], SIZE)


def _draw_legend(sheet: Sheet, top: float, block: Block, normalize: Normalize) -> None:
    """The legend: the color of each candidate."""
    middle = top + LINE / 2
    texts = [label(block.case.explanation.words.texts[i]) for i in block.case.columns]
    what = "share of the mask's attention to" if normalize == "rows" else "attention of the mask to"
    total = sum(text_width(text, SIZE) + 0.3 for text in texts) + text_width(what, SIZE)
    left = max(min(block.left, sheet.width - EDGE - total), EDGE)
    sheet.write(left, middle, what, SIZE, va="center", color=sheet.theme.faint)
    left += text_width(what, SIZE) + 0.1
    for i, text in enumerate(texts):
        axes = sheet.axes(left, middle - 0.04, 0.08, 0.08)
        axes.set_facecolor(_color(sheet, i))
        axes.set_gid("key")
        sheet.write(left + 0.12, middle, text, SIZE, va="center")
        left += text_width(text, SIZE) + 0.3


def _color(sheet: Sheet, i: int) -> Any:
    return sheet.theme.categories[i % len(sheet.theme.categories)]
