"""Affine maps of positions: how a vector at a position depends on what attention put there.

Between the output of attention and the residual stream, a model projects heads, adds biases, scales
and normalizes. With the statistics of normalization frozen at their real values, each of these
steps is an affine map that acts on every position separately. `Affine` is such a map and composes
with the steps that models apply.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Affine:
    """The map v_i -> scale_i * gain * center((gate_i * v_i) @ matrix) + bias_i of positions i.

    matrix: [inputs, outputs]; None for the identity.
    gate: [batch, positions, inputs], factors before the matrix, as in gated attention.
    centered: whether the mean over features is subtracted; only without a matrix.
    gain: [outputs] or a single number, factors after it.
    scale: [batch, positions, 1], a factor for each position.
    bias: broadcastable to [batch, positions, outputs], or None for 0.
    """

    matrix: Tensor | None = None
    gate: Tensor | None = None
    centered: bool = False
    gain: Tensor | None = None
    scale: Tensor | None = None
    bias: Tensor | None = None

    def project(self, matrix: Tensor, bias: Tensor | None) -> "Affine":
        """Follow the map by v -> v @ matrix + bias."""
        matrix = _precise(matrix)
        moved = None if self.bias is None else self.bias @ matrix
        if bias is not None:
            moved = _precise(bias) if moved is None else moved + _precise(bias)
        if self.gain is not None:
            matrix = self.gain.unsqueeze(-1) * matrix
        if self.centered:
            matrix = matrix - matrix.mean(0, keepdim=True)
        if self.matrix is not None:
            matrix = self.matrix @ matrix
        return replace(self, matrix=matrix, centered=False, gain=None, bias=moved)

    def multiply(self, factor: Tensor | float, positions: tuple[int, int]) -> "Affine | None":
        """Follow the map by v -> factor * v; None if the result has no such form.

        factor: a number; a tensor [outputs], [batch, positions, 1], with the first two axes
        possibly merged; or, before the matrix, [batch, positions, inputs]. positions: the sizes of
        batch and positions.
        """
        factor = _precise(torch.as_tensor(factor))
        if factor.numel() == 1:
            factor = factor.reshape(())
        bias = self.bias
        if factor.dim() == 0 or factor.numel() == factor.shape[-1]:
            factor = factor.reshape(factor.shape[-1:])
            gain = factor if self.gain is None else self.gain * factor
            return replace(self, gain=gain, bias=None if bias is None else bias * factor)
        n_rows = positions[0] * positions[1]
        if factor.numel() == n_rows:
            factor = factor.reshape(*positions, 1)
            scale = factor if self.scale is None else self.scale * factor
            return replace(self, scale=scale, bias=None if bias is None else bias * factor)
        if factor.numel() % n_rows or self.centered or self.matrix is not None or bias is not None:
            return None
        factor = factor.reshape(*positions, -1)
        for earlier in (self.gate, self.gain, self.scale):
            factor = factor if earlier is None else factor * earlier
        return replace(self, gate=factor, gain=None, scale=None)

    def add(self, bias: Tensor | float) -> "Affine":
        """Follow the map by v -> v + bias."""
        moved = _precise(bias) if isinstance(bias, Tensor) else torch.as_tensor(float(bias))
        return replace(self, bias=moved if self.bias is None else self.bias + moved)

    def center(self) -> "Affine | None":
        """Follow the map by v -> v - mean(v); None if the result has no such form."""
        bias = self.bias
        if bias is not None:
            bias = bias - bias.mean(-1, keepdim=True)
        if self.matrix is None:
            if self.gain is not None and self.gain.numel() > 1:
                return None
            return replace(self, centered=True, bias=bias)
        matrix = self.matrix if self.gain is None else self.matrix * self.gain
        matrix = matrix - matrix.mean(-1, keepdim=True)
        return replace(self, matrix=matrix, gain=None, bias=bias)

    def join(self, other: "Affine") -> "Affine | None":
        """Add two maps of the same vectors, as an adapter does; None if their forms differ."""
        if self.matrix is None or other.matrix is None:
            return None
        if self.gate is not other.gate or self.scale is not other.scale:
            return None
        first = self.matrix if self.gain is None else self.matrix * self.gain
        second = other.matrix if other.gain is None else other.matrix * other.gain
        biases = [bias for bias in (self.bias, other.bias) if bias is not None]
        total = sum(biases[1:], biases[0]) if biases else None
        return replace(self, matrix=first + second, gain=None, bias=total)

    def pull_back(self, directions: Tensor) -> Tensor:
        """Apply the transpose of the linear part to directions [batch, positions, outputs].

        Only for maps without matrix and gate, such as normalization.
        """
        if self.gain is not None:
            directions = directions * self.gain.to(directions)
        if self.centered:
            directions = directions - directions.mean(-1, keepdim=True)
        return directions if self.scale is None else directions * self.scale.to(directions)

    def transform(self, vectors: Tensor) -> Tensor:
        """Apply the parts of the map that are the same for all positions, without bias.

        vectors: [..., inputs]. `gate` and `scale`, which depend on the position, are left out.
        """
        if self.matrix is not None:
            vectors = vectors @ self.matrix.to(vectors.dtype)
        if self.centered:
            vectors = vectors - vectors.mean(-1, keepdim=True)
        return vectors if self.gain is None else vectors * self.gain.to(vectors)


def _precise(tensor: Tensor) -> Tensor:
    """The tensor without gradient, at least float32."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
