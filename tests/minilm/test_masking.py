"""Which tokens a masked language model is asked for, and how it is judged."""

import pytest
import torch

from attnflow.paper.minilm.adapter_trainer import IGNORED, Masking, accuracy, guessed, told_apart


class Words:
    """A tokenizer of 1,000 words, as far as masking needs one."""

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
    return Masking(Words())


def test_shares_are_those_of_the_recipe(masking):
    ids = torch.full((400, 100), 500)
    ids[:, 0] = 2
    ids[:, 50:] = 12
    masked, labels = masking.mask(ids)
    asked = labels != IGNORED
    assert not asked[:, 0].any()
    assert asked[:, 1:50].float().mean() == pytest.approx(0.15, abs=0.01)
    assert asked[:, 50:].float().mean() == pytest.approx(0.5, abs=0.01)  # pronouns
    assert torch.equal(labels[asked], ids[asked])
    assert torch.equal(masked[~asked], ids[~asked])
    assert (masked[asked] == 4).float().mean() == pytest.approx(0.8, abs=0.01)
    assert (masked[asked] == ids[asked]).float().mean() == pytest.approx(0.1, abs=0.01)


def test_when_judged_all_that_is_asked_for_is_masked(masking):
    ids = torch.full((2000,), 12)
    masked, labels = masking.mask(ids, only_masks=True)
    asked = labels != IGNORED
    assert asked.float().mean() == pytest.approx(0.15, abs=0.03)
    assert (masked[asked] == 4).all()


def test_pronouns_are_masked_one_at_a_time(masking):
    found = [
        (row.tolist(), i, word) for row, i, word in masking.pronouns(torch.tensor([2, 12, 13]))
    ]
    assert found == [([2, 4, 13], 1, 12), ([2, 12, 4], 2, 13)]


def always(word):
    """A model that finds one word most probable everywhere."""

    def answer(rows):
        logits = torch.zeros(len(rows), max(map(len, rows)), 1000)
        logits[..., word] = 1.0
        return logits

    return answer


def test_a_model_that_always_says_the_same_is_right_that_often(masking):
    rows = [torch.tensor([2, 12, 12, 12]), torch.tensor([2, 13])]
    assert told_apart(always(12), masking, rows) == 0.75
    assert told_apart(always(13), masking, rows) == 0.25
    assert told_apart(always(500), masking, rows) == 0.0  # a tie is no answer
    many = [torch.tensor([2, *[500] * 40, *[501] * 40])] * 50
    assert guessed(always(500), masking, many) == pytest.approx(0.5, abs=0.1)


def test_accuracy_over_several_batches():
    rows = [torch.tensor([1])] * 300
    labels = [0] * 290 + [1] * 10
    assert accuracy(lambda part: torch.tensor([[1.0, 0.0]] * len(part)), rows, labels) == 290 / 300
