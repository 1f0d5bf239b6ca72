"""Where the sentences of experiments come from."""

import pytest

from attnflow.errors import FileError
from attnflow.experiments.options import Options, default_cache
from attnflow.experiments.sentences import find_data, read_agreement, read_sentiment
from tests.data.published import published
from tests.refusal import refusal


def test_without_data_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFLOW_DATA", raising=False)
    with refusal(FileError, "no folder of data was named", "`attnflow data`", "--data grammar"):
        read_agreement(Options())


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with refusal(FileError, f"{tmp_path / 'none'} is no folder", "--data FOLDER"):
        find_data(str(tmp_path / "none"))


def test_the_folder_is_found_by_the_environment_or_its_name(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFLOW_DATA", raising=False)
    assert find_data(None).name == "data"
    monkeypatch.setenv("ATTNFLOW_DATA", "other")
    assert find_data(None).name == "other"
    assert find_data("data").name == "data"


def test_a_folder_without_the_set_names_the_file(tmp_path):
    with refusal(FileError, "numpred.val", "`attnflow data`"):
        read_agreement(Options(data=str(tmp_path)))
    with refusal(FileError, "dev.tsv", "`attnflow data`"):
        read_sentiment(Options(data=str(tmp_path)))


def test_the_grammar_makes_up_as_many_as_asked_for():
    made = read_agreement(Options(data="grammar", examples=30))
    assert len(made.natural) == 30
    assert sum(len(group) for group in made.by_attractors.values()) == 30
    assert all(e.attractors == k for k, group in made.by_attractors.items() for e in group)


def test_the_grammar_has_no_sentiment():
    with refusal(FileError, "makes up no sentiment", "attnflow data sst2"):
        read_sentiment(Options(data="grammar"))


def test_the_published_data_has_the_sets_of_the_tables():
    folder = published("linzen_numpred", "amalgum_agreement", "ud_agreement", "sst2")
    found = read_agreement(Options(data=str(folder)))
    assert len(found.natural) == 2000
    assert {k: len(v) for k, v in found.by_attractors.items()} == {
        0: 505,
        1: 500,
        2: 500,
        3: 300,
        4: 120,
        5: 40,
    }
    assert len(read_sentiment(Options(data=str(folder)))) == 872


@pytest.mark.parametrize("home", ["", "somewhere"])
def test_the_cache_is_where_caches_are(monkeypatch, home):
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert default_cache().parts[-2:] == ("attnflow", "experiments")
    assert str(default_cache()).startswith(home or str(default_cache().home()))
