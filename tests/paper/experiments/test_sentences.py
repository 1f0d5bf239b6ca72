"""Sentences of experiments: data sets, files and the grammar."""

import pytest

from attnflow.errors import FileError
from attnflow.paper.experiments.experiment import Options
from attnflow.paper.experiments.sentences import find_data, read_agreement, read_sentiment
from tests.paper.data.published import published
from tests.refusal import refusal


def test_missing_data_names_the_command_and_the_grammar(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFLOW_DATA", raising=False)
    with refusal(FileError, "`attnflow data`", "--data FOLDER", "--data grammar"):
        read_agreement(Options())


def test_a_missing_folder_is_an_error(tmp_path):
    with refusal(FileError, str(tmp_path / "none"), "--data FOLDER"):
        find_data(str(tmp_path / "none"))


def test_the_folder_comes_from_the_option_the_environment_or_its_name(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFLOW_DATA", raising=False)
    assert find_data(None).name == "data"
    monkeypatch.setenv("ATTNFLOW_DATA", "other")
    assert find_data(None).name == "other"
    assert find_data("data").name == "data"


def test_a_folder_without_the_data_set_names_the_missing_file(tmp_path):
    with refusal(FileError, "numpred.val", "`attnflow data`"):
        read_agreement(Options(data=str(tmp_path)))
    with refusal(FileError, "dev.tsv", "`attnflow data`"):
        read_sentiment(Options(data=str(tmp_path)))


def test_the_grammar_generates_the_requested_number():
    sets = read_agreement(Options(data="grammar", examples=30))
    assert len(sets.natural) == 30
    assert sum(len(group) for group in sets.by_attractors.values()) == 30
    assert all(e.attractors == k for k, group in sets.by_attractors.items() for e in group)


def test_the_grammar_has_no_sentiment():
    with refusal(FileError, "grammar", "attnflow data sst2"):
        read_sentiment(Options(data="grammar"))


@pytest.mark.slow
def test_the_published_data_has_the_sets_of_the_tables():
    folder = published("linzen_numpred", "amalgum_agreement", "ud_agreement", "sst2")
    sets = read_agreement(Options(data=str(folder)))
    assert len(sets.natural) == 2000
    assert {k: len(v) for k, v in sets.by_attractors.items()} == {
        0: 505,
        1: 500,
        2: 500,
        3: 300,
        4: 120,
        5: 40,
    }
    assert len(read_sentiment(Options(data=str(folder)))) == 872


@pytest.mark.slow
def test_without_treebanks_the_other_sets_are_the_same(tmp_path):
    folder = published("linzen_numpred", "amalgum_agreement", "ud_agreement")
    (tmp_path / "linzen_numpred").symlink_to(folder / "linzen_numpred")
    alone = read_agreement(Options(data=str(tmp_path)))
    whole = read_agreement(Options(data=str(folder)))
    assert alone.natural == whole.natural
    assert alone.by_attractors == {**whole.by_attractors, 0: ()}
    assert whole.attractor_source.startswith("Sentences without attractors come from the treebanks")
    assert alone.attractor_source.startswith("Sentences with attractors are held out")


SIMPLE = "VBZ\tthe key\nVBP\tthe keys\nVBZ\tthe key\n"
FULL = (
    "sentence\tpos_sentence\tsubj_index\tverb_index\tverb_pos\tn_diff_intervening\n"
    "the zyzzyva of the NNS is here\tDT NN IN DT NNS VBZ RB\t2\t6\tVBZ\t1\n"
)
TABLE = (
    "genre\tdoc\tsentence\txpos\tsubj_index\tverb_index\tverb_pos\tn_diff_intervening\n"
    "news\tn1\tThe Zyzzyvas sing\tDT NNS VBP\t1\t2\tVBP\t0\n"
)
TREEBANK = "1\tKeys\t_\t_\tNNS\t_\t2\tnsubj\t_\t_\n2\topen\t_\t_\tVBP\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("name", "text", "prefixes", "attractors"),
    [
        ("numpred.test", SIMPLE, ["the key", "the keys"], []),
        ("numpred.test.2", SIMPLE, ["the key", "the keys"], [2]),
        ("agr.tsv", FULL, ["the NN of the NNS"], [1]),
        ("agreement.tsv", TABLE, ["the NNS"], [0]),
        ("en.conllu", TREEBANK, ["keys"], [0]),
    ],
)
def test_a_file_in_any_format(tmp_path, name, text, prefixes, attractors):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    sets = read_agreement(Options(data=str(path)))
    assert [example.text for example in sets.natural] == prefixes
    assert list(sets.by_attractors) == attractors
    assert sets.source.startswith(f"unique prefixes of {name}")


def test_a_sample_of_a_file_depends_on_the_seed(tmp_path):
    path = tmp_path / "numpred.val"
    path.write_text("".join(f"VBZ\tthe key {i}\n" for i in range(100)), encoding="utf-8")
    first, same, other = (
        read_agreement(Options(data=str(path), examples=5, seed=seed)).natural for seed in (0, 0, 1)
    )
    assert len(first) == 5
    assert first == same != other
