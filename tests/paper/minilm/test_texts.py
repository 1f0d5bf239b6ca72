"""Texts for training the adapters."""

import pytest

from attnflow import FileError
from attnflow.paper.minilm.texts import load_stories, read_reviews, read_texts
from tests.paper.data.published import published
from tests.refusal import refusal


def write_reviews(folder, **sets):
    (folder / "sst2").mkdir()
    for name, examples in sets.items():
        rows = [f"{text}\t{label}" for text, label in examples]
        (folder / "sst2" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))


def test_training_reviews_exclude_the_held_out_ones(tmp_path):
    write_reviews(
        tmp_path,
        train=[("a fine film", 1), ("A  Dull film", 0), ("so so", 0)],
        dev=[("a dull film", 0)],
        test=[("SO so", 0)],
    )
    reviews = read_reviews(tmp_path)
    assert (reviews.texts, reviews.labels) == (["a fine film"], [1])
    assert reviews.held_out == {"dev": (["a dull film"], [0]), "test": (["SO so"], [0])}


def test_missing_files_of_the_stories_model_are_named(tmp_path):
    with refusal(FileError, "stories260K.bin", "tok512.bin", "karpathy/tinyllamas"):
        load_stories(tmp_path)


@pytest.mark.slow
def test_published_texts():
    folder = published("sst2", "amalgum_agreement", "ud_agreement")
    reviews = read_reviews(folder)
    assert {name: len(texts) for name, (texts, _) in reviews.held_out.items()} == {
        "dev": 872,
        "test": 1821,
    }
    assert len(reviews.texts) == len(reviews.labels) == 67348
    texts = read_texts(folder, ["Once there was a story ."] * 4)
    held_out = {text for part in texts.held_out.values() for text in part}
    assert not held_out & set(texts.train)
    assert list(texts.held_out) == ["treebanks", "reviews", "stories"]
    assert len(texts.held_out["treebanks"]) >= 1000
