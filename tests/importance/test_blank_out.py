"""Blank-out, checked by hand on a model whose logits are sums of embeddings."""

from math import exp, log
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch

from attnflow.errors import InputError, SelectionError
from attnflow.importance import blank_out
from attnflow.importance.replacement import Replacement
from attnflow.models.loading import LoadedModel
from tests.models.checkpoints import VOCABULARY, make_loaded, make_tokenizer
from tests.refusal import refusal


class SumOfEmbeddings(torch.nn.Module):
    """Two classes; logits are the sum of the tokens' embeddings, here known numbers."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(len(VOCABULARY), 2)
        torch.nn.init.zeros_(self.embedding.weight)
        with torch.no_grad():
            self.embedding.weight[VOCABULARY["key"]] = torch.tensor([2.0, 0.0])
            self.embedding.weight[VOCABULARY["cabinets"]] = torch.tensor([0.0, 1.0])
            self.embedding.weight[VOCABULARY["[MASK]"]] = torch.tensor([1.0, 0.0])
        self.batches = []

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids):
        self.batches.append(len(input_ids))
        return SimpleNamespace(logits=self.embedding(input_ids).sum(1))


@pytest.fixture
def by_hand():
    return LoadedModel(SumOfEmbeddings(), make_tokenizer(), "classifier", "by hand", None)


def p(difference):
    """The probability of the first of two classes whose logits differ by so much."""
    return 1 / (1 + exp(-difference))


@pytest.mark.parametrize("replacement", ["unknown", "remove", "pad"])
def test_a_token_counts_by_what_the_probability_loses_without_it(by_hand, replacement):
    result = blank_out("the key cabinets", by_hand, replacement=replacement)
    # Logits [2, 1] before; without "key" [0, 1], without "cabinets" [2, 0], others do not count.
    expected = [0, 0, p(1) - p(-1), p(1) - p(2), 0]
    np.testing.assert_allclose(result.scores, [[expected]], atol=1e-6)
    assert result.row(position=0)[2] > 0 > result.row(position=0)[3]
    assert (result.method, result.layers, result.positions) == ("blank_out", (1,), (0,))
    assert result.tokens == ("[CLS]", "the", "key", "cabinets", "[SEP]")
    assert result.settings["target"] == "0"
    assert result.settings["probability"] == pytest.approx(p(1))


def test_the_token_put_in_place_counts_too(by_hand):
    result = blank_out("key", by_hand, replacement="mask")
    # With [MASK] in place of [CLS], "key" and [SEP]: [3, 0], [1, 0], [3, 0].
    np.testing.assert_allclose(
        result.scores, [[[p(2) - p(3), p(2) - p(1), p(2) - p(3)]]], atol=1e-6
    )


def test_another_class_can_be_asked_for(by_hand):
    scores = blank_out("the key cabinets", by_hand).scores
    np.testing.assert_allclose(
        blank_out("the key cabinets", by_hand, target=1).scores, -scores, atol=1e-6
    )
    with refusal(SelectionError, "target 2", "0 to 1"):
        blank_out("key", by_hand, target=2)
    with refusal(SelectionError, "'good'", "'0', '1'"):
        blank_out("key", by_hand, target="good")


def test_batches_change_nothing_but_the_number_of_runs(by_hand):
    whole = blank_out("the key cabinets", by_hand)
    by_hand.model.batches.clear()
    seen = []
    parts = blank_out(
        "the key cabinets", by_hand, batch_size=2, progress=lambda *done: seen.append(done)
    )
    np.testing.assert_array_equal(parts.scores, whole.scores)
    assert by_hand.model.batches == [1, 2, 2, 1]
    assert seen == [(2, 5), (4, 5), (5, 5)]


def one_by_one(loaded, ids, column, target, position, **change):
    """p(target) for ids without one of them, straight from the model."""
    if "token" in change:
        ids = [*ids[:column], change["token"], *ids[column + 1 :]]
    else:
        ids = [*ids[:column], *ids[column + 1 :]]
        position -= column <= position
    with torch.no_grad():
        logits = loaded.model(input_ids=torch.tensor([ids])).logits[0]
    return float(logits[position].softmax(-1)[target])


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "BertForMaskedLM"])
@pytest.mark.parametrize("change", [{"token": 1}, {}])
def test_language_models_are_blanked_at_the_position_they_predict(kind, change):
    loaded = make_loaded(kind)
    text = "the key [MASK] here" if kind.startswith("Bert") else "the key to here"
    replacement: Any = "unknown" if change else "remove"
    result = blank_out(text, loaded, replacement=replacement, score="probability")
    ids = loaded.tokenizer(text)["input_ids"]
    [position], target = result.positions, result.settings["target_index"]
    expected = [
        result.settings["probability"] - one_by_one(loaded, ids, i, target, position, **change)
        for i in result.columns
    ]
    np.testing.assert_allclose(result.scores[0, 0], expected, atol=1e-6)
    # The mask to be filled stays; a decoder predicts from its last token.
    left_out = [position] if kind.startswith("Bert") else []
    assert sorted([*result.columns, *left_out]) == list(range(len(ids)))
    assert position == 3


def test_a_decoder_without_a_padding_token_is_run_on_one_text_at_a_time():
    result = blank_out("the key to", make_loaded("GPT2ForSequenceClassification"), batch_size=8)
    assert result.positions == (2,)
    assert abs(result.scores).max() > 1e-4


def test_later_tokens_do_not_matter_to_a_decoder():
    result = blank_out("the key to here", make_loaded("GPT2LMHeadModel"), position=1)
    np.testing.assert_allclose(result.row(position=1)[2:], 0, atol=1e-6)
    assert abs(result.row(position=1)[0]) > 1e-4


def test_the_target_of_a_language_model_is_a_token():
    loaded = make_loaded("GPT2LMHeadModel")
    assert blank_out("the key", loaded, target="is").settings["target_index"] == VOCABULARY["is"]
    with refusal(SelectionError, "'house'", "'[UNK]'"):
        blank_out("the key", loaded, target="house")


def test_a_token_that_the_tokenizer_lacks_is_refused_with_those_it_has():
    loaded = make_loaded("GPT2LMHeadModel")
    with refusal(InputError, "mask", "'unknown'"):
        blank_out("the key", loaded, replacement="mask")


def test_the_logarithm_of_the_probability_by_hand(by_hand):
    result = blank_out("the key cabinets", by_hand, score="log_probability")
    expected = [0, 0, log(p(1) / p(-1)), log(p(1) / p(2)), 0]
    np.testing.assert_allclose(result.scores[0, 0], expected, atol=1e-6)


def test_a_contrast_is_what_the_difference_of_logarithms_loses(by_hand):
    result = blank_out("the key cabinets", by_hand, target=0, against=1)
    # log p(0) - log p(1) is the difference of the logits: 1 before, -1 without "key".
    np.testing.assert_allclose(result.scores[0, 0], [0, 0, 2, -1, 0], atol=1e-6)
    assert result.settings["score"] == "log_probability"
    assert (result.settings["against"], result.settings["against_index"]) == ("1", 1)
    reverse = blank_out("the key cabinets", by_hand, target="1", against="0")
    np.testing.assert_allclose(reverse.scores, -result.scores, atol=1e-6)
    with refusal(InputError, "'probability'", "'log_probability'"):
        blank_out("key", by_hand, target=0, against=1, score="probability")


def test_what_cannot_be_blanked_is_refused(by_hand):
    with refusal(InputError, "replacement is 'zero'", *map(repr, get_args(Replacement))):
        blank_out("key", by_hand, replacement="zero")  # type: ignore[arg-type]
    with refusal(InputError, "score is 'loss'", "'probability' or 'log_probability'"):
        blank_out("key", by_hand, score="loss")  # type: ignore[arg-type]
    with refusal(InputError, "samples is 0"):
        blank_out("key", by_hand, samples=0)
    with refusal(InputError, "batch_size is 0"):
        blank_out("key", by_hand, batch_size=0)
    with refusal(InputError, "BertModel", "classifier"):
        blank_out("key", make_loaded("BertModel"))
    with refusal(InputError, "one token", "replacement='mean'"):
        blank_out("key", make_loaded("GPT2LMHeadModel"), replacement="remove")
    with refusal(InputError, "the text is empty"):
        blank_out(" ", by_hand)
    with refusal(InputError, "batch of 2"):
        blank_out(["key", "the key"], by_hand)
