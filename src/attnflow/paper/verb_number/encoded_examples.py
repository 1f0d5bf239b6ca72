"""Examples as tensors: batches, augmentation, and the accuracy of a verb-number model on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from attnflow.models.builtin import NUMBERS
from attnflow.models.builtin.verb_number import (
    MAX_TOKENS,
    SPECIAL,
    UNKNOWN,
    VerbNumberModel,
    to_ids,
)
from attnflow.paper.data.data_sets import AgreementExample

POOL_SIZE = 32  # batches whose examples are sorted by length together, to reduce padding
EVALUATION_BATCH = 512


@dataclass(frozen=True, eq=False)
class EncodedExamples:
    """Examples as tensors, padded with 0 on the right.

    ids: [examples, tokens], [CLS] first. labels: [examples], indices into NUMBERS.
    lengths: [examples], in tokens, with [CLS]; on the CPU, where batches are planned.
    """

    ids: Tensor
    labels: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "EncodedExamples":
        """Return the examples on a device."""
        return EncodedExamples(self.ids.to(device), self.labels.to(device), self.lengths)

    def select(self, rows: Tensor) -> "EncodedExamples":
        """Return some examples, padded to the longest of them. rows: on the CPU."""
        lengths = self.lengths[rows]
        longest, rows = int(lengths.max()), rows.to(self.ids.device)
        return EncodedExamples(self.ids[rows, :longest], self.labels[rows], lengths)


def encode_examples(
    examples: Sequence[AgreementExample], vocabulary: Mapping[str, int]
) -> EncodedExamples:
    """Encode examples. The beginning of a prefix that is too long is cut off."""
    rows = [to_ids(example.prefix[1 - MAX_TOKENS :], vocabulary) for example in examples]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    longest = int(lengths.max()) if rows else 1
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    ids[torch.arange(longest) < lengths[:, None]] = torch.tensor(
        [*chain.from_iterable(rows)], dtype=torch.long
    )
    labels = torch.tensor([NUMBERS.index(example.number) for example in examples])
    return EncodedExamples(ids, labels, lengths)


def draw_batches(lengths: Tensor, batch_size: int, seed: int, epoch: int) -> Tensor:
    """Return the rows of each batch of an epoch, [batches, examples of a batch].

    lengths: of all examples; those of a batch have similar lengths, and so have the batches at the
    same place for other seeds. Examples that do not fill a batch are left out: with another epoch,
    they are others. If there are fewer than `batch_size`, all are in one batch.
    """
    generator = torch.Generator().manual_seed(seed * 10_000 + epoch)
    rows = torch.randperm(len(lengths), generator=generator)
    size = min(batch_size, len(lengths))
    batches: list[Tensor] = []
    for pool in torch.split(rows[: len(rows) // size * size], size * POOL_SIZE):
        order = lengths[pool].argsort(stable=True)
        batches += torch.split(pool[order], size)
    generator.manual_seed(epoch)  # whatever the seed
    return torch.stack(batches)[torch.randperm(len(batches), generator=generator)]


def replace_words(ids: Tensor, rates: Tensor) -> Tensor:
    """Replace a share of the words and tags by [UNK].

    ids: [models, examples, tokens]. rates: [models].
    Random numbers come from torch's default generator.
    """
    is_drawn = torch.rand(ids.shape, device=ids.device) < rates[:, None, None]
    return ids.masked_fill((ids >= len(SPECIAL)) & is_drawn, SPECIAL.index(UNKNOWN))


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
