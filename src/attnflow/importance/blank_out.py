"""Blank-out: take each token away in turn, and see how much less probable the prediction gets."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from attnflow.arrays import import_torch
from attnflow.attribution import Attribution
from attnflow.errors import InputError
from attnflow.importance.question import Question, ask, find_replacement
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import probabilities
from attnflow.selection import Position

Replacement: TypeAlias = Literal["unknown", "mask", "pad", "remove"]
Progress: TypeAlias = Callable[[int, int], None]


def blank_out(
    loaded: LoadedModel,
    text: str,
    *,
    replacement: Replacement = "unknown",
    target: int | str | None = None,
    position: Position | None = None,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Attribution:
    """Score each token by p(original) - p(without it), for the probability of one outcome.

    Positive: the token speaks for the outcome. Negative: against it. 0: it does not matter.
    replacement: the token put in its place, or "remove" to leave the token out altogether.
    target: a class or token, by number or name; the predicted one if not given.
    position: where a language model predicts; as in `explain` if not given.
    progress: called with tokens done and tokens in all.
    Returns scores [1, 1, tokens], between -1 and 1. Special tokens are blanked too; the one mask
    that is to be filled is not, and has no column.
    Raises InputError if the tokenizer has no such token, or if nothing can be taken away.
    """
    if replacement not in ("unknown", "mask", "pad", "remove"):
        raise InputError(
            f"replacement is {replacement!r}",
            expected="'unknown', 'mask', 'pad' or 'remove'",
            fix="Choose one of these.",
        )
    if batch_size < 1:
        raise InputError(
            f"batch_size is {batch_size}",
            expected="1 or more",
            fix="Use 32.",
        )
    token = None if replacement == "remove" else find_replacement(loaded, replacement)
    question = ask(loaded, text, target=target, position=position)
    columns = _blankable(question, token)
    if loaded.takes_one_at_a_time:
        batch_size = 1
    before = question.prediction.target.probability
    drops: dict[int, float] = {}
    torch = import_torch("running a model")
    with torch.no_grad():
        for start in range(0, len(columns), batch_size):
            for part, inputs, place in _blanked(
                question, columns[start : start + batch_size], token
            ):
                chances = probabilities(loaded, question.scores(inputs, place))[:, question.target]
                drops.update(zip(part, [before - p for p in chances.tolist()], strict=True))
            if progress is not None:
                progress(len(drops), len(columns))
    values = [drops[i] for i in columns]
    return question.answer(values, "blank_out", {"replacement": replacement}, columns)


def _blankable(question: Question, token: int | None) -> list[int]:
    """The tokens that can be taken away such that the model still predicts at the position."""
    task, n = question.loaded.task, len(question.encoded.tokens)
    columns = list(range(n))
    if task == "masked_lm" or (token is None and task == "causal_lm" and question.position == 0):
        columns.remove(question.position)
    if not columns or (token is None and n == 1):
        raise InputError(
            "the text has one token only, so that nothing is left without it",
            expected="at least two",
            fix="Give a longer text, or replacement='unknown'.",
        )
    return columns


def _blanked(
    question: Question, columns: list[int], token: int | None
) -> Iterator[tuple[list[int], Mapping[str, Any], int]]:
    """Some of the columns, inputs [batch, tokens] without each, and the position to look at.

    Leaving out a token up to the position moves that position back by one. If it is the position
    itself, a decoder then predicts from the token before it.
    """
    torch = import_torch("running a model")
    if token is not None:
        copies = _repeat(question.inputs, len(columns))
        copies["input_ids"] = copies["input_ids"].clone()
        copies["input_ids"][torch.arange(len(columns)), columns] = token
        yield columns, copies, question.position
        return
    n = len(question.encoded.tokens)
    for moves in (False, True):
        part = [i for i in columns if (i <= question.position) == moves]
        if part:
            keep = torch.tensor([[j for j in range(n) if j != i] for i in part])
            copies = {
                name: values.gather(1, keep.to(values.device))
                for name, values in _repeat(question.inputs, len(part)).items()
            }
            yield part, copies, question.position - moves


def _repeat(inputs: Mapping[str, Any], n: int) -> dict[str, Any]:
    return {name: values.expand(n, -1) for name, values in inputs.items()}
