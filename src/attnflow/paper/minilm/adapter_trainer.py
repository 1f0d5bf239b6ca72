"""Training of the adapters: a sentiment classifier, and a masked language model.

The masking of tokens and the accuracy on held-out texts are here too. Trainings are seeded, and
take minutes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from attnflow.models.builtin import find_encoder
from attnflow.models.builtin.minilm import (
    CLASSIFIER,
    DISTILBERT_CLASSIFIER,
    MASKED_LM,
    attach_adapter,
    build_model,
    extract_adapter,
    fold_adapter,
    write_adapter,
)
from attnflow.paper.minilm.texts import Reviews, Texts
from attnflow.progress import Progress

log = getLogger(__name__)

Batch: TypeAlias = dict[str, Tensor]
# From token ids, one tensor per text, to logits, padded to the longest text.
Predict: TypeAlias = Callable[[Sequence[Tensor]], Tensor]

MAX_TOKENS = 128  # of a text
EVALUATION_BATCH = 256

# Masking as in BERT (Devlin et al. 2019): tokens are selected for prediction; 80 % of them become
# [MASK], 10 % a random token, and the rest stay.
SELECTED_SHARE, MASK_SHARE, RANDOM_SHARE = 0.15, 0.8, 0.1
PRONOUNS = ("he", "she", "his", "her", "him", "hers", "himself", "herself")
PRONOUN_SHARE = 0.5  # of gendered pronouns that are selected, because they are rare
IGNORED = -100  # the label of tokens that are not selected


@dataclass(frozen=True)
class Recipe:
    """Settings of a training.

    rank: of the low-rank matrices of the adapter.
    warm_up: the share of steps in which the learning rate rises.
    """

    rank: int
    epochs: int
    batch_size: int = 64
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    warm_up: float = 0.06
    seed: int = 0


SENTIMENT_RECIPE = Recipe(rank=8, epochs=4)
MASKED_LM_RECIPE = Recipe(rank=16, epochs=8, batch_size=128, learning_rate=1e-3)


def train_sentiment(
    reviews: Reviews,
    recipe: Recipe = SENTIMENT_RECIPE,
    *,
    out: str | Path,
    distilbert: str | Path | None = None,
    device: Any = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a sentiment classifier, write its adapter, and return its accuracy on held-out sets.

    out: the folder of the adapter.
    distilbert: a folder or name of a DistilBERT encoder to use instead of the installed MiniLM. The
    whole model is written then, as `from_pretrained` reads it.
    device: default, a GPU if there is one. progress: called with the steps done and in total.
    """
    class_name = CLASSIFIER if distilbert is None else DISTILBERT_CLASSIFIER
    training = _Training(class_name, recipe, distilbert, device)
    labels = torch.tensor(reviews.labels)
    rows = training.encode(reviews.texts)

    def make_batches() -> Iterator[Batch]:
        for indices in training.shuffle(len(rows)):
            yield {**training.pad([rows[i] for i in indices]), "labels": labels[indices]}

    training.train(make_batches, len(rows), progress)
    if distilbert is None:
        training.write(out)
    else:
        training.write_whole(out)
    return {
        name: class_accuracy(training.predict, training.encode(texts), correct)
        for name, (texts, correct) in reviews.held_out.items()
    }


