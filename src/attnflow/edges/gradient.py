"""Edges weighted by gradients: attention that raises the score of the prediction."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnflow.edges.value import merge_edges
from attnflow.errors import AttentionError, InputError
from attnflow.layers import Heads
from attnflow.models.capture.call import AttentionCall, Returned, describe_model
from attnflow.models.capture.roles import Role

# From the output of the model to the score [batch] that is explained.
Target: TypeAlias = Callable[[Any], Tensor]


class WithGradients:
    """Keeps the weights of every layer as part of the model's computation.

    This needs the weights of all heads of all layers, as any gradient of them does.
    """

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def keep(self, call: AttentionCall, _: Role) -> Tensor | None:
        """Keep one layer's weights, and return the output computed from just them."""
        # What a model returned must not be touched, or it is no part of the computation any more.
        weights = call.returned if isinstance(call, Returned) else call.weights()
        if not weights.requires_grad:
            weights = weights.detach().requires_grad_()
        self.weights.append(weights)
        return call.output(weights)

    def edges(self, scores: Tensor, heads: Heads, model: nn.Module) -> list[Tensor]:
        """The positive part of attention times its gradient, [batch, queries, keys] per layer.

        Heads are merged afterwards, and rows rescaled to 1. A row without any positive part stays
        0: the prediction does not gain by what the position attends to.
        scores: [batch]; each example's score depends on that example alone.
        """
        if not scores.requires_grad:
            raise self._unconnected(model)
        gradients = torch.autograd.grad(scores.sum(), self.weights, allow_unused=True)
        # Layers that the score does not depend on have none, and their edges are 0.
        found: list[Tensor | None] = list(gradients)
        if all(gradient is None for gradient in found):
            raise self._unconnected(model)
        layers = []
        for i, (weights, gradient) in enumerate(zip(self.weights, found, strict=True)):
            useful = weights.detach().float() * (0 if gradient is None else gradient)
            layers.append(merge_edges(useful.clamp_min(0), heads, f"layer {i + 1}"))
        return layers

    def _unconnected(self, model: nn.Module) -> AttentionError:
        return AttentionError(
            f"the score does not depend on the attention of {describe_model(model)}",
            expected="one computed from its output, with gradients",
            fix="Give a target that uses the output without detach() or item(), and call "
            "model.requires_grad_() if its weights are frozen.",
        )


def score_output(
    model: nn.Module,
    output: Any,
    target: Target | None,
    last: Sequence[int],
    *,
    causal: Callable[[], bool],
) -> Tensor:
    """The score [batch] to explain: that of `target`, or the largest logit.

    last: the last token of each example, where a causal model predicts.
    causal: whether the model is causal; only asked where it matters.
    Raises InputError if there is no target and it is not clear what is predicted.
    """
    if target is not None:
        return _check_scores(target(output), len(last))
    logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
        raise InputError(
            f"{describe_model(model)} returned no logits of classes or tokens",
            expected="some for edges='gradient' without a target",
            fix="Give target=, a function from the output to one score per example.",
        )
    if logits.dim() == 2:
        return logits.max(-1).values
    if not causal():
        raise InputError(
            f"{describe_model(model)} returned logits for each of {logits.shape[1]} "
            "positions and is not causal",
            expected="to know which position is meant",
            fix="Give target=, for example lambda output: output.logits[:, 3].max(-1).values.",
        )
    rows = torch.arange(len(last), device=logits.device)
    return logits[rows, torch.as_tensor(last, device=logits.device)].max(-1).values


def _check_scores(scores: Any, n_examples: int) -> Tensor:
    if isinstance(scores, Tensor) and scores.shape == (n_examples,):
        return scores
    given = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    raise InputError(
        f"target returned {given}",
        expected=f"one score for each of {n_examples} examples, [{n_examples}]",
        fix="Choose a class and a position in it.",
    )
