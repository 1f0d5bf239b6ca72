"""Attentions: the attention weights of a model, validated once.

Weights enter here: batches are split, padding is removed, shapes and row sums are checked. Later
code trusts them. `attnflow.graph` merges heads and adds the residual connection.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from attnflow.arrays import Array, as_array, compute_dtype, dtype_name, shape_text, to_numpy
from attnflow.errors import AttentionError, FileError, InputError, ShapeError, quote
from attnflow.head_merge import Heads, check_heads, merge_heads

KIND = "attentions"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Attentions:
    """The attention weights of every layer and head for one input.

    attentions: one of
    - an array [layers, heads, queries, keys], or [layers, queries, keys] for one head;
    - a list or tuple of layers [heads, queries, keys]; the number of heads may differ;
    - the `attentions` that a Hugging Face model returns, for a batch of one.
    tokens: the text of each token; "0", "1", ... if not given.

    layers: one array [heads, queries, keys] per layer, on its original device.
    Raises ShapeError, AttentionError (missing weights, or rows that do not sum to 1) or InputError.

    >>> attentions = Attentions([[[0.5, 0.5], [0.0, 1.0]]], tokens=["a", "b"])
    >>> attentions
    Attentions(1 layer, 1 head, 2 tokens)
    >>> attentions.layers[0].shape
    (1, 2, 2)
    """

    layers: tuple[Array, ...]
    tokens: tuple[str, ...]

    def __init__(self, attentions: Any, tokens: Sequence[str] | None = None) -> None:
        layers = [
            one_example(layer, name_layer(i)) for i, layer in enumerate(split_layers(attentions))
        ]
        _check_sizes(layers)
        for i, layer in enumerate(layers):
            check_rows(layer, name_layer(i), leading="head")
        object.__setattr__(self, "layers", tuple(layers))
        object.__setattr__(self, "tokens", label_tokens(tokens, int(layers[0].shape[-1])))

    @classmethod
    def batch(
        cls,
        attentions: Any,
        *,
        tokens: Sequence[Sequence[str]] | None = None,
        padding_mask: Any = None,
    ) -> "list[Attentions]":
        """Split a batch into examples, and remove their padding.

        attentions: layers [batch, heads, queries, keys], in a list or stacked in one array.
        tokens: the tokens of each example, with or without padding.
        padding_mask: [batch, positions], 1 for a token and 0 for padding (left or right); the
        tokenizer calls it `attention_mask`.
        Raises AttentionError if tokens attend to padding.

        >>> layer = [[[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]]]
        >>> Attentions.batch([layer], padding_mask=[[1, 1, 0]])
        [Attentions(1 layer, 1 head, 2 tokens)]
        """
        layers = split_layers(attentions)
        _check_batch(layers, tokens)
        kept = kept_positions(padding_mask, int(layers[0].shape[0]), int(layers[0].shape[-1]))
        examples = []
        for b, positions in enumerate(kept):
            try:
                cut = [cut_layer(x[b], positions, name_layer(i)) for i, x in enumerate(layers)]
                labels = None if tokens is None else cut_tokens(tokens[b], positions)
                examples.append(cls(cut, labels))
            except InputError as error:
                raise error.within(f"example {b}") from error
        return examples

    @classmethod
    def from_layers(
        cls,
        layers: Any,
        *,
        tokens: Sequence[str] | None = None,
        heads: Heads = "mean",
    ) -> "Attentions":
        """Read layers one after another and merge their heads, for caches of other packages.

        layers: an iterable, such as a generator, of layers [heads, queries, keys] or batches of
        one; or a mapping, whose values are taken in its order. Only one layer is held with all of
        its heads.
        heads: as in AttentionGraph.from_attentions.
        Raises what the constructor raises, and AttentionError for no layers.

        >>> layers = (np.full((8, 2, 2), 0.5) for _ in range(3))
        >>> Attentions.from_layers(layers, tokens=["a", "b"])
        Attentions(3 layers, 1 head, 2 tokens)
        """
        check_heads(heads)
        merged: list[Array] = []
        for weights in _each_layer(layers):
            name = name_layer(len(merged))  # `enumerate` would keep the layer before
            if weights is None:
                raise _missing_weights(f"{name} is None")
            layer = one_example(as_array(weights, name), name)
            check_rows(layer, name, leading="head")
            merged.append(merge_heads(layer, heads, name)[None])
            del weights, layer  # before the next layer is computed
        if not merged:
            raise _missing_weights("layers has no items")
        return cls(merged, tokens)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Attentions":
        """Load a file written by `save`, as NumPy arrays (torch tensors if a layer is bfloat16).

        Raises FileError if the file has another format, and the errors of the constructor if its
        weights are invalid.
        """
        from attnflow import storage

        arrays, header = storage.read(path, kind=KIND)
        names = [f"layer.{i}" for i in range(len(arrays))]
        if set(names) != set(arrays):
            raise FileError(
                f"{path} holds the arrays {', '.join(sorted(arrays))}",
                expected="layer.0, layer.1 and so on",
                fix="Save it again with Attentions.save.",
            )
        tokens = header.get("tokens")
        if not isinstance(tokens, list):
            raise FileError(
                f"{path} has no list of tokens in its header",
                expected="one text for each token",
                fix="Save it again with Attentions.save.",
            )
        return cls([arrays[name] for name in names], tokens)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the weights and tokens to a safetensors file, one array per layer."""
        from attnflow import storage

        arrays = {f"layer.{i}": layer for i, layer in enumerate(self.layers)}
        storage.write(path, kind=KIND, arrays=arrays, header={"tokens": list(self.tokens)})

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return len(self.layers)

    @property
    def n_tokens(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    @property
    def n_heads(self) -> tuple[int, ...]:
        """The number of heads of each layer."""
        return tuple(int(layer.shape[0]) for layer in self.layers)

    def __repr__(self) -> str:
        heads = sorted(set(self.n_heads))
        counts = [
            _count(self.n_layers, "layer"),
            _count(heads[0], "head") if len(heads) == 1 else f"{heads[0]} to {heads[-1]} heads",
            _count(self.n_tokens, "token"),
        ]
        return f"Attentions({', '.join(counts)})"


def split_layers(attentions: Any) -> list[Array]:
    """Split an array or a list into one array per layer.

    Raises AttentionError if weights are missing, ShapeError for fewer than three axes.
    """
    if attentions is None or (isinstance(attentions, list | tuple) and not attentions):
        raise _missing_weights(f"attentions is {attentions!r}")
    if isinstance(attentions, list | tuple):
        for i, layer in enumerate(attentions):
            if layer is None:
                raise _missing_weights(f"{name_layer(i)} is None")
        return [as_array(layer, name_layer(i)) for i, layer in enumerate(attentions)]
    array = as_array(attentions, "attentions")
    if array.ndim < 3 or array.shape[0] == 0:
        raise ShapeError(
            f"attentions has shape {shape_text(array)}",
            expected="[layers, heads, queries, keys], or [layers, queries, keys] for one head",
            fix="For one layer, put it into a list.",
        )
    return [array[i] for i in range(int(array.shape[0]))]


def name_layer(i: int) -> str:
    """The name of a layer in messages: its number from 1, and its index in the argument."""
    return f"layer {i + 1} (attentions[{i}])"


def one_example(layer: Array, what: str) -> Array:
    """Return a layer as [heads, queries, keys], also if it is [queries, keys] or a batch of one."""
    if layer.ndim == 2:
        return layer[None]
    if layer.ndim == 4 and layer.shape[0] == 1:
        return layer[0]
    if layer.ndim == 4:
        raise ShapeError(
            f"{what} has shape {shape_text(layer)}, a batch of {layer.shape[0]}",
            expected="one example",
            fix="Use Attentions.batch(...), which returns a list of Attentions.",
        )
    if layer.ndim != 3:
        raise ShapeError(
            f"{what} has shape {shape_text(layer)}",
            expected="[heads, queries, keys]",
            fix="Pass one such array per layer.",
        )
    return layer


def label_tokens(tokens: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """Return the text of n tokens; "0", "1", ... by default.

    Raises ShapeError for another number of tokens, InputError if they are not strings.
    """
    if tokens is None:
        return tuple(str(i) for i in range(n))
    check_tokens(tokens)
    if len(tokens) != n:
        raise ShapeError(
            f"got {len(tokens)} tokens for {n} positions",
            expected=f"{n} tokens",
            fix="Include special tokens such as [CLS], and leave out padding.",
        )
    return tuple(tokens)


def check_tokens(tokens: Any) -> None:
    """Raise InputError unless tokens are a sequence of strings."""
    is_list = isinstance(tokens, Sequence) and not isinstance(tokens, str | bytes)
    is_list = is_list or (isinstance(tokens, np.ndarray) and tokens.ndim == 1)
    if is_list and all(isinstance(token, str) for token in tokens):
        return
    given = "a list with items other than strings" if is_list else quote(tokens)
    raise InputError(
        f"tokens is {given}",
        expected="a list of strings, one for each token",
        fix="Use tokenizer.convert_ids_to_tokens(ids).",
    )


# How far a row sum may be from 1. All weights are positive, so rounding each with relative error u
# changes the sum by at most u, however long the row: u is 2**-8 for bfloat16, 2**-11 for float16
# and 2**-24 for float32. Kernels that round the exponentials, their sum and the quotient add a few
# such errors; float32 sums of thousands of terms add more, and tiny float16 weights lose digits
# (2**-25 each). float64 arrays may hold weights that were computed in float32.
ROW_SUM_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2}


def check_rows(weights: Array, what: str, *, leading: str) -> None:
    """Check that weights [..., queries, keys] are finite, not negative, and that rows sum to 1.

    what: the name of the array in errors. leading: the name of its leading axis, such as "head".
    Raises AttentionError with the first invalid cell or row.

    >>> check_rows(np.asarray([[0.5, 0.4]]), "layer 1", leading="head")
    Traceback (most recent call last):
    attnflow.errors.AttentionError: layer 1 has a row that sums to 0.9 (query 0); expected 1, ...
    """
    xp = array_namespace(weights)
    sums = xp.sum(weights, axis=-1, dtype=compute_dtype(weights))
    tolerance = ROW_SUM_TOLERANCE[dtype_name(weights)]
    # NaN fails both comparisons, and infinity the second.
    if bool(xp.min(weights) >= 0) and bool(xp.all(xp.abs(sums - 1) <= tolerance)):
        return
    host = to_numpy(weights)
    _check_values(host, what, leading)
    host_sums = to_numpy(sums)
    row = _first(~(np.abs(host_sums - 1) <= tolerance))
    columns = np.sum(host, axis=-2, dtype=host_sums.dtype)
    if host.shape[-1] == host.shape[-2] and np.all(np.abs(columns - 1) <= tolerance):
        fix = "Its columns sum to 1, so swap its last two axes."
    else:
        fix = "Switch dropout off with model.eval(), or divide each row by its sum."
    raise AttentionError(
        f"{what} has a row that sums to {host_sums[row]:.8g} ({_cell(row, host.ndim, leading)})",
        expected=f"1, within {tolerance:g} for {dtype_name(weights)}",
        fix=fix,
    )


def _check_values(weights: "np.ndarray[Any, np.dtype[Any]]", what: str, leading: str) -> None:
    finite = np.isfinite(weights)
    if not finite.all():
        cell = _first(~finite)
        where = _cell(cell, weights.ndim, leading)
        raise AttentionError(
            f"{what} has the weight {weights[cell]} ({where})",
            expected="finite numbers",
            fix="If all keys of a query are masked, its weights are nan: remove padding with "
            "Attentions.batch(..., padding_mask=...).",
        )
    if (weights < 0).any():
        cell = _first(weights < 0)
        where = _cell(cell, weights.ndim, leading)
        raise AttentionError(
            f"{what} has the weight {weights[cell]:.6g} ({where})",
            expected="weights of 0 or more",
            fix="Pass the weights after the softmax, not the scores before it.",
        )


def _first(wrong: "np.ndarray[Any, np.dtype[Any]]") -> tuple[int, ...]:
    return tuple(int(index) for index in np.argwhere(wrong)[0])


def _cell(index: tuple[int, ...], n_axes: int, leading: str) -> str:
    """The name of a row (or of a cell, with one more index) of an array with `n_axes` axes."""
    names = [leading] * (n_axes - 2) + ["query", "key"]
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=False))


