"""Gradient edges: attention that raises the score of the prediction.

Chefer et al. (2021) add the identity and multiply layers without rescaling rows, so that layers
with small gradients hardly count; GAF (Azarkhalili & Libbrecht 2025) computes flow on these edges.
"""

from torch import Tensor


def gradient_edges(weights: Tensor, gradient: Tensor) -> Tensor:
    """Return the positive part of attention times its gradient, [batch, heads, queries, keys].

    weights: attention [batch, heads, queries, keys]. gradient: of the score of the prediction.
    A row is 0 if the score gains nothing from what the position attends to.
    """
    return (weights * gradient).clamp_min(0)
