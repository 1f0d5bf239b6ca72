"""Input gradients: how strongly the predicted score reacts to each token's embedding.

Integrated gradients (Sundararajan et al. 2017), computed by captum.
"""

from importlib import import_module
from typing import Any, Literal, TypeAlias

from attnflow.arrays import import_torch
from attnflow.attribution import Attribution
from attnflow.errors import InputError, MissingDependencyError
from attnflow.importance.question import Question, ask, embed, embeddings_set, find_replacement
from attnflow.models.loading import LoadedModel
from attnflow.selection import Position

Variant: TypeAlias = Literal["sum", "l2", "times_input"]


def input_gradients(
    loaded: LoadedModel,
    text: str,
    *,
    variant: Variant = "l2",
    target: int | str | None = None,
    position: Position | None = None,
) -> Attribution:
    """Score each token by the gradient g of the target's score for the token's embedding x.

    The score is the logit: what the model gives before probabilities are made of it.
    variant: "l2" is the length of g; "times_input" the absolute sum of g * x; "sum" the absolute
    sum of g, what the authors of the paper used, which is nothing but rounding for models whose
    blocks begin with a layer normalization, such as GPT-2.
    target, position: as in `blank_out`.
    Returns scores [1, 1, tokens], 0 or more.
    Raises InputError for an unknown variant or a model that predicts nothing.
    """
    if variant not in ("sum", "l2", "times_input"):
        raise InputError(
            f"variant is {variant!r}",
            expected="'sum', 'l2' or 'times_input'",
            fix="Choose one of these.",
        )
    torch = import_torch("gradients")
    question = ask(loaded, text, target=target, position=position)
    embeddings = embed(question).requires_grad_()
    with torch.enable_grad(), embeddings_set(loaded.model, embeddings):
        score = question.scores(question.inputs)[0, question.target]
    # Not score.backward(), which would leave gradients in the model's weights.
    [gradient] = torch.autograd.grad(score, embeddings)
    gradient, embeddings = gradient[0].double(), embeddings.detach()[0].double()
    if variant == "l2":
        values = gradient.norm(dim=-1)
    elif variant == "sum":
        values = gradient.sum(-1).abs()
    else:
        values = (gradient * embeddings).sum(-1).abs()
    return question.answer(values.tolist(), "input_gradients", {"variant": variant})


Baseline: TypeAlias = Literal["zero", "unknown", "mask", "pad"]


def integrated_gradients(
    loaded: LoadedModel,
    text: str,
    *,
    baseline: Baseline = "zero",
    steps: int = 50,
    batch_size: int = 32,
    target: int | str | None = None,
    position: Position | None = None,
) -> Attribution:
    """Score each token by gradients added up on the way from a baseline to its embedding.

    baseline: what the way starts from: embeddings of zeros, or those of a token in every place.
    steps: points on the way. batch_size: how many of these run at once.
    target, position: as in `blank_out`.
    Returns scores [1, 1, tokens], signed. They add up to the target's score (logit) for the text
    minus that for the baseline; settings["error"] is by how much they miss it, and more steps make
    it smaller.
    Raises MissingDependencyError without captum, InputError for an unknown baseline.
    """
    captum = _import_captum()
    if baseline not in ("zero", "unknown", "mask", "pad"):
        raise InputError(
            f"baseline is {baseline!r}",
            expected="'zero', 'unknown', 'mask' or 'pad'",
            fix="Choose one of these.",
        )
    question = ask(loaded, text, target=target, position=position)
    embeddings = embed(question)

    def score(points: Any) -> Any:
        """The target's score [points] for embeddings [points, tokens, width]."""
        inputs = {name: v.expand(len(points), -1) for name, v in question.inputs.items()}
        with embeddings_set(loaded.model, points):
            return question.scores(inputs)[:, question.target]

    values, error = captum.IntegratedGradients(score).attribute(
        embeddings,
        baselines=_baseline(question, embeddings, baseline),
        n_steps=steps,
        internal_batch_size=1 if loaded.takes_one_at_a_time else batch_size,
        return_convergence_delta=True,
    )
    settings = {"baseline": baseline, "steps": steps, "error": float(error[0])}
    scores = values[0].detach().double().sum(-1).tolist()
    return question.answer(scores, "integrated_gradients", settings)


def _baseline(question: Question, embeddings: Any, baseline: Baseline) -> Any:
    """Embeddings [1, tokens, width] to start from."""
    torch = import_torch("gradients")
    if baseline == "zero":
        return torch.zeros_like(embeddings)
    token = find_replacement(question.loaded, baseline)
    ids = torch.full_like(question.inputs["input_ids"], token)
    with torch.no_grad():
        return question.loaded.model.get_input_embeddings()(ids).detach()


def _import_captum() -> Any:
    try:
        return import_module("captum.attr")
    except ImportError as error:
        raise MissingDependencyError(
            "captum is not installed and integrated gradients need it. "
            "Install it: pip install 'attnflow[captum]'"
        ) from error
