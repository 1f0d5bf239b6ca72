"""Attentions: what a model gave, checked once.

Everything after this trusts the weights. Merging heads and adding the residual connection is the
work of `attnflow.graph`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from array_api_compat import array_namespace

from attnflow import storage
from attnflow.arrays import Array, as_array, shape_text
from attnflow.errors import AttentionError, FileError, InputError, ShapeError
from attnflow.padding import cut_layer, cut_tokens, kept_positions
from attnflow.rows import check_rows

KIND = "attentions"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Attentions:
    """The attention weights of every layer and head for one input.

    attentions: one of
    - an array [layers, heads, queries, keys], or [layers, queries, keys] for one head;
    - a list or tuple of layers [heads, queries, keys], whose numbers of heads may differ;
    - what a Hugging Face model returns as `attentions`, for a batch of one.
    tokens: the text of each token; "0", "1", ... if not given.

    layers: one array [heads, queries, keys] per layer, on the device it came on.
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
        """Split a batch into examples, with their padding cut away.

        attentions: layers [batch, heads, queries, keys], in a list or stacked in one array.
        tokens: those of each example, with or without its padding.
        padding_mask: [batch, positions], 1 for a token and 0 for padding on either side, as
        tokenizers return it under the name `attention_mask`.
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
                raise type(error)(f"example {b}: {error}") from error
        return examples

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Attentions":
        """Read what `save` wrote, as NumPy arrays (torch tensors if a layer is bfloat16).

        Raises FileError if the file is something else, and the errors of the constructor if its
        weights are no attention.
        """
        arrays, header = storage.read(path, kind=KIND)
        names = [f"layer.{i}" for i in range(len(arrays))]
        if set(names) != set(arrays):
            raise FileError(
                f"{path} holds the arrays {', '.join(sorted(arrays))}; expected layer.0, layer.1 "
                "and so on. Save it again with Attentions.save."
            )
        tokens = header.get("tokens")
        if not isinstance(tokens, list):
            raise FileError(
                f"{path} has a header without a list of tokens; expected one text for each token. "
                "Save it again with Attentions.save."
            )
        return cls([arrays[name] for name in names], tokens)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the weights and tokens to a safetensors file, one array per layer."""
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
    """The layers of an array or of a list, each as an array.

    Raises AttentionError where there are no weights, ShapeError for fewer than three axes.
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
            f"attentions has shape {shape_text(array)}; expected [layers, heads, queries, keys], "
            "or [layers, queries, keys] for one head. For one layer, put it into a list."
        )
    return [array[i] for i in range(int(array.shape[0]))]


def one_example(layer: Array, what: str) -> Array:
    """A layer as [heads, queries, keys], from that, from [queries, keys] or from a batch of one."""
    if layer.ndim == 2:
        return layer[None]
    if layer.ndim == 4 and layer.shape[0] == 1:
        return layer[0]
    if layer.ndim == 4:
        raise ShapeError(
            f"{what} has shape {shape_text(layer)}, a batch of {layer.shape[0]}; expected one "
            "example. Use Attentions.batch(...), which gives a list of Attentions."
        )
    if layer.ndim != 3:
        raise ShapeError(
            f"{what} has shape {shape_text(layer)}; expected [heads, queries, keys]. "
            "Give one such array per layer."
        )
    return layer


def name_layer(i: int) -> str:
    """How messages name a layer: by its number from 1, and by where it was given."""
    return f"layer {i + 1} (attentions[{i}])"


def label_tokens(tokens: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """The text of n tokens; "0", "1", ... where none is given.

    Raises ShapeError if there are not n, InputError if they are not text.
    """
    if tokens is None:
        return tuple(str(i) for i in range(n))
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        given = "one text" if isinstance(tokens, str) else "not all text"
        raise InputError(
            f"tokens is {given}; expected a list of text, one for each token. "
            "Use tokenizer.convert_ids_to_tokens(ids)."
        )
    if len(tokens) != n:
        raise ShapeError(
            f"{len(tokens)} tokens were given for {n} positions; expected as many. "
            "Count special tokens such as [CLS] too, and cut padding away."
        )
    return tuple(tokens)


def _missing_weights(given: str) -> AttentionError:
    return AttentionError(
        f"{given}; expected one array of attention weights per layer. SDPA and flash attention "
        'kernels do not return weights: load the model with attn_implementation="eager", or call '
        'model.set_attn_implementation("eager"), and ask for output_attentions=True.'
    )


def _check_sizes(layers: Sequence[Array]) -> None:
    """Check that layers [..., heads, queries, keys] are square, of one size and of one kind."""
    n = int(layers[0].shape[-1])
    for i, layer in enumerate(layers):
        n_queries, n_keys = int(layer.shape[-2]), int(layer.shape[-1])
        if n_queries != n_keys or n_keys != n:
            raise ShapeError(
                f"{name_layer(i)} has {n_queries} queries and {n_keys} keys; expected {n} of both, "
                "as in the first layer. For layers of different sizes use "
                "AttentionGraph.from_layers, for cross-attention AttentionGraph.encoder_decoder."
            )
        if 0 in layer.shape:
            raise ShapeError(
                f"{name_layer(i)} has shape {shape_text(layer)}; expected at least one head and "
                "one token. Check that the input was not empty."
            )
        if array_namespace(layer) is not array_namespace(layers[0]):
            raise InputError(
                f"{name_layer(i)} is a {type(layer).__name__} and layer 1 is a "
                f"{type(layers[0]).__name__}; expected one kind. Convert all layers to one of them."
            )


def _check_batch(layers: Sequence[Array], tokens: Sequence[Sequence[str]] | None) -> None:
    n_examples = int(layers[0].shape[0])
    for i, layer in enumerate(layers):
        if layer.ndim != 4 or layer.shape[0] != n_examples:
            raise ShapeError(
                f"{name_layer(i)} has shape {shape_text(layer)}; expected "
                "[batch, heads, queries, keys], with the same batch in every layer. "
                "For a single example use Attentions(...)."
            )
    _check_sizes(layers)
    if tokens is not None and len(tokens) != n_examples:
        raise ShapeError(
            f"tokens were given for {len(tokens)} examples; expected {n_examples}. "
            "Give one list of text for each example of the batch."
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
