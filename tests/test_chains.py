"""Chains of generated tokens: total influence, sums over paths, and exact flow on one graph."""

from typing import Any

import networkx
import numpy as np
import pytest

import attnflow
from attnflow import rollout
from attnflow.chains import Chain, scale_rows
from attnflow.errors import InputError, SelectionError
from tests.refusal import refusal
from tests.study.small_models import make_llama

explain: Any = attnflow.explain
# Tokens a, b (prompt), c, d (reasoning), e (output). d: half from c. e: half from d, half from a.
EDGES = np.asarray(
    [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [0.25, 0.75, 0, 0, 0],
        [0.5, 0, 0.5, 0, 0],
        [0.5, 0, 0, 0.5, 0],
    ]
)
HAND = Chain(EDGES, tuple("abcde"), 2, (2, 2), (0, 1), {})


def random_chain(seed, n=9, first=4, output=(3, 4), reasoning=(0, 2)):
    rng = np.random.default_rng(seed)
    edges = np.tril(rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.7), -1)
    edges[:first] = 0
    edges[first:, 0] += 0.1
    return Chain(edges, tuple(map(str, range(n))), first, output, reasoning, {})


def test_influence_by_hand():
    # Through d: 1/2. Through c: 1/2 * 1/2. a: 1/2 + 1/2 * 1/2 + 1/4 * 1/4; b: 1/4 * 3/4.
    expected = [0.5 + 0.25 + 0.0625, 0.1875, 0.25, 0.5, 0]
    np.testing.assert_allclose(HAND.influence().to_numpy()[0, 0], expected)
    [(token, index, score)] = HAND.influence().top(1)
    assert (token, index, score) == ("a", 0, 0.8125)


def test_paths_by_hand():
    # The largest edge is 3/4, so all edges are 4/3 of those above.
    third = 4 / 3
    a = 0.5 * third + 0.5 * third * 0.5 * third + (0.5 * third) ** 2 * 0.25 * third
    b = (0.5 * third) ** 2 * 0.75 * third
    c, d = (0.5 * third) ** 2, 0.5 * third
    to_prompt_c = (0.25 + 0.75) * third
    to_prompt_d = 0.5 * third + 0.5 * third * to_prompt_c
    expected = [a, b, c * (1 + to_prompt_c), d * (1 + to_prompt_d), 0]
    np.testing.assert_allclose(HAND.paths().to_numpy()[0, 0], expected)


def test_flow_by_hand():
    # To a: 1/2 directly, 1/2 through d, of which c passes on at most 1/4, but d sends 1/2 to a.
    expected = [0.5 + 0.5, 0.5, 0.5, 0.5, 0]
    np.testing.assert_allclose(HAND.flow().to_numpy()[0, 0], expected)


@pytest.mark.parametrize("seed", range(8))
def test_influence_is_the_matrix_of_all_paths(seed):
    chain = random_chain(seed)
    weights = scale_rows(chain.edges)
    total = weights @ np.linalg.inv(np.eye(9) - weights)
    expected = total[list(chain.output)].mean(axis=0)
    np.testing.assert_allclose(chain.influence().to_numpy()[0, 0], expected, atol=1e-12)
    assert chain.influence().to_numpy()[0, 0, :4].sum() == pytest.approx(1)
    largest = chain.edges / chain.edges.max()
    inverse = np.linalg.inv(np.eye(9) - largest) - np.eye(9)
    reached = inverse[list(chain.output)].mean(axis=0)
    reached[4:7] *= 1 + inverse[4:7, :4].sum(axis=1)
    np.testing.assert_allclose(chain.paths().to_numpy()[0, 0], reached, atol=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_the_rollout_of_its_layered_graph_is_the_influence(seed):
    chain = random_chain(seed)
    rows = rollout(chain.graph(), layers=-1, positions=chain.output).to_numpy()[0]
    expected = chain.influence().to_numpy()[0, 0]
    np.testing.assert_allclose(rows.mean(axis=0)[:4], expected[:4], atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_flow_is_that_of_another_solver(seed):
    chain = random_chain(seed)
    weights = scale_rows(chain.edges)
    network = networkx.DiGraph()
    for i, j in np.argwhere(weights > 0):
        network.add_edge(int(i), int(j), capacity=float(weights[i, j]))
    for i in chain.output:
        network.add_edge("output", i)  # without a limit
    found = chain.flow().to_numpy()[0, 0]
    for token in range(7):
        expected = networkx.maximum_flow_value(network, "output", token) / len(chain.output)
        assert found[token] == pytest.approx(expected, abs=1e-9)


def test_a_chain_of_a_model():
    llama = make_llama(start=True)
    explanation = explain("the key to", llama, continuation="is here to the cabinets")
    chain = explanation.chain(output_span=(4, 4), reasoning_span=(1, 2))
    row = explanation.rollout(layers=-1, answer="tokens").to_numpy()[0]
    np.testing.assert_allclose(chain.edges[8], row[4] * (np.arange(9) < 8), atol=1e-7)
    assert not chain.edges[[4, 7]].any()  # outside of both spans
    assert chain.reasoning == (5, 6)
    influence = chain.influence()
    ends = [i for i in range(8) if i not in chain.reasoning]
    assert influence.to_numpy()[0, 0, ends].sum() == pytest.approx(1)
    assert {i for _, i, _ in influence.top(9)} == {0, 1, 2, 3}
    flow = chain.flow().to_numpy()[0, 0]
    assert (flow[ends] >= influence.to_numpy()[0, 0, ends] - 1e-9).all()  # a feasible flow
    assert (flow <= 1 + 1e-9).all()
    whole = explanation.chain()
    assert (whole.output_span, whole.reasoning_span) == ((0, 4), None)
    mean = explanation.chain("raw", layer="mean")
    raw = explanation.raw(answer="tokens").to_numpy().mean(axis=0)
    np.testing.assert_allclose(mean.edges[4:], np.tril(np.vstack([np.zeros((4, 9)), raw]), -1)[4:])


def test_chains_that_do_not_exist():
    llama = make_llama(start=True)
    explanation = explain("the key to", llama, continuation="is here")
    for span in ((0, 2), (1, 0), (-1, 0), 3, (0.0, 1.0), "ab"):
        with refusal(SelectionError, "output_span"):
            explanation.chain(output_span=span)
    with refusal(SelectionError, "reasoning_span"):
        explanation.chain(reasoning_span=(0, 9))
    with refusal(InputError, "mean"):
        explanation.chain(layer="mean")
    with refusal(InputError, "generate"):
        explain("the key", llama).chain()
