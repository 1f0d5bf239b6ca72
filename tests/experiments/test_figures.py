"""The experiments that draw figures 1 to 4."""

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
from attnflow.figures.canvas import DARK
from attnflow.paper.experiments import figure1, figure2, figure3, figure4, find_experiment
from attnflow.paper.experiments.options import Options
from attnflow.paper.experiments.report import Picture, to_markdown, to_text
from attnflow.paper.experiments.result import read_result, write_result
from attnflow.paper.experiments.sentence_maps import choose_scale
from attnflow.paper.experiments.three_sentences import SENTENCES, Sentence
from tests.models.checkpoints import make_model, make_tokenizer
from tests.refusal import refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


@pytest.fixture(scope="module")
def results(folder) -> Any:
    """What figures 1 to 3 give, by their names; drawn once for all tests."""
    options = Options(out=folder)
    return {one.NAME: one.run(options, None) for one in (figure1, figure2, figure3)}


def test_each_figure_is_drawn_into_the_folder(folder, results):
    for name, result in results.items():
        assert result.pictures == (f"paper-{name}.svg",)
        svg = (folder / result.pictures[0]).read_text(encoding="utf-8")
        assert ">keys</text>" in svg


def test_the_model_is_right_on_two_sentences_and_wrong_on_the_third(results):
    told = results["figure2"].numbers["sentences"]
    assert [facts["text"] for facts in told] == [sentence.text for sentence in SENTENCES]
    assert [facts["right"] for facts in told] == [True, True, False]
    assert told == results["figure3"].numbers["sentences"]


def test_changing_the_subject_turns_the_decision_around(results):
    for facts in results["figure2"].numbers["sentences"]:
        assert facts["flips"]
        assert facts["changed"]["predicted"] != facts["predicted"]


def test_decisions_are_those_of_the_model(results):
    for facts in results["figure2"].numbers["sentences"]:
        prediction = attnflow.explain(facts["text"]).prediction
        assert prediction is not None
        assert facts["predicted"] == prediction.label
        assert facts["probability"] == pytest.approx(prediction.probability, abs=1e-4)


def test_scores_are_those_of_the_methods_and_sum_to_1(results):
    found = results["figure3"].numbers["scores"][1]
    explanation = attnflow.explain(SENTENCES[1].text)
    assert tuple(found["tokens"]) == explanation.tokens
    for method in ("rollout", "flow"):
        expected = getattr(explanation, method)(normalize="rows").to_numpy()[:, 0]
        np.testing.assert_allclose(found[method], expected, atol=1e-4)
        np.testing.assert_allclose(np.sum(found[method], axis=1), 1, atol=1e-3)


def test_reports_say_what_is_ours_and_what_is_the_papers(results):
    text = to_text(figure3.render(results["figure3"]))
    assert "but singular is right" in text
    assert "The third sentence of the paper" in text
    assert "made up for this figure" in text
    assert "turns the decision around" in text
    assert "its own column is not drawn" in text
    assert "(a) rollout" in text


@pytest.mark.parametrize("name", ["figure1", "figure2", "figure3"])
def test_saved_results_can_be_laid_out_anew(name, results, tmp_path):
    read = read_result(write_result(results[name], tmp_path))
    module = find_experiment(name)
    assert to_markdown(module.render(read)) == to_markdown(module.render(results[name]))
    assert any(isinstance(part, Picture) for part in module.render(read).parts)


def test_texts_of_ones_own_are_drawn_without_saying_what_is_right(tmp_path):
    options = Options(out=tmp_path, texts=("the dog near the trees",), picture_format="png")
    result = figure1.run(options, None)
    assert (tmp_path / "paper-figure1.png").read_bytes().startswith(b"\x89PNG")
    [facts] = result.numbers["sentences"]
    assert facts["right"] is None
    assert "right" not in to_text(figure1.render(result))


def test_a_sentence_is_changed_word_by_word():
    assert Sentence("the NNS and NNST", "", ("NNS", "NNP")).changed == "the NNP and NNST"
    assert Sentence("the key").changed == ""


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory):
    """A tiny random masked language model in a folder; its words are those of the checkpoints."""
    path = tmp_path_factory.mktemp("masked")
    make_model("BertForMaskedLM").save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


def masked(tmp_path, model, **options):
    settings: dict[str, Any] = {
        "texts": ("the key to [MASK] cabinets",),
        "candidates": ("key, cabinets",),
        "fillers": ("is", "are"),
    }
    return Options(out=tmp_path, model=str(model), **{**settings, **options})


