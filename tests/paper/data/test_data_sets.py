"""Readers of data sets: small files, invalid lines, and published files where available."""

import csv
import gzip
from collections import Counter

import pytest

from attnflow.errors import FileError
from attnflow.paper.data.data_sets import (
    AgreementExample,
    SentimentExample,
    read_agreement_table,
    read_linzen,
    read_numpred,
    read_sst2,
)
from tests.paper.data.published import published
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


def test_the_simple_format(tmp_path):
    path = write(tmp_path, "VBZ\tthe key to the NNS", "VBP\tthe keys")
    first, second = read_numpred(path, attractors=1)
    assert first == AgreementExample(("the", "key", "to", "the", "NNS"), "singular", attractors=1)
    assert (second.number, second.subject, second.text) == ("plural", None, "the keys")


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("VBD\tthe key", r"'VBD\tthe key'"),
        ("VBZ the key", "'VBZ the key'"),
        ("VBZ\t", "empty"),
        ("VBZ\ta\tb", r"'VBZ\ta\tb'"),
        ("", "''"),
    ],
)
def test_invalid_lines_of_the_simple_format(tmp_path, line, given):
    path = write(tmp_path, "VBP\tthe keys", line)
    with refusal(FileError, path, "line 2", given):
        list(read_numpred(path))


def test_the_full_table(tmp_path):
    path = write(
        tmp_path, FULL, "the key to NNS is here\tDT NN TO NNS VBZ RB\t2\t5\tVBZ\t1", name="a.tsv.gz"
    )
    [example] = read_linzen(path)
    assert example == AgreementExample(
        ("the", "key", "to", "NNS"), "singular", 1, 1, ("DT", "NN", "TO", "NNS")
    )


def test_quoted_cells_of_the_full_table(tmp_path):
    path = tmp_path / "agr.tsv"
    rows = [FULL.split("\t"), ['the " key " is', 'DT " NN " VBZ', "3", "5", "VBZ", "0"]]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    [example] = read_linzen(path)
    assert example.prefix == ("the", '"', "key", '"')
    assert example.tags == ("DT", '"', "NN", '"')


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ("the key\tDT NN\t2\tx\tVBZ\t0", ("verb_index", "'x'")),
        ("the key\tDT NN\t3\t2\tVBZ\t0", ("subject 3", "verb 2", "2 tokens")),
        ("the key\tDT NN\t1\t2\tVBD\t0", ("'VBD'", "VBZ", "VBP")),
        ("the key\tDT NN", ("2 cells", "6")),
    ],
)
def test_invalid_rows_of_the_full_table(tmp_path, row, values):
    with refusal(FileError, "line 2", *values):
        list(read_linzen(write(tmp_path, FULL, row)))


def test_treebank_tables(tmp_path):
    [example] = read_agreement_table(write(tmp_path, HEADER, ROW, name="a.tsv.gz"))
    assert example == AgreementExample(
        ("The", "keys", "to", "it"), "plural", 1, 0, ("DT", "NNS", "TO", "PRP"), "news/n1"
    )


@pytest.mark.parametrize(
    ("row", "values"),
    [
        (ROW.replace(" RB", ""), ("6 tokens", "5 tags")),
        (ROW.replace("\t1\t4", "\t4\t4"), ("subject 4", "verb 4", "6 tokens")),
        (ROW.replace("\tVBP\t", "\tVB\t"), ("'VB'", "VBZ", "VBP")),
        (ROW.replace("\t0", "\t-1"), ("n_diff_intervening", "'-1'")),
    ],
)
def test_invalid_rows_of_treebank_tables(tmp_path, row, values):
    with refusal(FileError, "line 3", *values):
        list(read_agreement_table(write(tmp_path, HEADER, ROW, row)))


def test_missing_and_unreadable_files(tmp_path):
    with refusal(FileError, tmp_path / "none", "attnflow data"):
        list(read_numpred(tmp_path / "none"))
    with refusal(FileError, "line 1", "doc, sentence"):
        list(read_agreement_table(write(tmp_path, "genre")))
    (tmp_path / "a.gz").write_bytes(b"not gzipped")
    with refusal(FileError, tmp_path / "a.gz", "gzipped"):
        list(read_agreement_table(tmp_path / "a.gz"))
    (tmp_path / "latin").write_bytes(b"VBZ\tcaf\xe9")
    with refusal(FileError, tmp_path / "latin", "UTF-8"):
        list(read_numpred(tmp_path / "latin"))


def test_sst2(tmp_path):
    path = write(tmp_path, "sentence\tlabel", "a fine film \t1", "dull\t0")
    assert list(read_sst2(path)) == [
        SentimentExample("a fine film", "positive"),
        SentimentExample("dull", "negative"),
    ]
    with refusal(FileError, "line 2", "'2'", "0 or 1"):
        list(read_sst2(write(tmp_path, "sentence\tlabel", "x\t2")))
    with refusal(FileError, "line 2", "sentence", "empty"):
        list(read_sst2(write(tmp_path, "sentence\tlabel", " \t1")))


def test_published_counts():
    folder = published("linzen_numpred", "ud_agreement", "sst2")
    numbers = Counter(e.number for e in read_numpred(folder / "linzen_numpred" / "numpred.val"))
    assert numbers == {"singular": 10763, "plural": 5009}
    gold = list(read_agreement_table(folder / "ud_agreement" / "agreement.tsv.gz"))
    assert Counter(e.attractors for e in gold) == {0: 2525, 1: 133, 2: 29, 3: 14, 4: 4}
    reviews = Counter(e.sentiment for e in read_sst2(folder / "sst2" / "dev.tsv"))
    assert reviews == {"negative": 428, "positive": 444}
