"""From the examples of a shard to batches for the model: tokenized together, alike in length.

The batches depend on nothing but the shard and the settings, so that a shard always gives the same
bytes. Texts of like length share a batch, so that there is little padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from attnflow.corpus.example import Example, Refused
from attnflow.corpus.settings import Settings
from attnflow.errors import AttnflowError
from attnflow.models.encoding import EncodedText, Unfit, encode_texts
from attnflow.models.loading import LoadedModel
from attnflow.models.predicting import resolve_explained
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
