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
EXAMPLE = AgreementExample(("the", "key", "NN"), "singular")


def test_examples_are_padded_on_the_right():
    encoded = encode_examples([EXAMPLE, AgreementExample(("the",), "plural")], VOCABULARY)
    assert encoded.ids.tolist() == [[2, 5, 6, 4], [2, 5, 0, 0]]
    assert encoded.labels.tolist() == [0, 1]
    assert encoded.select(torch.tensor([1])).ids.tolist() == [[2, 5]]


@pytest.mark.parametrize("n", [1, 8, 255, 256, 257, 520])
def test_an_epoch_has_each_example_at_most_once(n):
    lengths = torch.arange(n) % 7
    batches = draw_batches(lengths, 8, seed=0, epoch=0)
    assert batches.shape == (max(n // 8, 1), min(n, 8))
    rows = batches.flatten().tolist()
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(range(n))
    if n > 8:
        assert draw_batches(lengths, 8, seed=0, epoch=1).tolist() != batches.tolist()
        assert draw_batches(lengths, 8, seed=1, epoch=0).tolist() != batches.tolist()


def test_examples_of_a_batch_have_similar_lengths_whatever_the_seed():
    lengths = torch.arange(256) % 16
    batches = torch.cat([draw_batches(lengths, 16, seed=seed, epoch=0) for seed in range(3)], 1)
    assert len(batches) == 16
    for rows in batches:
        assert lengths[rows].max() - lengths[rows].min() <= 1


def test_only_words_are_replaced():
    before = encode_examples([EXAMPLE, AgreementExample(("the",), "plural")] * 200, VOCABULARY).ids
    torch.manual_seed(0)
    ids = replace_words(before[None], torch.tensor([0.2]))[0]
    is_word = before >= 3
    assert torch.equal(ids[~is_word], before[~is_word])  # [PAD] and [CLS]
    changed = ids != before
    assert set(ids[changed].tolist()) == {1}
    assert set(before[changed].tolist()) == {4, 5, 6}  # tags too
    assert 0.15 < changed[is_word].float().mean() < 0.25
    pair = replace_words(torch.stack([before, before]), torch.tensor([0.0, 0.5]))
    assert torch.equal(pair[0], before)
    assert not torch.equal(pair[1], before)
