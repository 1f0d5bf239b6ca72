"""Scores against known evidence, by hand and over all orders of tied tokens."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnflow.errors import InputError, ShapeError
from attnflow.evaluation.evidence import (
    pointing_game,
    reciprocal_rank,
    recovery,
    relevance_mass,
)
from tests.refusal import refusal

FUNCTIONS = [reciprocal_rank, pointing_game, relevance_mass, recovery]
TEXT = st.lists(st.tuples(st.integers(-1, 2), st.booleans()), min_size=1, max_size=5).filter(
    lambda text: any(marked for _, marked in text)
)


def test_the_rank_of_the_first_evidence_by_hand():
    # Order 2, 0, 3, 1; evidence at ranks 2 and 4.
    assert reciprocal_rank([3, 1, 4, 2], [True, True, False, False]) == 1 / 2
    # Tokens 1, 2 and 3 share the ranks 2 to 4, one of them is evidence: (1/2 + 1/3 + 1/4) / 3.
    assert reciprocal_rank([9, 1, 1, 1], [0, 0, 1, 0]) == pytest.approx(13 / 36)
    # Two of three are evidence: the first is at rank 2 in 2 of 3 cases, at rank 3 in 1 of 3.
    assert reciprocal_rank([9, 1, 1, 1], [0, 0, 1, 1]) == pytest.approx(2 / 3 / 2 + 1 / 3 / 3)
    assert reciprocal_rank([9, 1, 1], [1, 0, 1]) == 1


def test_the_highest_score_by_hand():
    assert pointing_game([1, 3, 2], [0, 1, 0]) == 1
    assert pointing_game([1, 3, 2], [1, 0, 1]) == 0
    assert pointing_game([3, 3, 3, 0], [1, 0, 0, 1]) == pytest.approx(1 / 3)


def test_the_mass_on_the_evidence_by_hand():
    # 3 of 3 + 1; the score below 0 has no mass.
    assert relevance_mass([3, 1, -5], [1, 0, 0]) == 3 / 4
    assert relevance_mass([3, 1, -5], [0, 0, 1]) == 0
    # Nothing is positive: one token of four.
    assert relevance_mass([0, 0, 0, -1], [1, 0, 0, 0]) == 1 / 4


def test_the_first_tenth_by_hand():
    # 2 of 20 tokens are the first tenth: 19 and 18. One of the two marked ones is among them.
    marked = np.zeros(20, dtype=bool)
    marked[[19, 3]] = True
    assert recovery(np.arange(20), marked) == 1 / 2
    # 3 of 21 tokens: a tenth is rounded up.
    assert recovery(np.arange(21), np.arange(21) == 18) == 1
    assert recovery(np.arange(21), np.arange(21) == 17) == 0
    # One token is certain, and one of four tied ones takes the second place: evidence by 1/4.
    scores = np.zeros(20)
    scores[0], scores[1:5] = 2, 1
    marked = np.zeros(20, dtype=bool)
    marked[[0, 4]] = True
    assert recovery(scores, marked) == pytest.approx((1 + 1 / 4) / 2)


@pytest.mark.parametrize("n", [10, 30, 70, 200, 1000])
def test_a_tenth_is_not_rounded_up_by_an_inexact_product(n):
    scores = -np.arange(n)
    assert recovery(scores, np.arange(n) < n // 10) == 1
    assert recovery(scores, np.arange(n) == n // 10) == 0


@given(TEXT)
def test_ties_count_as_the_mean_of_all_orders(text):
    scores, marked = (np.asarray(part) for part in zip(*text, strict=True))
    orders = [
        list(order)
        for order in permutations(range(len(scores)))
        if (np.diff(scores[list(order)]) <= 0).all()
    ]
    hits = [marked[order] for order in orders]
    ranks = [1 / (1 + int(np.flatnonzero(hit)[0])) for hit in hits]
    assert reciprocal_rank(scores, marked) == pytest.approx(np.mean(ranks))
    assert pointing_game(scores, marked) == pytest.approx(np.mean([hit[0] for hit in hits]))
    # Up to 10 tokens, the first tenth is one token.
    found = np.mean([hit[0] for hit in hits]) / marked.sum()
    assert recovery(scores, marked) == pytest.approx(found)


@given(st.lists(st.booleans(), min_size=1, max_size=12).filter(any))
def test_constant_scores_have_the_level_of_chance(marked):
    share = np.mean(marked)
    scores = np.zeros(len(marked))
    assert pointing_game(scores, marked) == pytest.approx(share)
    assert relevance_mass(scores, marked) == pytest.approx(share)
    # The tokens of the first tenth, spread over all.
    expected = -(-len(marked) // 10) / len(marked)
    assert recovery(scores, marked) == pytest.approx(expected)


@given(TEXT)
def test_perfect_scores_have_the_highest_value(text):
    _, marked = (np.asarray(part) for part in zip(*text, strict=True))
    assert reciprocal_rank(marked * 1.0, marked) == 1
    assert pointing_game(marked * 1.0, marked) == 1
    assert relevance_mass(marked * 1.0, marked) == 1
    assert recovery(marked * 1.0, marked) == pytest.approx(1 / marked.sum())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_evidence_that_does_not_fit_is_refused(function):
    with refusal(ShapeError, "[3]", "[2]"):
        function([1, 2, 3], [True, False])
    with refusal(ShapeError, "[1, 2]"):
        function([[1, 2]], [[True, False]])
    with refusal(InputError, "no token"):
        function([1, 2], [False, False])
