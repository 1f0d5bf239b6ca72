"""The command `train`, in-process, on a few sentences of the grammar."""

import json
from functools import partial

import pytest
import torch
import typer
from typer.testing import CliRunner

from attnflow.cli.train import register
from attnflow.models.loading import load_model
from attnflow.paper.verb_number import splits as splitting
from attnflow.paper.verb_number import trainer as training


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A tiny model and few sentences."""
    tiny = partial(training.Recipe, sizes={"n_layer": 1, "n_head": 2, "n_embd": 8})
    monkeypatch.setattr(training, "Recipe", tiny)
    monkeypatch.setattr(splitting, "split_grammar", partial(splitting.split_grammar, 200))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["train", "verb-number", *map(str, arguments)])


def test_a_model_is_trained_and_can_be_loaded(tmp_path):
    result = run("--out", tmp_path, "--epochs", 2, "--device", "cpu", "--causal", "--seed", 3)
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert lines[0].startswith("epoch 1 of 2: loss ")
    assert lines[-1] == f"attnflow: wrote {tmp_path}"
    accuracy = json.loads((tmp_path / "accuracy.json").read_text())
    first = result.stdout.splitlines()[0]
    assert first == f"development: {accuracy['development']:.4f}"
    loaded = load_model(tmp_path)
    assert loaded.sees_only_earlier
    assert loaded.n_layers == 1


def test_without_helping_tasks_only_the_number_is_learnt(tmp_path):
    options = ("--epochs", 1, "--device", "cpu")
    helped = run("--out", tmp_path / "helped", *options)
    alone = run("--out", tmp_path / "alone", *options, "--no-helping-tasks")
    assert alone.exit_code == 0, alone.output
    # Guessing a number costs at most ln 2 at first; guessing one word of many costs more.
    losses = [float(r.stderr.split("loss ")[1].split(",")[0]) for r in (alone, helped)]
    assert losses[0] < 1 < losses[1]


def test_a_finished_training_is_not_repeated(tmp_path):
    options = ("--out", tmp_path, "--epochs", 1, "--device", "cpu")
    first = run(*options)
    again = run(*options, "--resume")
    assert again.stderr.splitlines()[0] == "resumed after epoch 1 of 1"
    assert again.stdout == first.stdout
    other = run(*options, "--resume", "--seed", 5)
    assert other.exit_code == 2
    assert "comes from another training, with seed 0 and not 5" in other.stderr


def test_data_that_is_not_there(tmp_path):
    result = run("--out", tmp_path / "out", "--data", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith("attnflow: there is no file ")
    assert not (tmp_path / "out").exists()