def train_masked_lm(
    texts: Texts,
    recipe: Recipe = MASKED_LM_RECIPE,
    *,
    out: str | Path,
    device: Any = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a masked language model, write its adapter, and return its accuracy on held-out texts.

    Each source of texts has two accuracies: of masked tokens (`token_accuracy`), and of "his or
    her" (`pronoun_accuracy`). The options are those of `train_sentiment`.
    """
    training = _Training(MASKED_LM, recipe, None, device)
    masking = Masking(training.tokenizer)
    rows = training.encode(texts.train)

    def make_batches() -> Iterator[Batch]:
        for indices in training.shuffle(len(rows)):
            batch = training.pad([rows[i] for i in indices])
            ids, labels = masking.mask(batch["input_ids"])
            yield {**batch, "input_ids": ids, "labels": labels}

    training.train(make_batches, len(rows), progress)
    training.write(out)
    accuracies: dict[str, float] = {}
    for name, held_out in texts.held_out.items():
        test_rows = training.encode(held_out)
        accuracies[name] = token_accuracy(training.predict, masking, test_rows)
        accuracies[f"{name}, his or her"] = pronoun_accuracy(training.predict, masking, test_rows)
    return accuracies


class _Training:
    """A model in training, its tokenizer and its device."""

    def __init__(
        self, class_name: str, recipe: Recipe, encoder: str | Path | None, device: Any
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.class_name, self.recipe = class_name, recipe
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        folder = str(encoder or find_encoder())
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model, self.new = build_model(class_name, folder)
        self.model.to(self.device)
        attach_adapter(self.model, rank=recipe.rank, new=self.new)

    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        """Return the token ids of each text, cut to MAX_TOKENS."""
        encoded = self.tokenizer(list(texts), truncation=True, max_length=MAX_TOKENS)
        return [torch.tensor(ids) for ids in encoded["input_ids"]]

    def shuffle(self, n: int) -> Iterator[Tensor]:
        """Yield the indices of each batch of n texts, in random order."""
        order = torch.randperm(n)
        for start in range(0, n, self.recipe.batch_size):
            yield order[start : start + self.recipe.batch_size]

    def pad(self, rows: Sequence[Tensor]) -> Batch:
        """Pad the token ids of texts to the longest."""
        ids = nn.utils.rnn.pad_sequence(
            list(rows), batch_first=True, padding_value=self.tokenizer.pad_token_id
        )
        return {"input_ids": ids, "attention_mask": (ids != self.tokenizer.pad_token_id).long()}

    def train(
        self, make_batches: Callable[[], Iterator[Batch]], n_texts: int, progress: Progress | None
    ) -> None:
        """Train for all epochs. make_batches: called once per epoch."""
        recipe = self.recipe
        n_steps = recipe.epochs * -(-n_texts // recipe.batch_size)
        weights = [w for w in self.model.parameters() if w.requires_grad]
        optimizer = torch.optim.AdamW(
            weights, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, recipe.learning_rate, n_steps, pct_start=recipe.warm_up
        )
        self.model.train()
        step = 0
        for epoch in range(recipe.epochs):
            total_loss = torch.zeros((), device=self.device)
            for batch in make_batches():
                total_loss += self._update(batch, weights, optimizer).detach()
                scheduler.step()
                step += 1
                if progress is not None:
                    progress(step, n_steps)
            mean_loss = total_loss.item() * recipe.epochs / n_steps
            log.info("epoch %d of %d: loss %.4f", epoch + 1, recipe.epochs, mean_loss)
        self.model.eval()

    def _update(
        self, batch: Batch, weights: list[Tensor], optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """Take a step of the optimizer; return the loss."""
        inputs = {name: tensor.to(self.device) for name, tensor in batch.items()}
        is_cuda = self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_cuda):
            loss: Tensor = self.model(**inputs).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return loss

    @torch.no_grad()
    def predict(self, rows: Sequence[Tensor]) -> Tensor:
        """Return the logits of texts, padded to the longest."""
        inputs = {name: tensor.to(self.device) for name, tensor in self.pad(rows).items()}
        logits: Tensor = self.model(**inputs).logits
        return logits.float().cpu()

    def write(self, folder: str | Path) -> None:
        """Write the adapter."""
        weights = extract_adapter(self.model, new=self.new)
        write_adapter(folder, weights, class_name=self.class_name)

    def write_whole(self, folder: str | Path) -> None:
        """Write the model with the adapter merged into its weights, and the tokenizer."""
        fold_adapter(self.model)
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


class Masking:
    """Selects and masks tokens. Random numbers come from torch's default generator."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special_ids = torch.tensor(tokenizer.all_special_ids)
        self.pronoun_ids = torch.tensor(tokenizer.convert_tokens_to_ids(list(PRONOUNS)))
        self.his, self.her = tokenizer.convert_tokens_to_ids(["his", "her"])

    def mask(self, ids: Tensor, *, for_evaluation: bool = False) -> tuple[Tensor, Tensor]:
        """Return masked ids and labels, in the shape of the ids.

        for_evaluation: mask all selected tokens, and select pronouns as often as other tokens.
        """
        probability = torch.full(ids.shape, SELECTED_SHARE)
        if not for_evaluation:
            probability[torch.isin(ids, self.pronoun_ids)] = PRONOUN_SHARE
        probability[torch.isin(ids, self.special_ids)] = 0.0
        is_selected = torch.rand(ids.shape) < probability
        draws = torch.zeros(ids.shape) if for_evaluation else torch.rand(ids.shape)
        mask_id = torch.tensor(self.tokenizer.mask_token_id)
        masked = torch.where(is_selected & (draws < MASK_SHARE), mask_id, ids)
        is_random = is_selected & (draws >= MASK_SHARE) & (draws < MASK_SHARE + RANDOM_SHARE)
        random_ids = torch.randint(len(self.tokenizer), ids.shape)
        labels = torch.where(is_selected, ids, torch.tensor(IGNORED))
        return torch.where(is_random, random_ids, masked), labels

    def mask_pronouns(self, row: Tensor) -> Iterator[tuple[Tensor, int, int]]:
        """Mask each "his" and "her" of a text, one at a time.

        Yields the masked ids, the position of the mask, and the id of the pronoun.
        """
        for position, token_id in enumerate(row.tolist()):
            if token_id in (self.his, self.her):
                masked = row.clone()
                masked[position] = self.tokenizer.mask_token_id
                yield masked, position, token_id


def class_accuracy(predict: Predict, rows: Sequence[Tensor], labels: Sequence[int]) -> float:
    """Return the share of texts whose class is predicted correctly."""
    n_correct = 0
    for start in range(0, len(rows), EVALUATION_BATCH):
        predicted = predict(rows[start : start + EVALUATION_BATCH]).argmax(-1)
        correct = torch.tensor(labels[start : start + EVALUATION_BATCH])
        n_correct += int((predicted == correct).sum())
    return n_correct / max(len(rows), 1)


def token_accuracy(predict: Predict, masking: Masking, rows: Sequence[Tensor]) -> float:
    """Return the share of masked tokens, 15 % of each text, that are predicted correctly."""
    n_correct = n_masked = 0
    for start in range(0, len(rows), EVALUATION_BATCH):
        batch = [
            masking.mask(row, for_evaluation=True) for row in rows[start : start + EVALUATION_BATCH]
        ]
        predicted = predict([ids for ids, _ in batch]).argmax(-1)
        for best, (_, labels) in zip(predicted, batch, strict=True):
            is_masked = labels != IGNORED
            n_correct += int((best[: len(labels)][is_masked] == labels[is_masked]).sum())
            n_masked += int(is_masked.sum())
    return n_correct / max(n_masked, 1)


def pronoun_accuracy(predict: Predict, masking: Masking, rows: Sequence[Tensor]) -> float:
    """Return how often the correct one of "his" and "her" has the higher probability."""
    masked_rows = [masked for row in rows for masked in masking.mask_pronouns(row)]
    n_correct = 0
    for start in range(0, len(masked_rows), EVALUATION_BATCH):
        batch = masked_rows[start : start + EVALUATION_BATCH]
        all_logits = predict([ids for ids, _, _ in batch])
        for logits, (_, position, correct) in zip(all_logits, batch, strict=True):
            wrong = masking.her if correct == masking.his else masking.his
            n_correct += int(logits[position, correct] > logits[position, wrong])
    return n_correct / max(len(masked_rows), 1)
