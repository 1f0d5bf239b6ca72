"""What takes the place of a token, by hand and by direct runs of the model."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attnflow.errors import InputError
from attnflow.importance import blank_out
from attnflow.importance.blank_out import blank_out_batch
from attnflow.importance.replacement import find_changes, mean_embedding, resolve_replacement
from attnflow.importance.target import open_target
from attnflow.models.inputs import encode_text
from attnflow.models.loading import LoadedModel
from tests.importance.test_blank_out import SumOfEmbeddings, p
from tests.models.checkpoints import SPECIAL, VOCABULARY, make_loaded, make_tokenizer
from tests.refusal import refusal


@pytest.fixture
def by_hand():
    return LoadedModel(SumOfEmbeddings(), make_tokenizer(), "classifier", "by hand", None)


def changes_of(text: str, loaded: Any, replacement: Any, **options: Any) -> list[tuple[int, str]]:
    """The changed tokens and the words in their place."""
    names: dict[Any, str] = {i: word for word, i in VOCABULARY.items()}
    arguments: dict[str, Any] = dict.fromkeys(("tokenizer", "target", "against", "position"))
    with (
        open_target(text, loaded, truncate="error", device=None, **arguments) as (_, target),
        torch.no_grad(),
    ):
        changes = find_changes(loaded, target, replacement, **{"samples": 1, "seed": 0, **options})
    return [(change.column, names[change.token]) for change in changes]


def test_the_mean_embedding_by_hand(by_hand):
    # Of 12 embeddings, those of "key", [MASK] and "cabinets" are not 0.
    assert mean_embedding(by_hand).tolist() == pytest.approx([3 / 12, 1 / 12])
    result = blank_out("the key cabinets", by_hand, replacement="mean")
    # Logits [2, 1] before. The mean adds 3/12 - 1/12 to their difference.
    m = 1 / 6
    expected = [p(1) - p(1 + m), p(1) - p(1 + m), p(1) - p(-1 + m), p(1) - p(2 + m)]
    np.testing.assert_allclose(result.scores[0, 0], [*expected, expected[0]], atol=1e-6)


def test_only_tokens_of_the_tokenizer_are_in_the_mean():
    loaded = make_loaded("GPT2LMHeadModel")
    loaded.model.resize_token_embeddings(64)
    weights = loaded.model.get_input_embeddings().weight[: len(VOCABULARY)]
    torch.testing.assert_close(mean_embedding(loaded), weights.double().mean(0))


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "BertForMaskedLM"])
def test_the_mean_embedding_equals_that_through_inputs_embeds(kind):
    loaded = make_loaded(kind)
    text = "the key [MASK] here" if kind.startswith("Bert") else "the key to here"
    result = blank_out(text, loaded, replacement="mean")
    [position], target = result.positions, result.settings["target_index"]
    layer = loaded.model.get_input_embeddings()
    embeddings = layer(torch.tensor(loaded.tokenizer(text)["input_ids"])).detach()
    rows = embeddings.repeat(len(result.columns), 1, 1)
    rows[range(len(rows)), list(result.columns)] = layer.weight.mean(0).detach()
    with torch.no_grad():
        before, *after = (
            loaded.model(inputs_embeds=row[None]).logits[0, position].log_softmax(-1)[target]
            for row in (embeddings, *rows)
        )
    expected = [float(before - one) for one in after]
    np.testing.assert_allclose(result.scores[0, 0], expected, atol=1e-5)
    assert np.ptp(expected) > 1e-2


def test_a_neighbor_by_hand(by_hand):
    result = blank_out("the key cabinets", by_hand, replacement="neighbor")
    # [CLS] becomes "the", "the" becomes "key", "key" "the", "cabinets" "key", [SEP] "cabinets".
    differences = [1, 3, -1, 4, 0]
    np.testing.assert_allclose(result.scores[0, 0], [p(1) - p(d) for d in differences], atol=1e-6)


def test_a_neighbor_differs_and_is_neither_special_nor_a_mask(by_hand):
    assert changes_of("key key the", by_hand, "neighbor") == [
        (0, "key"),
        (1, "the"),
        (2, "the"),
        (3, "key"),
        (4, "the"),
    ]
    masked = make_loaded("BertForMaskedLM")
    assert changes_of("the [MASK] key", masked, "neighbor")[2:] == [(3, "the"), (4, "key")]
    with refusal(InputError, "token 1", "replacement='mean'"):
        blank_out("key key", by_hand, replacement="neighbor")


def start_with(loaded: Any, token: int | None) -> Any:
    """A decoder whose texts start with a token that its tokenizer names."""
    loaded.tokenizer.bos_token = None if token is None else SPECIAL[token]
    return loaded


def expected_tokens(loaded: Any, ids: list[int], column: int) -> Any:
    """The distribution to sample from, straight from the model."""
    with torch.no_grad():
        if loaded.task == "masked_lm":
            masked = [*ids[:column], VOCABULARY["[MASK]"], *ids[column + 1 :]]
            logits = loaded.model(input_ids=torch.tensor([masked])).logits[0, column]
        else:
            before = ids[:column] or [loaded.tokenizer.bos_token_id]
            logits = loaded.model(input_ids=torch.tensor([before])).logits[0, -1]
    chances = logits.double().softmax(-1)
    chances[[ids[column], *loaded.tokenizer.all_special_ids]] = 0
    return (chances / chances.sum()).numpy()


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "BertForMaskedLM"])
def test_samples_have_the_distribution_of_the_model(kind):
    loaded, text = make_loaded(kind), "the key [MASK] here"
    if kind.startswith("GPT2"):
        loaded, text = start_with(loaded, 2), "the key to here"
    ids, n = loaded.tokenizer(text)["input_ids"], 4000
    drawn = changes_of(text, loaded, "sample", samples=n)
    assert drawn == changes_of(text, loaded, "sample", samples=n)
    assert drawn != changes_of(text, loaded, "sample", samples=n, seed=1)
    columns = sorted({column for column, _ in drawn})
    assert columns == [i for i, token in enumerate(ids) if token != VOCABULARY["[MASK]"]]
    for column in columns:
        counts = Counter(word for c, word in drawn if c == column)
        shares = np.asarray([counts[word] / n for word in VOCABULARY])
        expected = expected_tokens(loaded, ids, column)
        assert shares == pytest.approx(expected, abs=0.04)  # five standard deviations
        assert shares[ids[column]] == 0


def test_samples_are_averaged():
    loaded, text = start_with(make_loaded("GPT2LMHeadModel"), 2), "the key to"
    result = blank_out(text, loaded, replacement="sample", samples=3, seed=5, batch_size=4)
    assert {"samples": 3, "seed": 5}.items() <= result.settings.items()
    changes = changes_of(text, loaded, "sample", samples=3, seed=5)
    assert [column for column, _ in changes] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    ids, target = loaded.tokenizer(text)["input_ids"], result.settings["target_index"]
    logs = []
    with torch.no_grad():
        for column, word in [(0, "the"), *changes]:
            changed = [*ids[:column], VOCABULARY[word], *ids[column + 1 :]]
            logits = loaded.model(input_ids=torch.tensor([changed])).logits[0, -1]
            logs.append(float(logits.log_softmax(-1)[target]))
    expected = logs[0] - np.reshape(logs[1:], (3, 3)).mean(1)
    np.testing.assert_allclose(result.scores[0, 0], expected, atol=1e-5)


def test_the_first_token_is_not_sampled_without_a_start_of_text():
    loaded = make_loaded("GPT2LMHeadModel")
    assert blank_out("the key to", loaded, replacement="sample").columns == (1, 2)
    with refusal(InputError, "one token", "replacement='mean'"):
        blank_out("the", loaded, replacement="sample")


def test_a_classifier_cannot_sample(by_hand):
    with refusal(InputError, "'sample'", "by hand", "language model"):
        blank_out("key", by_hand, replacement="sample")


def loaded_as(task: Any, **tokens: int | None) -> Any:
    names = {f"{name}_token_id": None for name in ("unk", "mask", "pad", "bos", "eos")}
    tokenizer = SimpleNamespace(**names | tokens)
    return LoadedModel(None, tokenizer, task, "no model", None)


@pytest.mark.parametrize(
    ("task", "tokens", "expected"),
    [
        ("classifier", {"unk_token_id": 1}, "unknown"),
        ("masked_lm", {"unk_token_id": 1, "mask_token_id": 4}, "mean"),
        ("classifier", {"unk_token_id": 1, "eos_token_id": 1}, "mean"),  # GPT-2 as a classifier
        ("classifier", {}, "mean"),
        ("causal_lm", {"unk_token_id": 1, "eos_token_id": 1}, "mean"),
        ("causal_lm", {"unk_token_id": 1, "eos_token_id": 2}, "mean"),
        ("seq2seq", {"unk_token_id": 1}, "mean"),
    ],
)
def test_the_default_depends_on_the_model(task, tokens, expected):
    assert resolve_replacement(loaded_as(task, **tokens)) == expected


def test_defaults_are_recorded_in_the_settings():
    classifier = blank_out("the key", make_loaded()).settings
    decoder = blank_out("the key", make_loaded("GPT2LMHeadModel")).settings
    assert (classifier["replacement"], classifier["score"]) == ("unknown", "probability")
    assert (decoder["replacement"], decoder["score"]) == ("mean", "log_probability")


@pytest.mark.parametrize("replacement", ["unknown", "remove", "mean", "neighbor"])
@pytest.mark.parametrize("score", ["probability", "log_probability"])
def test_many_texts_give_the_scores_of_single_ones(replacement, score):
    loaded = make_loaded()
    texts, classes = ("the key to cabinets", "the key", "here is the key"), [1, 0, 1]
    encoded = [encode_text(loaded, text) for text in texts]
    options: dict[str, Any] = {"replacement": replacement, "score": score}
    rows = blank_out_batch(loaded, encoded, classes, **options)
    for row, text, target in zip(rows, texts, classes, strict=True):
        single = blank_out(text, loaded, target=target, **options).to_numpy()[0, 0]
        assert row == pytest.approx(single, abs=1e-5)


@pytest.mark.parametrize("replacement", ["unknown", "remove", "mean"])
def test_the_encoder_of_an_encoder_decoder_is_blanked(encoder_decoder, replacement):
    model, text = encoder_decoder.model, "the key to cabinets"
    result = blank_out(text, encoder_decoder, replacement=replacement, score="probability")
    ids = torch.tensor(encoder_decoder.tokenizer(text)["input_ids"])
    assert result.columns == tuple(range(len(ids)))
    assert len(result.tokens) == len(ids) + 1
    start = torch.tensor([[2]])

    def chance(**inputs: Any) -> float:
        with torch.no_grad():
            logits = model(decoder_input_ids=start, **inputs).logits[0, -1]
        return float(logits.softmax(-1)[result.settings["target_index"]])

    layer = model.get_encoder().get_input_embeddings()
    mean = layer(torch.arange(len(VOCABULARY))).mean(0).detach()
    expected = []
    for i in range(len(ids)):
        kept = torch.cat([ids[:i], ids[i + 1 :]])
        changed = torch.cat([ids[:i], torch.tensor([1]), ids[i + 1 :]])
        vectors = layer(ids).detach()
        vectors[i] = mean
        inputs = {
            "unknown": {"input_ids": changed[None]},
            "remove": {"input_ids": kept[None]},
            "mean": {"inputs_embeds": vectors[None]},
        }
        expected.append(chance(input_ids=ids[None]) - chance(**inputs[replacement]))
    np.testing.assert_allclose(result.scores[0, 0], expected, atol=1e-6)
    assert np.abs(expected).max() > 1e-5
