"""Tokens as text that people can read.

Byte-level vocabularies write each byte as a letter, so "é" is "Ã©" and a space is "Ġ"; vocabularies
with byte fallback write "<0xC3>". A character may be spread over several tokens.
"""

import re
from collections.abc import Sequence

from attnflow.units import STARTS

SPACE, NEWLINE = "\u0120", "\u010a"  # in byte-level vocabularies
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # a byte in SentencePiece vocabularies
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _byte_letters() -> dict[str, int]:
    """The letter of each byte in byte-level vocabularies: itself if it can be printed."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + i): byte for i, byte in enumerate(others)}


LETTERS = _byte_letters()


def readable_tokens(tokens: Sequence[str], *, text: str = "") -> tuple[str, ...]:
    r"""The text of each token, without the mark for the start of a word.

    text: the input, if it is known; tokens that occur in it as they are stay as they are.
    A part of a character is the character with a number: the second of its tokens has a ². Bytes
    that are no text are shown in hexadecimal.

    >>> readable_tokens(["\u0120caf", "\u00c3\u00a9", "\u010a", "##s"])
    ('caf', 'é', '\n', '##s')
    >>> readable_tokens(["<0xE2>", "<0x82>", "<0xAC>", "\u258112"])
    ('€¹', '€²', '€³', '12')
    """
    is_byte_level = _is_byte_level(tokens, text)
    parts = [_bytes_of(token, is_byte_level) for token in tokens]
    labels: list[str] = []
    start = 0
    while start < len(tokens):
        end = start
        while end < len(tokens) and parts[end] is not None:
            end += 1
        if end == start:  # not made of bytes
            labels.append(tokens[start])
            start += 1
        else:
            labels += _decode([part for part in parts[start:end] if part is not None])
            start = end
    return tuple(
        token if not token.isascii() and token in text else _without_space(label, token)
        for label, token in zip(labels, tokens, strict=True)
    )


def _bytes_of(token: str, is_byte_level: bool) -> bytes | None:
    """The bytes that a token stands for; None if it stands for itself."""
    match = BYTE.fullmatch(token)
    if match:
        return bytes([int(match[1], 16)])
    if is_byte_level and token and all(letter in LETTERS for letter in token):
        return bytes(LETTERS[letter] for letter in token)
    return None


def _is_byte_level(tokens: Sequence[str], text: str) -> bool:
    """Whether letters stand for bytes, judging by the letters that are not ASCII."""
    foreign = [token for token in tokens if not token.isascii()]
    if not foreign or any(letter not in LETTERS for token in foreign for letter in token):
        return False
    if any(token in text for token in foreign):
        return False
    if any(SPACE in token or NEWLINE in token for token in foreign):
        return True
    # Letters such as é are bytes too, but hardly ever bytes that are text together.
    joined = b"".join(_bytes_of(token, True) or b" " for token in tokens)
    return "\ufffd" not in joined.decode("utf-8", "replace").strip("\ufffd")


def _decode(parts: Sequence[bytes]) -> list[str]:
    """The text of each part of some UTF-8, with numbers for parts of a character."""
    owner = [i for i, part in enumerate(parts) for _ in part]
    data = b"".join(parts)
    labels = [""] * len(parts)
    at = 0
    while at < len(data):
        length = _length(data, at)
        if length == 0:
            labels[owner[at]] += f"⟨{data[at]:02X}⟩"
            at += 1
            continue
        character = data[at : at + length].decode("utf-8")
        holders = sorted(set(owner[at : at + length]))
        for number, holder in enumerate(holders, start=1):
            mark = str(number).translate(SUPERSCRIPTS) if len(holders) > 1 else ""
            labels[holder] += character + mark
        at += length
    return labels


def _length(data: bytes, at: int) -> int:
    """The number of bytes of the character that starts at a byte; 0 if none does."""
    for length in range(1, 5):
        try:
            data[at : at + length].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return length
    return 0


def _without_space(label: str, token: str) -> str:
    """A label without the space or mark at the start of a word; one that is all space is kept."""
    for mark in (*STARTS, " "):
        if label.startswith(mark):
            rest = label.removeprefix(mark)
            return rest if rest.strip() else label.replace(mark, " ")
    return label or token
