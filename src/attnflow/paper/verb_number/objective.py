"""Encoded examples, batches, the training loss, and the accuracy of the verb-number model.

Besides the number of the verb, the model learns two auxiliary tasks: masked words, and the tags of
words where the data has tags. They teach it many words from few sentences. Their output layers are
dropped after training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from attnflow.models.builtin import NUMBERS
from attnflow.models.builtin.verb_number import (
    MAX_TOKENS,
    SPECIAL,
    TAGS,
    UNKNOWN,
    VerbNumberModel,
    to_ids,
)
from attnflow.paper.data.data_sets import AgreementExample
from attnflow.paper.verb_number.splits import Split

NO_TAG = -100  # the label that cross_entropy ignores by default
TAG_IDS = {tag: i for i, tag in enumerate(TAGS)}
POOL_SIZE = 32  # batches whose examples are sorted by length together, to reduce padding
EVALUATION_BATCH = 512


@dataclass(frozen=True, eq=False)
class EncodedExamples:
    """Examples as tensors, padded with 0 on the right.

    ids: [examples, tokens], [CLS] first. tags: [examples, tokens], NO_TAG where unknown.
    labels: [examples], indices into NUMBERS. lengths: [examples], in tokens, with [CLS].
    """

    ids: Tensor
    tags: Tensor
    labels: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "EncodedExamples":
        """Return the examples on a device."""
        tensors = (self.ids, self.tags, self.labels, self.lengths)
        return EncodedExamples(*(tensor.to(device) for tensor in tensors))

    def select(self, rows: Tensor) -> "EncodedExamples":
        """Return some examples, padded to the longest of them."""
        longest = int(self.lengths[rows].max())
        return EncodedExamples(
            self.ids[rows, :longest],
            self.tags[rows, :longest],
            self.labels[rows],
            self.lengths[rows],
        )


def encode_examples(
    examples: Sequence[AgreementExample], vocabulary: Mapping[str, int]
) -> EncodedExamples:
    """Encode examples. The beginning of a prefix that is too long is cut off."""
    ids = torch.zeros(len(examples), MAX_TOKENS, dtype=torch.long)
    tags = torch.full_like(ids, NO_TAG)
    lengths = torch.zeros(len(examples), dtype=torch.long)
    for row, example in enumerate(examples):
        token_ids = to_ids(example.prefix[1 - MAX_TOKENS :], vocabulary)
        ids[row, : len(token_ids)] = torch.tensor(token_ids)
        lengths[row] = len(token_ids)
        if example.tags:
            tag_ids = [TAG_IDS.get(tag, NO_TAG) for tag in example.tags[1 - MAX_TOKENS :]]
            tags[row, 1 : len(token_ids)] = torch.tensor(tag_ids)
    labels = torch.tensor([NUMBERS.index(example.number) for example in examples])
    longest = int(lengths.max()) if len(examples) else 1
    return EncodedExamples(ids[:, :longest], tags[:, :longest], labels, lengths)


@dataclass(frozen=True, eq=False)
class Mixture:
    """All training examples, and how an epoch is drawn from them.

    fixed: the rows in every epoch, possibly repeated.
    hard: the singular and the plural rows with attractors. Each epoch draws `n_hard` of each.
    """

    examples: EncodedExamples
    fixed: Tensor
    hard: tuple[Tensor, Tensor]
    n_hard: int

    @classmethod
    def from_split(
        cls,
        split: Split,
        vocabulary: Mapping[str, int],
        *,
        natural_copies: int,
        attractor_share: float,
    ) -> "Mixture":
        """Encode the training examples of a split.

        natural_copies: how often each example of the natural distribution is in an epoch.
        attractor_share: the share of an epoch that has attractors; less if there are too few.
        """
        examples = encode_examples(split.training, vocabulary)
        n_natural, n_treebanks = len(split.natural), len(split.treebanks)
        fixed = torch.cat(
            [torch.arange(n_natural).repeat(natural_copies), n_natural + torch.arange(n_treebanks)]
        )
        rows = torch.arange(n_natural + n_treebanks, len(examples))
        is_singular = examples.labels[rows] == 0
        hard = (rows[is_singular], rows[~is_singular])
        n_hard = int(len(fixed) * attractor_share / (1 - attractor_share)) // 2
        return cls(examples, fixed, hard, min(n_hard, len(hard[0]), len(hard[1])))

    def draw_batches(self, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield the rows of each batch of an epoch, in random order."""
        parts = [self.fixed]
        for rows in self.hard:
            parts.append(rows[torch.randperm(len(rows), generator=generator)[: self.n_hard]])
        rows = torch.cat(parts)
        rows = rows[torch.randperm(len(rows), generator=generator)]
        batches: list[Tensor] = []
        for pool in torch.split(rows, batch_size * POOL_SIZE):
            order = self.examples.lengths[pool].argsort(stable=True)
            batches += torch.split(pool[order], batch_size)
        for i in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[i]

    def count_batches(self, batch_size: int) -> int:
        """Return the number of batches of an epoch."""
        # Pools are filled one after another, and all but the last are multiples of batch_size.
        return -(-(len(self.fixed) + 2 * self.n_hard) // batch_size)


@dataclass(frozen=True)
class Objective:
    """Weights of the tasks.

    mask_rate: the share of words that are masked. word_weight, tag_weight: the weights of the
    losses of masked words and of tags, beside 1 for the number of the verb.
    label_smoothing: of the number of the verb.
    """

    mask_rate: float = 0.15
    word_weight: float = 1.0
    tag_weight: float = 0.5
    label_smoothing: float = 0.05


# Only the number of the verb, as in the paper.
NUMBER_ONLY = Objective(mask_rate=0.0, word_weight=0.0, tag_weight=0.0, label_smoothing=0.0)


class MultiTaskModel(nn.Module):
    """The verb-number model with output layers for the auxiliary tasks."""

    def __init__(self, model: VerbNumberModel) -> None:
        super().__init__()
        self.model = model
        width = model.config.n_embd
        self.word_bias = nn.Parameter(torch.zeros(model.config.vocab_size))
        self.to_word = nn.Linear(width, width)
        self.to_tag = nn.Linear(width, len(TAGS))

    def loss(
        self, batch: EncodedExamples, objective: Objective, generator: torch.Generator
    ) -> Tensor:
        """Return the loss of a batch. generator: chooses the masked words."""
        ids, is_masked = mask_words(batch, objective.mask_rate, generator)
        is_token = torch.arange(ids.shape[1], device=ids.device) < batch.lengths[:, None]
        layers, _ = self.model.encode(self.model.transformer.wte(ids), is_token)
        hidden = layers[-1]
        logits = self.model.score(self.model.pool(hidden, is_token))
        total = cross_entropy(logits, batch.labels, label_smoothing=objective.label_smoothing)
        if objective.word_weight and objective.mask_rate:
            total = total + objective.word_weight * self._word_loss(hidden, batch.ids, is_masked)
        if objective.tag_weight:
            total = total + objective.tag_weight * self._tag_loss(hidden, batch.tags)
        return total

    def _word_loss(self, hidden: Tensor, ids: Tensor, is_masked: Tensor) -> Tensor:
        vectors = self.to_word(hidden[is_masked])
        logits = linear(vectors, self.model.transformer.wte.weight, self.word_bias)
        # Not reduction="mean", which is nan if no word is masked.
        return cross_entropy(logits, ids[is_masked], reduction="sum") / max(len(vectors), 1)

    def _tag_loss(self, hidden: Tensor, tags: Tensor) -> Tensor:
        n_tags = (tags != NO_TAG).sum().clamp(min=1)
        logits = self.to_tag(hidden).flatten(0, 1)
        return cross_entropy(logits, tags.flatten(), ignore_index=NO_TAG, reduction="sum") / n_tags


def mask_words(
    batch: EncodedExamples, rate: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Replace a share of the words by [UNK].

    generator: on the CPU, so that the same words are masked on every device.
    Returns the new ids, and whether each token is masked, both [examples, tokens].
    """
    draws = torch.rand(batch.ids.shape, generator=generator).to(batch.ids.device)
    is_masked = (draws < rate) & (batch.ids >= len(SPECIAL))
    return batch.ids.masked_fill(is_masked, SPECIAL.index(UNKNOWN)), is_masked


def predict_numbers(
    model: VerbNumberModel, examples: Sequence[AgreementExample], vocabulary: Mapping[str, int]
) -> tuple[Tensor, Tensor]:
    """Predict the number of the verb of each example.

    model: in evaluation mode.
    Returns the logits [examples, 2], and the correct labels [examples].
    """
    encoded = encode_examples(examples, vocabulary)
    device = next(model.parameters()).device
    logits = [torch.zeros(0, 2)]  # in case there are no examples
    with torch.no_grad():
        for rows in torch.split(torch.arange(len(encoded)), EVALUATION_BATCH):
            batch = encoded.select(rows).to(device)
            logits.append(model(batch.ids).logits.float().cpu())
    return torch.cat(logits), encoded.labels


def accuracy(
    model: VerbNumberModel, examples: Sequence[AgreementExample], vocabulary: Mapping[str, int]
) -> float:
    """Return the share of examples whose number is predicted correctly; nan without examples."""
    logits, labels = predict_numbers(model, examples, vocabulary)
    return float((logits.argmax(-1) == labels).float().mean())
