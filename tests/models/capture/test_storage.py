"""Graphs that are stored in half precision or on the host while they are captured."""

from typing import Any

import pytest
import torch

from attnflow import raw_attention, rollout
from attnflow.errors import InputError
from attnflow.models import Storage, capture_graphs
from tests.models.tiny import TINY
from tests.refusal import refusal

# float16 has 11 bits, bfloat16 8: weights are rounded by at most half of the last one.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 1e-6}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("lengths", [(7, 7), (7, 4)])
@pytest.mark.parametrize("name", ["llama", "bert"])
def test_stored_graphs(name, lengths, offload, dtype):
    model, inputs = TINY[name].make(), TINY[name].inputs(lengths)
    expected, _ = capture_graphs(model, inputs)
    graphs, _ = capture_graphs(model, inputs, storage=Storage(dtype, offload=offload))
    close: Any = {"rtol": 0.0, "atol": ROUNDING[dtype]}
    for graph, other in zip(graphs, expected, strict=True):
        assert graph.weights.dtype == graph.attention.dtype == getattr(torch, dtype)
        assert (graph.causal, graph.settings) == (other.causal, other.settings)
        torch.testing.assert_close(graph.attention.float(), other.attention, **close)
        scores = rollout(graph).scores
        assert scores[-1].dtype == torch.float32
        torch.testing.assert_close(scores, rollout(other).scores, rtol=0, atol=4 * close["atol"])
        raw = raw_attention(graph).scores.float()
        torch.testing.assert_close(raw, raw_attention(other).scores, **close)


def test_alti_edges_in_half_precision():
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs()
    [expected], _ = capture_graphs(model, inputs, edges="alti")
    [graph], _ = capture_graphs(model, inputs, edges="alti", storage=Storage("float16"))
    torch.testing.assert_close(graph.weights.float(), expected.weights, rtol=0, atol=1e-3)


def test_unknown_types_are_refused():
    with refusal(InputError, "dtype", "int8", "float16"):
        Storage("int8")
