import numpy as np
import pytest
import torch
from hypothesis import given

from attnflow import Attentions
from attnflow.errors import AttentionError, FileError, InputError, ShapeError
from attnflow.storage import write
from tests.refusal import refusal
from tests.weights import TWO_LAYERS, OnlyDLPack, random_attention, stochastic

HOSTILE = ["😀", "שלום", "\"'`<b>", "", "a\nb\r\t\0", "\\u0041", "\u202eabc", "\ud83d"]


@pytest.mark.parametrize(
    "attentions",
    [
        TWO_LAYERS[:, None],  # [layers, heads, queries, keys]
        TWO_LAYERS,  # one head
        list(TWO_LAYERS),
        [layer[None] for layer in TWO_LAYERS],
        tuple(layer[None, None] for layer in TWO_LAYERS),  # Hugging Face, a batch of one
        TWO_LAYERS.tolist(),
        [OnlyDLPack(layer) for layer in TWO_LAYERS],
    ],
)
def test_every_form_gives_the_same_layers(attentions):
    taken = Attentions(attentions)
    assert taken.n_layers == 2
    assert taken.n_heads == (1, 1)
    assert taken.n_tokens == 2
    assert taken.tokens == ("0", "1")
    for layer, expected in zip(taken.layers, TWO_LAYERS, strict=True):
        np.testing.assert_array_equal(layer[0], expected)


def test_layers_may_have_different_numbers_of_heads():
    taken = Attentions([random_attention(3, 4, 4), random_attention(1, 4, 4)])
    assert taken.n_heads == (3, 1)
    assert repr(taken) == "Attentions(2 layers, 1 to 3 heads, 4 tokens)"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tensors_keep_their_type_and_memory(dtype):
    tensors = [torch.as_tensor(random_attention(1, 2, 3, 3)).to(dtype) for _ in range(2)]
    taken = Attentions(tuple(tensors))
    for layer, tensor in zip(taken.layers, tensors, strict=True):
        assert layer.dtype == dtype
        assert layer.data_ptr() == tensor.data_ptr()


@given(stochastic((1, 3), (1, 3)))
def test_any_rows_that_sum_to_one_are_taken(attentions):
    assert Attentions(attentions).n_layers == len(attentions)


@pytest.mark.parametrize("attentions", [None, (), []])
def test_no_attention_names_the_kernels_and_the_cure(attentions):
    with refusal(
        AttentionError,
        f"attentions is {attentions!r}; expected one array of attention weights per layer",
        "SDPA",
        'attn_implementation="eager"',
        'model.set_attn_implementation("eager")',
    ):
        Attentions(attentions)


def test_a_layer_without_attention_names_the_kernels_and_the_cure():
    with refusal(AttentionError, "2 (attentions[1])", "SDPA", '"eager"'):
        Attentions((TWO_LAYERS[0], None))


@pytest.mark.parametrize("shape", [(2, 2), (0, 1, 2, 2)])
def test_too_few_axes_or_layers_are_refused(shape):
    with refusal(ShapeError, "[layers"):
        Attentions(np.ones(shape))


def test_too_many_axes_are_refused():
    with refusal(ShapeError, "1 (attentions[0])", "[1, 1, 1, 2, 2]", "[heads"):
        Attentions([np.ones((1, 1, 1, 2, 2))])


def test_a_batch_is_sent_to_the_batch_constructor():
    with refusal(ShapeError, "3", "Attentions.batch(...)"):
        Attentions([random_attention(3, 1, 2, 2)])


def test_rectangular_layers_are_sent_to_the_graph():
    with refusal(
        ShapeError,
        "1 (attentions[0])",
        "2",
        "3",
        "AttentionGraph.from_layers",
        "AttentionGraph.encoder_decoder",
    ):
        Attentions([random_attention(1, 2, 3)])


def test_layers_of_different_sizes_are_refused():
    with refusal(ShapeError, "2 (attentions[1])", "3", "2"):
        Attentions([random_attention(1, 2, 2), random_attention(1, 3, 3)])


def test_an_empty_input_is_refused():
    with refusal(ShapeError, "[1, 0, 0]"):
        Attentions([np.ones((1, 0, 0))])


def test_arrays_of_two_kinds_are_refused():
    with refusal(InputError, "(attentions[1])", "1"):
        Attentions([np.eye(2), torch.eye(2)])


def test_rows_are_checked_in_every_layer():
    with refusal(AttentionError, "2 (attentions[1])", "1.5"):
        Attentions([np.eye(2), 1.5 * np.eye(2)])


@pytest.mark.parametrize(
    ("tokens", "kind", "wording"),
    [
        (["a"], ShapeError, "2 tokens"),
        ("ab", InputError, "convert_ids_to_tokens"),
        ([1, 2], InputError, "convert_ids_to_tokens"),
    ],
)
def test_tokens_must_be_text_and_as_many_as_positions(tokens, kind, wording):
    with refusal(kind, wording):
        Attentions(TWO_LAYERS, tokens=tokens)


def test_attentions_are_frozen():
    attentions = Attentions(TWO_LAYERS)
    with pytest.raises(AttributeError):
        attentions.tokens = ("a", "b")  # type: ignore[misc]


def test_what_is_saved_comes_back(tmp_path):
    path = tmp_path / "a.safetensors"
    n = len(HOSTILE)
    attentions = Attentions([random_attention(2, n, n), random_attention(1, n, n)], tokens=HOSTILE)
    attentions.save(path)
    loaded = Attentions.load(path)
    assert loaded.tokens == tuple(HOSTILE)
    assert loaded.n_heads == (2, 1)
    for layer, expected in zip(loaded.layers, attentions.layers, strict=True):
        np.testing.assert_array_equal(layer, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_saved_tensors_keep_their_type(tmp_path, dtype):
    path = tmp_path / "a.safetensors"
    stacked = torch.as_tensor(random_attention(3, 2, 4, 4)).to(dtype)  # layers are views of it
    Attentions(stacked).save(path)
    loaded = Attentions.load(path)
    for layer, expected in zip(loaded.layers, stacked, strict=True):
        assert torch.equal(torch.as_tensor(layer), expected)


def test_one_tensor_for_two_layers_can_be_saved(tmp_path):
    path = tmp_path / "a.safetensors"
    layer = torch.eye(2, dtype=torch.bfloat16)
    Attentions([layer, layer]).save(path)
    assert Attentions.load(path).n_layers == 2


def test_more_than_ten_layers_come_back_in_order(tmp_path):
    path = tmp_path / "a.safetensors"
    attentions = random_attention(12, 1, 2, 2)
    Attentions(attentions).save(path)
    np.testing.assert_array_equal(np.stack(Attentions.load(path).layers), attentions)


def test_a_saved_file_is_checked_when_it_is_loaded(tmp_path):
    path = tmp_path / "a.safetensors"
    write(path, kind="attentions", arrays={"layer.0": np.eye(2)}, header={})
    with refusal(FileError, path, "tokens"):
        Attentions.load(path)
    header = {"tokens": ["a", "b"]}
    write(path, kind="attentions", arrays={"layer.0": 2 * np.eye(2)}, header=header)
    with refusal(AttentionError, "1 (attentions[0])", "2"):
        Attentions.load(path)
    write(path, kind="attentions", arrays={"layer.1": np.eye(2)}, header=header)
    with refusal(FileError, "layer.1", "layer.0"):
        Attentions.load(path)
