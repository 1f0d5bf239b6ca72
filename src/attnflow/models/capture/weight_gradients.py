"""Attention weights with their gradients, for edges that need them.

`RecordedWeights` keeps the weights of every layer as part of the computation of the model;
`score_output` chooses the score whose gradient is taken.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError, InputError
from attnflow.models.capture.call import AttentionCall, ReturnedCall, describe_model


class RecordedWeights:
    """The weights [batch, heads, queries, keys] of every layer, which the output depends on.

    The weights of all heads of all layers are in memory at once, because gradients need them.
    """

    def __init__(self) -> None:
        self.layers: list[Tensor] = []

    def add(self, call: AttentionCall) -> None:
        """Record the weights of a layer, and compute the output of the layer from them."""
        # A copy of returned weights would not be part of the computation.
        weights = call.returned if isinstance(call, ReturnedCall) else call.weights()
        if not weights.requires_grad:
            weights = weights.detach().requires_grad_()
        self.layers.append(weights)
        call.set_output(weights)

    def gradients(self, scores: Tensor, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Return weights and gradient of each layer, at least float32.

        scores: [batch]; the score of an example depends on that example only. The gradient is 0
        for layers that the scores do not depend on.
        Raises AttentionError if they depend on no layer.
        """
        found: tuple[Tensor | None, ...] = ()
        if scores.requires_grad:
            found = torch.autograd.grad(scores.sum(), self.layers, allow_unused=True)
        if all(gradient is None for gradient in found):
            raise AttentionError(
                f"the score does not depend on the attention of {describe_model(model)}",
                expected="a score computed from the output, with gradients",
                fix="Let target use the output without detach() or item(), and call "
                "model.requires_grad_() if the parameters are frozen.",
            )
        pairs = []
        for recorded, gradient in zip(self.layers, found, strict=True):
            dtype = torch.promote_types(recorded.dtype, torch.float32)
            weights = recorded.detach().to(dtype)
            pairs.append((weights, torch.zeros_like(weights) if gradient is None else gradient))
        return pairs


def score_output(
    model: nn.Module,
    output: Any,
    target: Callable[[Any], Tensor] | None,
    last: Sequence[int],
    *,
    causal: Callable[[], bool],
) -> Tensor:
    """Return the score [batch] to explain: that of `target`, or the largest logit.

    last: index of the last token of each example, which predicts the next one in a causal model.
    causal: returns whether the model is causal; called only if the logits leave it open.
    Raises InputError if there is no target and the prediction is ambiguous.
    """
    if target is not None:
        return _check_scores(target(output), len(last))
    logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
        raise InputError(
            f"{describe_model(model)} returned no logits of classes or tokens",
            expected="logits, or a target",
            fix="Pass target=, a function from the output to one score per example.",
        )
    if logits.dim() == 2:
        return logits.max(-1).values
    if not causal():
        raise InputError(
            f"{describe_model(model)} returned logits for {logits.shape[1]} positions and is not "
            "causal",
            expected="a target that selects one position",
            fix="Pass target=, for example lambda output: output.logits[:, 3].max(-1).values.",
        )
    examples = torch.arange(len(last), device=logits.device)
    return logits[examples, torch.as_tensor(last, device=logits.device)].max(-1).values


def _check_scores(scores: Any, n_examples: int) -> Tensor:
    if isinstance(scores, Tensor) and scores.shape == (n_examples,):
        return scores
    returned = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    raise InputError(
        f"target returned {returned}",
        expected=f"one score per example, a tensor of shape [{n_examples}]",
        fix="Select a class, and a position if there are several.",
    )
