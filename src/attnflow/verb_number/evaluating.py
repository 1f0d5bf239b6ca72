"""How often the verb-number model is right."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from attnflow.data.example import AgreementExample
from attnflow.verb_number.batches import encode_examples
from attnflow.verb_number.model import VerbNumberModel

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
