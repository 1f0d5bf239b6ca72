"""From the captured layers of a batch to one AttentionGraph per example, with padding cut away."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnflow.arrays import to_numpy
from attnflow.graph import AttentionGraph
from attnflow.layers import ResidualWeight
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
    """Build one graph per example.

    layers: role and edges [batch, queries, keys] of each layer. Rows sum to 1; a row of zeros is
    replaced by attention of the position to itself.
    settings: added to the settings of each graph.
    """
    graphs = []
    for example in range(layers[0][1].shape[0]):
        parts: dict[Role, list[Tensor]] = {"self": [], "encoder": [], "decoder": [], "cross": []}
        for i, (role, layer) in enumerate(layers):
            place = f"example {example}, layer {i + 1}"
            parts[role].append(padding.cut(layer[example], role, example, place))
        labels = None if tokens is None else tokens[example]
        if parts["self"]:
            matrices = [_fill_empty_rows(layer) for layer in _on_one_device(parts["self"])]
            graph = AttentionGraph.from_weights(
                torch.stack(matrices), tokens=labels, residual_weight=residual_weight
            )
        else:
            graph = _join_encoder_decoder(parts, labels, residual_weight)
        graphs.append(replace(graph, settings={**graph.settings, **settings}))
    return graphs


def _on_one_device(layers: Sequence[Tensor]) -> list[Tensor]:
    """Move layers to the device of the first; a model may be spread over several devices."""
    return [layer.to(layers[0].device) for layer in layers]


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
