"""What each position adds to the residual stream of others through attention.

`LayerContributions` holds one layer: z_ij, the vector that key j adds to position i with all heads
summed and projected, and x_i, the residual stream that it is added to. Normalization between
attention and the sum is frozen at its real statistics, so that the z_ij and the biases add up to
exactly what the model added. Edges are computed from these vectors block by block, so that the
vectors of all pairs are never in memory at once; or without them, where products of weights and
values give the same (`LayerContributions.score_products`, `proximity`, `triton_proximity`).
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError, InputError
from attnflow.head_merge import Heads
from attnflow.models.capture.call import AttentionCall, DotProductCall, describe_model
from attnflow.models.capture.fused_attention import has_triton
from attnflow.models.capture.steps import TracedLayer

# How many numbers the vectors of one block may have.
BLOCK_SIZE = {"cpu": 2**22, "cuda": 2**27}

# How far contributions may be from what the model added, relative to its length, by the bytes of a
# number of the model.
TOLERANCE = {2: 0.05, 4: 1e-3, 8: 1e-3}
TINY = 1e-6  # a layer that adds less than this adds nothing

# The number of multiplications of a layer from which compiled code is faster than blocks of
# vectors.
FUSED_WORK = 2**24
MAX_HEADS = 64  # of compiled code for GPUs, whose shared memory holds a tile of all heads

# Scores [batch, queries, parts] from vectors [batch, queries, parts, hidden], and what they add up
# to, [batch, queries, hidden].
Score = Callable[[Tensor, Tensor], Tensor]

# The scores [batch, queries, keys] of some heads of a layer, after some normalizations, without the
# vectors in between; None if the vectors are faster.
FusedScore = Callable[["LayerContributions", slice, int], Tensor | None]


class SumError(NamedTuple):
    """How far contributions of a layer are from what the model added, relative to its length.

    layer: its name.
    """

    error: Tensor
    layer: str
    tolerance: float


class LayerContributions:
    """The contributions of one attention layer, for a batch.

    index: of the layer, from 0. call: its attention.
    residual: [batch, queries, hidden], the residual stream x.
    added: [batch, queries, hidden], what the model added to it: sum_j z_ij + bias_i.
    bias: the part of `added` that comes from no key.
    output: [batch, queries, hidden], the residual stream after the sum.
    n_norms: how many normalizations follow the sum: 0 in models with pre-normalization, 2 in
    encoders with post-normalization, the second after the feed-forward layer.
    is_cross: whether keys are positions of another sequence, as in cross-attention.
    sum_error: how far contributions are from what the model added.
    """

    def __init__(self, traced: TracedLayer, *, is_cross: bool = False) -> None:
        assert traced.branch is not None
        assert traced.residual is not None
        assert traced.added is not None
        self.index = traced.index
        self.call: AttentionCall = traced.call
        self.is_cross = is_cross
        self.residual = _precise(traced.residual)
        self.added = _precise(traced.added)
        self.output = self.residual + self.added
        self.n_norms = len(traced.norms)
        self._branch = traced.branch
        self._norms = traced.norms
        self._normalized = traced.normalized
        self.sum_error = self._measure_error()

    @property
    def bias(self) -> Tensor:
        """The part of what the layer adds that comes from no key, [batch, queries, hidden]."""
        bias = self._branch.bias
        return torch.zeros_like(self.added) if bias is None else bias.expand_as(self.added)

    @torch.no_grad()
    def contributions(self, heads: Heads = "mean") -> Tensor:
        """The vectors z_ij, [batch, queries, keys, hidden], all at once: for short inputs.

        heads: "mean" for all heads summed, or the index of one head.
        """
        return torch.cat([self._pad(parts, -2) for _, parts in self._blocks(heads, 0)], dim=1)

    @torch.no_grad()
    def score(
        self,
        function: Score,
        *,
        heads: Heads = "mean",
        norms: int = 0,
        fused: FusedScore | None = None,
    ) -> Tensor:
        """Score what each key contributes to each query, block by block.

        function: from vectors [batch, queries, parts, hidden] and what they add up to, [batch,
        queries, hidden], to scores [batch, queries, parts].
        heads: "mean" for all heads summed, or the index of one head, which leaves the others out.
        norms: how many of the normalizations that follow the sum to apply to the vectors.
        fused: computes the same as `function`, for layers without gates.
        Returns [batch, queries, keys]: the residual stream is part of the vector of the query's own
        position. In cross-attention, which has no such key, it comes last: [batch, queries,
        keys + 1].
        """
        norms = min(norms, self.n_norms)
        own, total = self.own(norms), self.total(norms)
        if fused is not None and self._projects_first:
            scores = fused(self, _choose_heads(heads, self.call), norms)
            if scores is not None and self.is_cross:
                return torch.cat([scores, function(own.unsqueeze(2), total)], -1)
            if scores is not None:
                return scores
        rows_of_scores = []
        for rows, parts in self._blocks(heads, norms):
            if self.is_cross:
                scores = function(parts, total[:, rows])
                residual = function(own[:, rows].unsqueeze(2), total[:, rows])
                rows_of_scores.append(torch.cat([scores, residual], -1))
                continue
            positions = torch.arange(rows.start, rows.stop, device=parts.device)
            parts[:, positions - rows.start, positions] += own[:, rows]
            rows_of_scores.append(self._pad(function(parts, total[:, rows]), -1))
        return torch.cat(rows_of_scores, dim=1)

    @torch.no_grad()
    def project(self, directions: Tensor) -> Tensor:
        """Return how far each key moves all queries along directions, [batch, keys].

        directions: [batch, queries, hidden], of the residual stream after the sum, before any
        normalization. The sum over queries i of <z_ij, direction_i>.
        """
        batch, n_heads, n_queries, _ = self.call.shape
        values, matrix = self.values(slice(None)), self.matrix(slice(None))
        directions = directions.to(matrix)
        if self._branch.scale is not None:
            directions = directions * self._branch.scale.to(matrix)
        pulled = torch.einsum("hwd,bqd->bhqw", matrix, directions)
        if self._branch.gate is not None:
            gate = self._branch.gate.reshape(batch, n_queries, n_heads, -1).transpose(1, 2)
            pulled = pulled * gate.to(matrix)
        dots = pulled @ values.transpose(-1, -2)  # [batch, heads, queries, keys]
        return (self.call.weights().to(matrix) * dots).sum((1, 2))

    def pull_back(self, directions: Tensor) -> Tensor:
        """Move directions of the stream after the block to the stream after the attention layer.

        directions: [batch, queries, hidden]. The two are the same in models with
        pre-normalization. The feed-forward layer is left out.
        """
        for norm in reversed(self._norms):
            directions = norm.pull_back(directions)
        return directions

    @torch.no_grad()
    def mixing_ratio(self, norms: int = 2) -> Tensor:
        """How much of each position comes from other positions, [batch, queries], from 0 to 1.

        The length of what other positions contribute, relative to that plus the length of what the
        position itself contributes: its residual stream, and its attention to itself (Kobayashi et
        al. 2021).
        """
        norms = min(norms, self.n_norms)
        own = self.own(norms)
        ratios = []
        for rows, parts in self._blocks("mean", norms):
            mixed = parts.sum(2)
            kept = own[:, rows]
            if not self.is_cross:
                positions = torch.arange(rows.start, rows.stop, device=parts.device)
                diagonal = parts[:, positions - rows.start, positions]
                mixed, kept = mixed - diagonal, kept + diagonal
            length = torch.linalg.vector_norm(mixed, dim=-1)
            total = length + torch.linalg.vector_norm(kept, dim=-1)
            ratios.append(length / total.clamp_min(torch.finfo(total.dtype).tiny))
        return torch.cat(ratios, dim=1)

    @torch.no_grad()
    def _measure_error(self) -> SumError:
        """Compare the sum with what the model added, at the last query of each example.

        Padding may differ there, so the error is the least of the batch.
        """
        assert self.call.value is not None
        batch, n_heads, n_queries, n_keys = self.call.shape
        last = slice(n_queries - 1, n_queries)
        values = self.call.value  # [batch, key heads, keys, width]
        weights = self.call.weights(rows=last).to(values.dtype)
        # The heads that share values are rows of one product.
        mixed = weights.reshape(batch, values.shape[1], -1, n_keys) @ values
        mixed = _precise(mixed).reshape(batch, n_heads, 1, -1)
        if self._branch.gate is not None:
            gate = self._branch.gate[:, last].reshape(batch, n_heads, 1, -1)
            mixed = mixed * gate.to(mixed)
        total = torch.einsum("bhqw,hwd->bqd", mixed, self.matrix(slice(None)))
        if self._branch.scale is not None:
            total = total * self._branch.scale[:, last].to(total)
        added = self.added[:, last]
        error = torch.linalg.vector_norm(total + self.bias[:, last] - added, dim=-1)
        relative = error / torch.linalg.vector_norm(added, dim=-1).clamp_min(TINY)
        tolerance = TOLERANCE[self.call.value.dtype.itemsize]
        return SumError(relative.min(), self.call.layer, tolerance)

    def own(self, norms: int) -> Tensor:
        """The residual stream [batch, queries, hidden] after some normalizations."""
        own = self.residual
        for norm in self._norms[:norms]:
            own = norm.transform(own)
            if norm.scale is not None:
                own = own * norm.scale
        return own

    def total(self, norms: int) -> Tensor:
        """What all contributions add up to, with biases: the output, perhaps normalized.

        After the second normalization it would include the feed-forward layer, which is no
        contribution; the sum after the first is normalized by the second instead.
        """
        if norms == 0 or self._normalized is None:
            return self.output
        total = _precise(self._normalized)
        for norm in self._norms[1:norms]:
            total = norm.transform(total)
            if norm.scale is not None:
                total = total * norm.scale
        return total

    def is_for_compiled_code(self) -> bool:
        """Whether compiled code, which is for float32, computes products faster than torch."""
        work = prod(self.call.shape) * self.residual.shape[-1]
        on_gpu = self.residual.is_cuda and self.call.shape[1] <= MAX_HEADS and has_triton()
        is_compiled = self.call.device.type == "cpu" or on_gpu
        is_single = self.residual.dtype == torch.float32
        return is_compiled and is_single and work >= FUSED_WORK

    @property
    def _projects_first(self) -> bool:
        """Whether values are projected before they are weighted.

        This pays if heads are few; channels of state spaces are many.
        """
        return self._branch.gate is None and self.call.shape[1] <= self.residual.shape[-1]

    def values(self, heads: slice) -> Tensor:
        """The values [batch, heads, keys, width], at least float32."""
        assert self.call.value is not None
        return _precise(self.call.for_heads(self.call.value, heads))

    def project_values(self, heads: slice, norms: int) -> Tensor:
        """The projected values [batch, heads, keys, hidden]."""
        return self.values(heads) @ self.matrix(heads, norms)

    def score_products(
        self,
        products: Callable[[Tensor, slice], Tensor],
        function: Score,
        heads: slice,
        norms: int,
    ) -> Tensor:
        """Score keys by products of weights, [batch, queries, keys], some queries at a time.

        products: from weights [batch, heads, queries, keys], and which queries they are of, to
        scores [batch, queries, keys] of what keys add through attention. function: as for `score`;
        for the key that is the query itself, whose vector includes the residual stream.
        """
        own, total, values = self.own(norms), self.total(norms), self.values(heads)
        matrix = self.matrix(heads, norms).flatten(0, 1)
        batch, n_heads, _, n_keys = self.call.shape
        size = BLOCK_SIZE.get(self.call.device.type, BLOCK_SIZE["cuda"])
        rows_of_scores = []
        for rows, weights in self.weight_blocks(heads, norms, size // (batch * n_heads * n_keys)):
            scores = products(weights, rows)
            if not self.is_cross:
                mixed = weights.diagonal(rows.start, 2, 3).unsqueeze(-1) * values[:, :, rows]
                vectors = mixed.transpose(1, 2).flatten(-2) @ matrix + own[:, rows]
                scored = function(vectors.unsqueeze(2), total[:, rows])
                scores.diagonal(rows.start, 1, 2).copy_(scored[..., 0])
            rows_of_scores.append(self._pad(scores, -1))
        return torch.cat(rows_of_scores, dim=1)

    def factor(self, norms: int) -> Tensor:
        """What multiplies all contributions to a query, [batch, queries]."""
        factor = torch.ones_like(self.residual[..., 0])
        for scale in self._scales(norms):
            factor = factor * scale[..., 0].to(factor)
        return factor

    def _scales(self, norms: int) -> list[Tensor]:
        """The factors of queries, [batch, queries, 1] each."""
        scales = (self._branch.scale, *(norm.scale for norm in self._norms[:norms]))
        return [scale for scale in scales if scale is not None]

    def weight_blocks(self, heads: slice, norms: int, step: int) -> Iterator[tuple[slice, Tensor]]:
        """Some queries at a time, and their weights [batch, heads, queries, keys].

        With the factors of queries. Keys after the last query are left out if attention is causal.
        """
        n_queries, n_keys = self.call.shape[2:]
        is_causal = isinstance(self.call, DotProductCall) and self.call.causal
        step = min(max(step, 1), n_queries)
        for first in range(0, n_queries, step):
            rows = slice(first, min(first + step, n_queries))
            keys = slice(0, rows.stop if is_causal else n_keys)
            weights = self.call.weights(heads, rows)[..., keys].to(self.residual.dtype)
            for scale in self._scales(norms):
                weights = weights * scale[:, None, rows].to(weights)
            yield rows, weights

    def _blocks(self, heads: Heads, norms: int) -> Iterator[tuple[slice, Tensor]]:
        """Queries, and the vectors [batch, queries, keys, hidden] of keys, block by block.

        Keys after the last query of a block are left out if attention is causal.
        """
        chosen = _choose_heads(heads, self.call)
        matrix = self.matrix(chosen, norms)
        batch, n_heads, _, n_keys = self.call.shape
        assert self.call.value is not None
        width = self.call.value.shape[-1]
        values = self.values(chosen)  # [batch, heads, keys, width]
        if self._projects_first:
            values = values @ matrix
        size = BLOCK_SIZE.get(self.call.device.type, BLOCK_SIZE["cuda"])
        longest = max(matrix.shape[-1], matrix.shape[0] * matrix.shape[1])
        for rows, weights in self.weight_blocks(chosen, norms, size // (batch * n_keys * longest)):
            some_values = values[:, :, : weights.shape[-1]]
            if self._projects_first:
                yield rows, torch.einsum("bhqk,bhkd->bqkd", weights, some_values)
                continue
            gated = torch.einsum("bhqk,bhkw->bqkhw", weights, some_values)
            if self._branch.gate is not None:
                # The gate of a query acts on the output of each head, before the projection.
                gate = self._branch.gate[:, rows].reshape(batch, -1, 1, n_heads, width)
                gated = gated * gate[:, :, :, chosen].to(gated)
            yield rows, gated.flatten(-2) @ matrix.flatten(0, 1)

    def _pad(self, parts: Tensor, axis: int) -> Tensor:
        """Add zeros for the keys that were left out, along an axis."""
        missing = self.call.shape[3] - parts.shape[axis]
        if not missing:
            return parts
        shape = list(parts.shape)
        shape[axis] = missing
        return torch.cat([parts, parts.new_zeros(shape)], axis)

    def matrix(self, heads: slice, norms: int = 0) -> Tensor:
        """The output projection of each head, [heads, width, hidden].

        norms: how many normalizations to apply, as far as they do the same at all positions.
        """
        _, n_heads, _, _ = self.call.shape
        assert self.call.value is not None
        width = self.call.value.shape[-1]
        branch = self._branch
        matrix = branch.matrix
        if matrix is None:
            matrix = torch.eye(n_heads * width, device=self.call.device)
        if branch.gain is not None:
            matrix = matrix * branch.gain
        matrix = matrix.reshape(n_heads, width, -1)[heads].to(self.residual.dtype)
        for norm in self._norms[:norms]:
            matrix = norm.transform(matrix)
        return matrix


def check_sums(errors: Sequence[SumError], model: nn.Module) -> None:
    """Raise AttentionError unless contributions add up; after the run, so that a GPU waits once."""
    if not errors:
        return
    device = errors[0].error.device
    found = torch.stack([error.error.to(device) for error in errors]).tolist()
    for error, (_, layer, tolerance) in zip(found, errors, strict=True):
        if error <= tolerance:
            continue
        raise AttentionError(
            f"the contributions in {layer} of {describe_model(model)} differ from what the "
            f"model added by {error:.2g} of its length",
            expected="contributions that add up to what the model added",
            fix="Use edges='attention', 'value' or 'gradient', and report the model.",
        )


def _choose_heads(heads: Heads, call: AttentionCall) -> slice:
    n_heads = call.shape[1]
    if isinstance(heads, str) and heads == "mean":
        return slice(0, n_heads)
    if isinstance(heads, int) and -n_heads <= heads < n_heads:
        return slice(heads % n_heads, heads % n_heads + 1)
    raise InputError(
        f"heads is {heads!r}",
        expected="'mean', which adds up what all heads contribute, or the index of a head from 0 "
        f"to {n_heads - 1}",
        fix="Use heads='mean', or edges='attention' for other ways to merge heads.",
    )


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
