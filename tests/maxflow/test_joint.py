"""Joint flow: by hand, by enumeration of all sets, by linear programming, and properties."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

from attnflow.errors import InputError, ShapeError
from attnflow.maxflow import group_flows, joint_flow, joint_flows, max_flows
from attnflow.maxflow.balance import is_proved
from attnflow.maxflow.joint import _Division
from tests.maxflow.networks import KINDS, attention, causal, narrow_middle, small_integers
from tests.maxflow.test_groups import flow_by_ortools
from tests.refusal import refusal

# The scale of OR-tools is too coarse for capacities from 1e-300 on.
CHECKED_KINDS = [kind for kind in KINDS if kind != "mixed_magnitudes"]


def by_enumeration(capacities, layer, source):
    """The lexicographically optimal base, from the flows to all sets of tokens by OR-tools.

    The set with the smallest ratio of F(S) to the weight of S gets that ratio; then the same for
    the other tokens, with F(S + these) - F(these).
    """
    n = capacities.shape[1]
    sets = [frozenset(c) for k in range(n + 1) for c in combinations(range(n), k)]
    flows = {
        tokens: flow_by_ortools(capacities, layer, [source], sorted(tokens)) if tokens else 0.0
        for tokens in sets
    }
    weights = np.asarray([flows[frozenset([t])] for t in range(n)])
    values = np.zeros(n)
    done = frozenset(np.flatnonzero(weights < 1e-11).tolist())
    while len(done) < n:
        ratios = {
            tokens: (flows[tokens | done] - flows[done]) / weights[sorted(tokens)].sum()
            for tokens in sets
            if tokens and not tokens & done
        }
        best = min(ratios, key=lambda tokens: (ratios[tokens], -len(tokens)))
        values[sorted(best)] = ratios[best] * weights[sorted(best)]
        done |= best
    return values


def gap_by_linear_programming(capacities, layer, source, values, weights):
    """By how much a maximum flow could lower the linearized objective: 0 at the optimum.

    The variables are the flows on all edges. Minimizes sum(2 s_t / w_t * arriving flow) over all
    maximum flows.
    """
    n = capacities.shape[1]
    edges = [tuple(e) for e in np.argwhere(capacities[:layer] > 0)]
    edges = [(x, u, q) for x, u, q in edges if x < layer - 1 or u == source]
    price = np.divide(2 * values, weights, out=np.zeros(n), where=weights > 1e-11)
    cost = [price[q] if x == 0 else 0.0 for x, _, q in edges]
    kept = lil_matrix((layer * n, len(edges)))
    for k, (x, u, q) in enumerate(edges):
        if x < layer - 1:
            kept[(x + 1) * n + u, k] -= 1
        if x > 0:
            kept[x * n + q, k] += 1
        if x == 0:
            kept[0, k] += 1  # row 0: the total
    right = np.zeros(layer * n)
    right[0] = values.sum()
    rows = [0, *range(n, layer * n)]
    limits = [(0.0, float(capacities[e])) for e in edges]
    solved = linprog(cost, A_eq=kept.tocsr()[rows], b_eq=right[rows], bounds=limits)
    assert solved.status == 0
    return float(price @ values - solved.fun)


def check_valid(capacities, layer, source, solved):
    """Check flow on edges: capacities, conservation, and what leaves and arrives."""
    edges = solved.edges
    assert (edges >= 0).all()
    assert (edges <= capacities[:layer] * (1 + 1e-12) + 1e-12).all()
    assert np.delete(edges[-1], source, axis=0).sum() == 0
    for x in range(1, layer):
        assert edges[x].sum(axis=0) == pytest.approx(edges[x - 1].sum(axis=1), abs=1e-12)
    assert edges[0].sum(axis=0) == pytest.approx(solved.values, abs=1e-11)


def test_one_layer_is_the_row():
    capacities = attention(1, 6, 0)
    assert joint_flows(capacities).values[0] == pytest.approx(capacities[0], abs=1e-14)


def test_proportional_by_hand():
    # Both positions of level 1 receive 0.5. Alone, token 0 gets min(0.5, 0.6) + 0 = 0.5, and token
    # 1 gets min(0.5, 0.4) + 0.5 = 0.9. Together they get 1, so 5/14 and 9/14 in proportion:
    # position 0 sends 5/14 to token 0 and 2/14 to token 1.
    capacities = np.asarray([[[0.6, 0.4], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]])
    solved = joint_flow(capacities, layer=2, source=0)
    assert solved.values == pytest.approx([5 / 14, 9 / 14], abs=1e-14)
    assert solved.edges[0] == pytest.approx(np.asarray([[5 / 14, 2 / 14], [0.0, 0.5]]), abs=1e-12)
    assert solved.proof == "proportional"


def test_two_parts_by_hand():
    # Position 0 of level 1 receives 0.6 and leads to token 0 only. Position 1 receives 0.4, and can
    # send 0.2 to token 1 and 0.3 to token 2. Alone, the tokens get 0.6, 0.2 and 0.3. In proportion
    # token 0 would get 6/11 of 1, but 0.6 must arrive there. The others divide 0.4 as 2 to 3.
    capacities = np.zeros((2, 3, 3))
    capacities[1, 0] = [0.6, 0.4, 0.0]
    capacities[0, 0] = [1.0, 0.0, 0.0]
    capacities[0, 1] = [0.0, 0.2, 0.3]
    solved = joint_flow(capacities, layer=2, source=0)
    assert solved.values == pytest.approx([0.6, 0.16, 0.24], abs=1e-14)
    assert solved.proof == "divided"
    assert solved.parts.tolist() == [1, 0, 0]


def test_weights_by_hand():
    # As above, but tokens 1 and 2 are to get the same: then token 1 gets all it can, 0.2.
    capacities = np.zeros((2, 3, 3))
    capacities[1, 0] = [0.6, 0.4, 0.0]
    capacities[0, 0] = [1.0, 0.0, 0.0]
    capacities[0, 1] = [0.0, 0.2, 0.3]
    solved = joint_flow(capacities, layer=2, source=0, weights=np.ones(3))
    assert solved.values == pytest.approx([0.6, 0.2, 0.2], abs=1e-14)
    solved = joint_flow(capacities, layer=2, source=0, weights=np.asarray([1.0, 1.0, 0.5]))
    assert solved.values == pytest.approx([0.6, 0.2, 0.2], abs=1e-14)
    solved = joint_flow(capacities, layer=2, source=0, weights=np.asarray([1.0, 0.0, 1.0]))
    assert solved.values == pytest.approx([0.6, 0.0, 0.3], abs=1e-14)


@pytest.mark.parametrize("kind", CHECKED_KINDS)
@pytest.mark.parametrize("layer", [1, 2, 3, 5])
def test_equals_the_enumeration_of_all_sets(kind, layer):
    for seed in range(3):
        capacities = KINDS[kind](5, 5, seed)
        solved = joint_flow(capacities, layer=layer, source=4)
        expected = by_enumeration(capacities, layer, 4)
        assert solved.values == pytest.approx(expected, abs=1e-8)
        check_valid(capacities, layer, 4, solved)


@pytest.mark.parametrize("make", [attention, causal, narrow_middle, small_integers])
def test_no_maximum_flow_is_better_by_linear_programming(make):
    for layer, n, seed in ((2, 12, 0), (3, 12, 1), (4, 9, 2)):
        capacities = make(layer, n, seed)
        weights = max_flows(capacities, layers=[layer], sources=[n - 1]).values[0, 0]
        solved = joint_flow(capacities, layer=layer, source=n - 1)
        arguments = capacities, layer, n - 1
        assert abs(gap_by_linear_programming(*arguments, solved.values, weights)) < 1e-8


def test_another_maximum_flow_has_a_gap():
    capacities = attention(3, 8, 1)
    weights = max_flows(capacities, layers=[3], sources=[7]).values[0, 0]
    other = joint_flow(capacities, layer=3, source=7, weights=np.ones(8)).values
    assert gap_by_linear_programming(capacities, 3, 7, other, weights) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_total_and_every_set(kind):
    capacities = KINDS[kind](4, 6, 3)
    sets = [list(c) for k in range(1, 7) for c in combinations(range(6), k)]
    most = group_flows(capacities, sources=[[i] for i in range(6)], sinks=sets).values
    values = joint_flows(capacities).values
    assert values.sum(axis=-1) == pytest.approx(most[:, :, -1], abs=1e-11)
    for k, tokens in enumerate(sets):
        assert (values[:, :, tokens].sum(axis=-1) <= most[:, :, k] + 1e-11).all()


@pytest.mark.parametrize("make", [attention, narrow_middle, small_integers])
def test_the_order_of_positions_does_not_matter(make):
    capacities = make(4, 9, 6)
    order = np.random.default_rng(1).permutation(9)
    permuted = capacities[:, order][:, :, order]
    expected = joint_flows(capacities).values[:, order][:, :, order]
    assert joint_flows(permuted).values == pytest.approx(expected, abs=1e-11)


def test_the_first_flow_does_not_matter(monkeypatch):
    capacities = causal(6, 20, 2)
    expected = joint_flow(capacities, layer=6, source=19).values
    rng = np.random.default_rng(0)
    monkeypatch.setattr("attnflow.maxflow.joint.compute_pull", lambda *_: rng.uniform(0, 1, 6 * 20))
    for _ in range(3):
        again = joint_flow(capacities, layer=6, source=19).values
        assert again == pytest.approx(expected, abs=1e-12)


def test_causal_values_do_not_depend_on_later_positions():
    capacities = causal(4, 12, 5)
    expected = joint_flow(capacities[:, :8, :8], layer=4, source=7).values
    values = joint_flow(capacities, layer=4, source=7).values
    assert values[:8] == pytest.approx(expected, abs=1e-12)
    assert not values[8:].any()


def test_rows_that_do_not_sum_to_one():
    rng = np.random.default_rng(3)
    capacities = attention(4, 6, 0) * rng.uniform(0.01, 9, (4, 6, 1))
    for source in range(6):
        expected = by_enumeration(capacities, 4, source)
        assert joint_flow(capacities, layer=4, source=source).values == pytest.approx(
            expected, abs=1e-8
        )


def test_scale_does_not_matter():
    capacities = attention(4, 8, 1)
    expected = joint_flows(capacities, layers=[4]).values
    for factor in (1e-200, 1e-3, 1e9):
        scaled = joint_flows(capacities * factor, layers=[4]).values
        assert scaled / factor == pytest.approx(expected, abs=1e-11)


def test_infinite_capacities():
    capacities = attention(4, 6, 0)
    capacities[:, 2] = 0.0
    capacities[:3, 2, 2] = np.inf  # carried by three layers, not by the fourth
    capacities[3, 2] = attention(1, 6, 9)[0, 2]
    solved = joint_flow(capacities, layer=4, source=2)
    finite = np.minimum(capacities, 100.0)
    assert solved.values == pytest.approx(by_enumeration(finite, 4, 2), abs=1e-8)
    unlimited = joint_flow(capacities, layer=3, source=2)
    assert unlimited.values.tolist() == [0.0, 0.0, np.inf, 0.0, 0.0, 0.0]
    assert unlimited.proof == "trivial"


def test_no_path():
    capacities = attention(3, 4, 0)
    capacities[1] = 0.0
    solved = joint_flows(capacities, layers=[3])
    assert not solved.values.any()
    assert solved.proofs == {"proportional": 0, "divided": 0, "trivial": 4}


def solve_two_parts():
    """The division of `test_two_parts_by_hand`."""
    capacities = np.zeros((2, 3, 3))
    capacities[1, 0] = [0.6, 0.4, 0.0]
    capacities[0, 0] = [1.0, 0.0, 0.0]
    capacities[0, 1] = [0.0, 0.2, 0.3]
    division = _Division(capacities, 0, np.asarray([0.6, 0.2, 0.3]))
    division.solve()
    assert division._is_proved()
    return division


def test_the_proof_fails_for_invalid_flow():
    division = solve_two_parts()
    division.net.flow[3 + 1] += 1  # one more arrives at token 1 than position 1 received
    assert not is_proved(division.plain, division.parts)
    division = solve_two_parts()
    division.net.capacity[0] = division.net.flow[0] - 1
    assert not is_proved(division.plain, division.parts)


def test_the_proof_fails_for_parts_without_a_cut():
    division = solve_two_parts()
    part = division.parts.copy()
    part[1] = 2  # token 1 apart from token 2, to which its flow could be moved
    assert not is_proved(division.plain, part)
    assert not is_proved(division.plain, division.parts.max() - division.parts)  # upside down


def test_the_proof_fails_for_other_shares():
    division = solve_two_parts()
    division.shares[[1, 2]] += [2.0**30, -(2.0**30)]  # not what arrives
    assert not division._is_proved()
    division = solve_two_parts()
    division.weights = np.asarray([6.0, 0.2, 0.3])  # then the higher part gets the smaller share
    assert not division._is_proved()


def test_the_proof_fails_for_a_flow_that_is_not_maximum():
    division = solve_two_parts()
    division.net.flow[:], division.parts[:], division.shares[:] = 0, 0, 0.0
    assert is_proved(division.plain, division.parts)  # valid
    assert not division._is_proved()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_progress(threads):
    capacities, seen = attention(3, 7, 2), []
    solved = joint_flows(
        capacities, threads=threads, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == sorted(seen)
    assert seen[-1] == (2 * 3 * 7 * 7, 2 * 3 * 7 * 7)
    assert sum(solved.proofs.values()) == 21
    for i, source in ((0, 3), (2, 6)):
        one = joint_flow(capacities, layer=i + 1, source=source)
        assert solved.values[i, source] == pytest.approx(one.values, abs=1e-13)


@pytest.mark.slow
def test_many_tokens_and_layers():
    capacities = causal(12, 130, 0)  # more than two words of bits per row
    solved = joint_flow(capacities, layer=12, source=129)
    check_valid(capacities, 12, 129, solved)
    assert solved.values.sum() == pytest.approx(1.0, abs=1e-12)


def test_refusals():
    capacities = attention(2, 4, 0)
    with refusal(InputError, "layer", "3"):
        joint_flow(capacities, layer=3, source=0)
    with refusal(InputError, "source", "4"):
        joint_flows(capacities, sources=[4])
    with refusal(ShapeError, "(4, 4)"):
        joint_flows(capacities[0])
