"""Explanations whose attention graph was not kept: only the rollout of what is explained."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from attnflow import explain
from attnflow.errors import InputError, SelectionError
from attnflow.explainer import explain as explain_text
from attnflow.models.capture import row_rollout
from attnflow.unkept import UnkeptLayers
from tests.refusal import refusal

MODEL = "verb-number-causal"
TEXT = "the keys to the old cabinet"


@pytest.fixture(scope="module")
def unkept():
    return explain(TEXT, MODEL, edges="attention", keep_graph=False)


@pytest.fixture(scope="module")
def kept():
    return explain(TEXT, MODEL, edges="attention")


def test_rollout_is_that_of_the_graph(kept, unkept):
    result, expected = unkept.rollout(), kept.rollout(layers=-1)
    np.testing.assert_allclose(result.to_numpy(), expected.to_numpy(), atol=1e-6)
    assert (result.layers, result.settings) == (expected.layers, expected.settings)
    assert unkept.prediction == kept.prediction
    assert unkept.graph.settings == kept.graph.settings
    assert (unkept.graph.causal, unkept.graph.widths) == (kept.graph.causal, kept.graph.widths)


@pytest.mark.parametrize("options", [{"words": True}, {"normalize": "rows"}, {"special": "hide"}])
def test_options_of_rollout(kept, unkept, options):
    result = unkept.rollout(**options)
    expected = kept.rollout(layers=-1, **options)
    assert result.top(3)[0][0] == expected.top(3)[0][0]
    np.testing.assert_allclose(result.to_numpy(), expected.to_numpy(), atol=1e-6)


def test_batches_and_other_positions():
    texts = [TEXT, "the key"]
    options: Any = {"edges": "attention", "position": 1}
    for few, whole in zip(
        explain(texts, MODEL, keep_graph=False, **options),
        explain(texts, MODEL, **options),
        strict=True,
    ):
        expected = whole.rollout(layers=-1).to_numpy()
        np.testing.assert_allclose(few.rollout().to_numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "use",
    [
        lambda e: e.flow(),
        lambda e: e.raw(),
        lambda e: e.attribute("joint_flow"),
        lambda e: e.rollout(normalize="receptive_field"),
        lambda e: e.save("unkept.safetensors"),
        lambda e: e.to_html("unkept.html"),
        lambda e: np.asarray(e.graph.weights),
        lambda e: e.graph.attention[0],
        lambda e: e.graph.weights.dtype,
    ],
)
def test_everything_else_says_that_there_is_no_graph(unkept, use):
    with refusal(InputError, "7 tokens", "6 layers", "keep_graph=True"):
        use(unkept)


@pytest.mark.parametrize("options", [{"positions": [1]}, {"layers": 1}, {"layers": [1, 6]}])
def test_other_rows_are_refused(unkept, options):
    with refusal(SelectionError, "layer 6", "positions 6", "keep_graph=True"):
        unkept.rollout(**options)


def test_copies_and_pickles(unkept):
    for other in (copy.copy(unkept), pickle.loads(pickle.dumps(unkept))):
        np.testing.assert_array_equal(other.rollout().to_numpy(), unkept.rollout().to_numpy())


def test_large_graphs_are_not_kept(monkeypatch):
    def explain_with(free, **options):
        monkeypatch.setattr(row_rollout, "free_memory", lambda _: free)
        explanation = explain_text(TEXT, MODEL, **options)
        return not isinstance(explanation.graph.weights, UnkeptLayers)

    size = 6 * 7 * 7 * 8  # layers, tokens, and bytes of weights and attention
    assert explain_with(2 * size, edges="attention")
    assert not explain_with(2 * size - 1, edges="attention")
    assert explain_with(0, edges="attention", keep_graph=True)
    assert explain_with(0, edges="attention", residual_weight="measured")
    assert explain_with(0)  # ALTI edges need a graph


@pytest.mark.parametrize("options", [{}, {"edges": "attention", "residual_weight": "measured"}])
def test_settings_that_need_a_graph(options):
    with refusal(InputError, "keep_graph", "attention"):
        explain(TEXT, MODEL, keep_graph=False, **options)


def test_unknown_choices_are_refused():
    with refusal(InputError, "keep_graph", "'no'"):
        explain(TEXT, MODEL, keep_graph="no")  # type: ignore[call-overload]


def test_rows_by_hand():
    rows = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    layers = UnkeptLayers(4, rows, [1, 2])
    assert layers.shape == (4, 3, 3)
    assert torch.equal(layers.rollout_rows([4], [2], 0), rows[None, [1]])
    with refusal(SelectionError, "position 0"):
        layers.rollout_rows([4], [0], 0)
