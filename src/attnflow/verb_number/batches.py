"""Examples as tensors, and an epoch of them as batches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnflow.data.example import NUMBERS, AgreementExample
from attnflow.verb_number.model import MAX_TOKENS
from attnflow.verb_number.splitting import Split
from attnflow.verb_number.vocabulary import TAGS, to_ids

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
