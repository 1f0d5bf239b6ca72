"""The command `reproduce`, in-process."""

import json

import typer
from typer.testing import CliRunner

from attnflow.cli.reproduce import register
from attnflow.paper.experiments import measurements
from attnflow.paper.experiments.experiment import EXPERIMENTS


def run(*arguments):
    """Run the command with these arguments."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def saturation(tmp_path, *arguments, names=("saturation",)):
    """Run a quick experiment on three generated sentences."""
    places = ("--out", tmp_path / "out", "--cache", tmp_path / "cache", "--threads", 1)
    return run(*names, "--data", "grammar", "--examples", 3, *places, *arguments)


def test_the_help_lists_all_experiments():
    text = " ".join(run("--help").stdout.split())
    for name, experiment in EXPERIMENTS.items():
        assert f"{name}: {experiment.summary.split()[0]}" in text


def test_without_a_name_experiments_are_listed():
    result = run()
    assert result.exit_code == 0
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == list(EXPERIMENTS)


def test_an_unknown_name_is_an_error_before_anything_runs(tmp_path):
    result = run("saturation", "tabel1", "--data", "grammar", "--out", tmp_path)
    assert result.exit_code == 2
    assert "'tabel1'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_missing_data_names_the_command_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFLOW_DATA", raising=False)
    result = run("table1")
    assert result.exit_code == 2
    assert "`attnflow data`" in result.stderr
    assert "--data grammar" in result.stderr


def test_a_result_is_printed_and_saved(tmp_path):
    result = saturation(tmp_path)
    assert result.exit_code == 0
    assert "Residual weight 0.5" in result.stdout
    assert "attnflow: wrote" in result.stderr
    saved = json.loads((tmp_path / "out" / "saturation.json").read_text())
    assert saved["command"] == "attnflow reproduce saturation --data grammar --examples 3"
    assert saved["date"].startswith("20")
    assert saved["numbers"]["0.5"]["source"][0] == 0


def test_results_are_printed_as_json_csv_and_markdown(tmp_path):
    printed = json.loads(saturation(tmp_path, "--format", "json").stdout)
    assert printed == json.loads((tmp_path / "out" / "saturation.json").read_text())
    rows = saturation(tmp_path, "--format", "csv").stdout.splitlines()
    assert rows[0] == "Residual weight 0.5,,L1,L2,L3,L4,L5,L6"
    assert "| --- | ---: |" in saturation(tmp_path, "--format", "markdown").stdout


def test_a_second_run_measures_nothing(tmp_path, monkeypatch):
    first = saturation(tmp_path, "--format", "json").stdout
    monkeypatch.setattr(measurements, "write_chunk", None)  # fails if it is called
    assert saturation(tmp_path, "--format", "json").stdout == first


def test_a_failing_experiment_does_not_stop_the_others(tmp_path):
    result = saturation(
        tmp_path, "--model", "verb-number", names=("table3", "saturation")
    )  # the grammar has no sentiment
    assert result.exit_code == 1
    assert "attnflow: table3: " in result.stderr
    assert "failed: table3" in result.stderr
    assert "Residual weight 0.5" in result.stdout


def test_the_recorded_command_has_no_local_folders(tmp_path):
    result = saturation(tmp_path, "--model", "verb-number", "--format", "json", "--seed", 2)
    command = json.loads(result.stdout)["command"]
    assert str(tmp_path) not in command
    assert command.endswith("--model verb-number --seed 2")


def test_the_recorded_command_names_a_file_of_sentences(tmp_path):
    path = tmp_path / "numpred.val"
    path.write_text("VBZ\tthe key to it\nVBP\tthe keys to it\nVBP\tthe old keys\n")
    places = ("--out", tmp_path / "out", "--cache", tmp_path / "cache", "--threads", 1)
    result = run("table1", "--data", path, *places)
    assert result.exit_code == 0, result.output
    assert "`attnflow reproduce table1 --data numpred.val`" in " ".join(result.stdout.split())
    assert "3 unique prefixes of numpred.val" in " ".join(result.stdout.split())
    assert "By number of attractors" not in result.stdout  # the file has no such numbers
