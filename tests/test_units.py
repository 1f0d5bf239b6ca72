import numpy as np
import pytest

from attnflow import Attribution, InputError, SelectionError
from attnflow.attribution import apply_special
from attnflow.token_text import plain_token
from attnflow.units import find_words, merge_units
from tests.refusal import refusal

TOKENS = ("[CLS]", "key", "cabinet", "##s")
WORDS = find_words(TOKENS, special=[True, False, False, False])


def attribution(scores, positions=(0, 1, 2, 3), tokens=TOKENS):
    layers = tuple(range(1, len(scores) + 1))
    return Attribution(np.asarray(scores), tokens, "rollout", layers, positions)


def test_word_ids_of_the_tokenizer_come_first():
    words = find_words(
        ["[CLS]", "don", "'", "t", "go", "[SEP]"],
        special=[True, False, False, False, False, True],
        word_ids=[None, 0, 0, 0, 1, None],
        text="Don't go",
        offsets=[(0, 0), (0, 3), (3, 4), (4, 5), (6, 8), (0, 0)],
    )
    assert words.texts == ("[CLS]", "Don't", "go", "[SEP]")
    assert words.groups == ((0,), (1, 2, 3), (4,), (5,))
    assert words.special == (True, False, False, True)


@pytest.mark.parametrize(
    ("tokens", "texts"),
    [
        (["un", "##bel", "##iev", "able", "key"], ("unbeliev", "able", "key")),
        (["The", "Ġkey", "s", "Ġare"], ("The", "keys", "are")),
        (["▁The", "▁key", "s", "▁are"], ("The", "keys", "are")),
        (["▁a", "▁", "<unk>", "▁", "Ġ."], ("a", "<unk>", " ", "Ġ.")),
        (["a", "Ġ", "Ġb"], ("a", " ", "b")),
        (["Ġna", "Ã", "¯", "ve", "Ġcaf", "Ã©"], ("naïve", "café")),
        (["the", "key", "is"], ("the", "key", "is")),
    ],
)
def test_marks_tell_words_apart_where_there_are_no_word_ids(tokens, texts):
    assert find_words(tokens, special=[False] * len(tokens)).texts == texts


def test_a_mark_starts_a_word_where_one_word_id_covers_the_whole_text():
    words = find_words(
        ["<s>", "▁a", "▁b", "c"], special=[True, False, False, False], word_ids=[None, 0, 0, 0]
    )
    assert words.texts == ("<s>", "a", "bc")


def test_special_tokens_next_to_each_other_stay_apart():
    assert find_words(["<s>", "</s>", "a"], special=[True, True, False]).groups == (
        (0,),
        (1,),
        (2,),
    )


def test_an_emoji_in_several_tokens_is_read_from_the_text():
    words = find_words(
        ["<0xF0>", "<0x9F>"],
        special=[False, False],
        word_ids=[0, 0],
        text="😀",
        offsets=[(0, 1)] * 2,
    )
    assert words.texts == ("😀",)


def test_a_mark_alone_is_a_token():
    assert [plain_token(t) for t in ("Ġ", "▁", "##", "##s", "Ġkey")] == ["Ġ", "▁", "##", "s", "key"]


def test_scores_are_summed_over_attended_and_averaged_over_attending_tokens():
    scores = [
        [[0.4, 0.3, 0.2, 0.1], [0.1, 0.9, 0.0, 0.0], [0.0, 0.2, 0.3, 0.5], [0.5, 0.0, 0.4, 0.1]]
    ]
    merged = merge_units(attribution(scores), WORDS)
    # The last word attends with the mean of rows 2 and 3: [0.25, 0.1, 0.35, 0.3].
    expected = [[[0.4, 0.3, 0.3], [0.1, 0.9, 0.0], [0.25, 0.1, 0.65]]]
    np.testing.assert_allclose(merged.scores, expected, rtol=0, atol=1e-15)
    assert merged.tokens == ("[CLS]", "key", "cabinets")
    assert merged.positions == (0, 1, 2)
    assert merged.settings["words"] is True


def test_some_words_can_be_merged_in_the_order_asked_for():
    scores = [[[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]]]
    merged = merge_units(attribution(scores, positions=(3, 2, 0)), WORDS)
    assert merged.positions == (2, 0)
    np.testing.assert_allclose(merged.row(position="cabinets"), [0.2, 0.2, 0.6])


def test_half_a_word_cannot_attend():
    with refusal(
        SelectionError,
        "'cabinets'",
        "2",
        "3",
    ):
        merge_units(attribution([[[0.25] * 4]], positions=(2,)), WORDS)


@pytest.mark.parametrize("method", ["flow", "head_flow", "flow_upper_bound"])
def test_maximum_flows_are_not_summed(method):
    flows = Attribution(np.ones((1, 4, 4)), TOKENS, method, (1,), (0, 1, 2, 3))
    with refusal(InputError, method, "flow(graph, units=units)"):
        merge_units(flows, WORDS)


def test_all_tokens_are_needed():
    part = Attribution(np.ones((1, 1, 2)), TOKENS, "rollout", (1,), (0,), columns=(0, 1))
    with refusal(InputError, "2", "4"):
        merge_units(part, WORDS)


def test_hidden_tokens_lose_their_columns_and_nothing_is_rescaled():
    hidden = apply_special(
        attribution([[[0.4, 0.3, 0.2, 0.1]]], (0,)), "hide", [True] + [False] * 3
    )
    np.testing.assert_array_equal(hidden.scores, [[[0.3, 0.2, 0.1]]])
    assert hidden.columns == (1, 2, 3)
    assert hidden.top(1, position=0) == [("key", 1, 0.3)]
    assert hidden.settings["special"] == "hide"


def test_tokens_out_of_ranks_keep_their_scores(tmp_path):
    given = attribution([[[0.4, 0.3, 0.2, 0.1]]], (0,))
    ranked = apply_special(given, "rank_out", [True, False, False, True])
    np.testing.assert_array_equal(ranked.scores, given.scores)
    assert ranked.top(4, position=0) == [("key", 1, 0.3), ("cabinet", 2, 0.2)]
    assert ranked.top(1, position=0) == [("key", 1, 0.3)]
    ranked.save(tmp_path / "ranked.safetensors")
    assert Attribution.load(tmp_path / "ranked.safetensors").settings["unranked"] == [0, 3]


def test_shown_tokens_are_left_as_they_are():
    given = attribution([[[0.4, 0.3, 0.2, 0.1]]], (0,))
    assert apply_special(given, "show", [True] * 4) is given


def test_ways_that_do_not_exist_are_refused():
    given = attribution([[[0.4, 0.3, 0.2, 0.1]]], (0,))
    with refusal(InputError, "'drop'", "'show'", "'hide'", "'rank_out'"):
        apply_special(given, "drop", [True] * 4)  # type: ignore[arg-type]
    with refusal(InputError, "special='show'"):
        apply_special(given, "hide", [True] * 4)
