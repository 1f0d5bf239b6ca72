"""Targets by name, and contrasts of two of them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from attnflow.errors import InputError, SelectionError
from attnflow.models.prediction import (
    Contrast,
    label_of,
    log_probabilities,
    predict,
    probabilities,
    resolve_contrast,
    resolve_target,
    resolve_word,
)
from tests.models.checkpoints import VOCABULARY, make_loaded, make_tokenizer
from tests.refusal import refusal

TEXTS = ["in Paris and in Rome", "Paris and Rome", "Rome in Paris"] * 20


def train(pre_tokenizer: Any, normalizer: Any = None) -> Any:
    """A language model's tokenizer with tokens for whole words, from BPE."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


BYTE_LEVEL = train(pre_tokenizers.ByteLevel(add_prefix_space=False))
# As in Llama: a space comes before every text, also where there is one already.
SENTENCE_PIECE = train(
    pre_tokenizers.Split("\u2581", "merged_with_next"),
    normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
)


def loaded_with(tokenizer: Any) -> Any:
    return SimpleNamespace(tokenizer=tokenizer, task="causal_lm", name="tokens only", model=None)


@pytest.mark.parametrize(
    ("tokenizer", "mark"), [(BYTE_LEVEL, "\u0120"), (SENTENCE_PIECE, "\u2581")]
)
def test_a_word_is_exact_with_and_without_a_space(tokenizer, mark):
    loaded, n, ids = loaded_with(tokenizer), len(tokenizer), tokenizer.get_vocab()
    begins, inside = ids[f"{mark}Rome"], ids.get("Rome")
    assert resolve_target(loaded, " Rome", n) == begins
    assert resolve_target(loaded, f"{mark}Rome", n) == begins
    assert resolve_target(loaded, "Rome", n) == (begins if inside is None else inside)
    assert resolve_word(loaded, "Rome", n) == resolve_word(loaded, " Rome", n) == begins
    assert resolve_word(loaded, "x", n) == ids["x"]  # never begins a word


def test_a_continuation_of_a_word_is_found_only_without_a_space():
    loaded, n = loaded_with(BYTE_LEVEL), len(BYTE_LEVEL)
    # "and" always follows a space in the texts, "x" never does.
    assert BYTE_LEVEL.tokenize(" x") == ["\u0120", "x"]
    assert resolve_target(loaded, "x", n) == BYTE_LEVEL.convert_tokens_to_ids("x")
    with refusal(SelectionError, "' x'", "'\u0120'", "'x'"):
        resolve_target(loaded, " x", n)


def test_a_word_of_several_tokens_is_refused_with_its_pieces():
    pieces = BYTE_LEVEL.tokenize(" Parisian")
    assert len(pieces) > 1
    with refusal(SelectionError, "'Parisian'", *map(repr, pieces)):
        resolve_target(loaded_with(BYTE_LEVEL), "Parisian", len(BYTE_LEVEL))


def test_a_contrast_is_the_difference_of_two_logits():
    logits = torch.tensor([[1.0, 4.0, 2.5], [0.0, -1.0, 3.0]])
    assert Contrast(1).score(logits).tolist() == [4.0, -1.0]
    assert Contrast(1, 2).score(logits).tolist() == [1.5, -4.0]
    assert float(Contrast(2, 0).score(logits[0])) == 1.5


def test_a_contrast_is_resolved_by_name_and_index():
    loaded = make_loaded(num_labels=3)
    logits = torch.tensor([0.0, 2.0, 1.0])
    assert resolve_contrast(loaded, logits) == Contrast(1)
    assert resolve_contrast(loaded, logits, against="label_0") == Contrast(1, 0)
    assert resolve_contrast(loaded, logits, "LABEL_2", 1) == Contrast(2, 1)
    decoder = make_loaded("GPT2LMHeadModel")
    contrast = resolve_contrast(decoder, torch.zeros(len(VOCABULARY)), "is", "are")
    assert contrast == Contrast(VOCABULARY["is"], VOCABULARY["are"])


