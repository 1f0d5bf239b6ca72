"""The models that come with attnflow, and others like them in folders."""

import json

import numpy as np
import pytest
import torch

from attnflow.errors import FileError
from attnflow.explainer import explain
from attnflow.models.builtin.folders import BUNDLED, find_folder
from attnflow.models.builtin.verb_number import (
    VerbNumberConfig,
    VerbNumberModel,
    load_verb_number,
    restore,
    save_verb_number,
    shrink,
    to_ids,
)
from attnflow.models.loading import load_model
from attnflow.paper.verb_number.objective import accuracy
from attnflow.paper.verb_number.splits import split_folder
from attnflow.paper.verb_number.vocabulary import make_vocabulary
from tests.data.published import published
from tests.models.checkpoints import eager_graph
from tests.refusal import refusal


@pytest.fixture(scope="module", params=BUNDLED)
def loaded(request):
    return load_model(request.param)


@pytest.fixture(scope="module")
def split():
    return split_folder(published("linzen_numpred", "amalgum_agreement", "ud_agreement"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("the key to the cabinets", "singular"),
        ("the keys to the cabinet", "plural"),
        ("The author of the books", "singular"),
        ("the authors of the book", "plural"),
        ("the dog near the trees in the gardens", "singular"),
        ("some NNS in the NN", "plural"),
    ],
)
def test_examples_of_the_papers_kind(loaded, text, number):
    prediction = explain(text, loaded).prediction
    assert prediction is not None
    assert (prediction.kind, prediction.label) == ("class", number)
    assert prediction.probability > 0.9


def test_no_model_is_the_bundled_one():
    explanation = explain("the key to the cabinets")
    assert explanation.tokens == ("[CLS]", "the", "key", "to", "the", "[UNK]")
    assert explanation.position == 0
    assert explanation.words.texts[-1] == "cabinets"
    graph, output = eager_graph(load_model(), "the key to the cabinets")
    np.testing.assert_allclose(explanation.graph.weights, graph.weights, atol=1e-5)
    assert output.logits.argmax() == 0
    assert explanation.rollout().scores.shape == (6, 1, 6)


def test_the_twin_is_explained_at_its_last_token():
    explanation = explain("the key to the doors", "verb-number-causal")
    assert explanation.position == 5
    assert explanation.rollout(positions=range(6)).scores[-1, 0, 1:].max() == 0


def test_loading_draws_no_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    load_model()
    assert torch.equal(torch.rand(2), expected)


def test_the_bundle_is_small(loaded):
    folder = find_folder(loaded.name)
    assert folder is not None
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3e6
    assert (folder / "README.md").is_file()


def test_held_out_accuracy(loaded, split):
    vocabulary = loaded.tokenizer.get_vocab()
    assert vocabulary == make_vocabulary(split.training)
    tests = split.test
    assert accuracy(loaded.model, tests["natural"][:800], vocabulary) > 0.98
    assert accuracy(loaded.model, tests["3 attractors"], vocabulary) > 0.92
    for example in tests["natural"][:300] + tests["2 attractors"][:200]:
        ids = loaded.tokenizer(example.text)["input_ids"]
        assert ids == to_ids(example.prefix, vocabulary)


def save(folder):
    torch.manual_seed(0)
    vocabulary = make_vocabulary([])
    config = VerbNumberConfig(vocab_size=len(vocabulary), n_layer=1, n_head=2, n_embd=8)
    model = VerbNumberModel(config).eval()
    save_verb_number(model, vocabulary, folder)
    return model


def test_a_folder_is_written_and_loaded(tmp_path):
    model = save(tmp_path / "mine")
    loaded = load_model(tmp_path / "mine")
    ids = loaded.tokenizer("NN IN NNS", return_tensors="pt")["input_ids"]
    torch.testing.assert_close(loaded.model(ids).logits, model(ids).logits, atol=0.01, rtol=0)
    assert loaded.task == "classifier"
    assert explain("NN IN NNS", tmp_path / "mine").prediction is not None


def test_weights_change_little_when_stored():
    weights = {"a": torch.tensor([[1.0, -0.5, 0.2], [0.0, 0.0, 0.0]]), "b": torch.tensor([0.1])}
    small = shrink(weights)
    assert small["a"].dtype == torch.int8
    assert small["a"][0].tolist() == [127, -64, 25]  # -63.5 and 25.4 rounded
    restored = restore(small)
    assert set(restored) == {"a", "b"}
    assert (restored["a"] - weights["a"]).abs().max() <= 1 / 254 + 1e-6
    torch.testing.assert_close(restored["b"], weights["b"], atol=1e-4, rtol=0)


def test_broken_folders(tmp_path):
    save(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"nothing")
    with refusal(FileError, "no verb-number model can be read from", "Train it again"):
        load_verb_number(tmp_path)
    (tmp_path / "weights.safetensors").unlink()
    with refusal(FileError, "expected config.json and weights.safetensors"):
        load_model(tmp_path)


def test_other_folders_are_not_ours(tmp_path, monkeypatch):
    assert find_folder(str(tmp_path)) is None
    (tmp_path / "config.json").write_text("{")
    assert find_folder(str(tmp_path)) is None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert find_folder(str(tmp_path)) is None
    (tmp_path / "verb-number").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_folder("verb-number") is None  # the user's own folder goes first
