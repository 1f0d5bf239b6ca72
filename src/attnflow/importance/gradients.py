"""Gradients: how strongly the score of the target reacts to the embedding of each token.

Input gradients are computed here, integrated gradients (Sundararajan et al. 2017) by captum. The
score is the logit, not the probability, unless an option says otherwise.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.errors import InputError, check_choice
from attnflow.importance.replacement import find_token, mean_embedding
from attnflow.importance.target import (
    Target,
    check_classifier,
    check_positive,
    cut_batches,
    input_embeddings,
    open_target,
    replace_embeddings,
    run,
    to_attribution,
)
from attnflow.models.inputs import EncodedText, Truncate, collate
from attnflow.models.loading import LoadedModel
from attnflow.models.model_state import evaluation_mode
from attnflow.models.prediction import Contrast, probabilities
from attnflow.optional import import_optional
from attnflow.selection import Position

Variant: TypeAlias = Literal["l2", "times_input", "sum"]
Baseline: TypeAlias = Literal["zero", "mean", "unknown", "mask", "pad"]
Score: TypeAlias = Literal["logit", "probability"]
Place: TypeAlias = Literal["words", "embeddings"]

# Scores [..., tokens] from the gradient g and the embedding x, both [..., tokens, width].
FORMULAS: dict[Variant, Callable[[Any, Any], Any]] = {
    "l2": lambda g, _: g.norm(dim=-1),
    "times_input": lambda g, x: (g * x).sum(-1).abs(),
    "sum": lambda g, _: g.sum(-1).abs(),
}


def input_gradients(  # noqa: PLR0913 - one argument for each option
    text: Any,
    model: Any = None,
    *,
    variant: Variant = "l2",
    tokenizer: Any = None,
    target: int | str | None = None,
    against: int | str | None = None,
    position: Position | None = None,
    truncate: Truncate = "error",
    device: Any = None,
) -> Attribution:
    """Score each token by the gradient g of the target's logit with respect to its embedding x.

    text: a text or its token ids. model, tokenizer, target, position, truncate, device: as in
    `explain`.
    variant: "l2" is the length of g; "times_input" the absolute sum of g * x; "sum" the absolute
    sum of g, as the authors of the paper used it. In models that normalize each embedding first,
    such as GPT-2 and BERT, "sum" is zero except for rounding errors, so "l2" is the default for
    all models.
    against: another class or token; g is then the gradient of logit(target) - logit(against).
    Returns scores [1, 1, tokens], 0 or more.
    Raises InputError for an unknown variant or a model that predicts nothing.

    >>> input_gradients("the key to the cabinets", "verb-number").scores.shape
    (1, 1, 6)
    """
    check_choice("variant", variant, get_args(Variant))
    with open_target(
        text,
        model,
        tokenizer=tokenizer,
        target=target,
        against=against,
        position=position,
        truncate=truncate,
        device=device,
    ) as (loaded, found):
        module = _find_module(loaded, "words")
        gradient, embeddings = differentiate(
            loaded, [found.encoded], [found.position], [found.contrast], module
        )
    scores = FORMULAS[variant](gradient, embeddings)[0].tolist()
    return to_attribution(
        loaded, found, scores, method="input_gradients", settings={"variant": variant}
    )


def input_gradients_batch(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    classes: Sequence[int],
    *,
    score: Score = "logit",
    place: Place = "words",
) -> dict[Variant, list[NDArray[np.float64]]]:
    """Compute all variants of `input_gradients` for many texts and a classifier.

    classes: the index of each text's target.
    score: differentiate the target's logit or its probability.
    place: with respect to the embeddings of words; or "embeddings", the output of the embedding
    module, with positions added and normalized, as the authors' scripts did.
    Returns scores [tokens] for each text by variant.
    """
    check_classifier(loaded)
    module = _find_module(loaded, place)
    rows: dict[Variant, dict[int, NDArray[np.float64]]] = {variant: {} for variant in FORMULAS}
    with evaluation_mode(loaded.model):
        for batch in cut_batches(loaded, encoded, [1] * len(encoded)):
            texts, contrasts = zip(
                *((encoded[i], Contrast(int(classes[i]))) for i in batch), strict=True
            )
            gradient, embeddings = differentiate(
                loaded, texts, [0] * len(texts), contrasts, module, score
            )
            for variant, formula in FORMULAS.items():
                for i, row in zip(batch, formula(gradient, embeddings), strict=True):
                    rows[variant][i] = row[: encoded[i].n_inputs].numpy()
    return {variant: [row[i] for i in range(len(encoded))] for variant, row in rows.items()}


def integrated_gradients(  # noqa: PLR0913 - one argument for each option
    text: Any,
    model: Any = None,
    *,
    baseline: Baseline = "zero",
    steps: int = 50,
    batch_size: int = 32,
    tokenizer: Any = None,
    target: int | str | None = None,
    against: int | str | None = None,
    position: Position | None = None,
    truncate: Truncate = "error",
    device: Any = None,
) -> Attribution:
    """Score each token by gradients along the path from a baseline to its embedding.

    text: a text or its token ids. model, tokenizer, target, position, truncate, device: as in
    `explain`.
    baseline: the start of the path, the same at every position: zeros, the mean embedding of the
    vocabulary, or the embedding of one token. Models with RMSNorm, such as Llama, do not react to
    the length of an embedding; for them, the path from zero needs many more steps than the others.
    steps: the number of points on the path. batch_size: the number of points to run at once.
    against: another class or token; explains logit(target) - logit(against).
    Returns scores [1, 1, tokens], positive for tokens that support the target. They sum to the
    explained score for the text minus that for the baseline; settings["error"] is the difference,
    which more steps reduce.
    Raises MissingDependencyError without captum, InputError for an unknown baseline.
    """
    captum = import_optional("captum.attr", "integrated gradients")
    check_choice("baseline", baseline, get_args(Baseline))
    check_positive("steps", steps)
    check_positive("batch_size", batch_size)
    with open_target(
        text,
        model,
        tokenizer=tokenizer,
        target=target,
        against=against,
        position=position,
        truncate=truncate,
        device=device,
    ) as (loaded, found):
        values, error = captum.IntegratedGradients(_score_function(loaded, found)).attribute(
            _embed(loaded, found),
            baselines=_embed_baseline(loaded, found, baseline),
            n_steps=int(steps),
            internal_batch_size=batch_size if loaded.supports_batches else 1,
            return_convergence_delta=True,
        )
    return to_attribution(
        loaded,
        found,
        values[0].detach().double().sum(-1).tolist(),
        method="integrated_gradients",
        settings={"baseline": baseline, "steps": steps, "error": float(error[0])},
    )


def differentiate(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    positions: Sequence[int],
    contrasts: Sequence[Contrast],
    module: Any,
    score: Score = "logit",
) -> tuple[Any, Any]:
    """Differentiate the score of one target of each text with respect to the output of a module.

    positions, contrasts: where each text is predicted, and its target.
    Returns the gradients and the outputs of the module, both [texts, tokens, width] in float64.
    """
    torch = import_optional("torch", "gradients")
    with torch.enable_grad(), _leaves(module) as outputs:
        logits = run(loaded, collate(loaded, encoded), encoded, positions)
        scores = logits if score == "logit" else probabilities(loaded, logits)
        total = sum(contrast.score(row) for contrast, row in zip(contrasts, scores, strict=True))
        # Not backward(), which would leave gradients in the model's weights.
        [gradient] = torch.autograd.grad(total, outputs[0])
    return gradient.cpu().double(), outputs[0].detach().cpu().double()


@contextmanager
def _leaves(module: Any) -> Iterator[list[Any]]:
    """Make the outputs of a module leaves of the autograd graph, and collect them in the list."""
    outputs: list[Any] = []

    def replace_output(_module: Any, _inputs: Any, output: Any) -> Any:
        outputs.append(output.detach().requires_grad_())
        return outputs[-1]

    hook = module.register_forward_hook(replace_output)
    try:
        yield outputs
    finally:
        hook.remove()


def _find_module(loaded: LoadedModel, place: Place) -> Any:
    """Return the module whose output the gradient refers to."""
    check_choice("place", place, get_args(Place))
    if place == "words":
        return input_embeddings(loaded)
    module = getattr(getattr(loaded.model, "base_model", None), "embeddings", None)
    if module is None:
        raise InputError(
            f"{loaded.name} has no embedding module",
            expected="a model with base_model.embeddings for place='embeddings'",
            fix="Use place='words'.",
        )
    return module


def _score_function(loaded: LoadedModel, target: Target) -> Callable[[Any], Any]:
    """Return the function from embeddings [points, tokens, width] to the target's score [points].

    A hook on the embedding layer works for all models, also for those without `inputs_embeds`.
    """
    inputs = collate(loaded, [target.encoded])

    def score(points: Any) -> Any:
        n = len(points)
        repeated = {name: values.expand(n, -1) for name, values in inputs.items()}
        with replace_embeddings(loaded, lambda _output: points):
            logits = run(loaded, repeated, [target.encoded] * n, [target.position] * n)
        return target.contrast.score(logits)

    return score


def _embed(loaded: LoadedModel, target: Target) -> Any:
    """Return the token embeddings [1, tokens, width] without an autograd graph."""
    return _embed_ids(loaded, collate(loaded, [target.encoded])["input_ids"])


def _embed_baseline(loaded: LoadedModel, target: Target, baseline: Baseline) -> Any:
    """Return the embeddings [1, tokens, width] of the baseline."""
    torch = import_optional("torch", "gradients")
    ids = collate(loaded, [target.encoded])["input_ids"]
    embeddings = _embed_ids(loaded, ids)
    if baseline == "zero":
        return torch.zeros_like(embeddings)
    if baseline == "mean":
        return mean_embedding(loaded).to(embeddings).expand_as(embeddings)
    return _embed_ids(loaded, torch.full_like(ids, find_token(loaded, baseline)))


def _embed_ids(loaded: LoadedModel, ids: Any) -> Any:
    with import_optional("torch", "gradients").no_grad():
        return input_embeddings(loaded)(ids).detach()
