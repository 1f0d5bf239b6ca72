"""What a graph of paths shows: how the score of one position spreads over edges, and its best part.

`follow` gives each edge its share of a method's score: rollout and raw attention are followed from
the position down to the input; of flow it is one maximum flow. `strongest_paths` keeps whole paths
from the position to the input, so that what is drawn is connected.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnflow.arrays import to_numpy
from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.figures.panels import Numbers
from attnflow.methods.flow import flow_path

METHODS = ("raw", "rollout", "flow")  # the methods that can be followed
MOST_PATHS = 24
ENOUGH = 0.9  # paths are added until they have this share


@dataclass(frozen=True, eq=False)
class Followed:
    """A method followed from a position down to the input.

    edges: [layers, queries, keys], the amount on each edge. total: the amount at the position.
    token: the token that a flow goes to; None if all tokens receive a share.
    cut: the edges of the minimum cut, as (layer from 0, query, key).
    """

    edges: Numbers
    total: float
    token: int | None = None
    cut: frozenset[tuple[int, int, int]] = frozenset()


def follow(
    explanation: Explanation, method: str, positions: Sequence[int], layer: int, token: int | None
) -> Followed:
    """Follow a method from positions at a layer, a number from 1, to the input.

    token: where a flow goes to. Several positions have equal parts.
    Raises InputError for a method that cannot be followed.
    """
    if method not in METHODS:
        raise InputError(
            f"the method is {method!r}",
            expected=f"one that can be followed along paths: {', '.join(METHODS)}",
            fix="Use lines='all' for other methods.",
        )
    graph = explanation.graph
    if method == "flow":
        path = flow_path(graph, layer=layer, position=list(positions), token=[token or 0])
        cut = frozenset((edge.layer - 1, edge.position, edge.below) for edge in path.cut)
        n = len(positions)  # as scores of several positions: a flow out of all, by their number
        return Followed(path.edges[:layer] / n, path.value / n, token, cut)
    weights = to_numpy(graph.attention if method == "raw" else graph.weights).astype(np.float64)
    if graph.carried is not None:  # a layer passes these positions through unchanged
        layers, rows = np.nonzero(graph.carried)
        weights[layers, rows] = np.eye(graph.n_tokens)[rows]
    amount = np.zeros(graph.n_tokens)
    amount[list(positions)] = 1 / len(positions)
    edges = np.zeros((layer, graph.n_tokens, graph.n_tokens))
    for i in reversed(range(layer)):
        edges[i] = amount[:, None] * weights[i]
        amount = edges[i].sum(axis=0)
    return Followed(edges, 1.0)


def strongest_paths(
    edges: Numbers, *, most: int = MOST_PATHS, enough: float = ENOUGH
) -> tuple[Numbers, int]:
    """Keep the strongest paths from the last layer to the input.

    edges: [layers, queries, keys], amounts that flow downwards; what enters a node leaves it.
    The widest path is taken out, then the widest of what is left, and so on.
    most: the number of paths. enough: the share of the whole at which to stop.
    Returns the amounts of the kept paths, [layers, queries, keys], and their number.

    >>> edges = np.asarray([[[0.5, 0.1], [0.1, 0.3]], [[0.6, 0.4], [0.0, 0.0]]])
    >>> kept, n = strongest_paths(edges, most=1)
    >>> kept.sum(axis=(1, 2)), n
    (array([0.5, 0.5]), 1)
    """
    left = np.array(edges, dtype=np.float64)
    kept = np.zeros_like(left)
    whole = float(left[-1].sum())
    taken, n = 0.0, 0
    while n < most and taken < enough * whole:
        path, width = _widest_path(left)
        if width <= 1e-9 * whole:
            break
        for layer, (query, key) in enumerate(path):
            left[layer, query, key] -= width
            kept[layer, query, key] += width
        taken, n = taken + width, n + 1
    return kept, n


def _widest_path(edges: Numbers) -> tuple[list[tuple[int, int]], float]:
    """The path with the largest smallest amount: (query, key) for each layer, and this amount."""
    n_layers, n, _ = edges.shape
    widths = np.where(edges[-1].sum(axis=1) > 0, np.inf, 0.0)
    came_from = np.zeros((n_layers, n), dtype=np.int64)
    for layer in reversed(range(n_layers)):
        reach = np.minimum(widths[:, None], edges[layer])
        came_from[layer] = reach.argmax(axis=0)
        widths = reach.max(axis=0)
    key = int(widths.argmax())
    width = float(widths[key])
    path = []
    for layer in range(n_layers):
        query = int(came_from[layer, key])
        path.append((query, key))
        key = query
    return path, width
