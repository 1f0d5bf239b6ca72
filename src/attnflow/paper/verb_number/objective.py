"""What the verb-number model is trained to do.

Beside the number of the verb, it guesses words that were blanked out, and the tags of words where
these are known. That teaches it the words, of which there are many, from few sentences. The parts
for guessing are thrown away after the training.

Examples as tensors, and an epoch of them as batches.

How often the verb-number model is right.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from attnflow.models.builtin.folders import NUMBERS
from attnflow.models.builtin.verb_number import (
    MAX_TOKENS,
    SPECIAL,
    TAGS,
    UNKNOWN,
    VerbNumberModel,
    to_ids,
)
from attnflow.paper.data.readers import AgreementExample
from attnflow.paper.verb_number.splits import Split

NO_TAG = -100  # what cross entropy leaves out
POOL = 32  # batches that are filled together, so that texts of like length meet
TAG_NUMBERS = {tag: i for i, tag in enumerate(TAGS)}


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts as numbers, padded with 0 on the right.

    ids: [texts, tokens], [CLS] first. tags: [texts, tokens], NO_TAG where none is known.
    labels: [texts]. lengths: [texts], the number of tokens with [CLS].
    """

    ids: Tensor
    tags: Tensor
    labels: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Texts":
        """The same on a device."""
        parts = (self.ids, self.tags, self.labels, self.lengths)
        return Texts(*(part.to(device) for part in parts))

    def choose(self, rows: Tensor) -> "Texts":
        """Some of the texts, cut to the longest of them."""
        length = int(self.lengths[rows].max())
        return Texts(
            self.ids[rows, :length],
            self.tags[rows, :length],
            self.labels[rows],
            self.lengths[rows],
        )


def encode_examples(examples: Sequence[AgreementExample], vocabulary: Mapping[str, int]) -> Texts:
    """Examples as numbers. Of a text that is too long, the beginning is left out."""
    ids = torch.zeros(len(examples), MAX_TOKENS, dtype=torch.long)
    tags = torch.full_like(ids, NO_TAG)
    lengths = torch.zeros(len(examples), dtype=torch.long)
    for row, example in enumerate(examples):
        numbers = to_ids(example.prefix[1 - MAX_TOKENS :], vocabulary)
        ids[row, : len(numbers)] = torch.tensor(numbers)
        lengths[row] = len(numbers)
        if example.tags:
            known = [TAG_NUMBERS.get(tag, NO_TAG) for tag in example.tags[1 - MAX_TOKENS :]]
            tags[row, 1 : len(numbers)] = torch.tensor(known)
    labels = torch.tensor([NUMBERS.index(example.number) for example in examples])
    longest = int(lengths.max()) if len(examples) else 1
    return Texts(ids[:, :longest], tags[:, :longest], labels, lengths)


