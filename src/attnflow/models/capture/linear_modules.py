"""Matrices of linear modules, also of those whose weights are quantized, offloaded or hidden.

Quantized layers compute x -> x W + b by kernels that show neither W nor the operations. Applied to
unit vectors, they show W. `ResidualStream` follows them by that.
"""

from typing import Any

import torch
from torch import Tensor, nn

# How far a module may be from the linear map of its matrix, relative to the length of its output.
# Layers that also quantize their input, such as those of LLM.int8(), round it to about 0.01.
ROUNDING = 0.1


def module_matrix(module: nn.Module, width: int, like: Tensor) -> Tensor:
    """Return the matrix [width, outputs] of an affine module, without its bias.

    like: a tensor with the type and device of the module's input. At least float32.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    if shows_weight(module):
        return module.weight.detach().T.to(dtype)  # type: ignore[operator]
    # Applied to unit vectors, which works for quantized layers, adapters and transposed weights.
    unit = torch.eye(width, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        rows: Tensor = module.forward(unit).to(dtype)
        bias: Tensor = module.forward(torch.zeros_like(unit[:1])).to(dtype)
    return rows - bias


def shows_weight(module: nn.Module) -> bool:
    """Whether the module is a linear layer whose weights are an ordinary tensor, in its place."""
    return (
        isinstance(module, nn.Linear)
        and type(module).forward is nn.Linear.forward
        and "forward" not in vars(module)  # replaced by accelerate, which moves the weights
        and type(module.weight) in (Tensor, nn.Parameter)
    )


def hides_operations(module: nn.Module) -> bool:
    """Whether the module is linear and computes by other operations than `F.linear`."""
    if not hasattr(module, "in_features") or not hasattr(module, "out_features"):
        return False
    if next(module.children(), None) is not None:  # an adapter around a layer
        return False
    is_own = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    return not is_own or type(module.weight) not in (Tensor, nn.Parameter)


def measure_linear(module: Any, entering: Tensor, leaving: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return matrix [inputs, outputs] and bias [..., outputs] of what a module computed.

    entering, leaving: its input and output. The bias includes what the module rounded.
    Returns None if the module is not affine.
    """
    if leaving.shape[:-1] != entering.shape[:-1]:
        return None
    matrix = module_matrix(module, entering.shape[-1], entering)
    with torch.no_grad():
        bias = leaving.to(matrix) - entering.to(matrix) @ matrix
        rounded = bias - module.forward(torch.zeros_like(entering[..., :1, :])).to(matrix)
    lengths = torch.linalg.vector_norm(leaving.to(matrix)), torch.linalg.vector_norm(rounded)
    return (matrix, bias) if float(lengths[1]) <= ROUNDING * float(lengths[0]) else None
