"""What the verb-number model is trained to do.

Beside the number of the verb, it guesses words that were blanked out, and the tags of words where
these are known. That teaches it the words, of which there are many, from few sentences. The parts
for guessing are thrown away after the training.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from attnflow.verb_number.batches import NO_TAG, Texts
from attnflow.verb_number.model import VerbNumberModel
from attnflow.verb_number.vocabulary import SPECIAL, TAGS, UNKNOWN


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
