"""How a score depends on the residual stream, layer by layer, for ALTI-Logit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError
from attnflow.models.capture.api import Target, run_contributions
from attnflow.models.capture.call import describe_model
from attnflow.models.capture.contributions import LayerContributions
from attnflow.models.capture.roles import Role


@dataclass(frozen=True, eq=False)
class LogitPaths:
    """How the score of a prediction depends on the residual stream, layer by layer.

    score: the score [batch] itself.
    roles, layers: the attention layers, in the order in which they run.
    directions: for each of them, [batch, queries, hidden]: the score grows by <v, direction_i> if
    its attention adds v at position i, along residual connections with frozen normalization and
    without feed-forward layers. 0 for the encoder of an encoder-decoder.
    entry: [batch, queries, hidden], the same for the embeddings, which enter the first layer.
    """

    score: Tensor
    roles: tuple[Role, ...]
    layers: tuple[LayerContributions, ...]
    directions: tuple[Tensor, ...]
    entry: Tensor


def capture_logit_paths(model: nn.Module, inputs: Mapping[str, Any], target: Target) -> LogitPaths:
    """Run the model, and follow a score back along the residual stream.

    target: a function from the output of the model to the score [batch]. The way from the last
    normalization to the score is differentiated, which is exact for a linear head.
    Raises AttentionError as `capture_contributions`, and if the score does not depend on the
    residual stream.
    """
    found: dict[int, LayerContributions] = {}

    def observe(layer: LayerContributions, _: Role) -> None:
        found[layer.index] = layer

    with torch.enable_grad():
        roles, output, last = run_contributions(model, inputs, observe, differentiable=True)
        score = target(output)
        gradient = None
        if last is not None and score.requires_grad:
            [gradient] = torch.autograd.grad(score.sum(), last[0], allow_unused=True)
    if gradient is None or last is None:
        raise AttentionError(
            f"the score does not depend on the residual stream of {describe_model(model)}",
            expected="a model whose last layer is followed by normalization and a head",
            fix="Use input_gradients or blank_out.",
        )
    indices = sorted(found)  # without layers of which only the residual is known
    layers = tuple(found[i] for i in indices)
    kinds = tuple(roles.roles[i] for i in indices)
    direction = last[1].pull_back(gradient.reshape(layers[-1].added.shape))
    directions = []
    for role, layer in zip(reversed(kinds), reversed(layers), strict=True):
        if role == "encoder":
            direction = torch.zeros_like(layer.added)
        direction = layer.pull_back(direction)
        directions.append(direction)
    first = next(i for i, role in enumerate(kinds) if role != "encoder")
    entry = directions[len(layers) - 1 - first]
    return LogitPaths(score.detach(), kinds, layers, tuple(reversed(directions)), entry)
