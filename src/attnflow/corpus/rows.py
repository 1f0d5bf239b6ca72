"""From a value of the input to an Example, or to the reason why it is none."""

from dataclasses import replace
from typing import Any

from attnflow.corpus.example import Example, Refused, Row, Why

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
