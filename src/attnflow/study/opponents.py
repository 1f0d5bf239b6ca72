"""Opponents: scores measured on the model itself, which attention methods are compared with.

Each takes a case, and sums (or for lengths averages) over its steps.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.evaluation.perturbation import Ask
from attnflow.importance import alti_logit, integrated_gradients
from attnflow.importance.gradients import differentiate
from attnflow.importance.target import input_embeddings
from attnflow.optional import import_optional
from attnflow.study.case import Case
from attnflow.study.image_case import ImageCase, MaskedImage
from attnflow.study.masked_model import BATCH_TOKENS, MaskedModel

Floats = NDArray[np.float64]

STEPS = 32  # of integrated gradients


def gradient_norm(case: Case | ImageCase) -> Floats:
    """The length of the gradient of the logit, averaged over steps; of an image's patches."""
    if isinstance(case, ImageCase):
        return np.sqrt(case.merge_pixels(_pixel_gradients(case).square().sum(0)))
    gradient, _ = _gradients(case)
    return case.merge(gradient.norm(dim=-1).mean(0).numpy())


def gradient_times_input(case: Case | ImageCase) -> Floats:
    """The sum of gradient times embedding, with its sign; for an image, times its pixels."""
    if isinstance(case, ImageCase):
        return case.merge_pixels((_pixel_gradients(case) * case.pixels[0].cpu().double()).sum(0))
    gradient, embeddings = _gradients(case)
    return case.merge((gradient * embeddings).sum(-1).sum(0).numpy())


def path_gradients(case: Case | ImageCase) -> Floats:
    """Integrated gradients from the mean embedding of the vocabulary, or the mean color.

    From zero they are unreliable for models that normalize embeddings, such as Llama.
    """
    if isinstance(case, ImageCase):
        captum = import_optional("captum.attr", "integrated gradients")
        mean = case.pixels.mean((2, 3), keepdim=True).expand_as(case.pixels)
        values = captum.IntegratedGradients(case.score).attribute(
            case.pixels, baselines=mean, n_steps=STEPS, internal_batch_size=STEPS
        )
        return case.merge_pixels(values[0].detach().double().sum(0).cpu())
    return _over_steps(case, integrated_gradients, baseline="mean", steps=STEPS)


def logit_contributions(case: Case) -> Floats:
    """ALTI-Logit."""
    return _over_steps(case, alti_logit)


def leave_one_out(case: Case | ImageCase) -> Floats:
    """The drop of log p without each unit, by the default replacement of the model."""
    model: Ask
    if isinstance(case, ImageCase):
        model = MaskedImage(case, "mean", batch_tokens=BATCH_TOKENS, draws=1, seed=0)
    else:
        model = MaskedModel(case)
    n = len(case.units)
    full = model.log_probability(np.zeros((1, n), dtype=bool))
    return full - model.log_probability(np.eye(n, dtype=bool))


def attn_lrp(case: Case) -> Floats:
    """Relevance by AttnLRP, computed by the package lxt."""
    from attnflow.importance.lrp import lrp_relevance

    return case.merge(lrp_relevance(case.loaded, case.encoded, case.steps))


def _pixel_gradients(case: ImageCase) -> Any:
    """Return the gradient [channels, height, width] of the score."""
    torch = import_optional("torch", "gradients")
    with torch.enable_grad():
        pixels = case.pixels.detach().clone().requires_grad_()
        [gradient] = torch.autograd.grad(case.score(pixels).sum(), pixels)
    return gradient[0].cpu().double()


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
