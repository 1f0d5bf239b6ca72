"""Several verb-number models of the same size, trained as one.

A verb-number model is so small that a GPU spends most of its time starting kernels. Here one kernel
computes the same step of all models: every weight has a leading axis of models, and matrices are
multiplied in batches. Each model has its own examples, its own rates of dropout, its own learning
rate and its own weight decay. The arithmetic is that of `VerbNumberModel`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnflow.models.builtin.verb_number import VerbNumberModel

BETAS, EPSILON = (0.9, 0.98), 1e-8  # of AdamW
MAX_NORM = 1.0  # of the gradient of a model
BLOCK = "transformer.h.{}."


class Dropout(NamedTuple):
    """Rates of dropout of each model, [models] each: of attention weights, and of the rest."""

    attention: Tensor
    rest: Tensor


class Ensemble:
    """The weights of several models, their moving averages, and the state of AdamW.

    weights, average: [models, weights of a model], float32.
    """

    def __init__(self, models: Sequence[VerbNumberModel], device: torch.device) -> None:
        self.config: Any = models[0].config
        named: list[dict[str, Any]] = [dict(model.named_parameters()) for model in models]
        self.shapes: dict[str, torch.Size] = {name: part.shape for name, part in named[0].items()}
        rows = [torch.cat([part.detach().flatten() for part in parts.values()]) for parts in named]
        self.weights = torch.stack(rows).to(device)
        self.average = self.weights.clone()
        self.moments = (torch.zeros_like(self.weights), torch.zeros_like(self.weights))
        # AdamW: biases and the scales of layer norms have no weight decay.
        decays = [torch.full((prod(s),), float(len(s) > 1)) for s in self.shapes.values()]
        self.decays = torch.cat(decays).to(device)
        # Views into one tensor, so that the optimizer needs few kernels.
        self._leaves = {k: part.requires_grad_() for k, part in self.split(self.weights).items()}
        self._block, self._update = _run_block, _update_weights

    def __len__(self) -> int:
        return len(self.weights)

    def compile(self, enabled: bool = True) -> None:
        """Fuse the operations of a block, and of a step of the optimizer."""
        self._block = torch.compile(_run_block) if enabled else _run_block
        self._update = torch.compile(_update_weights) if enabled else _update_weights

    def split(self, weights: Tensor) -> dict[str, Tensor]:
        """Return views of weights [models, weights of a model] by name, [models, ...] each."""
        sizes = [prod(shape) for shape in self.shapes.values()]
        parts = torch.split(weights, sizes, dim=1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(self), *shape) for (name, shape), part in named}

    def loss(
        self, ids: Tensor, labels: Tensor, dropout: Dropout | None, smoothing: Tensor | None = None
    ) -> Tensor:
        """Return the loss of each model, [models].

        ids: [models, examples, tokens]. labels: [models, examples].
        smoothing: [models], the share of each label that is spread over both classes.
        """
        logits = self._logits(ids, self._leaves, self._block, dropout)
        surprise = -logits.log_softmax(-1)  # [models, examples, classes]
        loss = surprise.take_along_dim(labels[..., None], -1).squeeze(-1).mean(-1)
        return loss if smoothing is None else loss.lerp(surprise.mean((1, 2)), smoothing)

    def predict(self, ids: Tensor) -> Tensor:
        """Return the logits of the averages, [models, examples, 2]. ids: [examples, tokens]."""
        with torch.no_grad():
            parts = self.split(self.average)
            return self._logits(ids.expand(len(self), *ids.shape), parts, _run_block, None)

    def step(
        self, losses: Tensor, rates: Tensor, weight_decay: Tensor, n: int, mean: float
    ) -> None:
        """Update the weights: gradients, AdamW, and the moving average.

        losses: [models]. rates: learning rates, [models, 1]. weight_decay: [models, 1].
        n: how many steps were made before. mean: the decay of the moving average.
        """
        parts = torch.autograd.grad(losses.sum(), [*self._leaves.values()])
        gradients = torch.cat([part.flatten(1) for part in parts], dim=1)
        corrections = [1 - beta ** (n + 1) for beta in BETAS]
        scalars = torch.tensor([*corrections, 1 - mean], device=self.weights.device)
        state = (self.weights, self.average, gradients, *self.moments)
        with torch.no_grad():
            self._update(state, rates, weight_decay * self.decays, scalars)

    def to_weights(self) -> list[dict[str, Tensor]]:
        """Return the averages, by name for each model, on the CPU."""
        parts = self.split(self.average.cpu())
        return [{name: part[i].clone() for name, part in parts.items()} for i in range(len(self))]

    def state(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {"weights": self.weights, "average": self.average, "moments": list(self.moments)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        self.weights.copy_(state["weights"])
        self.average.copy_(state["average"])
        for moment, stored in zip(self.moments, state["moments"], strict=True):
            moment.copy_(stored)

    def _logits(
        self, ids: Tensor, parts: Mapping[str, Tensor], run: Any, dropout: Dropout | None
    ) -> Tensor:
        """Classify ids [models, examples, tokens]. run: computes a block, see `_run_block`."""
        words, positions = parts["transformer.wte.weight"], parts["transformer.wpe.weight"]
        n_models, vocabulary_size, width = words.shape
        offsets = torch.arange(n_models, device=ids.device).view(-1, 1, 1) * vocabulary_size
        hidden = functional.embedding(ids + offsets, words.reshape(-1, width))
        hidden = hidden + positions[:, None, : ids.shape[-1]]
        if dropout is not None:
            hidden = _drop(hidden, dropout.rest)
        visible = ids.ne(self.config.pad_token_id or 0)
        mask = visible[:, :, None, None]  # [models, examples, heads, queries, keys]
        if self.config.is_decoder:
            n = ids.shape[-1]
            mask = mask & torch.ones(n, n, dtype=torch.bool, device=ids.device).tril()
        # On GPUs, matrices are multiplied in half precision.
        dtype = torch.bfloat16 if ids.is_cuda else words.dtype
        run = partial(run, n_heads=self.config.n_head, dtype=dtype)
        for i in range(self.config.n_layer):
            hidden = run(hidden, mask, _select(parts, BLOCK.format(i)), dropout)
        last = visible.sum(-1) - 1 if self.config.is_decoder else torch.zeros_like(ids[..., 0])
        pooled = hidden.take_along_dim(last[:, :, None, None], dim=2).squeeze(2)
        pooled = _normalize(pooled[:, :, None], _select(parts, "transformer.ln_f.")).squeeze(2)
        return pooled @ parts["score.weight"].mT


def _select(parts: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the weights whose names have a prefix, without it."""
    return {
        name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)
    }


