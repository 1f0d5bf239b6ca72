"""Merged attention of padded batches of texts, at little more than the cost of the model.

For corpus runs on models with a single stack in the attention registry of transformers. Layers
stay batched, and several threads can run one model. Padding is on the right and masked, so tokens
do not attend to it, and its rows are cut away at the end. `capture_graphs` supports all other
models and checks every layer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError
from attnflow.head_merge import Heads
from attnflow.models.capture import transformers_hooks
from attnflow.models.capture.call import (
    AttentionCall,
    DotProductCall,
    describe_model,
    name_layers,
)
from attnflow.models.capture.forward import check_arguments
from attnflow.models.capture.fused_attention import has_kernels
from attnflow.models.capture.merge import merge_call
from attnflow.models.capture.mixers import find_mixers
from attnflow.models.capture.roles import Roles
from attnflow.models.model_state import evaluation_mode


def supports_padded_batches(model: nn.Module) -> bool:
    """Whether the model has attention of the registry only, and is not an encoder-decoder."""
    return (
        not find_mixers(model)
        and bool(transformers_hooks.outermost_models(model))
        and transformers_hooks.uses_registry(model)
        and not Roles(model).is_encoder_decoder
    )


def run_padded(
    model: nn.Module, inputs: Mapping[str, Any], heads: Heads = "mean"
) -> tuple[list[Tensor], Any]:
    """Run a model that `install_hooks` has prepared; several threads can do so at the same time.

    inputs: tensors [batch, tokens], padded on the right, with an attention mask.
    heads: "mean", "max", "min" or the number of a head.
    Returns the merged heads [batch, queries, keys] of each layer, and the output of the model. Rows
    sum to 1; rows of padding have no meaning.
    Raises AttentionError if a layer attends to something else than the tokens.
    """
    check_arguments(model, inputs)
    layers: list[Tensor] = []

    def observe(call: AttentionCall) -> None:
        assert isinstance(call, DotProductCall)
        call.output_from_weights = call.value.dtype == torch.float32 and not has_kernels(call)
        call.in_one_block = heads == "mean" and _is_plain(call)
        layers.append(merge_call(call, heads))

    observed = transformers_hooks.observe_thread(model, name_layers(model, observe))
    with evaluation_mode(model), torch.inference_mode(), observed:
        output = model(**inputs)
    batch, n = inputs["input_ids"].shape
    if not layers or any(layer.shape != (batch, n, n) for layer in layers):
        shapes = ", ".join(sorted({str(list(layer.shape)) for layer in layers})) or "none"
        raise AttentionError(
            f"{describe_model(model)} ran attention layers of these shapes: {shapes}",
            expected=f"[{batch}, {n}, {n}] for {batch} texts of {n} tokens",
            fix="Use capture_graphs.",
        )
    return layers, output


def _is_plain(call: DotProductCall) -> bool:
    """Whether the weights are a masked softmax in float32, and nothing else."""
    extras = (call.softcap, call.sinks, call.position_bias)
    return call.query.dtype == torch.float32 and all(extra is None for extra in extras)


def raw_rows(layers: Sequence[Tensor], numbers: Sequence[int], positions: Tensor | None) -> Tensor:
    """Raw attention [batch, layers, positions, tokens] of some positions.

    numbers: of layers, from 1. positions: [batch, positions], or None for all.
    """
    if positions is None:
        return torch.stack([layers[number - 1] for number in numbers], dim=1)
    examples = torch.arange(len(positions), device=positions.device)[:, None]
    return torch.stack([layers[number - 1][examples, positions] for number in numbers], dim=1)
