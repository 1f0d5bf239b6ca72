"""Edges from contributions: by hand from vectors, then their graphs for whole models."""

from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from attnflow import flow, raw_attention, rollout
from attnflow.edges import alti, value
from attnflow.edges.registry import EDGES
from attnflow.errors import InputError
from attnflow.head_merge import Heads
from attnflow.models.capture import contributions, proximity
from attnflow.models.capture.api import capture_contributions, capture_graphs
from tests.models.tiny import TINY
from tests.refusal import refusal

INSIDE = ("norm", "globenc", "alti", "contribution")
MODELS = ("bert", "llama", "gemma2", "gpt-neox", "vit", "t5", "bart")
CLOSE: Any = {"rtol": 1e-4, "atol": 1e-5}
# Scores from vectors, and the same from products of weights.
PRODUCTS: dict[str, Any] = {
    "norm": (value._length, value._fused_length),
    "contribution": (alti._projection, alti._fused_projection),
}


def vectors(name: str) -> tuple[Tensor, Tensor]:
    """T_ij [queries, keys, hidden] and y_i [queries, hidden] of the second layer."""
    layers, _ = capture_contributions(TINY[name].make(), TINY[name].inputs((5,)))
    layer = layers[1]
    parts = layer.contributions()[0]
    for i in range(5):
        parts[i, i] += layer.residual[0, i]
    return parts, layer.output[0]


def expected_edges(name: str, parts: Tensor, total: Tensor) -> Tensor:
    """The published definitions, pair by pair."""
    edges = torch.zeros(parts.shape[:2])
    for i, j in np.ndindex(*edges.shape):
        part, whole = parts[i, j], total[i]
        if name == "alti":
            score = whole.abs().sum() - (whole - part).abs().sum()
        elif name == "contribution":
            score = part @ whole
        else:
            score = part.norm()
        edges[i, j] = max(float(score), 0)
    return edges / edges.sum(-1, keepdim=True)


@pytest.mark.parametrize("name", INSIDE)
def test_edges_follow_their_definitions(name: str) -> None:
    parts, total = vectors("llama")
    [graph], _ = capture_graphs(TINY["llama"].make(), TINY["llama"].inputs((5,)), edges=name)
    expected = expected_edges(name, parts, total)
    torch.testing.assert_close(graph.weights[1], expected, **CLOSE)
    torch.testing.assert_close(graph.attention[1], expected, **CLOSE)  # nothing is added


def test_globenc_passes_both_norms_of_an_encoder() -> None:
    model = TINY["bert"].make()
    block = model.encoder.layer[1]
    spreads: list[Tensor] = []
    for norm in (block.attention.output.LayerNorm, block.output.LayerNorm):
        norm.register_forward_pre_hook(
            lambda _, args: spreads.append(args[0][0].std(-1, unbiased=False))
        )
    parts, _ = vectors("bert")
    [graph], _ = capture_graphs(model, TINY["bert"].inputs((5,)), edges="globenc")
    for norm, spread in zip(
        (block.attention.output.LayerNorm, block.output.LayerNorm), spreads[:2], strict=True
    ):
        parts = (parts - parts.mean(-1, keepdim=True)) * norm.weight / spread[:, None, None]
    lengths = parts.norm(dim=-1).detach()
    torch.testing.assert_close(graph.weights[1], lengths / lengths.sum(-1, keepdim=True), **CLOSE)


