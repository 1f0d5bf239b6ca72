"""Blank-out: change each token in turn, and measure how much the score of the target drops."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.errors import InputError, check_choice, check_function
from attnflow.importance.replacement import (
    Replacement,
    find_changes,
    resolve_replacement,
    run_changes,
)
from attnflow.importance.target import (
    Target,
    check_positive,
    classifier_targets,
    cut_batches,
    open_target,
    to_attribution,
)
from attnflow.models.inputs import EncodedText, Truncate
from attnflow.models.loading import LoadedModel
from attnflow.models.model_state import evaluation_mode
from attnflow.models.prediction import log_probabilities, probabilities
from attnflow.optional import import_optional
from attnflow.progress import Progress
from attnflow.selection import Position

Score: TypeAlias = Literal["probability", "log_probability"]


def blank_out(  # noqa: PLR0913 - one argument for each option
    text: Any,
    model: Any = None,
    *,
    replacement: Replacement | None = None,
    score: Score | None = None,
    tokenizer: Any = None,
    target: int | str | None = None,
    against: int | str | None = None,
    position: Position | None = None,
    truncate: Truncate = "error",
    device: Any = None,
    samples: int = 8,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Attribution:
    """Score each token by the score of the target minus that without the token.

    A positive score means that the token supports the target, a negative one that it opposes it.
    text: a text or its token ids. model, tokenizer, target, position, truncate, device: as in
    `explain`.
    replacement: what takes the place of a token. "unknown", "mask", "pad": that token of the
    tokenizer. "remove": nothing, later tokens move up. "mean": the mean embedding of the
    vocabulary. "neighbor": the nearest token before it that differs and is not special, or else
    after it. "sample": tokens that the language model itself expects there, other than the token;
    the drop is averaged over them. Default: "unknown" for classifiers whose tokenizer has an
    unknown token of its own, "mean" for language models and other classifiers.
    score: "probability" or "log_probability" of the target. Default: "probability" for
    classifiers, "log_probability" for language models.
    against: another class or token. The score is log p(target) - log p(against), and tells why the
    model prefers one to the other.
    samples, seed: the number of tokens to draw for replacement="sample", and the random seed.
    batch_size: the number of changed texts to run at once.
    progress: called with the number of changed texts done and in total.
    Returns scores [1, 1, tokens]. Special tokens are scored too, but not the mask that a masked
    language model fills, and for an encoder-decoder only the tokens of the encoder.
    Raises InputError for a replacement that the model does not support, or if no token can be
    replaced.

    >>> result = blank_out("the keys to the cabinet", "verb-number")
    >>> result.tokens[result.row(position=0).argmax()]
    'keys'
    """
    for name, value in (("batch_size", batch_size), ("samples", samples)):
        check_positive(name, value)
    torch = import_optional("torch", "blank-out")
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
        chosen, scored = (
            resolve_replacement(loaded, replacement),
            _resolve_score(found, loaded, score),
        )
        check_function("progress", progress)
        step = batch_size if loaded.supports_batches else 1
        drops: list[float] = []
        with torch.no_grad():
            changes = find_changes(loaded, found, chosen, samples=samples, seed=seed)
            for start in range(0, len(changes), step):
                part = changes[start : start + step]
                [logits] = run_changes(loaded, [found], [part], chosen)
                drops += score_drops(loaded, found, logits, scored).tolist()
                if progress is not None:
                    progress(len(drops), len(changes))
    columns = list(dict.fromkeys(change.column for change in changes))
    settings: dict[str, Any] = {"replacement": chosen, "score": scored}
    if chosen == "sample":
        settings |= {"samples": samples, "seed": seed}
    return to_attribution(
        loaded,
        found,
        np.reshape(drops, (len(columns), -1)).mean(-1),
        method="blank_out",
        settings=settings,
        columns=columns,
    )


def blank_out_batch(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    classes: Sequence[int],
    *,
    replacement: Replacement | None = None,
    score: Score | None = None,
) -> list[NDArray[np.float64]]:
    """Compute `blank_out` for many texts and a classifier, with few runs of the model.

    classes: the index of each text's target. replacement, score: as in `blank_out`.
    Returns scores [tokens] for each text.
    """
    targets = classifier_targets(loaded, encoded, classes)
    chosen = resolve_replacement(loaded, replacement)
    lengths = [text.n_inputs for text in encoded]
    scores: dict[int, NDArray[np.float64]] = {}
    torch = import_optional("torch", "blank-out")
    with evaluation_mode(loaded.model), torch.no_grad():
        for batch in cut_batches(loaded, encoded, lengths):
            part = [targets[i] for i in batch]
            changes = [find_changes(loaded, one, chosen, samples=1, seed=0) for one in part]
            rows = run_changes(loaded, part, changes, chosen)
            for i, one, logits in zip(batch, part, rows, strict=True):
                scores[i] = score_drops(loaded, one, logits, _resolve_score(one, loaded, score))
    return [scores[i] for i in range(len(encoded))]


def _resolve_score(target: Target, loaded: LoadedModel, score: Score | None) -> Score:
    """Return the score to use. Raises InputError for an unknown one, or if it has no contrast."""
    has_contrast = target.contrast.against is not None
    if score is None:
        is_plain = loaded.task == "classifier" and not has_contrast
        return "probability" if is_plain else "log_probability"
    check_choice("score", score, get_args(Score))
    if has_contrast and score == "probability":
        raise InputError(
            "score is 'probability', and against is given",
            expected="'log_probability', whose difference compares the two",
            fix="Leave score out.",
        )
    return score


def score_drops(
    loaded: LoadedModel, target: Target, logits: Any, score: Score
) -> NDArray[np.float64]:
    """Return the target's score minus that of changed texts, [changes], from their logits."""
    chances = probabilities if score == "probability" else log_probabilities
    before, after = (
        target.contrast.score(chances(loaded, values)).cpu().double().numpy()
        for values in (target.logits, logits)
    )
    return np.asarray(before - after)
