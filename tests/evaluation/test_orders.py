"""Orders of tokens by their scores, and what happens to ties."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnflow.errors import InputError
from attnflow.evaluation.orders import rank_by, removed_sets, tie_groups, tie_orders, tie_ranks
from tests.refusal import refusal

SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=9)


def groups_of(scores):
    return [group.tolist() for group in tie_groups(scores)]


def sets_of(groups, count, **options):
    """The sets as tuples of tokens."""
    sets = removed_sets(groups, count, **options)
    return [tuple(np.flatnonzero(row).tolist()) for row in sets]


def test_the_sign_decides_what_is_ranked():
    scores = [0.5, -0.7, 0.0]
    assert rank_by(scores, "signed").tolist() == [0.5, -0.7, 0]
    assert rank_by(scores, "positive").tolist() == [0.5, 0, 0]
    assert rank_by(scores, "absolute").tolist() == [0.5, 0.7, 0]
    with refusal(InputError, "sign is 'both'", "'signed'", "'positive'", "'absolute'"):
        rank_by(scores, "both")  # type: ignore[arg-type]


def test_tied_tokens_form_a_group():
    assert groups_of([0.5, 0.1, 0.5, -2.0]) == [[0, 2], [1], [3]]
    assert groups_of([0.0, 0.0, 0.0]) == [[0, 1, 2]]
    assert groups_of([1.0]) == [[0]]
    assert groups_of([]) == []


def test_rounding_makes_no_difference():
    # 1 + 5e-7 and 1 differ by less than a millionth; 1 + 2e-6 and 1 by more.
    assert groups_of([1.0, 1 + 5e-7]) == [[0, 1]]
    assert groups_of([1.0, 1 + 2e-6]) == [[1], [0]]
    assert groups_of([-1.0, -1 - 5e-7]) == [[0, 1]]
    # Against the largest score, 1e-13 is rounding, too.
    assert groups_of([1.0, 1e-13, 0.0]) == [[0], [1, 2]]


@pytest.mark.parametrize("scale", [1e-20, 1e-9, 1.0, 1e15])
def test_the_scale_of_scores_does_not_matter(scale):
    assert groups_of(np.asarray([3.0, 1.0, 3.0, 0.0]) * scale) == [[0, 2], [1], [3]]


def test_tied_tokens_have_the_same_rank():
    assert tie_ranks([0.5, 0.1, 0.5, -2.0]).tolist() == [2, 1, 2, 0]
    assert tie_ranks([7.0, 7.0]).tolist() == [0, 0]


def test_without_ties_there_is_one_set():
    groups = tie_groups([1.0, 3.0, 2.0])
    assert [sets_of(groups, count) for count in range(4)] == [[()], [(1,)], [(1, 2)], [(0, 1, 2)]]
    reverse = groups[::-1]
    assert [sets_of(reverse, count) for count in range(4)] == [[()], [(0,)], [(0, 2)], [(0, 1, 2)]]


def test_a_tie_at_the_cut_gives_all_sets():
    groups = tie_groups([5.0, 1.0, 1.0, 1.0])
    assert sets_of(groups, 1) == [(0,)]
    assert sets_of(groups, 2) == [(0, 1), (0, 2), (0, 3)]
    assert sets_of(groups, 3) == [(0, 1, 2), (0, 1, 3), (0, 2, 3)]
    assert sets_of(groups, 4) == [(0, 1, 2, 3)]


def test_many_sets_are_sampled():
    groups = tie_groups(np.zeros(10))
    # 10 sets of one token, 45 of two.
    assert sets_of(groups, 1, samples=10) == [(i,) for i in range(10)]
    sample = sets_of(groups, 2, samples=10)
    assert len(sample) == 10
    assert {len(one) for one in sample} == {2}
    assert sample == sets_of(groups, 2, samples=10)


def test_sampled_sets_are_nested():
    groups = [np.array([3]), np.array([0, 1, 2, *range(4, 12)]), np.array([12])]
    smaller = removed_sets(groups, 3)
    for count in range(4, 10):
        larger = removed_sets(groups, count)
        assert (larger.sum(axis=1) == count).all()
        assert (larger >= smaller).all()
        smaller = larger


def test_the_sample_depends_on_the_tied_tokens_only():
    tied = np.arange(2, 12)
    after = removed_sets([np.array([0]), np.array([1]), tied], 5)
    other_order = removed_sets([np.array([1]), np.array([0]), tied], 5)
    before = removed_sets([tied, np.array([0, 1])], 3)
    assert (after == other_order).all()
    assert (after[:, 2:] == before[:, 2:]).all()


def test_every_token_is_sampled_as_often():
    all_sets = removed_sets([np.arange(10)], 3, samples=4000)
    assert len(all_sets) == 120  # 10 * 9 * 8 / 6
    assert all_sets.mean(axis=0) == pytest.approx([0.3] * 10)
    sample = removed_sets([np.arange(20)], 6, samples=4000)
    # 4000 draws with a chance of 0.3 have a standard deviation of 0.0072.
    assert sample.mean(axis=0) == pytest.approx([0.3] * 20, abs=0.03)


def test_sampled_orders_remove_all_tokens_about_equally_often():
    # Of four orders of 12 tokens, the first 3 are four quarters, whatever the random order is.
    for before in range(5):
        groups = [np.arange(before, before + 12), np.arange(before)]  # each has its own sample
        quarters = removed_sets(groups, 3, samples=4)[:, before:]
        assert quarters.sum(axis=0).tolist() == [1] * 12
        halves = removed_sets(groups, 6, samples=4)[:, before:]
        assert halves.sum(axis=0).tolist() == [2] * 12


def test_four_sampled_orders_have_less_noise_than_eight_independent_ones():
    random = np.random.default_rng(0)
    weights = random.normal(size=16) / 2
    errors, independent = [], []
    for before in range(200):  # each group has a sample of its own
        groups = [np.arange(before, before + 16), np.arange(before)]
        sets = removed_sets(groups, 5, samples=4)[:, before:]
        errors.append(np.tanh(sets @ weights).mean())
        others = random.permuted(np.tile(np.arange(16), (8, 1)), axis=1) < 5
        independent.append(np.tanh(others @ weights).mean())
    exact = np.tanh((random.permuted(np.tile(np.arange(16), (20_000, 1)), axis=1) < 5) @ weights)
    assert np.mean(errors) == pytest.approx(exact.mean(), abs=0.02)  # nor do they have a bias
    assert np.std(errors) < np.std(independent)


def test_the_orders_that_ties_allow():
    groups = tie_groups([1.0, 5.0, 1.0, 0.0])
    assert tie_orders(groups).tolist() == [[1, 0, 2, 3], [1, 2, 0, 3]]
    several = tie_groups([1.0, 5.0, 1.0, 5.0])  # 2 * 2 orders
    assert sorted(tie_orders(several).tolist()) == [
        [1, 3, 0, 2], [1, 3, 2, 0], [3, 1, 0, 2], [3, 1, 2, 0],
    ]  # fmt: skip
    assert len(tie_orders(several, samples=3)) == 3
    assert len(tie_orders(tie_groups(np.zeros(4)), samples=24)) == 24


@given(SCORES, st.sampled_from([1, 3, 8, 100]))
def test_the_first_tokens_of_an_order_are_one_of_the_sets(scores, samples):
    groups = tie_groups(scores)
    orders = tie_orders(groups, samples=samples)
    assert (np.sort(orders, axis=1) == np.arange(len(scores))).all()
    assert (np.diff(np.asarray(scores)[orders], axis=1) <= 0).all()
    for count in range(len(scores) + 1):
        sets = set(sets_of(groups, count, samples=samples))
        assert {tuple(sorted(order[:count].tolist())) for order in orders} <= sets


@given(SCORES, st.data())
def test_sets_are_those_of_all_orders(scores, data):
    count = data.draw(st.integers(0, len(scores)))
    tokens = range(len(scores))
    # A set is possible if no token outside of it has a higher score.
    expected = [
        chosen
        for chosen in combinations(tokens, count)
        if min((scores[i] for i in chosen), default=9)
        >= max((scores[i] for i in set(tokens) - set(chosen)), default=-9)
    ]
    assert sorted(sets_of(tie_groups(scores), count, samples=10**6)) == expected


def test_orders_of_four_tied_tokens_are_all_permutations():
    orders = tie_orders(tie_groups([2.0] * 4), samples=24)
    assert sorted(map(tuple, orders.tolist())) == sorted(permutations(range(4)))
