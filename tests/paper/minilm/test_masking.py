"""Masked tokens, and the accuracy on held-out texts."""

import pytest
import torch

from attnflow.paper.minilm.adapter_trainer import (
    IGNORED,
    Masking,
    class_accuracy,
    pronoun_accuracy,
    token_accuracy,
)


class WordTokenizer:
    """A tokenizer with 1,000 words, as far as Masking needs it."""

    mask_token_id = 4
    all_special_ids = (0, 1, 2, 3, 4)

    def __len__(self):
        return 1000

    def convert_tokens_to_ids(self, words):
        known = {"he": 10, "she": 11, "his": 12, "her": 13}
        return [known.get(word, 14) for word in words]


@pytest.fixture
def masking():
    torch.manual_seed(0)
    return Masking(WordTokenizer())


def test_shares_of_masked_tokens(masking):
    ids = torch.full((400, 100), 500)
    ids[:, 0] = 2
    ids[:, 50:] = 12
    masked, labels = masking.mask(ids)
    is_selected = labels != IGNORED
    assert not is_selected[:, 0].any()  # special tokens
    assert is_selected[:, 1:50].float().mean() == pytest.approx(0.15, abs=0.01)
    assert is_selected[:, 50:].float().mean() == pytest.approx(0.5, abs=0.01)  # pronouns
    assert torch.equal(labels[is_selected], ids[is_selected])
    assert torch.equal(masked[~is_selected], ids[~is_selected])
    assert (masked[is_selected] == 4).float().mean() == pytest.approx(0.8, abs=0.01)
    assert (masked[is_selected] == ids[is_selected]).float().mean() == pytest.approx(0.1, abs=0.01)


def test_for_evaluation_all_selected_tokens_are_masked(masking):
    ids = torch.full((2000,), 12)
    masked, labels = masking.mask(ids, for_evaluation=True)
    is_selected = labels != IGNORED
    assert is_selected.float().mean() == pytest.approx(0.15, abs=0.03)
    assert (masked[is_selected] == 4).all()


def test_pronouns_are_masked_one_at_a_time(masking):
    masked = [
        (row.tolist(), position, pronoun)
        for row, position, pronoun in masking.mask_pronouns(torch.tensor([2, 12, 13]))
    ]
    assert masked == [([2, 4, 13], 1, 12), ([2, 12, 4], 2, 13)]


def always(word):
    """A model that predicts the same word everywhere."""

    def predict(rows):
        logits = torch.zeros(len(rows), max(map(len, rows)), 1000)
        logits[..., word] = 1.0
        return logits

    return predict


def test_the_accuracy_of_a_constant_prediction_is_its_frequency(masking):
    rows = [torch.tensor([2, 12, 12, 12]), torch.tensor([2, 13])]
    assert pronoun_accuracy(always(12), masking, rows) == 0.75
    assert pronoun_accuracy(always(13), masking, rows) == 0.25
    assert pronoun_accuracy(always(500), masking, rows) == 0.0  # a tie is not correct
    texts = [torch.tensor([2, *[500] * 40, *[501] * 40])] * 50
    assert token_accuracy(always(500), masking, texts) == pytest.approx(0.5, abs=0.1)


def test_class_accuracy_over_several_batches():
    rows = [torch.tensor([1])] * 300
    labels = [0] * 290 + [1] * 10

    def predict(batch):
        return torch.tensor([[1.0, 0.0]] * len(batch))

    assert class_accuracy(predict, rows, labels) == 290 / 300
