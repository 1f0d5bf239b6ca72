"""One example of a corpus: as it was read, as it was scored, or why it was rejected.

`check_value` turns a value of the input into an `Example`, or into a `Rejected` with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Why a row is rejected, in one word that can be counted; `Rejected.reason` has the details.
Why: TypeAlias = Literal[
    "empty", "too_long", "encoding", "not_text", "missing", "malformed", "other"
]

Float32: TypeAlias = NDArray[np.float32]

MAX_CHARACTERS = 2**20  # of one text; bounds memory for any input file
EXCERPT = 200  # characters of a rejected text that are stored
QUOTED = 60  # characters of an invalid value in the reason


@dataclass(frozen=True)
class Example:
    """A text of the corpus.

    index: the row number in the input, from 0, counting valid and invalid rows.
    id: the ID from the input; the index if the input has none.
    line: the line in the input file, from 1; None for inputs without lines.
    fields: the values of further columns that were asked for, by name.
    """

    index: int
    id: str
    text: str
    line: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Outcome:
    """A predicted class or token: its label, its index, and its probability.

    kind: "class", "masked word" or "next token".
    """

    kind: str
    label: str
    index: int
    probability: float


@dataclass(frozen=True)
class Answered:
    """The answer to a text.

    first: the index of its first token, or word. position: the token that predicts the first one.
    probabilities: of its tokens.
    """

    text: str
    first: int
    position: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of an example.

    tokens: the tokens that the model saw, or the words if words were requested.
    special: whether each token is special.
    position: the explained position. positions, layers: those that have scores.
    prediction: None for a model without predictions. target: the outcome named in the settings.
    scores: [layers, positions, tokens] for each method.
    importance: [tokens] for each importance score; NaN for a token that cannot be removed.
    answer: the answer whose tokens are explained; positions are then those that predict them.
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
    answer: Answered | None = None


@dataclass(frozen=True)
class Rejected:
    """A row that cannot be scored, with the reason.

    example: its `text` is the start of what was read, or empty.
    """

    example: Example
    reason: str
    why: Why = "other"


Row: TypeAlias = Example | Rejected  # a row of the input
Result: TypeAlias = Scored | Rejected  # a row after scoring


def check_value(
    index: int,
    id: Any,
    value: Any,
    line: int | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Row:
    """Return an Example if the value is a valid text, otherwise a Rejected.

    id: the ID from the input, or None. value: text, or bytes in UTF-8. fields: as in `Example`.

    >>> check_value(0, None, "the key", 1)
    Example(index=0, id='0', text='the key', line=1, fields={})
    >>> check_value(1, "b", 3.5).reason
    'the text is 3.5 (float); expected text.'
    """
    example = Example(index, _id_text(index, id), "", line, fields or {})
    if value is None:
        return Rejected(example, "the text is missing; expected a text in every row.", "missing")
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            example = replace(example, text=excerpt(value))
            return _invalid_encoding(example, error.object[error.start], error.start)
    if not isinstance(value, str):
        reason = f"the text is {_quote(value)} ({type(value).__name__}); expected text."
        return Rejected(example, reason, "not_text")
    return _check_text(example, value)


def _check_text(example: Example, text: str) -> Row:
    if len(text) > MAX_CHARACTERS:
        reason = f"the text has {len(text):,} characters; expected {MAX_CHARACTERS:,} or fewer."
        return Rejected(replace(example, text=excerpt(text)), reason, "too_long")
    if not text.strip():
        return Rejected(example, "the text is empty; expected at least one word.", "empty")
    if "\0" in text:  # as in UTF-16 that is read as UTF-8
        place = text.index("\0")
        return _invalid_encoding(replace(example, text=excerpt(text)), 0, place)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        # Invalid bytes arrive as lone surrogates, and so does half a surrogate pair in JSON.
        code = ord(text[error.start])
        byte = code - 0xDC00 if 0xDC80 <= code < 0xDD00 else code
        return _invalid_encoding(replace(example, text=excerpt(text)), byte, error.start)
    return replace(example, text=text)


def reject_row(
    index: int, line: int | None, reason: str, why: Why, content: str | bytes = ""
) -> Rejected:
    """Return a Rejected for a row without a readable ID and text.

    content: the raw row, of which the start is stored.
    """
    return Rejected(Example(index, str(index), excerpt(content), line), reason, why)


def excerpt(content: str | bytes) -> str:
    r"""Return the start of a text; bytes and surrogates that UTF-8 cannot encode are escaped.

    >>> excerpt(b"caf\xe9"), excerpt("caf\udce9")
    ('caf\\xe9', 'caf\\udce9')
    """
    if isinstance(content, bytes):
        return content[: 4 * EXCERPT].decode("utf-8", "backslashreplace")[:EXCERPT]
    return _escape(content[:EXCERPT])[:EXCERPT]


def _invalid_encoding(example: Example, code: int, place: int) -> Rejected:
    reason = f"0x{code:02x} at {place} is not valid text; expected text in UTF-8."
    return Rejected(example, reason, "encoding")


def _id_text(index: int, id: Any) -> str:
    if id is None:
        return str(index)
    return id.decode("utf-8", "backslashreplace") if isinstance(id, bytes) else _escape(str(id))


def _quote(value: Any) -> str:
    text = _escape(repr(value))
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def _escape(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
