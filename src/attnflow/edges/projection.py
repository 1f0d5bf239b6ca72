"""The output projection of an attention layer, for edges that depend on it."""

from torch import Tensor, nn

from attnflow.errors import AttentionError
from attnflow.models.capture.call import AttentionCall, describe_model
from attnflow.models.capture.linear_modules import module_matrix

# Names of the output projection inside the attention module.
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
    "proj",  # vision tower of Qwen-VL
    "fc_out",
)
# Names of the output projection in the module that contains the attention module.
AROUND = (
    "output.dense",  # BERT, RoBERTa, ELECTRA, older ViT
    "o_proj",
    "out_proj",
    "output",
)


def head_projections(call: AttentionCall) -> Tensor:
    """Return the part of the output projection that applies to each head, [heads, width, hidden].

    The bias is left out. Raises AttentionError if the projection is not found.
    """
    _, n_heads, _, _ = call.shape
    assert call.value is not None
    width = call.value.shape[-1]
    projection = _find_projection(call, n_heads * width)
    if projection is None:
        raise AttentionError(
            f"{_module_name(call)} of {describe_model(call.model)} has no known output projection",
            expected=f"a module that takes {n_heads} heads of width {width}, with one of the names "
            f"{', '.join(INSIDE)}; or around it {', '.join(AROUND)}",
            fix="Use edges='attention' or edges='gradient', or add the name to "
            "attnflow.edges.projection.INSIDE.",
        )
    matrix = module_matrix(projection, n_heads * width, call.value)  # [heads * width, hidden]
    return matrix.reshape(n_heads, width, -1)


def _find_projection(call: AttentionCall, width: int) -> nn.Module | None:
    """The first module under one of the known names that takes `width` features."""
    if call.module is None:
        return None
    candidates = [(call.module, path) for path in INSIDE]
    names = {id(module): name for name, module in call.model.named_modules()}
    parent = names.get(id(call.module), "").rpartition(".")[0]
    if parent:
        candidates += [(call.model.get_submodule(parent), path) for path in AROUND]
    for start, path in candidates:
        module: object = start
        for name in path.split("."):
            module = getattr(module, name, None)
        if isinstance(module, nn.Module) and _n_inputs(module) in (width, None):
            return module
    return None


def _n_inputs(projection: nn.Module) -> int | None:
    """The number of input features, or None if the module has no such attribute."""
    if hasattr(projection, "in_features"):
        return int(projection.in_features)  # type: ignore[arg-type]
    return int(projection.nx) if hasattr(projection, "nx") else None  # type: ignore[arg-type]


def _module_name(call: AttentionCall) -> str:
    """The path of the attention module in the model, or its class."""
    names = {id(module): name for name, module in call.model.named_modules()}
    return names.get(id(call.module), "") or type(call.module).__name__
