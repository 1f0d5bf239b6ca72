"""Blank-out and input gradients of many texts at once, for classifiers.

The numbers are those of `blank_out` and `input_gradients`, up to rounding; only faster, because
texts share batches and all variants share a pass. There are no labels on them: rows of numbers in,
rows of numbers out.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnflow.errors import InputError
from attnflow.importance.question import find_replacement
from attnflow.models.inputs import EncodedText, collate
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import probabilities

Rows: TypeAlias = list[NDArray[np.float64]]
Score: TypeAlias = Literal["logit", "probability"]
Place: TypeAlias = Literal["words", "embeddings"]

ROWS_AT_ONCE = 512  # texts in a batch
LONGER = 1.25  # how much longer than the shortest the longest text of a batch may be


def predict_classes(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> NDArray[np.float64]:
    """The probabilities [texts, classes] of a classifier."""
    _check(loaded)
    parts: dict[int, Any] = {}
    with torch.no_grad():
        for group in _groups(loaded, encoded, [1] * len(encoded)):
            chances = probabilities(loaded, _logits(loaded, [encoded[i] for i in group]))
            parts.update(zip(group, chances.double().cpu().numpy(), strict=True))
    return np.asarray([parts[i] for i in range(len(encoded))])


def blank_out_texts(
    loaded: LoadedModel, encoded: Sequence[EncodedText], targets: Sequence[int]
) -> Rows:
    """For each text, p(target) less p(target) with each token unknown: [tokens] each.

    targets: the class of each text whose probability is looked at.
    """
    before = predict_classes(loaded, encoded)
    token = find_replacement(loaded, "unknown")
    lengths = [one.n_inputs for one in encoded]
    rows: dict[int, NDArray[np.float64]] = {}
    with torch.no_grad():
        for group in _groups(loaded, encoded, lengths):
            sizes = torch.tensor([lengths[i] for i in group])
            inputs = {
                name: values.repeat_interleave(sizes.to(values.device), dim=0)
                for name, values in collate(loaded, [encoded[i] for i in group]).items()
            }
            columns = torch.cat([torch.arange(int(n)) for n in sizes])
            inputs["input_ids"][torch.arange(len(columns)), columns] = token
            chances = probabilities(loaded, _run(loaded, inputs)).double().cpu()
            for i, part in zip(group, torch.split(chances, sizes.tolist()), strict=True):
                rows[i] = before[i, targets[i]] - part[:, targets[i]].numpy()
    return [rows[i] for i in range(len(encoded))]


def gradients_of_texts(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    targets: Sequence[int],
    *,
    score: Score = "logit",
    place: Place = "words",
) -> dict[str, Rows]:
    """The variants "l2", "times_input" and "sum" of `input_gradients`, each [tokens] for each text.

    score: what the gradient is of: the target's logit, or its probability.
    place: what it is for: the embeddings of words; or "embeddings", what the model makes of these
    before its first layer, with positions added and normalized, as the authors' scripts did.
    """
    _check(loaded)
    rows: dict[str, dict[int, NDArray[np.float64]]] = {"l2": {}, "times_input": {}, "sum": {}}
    module = _module(loaded, place)
    for group in _groups(loaded, encoded, [1] * len(encoded)):
        with torch.enable_grad(), _leaf(module) as leaves:
            logits = _logits(loaded, [encoded[i] for i in group])
            scores = logits if score == "logit" else probabilities(loaded, logits)
            chosen = scores[torch.arange(len(group)), [targets[i] for i in group]]
            [gradient] = torch.autograd.grad(chosen.sum(), leaves[0])
        gradient, inputs = gradient.double().cpu(), leaves[0].detach().double().cpu()
        made = {
            "l2": gradient.norm(dim=-1),
            "times_input": (gradient * inputs).sum(-1).abs(),
            "sum": gradient.sum(-1).abs(),
        }
        for name, values in made.items():
            for i, row in zip(group, values, strict=True):
                rows[name][i] = row[: encoded[i].n_inputs].numpy()
    return {name: [found[i] for i in range(len(encoded))] for name, found in rows.items()}


def _check(loaded: LoadedModel) -> None:
    if loaded.task != "classifier":
        raise InputError(
            f"{loaded.name} is no classifier",
            expected="one for many texts at once",
            fix="Use blank_out or input_gradients, text by text.",
        )


def _module(loaded: LoadedModel, place: Place) -> Any:
    if place == "words":
        return loaded.model.get_input_embeddings()
    module = getattr(getattr(loaded.model, "base_model", None), "embeddings", None)
    if module is None:
        raise InputError(
            f"{loaded.name} has no module that makes its embeddings",
            expected="one for place='embeddings'",
            fix="Use place='words'.",
        )
    return module


@contextmanager
def _leaf(module: Any) -> Iterator[list[Tensor]]:
    """Make what the module returns the start of the autograd graph, and keep it in the list."""
    kept: list[Tensor] = []

    def start_here(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    hook = module.register_forward_hook(start_here)
    try:
        yield kept
    finally:
        hook.remove()


def _groups(
    loaded: LoadedModel, encoded: Sequence[EncodedText], sizes: Sequence[int]
) -> Iterator[list[int]]:
    """Texts that run together, of like length, with at most ROWS_AT_ONCE rows unless it is one.

    Padding costs as much as text, and a small batch little more for each text than a large one.

    sizes: how many rows each text needs.
    """
    group: list[int] = []
    for i in sorted(range(len(encoded)), key=lambda i: encoded[i].n_inputs):
        if group:
            full = sum(sizes[j] for j in group) + sizes[i] > ROWS_AT_ONCE
            longer = encoded[i].n_inputs > LONGER * encoded[group[0]].n_inputs + 1
            if full or longer or loaded.takes_one_at_a_time:
                yield group
                group = []
        group.append(i)
    if group:
        yield group


def _logits(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> Tensor:
    return _run(loaded, collate(loaded, encoded))


def _run(loaded: LoadedModel, inputs: dict[str, Any]) -> Tensor:
    logits: Tensor = loaded.model(**inputs).logits
    return logits
