"""From captured layers of a batch to one AttentionGraph per example, with padding cut away.

From the weights of one running layer to one matrix per example, without keeping all heads.

Keeping the weights of all heads beside a graph, from the same run of the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnflow.arrays import to_numpy
from attnflow.attentions import Attentions, rescale_rows
from attnflow.graph import AttentionGraph
from attnflow.layers import Heads, ResidualWeight, merge_heads
from attnflow.models.capture.call import AttentionCall, DotProduct, Scratch
from attnflow.models.capture.padding import Padding
from attnflow.models.capture.roles import Role


def build_graphs(
    layers: Sequence[tuple[Role, Tensor]],
    padding: Padding,
    *,
    tokens: Sequence[Sequence[str]] | None,
    residual_weight: ResidualWeight,
    settings: Mapping[str, Any],
) -> list[AttentionGraph]:
    """One graph per example.

    layers: with their roles, [batch, queries, keys]; rows sum to 1, or are 0 where nothing but the
    residual connection reaches a position.
    """
    graphs = []
    for example in range(layers[0][1].shape[0]):
        parts: dict[Role, list[Tensor]] = {"self": [], "encoder": [], "decoder": [], "cross": []}
        for i, (role, layer) in enumerate(layers):
            what = f"example {example}, layer {i + 1}"
            parts[role].append(padding.cut(layer[example], role, example, what))
        labels = None if tokens is None else tokens[example]
        if parts["self"]:
            matrices = torch.stack([_with_identity(layer) for layer in _together(parts["self"])])
            graph = AttentionGraph.from_weights(
                matrices, tokens=labels, residual_weight=residual_weight
            )
        else:
            graph = _join(parts, labels, residual_weight)
        graphs.append(replace(graph, settings={**graph.settings, **settings}))
    return graphs


def _together(layers: Sequence[Tensor]) -> list[Tensor]:
    """Layers on the device of the first, since a model may be spread over several."""
    return [layer.to(layers[0].device) for layer in layers]


def _with_identity(layer: Tensor) -> Tensor:
    """A layer [n, n] in which rows of zeros attend to their own position."""
    empty = layer.sum(-1) == 0
    return layer + torch.diag_embed(empty.to(layer.dtype))


def _join(
    parts: Mapping[Role, Sequence[Tensor]],
    tokens: Sequence[str] | None,
    residual_weight: ResidualWeight,
) -> AttentionGraph:
    """The graph of an encoder-decoder.

    An empty row of cross-attention cannot attend to its own position inside its block, so it is
    filled for the moment and set right in the graph.
    """
    everything = _together([*parts["encoder"], *parts["decoder"], *parts["cross"]])
    n_encoder, n_decoder = len(parts["encoder"]), len(parts["decoder"])
    cross = everything[n_encoder + n_decoder :]
    empty = [layer.sum(-1) == 0 for layer in cross]
    graph = AttentionGraph.encoder_decoder(
        encoder=[_with_identity(layer) for layer in everything[:n_encoder]],
        decoder=[_with_identity(layer) for layer in everything[n_encoder:][:n_decoder]],
        cross=[
            layer + rows[:, None].to(layer.dtype) / layer.shape[1]
            for layer, rows in zip(cross, empty, strict=True)
        ],
        tokens=tokens,
        residual_weight=residual_weight,
    )
    for block, rows in enumerate(empty):
        first = cross[0].shape[1]  # decoder positions follow those of the encoder
        alone = [first + int(row) for row in np.flatnonzero(to_numpy(rows))]
        graph = _leave_alone(graph, n_encoder + 2 * block + 1, alone)
    return graph


def _leave_alone(graph: AttentionGraph, layer: int, positions: Sequence[int]) -> AttentionGraph:
    """The graph with positions of a layer that attend to nothing but themselves."""
    if not positions:
        return graph
    field = graph.receptive_field
    assert field is not None
    field = field.copy()
    weights, attention = graph.weights.clone(), graph.attention.clone()
    for position in positions:
        for matrices in (weights, attention):
            matrices[layer, position] = 0
            matrices[layer, position, position] = 1
        field[layer, position, position] = True
    return replace(graph, weights=weights, attention=attention, receptive_field=field)


# How two heads are taken together. A mean is a sum until rows are rescaled.
COMBINE: dict[Any, Any] = {"mean": torch.add, "max": torch.maximum, "min": torch.minimum}


def merge_call(call: AttentionCall, heads: Heads, what: str) -> tuple[Tensor, Tensor | None]:
    """Merge the heads of a layer into [batch, queries, keys]; rows sum to 1.

    Mean, max and min are taken block by block, so that the weights of all heads never exist at
    once. heads: as in AttentionGraph.from_attentions. `what` names the layer in errors.
    Also returns the output of the layer, where it was wanted and all weights were computed.
    """
    n_heads = call.shape[1]
    if isinstance(heads, int) and -n_heads <= heads < n_heads:
        first = heads % n_heads
        return rescale(call, call.weights(slice(first, first + 1)))[:, 0], None
    if isinstance(heads, str) and heads in COMBINE:
        merged, output = _fold(call, COMBINE[heads])
        if heads == "min":  # which may leave nothing in a row
            return merge_examples(merged[:, None], heads, what), output
        return rescale_rows(merged), output
    return merge_examples(rescale(call, call.weights()), heads, what), None


def _fold(call: AttentionCall, combine: Any) -> tuple[Tensor, Tensor | None]:
    """Combine the heads, one after another, into [batch, queries, keys]."""
    batch, _, n_queries, n_keys = call.shape
    merged = torch.empty(0)
    scratch = Scratch()
    attending = call if isinstance(call, DotProduct) and call.wants_output else None
    output = None if attending is None else attending.empty_output()
    for heads, rows in call.blocks():
        weights = call.weights(heads, rows, scratch)
        if attending is not None and output is not None:
            attending.attend(weights, heads, rows, output)
        weights = rescale(call, weights)
        if heads.start == rows.start == 0:
            merged = weights.new_empty(batch, n_queries, n_keys)
        part = merged[:, rows]
        for head, head_weights in enumerate(weights.unbind(1)):
            if heads.start == head == 0:
                part.copy_(head_weights)
            else:
                combine(part, head_weights, out=part)
    return merged, output


def merge_examples(weights: Tensor, heads: Heads, what: str) -> Tensor:
    """Merge the heads of [batch, heads, queries, keys] by `merge_heads`, example by example."""
    return torch.stack([merge_heads(example, heads, what) for example in weights])


def rescale(call: AttentionCall, weights: Tensor) -> Tensor:
    """Weights whose rows sum to 1, where a sink has taken a part of them.

    A sink is no token and has no value, so nothing reaches a position through it.
    """
    if isinstance(call, DotProduct) and call.sinks is not None:
        scaled: Tensor = rescale_rows(weights)
        return scaled
    return weights


BYTES = 2  # of a float16


class KeptHeads:
    """The weights of all heads of a run, as float16, as long as they take no more than `limit`.

    limit: bytes for all layers and examples together; None for no limit.
    examples: after the run, one Attentions for each example, or None if nothing was kept: there was
    too much, or the model is an encoder-decoder, whose cross-attention is not square.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.examples: list[Attentions] | None = None
        self._layers: list[Tensor] | None = []
        self._bytes = 0

    def look(self, call: AttentionCall, role: Role) -> None:
        """Keep the weights of one layer, or give up, before computing them, if they do not fit."""
        if self._layers is None:
            return
        batch, n_heads, n_queries, n_keys = call.shape
        self._bytes += batch * n_heads * n_queries * n_keys * BYTES
        if role != "self" or (self.limit is not None and self._bytes > self.limit):
            self._layers = None
            return
        with torch.no_grad():
            kept = [
                rescale(call, call.weights(slice(head, head + 1))).to(torch.float16).cpu()
                for head in range(n_heads)
            ]
        self._layers.append(torch.cat(kept, 1))

    def finish(self, padding: Padding, tokens: Sequence[Sequence[str]] | None) -> None:
        """Make the examples, with padding cut away."""
        layers, self._layers = self._layers, None
        if not layers:
            return
        self.examples = []
        for example in range(layers[0].shape[0]):
            # Cutting checks sums, for which float16 is too coarse.
            cut = [
                padding.cut(layer[example].float(), "self", example, f"layer {i + 1}")
                for i, layer in enumerate(layers)
            ]
            halves = [np.asarray(layer.to(torch.float16)) for layer in cut]
            self.examples.append(Attentions(halves, None if tokens is None else tokens[example]))
