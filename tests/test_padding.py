import numpy as np
import pytest
import torch

from attnflow import Attentions
from attnflow.errors import AttentionError, InputError, ShapeError
from tests.refusal import refusal
from tests.weights import random_attention

MASK = [[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 1]]


def padded_batch(mask, n_layers=2, n_heads=2):
    """Random attention [layers, batch, heads, n, n] in which no query attends to padding."""
    kept = np.asarray(mask)[None, :, None, None, :]
    attention = random_attention(n_layers, kept.shape[1], n_heads, kept.shape[-1], kept.shape[-1])
    attention = attention * kept
    return attention / attention.sum(-1, keepdims=True)


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("listed", [False, True])
def test_padding_is_cut_away_on_every_side(convert, listed):
    batch = padded_batch(MASK)
    given = [convert(layer) for layer in batch] if listed else convert(batch)
    examples = Attentions.batch(given, padding_mask=convert(np.asarray(MASK)))
    assert [example.n_tokens for example in examples] == [4, 2, 2, 1]
    for b, example in enumerate(examples):
        kept = np.flatnonzero(MASK[b])
        for layer, expected in zip(example.layers, batch[:, b], strict=True):
            np.testing.assert_array_equal(np.asarray(layer), expected[:, kept][:, :, kept])


def test_without_a_mask_nothing_is_cut():
    examples = Attentions.batch(random_attention(1, 3, 2, 4, 4))
    assert [example.n_tokens for example in examples] == [4, 4, 4]


def test_tokens_come_with_or_without_padding():
    tokens = [["a", "b", "c", "d"], ["[PAD]", "e", "f", "[PAD]"], ["g", "h"], ["i"]]
    examples = Attentions.batch(padded_batch(MASK), tokens=tokens, padding_mask=MASK)
    assert [" ".join(example.tokens) for example in examples] == ["a b c d", "e f", "g h", "i"]


def test_one_run_of_tokens_is_a_view():
    batch = padded_batch([[0, 1, 1]])
    [example] = Attentions.batch(batch, padding_mask=[[0, 1, 1]])
    assert np.shares_memory(example.layers[0], batch)


def test_garbage_in_the_rows_of_padding_does_not_matter():
    batch = padded_batch([[1, 1, 0]])
    batch[..., 2, :] = np.nan
    assert Attentions.batch(batch, padding_mask=[[1, 1, 0]])[0].n_tokens == 2


def test_attention_to_padding_is_refused():
    batch = np.full((1, 1, 1, 4, 4), 0.25)  # a quarter of each row is on the last position
    with refusal(
        AttentionError,
        "0",
        "1 (attentions[0])",
        "0.25",
        "1",
    ):
        Attentions.batch(batch, padding_mask=[[1, 1, 1, 0]])


def test_the_example_whose_weights_are_wrong_is_named():
    batch = random_attention(1, 3, 1, 2, 2)
    batch[0, 2] *= 2
    with refusal(AttentionError, "2", "1 (attentions[0])"):
        Attentions.batch(batch)
    with refusal(ShapeError, "1", "2"):
        Attentions.batch(batch, tokens=[["a", "b"], ["a"], ["a", "b"]])


def test_a_mask_of_the_wrong_shape_is_refused():
    with refusal(ShapeError, "padding_mask", "[1, 3]", "[1, 4]", "attention_mask"):
        Attentions.batch(random_attention(1, 1, 1, 4, 4), padding_mask=[[1, 1, 1]])


def test_a_mask_with_other_numbers_is_refused():
    with refusal(InputError, "0", "1"):
        Attentions.batch(random_attention(1, 1, 1, 2, 2), padding_mask=[[0.0, -1e9]])


def test_an_example_of_padding_only_is_refused():
    with refusal(InputError, "1"):
        Attentions.batch(random_attention(1, 2, 1, 2, 2), padding_mask=[[1, 1], [0, 0]])


def test_a_single_example_is_sent_to_the_constructor():
    with refusal(ShapeError, "[1, 4, 4]", "[batch", "Attentions(...)"):
        Attentions.batch(random_attention(2, 1, 4, 4))


def test_tokens_for_another_number_of_examples_are_refused():
    with refusal(ShapeError, "1", "2"):
        Attentions.batch(random_attention(1, 2, 1, 1, 1), tokens=[["a"]])
