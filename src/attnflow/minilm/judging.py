"""How well a model does on texts that were held out."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from attnflow.minilm.masking import Masking

Answer: TypeAlias = Callable[[Sequence[Tensor]], Tensor]  # ids of texts to logits, padded
BATCH = 256  # texts that are answered at once


def accuracy(answer: Answer, rows: Sequence[Tensor], labels: Sequence[int]) -> float:
    """The share of texts whose class the model finds most probable."""
    right = 0
    for start in range(0, len(rows), BATCH):
        best = answer(rows[start : start + BATCH]).argmax(-1)
        right += int((best == torch.tensor(labels[start : start + BATCH])).sum())
    return right / max(len(rows), 1)


def guessed(answer: Answer, masking: Masking, rows: Sequence[Tensor]) -> float:
    """The share of masked tokens, 15 % of each text, that the model finds most probable."""
    right = total = 0
    for start in range(0, len(rows), BATCH):
        part = [masking.mask(row, only_masks=True) for row in rows[start : start + BATCH]]
        best = answer([ids for ids, _ in part]).argmax(-1)
        for found, (_, labels) in zip(best, part, strict=True):
            asked = labels >= 0
            right += int((found[: len(labels)][asked] == labels[asked]).sum())
            total += int(asked.sum())
    return right / max(total, 1)


def told_apart(answer: Answer, masking: Masking, rows: Sequence[Tensor]) -> float:
    """The share of "his" and "her", masked one at a time, where the right one is more probable."""
    asked = [one for row in rows for one in masking.pronouns(row)]
    right = 0
    for start in range(0, len(asked), BATCH):
        part = asked[start : start + BATCH]
        for scores, (_, i, word) in zip(answer([ids for ids, _, _ in part]), part, strict=True):
            other = masking.her if word == masking.his else masking.his
            right += int(scores[i, word] > scores[i, other])
    return right / max(len(asked), 1)
