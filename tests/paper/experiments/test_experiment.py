"""The list of experiments, their options, and results on disk."""

import json

import pytest

from attnflow.errors import FileError, SelectionError
from attnflow.paper.experiments.experiment import (
    EXPERIMENTS,
    Options,
    Result,
    default_cache,
    find_experiment,
    read_result,
    write_result,
)
from attnflow.registry import resolve_function
from tests.refusal import refusal


def test_an_unknown_experiment_is_an_error():
    with refusal(SelectionError, "'tabel1'", "table1, table2", "all"):
        find_experiment("tabel1")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_run_and_rendered(name):
    experiment = find_experiment(name)
    assert experiment.name == name
    assert experiment.summary
    package = "attnflow.paper.experiments"
    for reference in (experiment.run_function, experiment.render_function):
        assert callable(resolve_function(f"{package}.{reference}"))


def test_an_experiment_calls_its_functions(options):
    result = find_experiment("accuracy").run(options)
    assert result.experiment == "accuracy"
    assert find_experiment("accuracy").render(result).title == "Accuracy of the models"


def test_a_result_is_read_as_it_was_written(tmp_path):
    result = Result("table1", {"mean": [0.5, None]}, {"model": "m"}, ("one.svg",), "c", "d", "v")
    path = write_result(result, tmp_path / "new")
    assert path == tmp_path / "new" / "table1.json"
    assert read_result(path) == result


def test_numbers_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_result(Result("table1", {"mean": float("nan")}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"other": 1})])
def test_a_file_that_is_not_a_result_is_an_error(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    with refusal(FileError, str(path), "attnflow reproduce"):
        read_result(path)


@pytest.mark.parametrize("home", ["", "somewhere"])
def test_the_default_cache_is_in_the_users_cache_folder(monkeypatch, home):
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert default_cache().parts[-2:] == ("attnflow", "experiments")
    assert str(default_cache()).startswith(home or str(default_cache().home()))


def test_figures_go_to_the_folder_of_results_by_default(tmp_path):
    assert Options(out=tmp_path / "a").pictures_folder == tmp_path / "a"
    both = Options(out=tmp_path / "a", pictures=tmp_path / "b")
    assert both.pictures_folder == tmp_path / "b"
    assert (tmp_path / "b").is_dir()
