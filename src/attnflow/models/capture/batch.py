"""The attention of all layers for a padded batch of texts, at little more than the model's cost.

For models with one stack of layers in the attention registry of transformers. Weights are computed
once, serve for the output of the layer too, and are merged over heads. Padding is on the right and
hidden by the mask: no token attends to it, so that its rows are cut away at the very end.
`capture_graphs` is the way for every other model, and for checks of everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError
from attnflow.layers import Heads
from attnflow.models.capture import hooks as registry
from attnflow.models.capture.build import merge_call
from attnflow.models.capture.call import AttentionCall, DotProduct, describe_model
from attnflow.models.capture.hooks import check_run
from attnflow.models.capture.roles import Roles


def can_run_padded(model: nn.Module) -> bool:
    """Whether `run_padded` can be tried: whether the model uses the registry, and is one stack."""
    parts = list(registry.outermost(model))
    return bool(parts) and registry.in_registry(model) and not Roles(model).is_encoder_decoder


def run_padded(
    model: nn.Module, inputs: Mapping[str, Any], heads: Heads = "mean"
) -> tuple[list[Tensor], Any]:
    """Run a model that `registry.switch` has switched over; several threads can at the same time.

    inputs: tensors [batch, tokens], padded on the right, with an attention mask.
    heads: "mean", "max", "min" or the number of one.
    Returns the merged heads [batch, queries, keys] of each layer, and the output of the model. Rows
    sum to 1. Rows of padding mean nothing.
    Raises AttentionError if the layers are not all over the tokens that were given.
    """
    check_run(model, inputs)
    layers: list[Tensor] = []

    def look(call: AttentionCall) -> Tensor | None:
        merged, output = attend(call, heads, f"layer {len(layers) + 1}")
        layers.append(merged)
        return output

    with torch.inference_mode(), registry.observed(look):
        output = model(**inputs)
    batch, n = inputs["input_ids"].shape
    if not layers or any(layer.shape != (batch, n, n) for layer in layers):
        seen = ", ".join(sorted({str(list(layer.shape)) for layer in layers})) or "none"
        raise AttentionError(
            f"{describe_model(model)} ran layers of attention of the shapes {seen}",
            expected=f"[{batch}, {n}, {n}] for {batch} texts of {n} tokens",
            fix="Use capture_graphs.",
        )
    return layers, output


def attend(call: AttentionCall, heads: Heads, what: str) -> tuple[Tensor, Tensor | None]:
    """Merge the heads of a layer into [batch, queries, keys], and give the layer's output too.

    The output is [batch, heads, queries, width].
    """
    assert isinstance(call, DotProduct)
    special = call.softcap is not None or call.sinks is not None or call.position_bias is not None
    if special or heads != "mean" or call.query.dtype != torch.float32:
        return merge_call(
            replace(call, wants_output=call.value.dtype == torch.float32), heads, what
        )
    key = call.for_heads(call.key)
    scores = torch.matmul(call.query * call.scaling, key.transpose(-1, -2))
    if call.mask is not None and call.mask.dtype != torch.bool:
        scores.add_(call.mask)
    visible = call.visible()
    if visible is not None:
        scores.masked_fill_(visible.logical_not(), torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1)
    output = torch.matmul(weights, call.for_heads(call.value))
    merged = weights.sum(1)
    return merged.div_(merged.sum(-1, keepdim=True)), output


def raw_rows(layers: Sequence[Tensor], numbers: Sequence[int], places: Tensor | None) -> Tensor:
    """Raw attention of some positions: [batch, layers, positions, tokens].

    numbers: of layers, from 1. places: [batch, positions], or None for all.
    """
    if places is None:
        return torch.stack([layers[number - 1] for number in numbers], dim=1)
    texts = torch.arange(len(places), device=places.device)[:, None]
    return torch.stack([layers[number - 1][texts, places] for number in numbers], dim=1)


def rollout_rows(
    layers: Sequence[Tensor],
    numbers: Sequence[int],
    places: Tensor | None,
    residual: Sequence[float],
) -> Tensor:
    """Rollout of some positions: [batch, layers, positions, tokens].

    layers: W of each layer, [batch, n, n], without the residual connection. residual: r of each.
    numbers: of layers, from 1, distinct. places: [batch, positions], or None for all.
    Rows of all layers are pushed down together: v A = (1 - r) v W + r v. For all positions, whole
    matrices are multiplied.
    """
    if places is None:
        return _full_rollout(layers, numbers, residual)
    batch, n_places = places.shape
    texts = torch.arange(batch, device=places.device)[:, None]
    block: Tensor | None = None  # [batch, rows, n], the highest layer first
    for number in range(max(numbers), 0, -1):
        layer, r = layers[number - 1], residual[number - 1]
        if block is not None:
            block = torch.baddbmm(block, block, layer, beta=r, alpha=1 - r)
        if number in numbers:
            start = layer[texts, places] * (1 - r)
            start.scatter_add_(2, places[:, :, None], torch.full_like(start[:, :, :1], r))
            block = start if block is None else torch.cat([block, start], dim=1)
    assert block is not None
    by_layer = block.view(batch, len(numbers), n_places, -1)
    highest_first = sorted(numbers, reverse=True)
    return by_layer[:, [highest_first.index(number) for number in numbers]]


def _full_rollout(
    layers: Sequence[Tensor], numbers: Sequence[int], residual: Sequence[float]
) -> Tensor:
    """Rollout of all positions, [batch, layers, positions, tokens]."""
    product: Tensor | None = None
    kept = {}
    for number in range(1, max(numbers) + 1):
        layer, r = layers[number - 1], residual[number - 1]
        if product is None:
            product = layer * (1 - r)
            product.diagonal(dim1=-2, dim2=-1).add_(r)
        else:
            product = torch.baddbmm(product, layer, product, beta=r, alpha=1 - r)
        if number in numbers:
            kept[number] = product
    return torch.stack([kept[number] for number in numbers], dim=1)
