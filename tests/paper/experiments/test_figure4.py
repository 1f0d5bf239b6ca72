"""Figure 4 for a tiny masked language model."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import transformers
from typer.testing import CliRunner

import attnflow
from attnflow import FileError, InputError, SelectionError
from attnflow.cli.main import app
from attnflow.paper.experiments import figure4
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options
from attnflow.paper.experiments.report import to_text
from tests.models.checkpoints import make_model, make_tokenizer
from tests.refusal import refusal


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory):
    """The folder of a tiny random masked language model."""
    path = tmp_path_factory.mktemp("masked")
    make_model("BertForMaskedLM").save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


def masked_options(tmp_path, model, **options):
    settings: dict[str, Any] = {
        "texts": ("the key to [MASK] cabinets",),
        "candidates": ("key, cabinets",),
        "fillers": ("is", "are"),
    }
    return Options(out=tmp_path, model=str(model), **{**settings, **options})


def test_numbers_equal_those_of_explain(tmp_path, masked_lm):
    steps: list[tuple[int, int]] = []
    result = figure4.run(
        masked_options(tmp_path, masked_lm), lambda done, total: steps.append((done, total))
    )
    assert steps == [(1, 2), (2, 2)]
    [case] = result.numbers["cases"]
    assert case["candidates"] == ["key", "cabinets"]
    explanation = attnflow.explain(case["text"], str(masked_lm), target="are")
    assert explanation.prediction is not None
    assert case["probabilities"][1] == pytest.approx(
        explanation.prediction.target.probability, abs=1e-5
    )
    assert sum(case["relative"]) == pytest.approx(1, abs=1e-3)
    places = [explanation.tokens.index(word) for word in ("key", "cabinets")]
    for method in PAPER_METHODS:
        scores = explanation.attribute(method, normalize="rows").to_numpy()
        expected = scores[:, 0, places]
        np.testing.assert_allclose(case["attention"][method], expected, atol=1e-4)
        preferred = int(np.argmax(case["relative"]))
        agrees = [int(np.argmax(layer)) == preferred for layer in expected]
        assert case["agrees"][method] == agrees
    assert ">cabinets</text>" in (tmp_path / "paper-figure4.svg").read_text(encoding="utf-8")
    assert "(a) Flow" in to_text(figure4.render(result))


def test_the_defaults_are_the_model_and_sentences_of_the_paper():
    assert figure4.MODEL == "bert-base-uncased"
    texts = [text for text, _ in figure4.CASES]
    assert texts[0] == "The author talked to Sara about [MASK] book."
    assert texts[1] == "Mary convinced John of [MASK] love."


def test_without_the_model_of_the_paper_another_is_suggested(tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "MODEL", str(tmp_path / "none"))
    with refusal(FileError, str(tmp_path / "none"), "--model minilm-mlm"):
        figure4.run(Options(out=tmp_path), None)


def test_the_small_model_is_not_presented_as_that_of_the_paper(tmp_path, masked_lm):
    result = figure4.run(masked_options(tmp_path, masked_lm), None)
    ours = replace(result, settings={"model": "minilm-mlm"})
    assert "This is not the paper's BERT" in to_text(figure4.render(ours))


def test_invalid_options_are_errors(tmp_path, masked_lm):
    with refusal(InputError, "1 texts", "0 lists", "--candidates"):
        figure4.run(masked_options(tmp_path, masked_lm, candidates=()), None)
    with refusal(InputError, "classifier", "masked language model", "--model"):
        figure4.run(masked_options(tmp_path, "verb-number"), None)
    with refusal(SelectionError, "'dog'"):
        figure4.run(masked_options(tmp_path, masked_lm, candidates=("key,dog",)), None)
    with refusal(InputError, "2 words", "3 candidates"):
        figure4.run(masked_options(tmp_path, masked_lm, candidates=("key,to,the",)), None)


def test_the_command_passes_on_all_options(tmp_path, masked_lm):
    transformers.utils.logging.disable_progress_bar()
    arguments = ["reproduce", "figure4", "--out", str(tmp_path), "--model", str(masked_lm)]
    arguments += ["--text", "the key to [MASK] cabinets", "--candidates", "key,cabinets"]
    arguments += ["--fillers", "is,are", "--picture-format", "pdf", "--format", "json"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert (tmp_path / "paper-figure4.pdf").read_bytes().startswith(b"%PDF")
    result = json.loads(run.stdout)
    assert result["numbers"]["cases"][0]["fillers"] == ["is", "are"]
    assert "--text 'the key to [MASK] cabinets' --candidates key,cabinets" in result["command"]
