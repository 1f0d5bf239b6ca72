"""The layers of an AttentionGraph: mix in the residual connection, embed odd shapes.

Layers of unequal width and encoder-decoders are embedded in n x n matrices, so that methods see
matrices only. Everything works on NumPy arrays and torch tensors on their device; half precision is
computed in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from attnflow.arrays import (
    Array,
    as_array,
    compute_dtype,
    rescale_rows,
    shape_text,
    stack,
    to_numpy,
)
from attnflow.attentions import check_rows, one_example, split_layers
from attnflow.errors import (
    AttentionError,
    InputError,
    ShapeError,
    check_choice,
    quote,
)
from attnflow.head_merge import Heads, merge_heads

ResidualWeight: TypeAlias = float | Sequence[float]
# In models, the weight can also be measured at every position of every layer.
ModelResidual: TypeAlias = ResidualWeight | Literal["measured"]


def resolve_residual(residual_weight: ResidualWeight, n_layers: int) -> tuple[float, ...]:
    """Return one residual weight per layer, each between 0 and 1.

    >>> resolve_residual(0.5, 2)
    (0.5, 0.5)
    """
    try:
        values = np.asarray(residual_weight, dtype=np.float64)
    except Exception:  # arrays of other packages raise anything
        values = np.asarray(np.nan)
    if values.ndim == 0:
        values = np.full(n_layers, values)
    if values.shape != (n_layers,):
        raise ShapeError(
            f"residual_weight has {values.size} values",
            expected=f"one number, or one for each of the {n_layers} layers",
            fix="Give a number such as 0.5.",
        )
    for value in values:
        if not 0 <= value <= 1:
            raise InputError(
                f"residual_weight is {quote(residual_weight)}",
                expected="numbers from 0 (no residual connection) to 1 (nothing else)",
                fix="The paper uses 0.5.",
            )
    return tuple(float(value) for value in values)


def mix_residual(
    attention: Array, residual: Sequence[float], own: NDArray[np.bool_] | None = None
) -> Array:
    """A = (1 - r) W + r I for each layer of [..., layers, n, n]; W itself if r is 0 everywhere.

    residual: r of each layer.
    own: [layers, n], which positions have a residual connection; all by default.

    >>> mix_residual(np.asarray([[[0.0, 1.0], [1.0, 0.0]]]), [0.25])
    array([[[0.25, 0.75],
            [0.75, 0.25]]])
    """
    if not any(residual):
        return attention
    xp = array_namespace(attention)
    place = {"dtype": attention.dtype, "device": device_of(attention)}
    r = xp.asarray(list(residual), **place)[:, None, None]
    if own is not None:
        r = r * xp.astype(xp.asarray(own, device=place["device"]), attention.dtype)[:, :, None]
    mixed = (1 - r) * attention
    diagonal = xp.arange(int(attention.shape[-1]), device=place["device"])
    mixed[..., diagonal, diagonal] += r[..., 0]
    return mixed


@dataclass(frozen=True)
class Blocks:
    """The layers of a model, embedded in matrices over all its positions.

    attention: [layers, n, n]; a carried position attends to itself only.
    carried: [layers, n], positions that the layer passes through unchanged.
    own: [layers, n], positions with a residual connection at the layer.
    receptive_field: [layers, n, n], the keys that each query may attend to.
    widths: the number of positions of the input and after each layer.
    """

    attention: Array
    carried: NDArray[np.bool_] | None
    own: NDArray[np.bool_]
    receptive_field: NDArray[np.bool_]
    widths: tuple[int, ...]


def read_matrices(layers: Any) -> list[Array]:
    """Convert layers to arrays [queries, keys], and check that their rows sum to 1.

    Raises ShapeError or AttentionError for an invalid layer.
    """
    if not isinstance(layers, Sequence) and not hasattr(layers, "__array__"):
        raise InputError(
            f"layers is {quote(layers)}",
            expected="a list of matrices [queries, keys]",
            fix="Pass such a list.",
        )
    if hasattr(layers, "__array__"):
        layers = list(as_array(layers, "layers")) if np.ndim(layers) else []
    if not len(layers):
        raise ShapeError(
            "layers is empty",
            expected="at least one layer",
            fix="Pass a list of matrices [queries, keys].",
        )
    arrays = []
    for i, layer in enumerate(layers):
        array = as_array(layer, f"layer {i + 1}")
        if array.ndim != 2 or 0 in array.shape:
            raise ShapeError(
                f"layer {i + 1} has shape {shape_text(array)}",
                expected="[queries, keys]",
                fix="Merge its heads first, for example with layer.mean(0).",
            )
        check_rows(array, f"layer {i + 1}", leading="example")
        array = array_namespace(array).astype(array, compute_dtype(array), copy=False)
        arrays.append(rescale_rows(array))
    return arrays


def read_heads(part: Any, name: str, heads: Heads) -> list[Array]:
    """Read one part of an encoder-decoder, and merge the heads of each layer."""
    matrices = []
    for i, layer in enumerate(split_layers(part)):
        what = f"{name}[{i}]"
        single = one_example(layer, what)
        check_rows(single, what, leading="head")
        matrices.append(merge_heads(single, heads, what))
    return matrices


def unequal_residual(layers: Sequence[Array], residual_weight: ResidualWeight) -> ResidualWeight:
    """Return a residual weight per layer; a single number applies to the square layers only.

    Raises InputError for a weight on a layer that changes the number of positions.
    """
    square = [layer.shape[0] == layer.shape[1] for layer in layers]
    values = resolve_residual(residual_weight, len(layers))
    if np.ndim(residual_weight) == 0:
        return [value if same else 0.0 for value, same in zip(values, square, strict=True)]
    for i, (value, same) in enumerate(zip(values, square, strict=True)):
        if value and not same:
            raise InputError(
                f"residual_weight is {value} for layer {i + 1} of shape {shape_text(layers[i])}",
                expected="0, since a layer that changes the number of positions has no "
                "residual connection",
                fix="Set it to 0 for that layer.",
            )
    return values


def unequal_layers(layers: Sequence[Array]) -> Blocks:
    """Embed layers [queries, keys] of different sizes in the top left corners of square matrices.

    Only layers with as many queries as keys have residual connections.
    Raises ShapeError if a layer does not have as many keys as the layer below has queries.
    """
    widths = [int(layers[0].shape[1])]
    for i, layer in enumerate(layers):
        if int(layer.shape[1]) != widths[-1]:
            raise ShapeError(
                f"layer {i + 1} has {layer.shape[1]} keys",
                expected=f"{widths[-1]}, the number of queries of the layer below",
                fix="Pass the layers from the input upwards.",
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
    """Embed an encoder-decoder in matrices over encoder positions, then decoder positions.

    encoder: [n_encoder, n_encoder] per layer. decoder: [n_decoder, n_decoder] per block.
    cross: [n_decoder, n_encoder] per block.
    An encoder layer carries decoder positions. A decoder block is two layers, self-attention and
    then cross-attention, and both carry encoder positions.
    """
    n_encoder, n_decoder = _check_encoder_decoder(encoder, decoder, cross)
    n = n_encoder + n_decoder
    causal = all(is_causal(layer) for layer in decoder)
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
            f"decoder has {len(decoder)} layers and cross {len(cross)}",
            expected="equal numbers",
            fix="Pass self-attention and cross-attention of every decoder block.",
        )
    n_decoder, n_encoder = (int(size) for size in cross[0].shape)
    expected = {"encoder": (n_encoder, n_encoder), "decoder": (n_decoder, n_decoder)}
    expected["cross"] = (n_decoder, n_encoder)
    for name, layers in {"encoder": encoder, "decoder": decoder, "cross": cross}.items():
        for i, layer in enumerate(layers):
            if tuple(layer.shape) != expected[name]:
                raise ShapeError(
                    f"{name}[{i}] has shape {shape_text(layer)} after merging heads",
                    expected=f"{list(expected[name])}, since cross[0] has {n_decoder} queries "
                    f"and {n_encoder} keys",
                    fix="Pass the attention of one model for one input.",
                )
    return n_encoder, n_decoder


def causal_field(n: int) -> NDArray[np.bool_]:
    """A mask [queries, keys]: True for keys up to the query."""
    return np.tri(n, dtype=bool)


def resolve_causal(attention: Array, causal: bool | None) -> bool:
    """Whether attention [..., layers, queries, keys] is causal; detected from the weights if None.

    A single token has no later ones, so it counts as causal only if `causal` says so.
    Raises AttentionError if causal is True and a query has weight on a later key.
    """
    check_choice("causal", causal, (None, True, False))
    if causal is None:
        return int(attention.shape[-1]) > 1 and is_causal(attention)
    if causal and not is_causal(attention):
        host = to_numpy(attention)
        *_, layer, query, key = (int(i) for i in np.argwhere(np.triu(host, k=1))[0])
        raise AttentionError(
            f"layer {layer + 1} has weight on a later token (query {query}, key {key}) "
            "and causal is True",
            expected="no weight on later tokens",
            fix="Use causal=None to detect it from the weights.",
        )
    return causal


def uniform_attention(field: NDArray[np.bool_], like: Array) -> Array:
    """Uniform attention over a receptive field [..., queries, keys].

    like: an array with the library, type and device of the result. Queries with an empty field get
    no weight.

    >>> uniform_attention(causal_field(2), like=np.zeros(1))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    xp = array_namespace(like)
    place: dict[str, Any] = {"device": device_of(like)}
    return rescale_rows(xp.astype(xp.asarray(field, **place), like.dtype))


def is_causal(attention: Array) -> bool:
    """Whether no query of [..., queries, keys] has weight on a later key.

    >>> is_causal(np.asarray([[1.0, 0.0], [0.5, 0.5]]))
    True
    """
    xp = array_namespace(attention)
    if attention.ndim == 2:
        return not bool(xp.any(xp.triu(attention, k=1) != 0))
    # One matrix after another takes less memory. The first may do; a GPU is asked once for the
    # rest.
    matrices = [attention[i] for i in range(int(attention.shape[0]))]
    if not is_causal(matrices[0]):
        return False
    if attention.ndim > 3 or len(matrices) == 1:
        return all(map(is_causal, matrices[1:]))
    later = [xp.any(xp.triu(matrix, k=1) != 0) for matrix in matrices[1:]]
    return not bool(xp.any(xp.stack(later)))