@dataclass(frozen=True, eq=False)
class Mixture:
    """All texts to train on, and which of them an epoch has.

    every: rows that are in every epoch, some of them several times.
    hard: singular and plural rows with attractors; an epoch has a new sample, `n_hard` of each.
    """

    texts: Texts
    every: Tensor
    hard: tuple[Tensor, Tensor]
    n_hard: int

    @classmethod
    def from_split(
        cls, split: Split, vocabulary: Mapping[str, int], *, copies: int, share: float
    ) -> "Mixture":
        """Encode a split.

        copies: how often an epoch has each natural example. share: the part with attractors.
        """
        texts = encode_examples(split.training, vocabulary)
        n_natural, n_treebanks = len(split.natural), len(split.treebanks)
        every = torch.cat(
            [torch.arange(n_natural).repeat(copies), n_natural + torch.arange(n_treebanks)]
        )
        rows = torch.arange(n_natural + n_treebanks, len(texts))
        singular = texts.labels[rows] == 0
        hard = (rows[singular], rows[~singular])
        wanted = int(len(every) * share / (1 - share)) // 2
        return cls(texts, every, hard, min(wanted, len(hard[0]), len(hard[1])))

    def epoch(self, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """The rows of each batch of an epoch, in random order."""
        parts = [self.every]
        for rows in self.hard:
            parts.append(rows[torch.randperm(len(rows), generator=generator)[: self.n_hard]])
        rows = torch.cat(parts)
        rows = rows[torch.randperm(len(rows), generator=generator)]
        batches: list[Tensor] = []
        for pool in torch.split(rows, batch_size * POOL):
            order = self.texts.lengths[pool].argsort(stable=True)
            batches += torch.split(pool[order], batch_size)
        for i in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[i]

    def n_batches(self, batch_size: int) -> int:
        """How many batches an epoch has."""
        left = len(self.every) + 2 * self.n_hard
        n = 0
        while left > 0:
            n += -(-min(left, batch_size * POOL) // batch_size)
            left -= batch_size * POOL
        return n


@dataclass(frozen=True)
class Objective:
    """blanked: the share of words that are blanked out. guessing, tagging: weights of these losses.

    smoothing: the probability that is taken from the right number and spread over both.
    """

    blanked: float = 0.15
    guessing: float = 1.0
    tagging: float = 0.5
    smoothing: float = 0.05


# Nothing but the number of the verb, as in the paper.
ONLY_NUMBER = Objective(blanked=0.0, guessing=0.0, tagging=0.0, smoothing=0.0)


class Learner(nn.Module):
    """The model, with what it needs only to be trained."""

    def __init__(self, model: VerbNumberModel) -> None:
        super().__init__()
        self.model = model
        width = model.config.n_embd
        self.word_bias = nn.Parameter(torch.zeros(model.config.vocab_size))
        self.to_word = nn.Linear(width, width)
        self.to_tag = nn.Linear(width, len(TAGS))

    def loss(self, batch: Texts, objective: Objective, generator: torch.Generator) -> Tensor:
        """The loss of a batch, in which words are blanked out at random."""
        seen, blanked = blank(batch, objective.blanked, generator)
        mask = torch.arange(seen.shape[1], device=seen.device) < batch.lengths[:, None]
        layers, _ = self.model.encode(self.model.transformer.wte(seen), mask)
        logits = self.model.score(self.model.read(layers[-1], mask))
        total = cross_entropy(logits, batch.labels, label_smoothing=objective.smoothing)
        hidden = layers[-1]
        if objective.guessing and objective.blanked:
            total = total + objective.guessing * self._guess(hidden, batch.ids, blanked)
        if objective.tagging:
            total = total + objective.tagging * self._tag(hidden, batch.tags)
        return total

    def _guess(self, hidden: Tensor, ids: Tensor, blanked: Tensor) -> Tensor:
        """How badly blanked words are guessed. A sum, so that no blanked word is no problem."""
        vectors = self.to_word(hidden[blanked])
        scores = linear(vectors, self.model.transformer.wte.weight, self.word_bias)
        return cross_entropy(scores, ids[blanked], reduction="sum") / max(len(vectors), 1)

    def _tag(self, hidden: Tensor, tags: Tensor) -> Tensor:
        known = (tags != NO_TAG).sum().clamp(min=1)
        scores = self.to_tag(hidden).flatten(0, 1)
        return cross_entropy(scores, tags.flatten(), ignore_index=NO_TAG, reduction="sum") / known


def blank(batch: Texts, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Put [UNK] in the place of a share of the words; also return where, [texts, tokens].

    The generator is that of a processor, so that every device blanks the same words.
    """
    drawn = torch.rand(batch.ids.shape, generator=generator).to(batch.ids.device)
    blanked = (drawn < share) & (batch.ids >= len(SPECIAL))
    return batch.ids.masked_fill(blanked, SPECIAL.index(UNKNOWN)), blanked


BATCH = 512


def predict_numbers(
    model: VerbNumberModel, examples: Sequence[AgreementExample], vocabulary: Mapping[str, int]
) -> tuple[Tensor, Tensor]:
    """The logits [examples, 2] of a model in evaluation mode, and the right labels [examples]."""
    texts = encode_examples(examples, vocabulary)
    device = next(model.parameters()).device
    logits = []
    with torch.no_grad():
        for rows in torch.split(torch.arange(len(texts)), BATCH):
            batch = texts.choose(rows).to(device)
            logits.append(model(batch.ids).logits.float().cpu())
    return torch.cat([torch.zeros(0, 2), *logits]), texts.labels


def accuracy(
    model: VerbNumberModel, examples: Sequence[AgreementExample], vocabulary: Mapping[str, int]
) -> float:
    """The share of examples whose number the model predicts; nan if there are none."""
    logits, labels = predict_numbers(model, examples, vocabulary)
    return float((logits.argmax(-1) == labels).float().mean())
