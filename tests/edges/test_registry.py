"""The registry of edges: registered weightings work for every kind of model."""

import subprocess
import sys

import pytest
import torch

from attnflow.edges.registry import EDGES, register_edges
from attnflow.errors import AttentionError, InputError, SelectionError, ShapeError
from attnflow.models import capture_graphs
from attnflow.models.capture.merge import merge_edges
from tests.models.tiny import TINY
from tests.refusal import refusal

MODELS = ["bert", "gpt2", "t5"]


@pytest.fixture
def register():
    """Register edges for one test."""
    names = []

    def add(name, function, **options):
        names.append(register_edges(name, function, summary="for a test.", **options).name)

    yield add
    for name in names:
        EDGES.unregister(name)


def squared_attention(call, *, heads):
    return merge_edges(call.weights() ** 2, heads, call.layer)


def absolute_gradient(weights, gradient):
    return (weights * gradient).abs()


def test_the_built_in_edges():
    names = "attention effective value norm globenc alti contribution gradient gradient_rescaled"
    assert EDGES.names == tuple(names.split())
    assert [entry.name for entry in EDGES if entry.needs_gradient] == [
        "gradient",
        "gradient_rescaled",
    ]
    assert all(entry.title and entry.summary.endswith(".") for entry in EDGES)


def test_listing_edges_loads_neither_torch_nor_numpy():
    program = (
        "import sys; from attnflow.edges.registry import EDGES; EDGES.names; EDGES.help(); "
        "print({'numpy', 'torch'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", MODELS)
def test_registered_edges_reach_capture_graphs(name, register):
    register("squared", squared_attention)
    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((7, 5))
    graphs, output = capture_graphs(model, inputs, edges="squared", heads=1)
    plain, expected = capture_graphs(model, inputs, heads=1)
    torch.testing.assert_close(output[0], expected[0], rtol=1e-4, atol=1e-5)
    for graph, other in zip(graphs, plain, strict=True):
        assert graph.settings["edges"] == "squared"
        squares = other.attention**2
        rescaled = squares / squares.sum(-1, keepdim=True)
        torch.testing.assert_close(graph.attention, rescaled, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_registered_edges_get_gradients(name, register):
    register("absolute", absolute_gradient, needs="gradient")
    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((7, 5))

    def target(output):
        return output[0][:, 2, 0]

    graphs, _ = capture_graphs(model, inputs, edges="absolute", target=target)
    for graph in graphs:
        torch.testing.assert_close(graph.weights.sum(-1), torch.ones_like(graph.weights[..., 0]))
    positive, _ = capture_graphs(model, inputs, edges="gradient_rescaled", target=target)
    assert not torch.allclose(graphs[0].attention, positive[0].attention, atol=1e-3)


def test_edges_know_their_model_and_layer(register):
    seen = []

    def remember(call, *, heads):  # noqa: ARG001
        seen.append((call.model, call.layer, call.module))
        return call.weights().mean(1)

    register("remember", remember)
    model = TINY["bert"].make()
    capture_graphs(model, TINY["bert"].inputs(), edges="remember")
    attention = [layer.attention.self for layer in model.encoder.layer]
    assert seen == [(model, "layer 1", attention[0]), (model, "layer 2", attention[1])]


def test_rows_of_zeros_attend_to_themselves(register):
    register("nothing", lambda call, *, heads: call.weights()[:, 0] * 0)  # noqa: ARG005
    [graph], _ = capture_graphs(TINY["bert"].make(), TINY["bert"].inputs(), edges="nothing")
    torch.testing.assert_close(graph.attention, torch.eye(7).expand(2, 7, 7))


def test_results_of_registered_functions_are_checked(register):
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs()
    register("all_heads", lambda call, *, heads: call.weights())  # noqa: ARG005
    with refusal(ShapeError, "all_heads", "[1, 4, 7, 7]", "[1, 7, 7]"):
        capture_graphs(model, inputs, edges="all_heads")
    register("no_heads", lambda weights, _: weights.mean(1), needs="gradient")
    with refusal(ShapeError, "no_heads", "[1, 7, 7]", "[1, 4, 7, 7]"):
        capture_graphs(model, inputs, edges="no_heads", target=lambda output: output[0].sum((1, 2)))
    register("negative", lambda call, *, heads: -call.weights()[:, 0])  # noqa: ARG005
    with refusal(AttentionError, "'negative'"):
        capture_graphs(model, inputs, edges="negative")


def test_names_are_unique_and_known():
    with refusal(InputError, "attention"):
        register_edges("attention", squared_attention, summary="again.")
    with refusal(SelectionError, "'squared'", *EDGES.names):
        EDGES["squared"]
