"""No held-out prefix occurs in the training examples."""

import gzip

import pytest

from attnflow.errors import FileError
from attnflow.paper.data.data_sets import AgreementExample
from attnflow.paper.verb_number import splits
from attnflow.paper.verb_number.splits import prefixes, split_folder, split_grammar
from tests.paper.data.published import published
from tests.refusal import refusal


def held_out_prefixes(split):
    return prefixes([*split.dev, *(e for part in split.test.values() for e in part)])


@pytest.mark.slow
def test_parts_of_published_data_share_no_prefix():
    split = split_folder(published("linzen_numpred", "amalgum_agreement", "ud_agreement"))
    sizes = {name: len(part) for name, part in split.test.items()}
    assert sizes["natural"] == 2000
    assert len(split.dev) == 1500
    assert sizes["5 attractors"] == 40
    assert not held_out_prefixes(split) & prefixes(split.training)
    assert not prefixes(split.dev) & prefixes(split.test["natural"])
    assert split == split_folder(published("linzen_numpred"))  # the same in every run


def write_folder(folder):
    linzen = folder / "linzen_numpred"
    linzen.mkdir()
    rows = [f"VBZ\tthe key {i % 30}" for i in range(60)]  # each prefix twice
    (linzen / "numpred.val").write_text("\n".join(rows) + "\n")
    for n in range(1, 6):
        hard = [f"VBP\tthe keys {i} {n}" for i in range(10)] + rows[:5]
        (linzen / f"numpred.test.{n}").write_text("\n".join(hard) + "\n")
    header = ["genre", "doc", "sentence", "xpos"]
    header += ["subj_index", "verb_index", "verb_pos", "n_diff_intervening"]
    for name in ("amalgum_agreement", "ud_agreement"):
        (folder / name).mkdir()
        lines = [header]
        for i in range(12):
            words = f"The Keys {i} are"
            lines.append(["news", f"d{i // 3}", words, "DT NNS CD VBP", "1", "3", "VBP", "0"])
        with gzip.open(folder / name / "agreement.tsv.gz", "wt") as file:
            file.writelines("\t".join(line) + "\n" for line in lines)


def test_duplicates_and_whole_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(splits, "N_TEST", 6)
    monkeypatch.setattr(splits, "N_DEV", 4)
    monkeypatch.setattr(splits, "N_ATTRACTORS", dict.fromkeys(range(1, 6), 2))
    monkeypatch.setattr(splits, "N_TREEBANK", 4)
    write_folder(tmp_path)
    split = split_folder(tmp_path)
    assert [len(split.test["natural"]), len(split.dev)] == [6, 4]
    assert not held_out_prefixes(split) & prefixes(split.training)
    gold = split.test["treebank, no attractor"]
    assert len(gold) == 6  # two whole documents of three
    assert len({example.document for example in gold}) == 2
    assert gold[0].prefix[:2] == ("the", "keys")
    assert all(example.attractors for example in split.hard)


def test_a_missing_file_is_named(tmp_path):
    with refusal(FileError, "numpred.val", "`attnflow data`"):
        split_folder(tmp_path)


def test_generated_examples_are_split():
    split = split_grammar(300)
    assert not held_out_prefixes(split) & prefixes(split.training)
    assert all(example.attractors == 0 for example in split.treebanks)
    assert len(split.test["grammar"]) == 30
    assert split == split_grammar(300)
    assert isinstance(split.hard[0], AgreementExample)
