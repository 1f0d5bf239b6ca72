"""From captured layers of a batch to one AttentionGraph per example, with padding cut away."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnflow.arrays import to_numpy
from attnflow.graph import AttentionGraph
from attnflow.merging import ResidualWeight
from attnflow.models.masks import Padding
from attnflow.models.roles import Role


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
