"""Layers that are not all n x n, laid into n x n matrices.

Two shapes of model: layers of unequal width, and encoder-decoders. Rollout and flow see only the
matrices, and which positions are carried on unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from attnflow.arrays import Array, as_array, compute_dtype, shape_text, stack
from attnflow.attentions import one_example, split_layers
from attnflow.errors import InputError, ShapeError
from attnflow.merging import Heads, ResidualWeight, merge_heads
from attnflow.receptive_field import causal_field, looks_back_only
from attnflow.rows import check_rows, rescale_rows


@dataclass(frozen=True)
class Blocks:
    """The layers of a model as matrices over all its positions.

    attention: [layers, n, n]; a carried position attends to itself only.
    carried: [layers, n], positions that the layer passes on unchanged.
    own: [layers, n], positions with a residual connection at the layer.
    receptive_field: [layers, n, n], the keys that each query may attend to.
    widths: the number of positions of the input and after each layer.
    """

    attention: Array
    carried: NDArray[np.bool_] | None
    own: NDArray[np.bool_]
    receptive_field: NDArray[np.bool_]
    widths: tuple[int, ...]


def read_matrices(layers: Sequence[Any]) -> list[Array]:
    """Take layers as arrays [queries, keys] with rows that sum to 1.

    Raises ShapeError or AttentionError for a layer that is something else.
    """
    if not len(layers):
        raise ShapeError("no layers were given; expected at least one. Give a list of matrices.")
    arrays = []
    for i, layer in enumerate(layers):
        array = as_array(layer, f"layer {i + 1}")
        if array.ndim != 2 or 0 in array.shape:
            raise ShapeError(
                f"layer {i + 1} has shape {shape_text(array)}; expected [queries, keys]. "
                "Merge its heads first, for example with layer.mean(0)."
            )
        check_rows(array, f"layer {i + 1}", leading="example")
        array = array_namespace(array).astype(array, compute_dtype(array), copy=False)
        arrays.append(rescale_rows(array))
    return arrays


def read_heads(part: Any, name: str, heads: Heads) -> list[Array]:
    """Take one part of an encoder-decoder, and merge the heads of each layer."""
    matrices = []
    for i, layer in enumerate(split_layers(part)):
        what = f"{name}[{i}]"
        single = one_example(layer, what)
        check_rows(single, what, leading="head")
        matrices.append(merge_heads(single, heads, what))
    return matrices


def unequal_residual(layers: Sequence[Array], residual_weight: ResidualWeight) -> ResidualWeight:
    """A residual weight per layer: one number is meant for the layers that can have one.

    Raises InputError for a weight on a layer that changes the number of positions.
    """
    square = [layer.shape[0] == layer.shape[1] for layer in layers]
    if isinstance(residual_weight, int | float):
        return [residual_weight if same else 0.0 for same in square]
    for i, (value, same) in enumerate(zip(residual_weight, square, strict=False)):
        if value and not same:
            raise InputError(
                f"residual_weight is {value} for layer {i + 1} of shape {shape_text(layers[i])}; "
                "expected 0, since a layer that changes the number of positions has no residual "
                "connection. Set it to 0 there."
            )
    return residual_weight


def unequal_layers(layers: Sequence[Array]) -> Blocks:
    """Lay layers [queries, keys] of different sizes into the top left corners of matrices.

    Only layers with as many queries as keys have residual connections.
    Raises ShapeError if a layer does not have as many keys as the layer below has queries.
    """
    widths = [int(layers[0].shape[1])]
    for i, layer in enumerate(layers):
        if int(layer.shape[1]) != widths[-1]:
            raise ShapeError(
                f"layer {i + 1} has {layer.shape[1]} keys; expected {widths[-1]}, the number of "
                "queries of the layer below. Give the layers from the input upwards."
            )
        widths.append(int(layer.shape[0]))
    n = max(widths)
    own = np.zeros((len(layers), n), dtype=bool)
    field = np.zeros((len(layers), n, n), dtype=bool)
    for i, layer in enumerate(layers):
        n_queries, n_keys = layer.shape
        own[i, :n_queries] = n_queries == n_keys
        field[i, :n_queries, :n_keys] = True
    attention = stack([_place(layer, n, 0, 0) for layer in layers])
    return Blocks(attention, None, own, field, tuple(widths))


def encoder_decoder_layers(
    encoder: Sequence[Array], decoder: Sequence[Array], cross: Sequence[Array]
) -> Blocks:
    """Lay an encoder-decoder into matrices over encoder positions, then decoder positions.

    encoder: [n_encoder, n_encoder] per layer. decoder: [n_decoder, n_decoder] per block.
    cross: [n_decoder, n_encoder] per block.
    An encoder layer carries decoder positions. A decoder block is two layers, self-attention and
    then cross-attention, and both carry encoder positions.
    """
    n_encoder, n_decoder = _check_encoder_decoder(encoder, decoder, cross)
    n = n_encoder + n_decoder
    causal = all(looks_back_only(layer) for layer in decoder)
    # Each step is a block and the row and column where it starts.
    steps = [(layer, 0, 0) for layer in encoder]
    for self_attention, cross_attention in zip(decoder, cross, strict=True):
        steps += [(self_attention, n_encoder, n_encoder), (cross_attention, n_encoder, 0)]
    carried = np.zeros((len(steps), n), dtype=bool)
    field = np.zeros((len(steps), n, n), dtype=bool)
    matrices = []
    for i, (block, row, column) in enumerate(steps):
        n_queries, n_keys = block.shape
        carried[i] = True
        carried[i, row : row + n_queries] = False
        np.fill_diagonal(field[i], carried[i])
        is_self_attention = column == n_encoder
        field[i, row : row + n_queries, column : column + n_keys] = (
            causal_field(n_decoder) if causal and is_self_attention else True
        )
        matrices.append(_place(block, n, row, column, carried[i]))
    return Blocks(stack(matrices), carried, ~carried, field, (n,) * (len(steps) + 1))


def _place(
    block: Array, n: int, row: int, column: int, carried: NDArray[np.bool_] | None = None
) -> Array:
    """An n x n matrix with the block at (row, column), and 1 on the diagonal where carried."""
    xp = array_namespace(block)
    place = {"dtype": block.dtype, "device": device_of(block)}
    matrix = xp.zeros((n, n), **place)
    if carried is not None:
        for i in np.flatnonzero(carried):
            matrix[int(i), int(i)] = 1
    matrix[row : row + int(block.shape[0]), column : column + int(block.shape[1])] = block
    return matrix


def _check_encoder_decoder(
    encoder: Sequence[Array], decoder: Sequence[Array], cross: Sequence[Array]
) -> tuple[int, int]:
    """Check that the parts fit together; return the numbers of encoder and decoder positions."""
    if len(decoder) != len(cross):
        raise ShapeError(
            f"decoder has {len(decoder)} layers and cross {len(cross)}; expected as many. "
            "Give self-attention and cross-attention of every decoder block."
        )
    n_decoder, n_encoder = (int(size) for size in cross[0].shape)
    expected = {"encoder": (n_encoder, n_encoder), "decoder": (n_decoder, n_decoder)}
    expected["cross"] = (n_decoder, n_encoder)
    for name, layers in {"encoder": encoder, "decoder": decoder, "cross": cross}.items():
        for i, layer in enumerate(layers):
            if tuple(layer.shape) != expected[name]:
                raise ShapeError(
                    f"{name}[{i}] has shape {shape_text(layer)} without its heads; expected "
                    f"{list(expected[name])}, since cross[0] has {n_decoder} queries and "
                    f"{n_encoder} keys. Give attention of one input to one model."
                )
    return n_encoder, n_decoder