@pytest.mark.parametrize("edges", INSIDE)
@pytest.mark.parametrize("name", MODELS)
def test_all_methods_work_on_all_kinds_of_models(name: str, edges: str) -> None:
    implementation = "eager" if name == "gemma2" else "sdpa"
    model, inputs = TINY[name].make(implementation), TINY[name].inputs((6, 4))
    graphs, _ = capture_graphs(model, inputs, edges=edges)
    for graph in graphs:
        assert graph.residual_weights is None
        assert graph.settings["residual_weight"] == "inside the edges"
        torch.testing.assert_close(graph.weights.sum(-1), torch.ones_like(graph.weights[..., 0]))
        np.testing.assert_allclose(rollout(graph).to_numpy().sum(-1), 1, atol=1e-5)
        assert raw_attention(graph).to_numpy().min() >= 0
        scores = flow(graph, layers=-1).to_numpy()
        assert scores.max() <= 1 + 1e-6
        assert (scores >= rollout(graph, layers=-1).to_numpy() - 1e-5).all()
        normalized = rollout(graph, layers=-1, normalize="receptive_field").to_numpy()
        np.testing.assert_allclose(normalized.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("name", [*MODELS, "mistral", "gpt-oss"])
def test_compiled_alti_agrees_with_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    implementation = "eager" if name in ("gemma2", "gpt-oss") else "sdpa"
    model, inputs = TINY[name].make(implementation), TINY[name].inputs((7, 4))
    plain, _ = capture_graphs(model, inputs, edges="alti")
    one_head, _ = capture_graphs(model, inputs, edges="alti", heads=1)
    compiled = Mock(wraps=proximity.score_proximity)
    monkeypatch.setattr(proximity, "score_proximity", compiled)
    monkeypatch.setattr(contributions, "FUSED_WORK", 0)
    monkeypatch.setattr(proximity, "BLOCK_SIZE", 2 * 4 * 7 * 3)  # three queries
    cases: list[tuple[Any, Heads]] = [(plain, "mean"), (one_head, 1)]
    for expected, heads in cases:
        graphs, _ = capture_graphs(model, inputs, edges="alti", heads=heads)
        for graph, other in zip(graphs, expected, strict=True):
            torch.testing.assert_close(graph.weights, other.weights, rtol=0, atol=1e-5)
    assert compiled.call_count >= 8  # both layers twice, in several blocks


@pytest.mark.parametrize("edges", ["norm", "contribution"])
@pytest.mark.parametrize("name", [*MODELS, "mistral", "gpt-oss"])
def test_products_agree_with_vectors(
    name: str, edges: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    implementation = "eager" if name in ("gemma2", "gpt-oss") else "sdpa"
    model, inputs = TINY[name].make(implementation), TINY[name].inputs((7, 4))
    function, fused = PRODUCTS[edges]
    layers, _ = capture_contributions(model, inputs)
    monkeypatch.setattr(value, "PROJECTED", 100)  # a key or two at a time
    monkeypatch.setitem(contributions.BLOCK_SIZE, "cpu", 2 * 4 * 7 * 3)  # three queries
    choices: tuple[Heads, ...] = ("mean", 1)
    for layer, norms, heads in product(layers, (0, 1, 2), choices):
        used = Mock(wraps=fused)
        scores = layer.score(function, heads=heads, norms=norms, fused=used)
        expected = layer.score(function, heads=heads, norms=norms)
        assert used.call_count == 1
        scale = float(expected.nan_to_num().max())  # rows of padding may be nan
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4 * scale, equal_nan=True)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 5, 6, 9])
def test_compiled_proximity_by_definition(n_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proximity, "TILE_SIZE", 0)  # tiles of 64 features
    monkeypatch.setattr(proximity, "WORK_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    generator = torch.Generator().manual_seed(n_heads)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    weights = draw(2, n_heads, 3, 5).softmax(-1).tril(2)  # the first query is key 2
    values, own, total = draw(2, n_heads, 5, 150), draw(2, 3, 150), draw(2, 3, 150)
    parts = torch.einsum("bhqk,bhkd->bqkd", weights.double(), values.double())
    for kept in (None, own):
        if kept is not None:
            parts[:, [0, 1, 2], [2, 3, 4]] += kept.double()
        distance = (total.double().unsqueeze(2) - parts).abs().sum(-1)
        expected = (total.double().abs().sum(-1, keepdim=True) - distance).clamp_min(0)
        scores = proximity.score_proximity(weights, values, kept, total, 2)
        torch.testing.assert_close(scores.double(), expected, rtol=1e-6, atol=1e-5)


def test_edges_that_contain_the_residual_are_not_copied() -> None:
    [graph], _ = capture_graphs(TINY["llama"].make(), TINY["llama"].inputs((5,)), edges="alti")
    assert graph.weights is graph.attention  # A = W


def test_cross_attention_keeps_the_stream_of_the_decoder() -> None:
    model, inputs = TINY["t5"].make(), TINY["t5"].inputs((6,))
    layers, _ = capture_contributions(model, inputs)
    [graph], _ = capture_graphs(model, inputs, edges="norm")
    cross = layers[3]  # two encoder layers, self-attention, cross-attention
    assert cross.is_cross
    lengths = cross.contributions()[0].norm(dim=-1)
    own = cross.residual[0].norm(dim=-1)
    total = lengths.sum(-1) + own
    torch.testing.assert_close(graph.weights[3, 6:, :6], lengths / total[:, None], **CLOSE)
    torch.testing.assert_close(graph.weights[3, 6:, 6:].diagonal(), own / total, **CLOSE)


@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_a_measured_residual_weight(name: str) -> None:
    model, inputs = TINY[name].make(), TINY[name].inputs((5,))
    layers, _ = capture_contributions(model, inputs)
    [plain], _ = capture_graphs(model, inputs)
    [graph], _ = capture_graphs(model, inputs, residual_weight="measured")
    assert graph.settings["residual_weight"] == "measured"
    ratio = layers[1].mixing_ratio()[0]
    attention = plain.attention[1, :5, :5].clone()
    attention.fill_diagonal_(0)
    sums = attention.sum(-1, keepdim=True).clamp_min(1e-9)
    expected = ratio[:, None] * attention / sums + torch.diag(1 - ratio)
    torch.testing.assert_close(graph.weights[1, :5, :5], expected, **CLOSE)


def test_published_gradient_edges_keep_their_scale() -> None:
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs((5,))
    [rescaled], _ = capture_graphs(model, inputs, edges="gradient_rescaled", residual_weight=0)
    [graph], _ = capture_graphs(model, inputs, edges="gradient")
    sums = graph.attention.sum(-1, keepdim=True)
    visible = sums[..., 0] > 0
    torch.testing.assert_close((graph.attention / sums)[visible], rescaled.attention[visible])
    torch.testing.assert_close(graph.weights, graph.attention + torch.eye(5))
    assert float((sums - 1).abs().max()) > 0.01
    product = torch.eye(5)
    for layer in graph.weights:
        product = layer @ product
    np.testing.assert_allclose(rollout(graph, layers=-1).to_numpy()[0], product, rtol=1e-5)
    assert flow(graph, layers=-1).to_numpy().min() >= 0


@pytest.mark.parametrize("edges", ["alti", "gradient"])
def test_a_residual_weight_that_does_not_fit_is_an_error(edges: str) -> None:
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs((5,))
    with refusal(InputError, "0.5", edges):
        capture_graphs(model, inputs, edges=edges, residual_weight=0.5)
    with refusal(InputError, "'measured'", "gradient_rescaled"):
        capture_graphs(model, inputs, edges="gradient_rescaled", residual_weight="measured")
    with refusal(InputError, "'often'"):
        capture_graphs(model, inputs, residual_weight="often")  # type: ignore[arg-type]


def test_one_head_leaves_the_others_out() -> None:
    model, inputs = TINY["gpt2"].make(), TINY["gpt2"].inputs((5,))
    [one], _ = capture_graphs(model, inputs, edges="norm", heads=1)
    layers, _ = capture_contributions(model, inputs)
    parts = layers[0].contributions(1)[0]
    for i in range(5):
        parts[i, i] += layers[0].residual[0, i]
    lengths = parts.norm(dim=-1)
    torch.testing.assert_close(one.weights[0], lengths / lengths.sum(-1, keepdim=True), **CLOSE)
    with refusal(InputError, "'max'"):
        capture_graphs(model, inputs, edges="norm", heads="max")


def test_the_uniform_graph_keeps_what_positions_keep() -> None:
    [graph], _ = capture_graphs(TINY["llama"].make(), TINY["llama"].inputs((5,)), edges="alti")
    uniform = graph.uniform()
    torch.testing.assert_close(uniform.weights.sum(-1), graph.weights.sum(-1))
    torch.testing.assert_close(
        uniform.weights.diagonal(dim1=1, dim2=2), graph.weights.diagonal(dim1=1, dim2=2)
    )
    rest = (1 - float(graph.weights[0, 3, 3])) / 3
    assert uniform.weights[0, 3, :3].tolist() == pytest.approx([rest] * 3)
    assert {entry.name for entry in EDGES if entry.residual == "inside"} == set(INSIDE)
