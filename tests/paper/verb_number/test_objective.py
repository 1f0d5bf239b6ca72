"""Batches of the verb-number training, and masked words."""

import pytest
import torch

from attnflow.paper.data.data_sets import AgreementExample
from attnflow.paper.verb_number.objective import Mixture, encode_examples, mask_words
from attnflow.paper.verb_number.splits import Split, make_vocabulary

VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "the": 3, "key": 4}


def test_an_epoch_has_all_fixed_examples_and_a_balanced_sample_of_hard_ones():
    def examples(word, number, n):
        return tuple(AgreementExample((word, str(i)), number) for i in range(n))

    hard = examples("c", "singular", 9) + examples("d", "plural", 30)
    split = Split(examples("a", "singular", 10), examples("b", "plural", 20), hard, (), {})
    vocabulary = make_vocabulary(split.training, min_count=1)
    mixture = Mixture.from_split(split, vocabulary, natural_copies=2, attractor_share=0.2)
    generator = torch.Generator().manual_seed(0)
    batches = list(mixture.draw_batches(8, generator))
    assert len(batches) == mixture.count_batches(8) == 7
    rows = sorted(torch.cat(batches).tolist())
    assert rows[:40] == sorted([*range(10), *range(10), *range(10, 30)])
    assert len(rows) == 50  # a fifth of them with attractors
    assert sum(row < 39 for row in rows[40:]) == 5
    assert (
        torch.cat(list(mixture.draw_batches(8, generator))).tolist() != torch.cat(batches).tolist()
    )


@pytest.mark.parametrize("n", [1, 8, 255, 256, 257, 520])
def test_batches_are_counted(n):
    split = Split(tuple([AgreementExample(("a",), "singular")] * n), (), (), (), {})
    vocabulary = make_vocabulary(split.training, min_count=1)
    mixture = Mixture.from_split(split, vocabulary, natural_copies=1, attractor_share=0.0)
    batches = list(mixture.draw_batches(8, torch.Generator().manual_seed(0)))
    assert len(batches) == mixture.count_batches(8)


def test_only_words_are_masked():
    encoded = encode_examples([AgreementExample(("the", "key"), "singular")] * 50, VOCABULARY)
    ids, is_masked = mask_words(encoded, 0.5, torch.Generator().manual_seed(0))
    assert (ids[:, 0] == 2).all()
    assert torch.equal(ids == 1, is_masked)
    assert 0.3 < is_masked[:, 1:].float().mean() < 0.7
