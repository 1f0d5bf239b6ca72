"""Agreement examples from treebanks, and the tables extracted from them."""

import gzip

import pytest

from attnflow.errors import FileError, InputError
from attnflow.paper.data.data_sets import AgreementExample, read_agreement_table
from attnflow.paper.data.treebanks import HEADER, extract_agreement, read_conllu
from tests.refusal import refusal

SENTENCE = """# newdoc id = d1
1\tThe\t_\t_\tDT\t_\t2\tdet\t_\t_
2\tkey\t_\t_\tNN\t_\t7\tnsubj\t_\t_
3\tto\t_\t_\tIN\t_\t5\tcase\t_\t_
4\t1 000\t_\t_\tCD\t_\t5\tnummod\t_\t_
5\tcabinets\t_\t_\tNNS\t_\t2\tnmod\t_\t_
6\tis\t_\t_\tVBZ\t_\t7\tcop\t_\t_
7\there\t_\t_\tRB\t_\t0\troot\t_\t_

"""


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "en_test.conllu"
    path.write_text(SENTENCE * 2, encoding="utf-8")  # the second sentence is a repetition
    return path


def write(tmp_path, *lines):
    path = tmp_path / "file.conllu"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def conllu(*rows):
    """The lines of a sentence. rows: form, tag, head and relation of each token."""
    return [
        f"{i}\t{form}\t_\t_\t{tag}\t_\t{head}\t{relation}\t_\t_"
        for i, (form, tag, head, relation) in enumerate(rows, start=1)
    ]


KEYS = [
    ("The", "DT", 2, "det"),
    ("key", "NN", 6, "nsubj"),
    ("to", "IN", 4, "case"),
    ("cabinets", "NNS", 2, "nmod"),
    ("is", "VBZ", 6, "cop"),
    ("here", "RB", 0, "root"),
]


def test_conllu(tmp_path):
    extra = ["1-2\tThekey\t_\t_\t_\t_\t_\t_\t_\t_", "2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_"]
    sentence = conllu(*KEYS)
    lines = ["# newdoc id = d1", *extra[:1], *sentence[:2], *extra[1:], *sentence[2:], ""]
    [example] = read_conllu(
        write(tmp_path, *lines, *sentence)
    )  # the second sentence is a repetition
    assert example == AgreementExample(
        ("The", "key", "to", "cabinets"), "singular", 1, 1, ("DT", "NN", "IN", "NNS"), "d1"
    )


def test_the_verb_of_an_outer_clause(tmp_path):
    rows = [
        ("The", "DT", 2, "det"),
        ("point", "NN", 6, "nsubj:outer"),
        ("is", "VBZ", 6, "cop"),
        ("that", "IN", 6, "mark"),
        ("she", "PRP", 6, "nsubj"),
        ("sings", "VBZ", 0, "root"),
    ]
    [example] = read_conllu(write(tmp_path, *conllu(*rows)))
    assert example.text == "The point"


def test_subjects_of_passives(tmp_path):
    rows = [row if row[3] != "nsubj" else (*row[:3], "nsubj:pass") for row in KEYS]
    assert len(list(read_conllu(write(tmp_path, *conllu(*rows))))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {4: ("are", "VBP", 6, "cop")},  # numbers disagree
        {3: ("cabinets", "NNS", 2, "conj")},  # the key and the cabinets
        {1: ("key", "NNP", 6, "nsubj")},  # a proper noun
        {4: ("was", "VBD", 6, "cop")},  # has no number
        {4: ("being", "VBG", 6, "cop")},  # not finite
    ],
)
def test_pairs_that_are_skipped(tmp_path, change):
    rows = [change.get(i, row) for i, row in enumerate(KEYS)]
    assert list(read_conllu(write(tmp_path, *conllu(*rows)))) == []


def test_long_sentences_are_skipped(tmp_path):
    filler = [("x", "RB", 6, "advmod")] * 45
    assert list(read_conllu(write(tmp_path, *conllu(*KEYS, *filler)))) == []


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("1\tThe", ("2 columns", "10")),
        ("2\tThe\t_\t_\tDT\t_\t1\tdet\t_\t_", ("token '2'", "token 1")),
        ("1\tThe\t_\t_\tDT\t_\tx\tdet\t_\t_", ("head", "'x'")),
        ("1\tThe\t_\t_\tDT\t_\t5\tdet\t_\t_", ("head", "5", "1 tokens")),
    ],
)
def test_invalid_lines(tmp_path, line, values):
    with refusal(FileError, "line 1", *values):
        list(read_conllu(write(tmp_path, line)))


def test_an_extracted_table_has_the_examples_of_the_treebank(tmp_path, treebank):
    path = tmp_path / "ud" / "agreement.tsv.gz"
    assert extract_agreement([treebank], path) == 1
    with gzip.open(path, "rt", encoding="utf-8") as file:
        header, row = (line.rstrip("\n").split("\t") for line in file)
    assert header == list(HEADER)
    words, tags = "The key to 1_000 cabinets is here", "DT NN IN CD NNS VBZ RB"
    assert row == ["en_test", "d1", words, tags, "1", "5", "NN", "VBZ", "is", "1", "1"]
    [example] = read_agreement_table(path)
    [original] = read_conllu(treebank)
    for field in ("number", "subject", "attractors", "tags"):
        assert getattr(example, field) == getattr(original, field)
    assert [file.name for file in path.parent.iterdir()] == ["agreement.tsv.gz"]


def test_the_same_treebanks_give_the_same_bytes(tmp_path, treebank):
    paths = [tmp_path / name for name in ("a.tsv.gz", "b.tsv.gz")]
    for path in paths:
        extract_agreement([treebank, treebank], path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_treebanks_without_examples_and_invalid_ones_are_rejected(tmp_path, treebank):
    out = tmp_path / "agreement.tsv.gz"
    empty = tmp_path / "empty.conllu"
    empty.write_text("", encoding="utf-8")
    with refusal(InputError, "empty.conllu", "CoNLL-U"):
        extract_agreement([empty], out)
    long = tmp_path / "long.conllu"
    rows = [f"{i}\tx\t_\t_\tUH\t_\t1\tdep\t_\t_\n" for i in range(8, 52)]
    long.write_text(SENTENCE.rstrip("\n") + "\n" + "".join(rows), encoding="utf-8")
    with refusal(InputError, "long.conllu"):
        extract_agreement([long], out)
    treebank.write_text("1\tx\n", encoding="utf-8")
    with refusal(FileError, "line 1", "2 columns"):
        extract_agreement([treebank], out)
    assert not out.exists()
