r"""Tokens as text that people can read.

Byte-level vocabularies write each byte as a letter, so "é" is "Ã©" and a space is "Ġ"; vocabularies
with byte fallback write "<0xC3>". A character may be spread over several tokens. The terminal,
figures, the viewer and exports all show tokens as `readable_tokens` writes them; exports also have
the vocabulary's own spelling, the piece.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

STARTS = ("\u0120", "\u2581")  # byte-level BPE and SentencePiece: start of a word
CONTINUES = "##"  # WordPiece: continuation of a word
SPACE, NEWLINE = "\u0120", "\u010a"  # in byte-level vocabularies
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # a byte in SentencePiece vocabularies
NAMED = re.compile(r"<.+>|\[.+\]", re.DOTALL)  # special tokens, which are never made of bytes
# Control characters do not occur in text, and line breaks and tabs are not inside of words.
NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]|\w[\n\r\t\x0b\x0c]|[\n\r\x0b\x0c]\w")
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
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

    text: the input, if it is known; it helps to tell letters that stand for bytes from letters.
    A part of a character is the character with a number: the second of its tokens has a ². Bytes
    that are no text are shown in hexadecimal. The mark ## of WordPiece stays.

    >>> readable_tokens(["\u0120caf", "\u00c3\u00a9", "\u010a", "##s"])
    ('caf', 'é', '\n', '##s')
    >>> readable_tokens(["<0xE2>", "<0x82>", "<0xAC>", "\u258112"])
    ('€¹', '€²', '€³', '12')
    """
    byte_level = is_byte_level(tokens, text)
    labels: list[str] = []
    for run, parts in _runs(tokens, byte_level):
        labels += run if parts is None else _decode(parts)
    mark = " " if byte_level else STARTS[1]
    return tuple(
        _without_space(label, mark) or token for label, token in zip(labels, tokens, strict=True)
    )


def tell_apart(labels: Sequence[str]) -> tuple[str, ...]:
    """Labels of tokens; those that occur more than once with their position.

    >>> tell_apart(["the", "key", "the"])
    ('the (0)', 'key', 'the (2)')
    """
    counts = Counter(labels)
    return tuple(f"{label} ({i})" if counts[label] > 1 else label for i, label in enumerate(labels))


def join_tokens(tokens: Sequence[str], *, byte_level: bool) -> str:
    """The text of consecutive tokens, such as those of a word, without marks and outer spaces.

    >>> join_tokens(["\u0120caf", "\u00c3", "\u00a9"], byte_level=True)
    'café'
    """
    texts = [
        "".join(map(_plain_piece, run)) if parts is None else _text(b"".join(parts))
        for run, parts in _runs(tokens, byte_level)
    ]
    return "".join(texts).strip()


def _plain_piece(token: str) -> str:
    """A token that is not made of bytes, without its mark; a mark alone is a space."""
    return " " if token == STARTS[1] else token if token.startswith(SPACE) else plain_token(token)


def plain_token(token: str) -> str:
    """Remove the mark for the start or continuation of a word from a token.

    >>> plain_token("##s"), plain_token("##")
    ('s', '##')
    """
    for mark in (*STARTS, CONTINUES):
        if token.startswith(mark) and token != mark:
            return token.removeprefix(mark)
    return token


def is_byte_level(tokens: Sequence[str], text: str = "") -> bool:
    """Whether letters stand for bytes, judging by the tokens that are not ASCII.

    text: the input, if it is known.
    """
    groups = [list(group) for is_foreign, group in groupby(tokens, _is_foreign) if is_foreign]
    foreign = [token for group in groups for token in group]
    if not foreign or any(letter not in LETTERS for token in foreign for letter in token):
        return False
    written = [
        _text(b"".join(_bytes_of(token, True) or b"" for token in group)) for group in groups
    ]
    if text:
        as_bytes = any(not word.isascii() and word.strip() in text for word in written)
        as_letters = any(_occurs(token, text) for token in foreign)
        if as_bytes != as_letters:
            return as_bytes
    if any(NOT_TEXT.search(_text(_bytes_of(token, True) or b"")) for token in foreign):
        return False
    if any(SPACE in token or NEWLINE in token for token in foreign):
        return True
    # Letters such as é are bytes too, but hardly ever bytes that are text together.
    joined = " ".join(written).strip(UNKNOWN)
    return UNKNOWN not in joined and not joined.isascii()


def _is_foreign(token: str) -> bool:
    """Whether a token may have letters that stand for bytes: neither ASCII nor a special token."""
    return not token.isascii() and not NAMED.fullmatch(token)


def _occurs(token: str, text: str) -> bool:
    """Whether a token is in a text as it is, in upper or lower case."""
    word = token.removeprefix(CONTINUES)
    return word in text or word.casefold() in text.casefold()


def _runs(
    tokens: Sequence[str], byte_level: bool
) -> Iterator[tuple[Sequence[str], list[bytes] | None]]:
    """Yield consecutive tokens that are made of bytes, with these, and others one by one."""
    parts = [_bytes_of(token, byte_level) for token in tokens]
    start = 0
    for end in range(1, len(tokens) + 1):
        if end < len(tokens) and parts[end] is not None and parts[start] is not None:
            continue
        run = [part for part in parts[start:end] if part is not None]
        yield tokens[start:end], run or None
        start = end


def _bytes_of(token: str, byte_level: bool) -> bytes | None:
    """The bytes that a token stands for; None if it stands for itself."""
    match = BYTE.fullmatch(token)
    if match:
        return bytes([int(match[1], 16)])
    if byte_level and token and all(letter in LETTERS for letter in token):
        return bytes(LETTERS[letter] for letter in token)
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


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


def _without_space(label: str, mark: str) -> str:
    """A label without the mark at the start of a word; one that is all space is kept as spaces."""
    rest = label.removeprefix(mark)
    return rest if rest.strip() else label.replace(mark, " ")
