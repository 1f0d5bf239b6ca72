"""Joint flow: one maximum flow to all tokens at once, and how its total is divided among them.

Let F(S) be the maximum flow from the source to a set S of tokens. The amounts that can arrive at
the tokens in a maximum flow are the vectors s with s(S) <= F(S) for all S and s(all) = F(all): the
base polytope of F, a polymatroid. Of these the one nearest to proportional to the tokens' own
maximum flows w_t = F({t}) is chosen, which minimizes the sum of s_t^2 / w_t. It is unique, and
known as the lexicographically optimal base (Fujishige 1980).

It is found by decomposition. First the total is to be divided in proportion to w. `balance` moves
flow from tokens that receive more than their share to those that receive less. If some surplus is
left, the search from it ends at a cut, which divides the network in two parts: no more flow can be
moved to the lower one. Each part is then divided in the same way. In the end each part's tokens
receive amounts proportional to w, and cuts prove that none of them can get more from the parts
above. All flows are integers, multiples of 2^-50 of the total's bound, so cuts are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError, quote
from attnflow.maxflow.balance import (
    Balance,
    balance,
    is_proved,
    list_moves,
    search,
    separate,
    start_flow,
)
from attnflow.maxflow.groups import part_of
from attnflow.maxflow.network import check_indices, check_shape, is_causal, read_capacities
from attnflow.maxflow.solver import PAIRS_PER_THREAD, count_threads, max_flows
from attnflow.progress import Progress

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BITS = 50  # the bound of the total is an integer of this many bits
TOLERANCE = 2**10  # surplus that need not be moved: 1e-12 of the total's bound
UNLIMITED = 2**61  # more than any flow
PULL_STEPS = 4  # to compute the first flow
SMALL = 1e-200  # counts as zero there

# How a division was proved.
JOINT_PROOFS = (
    "proportional",  # every token receives the same share of its own maximum flow
    "divided",  # the network has several parts with cuts between them, proportional in each
    "trivial",  # there is no path, or an unlimited one
)


@dataclass(frozen=True)
class JointFlow:
    """One maximum flow from a position to all tokens, divided in the canonical way.

    values: [n], what arrives at each token. Infinite where unlimited edges lead to it.
    edges: [layer, n, n], the flow on every edge; it agrees with the values to 1e-12 of the total.
    parts: [n], the number of the part of each token, from 0. Within a part, values are proportional
    to the tokens' own maximum flows; higher parts receive larger shares of them.
    """

    values: Floats
    edges: Floats
    parts: Integers

    @property
    def proof(self) -> str:
        """How the division was proved: one of JOINT_PROOFS."""
        if not self.edges.any():
            return "trivial"
        return "divided" if len(set(self.parts.tolist())) > 1 else "proportional"


@dataclass(frozen=True)
class JointFlows:
    """Joint flows from all requested sources.

    values: [layers, sources, n], what arrives at each token.
    proofs: how many rows were proved in which way; the names are those of JOINT_PROOFS.
    """

    values: Floats
    proofs: Mapping[str, int]


def joint_flows(
    capacities: NDArray[np.floating[Any]],
    *,
    layers: Sequence[int] | None = None,
    sources: Sequence[int] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> JointFlows:
    """Compute joint flows from positions above the given layers to all tokens.

    The arguments are those of `max_flows`.

    >>> joint_flows(np.full((2, 2, 2), 0.5), layers=[2], sources=[0]).values
    array([[[0.5, 0.5]]])
    """
    network = read_capacities(capacities)
    depth, n = check_shape(network)
    numbers = check_indices("layer", range(1, depth + 1) if layers is None else layers, 1, depth)
    starts = check_indices("source", range(n) if sources is None else sources, 0, n - 1)
    rows = [(i, j) for i in range(numbers.size) for j in range(starts.size)]
    total = 2 * len(rows) * n
    weights = max_flows(
        network,
        layers=numbers,  # type: ignore[arg-type]
        sources=starts,  # type: ignore[arg-type]
        threads=threads,
        progress=part_of(progress, 0, total),
    ).values
    values, proofs = np.empty_like(weights), dict.fromkeys(JOINT_PROOFS, 0)

    def solve(row: tuple[int, int]) -> JointFlow:
        i, j = row
        return joint_flow(network, layer=numbers[i], source=starts[j], weights=weights[i, j])

    with ThreadPoolExecutor(count_threads(threads, PAIRS_PER_THREAD * len(rows))) as pool:
        for done, (row, solved) in enumerate(zip(rows, pool.map(solve, rows), strict=True), 1):
            values[row] = solved.values
            proofs[solved.proof] += 1
            if progress is not None:
                progress(total // 2 + done * n, total)
    return JointFlows(values, proofs)


def joint_flow(
    capacities: Floats, *, layer: int, source: int, weights: Floats | None = None
) -> JointFlow:
    """Compute the joint flow from one position to all tokens, with the flow on every edge.

    capacities, layer, source: as in `max_flow`.
    weights: [n], in proportion to which the total is to be divided; by default the maximum flow to
    each token. Tokens of weight 0 receive nothing.
    Raises InputError for a layer or position that does not exist.
    """
    network = read_capacities(capacities)
    depth, n = check_shape(network)
    layer = int(check_indices("layer", [layer], 1, depth)[0])
    source = int(check_indices("source", [source], 0, n - 1)[0])
    if weights is not None:
        weights = _read_weights(weights, n)
    else:
        weights = max_flows(network, layers=[layer], sources=[source], threads=1).values[0, 0]
    values, edges, parts = np.zeros(n), np.zeros((layer, n, n)), np.zeros(n, np.int64)
    causal = is_causal(n, depth, network.reshape(-1))
    end = source + 1 if causal else n  # later positions are out of reach
    unlimited = np.isinf(weights)
    if unlimited.any():
        values[unlimited] = np.inf
    elif weights.any():
        reach = slice(end)
        division = _Division(network[:layer, reach, reach], source, weights[reach])
        division.solve()
        values[reach] = division.values()
        edges[:, reach, reach] = division.edges()
        parts[reach] = division.parts[:end]
    return JointFlow(values, edges, parts)


def _read_weights(weights: Any, n: int) -> Floats:
    """Return weights [n]. Raises InputError unless they are numbers from 0."""
    try:
        values = np.asarray(weights, dtype=np.float64)
        is_valid = values.shape == (n,) and bool((values >= 0).all())
    except Exception:  # arrays of other packages raise anything
        is_valid = False
    if not is_valid:
        raise InputError(
            f"weights is {quote(weights)}",
            expected=f"{n} numbers from 0, one for each token",
            fix="Leave weights out for its default.",
        )
    return values


def limit_capacities(
    capacities: Floats, source: int, tokens: NDArray[np.bool_]
) -> tuple[Floats, float]:
    """Return capacities without edges that lead to none of the tokens, and a bound of the flow.

    Only the source keeps its edges in the highest layer. No capacity exceeds the bound, so none is
    infinite.
    """
    limited = capacities.copy()
    limited[-1] = 0.0
    limited[-1, source] = capacities[-1, source]
    limited[0][:, ~tokens] = 0.0
    most = np.where(tokens, np.inf, 0.0)  # an upper bound of what each node can pass on
    for layer in limited:
        layer[:, most == 0] = 0.0
        most = np.minimum(layer, most).sum(axis=1)
    return np.minimum(limited, most[source]), float(most[source])


class _Division:
    """The division of a maximum flow among tokens, while it is computed.

    capacities: [depth, n, n]; the source lies on top. weights: [n], finite and not all 0.
    """

    def __init__(self, capacities: Floats, source: int, weights: Floats) -> None:
        depth, n, _ = capacities.shape
        n_words, n_nodes = -(-n // 64), (depth + 1) * n
        limited, most = limit_capacities(capacities, source, weights > 0)
        self.source = depth * n + source
        self.weights = weights
        self.exponent = BITS - math.ceil(math.log2(most))
        limited = np.ldexp(limited, self.exponent)
        capacity = np.rint(limited).astype(np.int64)
        self.net = Balance(
            n=n,
            depth=depth,
            n_words=n_words,
            capacity=capacity.reshape(-1),
            flow=np.zeros(capacity.size, np.int64),
            excess=np.zeros(n_nodes, np.int64),
            below=np.zeros(n_nodes * n_words, np.uint64),
            above=np.zeros(n_nodes * n_words, np.uint64),
            unreached=np.zeros((depth + 1) * n_words, np.uint64),
            distance=np.zeros(n_nodes, np.int64),
            arc=np.zeros(n_nodes, np.int64),
            path=np.zeros(n_nodes, np.int64),
            path_edge=np.zeros(n_nodes, np.int64),
        )
        self.plain = tuple(self.net)  # Numba unpacks plain tuples faster
        self.parts = np.zeros(n_nodes, np.int64)
        self.shares = np.zeros(n)  # what each token is to receive, before rounding
        self.arrived = self._maximize(compute_pull(limited, source, weights))

    def _maximize(self, pull: Floats) -> Integers:
        """Compute any maximum flow; returns what arrives at each token."""
        n, excess = self.net.n, self.net.excess
        start_flow(self.plain, pull)
        arrived: Integers = excess[:n].copy()
        excess[:n] = -UNLIMITED
        balance(self.plain)  # what is stuck in between goes to any token
        arrived += excess[:n] + UNLIMITED
        excess[:n] = 0
        excess[self.source] = -UNLIMITED
        balance(self.plain)  # and the rest back to the source
        excess[self.source] = 0
        return arrived

    def solve(self) -> None:
        """Divide the total among the tokens, part by part, and check the proof."""
        n, excess = self.net.n, self.net.excess
        active = self.weights > 0
        while active.any():
            self._set_goals(active)
            balance(self.plain)
            self.arrived += excess[:n]
            parts = self.parts[:n]
            surplus = np.bincount(parts, weights=np.maximum(excess[:n], 0))
            active &= (surplus > max(TOLERANCE, n))[parts]
            excess[:n][~active] = 0
            if active.any():
                search(self.plain)
                separate(self.plain)
                excess[:n] = 0
                self.parts = np.unique(2 * self.parts + self._reached(), return_inverse=True)[1]
        assert self._is_proved(), "cuts must prove the division of a joint flow"

    def _set_goals(self, active: NDArray[np.bool_]) -> None:
        """Divide the total of each part in proportion to the weights; fills the excess."""
        parts = self.parts[: self.net.n]
        for part in np.unique(parts[active]):
            tokens = np.flatnonzero(active & (parts == part))
            total = int(self.arrived[tokens].sum())
            shares = total * (self.weights[tokens] / self.weights[tokens].sum())
            ends = np.rint(np.cumsum(shares)).astype(np.int64)
            ends[-1] = total
            goals = np.diff(ends, prepend=0)
            self.net.excess[tokens] = self.arrived[tokens] - goals
            self.arrived[tokens] = goals
            self.shares[tokens] = shares

    def _reached(self) -> NDArray[np.bool_]:
        """Whether the last search reached each node, [nodes]."""
        net = self.net
        bits = np.unpackbits(net.unreached.view(np.uint8), bitorder="little")
        return np.asarray(bits.reshape(net.depth + 1, -1)[:, : net.n].reshape(-1) == 0)

    def _is_proved(self) -> bool:
        """Whether flow and cuts prove that the division is the canonical one of a maximum flow.

        The flow is valid and maximum, cuts separate the parts, what arrives at the tokens is
        proportional to the weights in each part, and higher parts get larger shares.
        """
        net, n, tolerance = self.net, self.net.n, max(TOLERANCE, self.net.n)
        if not is_proved(self.plain, self.parts):
            return False
        arrived = net.excess[:n].copy()
        net.excess[:], net.excess[:n], net.excess[self.source] = 0, -UNLIMITED, 1
        list_moves(self.plain)
        if search(self.plain) or np.abs(arrived - self.shares).max() > tolerance:
            return False
        totals = np.bincount(self.parts[:n], weights=self.shares)
        weights = np.bincount(self.parts[:n], weights=self.weights)
        totals, weights = totals[weights > 0], weights[weights > 0]
        missing = totals[:-1] / weights[:-1] - totals[1:] / weights[1:]
        return bool((missing * np.minimum(weights[:-1], weights[1:]) <= tolerance).all())

    def values(self) -> Floats:
        """What each token receives, on the scale of the capacities."""
        return np.asarray(np.ldexp(self.shares, -self.exponent))

    def edges(self) -> Floats:
        """The flow on every edge, [depth, n, n], on the scale of the capacities."""
        net = self.net
        flow = net.flow.astype(np.float64).reshape(net.depth, net.n, net.n)
        return np.asarray(np.ldexp(flow, -self.exponent))


def compute_pull(capacities: Floats, source: int, weights: Floats) -> Floats:
    """Return the pull of each node, [levels below the source * n], for `start_flow`.

    Without limits, the flow that divides at each node in proportion to capacity times pull would
    arrive at the tokens nearly in proportion to the weights. The pull of a node is the mean of the
    pulls below it; those of tokens are scaled in a few steps by what they lack.
    """
    depth = len(capacities)
    rows = capacities.sum(axis=2)
    goal = weights / weights.sum()
    token_pull = (weights > 0).astype(np.float64)
    for step in range(PULL_STEPS + 1):
        pull = [token_pull]
        for x in range(depth - 1):
            pull.append(_divide(capacities[x] @ pull[-1], rows[x]))
        if step == PULL_STEPS:
            break
        amount = capacities[-1, source]
        for x in range(depth - 2, -1, -1):
            amount = (_divide(amount, pull[x + 1] * rows[x]) @ capacities[x]) * pull[x]
        token_pull = token_pull * _divide(goal, amount)
        token_pull /= max(token_pull.max(), SMALL)
    return np.concatenate(pull)


def _divide(a: Floats, b: Floats) -> Floats:
    """Return a / b, and 0 where b is nearly 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > SMALL)
