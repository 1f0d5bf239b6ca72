"""Many texts at once give the numbers of one text at a time."""

import numpy as np
import pytest
import torch

from attnflow import load_model
from attnflow.errors import InputError
from attnflow.importance import target as module
from attnflow.importance.blank_out import blank_out, blank_out_batch
from attnflow.importance.gradients import input_gradients, input_gradients_batch
from attnflow.importance.target import predict_classes
from attnflow.models.inputs import collate, encode_text
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal

pytestmark = pytest.mark.slow

TEXTS = (
    "the keys to the cabinet",
    "the author",
    "the book about the old teachers of the city",
    "the doors behind the garden near the house",
)


@pytest.fixture(scope="module", params=["verb-number", "verb-number-causal"])
def loaded(request):
    return load_model(request.param)


@pytest.fixture
def encoded(loaded):
    return [encode_text(loaded, text) for text in TEXTS]


@pytest.mark.parametrize("ratio", [1.25, 100.0])  # several batches, or one with padding
def test_blank_out_is_that_of_single_texts(loaded, encoded, ratio, monkeypatch):
    monkeypatch.setattr(module, "MAX_LENGTH_RATIO", ratio)
    targets = [1, 0, 0, 1]
    rows = blank_out_batch(loaded, encoded, targets)
    for row, text, target in zip(rows, TEXTS, targets, strict=True):
        single = blank_out(text, loaded, target=target).to_numpy()[0, 0]
        assert row == pytest.approx(single, abs=1e-6)
        assert np.abs(single).max() > 0.01  # there is something to compare


@pytest.mark.parametrize("ratio", [1.25, 100.0])
@pytest.mark.parametrize("variant", ["l2", "times_input"])
def test_gradients_are_those_of_single_texts(loaded, encoded, variant, ratio, monkeypatch):
    monkeypatch.setattr(module, "MAX_LENGTH_RATIO", ratio)
    targets = [1, 0, 0, 1]
    rows = input_gradients_batch(loaded, encoded, targets)[variant]
    for row, text, target in zip(rows, TEXTS, targets, strict=True):
        single = input_gradients(text, loaded, variant=variant, target=target).to_numpy()[0, 0]
        assert row == pytest.approx(single, rel=1e-3, abs=1e-5)


def test_the_gradient_of_the_probability_is_the_same_for_both_classes(loaded, encoded):
    one, other = (
        input_gradients_batch(loaded, encoded, [target] * len(TEXTS), score="probability")["l2"]
        for target in (0, 1)
    )
    for first, second in zip(one, other, strict=True):
        assert first == pytest.approx(second, rel=1e-3)


def test_batches_are_small_and_every_text_has_its_own_place(loaded, encoded, monkeypatch):
    expected = predict_classes(loaded, encoded)
    monkeypatch.setattr(module, "MAX_ROWS", 1)
    assert predict_classes(loaded, encoded) == pytest.approx(expected, abs=1e-6)
    assert expected.argmax(-1).tolist() == [1, 0, 0, 1]


def test_the_authors_gradient_is_rounding_where_blocks_normalize_first(loaded, encoded):
    """The sum over the embedding is 0: LayerNorm ignores what is the same in all components."""
    made = input_gradients_batch(loaded, encoded, [1, 0, 0, 1])
    for total, length in zip(made["sum"], made["l2"], strict=True):
        assert length.max() > 1e-3
        # A vector of this length in a random direction would have a sum of about its length.
        assert total.max() < 1e-4 * length.max()


def test_a_constant_added_to_an_embedding_changes_nothing(loaded, encoded):
    """Why the sum of the gradient is 0, shown without gradients."""
    inputs = collate(loaded, encoded)
    layer = loaded.model.get_input_embeddings()
    with torch.no_grad():
        before = loaded.model(**inputs).logits
        hook = layer.register_forward_hook(lambda _m, _i, output: output + 3.0)
        try:
            after = loaded.model(**inputs).logits
        finally:
            hook.remove()
    assert after.numpy() == pytest.approx(before.numpy(), abs=1e-3)


def test_the_place_after_the_embedding_module_has_a_sum():
    """BERT normalizes its embeddings: before that the sum is 0, after it not."""
    bert = make_loaded()
    encoded = [encode_text(bert, text) for text in ("the key", "the key to the cabinets")]
    before = input_gradients_batch(bert, encoded, [0, 1])
    after = input_gradients_batch(bert, encoded, [0, 1], place="embeddings")
    for i in range(2):
        assert before["sum"][i].max() < 1e-4 * before["l2"][i].max()
        assert after["sum"][i].max() > 1e-2 * after["l2"][i].max()
        assert len(after["sum"][i]) == encoded[i].n_inputs


def test_a_model_without_an_embedding_module_is_rejected(loaded, encoded):
    with refusal(InputError, "verb-number", "place='words'"):
        input_gradients_batch(loaded, encoded, [0] * 4, place="embeddings")


def test_only_classifiers_take_many_texts():
    model = make_loaded("BertForMaskedLM")
    with refusal(InputError, "BertForMaskedLM", "blank_out or input_gradients"):
        predict_classes(model, [])
