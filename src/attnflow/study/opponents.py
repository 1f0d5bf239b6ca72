"""Opponents: scores measured on the model itself, which attention methods are compared with.

Each takes a case, and sums (or for lengths averages) over its steps.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.importance import alti_logit, integrated_gradients
from attnflow.importance.gradients import differentiate
from attnflow.importance.target import input_embeddings
from attnflow.study.case import Case
from attnflow.study.masked_model import MaskedModel

Floats = NDArray[np.float64]

STEPS = 32  # of integrated gradients


def gradient_norm(case: Case) -> Floats:
    """The length of the gradient of the logit, averaged over steps."""
    gradient, _ = _gradients(case)
    return case.merge(gradient.norm(dim=-1).mean(0).numpy())


def gradient_times_input(case: Case) -> Floats:
    """The sum of gradient times embedding, with its sign."""
    gradient, embeddings = _gradients(case)
    return case.merge((gradient * embeddings).sum(-1).sum(0).numpy())


def path_gradients(case: Case) -> Floats:
    """Integrated gradients from the mean embedding of the vocabulary.

    From zero they are unreliable for models that normalize embeddings, such as Llama.
    """
    return _over_steps(case, integrated_gradients, baseline="mean", steps=STEPS)


def logit_contributions(case: Case) -> Floats:
    """ALTI-Logit."""
    return _over_steps(case, alti_logit)


def leave_one_out(case: Case) -> Floats:
    """The drop of log p without each unit, by the default replacement of the model."""
    model = MaskedModel(case)
    n = len(case.units)
    full = model.log_probability(np.zeros((1, n), dtype=bool))
    return full - model.log_probability(np.eye(n, dtype=bool))


def attn_lrp(case: Case) -> Floats:
    """Relevance by AttnLRP, computed by the package lxt."""
    from attnflow.importance.lrp import lrp_relevance

    return case.merge(lrp_relevance(case.loaded, case.encoded, case.steps))


def _gradients(case: Case) -> tuple[Any, Any]:
    """Return gradients and embeddings, [steps, tokens, width], of the scores of all steps."""
    steps = case.steps
    contrasts = [step.contrast for step in steps]
    module = input_embeddings(case.loaded)
    return differentiate(
        case.loaded, [case.encoded] * len(steps), case.positions, contrasts, module
    )


def _over_steps(case: Case, function: Callable[..., Attribution], **options: Any) -> Floats:
    """Sum the scores of a function of one target over the steps of a case."""
    total = np.zeros(len(case.encoded.tokens))
    for step in case.steps:
        result = function(
            case.encoded,
            case.loaded,
            position=step.position,
            target=step.contrast.target,
            against=step.contrast.against,
            **options,
        )
        total[list(result.columns)] += result.to_numpy()[0, 0]
    return case.merge(total)
