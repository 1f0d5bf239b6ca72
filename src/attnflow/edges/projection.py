"""The output projection of attention: where models keep it, and what it does to each head."""

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError
from attnflow.models.capture.call import DotProduct, describe_model

# Where the output projection lies: in the attention module itself, or in the module around it.
INSIDE = (
    "o_proj",  # LLaMA, Mistral, Qwen, Gemma, ViT
    "out_proj",  # BART, CLIP, OPT, GPT-J, nn.MultiheadAttention
    "c_proj",  # GPT-2
    "dense",  # ALBERT, GPT-NeoX, Phi, BLOOM
    "o",  # T5
    "out_lin",  # DistilBERT
    "Wo",  # ModernBERT
    "wo",
    "projection_layer",  # BEiT-type vision models
    "proj",  # Qwen-VL's vision tower
    "fc_out",
)
AROUND = (
    "output.dense",  # BERT, RoBERTa, ELECTRA, older ViT
    "o_proj",
    "out_proj",
    "output",
)


def head_projections(model: nn.Module, call: DotProduct) -> Tensor:
    """The part of the output projection that each head is given to: [heads, width, hidden].

    Raises AttentionError if it is not found.
    """
    _, n_heads, _, _ = call.shape
    width = call.value.shape[-1]
    projection = _find(model, call.module, n_heads * width)
    if projection is None:
        raise AttentionError(
            f"no output projection was found for {_name(model, call.module)} of "
            f"{describe_model(model)}",
            expected=f"one of {', '.join(INSIDE)}, or around it {', '.join(AROUND)}, that "
            f"takes {n_heads} heads of {width}",
            fix="Use edges='attention' or edges='gradient', or add its name to "
            "attnflow.edges.projection.INSIDE.",
        )
    matrix = _as_matrix(projection, call.value, n_heads * width)  # [heads * width, hidden]
    return matrix.reshape(n_heads, width, -1)


def _find(model: nn.Module, module: nn.Module | None, width: int) -> nn.Module | None:
    if module is None:
        return None
    names = {id(part): name for name, part in model.named_modules()}
    places = [(module, path) for path in INSIDE]
    parent = names.get(id(module), "").rpartition(".")[0]
    if id(module) in names and parent:
        places += [(model.get_submodule(parent), path) for path in AROUND]
    for start, path in places:
        found: object = start
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, nn.Module) and _n_inputs(found) in (width, None):
            return found
    return None


def _n_inputs(projection: nn.Module) -> int | None:
    """The number of features a projection takes, or None where it does not say."""
    if hasattr(projection, "in_features"):
        return int(projection.in_features)  # type: ignore[arg-type]
    return int(projection.nx) if hasattr(projection, "nx") else None  # type: ignore[arg-type]


def _as_matrix(projection: nn.Module, like: Tensor, width: int) -> Tensor:
    """The matrix [width, hidden] that an affine module multiplies rows with, without its bias."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    if isinstance(projection, nn.Linear) and type(projection).forward is nn.Linear.forward:
        return projection.weight.detach().T.to(dtype)
    # Quantized layers, adapters and transposed weights all do what they do to the unit vectors.
    unit = torch.eye(width, dtype=like.dtype, device=like.device)
    zero = unit.new_zeros(1, width)
    with torch.no_grad():
        rows: Tensor = projection.forward(unit).to(dtype) - projection.forward(zero).to(dtype)
    return rows


def _name(model: nn.Module, module: nn.Module | None) -> str:
    names = {id(part): name for name, part in model.named_modules()}
    return names.get(id(module), "") or type(module).__name__
