"""Attention rollout: the product of the layers, from a position down to the input (paper §3).

`rollout` is the method. `add_layer`, `multiply_rows` and `multiply_layers` are its arithmetic, for
NumPy arrays and torch tensors; rollout of single heads, of models while they run, and of padded
batches uses the same functions. Layers are either A, with the residual connection, or W without it;
then `residual` holds r, and A = (1 - r) W + r I is never built.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from array_api_compat import array_namespace, is_torch_array
from array_api_compat import device as device_of

from attnflow.arrays import Array, compute_dtype
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

    layers: numbers from 1, -1 for the last; all above `to_layer` by default.
    to_layer: where to stop; 0 is the input. Above it, tokens are the positions of that layer.
    positions: indices or texts of tokens; all by default. A few cost only vector products.
    normalize: "none", "rows", or "receptive_field" (divided by the rollout of uniform attention).
    Returns scores: [..., layers, positions, tokens]; each row sums to 1.
    Raises SelectionError for a layer or position that does not exist.

    >>> layer = [[0.0, 1.0], [0.0, 1.0]]  # with the residual connection: [[0.5, 0.5], [0, 1]]
    >>> rollout(AttentionGraph.from_weights([layer, layer])).scores[-1]
    array([[0.25, 0.75],
           [0.  , 1.  ]])
    """
    check_type(graph, AttentionGraph, "Build one: AttentionGraph.from_attentions(attentions).")
    check_normalize(normalize)
    bottom = 0 if to_layer == 0 else resolve_layer(graph.n_layers, to_layer)
    numbers = _layers_above(bottom, graph.n_layers, layers)
    chosen = resolve_positions(graph.tokens, graph.n_tokens, positions)
    result = Attribution(
        scores=multiply_layers(unstack_layers(graph.weights), numbers, chosen, bottom=bottom),
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
            f"to_layer is {bottom}, and layers include layer {min(numbers)}",
            expected="layers above to_layer",
            fix="Lower to_layer.",
        )
    return numbers


def unstack_layers(weights: Array) -> Sequence[Array]:
    """The layers [..., n, n] of [..., layers, n, n], as views, or in float32 for half precision."""
    layers = [weights[..., i, :, :] for i in range(int(weights.shape[-3]))]
    return layers if compute_dtype(weights) == weights.dtype else _SingleLayers(layers)


class _SingleLayers(Sequence[Array]):
    """Layers in half precision, each converted to float32 when it is needed."""

    def __init__(self, layers: Sequence[Array]) -> None:
        self.layers = layers

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: Any) -> Any:
        layer = self.layers[i]
        return array_namespace(layer).astype(layer, compute_dtype(layer))


def multiply_layers(
    layers: Sequence[Array],
    numbers: Sequence[int],
    positions: Sequence[int] | Array | None = None,
    *,
    bottom: int = 0,
    residual: Sequence[float] | None = None,
) -> Array:
    """Rows of the products A_i ... A_(bottom+1), for each layer i in `numbers`.

    layers: A of each layer, [..., n, n]; or W of each layer, with `residual`, r of each layer.
    numbers: of layers, from 1, distinct and above `bottom`.
    positions: the rows; all by default. For layers [batch, n, n] also an integer array [batch,
    positions], with rows for each example.
    Returns [..., numbers, positions, n].
    """
    n = int(layers[0].shape[-1])
    xp, device = array_namespace(layers[0]), device_of(layers[0])
    rows = None if positions is None else xp.asarray(positions, device=device)
    n_rows = n if rows is None else int(rows.shape[-1])
    # In units of n * n multiplications: matrix products upwards, or rows downwards.
    upwards = n * (max(numbers) - bottom - 1)
    downwards = n_rows * sum(number - bottom - 1 for number in numbers)
    multiply = _multiply_down if downwards <= upwards else _multiply_up
    return multiply(layers, numbers, rows, bottom, residual)


def multiply_rows(rows: Array, layers: Sequence[Array]) -> Array:
    """Rows [..., rows, n] times the product of layers A, [n, n], from the last layer to the first.

    >>> import numpy as np
    >>> swap = np.asarray([[0.0, 1.0], [1.0, 0.0]])
    >>> multiply_rows(np.asarray([[0.75, 0.25]]), [swap, swap, swap])
    array([[0.25, 0.75]])
    """
    n_rows = prod(int(size) for size in rows.shape[:-1])
    if layers and n_rows > int(rows.shape[-1]):  # cheaper: multiply the layers first
        return rows @ multiply_layers(layers, [len(layers)])[..., 0, :, :]
    for layer in reversed(layers):
        rows = rows @ layer
    return rows


