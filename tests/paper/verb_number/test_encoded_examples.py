"""Batches of the verb-number training, and words that are replaced at random."""

import pytest
import torch

from attnflow.paper.data.data_sets import AgreementExample
from attnflow.paper.verb_number.encoded_examples import (
    draw_batches,
    encode_examples,
    replace_words,
)

VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "DT": 3, "NN": 4, "the": 5, "key": 6}
TAGGED = AgreementExample(("the", "key", "NN"), "singular", tags=("DT", "NN", "HYPH"))


def test_tags_are_encoded_where_they_are_known():
    encoded = encode_examples([TAGGED, AgreementExample(("the",), "plural")], VOCABULARY)
    assert encoded.ids.tolist() == [[2, 5, 6, 4], [2, 5, 0, 0]]
    assert encoded.tags.tolist() == [[0, 3, 4, 0], [0, 0, 0, 0]]
    assert encoded.labels.tolist() == [0, 1]
    assert encoded.select(torch.tensor([1])).ids.tolist() == [[2, 5]]


@pytest.mark.parametrize("n", [1, 8, 255, 256, 257, 520])
def test_an_epoch_has_each_example_once(n):
    lengths = torch.arange(n) % 7
    generator = torch.Generator().manual_seed(0)
    batches = list(draw_batches(lengths, 8, generator))
    assert len(batches) == -(-n // 8)
    assert sorted(torch.cat(batches).tolist()) == list(range(n))
    if n > 8:
        again = torch.cat(list(draw_batches(lengths, 8, generator)))
        assert again.tolist() != torch.cat(batches).tolist()


def test_examples_of_a_batch_have_similar_lengths():
    lengths = torch.arange(256) % 16
    for rows in draw_batches(lengths, 16, torch.Generator().manual_seed(0)):
        assert lengths[rows].max() - lengths[rows].min() <= 1


def test_only_words_are_replaced():
    batch = encode_examples([TAGGED] * 400, VOCABULARY)
    torch.manual_seed(0)
    ids = replace_words(batch, tag_rate=0.3, unknown_rate=0.2)
    assert (ids[:, 0] == 2).all()
    for position, (word, tag) in enumerate([(5, 3), (6, 4)], start=1):
        column = ids[:, position]
        assert set(column.tolist()) == {word, tag, 1}
        assert 0.2 < (column == tag).float().mean() < 0.4
        assert 0.1 < (column == 1).float().mean() < 0.3
    assert set(ids[:, 3].tolist()) == {4, 1}  # without a known tag
    assert torch.equal(replace_words(batch, tag_rate=0.0, unknown_rate=0.0), batch.ids)
