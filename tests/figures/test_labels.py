import pytest

from attnflow.figures.labels import SMALLEST, fit_below, label, line_height, text_width, wrap


@pytest.mark.parametrize(
    ("token", "written"),
    [
        ("key", "key"),
        ("##s", "##s"),
        (" ", "\u2423"),
        ("\u064e", "\u25cc\u064e"),
        ("   ", "\u2423\u2423\u2423"),
        ("", "\u2423"),
        ("a\nb", "a\\nb"),
        ("\x00", "\\x00"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud83d", "\\ud83d"),
        ("$x$", "$x$"),
        ("\u200d\u00b2", "\\u200d\u00b2"),  # a joiner alone, the second of its tokens
        ("\U0001f937\u200d\u2640\ufe0f", "\U0001f937\u200d\u2640\ufe0f"),
        ("\ufe0f", "\u25cc\ufe0f"),
    ],
)
def test_tokens_are_written_such_that_nothing_is_hidden(token, written):
    assert label(token) == written


def test_width_grows_with_text_and_size():
    assert 0 < text_width("i", 7) < text_width("iiii", 7) < text_width("iiii", 14)


def test_an_m_at_72_points_is_about_an_inch_wide():
    assert 0.7 < text_width("M", 72) < 1.1


def test_labels_lie_level_where_they_fit():
    fitted = fit_below(["a", "b"], 0.5, 7.0)
    assert (fitted.angle, fitted.size, fitted.left) == (0, 7.0, 0.0)


def test_labels_are_slanted_where_they_do_not_and_stick_out_on_the_left():
    texts = ["international", "b"]
    fitted = fit_below(texts, 0.3, 7.0)
    assert (fitted.angle, fitted.size) == (45, 7.0)
    assert fitted.left == pytest.approx(text_width(texts[0], 7.0) * 0.5**0.5 - 0.15)


def test_labels_stand_upright_in_narrow_columns_then_get_smaller_then_ask_for_room():
    texts = ["international", "b"]
    assert fit_below(texts, 0.13, 7.0).angle == 90
    assert fit_below(texts, 0.13, 7.0).size == 7.0
    smaller = fit_below(texts, 0.09, 7.0)
    assert SMALLEST < smaller.size < 7.0
    assert smaller.cell == pytest.approx(0.09)
    asking = fit_below(texts, 0.01, 7.0)
    assert asking.size == SMALLEST
    assert asking.cell == pytest.approx(line_height(SMALLEST))


def test_text_is_broken_between_words_only():
    width = text_width("the keys to", 7)
    assert wrap("the keys to the international", 7, width) == [
        "the keys to",
        "the",
        "international",
    ]
