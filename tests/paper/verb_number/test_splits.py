"""No held-out prefix occurs in the training examples."""

import gzip

import pytest

from attnflow.errors import FileError
from attnflow.paper.data.data_sets import AgreementExample
from attnflow.paper.verb_number import splits
from attnflow.paper.verb_number.splits import (
    GOLD,
    PARSED,
    exclude_copies,
    prefixes,
    read_test_sets,
    split_folder,
    split_grammar,
)
from tests.paper.data.published import published
from tests.refusal import refusal


def held_out_prefixes(split):
    return prefixes([*split.dev, *(e for part in split.test.values() for e in part)])


def examples_with(*texts):
    return tuple(AgreementExample(tuple(text.split()), "plural") for text in texts)


@pytest.mark.slow
def test_parts_of_published_data_share_no_prefix():
    folder = published(
        *("linzen_numpred", "amalgum_agreement", "ud_agreement"),
        *("gum_agreement", "wikipedia_agreement"),
    )
    split = split_folder(folder)
    sizes = {name: len(part) for name, part in split.test.items()}
    assert sizes["natural"] == 2000
    assert len(split.dev) == 1500
    assert sizes["5 attractors"] == 40
    assert not held_out_prefixes(split) & prefixes(split.training)
    assert not prefixes(split.dev) & prefixes(split.test["natural"])
    assert len(split.training) > 400_000
    assert read_test_sets(folder) == split.test  # the same in every run


@pytest.mark.parametrize(
    ("prefix", "is_kept"),
    [
        ("the old NNS of the town near paris", False),  # held out
        ("the old houses of the town near NNP", False),  # words and tags exchanged
        ("the old doors of the town near paris", False),  # the word at the tag
        ("the old NNS of a town near paris", True),  # another word
        ("the old NNS of the town near paris still", True),
        ("the JJ NNS IN the town IN paris", True),  # too few equal words
    ],
)
def test_copies_of_held_out_prefixes_are_excluded(prefix, is_kept):
    held_out = prefixes(examples_with("the old NNS of the town near paris", "a key"))
    kept = exclude_copies(examples_with("the key", prefix, "a key", "this door"), held_out)
    expected = ["the key", *([prefix] if is_kept else []), "this door"]
    assert [example.text for example in kept] == expected


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
    for name in (GOLD, *PARSED):
        (folder / name).parent.mkdir(exist_ok=True)
        lines = [header]
        for i in range(12):
            words, tags = f"The Keys {i} are what he {i} wants", "DT NNS CD VBP WP PRP CD VBZ"
            lines.append(["news", f"d{i // 3}", words, tags, "1", "3", "VBP", "0"])
        with gzip.open(folder / name, "wt") as file:
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
    assert read_test_sets(tmp_path) == split.test
    documents = {example.document for example in split.training}
    assert not documents & {example.document for example in gold}


def test_a_missing_file_is_named(tmp_path):
    with refusal(FileError, "numpred.val", "`attnflow data`"):
        split_folder(tmp_path)


def test_generated_examples_are_split():
    split = split_grammar(300)
    assert not held_out_prefixes(split) & prefixes(split.training)
    assert len(split.test["grammar"]) == 30
    assert split == split_grammar(300)
    assert isinstance(split.training[0], AgreementExample)
