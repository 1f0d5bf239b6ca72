"""Joint flow: one maximum flow from a position to all input tokens at once.

`flow` gives each token a maximum flow of its own, so the scores of a position add up to more than
can leave it. Here all tokens share one maximum flow (Metzger et al. 2022; GAF, Azarkhalili and
Libbrecht 2025), and a score is what arrives at the token. Many maximum flows exist, with different
scores. This is the one that divides the total in proportion to what each token could receive alone,
as closely as the capacities allow: docs/joint-flow.md. The solver is in `attnflow.maxflow.joint`.
"""

from __future__ import annotations

import numpy as np

from attnflow.attribution import Attribution, Normalize, check_normalize, normalize_scores
from attnflow.errors import check_type
from attnflow.graph import AttentionGraph
from attnflow.maxflow import joint_flows
from attnflow.progress import Progress
from attnflow.selection import Layers, Positions, resolve_layers, resolve_positions


def joint_flow(
    graph: AttentionGraph,
    *,
    layers: Layers = None,
    positions: Positions = None,
    normalize: Normalize = "none",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Attribute positions to input tokens by one maximum flow to all tokens at once.

    layers: numbers from 1, -1 for the last. positions: indices or texts. All by default.
    normalize: "none", "rows", or "receptive_field" (divided by the joint flow of uniform
    attention).
    threads: all processors by default. progress: called with pairs done and pairs in total.
    Returns scores: [layers, positions, tokens], float64 NumPy. Each row sums to the maximum flow
    from the position to all tokens, which is 1 if rows of the graph sum to 1. No set of tokens gets
    more than the maximum flow to it. Scores add up, so the score of a word is the sum of its
    tokens' scores. settings["proofs"] counts how rows were proved: "proportional" to the maximum
    flows of the tokens, or "divided" into parts by minimum cuts.
    Raises SelectionError for a layer or position that does not exist, ShapeError for a batch.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]] * 2)
    >>> joint_flow(graph, layers=2, positions=0).scores
    array([[[0.6, 0.4]]])
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    check_normalize(normalize)
    numbers = resolve_layers(graph.n_layers, layers)
    rows = resolve_positions(graph.tokens, graph.n_tokens, positions)
    solved = joint_flows(
        graph.capacities(), layers=numbers, sources=rows, threads=threads, progress=progress
    )
    proofs = {name: count for name, count in solved.proofs.items() if count}
    result = Attribution(
        # A position that was only carried so far is the token itself, as in rollout and flow.
        scores=np.where(np.isinf(solved.values), 1.0, solved.values),
        tokens=graph.tokens,
        method="joint_flow",
        layers=numbers,
        positions=rows,
        settings={**graph.settings, "proofs": proofs},
    )
    return normalize_scores(
        result,
        normalize,
        lambda: joint_flow(graph.uniform(), layers=numbers, positions=rows, threads=threads),
    )
