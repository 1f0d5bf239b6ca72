"""Reading data sets: tiny files written here, published ones where they are, and wrong lines."""

import csv
import gzip
from collections import Counter

import pytest

from attnflow.errors import FileError
from attnflow.paper.data.readers import (
    AgreementExample,
    SentimentExample,
    read_agreement_table,
    read_linzen,
    read_numpred,
    read_sst2,
)
from attnflow.paper.data.treebanks import read_conllu
from tests.data.published import published
from tests.refusal import refusal

HEADER = "genre\tdoc\tsentence\txpos\tsubj_index\tverb_index\tverb_pos\tn_diff_intervening"
ROW = "news\tn1\tThe keys to it are here\tDT NNS TO PRP VBP RB\t1\t4\tVBP\t0"
FULL = "sentence\tpos_sentence\tsubj_index\tverb_index\tverb_pos\tn_diff_intervening"


def write(tmp_path, *lines, name="file.tsv"):
    path = tmp_path / name
    opener = gzip.open if name.endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def test_the_simple_form(tmp_path):
    path = write(tmp_path, "VBZ\tthe key to the NNS", "VBP\tthe keys")
    first, second = read_numpred(path, attractors=1)
    assert first == AgreementExample(("the", "key", "to", "the", "NNS"), "singular", attractors=1)
    assert (second.number, second.subject, second.text) == ("plural", None, "the keys")


@pytest.mark.parametrize(
    ("line", "wording"),
    [
        ("VBD\tthe key", "expected VBZ or VBP, a tab, and a prefix"),
        ("VBZ the key", "line 2: 'VBZ the key'"),
        ("VBZ\t", "the prefix is empty; expected at least one token"),
        ("VBZ\ta\tb", "expected VBZ or VBP, a tab, and a prefix"),
        ("", "line 2: ''"),
    ],
)
def test_wrong_lines_of_the_simple_form(tmp_path, line, wording):
    path = write(tmp_path, "VBP\tthe keys", line)
    with refusal(FileError, f"{path}, line 2: ", wording, "get the file again"):
        list(read_numpred(path))


def test_the_whole_table(tmp_path):
    path = write(
        tmp_path, FULL, "the key to NNS is here\tDT NN TO NNS VBZ RB\t2\t5\tVBZ\t1", name="a.tsv.gz"
    )
    [example] = read_linzen(path)
    assert example == AgreementExample(
        ("the", "key", "to", "NNS"), "singular", 1, 1, ("DT", "NN", "TO", "NNS")
    )


def test_quoted_cells_of_the_whole_table(tmp_path):
    path = tmp_path / "agr.tsv"
    rows = [FULL.split("\t"), ['the " key " is', 'DT " NN " VBZ', "3", "5", "VBZ", "0"]]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    [example] = read_linzen(path)
    assert example.prefix == ("the", '"', "key", '"')
    assert example.tags == ("DT", '"', "NN", '"')


@pytest.mark.parametrize(
    ("row", "wording"),
    [
        ("the key\tDT NN\t2\tx\tVBZ\t0", "verb_index is 'x'; expected a whole number"),
        ("the key\tDT NN\t3\t2\tVBZ\t0", "subject 3 and verb 2 of 2 tokens"),
        ("the key\tDT NN\t1\t2\tVBD\t0", "the verb is 'VBD'; expected VBZ or VBP"),
        ("the key\tDT NN", "2 cells; expected 6, as in the header"),
    ],
)
def test_wrong_rows_of_the_whole_table(tmp_path, row, wording):
    with refusal(FileError, "line 2", wording):
        list(read_linzen(write(tmp_path, FULL, row)))


def test_tables_of_treebanks(tmp_path):
    [example] = read_agreement_table(write(tmp_path, HEADER, ROW, name="a.tsv.gz"))
    assert example == AgreementExample(
        ("The", "keys", "to", "it"), "plural", 1, 0, ("DT", "NNS", "TO", "PRP"), "news/n1"
    )


@pytest.mark.parametrize(
    ("row", "wording"),
    [
        (ROW.replace(" RB", ""), "6 tokens and 5 tags; expected one tag for each token"),
        (ROW.replace("\t1\t4", "\t4\t4"), "subject 4 and verb 4 of 6 tokens"),
        (ROW.replace("\tVBP\t", "\tVB\t"), "the verb is 'VB'"),
        (ROW.replace("\t0", "\t-1"), "n_diff_intervening is '-1'"),
    ],
)
def test_wrong_rows_of_treebanks(tmp_path, row, wording):
    with refusal(FileError, "line 3", wording):
        list(read_agreement_table(write(tmp_path, HEADER, ROW, row)))


