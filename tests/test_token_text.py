"""Tokens as text that people can read."""

import pytest

from attnflow.token_text import LETTERS, readable_tokens

LETTER_OF = {byte: letter for letter, byte in LETTERS.items()}


def byte_level(*texts):
    """Tokens as a byte-level vocabulary writes them."""
    return ["".join(LETTER_OF[byte] for byte in text.encode()) for text in texts]


def test_byte_level_letters_are_those_of_the_format():
    # A space is \u0120, a newline \u010a, and printable letters are themselves.
    assert byte_level(" a", "\n") == ["\u0120a", "\u010a"]
    assert sorted(LETTERS.values()) == list(range(256))


@pytest.mark.parametrize(
    "text",
    ["naïve", "\u0648\u0635\u0644", "\u05e9\u05dc\u05d5\u05dd", "你好", "\U0001f600"],
)
def test_byte_level_tokens_are_decoded(text):
    assert readable_tokens(byte_level(text)) == (text,)
    assert readable_tokens(byte_level(f" {text}", " x")) == (text, "x")


def test_a_character_in_several_tokens_is_numbered():
    first, second = byte_level("你")[0][:2], byte_level("你")[0][2:]
    assert readable_tokens(["<s>", first, second, *byte_level("好")]) == ("<s>", "你¹", "你²", "好")
    assert readable_tokens(["<0xE2>", "<0x82>", "<0xAC>", "\u2581a"]) == ("€¹", "€²", "€³", "a")


def test_bytes_that_are_no_text_are_shown_in_hexadecimal():
    assert readable_tokens(["\u0120a", LETTER_OF[0xE2]]) == ("a", "⟨E2⟩")


@pytest.mark.parametrize("tokens", [("été", "là"), ("##s", "key"), ("\u041a\u043b\u044e\u0447",)])
def test_other_tokens_stay_as_they_are(tokens):
    assert readable_tokens(tokens) == tokens


def test_tokens_that_are_in_the_text_stay_as_they_are():
    assert readable_tokens(["\u0120or\u0121"], text="\u0120or\u0121") == ("\u0120or\u0121",)
    assert readable_tokens(["\u00c3\u00a9"], text="\u00c3\u00a9") == ("\u00c3\u00a9",)


def test_blank_tokens_stay_blank():
    assert readable_tokens(["\u0120", "\u0120\u0120\u0120"]) == (" ", "   ")
    assert readable_tokens(["\u2581", "\u2581a"]) == (" ", "a")
