"""Predictions: an outcome, the prediction at a position, an answer of many tokens, and segments.

A decoder predicts token i at position i - 1, so the row of scores that explains a token of the
answer is that of the position before it. `Answer.rows` turns parts of an answer into sets of
positions; methods treat a set of positions as one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any, TypeAlias

from attnflow.attribution import Offsets, Row
from attnflow.errors import InputError, SelectionError, quote
from attnflow.units import (
    Units,
    find_spans,
    group_by_spans,
    is_span,
    number_repeated,
    overlaps,
    split_sentences,
)

WHOLE, EACH = "whole", "tokens"
# A part of an answer: its text, (start, end) in characters of the answer, or token numbers.
Part: TypeAlias = str | tuple[int, int] | range | slice
Parts: TypeAlias = Part | Sequence[Part] | None


@dataclass(frozen=True)
class Outcome:
    """A class or token that the model can predict, and its probability."""

    label: str
    index: int
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What the model predicts, and which outcome is explained.

    kind: "class", "masked word" or "next token".
    top: the five most probable outcomes, best first.
    target: the outcome to explain; the most probable one by default.
    """

    kind: str
    top: tuple[Outcome, ...]
    target: Outcome

    @property
    def label(self) -> str:
        """The most probable class, word or token."""
        return self.top[0].label

    @property
    def index(self) -> int:
        """The index of the most probable outcome among the classes or in the vocabulary."""
        return self.top[0].index

    @property
    def probability(self) -> float:
        """The probability of the most probable outcome."""
        return self.top[0].probability