Kept = NDArray[np.bool_]  # [positions], True for a token, False for padding


def kept_positions(padding_mask: Any, n_examples: int, n: int) -> list[Kept]:
    """For each example, which of the n positions are tokens; all without a mask.

    >>> kept_positions([[0, 1, 1]], 1, 3)
    [array([False,  True,  True])]
    """
    if padding_mask is None:
        return [np.ones(n, dtype=bool) for _ in range(n_examples)]
    mask = to_numpy(as_array(padding_mask, "padding_mask"))
    if mask.shape != (n_examples, n):
        raise ShapeError(
            f"padding_mask has shape {shape_text(mask)}",
            expected=f"[batch, positions], here [{n_examples}, {n}]",
            fix="Pass the attention_mask that the tokenizer returned.",
        )
    if not np.isin(mask, (0, 1)).all():
        raise InputError(
            "padding_mask has values other than 0 and 1",
            expected="1 for a token and 0 for padding",
            fix="Pass the attention_mask that the tokenizer returned.",
        )
    for example, row in enumerate(mask):
        if not row.any():
            raise InputError(
                f"padding_mask has only padding in example {example}",
                expected="at least one token",
                fix="Remove that example from the batch.",
            )
    return [row.astype(bool) for row in mask]


def cut_layer(layer: Array, kept: Kept, what: str) -> Array:
    """Remove padding from one example's layer [heads, queries, keys].

    Raises AttentionError if a token attends to padding.
    """
    if kept.all():
        return layer
    indices = np.flatnonzero(kept)
    if len(indices) == indices[-1] - indices[0] + 1:  # contiguous: a view instead of a copy
        tokens = slice(int(indices[0]), int(indices[-1]) + 1)
        rows = layer[:, tokens, :]
        cut = rows[:, :, tokens]
    else:
        rows = layer[:, indices, :]
        cut = rows[:, :, indices]
    xp = array_namespace(layer)
    dtype = compute_dtype(layer)
    lost = xp.max(xp.sum(rows, axis=-1, dtype=dtype) - xp.sum(cut, axis=-1, dtype=dtype))
    if float(lost) > ROW_SUM_TOLERANCE[dtype_name(layer)]:
        raise AttentionError(
            f"in {what}, a token gives {float(lost):.3g} of its attention to padding",
            expected="0",
            fix="Pass the same mask to the model and to Attentions.batch: 1 for a token, 0 for "
            "padding.",
        )
    return cut


