"""ALTI and projected contributions: how much of the output of a block comes from each position.

Both compare what a position contributes with what all contributions add up to, T_ij with y_i.
T_ij is what j adds to i through attention, and for j = i also the residual stream.
"""

import torch
from torch import Tensor

from attnflow.head_merge import Heads
from attnflow.models.capture.contributions import LayerContributions


def alti_edges(layer: LayerContributions, *, heads: Heads) -> Tensor:
    """Return max(0, |y_i| - |y_i - T_ij|) with L1 norms (Ferrando et al. 2022).

    L1, because a few dimensions with huge activations dominate L2 norms. In models with
    post-normalization, T and y are taken after the normalization of the attention layer.
    """
    return layer.score(_proximity, heads=heads, norms=1, fused=_fused_proximity)


def contribution_edges(layer: LayerContributions, *, heads: Heads) -> Tensor:
    """Return max(0, <T_ij, y_i> / <y_i, y_i>), the projection on the output.

    The form of Cunningham & Cirone (2026), with the residual stream as one of the contributions.
    Before the positive part is taken, a row sums to 1 up to the share of biases.
    """
    return layer.score(_projection, heads=heads, norms=1, fused=_fused_projection)


def _proximity(parts: Tensor, total: Tensor) -> Tensor:
    length = total.abs().sum(-1, keepdim=True)
    distance = (total.unsqueeze(2) - parts).abs_().sum(-1)
    return (length - distance).clamp_min_(0)


def _fused_proximity(layer: LayerContributions, heads: slice, norms: int) -> Tensor | None:
    if not layer.is_for_compiled_code():
        return None
    # Imported here, because short inputs need neither Numba nor Triton.
    if layer.residual.is_cuda:
        from attnflow.models.capture import triton_proximity

        return triton_proximity.score_layer(layer, heads, norms)
    from attnflow.models.capture import proximity

    return proximity.score_layer(layer, heads, norms)


def _projection(parts: Tensor, total: Tensor) -> Tensor:
    projected = (parts @ total.unsqueeze(-1)).squeeze(-1)
    return (projected / total.square().sum(-1, keepdim=True)).clamp_min_(0)


def _fused_projection(layer: LayerContributions, heads: slice, norms: int) -> Tensor:
    """The same from the directions that are moved back to the heads: <v W, y> = <v, W y>."""
    total = layer.total(norms)
    directions = total / total.square().sum(-1, keepdim=True)
    pulled = torch.einsum("hwd,bqd->bhqw", layer.matrix(heads, norms), directions)
    columns = layer.values(heads).transpose(-1, -2)

    def products(weights: Tensor, rows: slice) -> Tensor:
        dots = pulled[:, :, rows] @ columns[..., : weights.shape[-1]]
        return (weights * dots).sum(1).clamp_min_(0)

    return layer.score_products(products, _projection, heads, norms)