@dataclass(frozen=True)
class Segment:
    """A named part of the input: the message of a role, a text of a pair, an answer, an image.

    start, stop: its first token and the one after its last.
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Answer:
    """The text that a model generated, or was made to predict, after a prompt.

    text: without special tokens. first: the index of its first token among those of the input.
    start: where its text begins in the text of the explanation, in characters.
    steps: the prediction of each token; its target is the token of the answer.
    offsets: where each token is in `text`; None for special tokens.
    special: whether each token is special, such as the one at the end.
    settings: how it was generated, with the seed; or {"given": True}.
    """

    text: str
    first: int
    start: int
    steps: tuple[Prediction, ...]
    offsets: Offsets
    special: tuple[bool, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def ids(self) -> tuple[int, ...]:
        """The token ids of the answer."""
        return tuple(step.target.index for step in self.steps)

    @property
    def tokens(self) -> range:
        """The indices of its tokens among those of the input."""
        return range(self.first, self.first + len(self.steps))

    @property
    def positions(self) -> range:
        """The positions that predict its tokens, each one before its token."""
        return range(self.first - 1, self.first - 1 + len(self.steps))

    @property
    def log_probability(self) -> float:
        """The logarithm of the probability of the whole answer."""
        return sum(log(max(step.target.probability, 1e-45)) for step in self.steps)

    def rows(self, parts: Parts = None, units: Units | None = None) -> tuple[Row, ...]:
        """Return parts of the answer as sets of positions.

        parts: "whole" (the default): all tokens but special ones as one part. "tokens": each token
        on its own. "words" or "sentences": with `units`, those of the text. A part of the answer as
        text, which must occur once; (start, end) in characters of the answer; a range or slice of
        its tokens; or a list of these.
        Raises SelectionError for a part that the answer does not have.
        """
        if parts is None or (isinstance(parts, str) and parts == WHOLE):
            kept = [i for i, special in enumerate(self.special) if not special]
            label = self.text if self.text.strip() else None  # of special tokens only
            return (self._row(kept or range(len(self)), label),)
        if isinstance(parts, str) and parts == EACH:
            return tuple(self._row([i]) for i in range(len(self)))
        if isinstance(parts, list | tuple) and not parts:
            raise SelectionError(
                f"the parts of the answer are {parts!r}",
                expected="at least one part",
                fix="Pass None for the whole answer.",
            )
        if isinstance(parts, str) and units is not None:
            inside = [[i - self.first for i in group if i in self.tokens] for group in units.groups]
            return tuple(self._row(group) for group in inside if group) or self.rows()
        several = isinstance(parts, list | tuple) and not is_span(parts)
        chosen: Sequence[Any] = parts if several else [parts]  # type: ignore[assignment]
        return tuple(self._row(self._find(part)) for part in chosen)

    def _row(self, numbers: Sequence[int], label: str | None = None) -> Row:
        """The row of some tokens of the answer, by their numbers in it."""
        if label is None:
            spans = [span for i in numbers if (span := self.offsets[i]) is not None]
            label = self.text[min(s for s, _ in spans) : max(e for _, e in spans)] if spans else ""
            label = label.strip() or "".join(self.steps[i].target.label for i in numbers)
        return Row(label, tuple(self.positions[i] for i in numbers))

    def _find(self, part: Any) -> list[int]:
        """The numbers of the tokens of a part."""
        n = len(self)
        if isinstance(part, slice):
            ends = (part.start, part.stop, part.step)
            is_valid = part.step != 0 and all(end is None or type(end) is int for end in ends)
            numbers = list(range(n))[part] if is_valid else []
        elif isinstance(part, range):
            is_inside = 0 < len(part) <= n and all(0 <= i < n for i in part)
            numbers = list(part) if is_inside else []
        elif is_span(part) or isinstance(part, str):
            numbers = self._overlapping(part)
        else:
            numbers = []
        if not numbers:
            raise SelectionError(
                f"the answer has no part {quote(part)}",
                expected=f"a part of its text, (start, end) in its {len(self.text)} characters, or "
                f"a range of its {n} tokens",
                fix="For a token, pass range(i, i + 1); for all of them, 'tokens'.",
            )
        return numbers

    def _overlapping(self, part: Any) -> list[int]:
        try:
            spans = find_spans(self.text, part)
        except InputError:
            return []
        if len(spans) > 1:
            raise SelectionError(
                f"{part!r} occurs {len(spans)} times in the answer",
                expected="a part that occurs once",
                fix=f"Pass its characters, such as {spans[0]}.",
            )
        return [i for i, span in enumerate(self.offsets) if overlaps(span, spans)]


def segment_units(segments: Sequence[Segment], special: Sequence[bool]) -> Units:
    """Return the segments as units; tokens outside of them are special units or the rest.

    special: whether each token is special.
    Raises InputError if there are no segments.
    """
    if not segments:
        raise InputError(
            "units is 'segments', and the input has none",
            expected="a chat, a pair of texts, or a text with an answer",
            fix="Use units='sentences', or name spans of the text.",
        )
    owner = {i: n for n, part in enumerate(segments) for i in range(part.start, part.stop)}
    spans = tuple((owner.get(i, -1), owner.get(i, -1) + 1) for i in range(len(special)))
    return group_by_spans(
        [(n, n + 1) for n in range(len(segments))],
        number_repeated([part.name for part in segments]),
        special=[s and i not in owner for i, s in enumerate(special)],
        offsets=spans,
    )


def find_sentences(
    text: str, segments: Sequence[Segment], offsets: Offsets | None, answer: Answer | None
) -> list[tuple[int, int]]:
    """Return the sentences of each segment, or else of the prompt and the answer, in characters."""
    end = len(text) if answer is None else answer.start
    parts = [(0, end), (end, len(text))]
    if segments and offsets is not None:
        places = [offsets[part.start : part.stop] for part in segments]
        known = [[span for span in spans if span is not None] for spans in places]
        parts = [(spans[0][0], spans[-1][1]) for spans in known if spans]
        if answer is not None and not any(start < end for start, _ in parts):
            # A prompt without segments; its answer may be special tokens only.
            parts.insert(0, (0, end))
    return [
        (start + first, start + last)
        for start, stop in parts
        for first, last in split_sentences(text[start:stop])
    ]
