import numpy as np
import pytest

from attnflow import AttentionGraph, Attribution, normalize_rows, raw_attention, rollout
from attnflow.attribution import normalize_by_receptive_field
from attnflow.errors import InputError
from tests.refusal import refusal
from tests.weights import random_attention


def at_layer_one(scores):
    n = len(scores)
    tokens = tuple(str(i) for i in range(n))
    return Attribution(np.asarray([scores]), tokens, "flow", (1,), tuple(range(n)))


def test_rows_are_scaled_and_rows_of_zeros_stay():
    scaled = normalize_rows(at_layer_one([[1.0, 3.0], [0.0, 0.0]]))
    assert scaled.scores.tolist() == [[[0.25, 0.75], [0.0, 0.0]]]
    assert scaled.settings["normalize"] == "rows"


def test_scores_are_divided_by_those_of_uniform_attention():
    # 0.6 / 0.6 = 1 and 0.6 / 0.2 = 3, then divided by their sum 4; 0 / 0 is 0.
    scores = at_layer_one([[1.0, 0.0], [0.6, 0.6]])
    baseline = at_layer_one([[1.0, 0.0], [0.6, 0.2]])
    normalized = normalize_by_receptive_field(scores, baseline)
    np.testing.assert_allclose(normalized.scores, [[[1.0, 0.0], [0.25, 0.75]]])
    assert normalized.settings["normalize"] == "receptive_field"


@pytest.mark.parametrize("method", [raw_attention, rollout])
def test_uniform_causal_attention_comes_out_even(method):
    """Content-free attention favours early tokens; the normalization takes that away."""
    uniform = AttentionGraph.from_weights(np.tri(4)[None] / np.arange(1, 5)[None, :, None])
    normalized = method(uniform, normalize="receptive_field").scores[0]
    np.testing.assert_allclose(normalized, np.tri(4) / np.arange(1, 5)[:, None])


@pytest.mark.parametrize("method", [raw_attention, rollout])
def test_every_method_takes_the_same_options(method):
    graph = AttentionGraph.from_weights(random_attention(2, 3, 5, 5))
    for option in ("none", "rows", "receptive_field"):
        result = method(graph, normalize=option, positions=[4, 1])
        assert result.scores.shape == (2, 3, 2, 5)
        np.testing.assert_allclose(result.scores.sum(-1), 1)
        assert result.settings["normalize"] == option
    with refusal(InputError, "'softmax'", "'none'", "'rows'", "'receptive_field'"):
        method(graph, normalize="softmax")
