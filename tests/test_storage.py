import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from attnflow import storage
from attnflow.errors import FileError
from tests.refusal import refusal


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.safetensors"
    storage.write(path, kind="attentions", arrays={"a": np.eye(3)}, header={"tokens": ["x"]})
    return path


def test_arrays_and_header_come_back(path):
    arrays, header = storage.read(path, kind="attentions")
    assert list(arrays) == ["a"]
    np.testing.assert_array_equal(arrays["a"], np.eye(3))
    assert header == {"kind": "attentions", "version": 1, "tokens": ["x"]}


def test_another_kind_is_refused(path):
    with refusal(FileError, path, "attentions", "attribution"):
        storage.read(path, kind="attribution")


def test_a_file_that_is_cut_short_is_refused(path):
    path.write_bytes(path.read_bytes()[:-8])
    with refusal(FileError, path, "safetensors"):
        storage.read(path, kind="attentions")


@pytest.mark.parametrize("content", [b"", b"text, and far too short for its first eight bytes"])
def test_a_file_of_another_format_is_refused(path, content):
    path.write_bytes(content)
    with refusal(FileError, path, "safetensors"):
        storage.read(path, kind="attentions")


def test_a_file_of_another_program_is_refused(path):
    save_file({"a": np.eye(3)}, path)
    with refusal(FileError, path, "safetensors"):
        storage.read(path, kind="attentions")


@pytest.mark.parametrize("header", ["{", "[]", "null"])
def test_a_broken_header_is_refused(path, header):
    save_file({"a": np.eye(3)}, path, {"attnflow": header})
    with refusal(FileError, "JSON"):
        storage.read(path, kind="attentions")


def test_a_later_version_of_the_format_is_refused(path):
    header = json.dumps({"kind": "attentions", "version": 2})
    save_file({"a": np.eye(3)}, path, {"attnflow": header})
    with refusal(FileError, "2", "1"):
        storage.read(path, kind="attentions")


def test_a_missing_folder_is_named(tmp_path):
    with refusal(FileError, tmp_path / "no"):
        storage.write(tmp_path / "no" / "file", kind="attentions", arrays={}, header={})


def test_a_folder_cannot_be_written_as_a_file(tmp_path):
    with refusal(FileError, tmp_path):
        storage.write(tmp_path, kind="attentions", arrays={"a": np.eye(1)}, header={})


def test_a_file_that_does_not_exist(tmp_path):
    with refusal(FileError, "none.safetensors"):
        storage.read(tmp_path / "none.safetensors", kind="attentions")
