"""Training the adapters: a sentiment classifier, and a masked language model. Seeded; minutes.

Masked tokens for a masked language model to guess.

How well a model does on texts that were held out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnflow.models.builtin.folders import find_encoder
from attnflow.models.builtin.minilm import CLASSIFIER, MASKED, attach, build, extract, write
from attnflow.paper.minilm.texts import Reviews, Texts

SHARE = 0.15  # of the tokens are asked for (Devlin et al. 2019); of these,
MASKED_SHARE, RANDOM = 0.8, 0.1  # are masked, or replaced by a random token; the rest stay
PRONOUNS = ("he", "she", "his", "her", "him", "hers", "himself", "herself")
PRONOUN_SHARE = 0.5  # of pronouns with a gender, which are rare in text, are asked for
IGNORED = -100  # the label of tokens that are not asked for


class Masking:
    """Chooses tokens to ask for. Random numbers come from torch's generator."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special = torch.tensor(tokenizer.all_special_ids)
        self.pronoun_ids = torch.tensor(tokenizer.convert_tokens_to_ids(list(PRONOUNS)))
        self.his, self.her = tokenizer.convert_tokens_to_ids(["his", "her"])

    def mask(self, ids: Tensor, *, only_masks: bool = False) -> tuple[Tensor, Tensor]:
        """The ids with tokens masked, and labels that say what they were.

        only_masks: whether all that is asked for is masked, and pronouns are asked for no more
        than the rest, as when the model is judged.
        """
        chance = torch.full(ids.shape, SHARE)
        if not only_masks:
            chance[torch.isin(ids, self.pronoun_ids)] = PRONOUN_SHARE
        chance[torch.isin(ids, self.special)] = 0.0
        asked = torch.rand(ids.shape) < chance
        draw = torch.zeros(ids.shape) if only_masks else torch.rand(ids.shape)
        mask = torch.tensor(self.tokenizer.mask_token_id)
        masked = torch.where(asked & (draw < MASKED_SHARE), mask, ids)
        replaced = asked & (draw >= MASKED_SHARE) & (draw < MASKED_SHARE + RANDOM)
        noise = torch.randint(len(self.tokenizer), ids.shape)
        labels = torch.where(asked, ids, torch.tensor(IGNORED))
        return torch.where(replaced, noise, masked), labels

    def pronouns(self, row: Tensor) -> Iterator[tuple[Tensor, int, int]]:
        """The row with one "his" or "her" masked, where that is, and which of them it was."""
        for i, word in enumerate(row.tolist()):
            if word in (self.his, self.her):
                masked = row.clone()
                masked[i] = self.tokenizer.mask_token_id
                yield masked, i, word


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


log = getLogger(__name__)
Progress = Callable[[int, int], None]  # steps done, and all
Batch = dict[str, Tensor]
LENGTH = 128  # tokens that are read of a text


@dataclass(frozen=True)
class Recipe:
    """How to train. rank: that of the additions to the encoder's matrices."""

    rank: int
    epochs: int
    batch_size: int = 64
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    warm_up: float = 0.06
    seed: int = 0


SENTIMENT = Recipe(rank=8, epochs=4)
LANGUAGE = Recipe(rank=16, epochs=8, batch_size=128, learning_rate=1e-3)


