"""Blank-out: replace each token in turn, and measure how much the predicted probability drops."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.errors import InputError, check_choice
from attnflow.importance.target import (
    Target,
    check_positive,
    classifier_targets,
    cut_batches,
    find_replacement,
    open_target,
    run,
    to_attribution,
)
from attnflow.models.inputs import EncodedText, Truncate, collate
from attnflow.models.loading import LoadedModel, evaluation_mode
from attnflow.models.prediction import probabilities
from attnflow.optional import import_optional
from attnflow.progress import Progress
from attnflow.selection import Position

Replacement: TypeAlias = Literal["unknown", "mask", "pad", "remove"]


def blank_out(  # noqa: PLR0913 - one argument for each option
    text: Any,
    model: Any = None,
    *,
    replacement: Replacement = "unknown",
    tokenizer: Any = None,
    target: int | str | None = None,
    position: Position | None = None,
    truncate: Truncate = "error",
    device: Any = None,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Attribution:
    """Score each token by p(target) minus p(target without the token).

    A positive score means that the token supports the target, a negative one that it opposes it.
    text: a text or its token ids. model, tokenizer, target, position, truncate, device: as in
    `explain`.
    replacement: the token that replaces the others; "remove" leaves the token out.
    batch_size: the number of changed texts to run at once.
    progress: called with the number of tokens done and in total.
    Returns scores [1, 1, tokens] from -1 to 1. Special tokens are scored too, but not the mask that
    a masked language model fills.
    Raises InputError if the tokenizer has no such token, or if no token can be left out.

    >>> result = blank_out("the key to the cabinets", "verb-number")
    >>> result.tokens[result.row(position=0).argmax()]
    'key'
    """
    check_choice("replacement", replacement, get_args(Replacement))
    check_positive("batch_size", batch_size)
    torch = import_optional("torch", "blank-out")
    with open_target(
        text,
        model,
        tokenizer=tokenizer,
        target=target,
        position=position,
        truncate=truncate,
        device=device,
    ) as (loaded, found):
        token = None if replacement == "remove" else find_replacement(loaded, replacement)
        columns = _find_columns(loaded, found, token)
        step = batch_size if loaded.supports_batches else 1
        drops: list[float] = []
        with torch.no_grad():
            for start in range(0, len(columns), step):
                part = columns[start : start + step]
                drops += _probability_drops(loaded, [found], [part], token)[0].tolist()
                if progress is not None:
                    progress(len(drops), len(columns))
    return to_attribution(
        loaded,
        found,
        drops,
        method="blank_out",
        settings={"replacement": replacement},
        columns=columns,
    )


def blank_out_batch(
    loaded: LoadedModel, encoded: Sequence[EncodedText], classes: Sequence[int]
) -> list[NDArray[np.float64]]:
    """Compute `blank_out` for many texts and a classifier, with few runs of the model.

    classes: the index of each text's target. Returns scores [tokens] for each text.
    """
    targets = classifier_targets(loaded, encoded, classes)
    token = find_replacement(loaded, "unknown")
    lengths = [text.n_inputs for text in encoded]
    scores: dict[int, NDArray[np.float64]] = {}
    torch = import_optional("torch", "blank-out")
    with evaluation_mode(loaded.model), torch.no_grad():
        for batch in cut_batches(loaded, encoded, lengths):
            columns = [range(lengths[i]) for i in batch]
            drops = _probability_drops(loaded, [targets[i] for i in batch], columns, token)
            scores.update(zip(batch, drops, strict=True))
    return [scores[i] for i in range(len(encoded))]


def _find_columns(loaded: LoadedModel, target: Target, token: int | None) -> list[int]:
    """Return the tokens without which the model can still predict. token: None to remove them."""
    n = len(target.encoded.tokens)
    columns = list(range(n))
    is_first = token is None and loaded.task == "causal_lm" and target.position == 0
    if loaded.task == "masked_lm" or is_first:
        columns.remove(target.position)
    if not columns or (token is None and n == 1):
        raise InputError(
            "the text has only one token, and nothing is left without it",
            expected="at least two tokens",
            fix="Use a longer text, or replacement='unknown'.",
        )
    return columns


def _probability_drops(
    loaded: LoadedModel,
    targets: Sequence[Target],
    columns: Sequence[Sequence[int]],
    token: int | None,
) -> list[NDArray[np.float64]]:
    """Run the model once on texts without some of their tokens.

    columns: for each target, the tokens to replace or remove, one at a time.
    token: the id that replaces them; None to remove them.
    Returns p(target) - p(target without the token) for each target, [columns].
    """
    torch = import_optional("torch", "blank-out")
    sizes = [len(part) for part in columns]
    rows = torch.arange(len(targets)).repeat_interleave(torch.tensor(sizes))
    blanked = torch.tensor([column for part in columns for column in part])
    owners = [target for target, size in zip(targets, sizes, strict=True) for _ in range(size)]
    inputs = collate(loaded, [target.encoded for target in targets])
    positions = [owner.position for owner in owners]
    if token is None:
        inputs = {name: _remove(values, rows, blanked) for name, values in inputs.items()}
        # A decoder without the token at its position predicts from the token before.
        positions = [p - (c <= p) for p, c in zip(positions, blanked.tolist(), strict=True)]
    else:
        inputs = {name: values[rows.to(values.device)] for name, values in inputs.items()}
        inputs["input_ids"][torch.arange(len(rows)), blanked] = token
    logits = run(loaded, inputs, [owner.encoded for owner in owners], positions)
    chances = probabilities(loaded, logits)
    indices = [owner.outcome.index for owner in owners]
    after = chances[torch.arange(len(rows)), indices].cpu().double().numpy()
    before = np.asarray([owner.outcome.probability for owner in owners])
    return np.split(before - after, np.cumsum(sizes)[:-1])


def _remove(values: Any, rows: Any, columns: Any) -> Any:
    """Copy rows of values [texts, tokens], each without one column."""
    torch = import_optional("torch", "blank-out")
    kept = torch.arange(values.shape[1] - 1).expand(len(rows), -1)
    kept = kept + (kept >= columns[:, None]).long()
    return values[rows.to(values.device)].gather(1, kept.to(values.device))
