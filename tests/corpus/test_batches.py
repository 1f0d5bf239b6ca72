"""Batches of a shard: texts of similar length, within the limits, the same every time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnflow import InputError
from attnflow.corpus.batches import group_lengths, plan_shard
from attnflow.corpus.settings import Settings
from attnflow.models.inputs import EncodedText, InvalidText, encode_text, encode_texts
from tests.corpus.models import TEXTS, examples
from tests.models.checkpoints import make_loaded


@pytest.fixture(scope="module")
def loaded():
    return make_loaded()


def test_batches_by_hand():
    # Longest first: 5, 4, 4 and 1 tokens. 2 * 5 and 2 * 4 fit in 10; 3 * 4 would not.
    assert group_lengths([4, 1, 5, 4], max_tokens=10, max_texts=9) == [[2, 0], [3, 1]]
    assert group_lengths([4, 1, 5, 4], max_tokens=9, max_texts=9) == [[2], [0, 3], [1]]
    assert group_lengths([4, 1, 5, 4], max_tokens=100, max_texts=9) == [[2, 0, 3, 1]]
    assert group_lengths([4, 1, 5, 4], max_tokens=100, max_texts=1) == [[2], [0], [3], [1]]
    assert group_lengths([], max_tokens=10, max_texts=9) == []


@given(st.lists(st.integers(1, 40)), st.integers(1, 100), st.integers(1, 10))
def test_every_text_is_in_one_batch_within_the_limits(lengths, max_tokens, max_texts):
    batches = group_lengths(lengths, max_tokens, max_texts)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= max_texts
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= max_tokens


def test_a_plan_keeps_places_and_rejects_invalid_texts(loaded):
    shard = examples(["the key", "", "is " * 20, "the key is here"], first=5)
    plan = plan_shard(loaded, Settings(batch_tokens=8), shard)
    assert plan.size == 4
    [[long], [short]] = plan.batches
    assert (long.place, short.place) == (3, 0)
    assert short.tokens == ("[CLS]", "the", "key", "[SEP]")
    assert (short.explained, short.positions) == (0, (0,))
    assert {place: one.why for place, one in plan.rejected.items()} == {1: "empty", 2: "too_long"}
    assert plan.rejected[2].example is shard[2]
    assert "22 tokens" in plan.rejected[2].reason


def test_positions_are_found_for_each_example(loaded):
    shard = examples(["the key", "the key is here"])

    def positions(**options):
        plan = plan_shard(loaded, Settings(**options), shard)
        found = {task.place: task.positions for batch in plan.batches for task in batch}
        return found, plan.rejected

    assert positions(positions="all")[0] == {0: (0, 1, 2, 3), 1: (0, 1, 2, 3, 4, 5)}
    assert positions(positions=(-1, 1))[0] == {0: (3, 1), 1: (5, 1)}
    found, rejected = positions(positions=(4,))
    assert found == {1: (4,)}
    assert "4" in rejected[0].reason


def test_a_model_that_ignores_the_padding_mask_gets_one_text_at_a_time():
    alone = make_loaded("GPT2ForSequenceClassification")
    assert not alone.supports_batches
    plan = plan_shard(alone, Settings(), examples())
    assert [len(batch) for batch in plan.batches] == [1] * len(TEXTS)


@pytest.mark.parametrize("words", [True, False])
def test_texts_are_encoded_in_a_batch_as_one_by_one(loaded, words):
    together = encode_texts(loaded, TEXTS, words=words)
    for text, one in zip(TEXTS, together, strict=True):
        alone = encode_text(loaded, text)
        assert isinstance(one, EncodedText)
        assert (one.text, one.tokens, one.special) == (text, alone.tokens, alone.special)
        assert one.words == alone.words if words else one.words.texts == ()
        assert one.inputs.keys() == alone.inputs.keys()
        for name, values in one.inputs.items():
            assert torch.equal(values, alone.inputs[name])


def test_invalid_texts_do_not_affect_others(loaded):
    texts = ["the key", "", "key " * 40, "lone \ud800 surrogate", "key"]
    found = encode_texts(loaded, texts)
    assert [getattr(one, "why", None) for one in found] == [
        None, "empty", "too_long", "other", None,
    ]  # fmt: skip
    for text, one in zip(texts[1:3], found[1:3], strict=True):
        assert isinstance(one, InvalidText)
        with pytest.raises(InputError) as caught:
            encode_text(loaded, text)
        assert one.reason == str(caught.value)
    assert "cannot be tokenized" in getattr(found[3], "reason", "")
    assert encode_texts(loaded, []) == []


def test_a_long_text_is_cut_without_a_warning(loaded, recwarn):
    [one, two] = encode_texts(loaded, ["key " * 40, "the key"], truncate="cut")
    assert isinstance(one, EncodedText)
    assert isinstance(two, EncodedText)
    assert len(one.tokens) == 16
    assert one.tokens[-1] == "[SEP]"
    assert len(two.tokens) == 4
    assert not recwarn.list