def test_figure_4_takes_model_text_words_and_candidates(tmp_path, masked_lm):
    steps: list[tuple[int, int]] = []
    result = figure4.run(
        masked(tmp_path, masked_lm), lambda done, total: steps.append((done, total))
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
    for method in ("raw", "rollout", "flow"):
        expected = getattr(explanation, method)(normalize="rows").to_numpy()[:, 0, places]
        np.testing.assert_allclose(case["attention"][method], expected, atol=1e-4)
        preferred = int(np.argmax(case["relative"]))
        agrees = [int(np.argmax(layer)) == preferred for layer in expected]
        assert case["agrees"][method] == agrees
    assert ">cabinets</text>" in (tmp_path / "paper-figure4.svg").read_text(encoding="utf-8")
    assert "(a) Flow" in to_text(figure4.render(result))


def test_figure_4_defaults_to_the_papers_model_and_sentences():
    assert figure4.MODEL == "bert-base-uncased"
    texts = [text for text, _ in figure4.CASES]
    assert texts[0] == "The author talked to Sara about [MASK] book."
    assert texts[1] == "Mary convinced John of [MASK] love."


def test_without_a_network_another_model_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "MODEL", str(tmp_path / "none"))
    with refusal(FileError, "there is no folder", "--model minilm-mlm"):
        figure4.run(Options(out=tmp_path), None)


def test_a_model_that_is_not_the_papers_is_not_taken_for_it(tmp_path, masked_lm):
    result = figure4.run(masked(tmp_path, masked_lm), None)
    ours = replace(result, settings={"model": "minilm-mlm"})
    assert "This is not the paper's BERT" in to_text(figure4.render(ours))


def test_refusals_of_figure_4(tmp_path, masked_lm):
    with refusal(InputError, "1 texts and 0 lists of candidates", "--candidates"):
        figure4.run(masked(tmp_path, masked_lm, candidates=()), None)
    with refusal(InputError, "is a classifier", "masked language model"):
        figure4.run(masked(tmp_path, "verb-number"), None)
    with refusal(SelectionError, "there is no token 'dog'"):
        figure4.run(masked(tmp_path, masked_lm, candidates=("key,dog",)), None)
    with refusal(InputError, "2 words and 3 candidates"):
        figure4.run(masked(tmp_path, masked_lm, candidates=("key,to,the",)), None)


def test_the_command_takes_all_of_it(tmp_path, masked_lm):
    transformers.utils.logging.disable_progress_bar()
    arguments = ["reproduce", "figure4", "--out", str(tmp_path), "--model", str(masked_lm)]
    arguments += ["--text", "the key to [MASK] cabinets", "--candidates", "key,cabinets"]
    arguments += ["--fillers", "is,are", "--picture-format", "pdf", "--format", "json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "paper-figure4.pdf").read_bytes().startswith(b"%PDF")
    told = json.loads(done.stdout)
    assert told["numbers"]["cases"][0]["words"] == ["is", "are"]
    assert "--text 'the key to [MASK] cabinets' --candidates key,cabinets" in told["command"]


def test_maps_share_a_scale_unless_one_would_have_no_shades():
    def scores(*tops):
        return [{"tokens": ["[CLS]", "a"], "raw": [[0.9, top], [0.1, top / 2]]} for top in tops]

    assert choose_scale(scores(0.4, 0.1), "hide") == "shared"
    assert choose_scale(scores(0.4, 0.09), "hide") == "own"
    assert choose_scale(scores(0.4, 0.09), "show") == "shared"  # [CLS] has shades in both


def test_pictures_are_drawn_as_asked_for(tmp_path):
    words = ["--text", "the key", "--width", "3.3", "--dark", "--scale", "own"]
    made = CliRunner().invoke(app, ["reproduce", "figure2", "--out", str(tmp_path), *words])
    assert made.exit_code == 0, made.output
    svg = (tmp_path / "paper-figure2.svg").read_text(encoding="utf-8")
    assert 'width="237.6pt"' in svg  # 3.3 inches
    assert DARK.ground in svg
    assert "most in the map" in svg
    told = read_result(tmp_path / "figure2.json")
    assert told.command.endswith("--text 'the key' --width 3.3 --dark --scale own")
    text = " ".join(to_text(figure2.render(told)).split())
    assert "over tokens (across) and layers (upward) for one sentence; lighter is more." in text
