"""The command `explain`, in-process, on tiny random models in folders."""

import csv
import io
import json
import logging
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from attnflow import Attribution
from attnflow.cli.explain import register
from attnflow.explainer import explain
from tests.models.checkpoints import save

TEXT = "the key to cabinets"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return save(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("decoder"), "GPT2LMHeadModel")


def run(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["explain", *arguments])


def parsed(*arguments):
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_prediction_strip_and_best_tokens_are_printed(classifier):
    result = run(TEXT, "--model", classifier)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    expected = explain(TEXT, classifier)
    assert expected.prediction is not None
    assert lines[0].startswith("model: classifier")
    assert lines[1].startswith(f"class: LABEL_1 {expected.prediction.probability:.3f}, LABEL_0 0.")
    assert lines[2].startswith("explained position: 0 [CLS]")
    assert lines[4] == "Attention rollout, layers 1 to 2"
    assert lines[5] == "edges: attention · residual weight 0.5 · heads: mean · not normalized"
    assert lines[6].split() == ["[CLS]", *TEXT.split(), "[SEP]"]
    row = expected.rollout().row(layer=2)
    assert lines[8].split() == ["layer", "2", *(f"{score:.2f}" for score in row)]
    token, _, score = expected.rollout().top(1)[0]
    assert f"layer 2: {token} {score:.3f}, " in lines[9]
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


@pytest.mark.slow
def test_all_methods_at_once(classifier):
    result = run(TEXT, "--model", classifier, "--method", "all", "--threads", "1")
    for title in ("Raw attention", "Attention rollout", "Attention flow"):
        assert f"\n{title}, layers 1 to 2\n" in result.stdout
    printed = parsed(TEXT, "--model", classifier, "--method", "all")
    assert [one["method"] for one in printed["attributions"]] == ["raw", "rollout", "flow"]


def test_json_has_the_scores_of_the_library(decoder):
    options = ("--normalize", "receptive_field", "--layer", "-1", "--position", "to")
    printed = parsed(TEXT, "--model", decoder, "--target", "is", *options)
    expected = explain(TEXT, decoder, position="to", target="is")
    assert printed["position"] == 2
    assert printed["prediction"]["kind"] == "next token"
    assert printed["prediction"]["target"]["label"] == "is"
    assert len(printed["prediction"]["top"]) == 5
    [attribution] = printed["attributions"]
    scores = expected.rollout(layers=-1, normalize="receptive_field").scores
    np.testing.assert_allclose(attribution["scores"], scores, rtol=1e-6)


def test_hidden_tokens_and_words(classifier):
    [one] = parsed(TEXT, "--model", classifier, "--special", "hide", "--words")["attributions"]
    assert one["columns"] == [1, 2, 3, 4]
    assert np.asarray(one["scores"]).shape == (2, 1, 4)
    assert "[SEP]" not in run(TEXT, "--model", classifier, "--special", "hide").stdout


def test_csv_names_the_method(classifier):
    result = run(TEXT, "--model", classifier, "--method", "all", "--format", "csv", "--top", "1")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["method"], row["layer"]) for row in rows] == [
        (method, layer) for method in ("raw", "rollout", "flow") for layer in "12"
    ]


def test_scores_are_saved(classifier, tmp_path):
    path = tmp_path / "scores.safetensors"
    assert run(TEXT, "--model", classifier, "--save", str(path)).exit_code == 0
    assert Attribution.load(path).method == "rollout"
    result = run(TEXT, "--model", classifier, "--method", "all", "--save", str(path))
    assert f"attnflow: wrote {tmp_path / 'scores.flow.safetensors'}" in result.stderr
    assert Attribution.load(tmp_path / "scores.flow.safetensors").method == "flow"


def test_all_positions_are_shown_as_tables(classifier):
    result = run(TEXT, "--model", classifier, "--position", "all", "--layer", "1")
    assert "Attention rollout, layer 1\n" in result.stdout
    rows = [line for line in result.stdout.splitlines() if line[:1].isdecimal()]
    assert len(rows) == 6  # positions