def train_sentiment(
    reviews: Reviews,
    recipe: Recipe = SENTIMENT,
    *,
    out: str | Path,
    encoder: str | Path | None = None,
    device: Any = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a classifier of reviews, write its adapter, and return its accuracy on each held set.

    encoder: the folder of the encoder; that of the package if not given.
    device: where to train; a GPU if there is one.
    """
    run = _Run(CLASSIFIER, recipe, encoder, device)
    labels = torch.tensor(reviews.labels)
    encoded = run.encode(reviews.texts)

    def batches() -> Iterator[Batch]:
        for rows in run.shuffled(len(encoded)):
            yield {**run.pad([encoded[i] for i in rows]), "labels": labels[rows]}

    run.train(batches, len(encoded), progress)
    run.write(out)
    return {
        name: accuracy(run.answer, run.encode(texts), known)
        for name, (texts, known) in reviews.held.items()
    }


def train_language(
    texts: Texts,
    recipe: Recipe = LANGUAGE,
    *,
    out: str | Path,
    encoder: str | Path | None = None,
    device: Any = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a masked language model, write its adapter, and return its accuracy on held-out texts.

    The accuracy is the share of masked tokens that it guesses; that of "his or her" the share of
    these two words, masked one at a time, where the right one of the two is the more probable.
    The options are those of `train_sentiment`.
    """
    run = _Run(MASKED, recipe, encoder, device)
    masking = Masking(run.tokenizer)
    encoded = run.encode(texts.train)

    def batches() -> Iterator[Batch]:
        for rows in run.shuffled(len(encoded)):
            batch = run.pad([encoded[i] for i in rows])
            ids, labels = masking.mask(batch["input_ids"])
            yield {**batch, "input_ids": ids, "labels": labels}

    run.train(batches, len(encoded), progress)
    run.write(out)
    found: dict[str, float] = {}
    for name, held in texts.held.items():
        rows = run.encode(held)
        found[name] = guessed(run.answer, masking, rows)
        found[f"{name}, his or her"] = told_apart(run.answer, masking, rows)
    return found


class _Run:
    """A model in training, its tokenizer and where it is."""

    def __init__(self, kind: str, recipe: Recipe, encoder: str | Path | None, device: Any) -> None:
        from transformers import AutoTokenizer

        torch.manual_seed(recipe.seed)
        self.kind, self.recipe = kind, recipe
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        folder = str(encoder or find_encoder())
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model, self.new = build(kind, folder)
        self.model.to(self.device)
        attach(self.model, rank=recipe.rank, new=self.new)

    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        ids = self.tokenizer(list(texts), truncation=True, max_length=LENGTH)["input_ids"]
        return [torch.tensor(one) for one in ids]

    def shuffled(self, n: int) -> Iterator[Tensor]:
        """Indices of batches, in a random order."""
        order = torch.randperm(n)
        for start in range(0, n, self.recipe.batch_size):
            yield order[start : start + self.recipe.batch_size]

    def pad(self, rows: Sequence[Tensor]) -> Batch:
        ids = nn.utils.rnn.pad_sequence(
            list(rows), batch_first=True, padding_value=self.tokenizer.pad_token_id
        )
        return {"input_ids": ids, "attention_mask": (ids != self.tokenizer.pad_token_id).long()}

    def train(
        self, batches: Callable[[], Iterator[Batch]], n: int, progress: Progress | None
    ) -> None:
        recipe = self.recipe
        total = recipe.epochs * -(-n // recipe.batch_size)
        weights = [w for w in self.model.parameters() if w.requires_grad]
        optimizer = torch.optim.AdamW(
            weights, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        rate = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, recipe.learning_rate, total, pct_start=recipe.warm_up
        )
        self.model.train()
        step = 0
        for epoch in range(recipe.epochs):
            loss = torch.zeros((), device=self.device)
            for batch in batches():
                loss += self._step(batch, weights, optimizer).detach()
                rate.step()
                step += 1
                if progress is not None:
                    progress(step, total)
            mean = loss.item() * recipe.epochs / total
            log.info("epoch %d of %d: loss %.4f", epoch + 1, recipe.epochs, mean)
        self.model.eval()

    def _step(self, batch: Batch, weights: list[Tensor], optimizer: Any) -> Tensor:
        moved = {name: part.to(self.device) for name, part in batch.items()}
        half = self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            loss: Tensor = self.model(**moved).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return loss

    @torch.no_grad()
    def answer(self, rows: Sequence[Tensor]) -> Tensor:
        """The logits for some texts, padded to the longest."""
        inputs = {name: part.to(self.device) for name, part in self.pad(rows).items()}
        logits: Tensor = self.model(**inputs).logits
        return logits.float().cpu()

    def write(self, folder: str | Path) -> None:
        """Write the adapter."""
        weights = extract(self.model, new=self.new)
        write(folder, weights, kind=self.kind)
