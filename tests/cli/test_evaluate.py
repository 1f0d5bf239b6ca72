"""The command `evaluate`, and `explain --check`, in-process, on a tiny random model."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from attnflow import corpus
from attnflow.cli.main import app
from attnflow.explainer import explain
from attnflow.study.design import Design
from attnflow.study.evaluator import Evaluator
from attnflow.study.study import open_study
from tests.models.checkpoints import save

TEXTS = ["the key to cabinets", "here are the cabinets to key", "", "is the key here"]
OPTIONS = (
    *("--methods", "rollout", "--edges", "attention", "--explainers", "leave-one-out"),
    *("--metrics", "comprehensiveness,sufficiency", "--signs", "signed", "--threads", "1"),
)
NAMES = {
    *("rollout/attention", "leave_one_out", "random"),
    *("position", "recency", "frequency", "embedding_norm"),
}


def run(*arguments):
    return CliRunner(env={"COLUMNS": "150"}).invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return save(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def study(classifier, texts, tmp_path_factory):
    """A finished study: its arguments, its folder, and what the command printed."""
    out = tmp_path_factory.mktemp("study") / "out"
    arguments = ("evaluate", texts, "--model", classifier, "--out", out, *OPTIONS)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return arguments, out, result


@pytest.fixture
def no_model(monkeypatch):
    """Let loading the model fail."""

    def fail(*_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(Evaluator, "__init__", fail)


def test_a_table_for_each_replacement_and_a_report(study):
    _, out, result = study
    lines = result.stdout.splitlines()
    for replacement in ("unknown", "remove"):
        [start] = [
            i for i, line in enumerate(lines) if line.startswith("3 texts") and replacement in line
        ]
        heading = lines[start + 1].split()
        assert heading == ["explanation", "rank", "compr.", "↑", "suff.", "↓", "s"]
        rows = {line.split()[0]: line.split() for line in lines[start + 2 : start + 9]}
        assert set(rows) == NAMES
        for metric, place in {"comprehensiveness": 2, "sufficiency": 3}.items():
            table = open_study(out).table(metric, replacement=replacement)
            for name, row in rows.items():
                assert row[place].rstrip("*") == f"{table.row(name).mean:.3f}"
    assert str(out / "report.html") in result.stderr.replace("\n", "")
    assert "complete" in result.stderr
    assert "4 rows, 1 rejected" in result.stderr
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "rollout, attention" in page


@pytest.mark.usefixtures("no_model")
def test_a_finished_study_prints_again_without_the_model(study):
    arguments, out, first = study
    (out / "report.html").unlink()
    again = run(*arguments)
    assert again.exit_code == 0, again.output
    assert again.stdout == first.stdout
    assert (out / "report.html").exists()


@pytest.mark.usefixtures("no_model")
def test_json_has_all_values(study):
    arguments, out, _ = study
    result = run(*arguments, "--print", "json", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    records = json.loads(result.stdout)
    assert len(records) == 2 * 2 * len(NAMES)  # metrics, replacements
    table = open_study(out).table("sufficiency", replacement="remove")
    [record] = [
        r
        for r in records
        if r["metric"] == "sufficiency"
        and r["replacement"] == "remove"
        and r["explainer"] == "rollout/attention"
    ]
    row = table.row("rollout/attention")
    assert (record["mean"], record["n"], record["better"]) == (row.mean, 3, "low")
    assert [r["p"] for r in records if r["explainer"] == "random"] == [None] * 4


@pytest.mark.usefixtures("no_model")
def test_csv_and_latex(study, tmp_path):
    arguments, out, _ = study
    report = tmp_path / "trust.html"
    result = run(*arguments, "--print", "csv", "--report", report)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 2 * 2 * len(NAMES)
    assert {row["explainer"] for row in rows} == NAMES
    expected = open_study(out).table("comprehensiveness").row("random").mean
    assert float(
        next(
            row["mean"]
            for row in rows
            if (row["metric"], row["explainer"]) == ("comprehensiveness", "random")
        )
    ) == pytest.approx(expected)
    assert report.exists()
    latex = run(*arguments, "--print", "latex").stdout
    assert r"\begin{tabular}" in latex
    assert "rollout, attention &" in latex


@pytest.mark.usefixtures("no_model")
def test_quiet_prints_nothing(study):
    arguments, _, _ = study
    result = run(*arguments, "--quiet")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--metrics", "morff"), ["morff", "morf"]),
        (("--edges", "attentions"), ["attentions", "attention"]),
        (("--explainers", "leave-one"), ["leave_one", "leave_one_out"]),
        (("--methods", "rollouts"), ["rollouts", "rollout"]),
        (("--replacements", "blank"), ["blank", "unknown", "remove"]),
        (("--signs", "negative"), ["negative", "signed", "absolute"]),
        (("--samples", "0"), ["--samples"]),
        (("--print", "xml"), ["xml", "latex"]),
        (("--metrics", "none"), ["metrics"]),
        (("--engine", "spark"), ["spark", "local", "ray"]),
        (("--target-column", "class"), ["class", "plain text"]),
    ],
)
def test_wrong_options_exit_with_2(texts, classifier, tmp_path, options, parts):
    out = tmp_path / "out"
    result = run("evaluate", texts, "--model", classifier, "--out", out, *options)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    for part in parts:
        assert part in result.stderr
    assert not out.exists()


def test_other_settings_in_the_same_folder_exit_with_2(study):
    arguments, out, _ = study
    result = run(*arguments, "--seed", "5")
    assert result.exit_code == 2
    assert "seed was 0 and is 5" in result.stderr
    assert str(out) in result.stderr


def test_folders_of_other_commands(study, texts, classifier, tmp_path):
    _, out, _ = study
    result = run("corpus", "run", texts, "--model", classifier, "--out", out)
    assert result.exit_code == 2
    assert "'evaluation'" in result.stderr
    assert "attnflow evaluate" in result.stderr
    corpus.run(TEXTS[:1], tmp_path, model=classifier, threads=1)
    result = run("evaluate", texts, "--model", classifier, "--out", tmp_path)
    assert result.exit_code == 2
    assert "'scores'" in result.stderr
    assert "attnflow corpus" in result.stderr


def test_only_rejected_rows_have_no_table(classifier, tmp_path):
    (tmp_path / "a.txt").write_text("\nkey\n", encoding="utf-8")
    arguments = ("evaluate", tmp_path / "a.txt", "--model", classifier, *OPTIONS)
    result = run(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "2 rejected" in result.stderr
    assert "errors" in result.stderr


def test_the_help_has_an_option_for_each_setting():
    result = run("evaluate", "--help")
    assert result.exit_code == 0
    for name in Design.options():
        assert f"--{name.replace('_', '-')}" in result.stdout
    for name in ("rollout", "joint_flow", "--print", "--report"):
        assert name in result.stdout


def test_the_help_says_the_default_of_replacements_in_words_only():
    text = run("evaluate", "--help").output
    described = text[text.index("--replacements") : text.index("--signs")]
    assert "Default:" in described
    assert "none" not in described


def test_explain_prints_the_check(classifier):
    result = run("explain", TEXTS[0], "--model", classifier, "--check")
    assert result.exit_code == 0, result.output
    check = explain(TEXTS[0], classifier).faithfulness()
    shown = " ".join(result.stdout.split())
    assert str(check) in shown
    printed = run("explain", TEXTS[0], "--model", classifier, "--check", "--format", "json")
    [one] = json.loads(printed.stdout)["attributions"]
    assert one["check"]["explainer"] == "rollout/attention"
    assert one["check"]["comprehensiveness"] == pytest.approx(check.comprehensiveness)
    assert one["check"]["compared"].keys() == check.compared.keys()


def test_explain_without_the_option_does_not_check(classifier):
    printed = run("explain", TEXTS[0], "--model", classifier, "--format", "json")
    [one] = json.loads(printed.stdout)["attributions"]
    assert "check" not in one
