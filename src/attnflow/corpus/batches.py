"""Batches of a shard for the model, and the outcomes that the model predicts for them.

`plan_shard` tokenizes the examples of a shard and groups texts of similar length. The batches
depend only on the shard and the settings, so that a shard always gives the same bytes. `Outcomes`
reads predictions from the output of a batch and computes importance scores. Running the model on a
batch is in `scorer`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.corpus.example import Example, Outcome, Rejected
from attnflow.corpus.settings import CPU_BATCH_TOKENS, Settings
from attnflow.edges.registry import EDGES
from attnflow.errors import AttnflowError, InputError, quote
from attnflow.models.generation import AnsweredText, AnswerRequest, answer_prompts
from attnflow.models.inputs import EncodedText, InvalidText, encode_texts, warn_unknown
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import (
    KINDS,
    SHOWN,
    answer_scores,
    invalid_logits,
    label_of,
    logits_of,
    logits_of_batch,
    probabilities,
    resolve_explained,
    resolve_target,
)
from attnflow.optional import import_optional
from attnflow.selection import resolve_positions

Importance: TypeAlias = dict[str, NDArray[np.float64]]  # [tokens] by name
# What the model predicts for a text, and the target in the settings; None if there is none.
OutcomePair: TypeAlias = tuple[Outcome | None, Outcome | None]


@dataclass(frozen=True, eq=False)
class Task:
    """An example that can be scored.

    place: its index in the shard. explained: the index of the explained token.
    positions: the positions to score, as indices of tokens, or of words if the settings ask for
    words and there is no answer.
    answered: the answer whose tokens are explained, if there is one.
    """

    place: int
    example: Example
    encoded: EncodedText
    explained: int
    positions: tuple[int, ...]
    answered: AnsweredText | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that the model sees."""
        return self.encoded.tokens


@dataclass(frozen=True, eq=False)
class Plan:
    """The batches of a shard.

    size: the number of examples in the shard. batches: tasks that run together.
    rejected: the examples that cannot be scored, by their index in the shard.
    """

    size: int
    batches: tuple[tuple[Task, ...], ...]
    rejected: dict[int, Rejected]


def plan_shard(loaded: LoadedModel, settings: Settings, examples: Sequence[Example]) -> Plan:
    """Tokenize the examples, resolve their positions, and group them into batches."""
    encoded = _encode(loaded, settings, examples)
    tasks: list[Task] = []
    rejected: dict[int, Rejected] = {}
    for place, (example, encoding) in enumerate(zip(examples, encoded, strict=True)):
        if isinstance(encoding, InvalidText):
            rejected[place] = Rejected(example, encoding.reason, encoding.why)
            continue
        try:
            tasks.append(_make_task(loaded, settings, place, example, encoding))
        except AttnflowError as error:
            rejected[place] = Rejected(example, str(error), "other")
    warn_unknown(loaded, [task.encoded for task in tasks])
    is_single = not loaded.supports_batches or settings.image_column is not None
    max_texts = 1 if is_single else len(tasks)
    max_tokens = settings.batch_tokens or CPU_BATCH_TOKENS
    groups = group_lengths([len(task.tokens) for task in tasks], max_tokens, max_texts)
    batches = tuple(tuple(tasks[i] for i in group) for group in groups)
    return Plan(len(examples), batches, rejected)


def _encode(
    loaded: LoadedModel, settings: Settings, examples: Sequence[Example]
) -> Sequence[EncodedText | InvalidText]:
    """Tokenize the texts of a shard, with their images if the settings name a column of them."""
    texts = [example.text for example in examples]
    words = settings.words or settings.has_answers
    encoded = encode_texts(loaded, texts, truncate=settings.truncate, words=words)
    if settings.image_column is None:
        return encoded
    images = [example.fields.get(settings.image_column) for example in examples]
    return [
        _encode_with_images(loaded, text, files) if files else alone
        for text, files, alone in zip(texts, images, encoded, strict=True)
    ]


def _encode_with_images(loaded: LoadedModel, text: str, files: Any) -> EncodedText | InvalidText:
    """Turn a text and its images into tokens. files: the path of an image, or a list of paths."""
    from attnflow.models.multimodal import encode_with_images

    paths = files if isinstance(files, list) else [files]
    if not all(isinstance(path, str) for path in paths):
        reason = f"the image is {quote(files)}; expected the path of a file, or a list of paths."
        return InvalidText(reason, "other")
    try:
        return encode_with_images(loaded, text, paths)
    except AttnflowError as error:
        return InvalidText(str(error), "other")


