"""A model that is a table: the probability of its prediction for each set of removed tokens."""

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np

# The whole text, the text without one of three tokens, without two of them, and without all.
TABLE = {
    frozenset[int](): 0.9,
    frozenset({0}): 0.5,
    frozenset({1}): 0.7,
    frozenset({2}): 0.8,
    frozenset({0, 1}): 0.2,
    frozenset({0, 2}): 0.4,
    frozenset({1, 2}): 0.6,
    frozenset({0, 1, 2}): 0.1,
}


class ToyModel:
    """Answers from a table, and remembers what it was asked.

    soft: p from the chances that tokens are kept. Unless it is given, only the ends are known.
    """

    def __init__(
        self,
        table: Mapping[frozenset[int], float],
        soft: Callable[[np.ndarray], float] | None = None,
    ):
        self.table, self.soft = table, soft
        self.n = len(frozenset().union(*table))
        self.asked: list[frozenset[int]] = []

    def log_probability(self, removed):
        assert removed.dtype == bool
        assert removed.shape[1:] == (self.n,)
        sets = [frozenset(np.flatnonzero(row).tolist()) for row in removed]
        self.asked += sets
        return np.log([self.table[one] for one in sets])

    def soft_probability(self, kept):
        assert self.soft is not None
        return np.asarray([self.soft(row) for row in kept])


def random_model(n: int, seed: int) -> ToyModel:
    """A table with random probabilities, the highest for the whole text, the lowest without it."""
    random = np.random.default_rng(seed)
    sets = [frozenset(c) for size in range(n + 1) for c in combinations(range(n), size)]
    table = {one: float(random.uniform(0.05, 0.95)) for one in sets}
    return ToyModel({**table, sets[0]: 0.97, sets[-1]: 0.03})


class Additive(ToyModel):
    """Any number of tokens; the logit is the sum of the weights of those that are left."""

    def __init__(self, weights):
        super().__init__({frozenset(range(len(weights))): 0.5})
        self.weights = np.asarray(weights, dtype=float)

    def log_probability(self, removed):
        return -np.log1p(np.exp(-((~removed) @ self.weights)))