def _run_block(
    hidden: Tensor,
    mask: Tensor,
    weights: dict[str, Tensor],
    dropout: Dropout | None,
    *,
    n_heads: int,
    dtype: torch.dtype,
) -> Tensor:
    """Compute a block of GPT-2.

    hidden: [models, examples, tokens, width]. mask: which keys queries see.
    weights: [models, ...] each. Returns the new hidden states.
    """
    normal = _normalize(hidden, _select(weights, "ln_1.")).to(dtype)
    joined = _linear(normal, _select(weights, "attn.c_attn."))
    heads = joined.view(*hidden.shape[:-1], 3, n_heads, -1).permute(3, 0, 1, 4, 2, 5)
    queries, keys, values = heads.unbind(0)  # [models, examples, heads, tokens, width of a head]
    scores = queries @ keys.mT * queries.shape[-1] ** -0.5
    attention = scores.masked_fill(~mask, torch.finfo(dtype).min).softmax(-1)
    if dropout is not None:
        attention = _drop(attention, dropout.attention)
    context = (attention @ values).transpose(2, 3).flatten(-2)
    attended = _linear(context, _select(weights, "attn.c_proj."))
    hidden = hidden + (attended if dropout is None else _drop(attended, dropout.rest))
    normal = _normalize(hidden, _select(weights, "ln_2.")).to(dtype)
    inner = functional.gelu(_linear(normal, _select(weights, "mlp.c_fc.")), approximate="tanh")
    outer = _linear(inner, _select(weights, "mlp.c_proj."))
    return hidden + (outer if dropout is None else _drop(outer, dropout.rest))


def _normalize(hidden: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Apply LayerNorm to hidden [models, examples, tokens, width]."""
    normal = functional.layer_norm(hidden, hidden.shape[-1:])
    return torch.addcmul(weights["bias"][:, None, None], normal, weights["weight"][:, None, None])


def _linear(inputs: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Multiply inputs [models, examples, tokens, width] in their own precision."""
    bias, matrix = (weights[name].to(inputs.dtype) for name in ("bias", "weight"))
    product = torch.baddbmm(bias[:, None], inputs.flatten(1, 2), matrix)
    return product.view(*inputs.shape[:-1], -1)


def _drop(values: Tensor, rates: Tensor) -> Tensor:
    """Set random values to 0, and scale the others so that the mean stays. rates: [models]."""
    rates = rates.view(-1, *(1,) * (values.dim() - 1))
    is_kept = torch.rand(values.shape, device=values.device) >= rates
    return values * (is_kept / (1 - rates)).to(values.dtype)


def _update_weights(
    state: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    rates: Tensor,
    weight_decay: Tensor,
    scalars: Tensor,
) -> None:
    """Take a step of AdamW, and update the moving average, in place.

    state: weights, average, gradients, first and second moments, [models, weights] each.
    rates: learning rates, [models, 1]. weight_decay: [models, weights].
    scalars: bias corrections of both moments, and the weight of the new weights in the average.
    """
    weights, average, gradients, first, second = state
    norms = gradients.square().sum(-1, keepdim=True).sqrt()
    gradients = gradients * (MAX_NORM / (norms + 1e-6)).clamp(max=1)
    first.lerp_(gradients, 1 - BETAS[0])
    second.lerp_(gradients.square(), 1 - BETAS[1])
    steps = (first / scalars[0]) / ((second / scalars[1]).sqrt() + EPSILON)
    weights.sub_(rates * (steps + weight_decay * weights))
    average.lerp_(weights, scalars[2])
