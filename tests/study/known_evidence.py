"""A classifier whose evidence is known: each word adds its weight to the logit of a class."""

from types import SimpleNamespace

import torch

from attnflow.models.loading import LoadedModel
from tests.models.checkpoints import VOCABULARY, make_tokenizer

# Words that support the first class, from strong to weak, and words that oppose it.
WEIGHTS = {"key": 2.0, "cabinets": 1.1, "here": 0.6, "the": 0.2, "to": -0.3, "are": -1.0}
TEXT = "the key to cabinets are here"


class WordWeights(torch.nn.Module):
    """Two classes: the logit of the first is the sum of the words' weights, of the second 0.

    Special tokens weigh nothing, so a word that is masked is a word that is absent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(len(VOCABULARY), 2, dtype=torch.float64)
        torch.nn.init.zeros_(self.embedding.weight)
        with torch.no_grad():
            for word, weight in WEIGHTS.items():
                self.embedding.weight[VOCABULARY[word], 0] = weight

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.embedding(input_ids).sum(1))


def make_known_evidence() -> LoadedModel:
    """The classifier with its tokenizer."""
    return LoadedModel(WordWeights(), make_tokenizer(), "classifier", "known evidence", None)


def true_weights(labels) -> list[float]:
    """The weight of each ranked word: a perfect explanation."""
    return [WEIGHTS[label] for label in labels]
