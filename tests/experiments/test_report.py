"""Results and reports, written and read."""

import json

import pytest

from attnflow.errors import FileError, SelectionError
from attnflow.paper.experiments import EXPERIMENTS, find_experiment
from attnflow.paper.experiments.layout import comparison_table, mean_and_sd, number, p_value
from attnflow.paper.experiments.report import Picture, Report, Table, to_csv, to_markdown, to_text
from attnflow.paper.experiments.result import Result, read_result, write_result
from tests.refusal import refusal

REPORT = Report(
    "A title",
    (
        "Some words.",
        Table("A caption", ("", "L1", "L2"), (("Raw", "0.10", "-0.25"), ("Flow|x", "1", "a,b"))),
        Picture("one.svg", "A picture of it."),
    ),
)


def test_text_is_aligned():
    assert to_text(REPORT).splitlines() == [
        "A title",
        "",
        "Some words.",
        "",
        "A caption",
        "            L1     L2",
        "  Raw     0.10  -0.25",
        "  Flow|x     1    a,b",
        "",
        "[one.svg] A picture of it.",
    ]


def test_long_paragraphs_are_broken_and_stay_apart():
    lines = to_text(Report("T", ("word " * 30 + "\n\nanother",))).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-2:] == ["", "another"]


def test_markdown_has_tables_and_pictures():
    lines = to_markdown(REPORT, level=3, pictures="images").splitlines()
    assert lines[0] == "### A title"
    assert "| Raw | 0.10 | -0.25 |" in lines
    assert "| --- | ---: | ---: |" in lines
    assert "| Flow\\|x | 1 | a,b |" in lines
    assert "![A picture of it.](images/one.svg)" in lines


def test_csv_names_the_table_in_every_row():
    assert to_csv(REPORT).splitlines() == [
        "A caption,,L1,L2",
        "A caption,Raw,0.10,-0.25",
        'A caption,Flow|x,1,"a,b"',
    ]


def test_a_result_is_read_as_it_was_written(tmp_path):
    result = Result("table1", {"mean": [0.5, None]}, {"model": "m"}, ("one.svg",), "c", "d", "v")
    path = write_result(result, tmp_path / "new")
    assert path == tmp_path / "new" / "table1.json"
    assert read_result(path) == result


def test_numbers_that_json_has_not_are_no_result(tmp_path):
    with pytest.raises(ValueError, match="nan"):
        write_result(Result("table1", {"mean": float("nan")}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"other": 1})])
def test_another_file_is_no_result(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    with refusal(FileError, "is no result of an experiment", "Run the experiment again"):
        read_result(path)


def test_an_unknown_experiment_is_refused():
    with refusal(SelectionError, "no experiment 'tabel1'", "table1, table2"):
        find_experiment("tabel1")


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if "figure" not in name])
def test_every_experiment_has_its_module(name):
    experiment = find_experiment(name)
    assert callable(experiment.run)
    assert callable(experiment.render)


def test_cells():
    assert number(-0.001) == "0.00"
    assert number(None) == "-"
    assert number(-0.126) == "-0.13"
    assert mean_and_sd({"mean": [0.126, None], "sd": [0.5, None]}, 0) == "0.13±0.50"
    assert mean_and_sd({"mean": [0.126, None], "sd": [0.5, None]}, 1) == "-"
    assert [p_value(p) for p in (None, 0.0002, 0.04)] == ["same", "p<0.001", "p=0.040"]


def test_comparisons_are_signed():
    one = {"first": "flow", "second": "raw", "difference": [0.1, 0.0], "p": [0.01, None]}
    [row] = comparison_table("c", [one]).rows
    assert row == ("flow \N{MINUS SIGN} raw", "+0.100 p=0.010", "same")