def _make_task(
    loaded: LoadedModel, settings: Settings, place: int, example: Example, encoded: EncodedText
) -> Task:
    if settings.has_answers:
        answered = _answer(loaded, settings, example, encoded)
        places = tuple(range(answered.first - 1, answered.first - 1 + len(answered.ids)))
        return Task(place, example, answered.encoded, places[0], places, answered)
    explained = resolve_explained(loaded, encoded, None)
    labels, default = encoded.tokens, explained
    if settings.words:
        labels, default = encoded.words.texts, encoded.words.word_of(explained)
    if settings.positions == "explained":
        positions: tuple[int, ...] = (default,)
    elif settings.positions == "all":
        positions = tuple(range(len(labels)))
    else:
        positions = resolve_positions(labels, len(labels), settings.positions)
    return Task(place, example, encoded, explained, positions)


def _answer(
    loaded: LoadedModel, settings: Settings, example: Example, encoded: EncodedText
) -> AnsweredText:
    """Generate the answer to a text, or read it from its column."""
    if settings.answer_column is None:
        request = AnswerRequest(generate=settings.generate)
    else:
        given = example.fields.get(settings.answer_column)
        if not isinstance(given, str) or not given.strip():
            raise InputError(
                f"the answer in {settings.answer_column!r} is {given!r}",
                expected="a text in every row",
                fix="Fill it in, or remove the row.",
            )
        request = AnswerRequest(continuation=given)
    [answered] = answer_prompts(loaded, [encoded], request)
    return answered


