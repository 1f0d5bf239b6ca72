"""Tokens as text that people can read."""

import pytest

from attnflow.token_text import LETTERS, is_byte_level, join_tokens, readable_tokens, tell_apart

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


@pytest.mark.parametrize(
    "tokens",
    [
        ("m\u0119\u017cczyzna", "##\u0105"),  # Polish
        ("b\u0119d\u0105",),  # whose letters are control characters in byte-level vocabularies
        ("po\u010d", "##\u010da", "\u010d"),  # Czech
        ("da\u011f",),  # Turkish
        ("\u0120or\u0121", "\u0121ie"),  # Maltese
    ],
)
def test_letters_of_other_languages_are_no_bytes(tokens):
    assert readable_tokens(tokens) == tokens


def test_the_text_tells_bytes_from_letters():
    tokens = byte_level("S", "ÃO", " é")  # the bytes of Ã are written with an Ã
    assert readable_tokens(tokens, text="SÃO é") == ("S", "ÃO", "é")
    split = ["S", *byte_level("Ã")[0], "O"]
    assert readable_tokens(split, text="SÃO") == ("S", "Ã¹", "Ã²", "O")
    assert readable_tokens(["##\u0119"], text="MĘ") == ("##\u0119",)


def test_special_tokens_with_other_letters_do_not_hide_byte_level_tokens():
    tokens = ("<\uff5cbegin\u2581of\u2581sentence\uff5c>", *byte_level(" \u4f60\u597d"))
    assert readable_tokens(tokens) == (tokens[0], "\u4f60\u597d")


def test_tabs_and_line_breaks_are_whitespace_tokens():
    assert readable_tokens(byte_level("\timport", ";\r\n", "\n\n", " x")) == (
        "\timport",
        ";\r\n",
        "\n\n",
        "x",
    )


def test_tokens_of_a_word_are_joined_as_bytes():
    tokens = byte_level("na") + list(byte_level("ï")[0]) + byte_level("ve")
    assert is_byte_level(tokens)
    assert join_tokens(tokens, byte_level=True) == "naïve"
    assert join_tokens(["\u2581na", "<0xC3>", "<0xAF>", "ve"], byte_level=False) == "naïve"
    assert join_tokens(["un", "##do"], byte_level=False) == "undo"


def test_equal_labels_are_told_apart_by_position():
    assert tell_apart(["the", "a", "the", "the"]) == ("the (0)", "a", "the (2)", "the (3)")
