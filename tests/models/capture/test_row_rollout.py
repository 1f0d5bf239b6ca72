"""Rollout of a few positions without matrices of all pairs, compared with the rollout of graphs."""

from typing import Any

import numpy as np
import pytest
import torch

from attnflow.errors import InputError, SelectionError
from attnflow.methods.rollout import rollout
from attnflow.models import Memory, capture_graphs, capture_rollout
from attnflow.models.capture import row_rollout
from attnflow.models.capture.call import DotProductCall
from attnflow.models.capture.fused_attention import attend
from attnflow.models.capture.row_products import multiply_rows
from tests.models.tiny import TINY
from tests.refusal import refusal

CLOSE: Any = {"rtol": 0, "atol": 1e-5}
EAGER = ("gemma2", "deberta-v2", "gpt-oss")


def make(name):
    return TINY[name].make("eager" if name in EAGER else "sdpa")


def whole_rollout(model, inputs, positions, **options):
    graphs, _ = capture_graphs(model, inputs, **options)
    return [rollout(graph, layers=-1, positions=positions) for graph in graphs]


def assert_equal_to_graphs(model, inputs, positions, memory=None, **options):
    expected = whole_rollout(model, inputs, positions, **options)
    results, _ = capture_rollout(model, inputs, positions=positions, memory=memory, **options)
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result.scores, other.scores, **CLOSE)
        assert (result.positions, result.layers) == (other.positions, other.layers)
        assert result.settings == other.settings


@pytest.mark.parametrize("name", TINY)
def test_rows_equal_those_of_graphs(name):
    model, inputs = make(name), TINY[name].inputs((7, 7))
    assert_equal_to_graphs(model, inputs, [-1])
    assert_equal_to_graphs(model, inputs, [0, 3, -1])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "gpt-oss", "mistral"])
def test_rows_of_padded_batches(name, side):
    model, inputs = make(name), TINY[name].inputs((7, 4), side)
    assert_equal_to_graphs(model, inputs, [0, -1])


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_rows_of_padded_encoder_decoders(name):
    model, inputs = make(name), TINY[name].inputs((7, 4))
    assert_equal_to_graphs(model, inputs, [0, -1])  # the first is a position of the encoder


@pytest.mark.parametrize("heads", ["max", "min", 1, lambda layer: layer[0]])
def test_other_ways_to_merge_heads(heads):
    model, inputs = make("llama"), TINY["llama"].inputs()
    assert_equal_to_graphs(model, inputs, [-1], heads=heads, residual_weight=[0.2, 0.7])


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt-oss", "bert", "t5"])
@pytest.mark.parametrize("memory", [Memory(), Memory(host=0), Memory(host=1), Memory(host=2500)])
def test_layers_that_are_kept_or_computed_again_give_the_same(name, memory):
    model, inputs = make(name), TINY[name].inputs((7,))
    assert_equal_to_graphs(model, inputs, [-1], memory=memory)


def test_without_memory_the_model_runs_once_for_each_layer():
    model, inputs = make("llama"), TINY["llama"].inputs()
    runs = []
    hook = model.model.layers[0].register_forward_hook(lambda *_: runs.append(1))
    capture_rollout(model, inputs, positions=-1)
    assert len(runs) == 1
    capture_rollout(model, inputs, positions=-1, memory=Memory(host=0))
    hook.remove()
    assert len(runs) == 1 + 2  # two layers: the last run ends at the second one


def test_no_matrix_of_all_pairs(monkeypatch):
    # 300 tokens, in blocks of at most 100 queries.
    from attnflow.models.capture import call, row_products

    tiny = TINY["llama"]
    model = tiny.make()
    inputs = {"input_ids": torch.randint(5, 99, (1, 300))}
    expected = whole_rollout(model, inputs, [-1, 7])[0]
    monkeypatch.setitem(call.BLOCK_SIZE, "cpu", 4 * 300 * 100)
    monkeypatch.setattr(row_products, "BLOCK_ROWS", 100)
    largest = []
    for name in ("matmul", "bmm", "softmax"):
        function = getattr(torch, name)

        def observed(*args, function=function, **kwargs):
            result = function(*args, **kwargs)
            largest.append(result.shape[-1] * result.shape[-2])
            return result

        monkeypatch.setattr(torch, name, observed)
    [result], _ = capture_rollout(model, inputs, positions=[-1, 7])
    torch.testing.assert_close(result.scores, expected.scores, **CLOSE)
    assert max(largest) <= 2 * 300 * 100  # two heads that share keys are one matrix


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_a_product_by_hand(causal, n_rows):
    # All scores are 0, so each query attends evenly to the keys that it sees.
    query, key = torch.zeros(1, 2, 2, 4), torch.zeros(1, 1, 2, 4)
    call = DotProductCall(None, query, key, key, scaling=1.0, causal=causal)
    with torch.no_grad():
        assert attend(call)
    rows = torch.tensor([[[0.25, 0.75]]]).expand(1, n_rows, 2).contiguous()
    expected = [0.25 + 0.375, 0.375] if causal else [0.5, 0.5]
    product = multiply_rows(rows, call)
    torch.testing.assert_close(product, torch.tensor([[expected]]).expand(1, n_rows, 2))


def test_large_scores_do_not_overflow():
    torch.manual_seed(0)
    query, key = 30 * torch.randn(1, 2, 200, 8), 30 * torch.randn(1, 2, 200, 8)
    call = DotProductCall(None, query, key, key, scaling=1.0, causal=True)
    expected = call.weights().mean(1)
    with torch.no_grad():
        assert attend(call)
    rows = torch.rand(1, 1, 200)
    torch.testing.assert_close(multiply_rows(rows, call), rows @ expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [-1, 1.5, "8 GB"])
def test_memory_refuses(value):
    with refusal(InputError, "host", repr(value)):
        Memory(host=value)


def test_default_memory_is_a_share_of_what_is_free(monkeypatch):
    monkeypatch.setattr(row_rollout, "free_memory", lambda _: 1000)
    assert Memory().resolve(torch.device("cpu")) == Memory(None, 500)
    assert Memory(device=70).resolve(torch.device("cpu")).host == 70
    assert Memory(host=7).resolve(torch.device("cpu")).host == 7


def test_free_memory_of_this_machine():
    assert row_rollout.free_memory(torch.device("cpu")) > 2**20


def test_unknown_positions_are_refused():
    model, inputs = make("llama"), TINY["llama"].inputs()
    with pytest.raises(SelectionError):
        capture_rollout(model, inputs, positions=[7])


def test_more_positions_use_whole_matrices():
    model = make("gpt2")
    inputs = {"input_ids": torch.randint(5, 99, (1, 64))}
    [every], _ = capture_rollout(model, inputs)
    [few], _ = capture_rollout(model, inputs, positions=range(64))
    np.testing.assert_allclose(few.scores, every.scores, atol=1e-5)
