"""Attention rollout: the product of the layers, from a position down to the input (paper §3)."""

from collections.abc import Sequence

from array_api_compat import array_namespace
from array_api_compat import device as device_of

from attnflow.arrays import Array
from attnflow.attribution import Attribution, Normalize, check_normalize, normalize_scores
from attnflow.errors import SelectionError, check_type
from attnflow.graph import AttentionGraph
from attnflow.selection import Layers, Positions, resolve_layer, resolve_layers, resolve_positions


def rollout(
    graph: AttentionGraph,
    *,
    layers: Layers = None,
    to_layer: int = 0,
    positions: Positions = None,
    normalize: Normalize = "none",
) -> Attribution:
    """Attribute each position to input tokens by multiplying layers (paper §3, equation 1).

    layers: numbers from 1, -1 for the last; all above `to_layer` if not given.
    to_layer: where to stop; 0 is the input. Above it, tokens stand for the positions of that layer.
    positions: indices or texts of tokens; all if not given. A few cost only vector products.
    normalize: "none", "rows", or "receptive_field" (divided by the rollout of uniform attention).
    Returns scores: [..., layers, positions, tokens]; each row sums to 1.
    Raises SelectionError for a layer or position that does not exist.

    >>> layer = [[0.0, 1.0], [0.0, 1.0]]  # with the residual connection: [[0.5, 0.5], [0, 1]]
    >>> rollout(AttentionGraph.from_weights([layer, layer])).scores[-1]
    array([[0.25, 0.75],
           [0.  , 1.  ]])
    """
    check_type(graph, AttentionGraph, "Make one: AttentionGraph.from_attentions(attentions).")
    check_normalize(normalize)
    bottom = 0 if to_layer == 0 else resolve_layer(graph.n_layers, to_layer)
    numbers = _layers_above(bottom, graph.n_layers, layers)
    chosen = resolve_positions(graph.tokens, graph.n_tokens, positions)
    result = Attribution(
        scores=multiply_layers(graph.weights, numbers, bottom, chosen),
        tokens=graph.tokens,
        method="rollout",
        layers=numbers,
        positions=chosen,
        settings={**graph.settings, "to_layer": bottom},
    )
    return normalize_scores(
        result,
        normalize,
        lambda: rollout(graph.uniform(), layers=numbers, to_layer=bottom, positions=chosen),
    )


def _layers_above(bottom: int, n_layers: int, layers: Layers) -> tuple[int, ...]:
    if layers is None:
        layers = range(bottom + 1, n_layers + 1)
    numbers = resolve_layers(n_layers, layers)
    if min(numbers) <= bottom:
        raise SelectionError(
            f"rollout was asked for from layer {min(numbers)} down to layer {bottom}",
            expected="to_layer below every layer",
            fix="Lower to_layer.",
        )
    return numbers


def multiply_layers(
    weights: Array, layers: Sequence[int], bottom: int, positions: Sequence[int]
) -> Array:
    """Rows of the products A_i ... A_(bottom+1), for each layer i: [..., layers, positions, n].

    weights: [..., layers, n, n].
    """
    n = int(weights.shape[-1])
    top = max(layers)
    # In units of n * n multiplications: matrix products upwards, or rows pushed downwards.
    upwards = n * (top - bottom - 1)
    downwards = len(positions) * sum(layer - bottom - 1 for layer in layers)
    if downwards <= upwards:
        return _push_down(weights, layers, bottom, positions)
    return _build_up(weights, layers, bottom, positions)


def _build_up(
    weights: Array, layers: Sequence[int], bottom: int, positions: Sequence[int]
) -> Array:
    """Multiply whole matrices from the bottom, and keep the rows and layers asked for."""
    xp = array_namespace(weights)
    rows = xp.asarray(list(positions), device=device_of(weights))
    kept = {}
    product = None
    for layer in range(bottom + 1, max(layers) + 1):
        matrix = weights[..., layer - 1, :, :]
        product = matrix if product is None else matrix @ product
        if layer in layers:
            kept[layer] = xp.take(product, rows, axis=-2)
    return xp.stack([kept[layer] for layer in layers], axis=-3)


def _push_down(
    weights: Array, layers: Sequence[int], bottom: int, positions: Sequence[int]
) -> Array:
    """Take the rows asked for at each layer, and push all of them down together."""
    xp = array_namespace(weights)
    rows = xp.asarray(list(positions), device=device_of(weights))
    block = None  # the rows of all layers so far, one layer after another, highest layer first
    for layer in range(max(layers), bottom, -1):
        matrix = weights[..., layer - 1, :, :]
        if block is not None:
            block = block @ matrix
        if layer in layers:
            start = xp.take(matrix, rows, axis=-2)
            block = start if block is None else xp.concat([block, start], axis=-2)
    shape = (*weights.shape[:-3], len(layers), len(positions), weights.shape[-1])
    by_layer = xp.reshape(block, shape)
    highest_first = sorted(layers, reverse=True)
    order = xp.asarray([highest_first.index(n) for n in layers], device=device_of(weights))
    return xp.take(by_layer, order, axis=-3)
