"""The command `train`, in-process, on a few generated sentences."""

import json
from functools import partial

import pytest
import torch
import typer
from typer.testing import CliRunner

from attnflow.cli.train import register
from attnflow.models.loading import load_model
from attnflow.paper.verb_number import splits, trainer

DEFAULTS = trainer.Recipe()


@pytest.fixture(autouse=True)
def small_training(monkeypatch):
    """Train a tiny model on few sentences."""
    tiny = partial(trainer.Recipe, sizes={"n_layer": 1, "n_head": 2, "n_embd": 8})
    monkeypatch.setattr(trainer, "Recipe", tiny)
    monkeypatch.setattr(splits, "split_grammar", partial(splits.split_grammar, 200))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["train", "verb-number", *map(str, arguments)])


def test_a_trained_model_can_be_loaded(tmp_path):
    result = run("--out", tmp_path, "--epochs", 2, "--device", "cpu", "--causal", "--seed", 3)
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert lines[0].startswith("epoch 1 of 2: loss ")
    assert lines[-1] == f"attnflow: wrote {tmp_path}"
    accuracy = json.loads((tmp_path / "accuracy.json").read_text())
    first_line = result.stdout.splitlines()[0]
    assert first_line == f"development: {accuracy['development']:.4f}"
    loaded = load_model(tmp_path)
    assert loaded.is_causal
    assert loaded.n_layers == 1


def test_options_of_the_recipe(tmp_path):
    options = ("--attention-dropout", 0.25, "--attractor-copies", 3, "--batch-size", 16)
    result = run("--out", tmp_path, "--epochs", 1, "--device", "cpu", *options)
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path).model.config.attn_pdrop == 0.25
    other = run("--out", tmp_path, "--epochs", 1, "--device", "cpu", "--resume")
    assert other.exit_code == 2
    assert "attractor_copies 3" in other.stderr


@pytest.mark.parametrize(
    "option", ["epochs", "batch_size", "attention_dropout", "attractor_copies"]
)
def test_the_help_names_the_defaults(option):
    help_text = " ".join(run("--help").stdout.replace("│", " ").split())
    described = help_text.split("--" + option.replace("_", "-"))[1]
    assert described.split("Default: ")[1].startswith(f"{getattr(DEFAULTS, option)}.")


def test_several_seeds_are_trained_side_by_side(tmp_path):
    options = ("--epochs", 1, "--device", "cpu", "--seed", 3)
    result = run("--out", tmp_path, "--seeds", 2, *options)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[-2:] == [
        f"attnflow: wrote {tmp_path / 'seed-3'}",
        f"attnflow: wrote {tmp_path / 'seed-4'}",
    ]
    first, second = (load_model(tmp_path / f"seed-{seed}").model for seed in (3, 4))
    weights = second.state_dict()
    assert not any(
        torch.equal(part, weights[name])
        for name, part in first.state_dict().items()
        if part.dim() > 1
    )
    assert json.loads((tmp_path / "seed-4" / "accuracy.json").read_text())["development"] > 0


def test_a_finished_training_is_not_repeated(tmp_path):
    options = ("--out", tmp_path, "--epochs", 1, "--device", "cpu")
    first = run(*options)
    again = run(*options, "--resume")
    assert again.stderr.splitlines()[0] == "resumed after epoch 1 of 1"
    assert again.stdout == first.stdout
    other = run(*options, "--resume", "--seed", 5)
    assert other.exit_code == 2
    assert "seed [0]" in other.stderr
    assert "seed [5]" in other.stderr


def test_missing_data(tmp_path):
    result = run("--out", tmp_path / "out", "--data", tmp_path)
    assert result.exit_code == 2
    assert "numpred.val" in result.stderr
    assert not (tmp_path / "out").exists()