def cut_tokens(tokens: Sequence[str], kept: Kept) -> Sequence[str]:
    """Remove padding from a list of tokens, unless it has none."""
    if len(tokens) != len(kept):
        return tokens
    return [token for token, keep in zip(tokens, kept, strict=True) if keep]


def _each_layer(layers: Any) -> Iterator[Any]:
    """An iterator of layers. Raises InputError for anything that has no items."""
    try:
        return iter(layers.values() if isinstance(layers, Mapping) else layers)
    except TypeError as error:
        raise InputError(
            f"layers is {quote(layers)}",
            expected="layers [heads, queries, keys], one after another",
            fix="Pass a list or a generator of them.",
        ) from error


def _missing_weights(given: str) -> AttentionError:
    return AttentionError(
        given,
        expected="one array of attention weights per layer",
        fix="SDPA and flash attention kernels do not return weights: load the model with "
        'attn_implementation="eager", or call model.set_attn_implementation("eager"), and ask '
        "for output_attentions=True.",
    )


def _check_sizes(layers: Sequence[Array]) -> None:
    """Check that layers [..., heads, queries, keys] are square, of one size and of one kind."""
    n = int(layers[0].shape[-1])
    for i, layer in enumerate(layers):
        n_queries, n_keys = int(layer.shape[-2]), int(layer.shape[-1])
        if n_queries != n_keys or n_keys != n:
            raise ShapeError(
                f"{name_layer(i)} has {n_queries} queries and {n_keys} keys",
                expected=f"{n} queries and {n} keys, as in the first layer",
                fix="For layers of different sizes use AttentionGraph.from_layers, for "
                "cross-attention AttentionGraph.encoder_decoder.",
            )
        if 0 in layer.shape:
            raise ShapeError(
                f"{name_layer(i)} has shape {shape_text(layer)}",
                expected="at least one head and one token",
                fix="Check that the input was not empty.",
            )
        if array_namespace(layer) is not array_namespace(layers[0]):
            raise InputError(
                f"{name_layer(i)} is a {type(layer).__name__} and layer 1 is a "
                f"{type(layers[0]).__name__}",
                expected="layers of one type",
                fix="Convert all layers to NumPy arrays, or all to torch tensors.",
            )


def _check_batch(layers: Sequence[Array], tokens: Sequence[Sequence[str]] | None) -> None:
    n_examples = int(layers[0].shape[0])
    for i, layer in enumerate(layers):
        if layer.ndim != 4 or layer.shape[0] != n_examples:
            raise ShapeError(
                f"{name_layer(i)} has shape {shape_text(layer)}",
                expected="[batch, heads, queries, keys], with the same batch in every layer",
                fix="For a single example use Attentions(...).",
            )
    _check_sizes(layers)
    if tokens is None:
        return
    if not isinstance(tokens, list | tuple):
        raise InputError(
            f"tokens is {quote(tokens)}",
            expected="one list of strings for each example",
            fix="Pass a list of lists.",
        )
    for labels in tokens:
        check_tokens(labels)
    if len(tokens) != n_examples:
        raise ShapeError(
            f"tokens were given for {len(tokens)} examples",
            expected=f"{n_examples}",
            fix="Give one list of text for each example of the batch.",
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