def test_graph_options(classifier):
    options = ("--edges", "gradient_rescaled", "--heads", "max", "--residual-weight", "0.25")
    [one] = parsed(TEXT, "--model", classifier, *options)["attributions"]
    assert one["settings"]["edges"] == "gradient_rescaled"
    assert (one["settings"]["heads"], one["settings"]["residual_weight"]) == ("max", 0.25)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("", "--model", "{}"), "empty"),
        (("key " * 20, "--model", "{}"), "22 tokens"),
        ((TEXT, "--model", "{}", "--position", "door"), "'door'"),
        ((TEXT, "--model", "{}", "--layer", "top"), "--layer is 'top'"),
        ((TEXT, "--model", "{}", "--layer", "3"), "1 to 2"),
        ((TEXT, "--model", "{}", "--method", "magic"), "one of raw, rollout, flow"),
        ((TEXT, "--model", "{}", "--edges", "magic"), "one of attention, effective"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(classifier, arguments, value):
    result = run(*(argument.replace("{}", classifier) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith("attnflow: ")
    assert value in result.stderr
    assert result.stdout == ""


def test_a_text_can_be_cut(classifier):
    result = run("key " * 20, "--model", classifier, "--truncate", "cut")
    assert result.exit_code == 0
    assert result.stderr.startswith("attnflow: ")
    assert "22 tokens" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_page_is_written_completely_or_not_at_all(classifier, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old", encoding="utf-8")
    result = run(TEXT, "--model", classifier, "--html", str(page))
    assert result.exit_code == 0, result.output
    assert result.stderr == f"attnflow: wrote {page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [page]
    result = run(TEXT, "--model", "no model", "--html", str(tmp_path))
    assert result.exit_code == 2
    assert f"{tmp_path} is a folder" in result.stderr
    nowhere = tmp_path / "none" / "page.html"
    result = run(TEXT, "--model", classifier, "--html", str(nowhere))
    assert result.exit_code == 2
    assert str(nowhere.parent) in result.stderr


def test_a_missing_package_is_exit_1(classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = run(TEXT, "--model", classifier)
    assert result.exit_code == 1
    assert "pip install 'attnflow[models]'" in result.stderr


def test_a_mistyped_name_is_reported_once(monkeypatch):
    from transformers import PretrainedConfig

    def not_found(name):
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
        raise OSError(name)

    monkeypatch.setattr(PretrainedConfig, "get_config_dict", not_found)
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("huggingface_hub").addHandler(handler)
    try:
        result = run(TEXT, "--model", "no-such-model")
    finally:
        logging.getLogger("huggingface_hub").removeHandler(handler)
    assert "no-such-model" in result.stderr
    assert log.getvalue() == ""


def test_loading_shows_a_spinner_on_a_terminal(monkeypatch):
    from attnflow.cli import options

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with options.spinner("Loading the model"):
        pass
    with options.progress_bar("flow") as report:
        assert report is not None
        report(1, 2)
    assert "Loading the model" in terminal.getvalue()


def read_header(page):
    """The header of a page: the JSON that its viewer reads."""
    text = page.read_text(encoding="utf-8")
    return json.loads(text.split('id="attnflow-header">', 1)[1].split("</script>", 1)[0])


def test_a_page_opens_with_the_options_of_the_command(classifier, tmp_path):
    page = tmp_path / "page.html"
    options = [
        "--method",
        "flow",
        "--layer",
        "1",
        "--words",
        "--normalize",
        "rows",
        "--special",
        "hide",
        "--top",
        "3",
    ]
    assert run(TEXT, "--model", classifier, "--html", str(page), *options).exit_code == 0
    assert read_header(page)["state"] == {
        "method": "flow",
        "layer": 1,
        "units": "words",
        "normalize": "rows",
        "special": False,
        "topK": 3,
    }


def test_a_page_offers_the_method_of_the_command(classifier, tmp_path):
    page = tmp_path / "page.html"
    result = run(TEXT, "--model", classifier, "--method", "joint_flow", "--html", str(page))
    assert result.exit_code == 0, result.output
    header = read_header(page)
    assert header["state"]["method"] == "joint_flow"
    assert [method["name"] for method in header["methods"]][-1] == "joint_flow"