def group_lengths(lengths: Sequence[int], max_tokens: int, max_texts: int) -> list[list[int]]:
    """Group texts of similar length into batches, the longest first.

    max_tokens: in a batch, including padding; a longer text is a batch of its own.
    max_texts: in a batch.
    Returns the indices of the texts in each batch.

    >>> group_lengths([2, 9, 3, 3], max_tokens=8, max_texts=4)
    [[1], [2, 3], [0]]
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        last = batches[-1] if batches else []
        full = last and (len(last) + 1) * lengths[last[0]] > max_tokens
        if not last or full or len(last) >= max_texts:
            batches.append([i])
        else:
            last.append(i)
    return batches


class Outcomes:
    """Predictions, targets and importance scores of one model under some settings.

    Raises InputError if the settings need a prediction and the model makes none.
    """

    def __init__(self, loaded: LoadedModel, settings: Settings) -> None:
        self.loaded, self.settings = loaded, settings
        self._labels: dict[int, str] = {}
        self._check_model()

    def _check_model(self) -> None:
        settings, task = self.settings, self.loaded.task
        needs = [f"importance {name}" for name in settings.importance]
        edges = settings.edges or "attention"
        needs += [f"edges {edges}"] if EDGES[edges].needs_gradient else []
        needs += ["a target"] if settings.target is not None else []
        unsupported = ("encoder", "seq2seq") if settings.importance else ("encoder",)
        if needs and task in unsupported:
            problem = "makes no predictions" if task == "encoder" else "is an encoder-decoder"
            raise InputError(
                f"{self.loaded.name} {problem}; {' and '.join(needs)} cannot be computed",
                expected="a classifier or a language model",
                fix="Use such a model, or remove these settings.",
            )

    def predict(self, batch: Sequence[Task], output: Any) -> list[OutcomePair]:
        """Return the prediction and the target of each text of a batch.

        A text whose logits are NaN has neither; `Outcomes.importance` returns the error.
        """
        if self.loaded.task == "encoder":
            return [(None, None)] * len(batch)
        chances = probabilities(self.loaded, self._logits(batch, output))  # [texts, classes]
        n_classes = int(chances.shape[-1])
        # topk, as in `explain`, for the same choice between equal probabilities.
        best = chances.topk(min(SHOWN, n_classes)).indices[:, 0]
        pairs = zip(best.tolist(), chances.sum(-1).tolist(), chances.amax(-1).tolist(), strict=True)
        predictions = [
            None if isnan(total) else self._outcome(index, chance) for index, total, chance in pairs
        ]
        if self.settings.target is None:
            return [(prediction, None) for prediction in predictions]
        index = resolve_target(self.loaded, self.settings.target, n_classes)
        targets = zip(predictions, chances[:, index].tolist(), strict=True)
        return [(p, None if p is None else self._outcome(index, chance)) for p, chance in targets]

    def explained_logits(self, batch: Sequence[Task], output: Any) -> Any:
        """Return the logit [texts] of each explained outcome, to take gradients of."""
        if self.settings.has_answers:
            answers = [task.answered for task in batch if task.answered is not None]
            return answer_scores(self.loaded, output.logits, answers)
        logits = self._logits(batch, output)
        torch = import_optional("torch", "gradients")
        indices = _explained_indices(self.predict(batch, output))
        return logits[torch.arange(len(logits), device=logits.device), indices]

    def answer_probabilities(self, batch: Sequence[Task], output: Any) -> list[tuple[float, ...]]:
        """Return the probability of each token of the answers; none without answers."""
        found: list[tuple[float, ...]] = []
        for task, logits in zip(batch, output.logits, strict=True):
            if task.answered is None:
                found.append(())
                continue
            rows = [logits_of(self.loaded, logits, task.encoded, i) for i in task.positions]
            pairs = zip(rows, task.answered.ids, strict=True)
            found.append(tuple(float(probabilities(self.loaded, row)[i]) for row, i in pairs))
        return found

    def importance(
        self, batch: Sequence[Task], outcomes: Sequence[OutcomePair]
    ) -> list[Importance | AttnflowError]:
        """Return the importance scores of each text, or the error that prevents its result."""
        scores: list[Importance | AttnflowError] = list(self._importance(batch, outcomes))
        if self.loaded.task == "encoder":
            return scores
        pairs = zip(outcomes, scores, strict=True)
        return [invalid_logits(self.loaded) if o[0] is None else score for o, score in pairs]

    def _importance(
        self, batch: Sequence[Task], outcomes: Sequence[OutcomePair]
    ) -> Sequence[Importance | AttnflowError]:
        if not self.settings.importance:
            return [{}] * len(batch)
        if self.loaded.task != "classifier":
            return [self._importance_of_text(task) for task in batch]
        from attnflow.importance.blank_out import blank_out_batch
        from attnflow.importance.gradients import input_gradients_batch

        encoded, targets = [task.encoded for task in batch], _explained_indices(outcomes)
        scores: dict[str, Any] = {}
        if "blank_out" in self.settings.importance:
            scores["blank_out"] = blank_out_batch(self.loaded, encoded, targets)
        if "input_gradients" in self.settings.importance:
            scores["input_gradients"] = input_gradients_batch(self.loaded, encoded, targets)["l2"]
        return [
            {name: scores[name][i] for name in self.settings.importance} for i in range(len(batch))
        ]

    def _importance_of_text(self, task: Task) -> Importance | AttnflowError:
        """Return the importance scores of one text, for language models."""
        from attnflow.importance import blank_out, input_gradients

        functions: dict[str, Any] = {"blank_out": blank_out, "input_gradients": input_gradients}
        scores: Importance = {}
        for name in self.settings.importance:
            try:
                result = functions[name](task.encoded, self.loaded, target=self.settings.target)
            except AttnflowError as error:
                return error
            scores[name] = np.full(len(task.tokens), np.nan)
            scores[name][list(result.columns)] = result.to_numpy()[0, 0]
        return scores

    def _logits(self, batch: Sequence[Task], output: Any) -> Any:
        """Return the logits [texts, classes] of the predictions."""
        encoded = [task.encoded for task in batch]
        positions = [task.explained for task in batch]
        return logits_of_batch(self.loaded, output.logits, encoded, positions)

    def _outcome(self, index: int, chance: float) -> Outcome:
        if index not in self._labels:
            self._labels[index] = label_of(self.loaded, index)
        return Outcome(KINDS[self.loaded.task], self._labels[index], index, chance)


def _explained_indices(outcomes: Sequence[OutcomePair]) -> list[int]:
    """Return the index of the explained outcome of each text: the target if there is one.

    A text without an outcome is rejected later; any index does.
    """
    explained = (target or prediction for prediction, target in outcomes)
    return [0 if outcome is None else outcome.index for outcome in explained]
