"""Rollout while a model runs: only the product of the layers so far is kept."""

import torch
from torch import Tensor

from attnflow.merging import ResidualWeight
from attnflow.models.roles import Role


class RunningRollout:
    """The product of the layers that have run, for a batch.

    own: [batch, n, n], positions of the model or its encoder over the tokens of the input.
    decoder: [batch, m, n + m], positions of the decoder over those of encoder and decoder.
    """

    def __init__(self, residual_weight: ResidualWeight) -> None:
        self.residual_weight = residual_weight
        self.n_layers = 0
        self.own: Tensor | None = None
        self.decoder: Tensor | None = None

    def add(self, layer: Tensor, role: Role) -> None:
        """Put a layer [batch, queries, keys] on top, with its residual connection."""
        residual = self._next_residual()
        if role in ("self", "encoder"):
            if self.own is not None and self.own.shape != layer.shape:
                return  # another input: refused, with its name, once the model has run
            self.own = _mix(residual, layer, self.own)
        elif role == "decoder":
            self.decoder = _mix(residual, layer, self._start(layer))
        else:
            below = self._start(layer.new_zeros(layer.shape[0], layer.shape[1], 0))
            assert self.own is not None
            below *= residual
            n = self.own.shape[-1]
            below[..., :n] += (1 - residual) * (layer.to(self.own.device) @ self.own)
            self.decoder = below

    def product(self) -> Tensor:
        """[batch, positions, tokens] of the whole model."""
        assert self.own is not None
        if self.decoder is None:
            return self.own
        n_decoder = self.decoder.shape[1]
        encoder = torch.nn.functional.pad(self.own, (0, n_decoder))
        return torch.cat([encoder, self.decoder], dim=1)

    def _next_residual(self) -> float:
        """The residual weight of the next layer; the last one where too few were given.

        How many are needed is only known, and checked, after the model has run.
        """
        layer, self.n_layers = self.n_layers, self.n_layers + 1
        if isinstance(self.residual_weight, int | float):
            return float(self.residual_weight)
        return float(self.residual_weight[min(layer, len(self.residual_weight) - 1)])

    def _start(self, layer: Tensor) -> Tensor:
        """The decoder's positions so far: at first, each is its own token."""
        if self.decoder is not None:
            return self.decoder
        assert self.own is not None
        batch, n_decoder = layer.shape[:2]
        unit = torch.eye(n_decoder, dtype=self.own.dtype, device=self.own.device)
        own = torch.nn.functional.pad(unit, (self.own.shape[-1], 0))
        return own.expand(batch, *own.shape).clone()


def _mix(residual: float, layer: Tensor, below: Tensor | None) -> Tensor:
    """((1 - r) W + r I) P; the first layer stands on the identity."""
    if below is None:
        mixed = layer * (1 - residual)
        mixed.diagonal(dim1=-2, dim2=-1).add_(residual)
        return mixed
    return torch.baddbmm(below, layer.to(below.device), below, beta=residual, alpha=1 - residual)
