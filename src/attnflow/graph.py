"""AttentionGraph: the layered graph that every method works on.

Each kind of model is one way to fill it: plain stacks, layers of unequal width, encoder-decoders.
Methods see only this graph and know nothing about models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from attnflow.arrays import (
    Array,
    as_stacked,
    compute_dtype,
    rescale_rows,
    shape_text,
    stack,
    to_numpy,
)
from attnflow.attentions import Attentions, check_rows, check_tokens, label_tokens, name_layer
from attnflow.errors import ShapeError, check_type
from attnflow.head_merge import Heads, describe_heads, merge_heads
from attnflow.layers import (
    Blocks,
    ResidualWeight,
    causal_field,
    encoder_decoder_layers,
    mix_residual,
    read_heads,
    read_matrices,
    resolve_causal,
    resolve_residual,
    unequal_layers,
    unequal_residual,
    uniform_attention,
)
from attnflow.selection import pick_example

MEAN = "[MEAN]"  # the name of the position that `add_mean` adds


@dataclass(frozen=True, eq=False, repr=False)
class AttentionGraph:
    """One matrix per layer, with the residual connection mixed in.

    Use `from_attentions`, `from_weights`, `from_layers` or `encoder_decoder`, which validate their
    arguments; the constructor does not.

    weights: [..., layers, queries, keys], A = (1 - r) W + r I. Leading axes are a batch. Rows sum
    to 1, except for edges that keep their scale.
    attention: W, the same shape: heads merged, no residual connection. Edges that contain the
    residual connection are the same in both.
    tokens: the text of each position.
    residual_weights: r of each layer; None if it differs between positions or is part of the edges.
    causal: whether no position attends to a later one.
    widths: the numbers of positions of the input and after each layer; cells beyond them are 0.
    carried: [layers, positions] or None, positions that a layer passes through unchanged: weight 1,
    and unlimited capacity in flow.
    receptive_field: [layers, queries, keys], or None if `causal` defines it.
    settings: how the graph was built; results record it.
    """

    weights: Array
    attention: Array
    tokens: tuple[str, ...]
    residual_weights: tuple[float, ...] | None
    causal: bool
    widths: tuple[int, ...]
    carried: NDArray[np.bool_] | None = None
    receptive_field: NDArray[np.bool_] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_attentions(
        cls,
        attentions: Attentions,
        *,
        heads: Heads = "mean",
        residual_weight: ResidualWeight = 0.5,
        causal: bool | None = None,
    ) -> "AttentionGraph":
        """Merge the heads of each layer, and mix in the residual connection.

        heads: "mean", "max" or "min" over heads, the index of one head, or a function from
        [heads, queries, keys] to [queries, keys]. Rows are rescaled to 1 afterwards.
        residual_weight: a number, or one per layer.
        causal: whether positions attend to no later ones; detected from the weights by default.
        Raises AttentionError if causal is True and a position attends to a later one.

        >>> graph = AttentionGraph.from_attentions(Attentions([[[0.5, 0.5], [0.0, 1.0]]]))
        >>> graph.weights
        array([[[0.75, 0.25],
                [0.  , 1.  ]]])
        """
        check_type(attentions, Attentions, "Create one: Attentions(attentions, tokens=tokens).")
        layers = [
            merge_heads(layer, heads, name_layer(i)) for i, layer in enumerate(attentions.layers)
        ]
        settings = {"heads": describe_heads(heads)}
        attention = stack(layers)
        causal = resolve_causal(attention, causal)
        return cls.from_checked(attention, attentions.tokens, residual_weight, causal, settings)

    @classmethod
    def from_weights(
        cls,
        weights: Any,
        *,
        tokens: Sequence[str] | None = None,
        residual_weight: ResidualWeight = 0.5,
        causal: bool | None = None,
    ) -> "AttentionGraph":
        """Build a graph from one matrix per layer, [..., layers, queries, keys], with heads merged.

        Leading axes are a batch of examples with the same tokens. Other options: see
        `from_attentions`.

        >>> AttentionGraph.from_weights([[[1.0, 0.0], [0.5, 0.5]]], tokens=["a", "b"])
        AttentionGraph(1 layer, 2 tokens, causal)
        """
        array = as_stacked(weights, "weights")
        if array.ndim < 3 or 0 in array.shape or array.shape[-1] != array.shape[-2]:
            raise ShapeError(
                f"weights has shape {shape_text(array)}",
                expected="[..., layers, queries, keys], with as many queries as keys",
                fix="For layers of different sizes use AttentionGraph.from_layers.",
            )
        for i in range(int(array.shape[-3])):
            check_rows(array[..., i, :, :], f"layer {i + 1}", leading="example")
        array = array_namespace(array).astype(array, compute_dtype(array), copy=False)
        labels = label_tokens(tokens, int(array.shape[-1]))
        array = rescale_rows(array)
        return cls.from_checked(array, labels, residual_weight, resolve_causal(array, causal))

    @classmethod
    def from_layers(
        cls,
        layers: Sequence[Any],
        *,
        tokens: Sequence[str] | None = None,
        residual_weight: ResidualWeight = 0.5,
    ) -> "AttentionGraph":
        """Build a graph from layers [queries, keys] of different sizes, from the input upwards.

        Each layer has as many keys as the layer below has queries. Narrower layers are padded with
        zeros. tokens: the input tokens, or one for each position of the widest layer.
        residual_weight: one number for all square layers (others have no residual connection), or
        one number per layer, 0 for layers that are not square.

        >>> AttentionGraph.from_layers([[[0.5, 0.5]], [[1.0]]]).widths
        (2, 1, 1)
        """
        arrays = read_matrices(layers)
        blocks = unequal_layers(arrays)
        n = max(blocks.widths)
        if tokens is not None:
            check_tokens(tokens)
        if tokens is not None and len(tokens) == blocks.widths[0]:
            tokens = [*tokens, *(str(i) for i in range(len(tokens), n))]
        return cls._from_blocks(blocks, tokens, unequal_residual(arrays, residual_weight), {})

    @classmethod
    def encoder_decoder(
        cls,
        *,
        encoder: Any,
        decoder: Any,
        cross: Any,
        tokens: Sequence[str] | None = None,
        heads: Heads = "mean",
        residual_weight: ResidualWeight = 0.5,
    ) -> "AttentionGraph":
        """Build one graph from an encoder and a decoder: encoder positions, then decoder positions.

        encoder, decoder, cross: [heads, queries, keys] for each layer or block, in any form that
        `Attentions` accepts. cross: attention from decoder positions to encoder positions.
        Each decoder block becomes two layers, self-attention and cross-attention. Positions that
        do not take part in a layer pass through it unchanged.
        tokens: the encoder tokens, then the decoder tokens.
        residual_weight: a number, or one for each encoder layer and two for each decoder block.

        >>> one = [[[1.0]]]
        >>> AttentionGraph.encoder_decoder(encoder=one, decoder=one, cross=one).n_layers
        3
        """
        parts = [
            read_heads(part, name, heads)
            for name, part in {"encoder": encoder, "decoder": decoder, "cross": cross}.items()
        ]
        blocks = encoder_decoder_layers(*parts)
        settings = {"heads": describe_heads(heads)}
        return cls._from_blocks(blocks, tokens, residual_weight, settings)

    @classmethod
    def from_checked(
        cls,
        attention: Array,
        tokens: tuple[str, ...],
        residual_weight: ResidualWeight,
        causal: bool,
        settings: Mapping[str, Any] | None = None,
    ) -> "AttentionGraph":
        """Build a graph from weights that are known to be valid: neither checked nor copied.

        attention: [..., layers, queries, keys]. Other options: see `from_attentions`.
        """
        n_layers = int(attention.shape[-3])
        residual = resolve_residual(residual_weight, n_layers)
        return cls(
            weights=mix_residual(attention, residual),
            attention=attention,
            tokens=tokens,
            residual_weights=residual,
            causal=causal,
            widths=(len(tokens),) * (n_layers + 1),
            settings={**(settings or {}), "residual_weight": _short(residual)},
        )

    @classmethod
    def _from_blocks(
        cls,
        blocks: Blocks,
        tokens: Sequence[str] | None,
        residual_weight: ResidualWeight,
        settings: Mapping[str, Any],
    ) -> "AttentionGraph":
        residual = resolve_residual(residual_weight, len(blocks.own))
        return cls(
            weights=mix_residual(blocks.attention, residual, blocks.own),
            attention=blocks.attention,
            tokens=label_tokens(tokens, max(blocks.widths)),
            residual_weights=residual,
            causal=False,
            widths=blocks.widths,
            carried=blocks.carried,
            receptive_field=blocks.receptive_field,
            settings={**settings, "residual_weight": _short(residual)},
        )

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return int(self.weights.shape[-3])

    @property
    def n_tokens(self) -> int:
        """The number of tokens, and of positions at each layer."""
        return int(self.weights.shape[-1])

    def example(self, index: int | tuple[int, ...]) -> "AttentionGraph":
        """Select one example of a batch.

        Raises ShapeError if there is no batch, SelectionError for an invalid index.
        """
        return replace(
            self,
            weights=pick_example(self.weights, index),
            attention=pick_example(self.attention, index),
        )

    def uniform(self) -> "AttentionGraph":
        """The same graph with uniform attention over each position's receptive field.

        Residual weights, carried positions and widths stay the same. A batch becomes one example,
        because its examples share their receptive fields. Without residual weights, each position
        keeps its weight on itself and its total, and the other positions share the rest evenly.

        >>> AttentionGraph.from_weights([[[1.0, 0.0], [0.0, 1.0]]]).uniform().attention
        array([[[1. , 0. ],
                [0.5, 0.5]]])
        """
        array_namespace(self.attention)  # raises an error if the graph was not kept
        if self.residual_weights is None:
            return self._uniform_around_diagonal()
        n = self.n_tokens
        own = None
        if self.receptive_field is not None:
            attention = uniform_attention(self.receptive_field, like=self.attention)
            # Padding rows of a narrow layer have an empty field and no residual connection.
            own = np.any(self.receptive_field, axis=-1)
            if self.carried is not None:
                own = own & ~self.carried
        else:
            field = causal_field(n) if self.causal else np.ones((n, n), dtype=bool)
            layer = uniform_attention(field, like=self.attention)
            attention = array_namespace(layer).broadcast_to(layer, (self.n_layers, n, n))
        weights = mix_residual(attention, self.residual_weights, own)
        return replace(self, weights=weights, attention=attention)

    def _uniform_around_diagonal(self) -> "AttentionGraph":
        """The uniform graph with the diagonal and the row sums of this one."""
        if self.weights.ndim != 3:
            raise ShapeError(
                f"the graph has shape {shape_text(self.weights)}, a batch",
                expected="one example, [layers, queries, keys]",
                fix="Select one with graph.example(i).",
            )
        n = self.n_tokens
        field = self.receptive_field
        if field is None:
            layer = causal_field(n) if self.causal else np.ones((n, n), dtype=bool)
            field = np.broadcast_to(layer, (self.n_layers, n, n))
        xp = array_namespace(self.weights)
        others = uniform_attention(field & ~np.eye(n, dtype=bool), like=self.weights)
        diagonal = xp.linalg.diagonal(self.weights)
        total = xp.sum(self.weights, axis=-1)
        identity = xp.eye(n, dtype=self.weights.dtype, device=device_of(self.weights))
        weights = diagonal[..., None] * identity + (total - diagonal)[..., None] * others
        return replace(self, weights=weights, attention=weights)

    def capacities(self) -> NDArray[np.float64]:
        """Capacities for flow, [layers, queries, keys] in NumPy; infinite for carried positions.

        Raises ShapeError for a batch.
        """
        if self.weights.ndim != 3:
            raise ShapeError(
                f"the graph has shape {shape_text(self.weights)}, a batch",
                expected="one example, [layers, queries, keys]",
                fix="Select one with graph.example(i).",
            )
        capacities = to_numpy(self.weights).astype(np.float64)
        if self.carried is not None:
            layers, positions = np.nonzero(self.carried)
            capacities[layers, positions, positions] = np.inf
        return capacities

    def __repr__(self) -> str:
        batch = "".join(f"{size} x " for size in self.weights.shape[:-3])
        layers = f"{batch}{self.n_layers} layer{'' if self.n_layers == 1 else 's'}"
        tokens = f"{self.n_tokens} token{'' if self.n_tokens == 1 else 's'}"
        return f"AttentionGraph({layers}, {tokens}{', causal' if self.causal else ''})"


def _short(residual: tuple[float, ...]) -> float | list[float]:
    """One number if all layers have the same weight, for results to record."""
    return residual[0] if len(set(residual)) == 1 else list(residual)


def add_mean(graph: AttentionGraph, positions: range) -> AttentionGraph:
    """Add a position "[MEAN]" whose rows are the means of the rows of other positions.

    Nothing attends to it. Its raw attention and its rollout are the means of theirs; its flow is
    that of a position which attends so.
    """
    n, n_layers = len(graph.tokens), graph.n_layers
    field = np.ones((n_layers, n + 1, n + 1), dtype=np.bool_)
    field[:, :, n] = False
    return replace(
        graph,
        weights=with_mean(graph.weights, positions),
        attention=with_mean(graph.attention, positions),
        tokens=(*graph.tokens, MEAN),
        causal=False,
        widths=tuple(width + 1 for width in graph.widths),
        receptive_field=field,
    )


def with_mean(matrices: Array, positions: range) -> Array:
    """Add a row with the mean of some rows, and a column of zeros: [..., n, n] to [..., n+1, n+1].

    >>> with_mean(np.asarray([[1.0, 0.0], [0.5, 0.5]]), range(2))
    array([[1.  , 0.  , 0.  ],
           [0.5 , 0.5 , 0.  ],
           [0.75, 0.25, 0.  ]])
    """
    xp = array_namespace(matrices)
    mean = xp.mean(matrices[..., positions.start : positions.stop, :], axis=-2, keepdims=True)
    taller = xp.concat([matrices, xp.astype(mean, matrices.dtype)], axis=-2)
    return xp.concat([taller, xp.zeros_like(taller[..., :1])], axis=-1)
