"""The command `explain`, in-process, on tiny random models in folders."""

import csv
import io
import json
import logging
import sys

import numpy as np
import pytest
import typer
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from attnflow import Attribution
from attnflow.cli.explain import register
from attnflow.cli.render import print_strip
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
    assert lines[0].startswith(f"class: LABEL_1 {expected.prediction.probability:.3f}, LABEL_0 0.")
    assert lines[1] == "position 0 [CLS], 6 tokens"
    assert lines[3] == "rollout, layers 1 to 2"
    assert lines[5].split() == ["[CLS]", *TEXT.split(), "[SEP]"]
    row = expected.rollout().row(position=0, layer=2)
    assert lines[7].split() == ["layer", "2", *(f"{score:.2f}" for score in row)]
    token, _, score = expected.rollout().top(1, position=0)[0]
    assert lines[8].startswith(f"top at layer 2: {token} {score:.3f}, ")
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_all_methods_at_once(classifier):
    result = run(TEXT, "--model", classifier, "--method", "all", "--threads", "1")
    for name in ("raw", "rollout", "flow"):
        assert f"\n{name}, layers 1 to 2\n" in result.stdout
    printed = parsed(TEXT, "--model", classifier, "--method", "all")
    assert [one["method"] for one in printed["attributions"]] == ["raw", "rollout", "flow"]


def test_json_holds_what_the_library_gives(decoder):
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
    assert "rollout, layer 1, 6 positions" in result.stdout


def test_how_the_graph_is_made(classifier):
    options = ("--edges", "gradient", "--heads", "max", "--residual-weight", "0.25")
    [one] = parsed(TEXT, "--model", classifier, *options)["attributions"]
    assert one["settings"]["edges"] == "gradient"
    assert (one["settings"]["heads"], one["settings"]["residual_weight"]) == ("max", 0.25)


@pytest.mark.parametrize(
    ("arguments", "wording"),
    [
        (("", "--model", "{}"), "the text is empty"),
        (("key " * 20, "--model", "{}"), "the text has 22 tokens"),
        ((TEXT, "--model", "{}", "--position", "door"), "there is no token 'door'"),
        (
            (TEXT, "--model", "{}", "--layer", "top"),
            "--layer is 'top'; expected a number, or 'all'",
        ),
        ((TEXT, "--model", "{}", "--layer", "3"), "there is no layer 3; expected 1 to 2"),
    ],
)
def test_misuse_is_one_sentence_and_exit_2(classifier, arguments, wording):
    result = run(*(argument.replace("{}", classifier) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith("attnflow: ")
    assert wording in result.stderr
    assert result.stdout == ""


def test_a_text_can_be_cut(classifier):
    result = run("key " * 20, "--model", classifier, "--truncate", "cut")
    assert result.exit_code == 0
    assert result.stderr.startswith("attnflow: the text has 22 tokens")
    assert result.stderr.endswith("its last 6 were cut off.\n")


def test_a_page_is_written_whole_or_not_at_all(classifier, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old", encoding="utf-8")
    result = run(TEXT, "--model", classifier, "--html", str(page))
    assert result.exit_code == 0, result.output
    assert result.stderr == f"attnflow: wrote {page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [page]
    result = run(TEXT, "--model", "no model", "--html", str(tmp_path))
    assert result.exit_code == 2
    assert f"{tmp_path} is a folder; expected the name of a file" in result.stderr
    nowhere = tmp_path / "none" / "page.html"
    result = run(TEXT, "--model", classifier, "--html", str(nowhere))
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr


def test_a_missing_package_is_exit_1(classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = run(TEXT, "--model", classifier)
    assert result.exit_code == 1
    assert "pip install 'attnflow[models]'" in result.stderr


def strip_of(tokens, scores, **options):
    console = Console(file=io.StringIO(), highlight=False, width=80, **options)
    layers = tuple(range(1, len(scores) + 1))
    print_strip(Attribution(np.asarray(scores)[:, None], tokens, "flow", layers, (0,)), 2, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_strip_wraps_at_the_width_of_the_terminal():
    tokens = tuple(f"token{i}" for i in range(40))
    text = strip_of(tokens, np.linspace(0, 1, 80).reshape(2, 40))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    shown = [word for line in text.splitlines() for word in line.split() if word in tokens]
    assert tuple(shown[:40]) == tokens
    assert text.count("layer 1 ") == 5  # eight tokens a block


def test_a_strip_is_shaded_where_there_is_color():
    text = strip_of(("a", "b"), [[0.0, 1.0]], force_terminal=True, color_system="truecolor")
    assert "\x1b[38;2;0;0;0;48;2;247;251;255m0.00" in text
    assert "\x1b[38;2;255;255;255;48;2;8;69;148m1.00" in text


def test_long_strange_and_backward_tokens_stay_in_their_cells():
    text = strip_of(("a" * 30, "x\ny\x1b", "שלום", "😀"), [[0.25] * 4])
    header, row = text.splitlines()[3:5]
    assert "aaaaaaaaaaaaa… x\\ny\\x1b שלום\u200e 😀" in header
    assert "\x1b" not in text
    assert cell_len(header.rstrip()) <= cell_len(row.rstrip())


def test_negative_scores_stay_under_their_tokens():
    header, row = strip_of(("a", "b", "c"), [[0.5, -0.25, 0.0]]).splitlines()[3:5]
    assert header.rstrip() == "         a     b     c"
    assert row.rstrip() == "layer 1  0.50  -0.25 0.00"


def test_a_name_that_is_mistyped_is_said_once(monkeypatch):
    from transformers import PretrainedConfig

    def not_found(name):
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
        raise OSError(name)

    monkeypatch.setattr(PretrainedConfig, "get_config_dict", not_found)
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    logging.getLogger("huggingface_hub").addHandler(handler)
    try:
        result = run(TEXT, "--model", "no-such-model")
    finally:
        logging.getLogger("huggingface_hub").removeHandler(handler)
    assert "there is no folder no-such-model" in result.stderr
    assert told.getvalue() == ""


def test_loading_spins_where_stderr_is_a_terminal(monkeypatch):
    from attnflow.cli import options

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with options.spinner("loading the model"):
        pass
    with options.progress_bar("flow") as report:
        assert report is not None
        report(1, 2)
    assert "loading the model" in terminal.getvalue()
