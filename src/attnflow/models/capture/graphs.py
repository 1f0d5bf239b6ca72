"""From the captured layers of a batch to one AttentionGraph per example, without padding.

`Padding` knows which positions of each example are tokens, and cuts layers down to them;
`build_graphs` builds the graphs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnflow.arrays import dtype_name, to_numpy
from attnflow.attentions import (
    ROW_SUM_TOLERANCE,
    Kept,
    check_rows,
    cut_layer,
    kept_positions,
    label_tokens,
)
from attnflow.errors import AttentionError, ShapeError, check_choice, check_names, check_type
from attnflow.graph import AttentionGraph
from attnflow.layers import ResidualWeight, is_causal, resolve_causal
from attnflow.models.capture.roles import Role

# Padding masks among the inputs of a model, and whether they mark tokens or padding.
MASKS = {
    "attention_mask": "tokens",
    "src_key_padding_mask": "padding",
    "key_padding_mask": "padding",
}


DECODER_MASKS = {"decoder_attention_mask": "tokens", "tgt_key_padding_mask": "padding"}


# The weight that a row may lose when padding is cut away.
TOLERANCE = 1e-4


class Padding:
    """The positions of each example that are tokens.

    n: the number of positions of the model or its encoder, with padding.
    n_decoder: the number of positions of the decoder; 0 if there is none.
    """

    def __init__(self, inputs: Mapping[str, Any], n_examples: int, n: int, n_decoder: int) -> None:
        self.own = kept_positions(_find_mask(inputs, MASKS), n_examples, n)
        self.decoder = self.own
        if n_decoder:
            mask = _find_mask(inputs, DECODER_MASKS)
            self.decoder = kept_positions(mask, n_examples, n_decoder)

    def cut(self, layer: Tensor, role: Role, example: int, place: str) -> Tensor:
        """Cut one example's layer [..., queries, keys] down to its tokens.

        place: the name of the layer in errors.
        Raises AttentionError if a token attends to padding.
        """
        rows = self.decoder[example] if role in ("decoder", "cross") else self.own[example]
        columns = self.decoder[example] if role == "decoder" else self.own[example]
        if role != "cross":
            square: Tensor = cut_layer(layer.reshape(-1, *layer.shape[-2:]), rows, place)
            return square.reshape(*layer.shape[:-2], *square.shape[-2:])
        queries = layer[..., _indices(rows, layer), :]
        cut = queries[..., _indices(columns, layer)]
        if float((queries.sum(-1) - cut.sum(-1)).max()) > TOLERANCE:
            raise AttentionError(
                f"in {place} a token attends to padding",
                expected="no attention to padding",
                fix="Pass the mask of the encoder as attention_mask, with 1 for tokens and 0 for "
                "padding.",
            )
        return cut

    def cut_rows(self, rows: Tensor, role: Role, example: int) -> Tensor:
        """Cut rows [rows, tokens] of one example's rollout down to its tokens.

        role: that of the last layer.
        Raises AttentionError if a token attends to padding.
        """
        kept = self._kept(role, example)
        cut = rows[:, _indices(kept, rows)]
        lost = float((rows.sum(-1) - cut.sum(-1)).max())
        if lost > TOLERANCE:
            raise AttentionError(
                f"in the rollout of example {example}, a token gives {lost:.3g} of its attention "
                "to padding",
                expected="no attention to padding",
                fix="Pass the mask of the tokenizer as attention_mask, with 1 for tokens and 0 for "
                "padding.",
            )
        return cut

    def places(self, positions: Sequence[int], role: Role, example: int) -> list[int]:
        """Where positions among the tokens of an example are, with padding counted.

        role: that of the last layer.
        """
        tokens = np.flatnonzero(self._kept(role, example))
        return [int(place) for place in tokens[list(positions)]]

    def n_tokens(self, role: Role, example: int) -> int:
        """The number of tokens of an example, those of the encoder included."""
        return int(self._kept(role, example).sum())

    def _kept(self, role: Role, example: int) -> Kept:
        """Which positions are tokens; in an encoder-decoder, encoder positions come first."""
        if role == "self":
            return self.own[example]
        kept: Kept = np.concatenate([self.own[example], self.decoder[example]])
        return kept

    def attends_backwards(self, layers: Sequence[Tensor]) -> bool:
        """Whether no token attends to a later token, in layers [batch, heads, queries, keys]."""
        return all(
            is_causal(self.cut(weights, "self", example, f"layer {i + 1}"))
            for i, layer in enumerate(layers)
            for example, weights in enumerate(layer.detach())
        )

    def last_tokens(self, role: Role) -> list[int]:
        """The index of the last token of each example, in the decoder if there is one."""
        masks = self.own if role == "self" else self.decoder
        return [int(np.flatnonzero(kept)[-1]) for kept in masks]


@dataclass(frozen=True)
class CapturedLayer:
    """The edges of one layer, for a batch with padding.

    edges: [batch, queries, keys]; rows sum to 1, or are 0.
    own: [batch, queries], the weight of the residual connection of each position; None for edges
    that get it from the option residual_weight.
    share: [batch, queries], the weight of the row of edges beside it; 1 - own by default.
    later: the largest edge to a later position, if it was computed before the edges were rounded.
    """

    role: Role
    edges: Tensor
    own: Tensor | None = None
    share: Tensor | None = None
    later: Tensor | None = None


@dataclass(frozen=True)
class Storage:
    """How graphs are stored while they are captured.

    dtype: the type of the weights: "float32", or "float16" or "bfloat16", which take half of the
    memory. Weights are computed in float32 and then rounded; methods compute in float32.
    offload: whether each layer moves to the memory of the host, so that the device holds only one.
    """

    dtype: str = "float32"
    offload: bool = False

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, tuple(STORED_TYPES))
        check_choice("offload", self.offload, (False, True))

    def store(self, role: Role, edges: Tensor, own: Tensor | None = None) -> CapturedLayer:
        """Round and move one layer. Before that, do what would be slow or inexact afterwards.

        edges: [batch, queries, keys]; they are changed.
        """
        if self == Storage() or role != "self":
            return CapturedLayer(role, edges, own)
        edges.diagonal(dim1=1, dim2=2).add_(edges.sum(-1) == 0)  # rows of 0 attend to themselves
        later = edges.triu(1).amax()
        if self.dtype != "float32":
            edges = edges.to(STORED_TYPES[self.dtype])
        return CapturedLayer(role, edges.cpu() if self.offload else edges, own, later=later)


STORED_TYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def build_graphs(
    layers: Sequence[CapturedLayer],
    padding: Padding,
    *,
    tokens: Sequence[Sequence[str]] | None,
    residual_weight: ResidualWeight,
    settings: Mapping[str, Any],
) -> list[AttentionGraph]:
    """Build one graph per example.

    A row of zeros is replaced by attention of the position to itself.
    residual_weight: of layers without their own. settings: added to the settings of each graph.
    """
    graphs = []
    for example in range(layers[0].edges.shape[0]):
        parts: dict[Role, list[Tensor]] = {"self": [], "encoder": [], "decoder": [], "cross": []}
        for i, layer in enumerate(layers):
            place = f"example {example}, layer {i + 1}"
            cut = padding.cut(layer.edges[example], layer.role, example, place)
            parts[layer.role].append(cut)
        labels = None if tokens is None else tokens[example]
        if parts["self"]:
            later = [layer.later for layer in layers if layer.later is not None]
            is_stored = len(later) == len(layers) and bool(padding.own[example].all())
            causal = all(float(edge) == 0 for edge in later) if is_stored else None
            graph = _build_stack(parts["self"], labels, residual_weight, causal)
        else:
            graph = _join_encoder_decoder(parts, labels, residual_weight)
        if layers[0].own is not None:
            graph = _add_own_weights(graph, layers, padding, example)
        graphs.append(replace(graph, settings={**graph.settings, **settings}))
    return graphs


def _add_own_weights(
    graph: AttentionGraph, layers: Sequence[CapturedLayer], padding: Padding, example: int
) -> AttentionGraph:
    """Replace A = W by A = share W + own I, with the weights of each position.

    graph: of the example, with a residual weight of 0.
    """
    n = graph.n_tokens
    own = graph.weights.new_zeros(graph.n_layers, n)
    share = graph.weights.new_ones(graph.n_layers, n)
    for i, layer in enumerate(layers):
        rows = (
            padding.own[example] if layer.role in ("self", "encoder") else padding.decoder[example]
        )
        first = 0 if layer.role in ("self", "encoder") else n - int(rows.sum())
        place = slice(first, first + int(rows.sum()))
        assert layer.own is not None
        cut = layer.own[example][_indices(rows, layer.own)].to(own)
        own[i, place] = cut
        share[i, place] = 1 - cut
        if layer.share is not None:
            share[i, place] = layer.share[example][_indices(rows, layer.own)].to(own)
    if not own.any() and bool((share == 1).all()):  # A = W, which need not be copied
        return replace(graph, weights=graph.attention, residual_weights=None)
    identity = torch.eye(n, dtype=own.dtype, device=own.device)
    weights = share.unsqueeze(-1) * graph.attention + own.unsqueeze(-1) * identity
    keeps_scale = layers[0].share is not None
    attention = share.unsqueeze(-1) * graph.attention if keeps_scale else graph.attention
    return replace(graph, weights=weights, attention=attention, residual_weights=None)


def check_examples(tokens: Sequence[Sequence[str]] | None, n_examples: int) -> None:
    """Raise ShapeError unless there are tokens for each example, or none at all."""
    if tokens is None:
        return
    check_type(tokens, Sequence, "Pass one list of texts for each example of the batch.")
    for texts in tokens:
        check_names("tokens", texts)
    if len(tokens) != n_examples:
        raise ShapeError(
            f"tokens has {len(tokens)} examples",
            expected=f"{n_examples}",
            fix="Pass one list of texts for each example of the batch.",
        )


def _find_mask(inputs: Mapping[str, Any], masks: Mapping[str, str]) -> Tensor | None:
    """The first padding mask [batch, positions] among the inputs: 1 for tokens, 0 for padding."""
    for name, marked in masks.items():
        mask = inputs.get(name)
        if isinstance(mask, Tensor) and mask.dim() == 2:
            if marked == "tokens":
                return (mask > 0).to(torch.float32)
            hidden = mask if mask.dtype == torch.bool else mask < 0
            return (~hidden).to(torch.float32)
    return None


def _indices(kept: Kept, like: Tensor) -> Tensor:
    return torch.as_tensor(np.flatnonzero(kept), device=like.device)


def _on_one_device(layers: Sequence[Tensor]) -> list[Tensor]:
    """Move layers to the device of the first; a model may be spread over several devices."""
    return [layer.to(layers[0].device) for layer in layers]


def _build_stack(
    layers: Sequence[Tensor],
    tokens: Sequence[str] | None,
    residual_weight: ResidualWeight,
    causal: bool | None,
) -> AttentionGraph:
    """The graph of a single stack; each layer [n, n] is copied once, into the stack.

    causal: known for layers that were stored, which are not checked again; None for others.
    """
    n = layers[0].shape[-1]
    stacked = layers[0].new_empty(len(layers), n, n)
    for matrix, layer in zip(stacked, layers, strict=True):
        matrix.copy_(layer)
    if causal is None:
        sums = stacked.sum(-1)
        stacked.diagonal(dim1=1, dim2=2).add_(sums == 0)  # rows of 0 attend to themselves
        sums = torch.where(sums == 0, 1.0, sums)
        # All layers at once, because a GPU has to wait for each answer.
        tolerance = ROW_SUM_TOLERANCE[dtype_name(stacked)]
        if not bool((stacked.amin() >= 0) & ((sums - 1).abs() <= tolerance).all()):
            for i, matrix in enumerate(stacked):
                check_rows(matrix, f"layer {i + 1}", leading="example")
        stacked.div_(sums.unsqueeze(-1))
    causal = resolve_causal(stacked, None) if causal is None else causal and n > 1
    return AttentionGraph.from_checked(stacked, label_tokens(tokens, n), residual_weight, causal)


def _fill_empty_rows(layer: Tensor) -> Tensor:
    """Let positions whose row is 0 attend to themselves, in a layer [n, n]."""
    empty = layer.sum(-1) == 0
    return layer + torch.diag_embed(empty.to(layer.dtype))


def _join_encoder_decoder(
    parts: Mapping[Role, Sequence[Tensor]],
    tokens: Sequence[str] | None,
    residual_weight: ResidualWeight,
) -> AttentionGraph:
    """Build the graph of an encoder-decoder.

    In an empty row of cross-attention a position cannot attend to itself, because its own column
    lies outside the block. Such rows are filled evenly first and corrected in the graph.
    """
    blocks = _on_one_device([*parts["encoder"], *parts["decoder"], *parts["cross"]])
    n_encoder, n_decoder = len(parts["encoder"]), len(parts["decoder"])
    cross = blocks[n_encoder + n_decoder :]
    empty = [layer.sum(-1) == 0 for layer in cross]
    graph = AttentionGraph.encoder_decoder(
        encoder=[_fill_empty_rows(layer) for layer in blocks[:n_encoder]],
        decoder=[_fill_empty_rows(layer) for layer in blocks[n_encoder:][:n_decoder]],
        cross=[
            layer + rows[:, None].to(layer.dtype) / layer.shape[1]
            for layer, rows in zip(cross, empty, strict=True)
        ],
        tokens=tokens,
        residual_weight=residual_weight,
    )
    first = cross[0].shape[1]  # decoder positions follow those of the encoder
    for block, rows in enumerate(empty):
        positions = [first + int(row) for row in np.flatnonzero(to_numpy(rows))]
        graph = _attend_to_themselves(graph, n_encoder + 2 * block + 1, positions)
    return graph


def _attend_to_themselves(
    graph: AttentionGraph, layer: int, positions: Sequence[int]
) -> AttentionGraph:
    """Replace the rows of some positions of a layer (from 0) by attention to themselves."""
    if not positions:
        return graph
    assert graph.receptive_field is not None
    field = graph.receptive_field.copy()
    weights, attention = graph.weights.clone(), graph.attention.clone()
    for position in positions:
        for matrices in (weights, attention):
            matrices[layer, position] = 0
            matrices[layer, position, position] = 1
        field[layer, position, position] = True
    return replace(graph, weights=weights, attention=attention, receptive_field=field)
