"""One example of a corpus: as it was read, as it was scored, or why it was refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Why a row is refused, in one word that can be counted; `Refused.reason` says it in a sentence.
Why: TypeAlias = Literal[
    "empty", "too_long", "encoding", "not_text", "missing", "malformed", "other"
]

Float32: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class Example:
    """A text of the corpus.

    index: its place in the input, counted from 0 over all rows, good or bad.
    id: what the input calls it; its index if the input does not say.
    line: its line in the input file, from 1; None for inputs without lines.
    """

    index: int
    id: str
    text: str
    line: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What the model predicts: a class or a token, its number, and how probable it is.

    kind: "class", "masked word" or "next token".
    """

    kind: str
    label: str
    index: int
    probability: float


@dataclass(frozen=True, eq=False)
class Scored:
    """What was computed for an example.

    tokens: what the model saw, or the words that they make up. special: which were added.
    position: the explained one. positions, layers: those that scores were asked for.
    prediction: None for a model that predicts nothing. target: the outcome that the settings name.
    scores: [layers, positions, tokens] by method.
    importance: [tokens] by its name; NaN for a token that cannot be taken away.
    """

    example: Example
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    position: int
    positions: tuple[int, ...]
    layers: tuple[int, ...]
    prediction: Outcome | None
    scores: Mapping[str, Float32]
    importance: Mapping[str, Float32] = field(default_factory=dict)
    target: Outcome | None = None


@dataclass(frozen=True)
class Refused:
    """An example that cannot be scored. Of what is no text, `text` has the start, or nothing."""

    example: Example
    reason: str
    why: Why = "other"


Row: TypeAlias = Example | Refused  # as it is read
Result: TypeAlias = Scored | Refused  # as it is computed
