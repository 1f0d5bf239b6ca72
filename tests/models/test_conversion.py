"""Pickle checkpoints, converted in a process of their own."""

import json
import os
import pickle

import pytest
import torch
from typer.testing import CliRunner

from attnflow.cli.main import app
from attnflow.errors import FileError
from attnflow.models.conversion import convert_checkpoint
from attnflow.models.loading import load_model
from tests.models.checkpoints import make_model, make_tokenizer
from tests.refusal import refusal

pytestmark = pytest.mark.slow


def save_pickle(folder, kind="BertForSequenceClassification", weights=None, tokenizer=True):
    """A checkpoint as old versions of transformers wrote it; returns the weights."""
    model = make_model(kind)
    model.config.architectures = [kind]
    model.config.save_pretrained(folder)
    torch.save(model.state_dict() if weights is None else weights, folder / "pytorch_model.bin")
    if tokenizer:
        make_tokenizer(encoder=not kind.startswith("GPT2")).save_pretrained(folder)
    return model.state_dict()


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertModel", "GPT2LMHeadModel"])
def test_a_pickle_is_converted_with_its_head_and_tokenizer(tmp_path, kind):
    weights = save_pickle(tmp_path / "old", kind)
    done = convert_checkpoint(tmp_path / "old", tmp_path / "new")
    assert (done.model, done.has_tokenizer) == (kind, True)
    loaded = load_model(tmp_path / "new")
    assert type(loaded.model).__name__ == kind
    for name, values in loaded.model.state_dict().items():
        assert torch.equal(values, weights[name])
    assert loaded.tokenizer("the key")["input_ids"][-2:] != []


class Attack:
    """A pickle that creates a file when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_code_in_a_pickle_is_not_run(tmp_path):
    save_pickle(tmp_path / "old")
    with (tmp_path / "old/pytorch_model.bin").open("wb") as file:
        pickle.dump({"weights": Attack(tmp_path / "attacked")}, file)
    with refusal(FileError, str(tmp_path / "old")):
        convert_checkpoint(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "attacked").exists()
    assert not (tmp_path / "new").exists()


def test_weights_that_are_missing_are_named(tmp_path):
    weights = make_model("BertForSequenceClassification").state_dict()
    save_pickle(tmp_path / "old", weights={k: w for k, w in weights.items() if "class" not in k})
    with refusal(FileError, "classifier.bias"):
        convert_checkpoint(tmp_path / "old", tmp_path / "new")


def test_weights_that_are_left_out_are_named(tmp_path):
    weights = make_model("BertForSequenceClassification").state_dict()
    save_pickle(tmp_path / "old", weights={**weights, "probe.weight": torch.ones(3)})
    assert convert_checkpoint(tmp_path / "old", tmp_path / "new").unused == ("probe.weight",)
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "old")])
    assert "probe.weight" in result.stderr


def test_a_head_is_not_lost_without_the_name_of_its_class(tmp_path):
    save_pickle(tmp_path / "old")
    config = json.loads((tmp_path / "old/config.json").read_text())
    del config["architectures"]
    (tmp_path / "old/config.json").write_text(json.dumps(config))
    with refusal(FileError, "classifier.weight", "architectures"):
        convert_checkpoint(tmp_path / "old", tmp_path / "new")
    make_model().save_pretrained(tmp_path / "old")
    (tmp_path / "old/config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match=r"classifier\.weight.*architectures"):
        load_model(tmp_path / "old")


@pytest.mark.parametrize("content", [b"version https://git-lfs.github.com/spec/v1\n", b"\x80\x04"])
def test_files_that_are_no_weights_get_advice_of_ours(tmp_path, content):
    save_pickle(tmp_path / "old")
    (tmp_path / "old/pytorch_model.bin").write_bytes(content)
    with refusal(FileError, "torch.save", "git lfs", "weights_only=True"):
        convert_checkpoint(tmp_path / "old", tmp_path / "new")


def test_an_error_of_attnflow_keeps_its_advice(tmp_path):
    save_pickle(tmp_path / "old")
    (tmp_path / "old/config.json").write_text("{")
    with refusal(FileError, "config.json", "a JSON object"):
        convert_checkpoint(tmp_path / "old", tmp_path / "new")


def test_folders_that_cannot_be_converted(tmp_path):
    with refusal(FileError, "config.json", "pytorch_model.bin"):
        convert_checkpoint(tmp_path, tmp_path / "new")
    save_pickle(tmp_path / "old", tokenizer=False)
    with refusal(FileError, "exists already", "--out"):
        convert_checkpoint(tmp_path / "old", tmp_path)


def test_the_command_says_what_it_did(tmp_path):
    save_pickle(tmp_path / "old", tokenizer=False)
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "old")])
    assert result.exit_code == 0, result.output
    for part in ("old-safetensors", "BertForSequenceClassification", "--tokenizer"):
        assert part in result.stderr


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("pytorch_model.bin", ["attnflow convert"]),
        ("model.pt", ["attnflow convert"]),
        ("weights.safetensors", ["rename weights.safetensors"]),
        ("model.onnx", ["ONNX", "cannot be converted"]),
        ("tf_model.h5", ["TensorFlow", "cannot be converted"]),
        ("notes.txt", ["no weights at all"]),
    ],
)
def test_the_advice_fits_the_folder(tmp_path, name, parts):
    save_pickle(tmp_path)
    (tmp_path / "pytorch_model.bin").rename(tmp_path / name)
    with refusal(FileError, str(tmp_path), *parts):
        load_model(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())
