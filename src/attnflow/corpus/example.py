"""One example of a corpus: as it was read, as it was scored, or why it was refused.

From a value of the input to an Example, or to the reason why it is none.

Which column of a table holds the texts, and which their ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError, SelectionError

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

MAX_CHARACTERS = 2**20  # of one text; keeps memory flat whatever a file holds
EXCERPT = 200  # characters of a refused text that are kept
SHOWN = 60  # characters of a bad value quoted in its reason


def check_value(index: int, name: Any, value: Any, line: int | None = None) -> Row:
    """The example that a value makes, or why it makes none.

    name: the id that the input gives; None if it gives none. value: text, or UTF-8 in bytes.

    >>> check_value(0, None, "the key", 1)
    Example(index=0, id='0', text='the key', line=1)
    >>> check_value(1, "b", 3.5).reason
    'the text is 3.5, a float; expected text.'
    >>> check_value(2, "c", 3).reason
    'the text is 3, an int; expected text.'
    """
    example = Example(index, _name(index, name), "", line)
    if value is None:
        return Refused(example, "there is no text; expected one in every row.", "missing")
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            example = replace(example, text=excerpt(value))
            return _not_encoded(example, error.object[error.start], error.start)
    if not isinstance(value, str):
        kind = type(value).__name__
        a_kind = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
        reason = f"the text is {_quoted(value)}, {a_kind}; expected text."
        return Refused(example, reason, "not_text")
    return _check_text(example, value)


def _check_text(example: Example, text: str) -> Row:
    if len(text) > MAX_CHARACTERS:
        reason = f"the text has {len(text):,} characters; expected {MAX_CHARACTERS:,} or fewer."
        return Refused(replace(example, text=excerpt(text)), reason, "too_long")
    if not text.strip():
        return Refused(example, "the text is empty; expected at least one word.", "empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        # Bytes that were no UTF-8 arrive as lone surrogates, and so does half a pair in JSON.
        code = ord(text[error.start])
        example = replace(example, text=excerpt(text))
        return _not_encoded(
            example, code - 0xDC00 if 0xDC80 <= code < 0xDD00 else code, error.start
        )
    return Example(example.index, example.id, text, example.line)


def refuse(index: int, line: int | None, reason: str, why: Why, given: str | bytes = "") -> Refused:
    """A row that gives neither id nor text. given: what is there, of which the start is kept."""
    return Refused(Example(index, str(index), excerpt(given), line), reason, why)


def excerpt(given: str | bytes) -> str:
    r"""The start of a text as UTF-8 can write it; what is no UTF-8 is spelled out.

    >>> excerpt(b"caf\xe9"), excerpt("caf\udce9")
    ('caf\\xe9', 'caf\\udce9')
    """
    if isinstance(given, bytes):
        return given[: 4 * EXCERPT].decode("utf-8", "backslashreplace")[:EXCERPT]
    return given[:EXCERPT].encode("utf-8", "backslashreplace").decode("utf-8")[:EXCERPT]


def _not_encoded(example: Example, code: int, place: int) -> Refused:
    reason = f"0x{code:02x} at {place} is no UTF-8; expected text in UTF-8."
    return Refused(example, reason, "encoding")


def _name(index: int, name: Any) -> str:
    if name is None:
        return str(index)
    if isinstance(name, bytes):
        return name.decode("utf-8", "backslashreplace")
    return str(name).encode("utf-8", "backslashreplace").decode("utf-8")


def _quoted(value: Any) -> str:
    text = repr(value).encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


USUAL = ("text", "sentence")  # taken if no column is named


def choose_text_column(names: Sequence[str], asked: str | None, source: str) -> str:
    """The column of the texts: the one asked for, else `text` or `sentence`, else the only one.

    Raises SelectionError if there is no such column, InputError if one must be named.

    >>> choose_text_column(["id", "sentence"], None, "a.csv")
    'sentence'
    """
    if asked is not None:
        return choose_column(names, asked, source)
    found = [name for name in USUAL if name in names] or (list(names) if len(names) == 1 else [])
    if not found:
        raise InputError(
            f"{source} has the columns {_listed(names)}",
            expected="one named text or sentence",
            fix="Name the one that holds the texts with --text-column (text_column=...).",
        )
    return found[0]


def choose_column(names: Sequence[str], asked: str, source: str) -> str:
    """The column that was asked for. Raises SelectionError if there is none of that name."""
    if asked not in names:
        close = get_close_matches(asked, names, n=1, cutoff=0.3)
        hint = f"Did you mean {close[0]!r}?" if close else "Name one of these."
        raise SelectionError(
            f"{source} has no column {asked!r}",
            expected=f"one of {_listed(names)}",
            fix=f"{hint}",
        )
    return asked


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20])) or "none"
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"
