"""Tables made from treebanks."""

import gzip

import pytest

from attnflow.errors import FileError, InputError
from attnflow.paper.data.readers import read_agreement_table
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
    path.write_text(SENTENCE * 2, encoding="utf-8")  # the second is a repetition
    return path


def test_a_table_has_what_the_treebank_has(tmp_path, treebank):
    path = tmp_path / "ud" / "agreement.tsv.gz"
    assert extract_agreement([treebank], path) == 1
    with gzip.open(path, "rt", encoding="utf-8") as file:
        header, row = (line.rstrip("\n").split("\t") for line in file)
    assert header == list(HEADER)
    words, tags = "The key to 1_000 cabinets is here", "DT NN IN CD NNS VBZ RB"
    assert row == ["en_test", "d1", words, tags, "1", "5", "NN", "VBZ", "is", "1", "1"]
    [example] = read_agreement_table(path)
    [read] = read_conllu(treebank)
    assert (example.number, example.subject, example.attractors, example.tags) == (
        read.number,
        read.subject,
        read.attractors,
        read.tags,
    )
    assert [file.name for file in path.parent.iterdir()] == ["agreement.tsv.gz"]


def test_the_same_treebanks_give_the_same_bytes(tmp_path, treebank):
    paths = [tmp_path / name for name in ("a.tsv.gz", "b.tsv.gz")]
    for path in paths:
        extract_agreement([treebank, treebank], path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_what_cannot_be_extracted(tmp_path, treebank):
    out = tmp_path / "agreement.tsv.gz"
    empty = tmp_path / "empty.conllu"
    empty.write_text("", encoding="utf-8")
    with refusal(InputError, "empty.conllu has no pair of a noun and a verb that agree"):
        extract_agreement([empty], out)
    long = tmp_path / "long.conllu"
    rows = [f"{i}\tx\t_\t_\tUH\t_\t1\tdep\t_\t_\n" for i in range(8, 52)]
    long.write_text(SENTENCE.rstrip("\n") + "\n" + "".join(rows), encoding="utf-8")
    with refusal(InputError, "long.conllu has no pair"):
        extract_agreement([long], out)
    treebank.write_text("1\tx\n", encoding="utf-8")
    with refusal(FileError, "line 1: 2 columns"):
        extract_agreement([treebank], out)
    assert not out.exists()
