"""From the examples of a shard to batches for the model: tokenized together, alike in length.

The batches depend on nothing but the shard and the settings, so that a shard always gives the same
bytes. Texts of like length share a batch, so that there is little padding.

What a model predicts for the texts of a batch, and how much each token matters to that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import import_torch
from attnflow.corpus.example import Example, Outcome, Refused
from attnflow.corpus.settings import Settings
from attnflow.errors import AttnflowError, InputError
from attnflow.models.inputs import EncodedText, Unfit, encode_texts
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import (
    KINDS,
    SHOWN,
    label_of,
    logits_of,
    probabilities,
    resolve_explained,
    resolve_target,
)
from attnflow.selection import resolve_positions


@dataclass(frozen=True, eq=False)
class Task:
    """An example that can be scored.

    place: its place in the shard. explained: the position that is explained.
    positions: those that scores are asked for, as indices of tokens, or of words if these are.
    """

    place: int
    example: Example
    encoded: EncodedText
    explained: int
    positions: tuple[int, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that the model sees."""
        return self.encoded.tokens


@dataclass(frozen=True, eq=False)
class Plan:
    """How a shard is computed.

    size: the number of its examples. batches: those that run together.
    refused: those that cannot be scored, by their place in the shard.
    """

    size: int
    batches: tuple[tuple[Task, ...], ...]
    refused: dict[int, Refused]


def plan_shard(loaded: LoadedModel, settings: Settings, examples: Sequence[Example]) -> Plan:
    """Tokenize the examples, find their positions, and cut them into batches."""
    texts = [example.text for example in examples]
    encoded = encode_texts(loaded, texts, truncate=settings.truncate, words=settings.words)
    tasks: list[Task] = []
    refused: dict[int, Refused] = {}
    for place, (example, one) in enumerate(zip(examples, encoded, strict=True)):
        if isinstance(one, Unfit):
            refused[place] = Refused(example, one.reason, one.why)
            continue
        try:
            tasks.append(_make_task(loaded, settings, place, example, one))
        except AttnflowError as error:
            refused[place] = Refused(example, str(error), "other")
    most = 1 if loaded.takes_one_at_a_time else len(tasks)
    groups = cut_batches([len(task.tokens) for task in tasks], settings.batch_tokens, most)
    batches = tuple(tuple(tasks[i] for i in group) for group in groups)
    return Plan(len(examples), batches, refused)


def _make_task(
    loaded: LoadedModel, settings: Settings, place: int, example: Example, encoded: EncodedText
) -> Task:
    explained = resolve_explained(loaded, encoded, None)
    labels, at = encoded.tokens, explained
    if settings.words:
        labels, at = encoded.words.texts, encoded.words.word_of(explained)
    if settings.positions == "explained":
        positions: tuple[int, ...] = (at,)
    elif settings.positions == "all":
        positions = tuple(range(len(labels)))
    else:
        positions = resolve_positions(labels, len(labels), settings.positions)
    return Task(place, example, encoded, explained, positions)


