import numpy as np
import pytest
from safetensors.numpy import save_file

from attnflow import Attentions, Attribution
from attnflow.cli.trace import read_attentions
from attnflow.errors import AttentionError, FileError
from tests.refusal import refusal
from tests.weights import random_attention

WEIGHTS = random_attention(3, 2, 4, 4)
TOKENS = ["a", "b", "c", "d"]


def check(attentions, tokens=("0", "1", "2", "3")):
    np.testing.assert_array_equal(np.stack(attentions.layers), WEIGHTS)
    assert attentions.tokens == tuple(tokens)


def test_our_own_file(tmp_path):
    path = tmp_path / "a.safetensors"
    Attentions(WEIGHTS, tokens=TOKENS).save(path)
    check(read_attentions(path), TOKENS)
    check(read_attentions(path, ["w", "x", "y", "z"]), ["w", "x", "y", "z"])


@pytest.mark.parametrize(
    "arrays",
    [
        {f"layer.{i}": layer for i, layer in enumerate(WEIGHTS)},
        {f"layer.{i + 1}": layer for i, layer in enumerate(WEIGHTS)},
        {f"layer_{i}": layer[None] for i, layer in enumerate(WEIGHTS)},
        {"attentions": WEIGHTS},
    ],
)
def test_safetensors_of_another_program(tmp_path, arrays):
    path = tmp_path / "a.SafeTensors"
    save_file(arrays, path)
    check(read_attentions(path))
    check(read_attentions(path, TOKENS), TOKENS)


def test_more_than_ten_layers_are_read_in_order(tmp_path):
    path = tmp_path / "a.npz"
    layers = random_attention(12, 1, 2, 2)
    np.savez(path, *layers)
    np.testing.assert_array_equal(np.stack(read_attentions(path).layers), layers)


def test_npy(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, WEIGHTS)
    check(read_attentions(path))


def test_npz_with_one_array_or_one_per_layer_and_tokens(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, WEIGHTS, tokens=np.asarray(TOKENS))
    check(read_attentions(path), TOKENS)
    np.savez(path, *WEIGHTS)
    check(read_attentions(path))


def test_an_attribution_is_no_attention(tmp_path):
    path = tmp_path / "a.safetensors"
    Attribution(np.ones((1, 1, 1)), ("a",), "flow", (1,), (0,)).save(path)
    for tokens in (None, ["a"]):
        with refusal(FileError):
            read_attentions(path, tokens)


def test_another_ending_is_refused(tmp_path):
    with refusal(FileError, "'.pt'"):
        read_attentions(tmp_path / "a.pt")


def test_python_objects_are_never_loaded(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.asarray([{"a": 1}]), allow_pickle=True)
    with refusal(FileError, "allow_pickle=False"):
        read_attentions(path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_broken_files_are_refused(tmp_path, name):
    path = tmp_path / name
    for content in (b"", b"no array"):
        path.write_bytes(content)
        with refusal(FileError):
            read_attentions(path)
    (np.save if name == "a.npy" else np.savez)(path, WEIGHTS)
    path.write_bytes(path.read_bytes()[:-100])
    with refusal(FileError):
        read_attentions(path)


@pytest.mark.parametrize(
    "arrays", [{"q": WEIGHTS, "k": WEIGHTS}, {"layer.0": WEIGHTS[0], "layer.2": WEIGHTS[2]}]
)
def test_arrays_that_are_no_layers_are_refused(tmp_path, arrays):
    path = tmp_path / "a.safetensors"
    save_file(arrays, path)
    with refusal(FileError, f"holds {', '.join(sorted(arrays))}", "layer.0", "layer.1"):
        read_attentions(path)


def test_tokens_in_a_file_must_be_text(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, WEIGHTS, tokens=np.arange(4))
    with refusal(FileError, "int64", "[4]", "numpy.array(tokens)"):
        read_attentions(path)


def test_weights_are_checked(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, 2 * WEIGHTS)
    with refusal(AttentionError, "2"):
        read_attentions(path)