def test_files_that_are_none(tmp_path):
    with refusal(FileError, "there is no file", "attnflow data"):
        list(read_numpred(tmp_path / "none"))
    with refusal(FileError, "line 1", "the header lacks doc, sentence"):
        list(read_agreement_table(write(tmp_path, "genre")))
    (tmp_path / "a.gz").write_bytes(b"not gzipped")
    with refusal(FileError, "cannot be read", "gzipped. Get the file again"):
        list(read_agreement_table(tmp_path / "a.gz"))
    (tmp_path / "latin").write_bytes(b"VBZ\tcaf\xe9")
    with refusal(FileError, "expected text in UTF-8"):
        list(read_numpred(tmp_path / "latin"))


def test_sst2(tmp_path):
    path = write(tmp_path, "sentence\tlabel", "a fine film \t1", "dull\t0")
    assert list(read_sst2(path)) == [
        SentimentExample("a fine film", "positive"),
        SentimentExample("dull", "negative"),
    ]
    with refusal(FileError, "line 2", "the label is '2'; expected 0 or 1"):
        list(read_sst2(write(tmp_path, "sentence\tlabel", "x\t2")))
    with refusal(FileError, "line 2", "the sentence is empty"):
        list(read_sst2(write(tmp_path, "sentence\tlabel", " \t1")))


def conllu(*rows):
    """Lines of a sentence from (form, tag, head, relation)."""
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
    [example] = read_conllu(write(tmp_path, *lines, *sentence))  # the second is a repetition
    assert example == AgreementExample(
        ("The", "key", "to", "cabinets"), "singular", 1, 1, ("DT", "NN", "IN", "NNS"), "d1"
    )


def test_the_verb_of_a_clause_around_another(tmp_path):
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


def test_subjects_of_passives_agree_too(tmp_path):
    rows = [row if row[3] != "nsubj" else (*row[:3], "nsubj:pass") for row in KEYS]
    assert len(list(read_conllu(write(tmp_path, *conllu(*rows))))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {4: ("are", "VBP", 6, "cop")},  # numbers disagree
        {3: ("cabinets", "NNS", 2, "conj")},  # the key and the cabinets
        {1: ("key", "NNP", 6, "nsubj")},  # a name
        {4: ("was", "VBD", 6, "cop")},  # shows no number
        {4: ("being", "VBG", 6, "cop")},  # not finite
    ],
)
def test_what_is_no_agreement(tmp_path, change):
    rows = [change.get(i, row) for i, row in enumerate(KEYS)]
    assert list(read_conllu(write(tmp_path, *conllu(*rows)))) == []


def test_long_sentences_are_left_out(tmp_path):
    filler = [("x", "RB", 6, "advmod")] * 45
    assert list(read_conllu(write(tmp_path, *conllu(*KEYS, *filler)))) == []


@pytest.mark.parametrize(
    ("line", "wording"),
    [
        ("1\tThe", "line 1: 2 columns; expected 10"),
        ("2\tThe\t_\t_\tDT\t_\t1\tdet\t_\t_", "token '2'; expected token 1"),
        ("1\tThe\t_\t_\tDT\t_\tx\tdet\t_\t_", "the head is 'x'"),
        ("1\tThe\t_\t_\tDT\t_\t5\tdet\t_\t_", "a head is 5, in a sentence of 1 tokens"),
    ],
)
def test_wrong_lines_of_treebanks(tmp_path, line, wording):
    with refusal(FileError, wording):
        list(read_conllu(write(tmp_path, line)))


def test_published_counts():
    folder = published("linzen_numpred", "ud_agreement", "sst2")
    numbers = Counter(e.number for e in read_numpred(folder / "linzen_numpred" / "numpred.val"))
    assert numbers == {"singular": 10763, "plural": 5009}
    gold = list(read_agreement_table(folder / "ud_agreement" / "agreement.tsv.gz"))
    assert Counter(e.attractors for e in gold) == {0: 2525, 1: 133, 2: 29, 3: 14, 4: 4}
    reviews = Counter(e.sentiment for e in read_sst2(folder / "sst2" / "dev.tsv"))
    assert reviews == {"negative": 428, "positive": 444}