def cut_batches(lengths: Sequence[int], budget: int, most: int) -> list[list[int]]:
    """Indices of texts that run together, the longest first.

    lengths: of the texts. budget: the most tokens of a batch, padding included, unless one text
    alone has more. most: the most texts of a batch.

    >>> cut_batches([2, 9, 3, 3], budget=8, most=4)
    [[1], [2, 3], [0]]
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        last = batches[-1] if batches else []
        full = last and (len(last) + 1) * lengths[last[0]] > budget
        if not last or full or len(last) >= most:
            batches.append([i])
        else:
            last.append(i)
    return batches


Importance = dict[str, NDArray[np.float64]]


class Outcomes:
    """The outcomes of one model under some settings.

    Raises InputError if the model predicts nothing and the settings need a prediction, or if it
    has no token to blank others out with.
    """

    def __init__(self, loaded: LoadedModel, settings: Settings) -> None:
        self.loaded, self.settings = loaded, settings
        self._labels: dict[int, str] = {}
        needing = [f"importance {name}" for name in settings.importance]
        needing += ["gradient edges"] if settings.edges == "gradient" else []
        needing += ["a target"] if settings.target is not None else []
        unfit = ("encoder", "seq2seq") if settings.importance else ("encoder",)
        if needing and loaded.task in unfit:
            what = "predicts nothing" if loaded.task == "encoder" else "is an encoder-decoder"
            raise InputError(
                f"{loaded.name} {what}, and {' and '.join(needing)} cannot be had of it",
                expected="a classifier or a language model",
                fix="Load one, or leave that out.",
            )
        if "blank_out" in settings.importance:
            from attnflow.importance.question import find_replacement

            find_replacement(loaded, "unknown")

    def of(self, batch: Sequence[Task], output: Any) -> list[tuple[Outcome | None, Outcome | None]]:
        """For each text what is predicted, and the target that the settings name; None if none."""
        if self.loaded.task == "encoder":
            return [(None, None)] * len(batch)
        chances = probabilities(self.loaded, self._scores(batch, output))
        n_classes = int(chances.shape[-1])
        best = chances.topk(min(SHOWN, n_classes)).indices[:, 0]  # of equals, the one `explain` has
        pairs = zip(best.tolist(), chances.amax(-1).tolist(), strict=True)
        predicted = [self._outcome(index, chance) for index, chance in pairs]
        if self.settings.target is None:
            return [(one, None) for one in predicted]
        target = resolve_target(self.loaded, self.settings.target, n_classes)
        asked = [self._outcome(target, chance) for chance in chances[:, target].tolist()]
        return list(zip(predicted, asked, strict=True))

    def explained_scores(self, batch: Sequence[Task], output: Any) -> Any:
        """The score [texts] of what is explained, which gradients are taken of."""
        scores = self._scores(batch, output)
        torch = import_torch("gradients")
        indices = self.explained([(p, t) for p, t in self.of(batch, output)])
        return scores[torch.arange(len(scores), device=scores.device), indices]

    def explained(self, outcomes: Sequence[tuple[Outcome | None, Outcome | None]]) -> list[int]:
        """The number of the outcome that is explained of each text: the target, if there is one."""
        return [
            (target or predicted).index  # type: ignore[union-attr]
            for predicted, target in outcomes
        ]

    def importance(
        self, batch: Sequence[Task], outcomes: Sequence[tuple[Outcome | None, Outcome | None]]
    ) -> list[Importance | AttnflowError]:
        """The importance [tokens] of each text's tokens by name, or why it cannot be had."""
        if not self.settings.importance:
            return [{}] * len(batch)
        if self.loaded.task != "classifier":
            return [self._alone(task) for task in batch]
        from attnflow.importance.batch import blank_out_texts, gradients_of_texts

        encoded, targets = [task.encoded for task in batch], self.explained(outcomes)
        found: dict[str, Any] = {}
        if "blank_out" in self.settings.importance:
            found["blank_out"] = blank_out_texts(self.loaded, encoded, targets)
        if "input_gradients" in self.settings.importance:
            found["input_gradients"] = gradients_of_texts(self.loaded, encoded, targets)["l2"]
        return [
            {name: found[name][i] for name in self.settings.importance} for i in range(len(batch))
        ]

    def _alone(self, task: Task) -> Importance | AttnflowError:
        """The importance of the tokens of one text, for language models."""
        from attnflow.importance import blank_out, input_gradients

        functions: dict[str, Any] = {"blank_out": blank_out, "input_gradients": input_gradients}
        made: Importance = {}
        for name in self.settings.importance:
            try:
                found = functions[name](self.loaded, task.example.text, target=self.settings.target)
            except AttnflowError as error:
                return error
            values = np.full(len(task.tokens), np.nan)
            values[list(found.columns)] = found.to_numpy()[0, 0]
            made[name] = values
        return made

    def _scores(self, batch: Sequence[Task], output: Any) -> Any:
        """The scores [texts, classes] that predictions are made from."""
        if self.loaded.task == "classifier":
            return output.logits
        rows = [
            logits_of(self.loaded, logits, task.encoded, task.explained)
            for logits, task in zip(output.logits, batch, strict=True)
        ]
        return import_torch("running a model").stack(rows)

    def _outcome(self, index: int, chance: float) -> Outcome:
        if index not in self._labels:
            self._labels[index] = label_of(self.loaded, index)
        return Outcome(KINDS[self.loaded.task], self._labels[index], index, chance)
