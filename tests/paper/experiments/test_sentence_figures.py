"""Figures 1 to 3: drawn once for all tests."""

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import attnflow
from attnflow.cli.main import app
from attnflow.figures import draw_maps
from attnflow.figures.canvas import DARK
from attnflow.paper.experiments.experiment import (
    Options,
    find_experiment,
    read_result,
    write_result,
)
from attnflow.paper.experiments.report import Picture, to_markdown, to_text
from attnflow.paper.experiments.sentence_figures import (
    SENTENCES,
    Sentence,
    choose_scale,
    render_figure1,
    render_figure2,
    render_figure3,
    run_figure1,
)

pytestmark = pytest.mark.slow

FIGURES = ("figure1", "figure2", "figure3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


@pytest.fixture(scope="module")
def results(folder) -> Any:
    """The results of figures 1 to 3, by name."""
    return {name: find_experiment(name).run(Options(out=folder)) for name in FIGURES}


def test_each_figure_is_written_to_the_folder(folder, results):
    for name, result in results.items():
        assert result.pictures == (f"paper-{name}.svg",)
        svg = (folder / result.pictures[0]).read_text(encoding="utf-8")
        assert ">keys</text>" in svg


def test_two_sentences_are_classified_correctly_and_the_third_wrongly(results):
    facts = results["figure2"].numbers["sentences"]
    assert [row["text"] for row in facts] == [sentence.text for sentence in SENTENCES]
    assert [row["correct"] for row in facts] == [True, True, False]
    assert facts == results["figure3"].numbers["sentences"]


def test_changing_the_subject_changes_the_prediction(results):
    for row in results["figure2"].numbers["sentences"]:
        assert row["flips"]
        assert row["changed"]["predicted"] != row["predicted"]


def test_predictions_equal_those_of_explain(results):
    for row in results["figure2"].numbers["sentences"]:
        prediction = attnflow.explain(row["text"]).prediction
        assert prediction is not None
        assert row["predicted"] == prediction.label
        assert row["probability"] == pytest.approx(prediction.probability, abs=1e-4)


def test_scores_equal_those_of_the_methods_and_sum_to_1(results):
    scores = results["figure3"].numbers["scores"][1]
    explanation = attnflow.explain(SENTENCES[1].text)
    assert tuple(scores["tokens"]) == explanation.tokens
    for method in ("rollout", "flow"):
        expected = explanation.attribute(method, normalize="rows").to_numpy()[:, 0]
        np.testing.assert_allclose(scores[method], expected, atol=1e-4)
        np.testing.assert_allclose(np.sum(scores[method], axis=1), 1, atol=1e-3)


def test_the_report_says_which_sentences_are_from_the_paper(results):
    text = " ".join(to_text(render_figure3(results["figure3"])).split())
    assert "wrong: singular is correct" in text
    assert "The paper's third sentence" in text
    assert "found among many made from templates" in text
    assert "changes the prediction" in text
    assert "do not draw the column of [CLS]" in text
    assert "(a) rollout" in text


@pytest.mark.parametrize("name", FIGURES)
def test_a_saved_result_is_rendered_the_same(name, results, tmp_path):
    read = read_result(write_result(results[name], tmp_path))
    experiment = find_experiment(name)
    assert to_markdown(experiment.render(read)) == to_markdown(experiment.render(results[name]))
    assert any(isinstance(part, Picture) for part in experiment.render(read).parts)


def test_texts_of_the_user_have_no_correct_number(tmp_path):
    options = Options(out=tmp_path, texts=("the dog near the trees",), picture_format="png")
    result = run_figure1(options, None)
    assert (tmp_path / "paper-figure1.png").read_bytes().startswith(b"\x89PNG")
    [row] = result.numbers["sentences"]
    assert row["correct"] is None
    assert "correct" not in to_text(render_figure1(result))


def test_a_change_replaces_whole_words():
    assert Sentence("the NNS and NNST", "", ("NNS", "NNP")).changed == "the NNP and NNST"
    assert Sentence("the key").changed == ""


def test_maps_share_a_scale_unless_one_would_be_nearly_blank():
    def scores(*maxima):
        return [{"tokens": ["[CLS]", "a"], "raw": [[0.9, m], [0.1, m / 2]]} for m in maxima]

    assert choose_scale(scores(0.4, 0.1), "hide") == "shared"
    assert choose_scale(scores(0.4, 0.09), "hide") == "own"
    assert choose_scale(scores(0.4, 0.09), "show") == "shared"  # [CLS] is dark in both


def test_the_command_passes_on_drawing_options(tmp_path, monkeypatch):
    scales = []

    def record_scale(*arguments, **options):
        scales.append(options["scale"])
        return draw_maps(*arguments, **options)

    monkeypatch.setattr("attnflow.figures.draw_maps", record_scale)
    options = ["--text", "the key", "--width", "3.3", "--dark", "--scale", "own"]
    run = CliRunner().invoke(app, ["reproduce", "figure2", "--out", str(tmp_path), *options])
    assert run.exit_code == 0, run.output
    svg = (tmp_path / "paper-figure2.svg").read_text(encoding="utf-8")
    assert 'width="237.6pt"' in svg  # 3.3 inches
    assert DARK.ground in svg
    assert scales == ["own"]
    result = read_result(tmp_path / "figure2.json")
    assert result.command.endswith("--text 'the key' --width 3.3 --dark --scale own")
    text = " ".join(to_text(render_figure2(result)).split())
    assert "for one sentence. Lighter means more attention." in text
