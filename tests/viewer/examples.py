"""Explanations for the viewer's tests: of tiny models, of random attention, with hostile tokens."""

import io
from dataclasses import replace
from functools import cache

import numpy as np

from attnflow import AttentionGraph, Attentions, Explanation
from attnflow.explainer import explain
from attnflow.explanation import ImageGrid
from tests.models.checkpoints import make_loaded

# Each must be displayed as text, with symbols for characters that hide or reorder text.
HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "&amp;&lt;",
    "\"'`",
    "a\0b",
    "x\u202ey",
    "\u2066z\u2069",
    "<!--",
    "\ud83d",
    "%%TITLE%%",
    "\u2028",
)


@cache
def classifier_explanation() -> Explanation:
    """The explanation of a tiny classifier: six tokens, two layers, two heads."""
    return explain("the key to cabinets", make_loaded())


def random_explanation(
    n_layers: int, n_tokens: int, *, n_heads: int = 2, seed: int = 0
) -> Explanation:
    """An explanation of random attention, with large differences between tokens."""
    random = np.random.default_rng(seed)
    layers = []
    for _ in range(n_layers):
        scores = np.exp(3 * random.normal(size=(n_heads, n_tokens, n_tokens)))
        layers.append(scores / scores.sum(-1, keepdims=True))
    tokens = ["[CLS]", *(f"word{i}" for i in range(1, n_tokens))]
    return Explanation.from_attentions(Attentions(layers, tokens), text=" ".join(tokens[1:]))


def causal_explanation(n_layers: int, n_tokens: int) -> Explanation:
    """An explanation of causal attention whose first token is a sink, as in large models."""
    random = np.random.default_rng(0)
    weights = np.tril(random.random((n_layers, n_tokens, n_tokens)))
    weights[..., 0] += 10
    weights /= weights.sum(-1, keepdims=True)
    tokens = [f"word{i}" for i in range(n_tokens)]
    graph = AttentionGraph.from_weights(weights, tokens=tokens)
    return Explanation.from_graph(graph, text=" ".join(tokens), model="tiny")


def image_explanation() -> Explanation:
    """An explanation of an image: [CLS], then three rows of four patches."""
    from PIL import Image

    pixels = np.linspace(0, 255, 30 * 40 * 3).astype(np.uint8).reshape(30, 40, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    grid = ImageGrid(file.getvalue(), rows=3, columns=4, first=1, width=40, height=30)
    return replace(random_explanation(2, 13), image=grid)


def hostile_explanation() -> Explanation:
    """An explanation whose tokens and text contain markup and control characters."""
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(len(HOSTILE)), size=(2, 2, len(HOSTILE)))
    return Explanation.from_attentions(Attentions(weights, HOSTILE), text=" ".join(HOSTILE))