def add_layer(
    product: Array | None,
    layer: Array,
    residual: float | None = None,
    *,
    carried: Array | None = None,
) -> Array:
    """Put a layer on top of a product of layers: A P, or (1 - r) W P + r P.

    product: P, [..., n, tokens]; None below the first layer, where it is the identity.
    layer: A, or W if `residual` is given, [..., n, n].
    carried: [..., n, tokens], what the residual connection carries; P by default. Cross-attention
    reads from P, the product of the encoder, and carries the product of the decoder.
    """
    if product is None:
        if residual is None:
            return layer
        mixed = (1 - residual) * layer
        diagonal = array_namespace(layer).arange(int(layer.shape[-1]), device=device_of(layer))
        mixed[..., diagonal, diagonal] += residual
        return mixed
    return _multiply_mixed(layer, product, product if carried is None else carried, residual)


def _multiply_up(
    layers: Sequence[Array],
    numbers: Sequence[int],
    rows: Array | None,
    bottom: int,
    residual: Sequence[float] | None,
) -> Array:
    """Multiply whole matrices from the bottom, and select rows and layers."""
    selected = {}
    product = None
    for number in range(bottom + 1, max(numbers) + 1):
        r = None if residual is None else residual[number - 1]
        product = add_layer(product, layers[number - 1], r)
        if number in numbers:
            selected[number] = _take_rows(product, rows)
    xp = array_namespace(product)
    return xp.stack([selected[number] for number in numbers], axis=-3)


def _multiply_down(
    layers: Sequence[Array],
    numbers: Sequence[int],
    rows: Array | None,
    bottom: int,
    residual: Sequence[float] | None,
) -> Array:
    """Select rows at each layer, and multiply all of them with the layers below together."""
    xp = array_namespace(layers[0])
    identity: Array = None if residual is None else _identity_rows(rows, like=layers[0])
    block = None  # the rows of all layers so far, highest layer first
    for number in range(max(numbers), bottom, -1):
        layer = layers[number - 1]
        r = None if residual is None else residual[number - 1]
        if block is not None:
            block = _multiply_mixed(block, layer, block, r)
        if number in numbers:
            first = _take_rows(layer, rows)
            if r is not None:
                first = (1 - r) * first + r * identity
            block = first if block is None else xp.concat([block, first], axis=-2)
    shape = layers[0].shape
    by_layer = xp.reshape(block, (*shape[:-2], len(numbers), -1, shape[-1]))
    highest_first = sorted(numbers, reverse=True)
    order = [highest_first.index(number) for number in numbers]
    if order == list(range(len(order))):
        return by_layer
    return xp.take(by_layer, xp.asarray(order, device=device_of(by_layer)), axis=-3)


def _multiply_mixed(left: Array, right: Array, carried: Array, residual: float | None) -> Array:
    """(1 - r) left @ right + r carried; left @ right if there is no residual connection to add."""
    if residual is None:
        return left @ right
    if is_torch_array(left) and left.ndim == right.ndim == 3:  # in one kernel
        return carried.baddbmm(left, right, beta=residual, alpha=1 - residual)
    return (1 - residual) * (left @ right) + residual * carried


def _take_rows(matrix: Array, rows: Array | None) -> Array:
    """Rows of [..., n, n]; rows: their indices [rows] or [batch, rows], or None for all."""
    if rows is None:
        return matrix
    if rows.ndim == 1:
        return matrix[..., rows, :]
    xp = array_namespace(matrix)
    examples = xp.arange(int(rows.shape[0]), device=device_of(matrix))
    return matrix[examples[:, None], rows]


def _identity_rows(rows: Array | None, like: Array) -> Array:
    """Rows of the identity matrix, [rows, n] or [batch, rows, n]."""
    xp = array_namespace(like)
    identity = xp.eye(int(like.shape[-1]), dtype=like.dtype, device=device_of(like))
    return identity if rows is None else identity[rows]
