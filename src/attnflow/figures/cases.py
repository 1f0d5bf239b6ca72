"""CandidateCase: a masked word, and what it may refer to."""

from collections.abc import Mapping
from dataclasses import dataclass

from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.figures.gather import Numbers, gather
from attnflow.normalisation import Normalise
from attnflow.selection import Position, resolve_positions


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
