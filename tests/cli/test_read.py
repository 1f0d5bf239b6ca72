import io
import json
from typing import Any
from zipfile import ZipFile

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


@pytest.mark.parametrize(
    "names",
    [
        ("layer.0", "layer0", "layer_0"),
        ("layer.0", "arr_0"),
        ("layer.0", "layer.00", "layer.1"),
        ("layer.0", "layer.1", "bias"),
        ("layer.0", "layer.1", "Layer.2"),
        ("layer.2", "layer.3"),
        ("layer.\u0660", "layer.1"),
    ],
)
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_no_array_of_a_file_is_left_out(tmp_path, names, suffix):
    path, arrays = tmp_path / f"a{suffix}", dict.fromkeys(names, WEIGHTS[0])
    save_file(arrays, path) if suffix == ".safetensors" else np.savez(path, **arrays)
    with refusal(FileError, *names, "layer.0"):
        read_attentions(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_with_odd_members_are_refused(tmp_path):
    array = io.BytesIO()
    np.save(array, WEIGHTS[0])
    path = tmp_path / "a.npz"
    with ZipFile(path, "w") as archive:
        archive.writestr("layer.0.npy", array.getvalue())
        archive.writestr("layer.0.npy", array.getvalue())
    with refusal(FileError, "layer.0", "more than once"):
        read_attentions(path)
    with ZipFile(path, "w") as archive:
        archive.writestr("layer.0.npy", array.getvalue())
        archive.writestr("notes.txt", b"text")
    with refusal(FileError, "notes.txt"):
        read_attentions(path)
    with ZipFile(path, "w") as archive:
        archive.writestr("layer.0.npy", array.getvalue())
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the flag of an encrypted member, in both headers
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with refusal(FileError, "encrypted"):
        read_attentions(path)


@pytest.mark.parametrize("shape", ["(99999999999,)", "(3, 4, -1)", "(3, 4, 'a')", "((3,), 4)"])
def test_an_array_with_a_wrong_header_is_refused(tmp_path, shape):
    path = tmp_path / "a.npy"
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + b"\0" * 80)
    with refusal(FileError, "a.npy"):
        read_attentions(path)


@pytest.mark.parametrize("kind", [">f4", ">f8", ">f2"])
def test_big_endian_numbers(tmp_path, kind):
    path = tmp_path / "a.npy"
    np.save(path, WEIGHTS.astype(kind))
    attentions = read_attentions(path)
    assert attentions.layers[0].dtype.isnative
    np.testing.assert_allclose(np.stack(attentions.layers), WEIGHTS, atol=1e-3)


def safetensors(path, dtype="F32", size=4, metadata=None):
    """Write one array [1, 1] by hand."""
    header: dict[str, Any] = {"a": {"dtype": dtype, "shape": [1, 1], "data_offsets": [0, size]}}
    if metadata is not None:
        header["__metadata__"] = {"attnflow": metadata}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * size)


@pytest.mark.parametrize(("dtype", "size"), [("F8_E4M3", 1), ("F8_E5M2", 1), ("C64", 8)])
def test_arrays_of_other_types_are_refused(tmp_path, dtype, size):
    path = tmp_path / "a.safetensors"
    safetensors(path, dtype, size)
    with refusal(FileError, "a.safetensors"):
        read_attentions(path)


@pytest.mark.parametrize("metadata", ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "\ud800"])
def test_odd_metadata_is_refused(tmp_path, metadata):
    path = tmp_path / "a.safetensors"
    safetensors(path, metadata=metadata)
    with refusal(FileError, "a.safetensors"):
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


@pytest.mark.parametrize("content", [b"\x80\x04\x95", b"\x1f\x8b\x08", b"", b"<html>"])
def test_a_file_that_is_no_array_gets_no_advice_to_unpickle_it(tmp_path, content):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_attentions(path)
    assert "a.npy" in caught.value.given
    assert "pickle" not in str(caught.value)