def test_a_contrast_needs_two_targets():
    loaded = make_loaded()
    logits = torch.tensor([0.0, 2.0])
    with refusal(SelectionError, "'LABEL_1'", "against=..."):
        resolve_contrast(loaded, logits, against=1)
    with refusal(SelectionError, "'LABEL_0'"):
        resolve_contrast(loaded, logits, 0, "label_0")
    with refusal(SelectionError, "2", "0 to 1"):
        resolve_contrast(loaded, logits, 0, 2)


@pytest.mark.parametrize("problem", [None, "multi_label_classification"])
def test_log_probabilities_are_logarithms_of_probabilities(problem):
    loaded = make_loaded(num_labels=3, problem_type=problem)
    logits = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float16)
    logs = log_probabilities(loaded, logits)
    assert logs.dtype == torch.float32
    torch.testing.assert_close(logs, probabilities(loaded, logits).log())
    # Where the probability itself is 0 in float32, its logarithm is still known.
    far = log_probabilities(loaded, torch.tensor([0.0, -500.0, 0.0]))
    assert -502 < float(far[1]) < -499


def test_a_tokenizer_with_whole_words_takes_a_space():
    loaded = loaded_with(make_tokenizer())
    for target in ("key", " key"):
        assert resolve_target(loaded, target, len(VOCABULARY)) == VOCABULARY["key"]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "GPT2LMHeadModel"])
def test_logits_that_are_not_finite_predict_nothing(kind, value):
    loaded = make_loaded(kind)
    logits = torch.zeros(len(VOCABULARY))
    logits[3] = value
    with refusal(InputError, loaded.name, "NaN"):
        predict(loaded, logits)
    with refusal(InputError, "NaN"):
        resolve_contrast(loaded, logits, 1, 2)


def test_a_token_that_is_masked_out_has_the_probability_zero():
    logits = torch.zeros(len(VOCABULARY))
    logits[3] = -torch.inf
    assert predict(make_loaded("GPT2LMHeadModel"), logits, 3).target.probability == 0


@pytest.mark.parametrize("name", [None, "", " "])
def test_a_class_without_a_name_is_called_by_its_index(name):
    loaded = make_loaded()
    loaded.model.config.id2label = {0: name, 1: "yes"}
    assert [label_of(loaded, i) for i in (0, 1, 2)] == ["0", "yes", "2"]


def test_a_token_that_the_tokenizer_lacks_is_called_by_its_index():
    assert label_of(make_loaded("GPT2LMHeadModel"), 500) == "<500>"


def test_the_exact_spelling_wins_and_a_more_probable_one_causes_a_warning(recwarn):
    loaded = loaded_with(BYTE_LEVEL)
    begins, inside = (BYTE_LEVEL.convert_tokens_to_ids(name) for name in ("\u0120in", "in"))
    assert begins != inside
    logits = torch.zeros(len(BYTE_LEVEL))
    logits[inside] = 2.0
    assert predict(loaded, logits, "in").target.index == inside
    assert predict(loaded, logits, " in").target.index == begins
    assert not recwarn.list
    logits[begins] = 3.0
    with pytest.warns(UserWarning, match=f"index {inside}.*index {begins}.*target=' in'"):
        assert predict(loaded, logits, "in").target.index == inside


def test_equal_labels_of_outcomes_are_told_apart():
    loaded = loaded_with(BYTE_LEVEL)
    begins, inside = (BYTE_LEVEL.convert_tokens_to_ids(name) for name in ("\u0120in", "in"))
    logits = torch.zeros(len(BYTE_LEVEL))
    logits[[begins, inside]] = torch.tensor([9.0, 8.0])
    prediction = predict(loaded, logits)
    assert [outcome.label for outcome in prediction.top[:2]] == ["\u2423in", "in"]
    classifier = make_loaded()
    classifier.model.config.id2label = {0: "no", 1: "no"}
    labels = [outcome.label for outcome in predict(classifier, torch.tensor([1.0, 0.0])).top]
    assert labels == ["no (index 0)", "no (index 1)"]
