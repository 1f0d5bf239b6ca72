"""Chains: how influence passes from an output through generated reasoning back to the prompt.

Each generated token is explained by the tokens before it, so an answer and its prompt are a graph
of tokens: an edge from token i to an earlier token j has the score of j for i. `build_chain` builds
this graph from the scores of any method; a `Chain` follows it.

- `influence`: the sum over all paths, with rows scaled to 1: Y = A (I - A)^-1 (CAGE, 2512.15663).
- `paths`: the same sum with edges divided by the largest: R = (I - W)^-1 - I (VTRACE, 2609.37656).
- `flow`: the exact maximum flow, with the scaled edges as capacities.

The graph is also a layered graph, with one layer for each generated token: it passes on what
arrives at its token, and carries all others. So exact flow needs no other solver, and the rollout
of that graph is `influence`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution, Offsets, Row
from attnflow.errors import InputError, SelectionError, quote
from attnflow.graph import AttentionGraph
from attnflow.methods.flow import flow as max_flow
from attnflow.predictions import Answer
from attnflow.progress import Progress
from attnflow.selection import as_index
from attnflow.units import is_span

# The first and the last of some generated tokens, counted from 0; both are included.
TokenSpan: TypeAlias = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Chain:
    """The graph of the tokens of a prompt and an answer, and what passes through it.

    edges: [tokens, tokens], the score of each column for each row; rows of tokens that pass nothing
    on are 0: those of the prompt, and of generated tokens outside of both spans.
    tokens: all tokens. first: the index of the first generated one. offsets: as in Attribution.
    output_span, reasoning_span: the first and last generated token of each, counted from 0.
    settings: how the edges were computed.
    """

    edges: NDArray[np.float64]
    tokens: tuple[str, ...]
    first: int
    output_span: TokenSpan
    reasoning_span: TokenSpan | None
    settings: Mapping[str, Any]
    offsets: Offsets | None = None

    @property
    def output(self) -> tuple[int, ...]:
        """The indices of the tokens of the output."""
        return _indices(self.first, self.output_span)

    @property
    def reasoning(self) -> tuple[int, ...]:
        """The indices of the tokens of the reasoning; none without a span."""
        return () if self.reasoning_span is None else _indices(self.first, self.reasoning_span)

    def influence(self) -> Attribution:
        """The total influence of each token on the output, over all paths (CAGE).

        Of a token that passes influence on: how much passes through it. Of the others: how much
        ends there; these scores sum to 1. Averaged over the tokens of the output.
        """
        return self._attribution(self._sum_paths(scale_rows(self.edges)), "total_influence")

    def paths(self) -> Attribution:
        """The sum over all paths to each token, with edges divided by the largest (VTRACE).

        For tokens of the reasoning it is multiplied by 1 + the sum over all paths from there to the
        prompt: a token counts if it matters to the output, and comes from the prompt.
        """
        largest = self.edges.max(initial=0.0)
        weights = self.edges / largest if largest > 0 else self.edges
        reached = self._sum_paths(weights)
        inverse = _solve_rows(weights, np.eye(len(weights)))
        incoming = (weights @ inverse)[:, : self.first].sum(axis=1)
        members = list(self.reasoning)
        reached[members] *= 1 + incoming[members]
        return self._attribution(reached, "path_sum")

    def flow(self, *, threads: int | None = None, progress: Progress | None = None) -> Attribution:
        """The maximum flow from the output to each token, over the same edges as `influence`.

        One maximum flow out of all tokens of the output, divided by their number. It can end at
        any token, also of the reasoning.
        """
        rows = (Row("output", self.output),)
        graph = self.graph()
        result = max_flow(graph, layers=-1, rows=rows, threads=threads, progress=progress)
        scores = result.to_numpy()[0, 0]
        members = [i for i in self.reasoning if self.edges[i].any()]
        if members:  # the flow to a token that passes it on is what arrives there
            scores = scores.copy()
            scores[members] = [self._flow_through(graph, i, threads) for i in members]
        return self._attribution(scores, "flow")

    def _flow_through(self, graph: AttentionGraph, token: int, threads: int | None) -> float:
        """The maximum flow from the output to a token that passes it on, which ends there."""
        layer = self._passing().index(token)
        weights = graph.weights.copy()
        carried = graph.carried.copy()  # type: ignore[union-attr]
        weights[layer] = np.eye(len(self.tokens))
        carried[layer] = True
        stopped = replace(graph, weights=weights, attention=weights, carried=carried)
        rows = (Row("output", self.output),)
        found = max_flow(stopped, layers=-1, rows=rows, tokens=token, threads=threads)
        return float(found.to_numpy()[0, 0, 0])

    def graph(self) -> AttentionGraph:
        """The chain as a layered graph: one layer for each token that passes influence on.

        In its layer a token attends to earlier ones by its edges, and all others are carried.
        """
        edges, n = scale_rows(self.edges), len(self.tokens)
        passing = self._passing()
        weights = np.broadcast_to(np.eye(n), (len(passing), n, n)).copy()
        carried = np.ones((len(passing), n), dtype=np.bool_)
        for layer, token in enumerate(passing):
            weights[layer, token] = edges[token]
            carried[layer, token] = False
        return AttentionGraph(
            weights=weights,
            attention=weights,
            tokens=self.tokens,
            residual_weights=None,
            causal=True,
            widths=(n,) * (len(passing) + 1),
            carried=carried,
            settings=self.settings,
        )

    def _passing(self) -> list[int]:
        """The tokens that pass influence on, first to last."""
        return [i for i in range(len(self.tokens)) if self.edges[i].any()]

    def _sum_paths(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over all paths from the output to each token, averaged over the output."""
        start = np.zeros((1, len(weights)))
        start[0, list(self.output)] = 1 / len(self.output)
        reached: NDArray[np.float64] = _solve_rows(weights, start)[0] - start[0]
        return reached

    def _attribution(self, scores: NDArray[np.float64], method: str) -> Attribution:
        answer = range(self.first, len(self.tokens))
        settings = {**self.settings, "chain": True, "unranked": list(answer)}
        return Attribution(
            scores=scores[None, None],
            tokens=self.tokens,
            method=method,
            layers=(1,),
            positions=(0,),
            rows=(Row("output", self.output),),
            settings=settings,
            offsets=self.offsets,
        )


def build_chain(
    rows: NDArray[np.float64],
    answer: Answer,
    *,
    tokens: tuple[str, ...],
    settings: Mapping[str, Any],
    offsets: Offsets | None = None,
    output_span: TokenSpan | None = None,
    reasoning_span: TokenSpan | None = None,
) -> Chain:
    """Build the graph of the tokens of an answer and its prompt.

    rows: [generated tokens, tokens], the scores of all tokens for each generated one; negative
    scores count as 0. tokens, offsets, settings: as in `Chain`.
    output_span, reasoning_span: as in `Explanation.chain`.
    Raises SelectionError for spans that the answer does not have.
    """
    output = _check_span(
        "output_span", (0, len(answer) - 1) if output_span is None else output_span, len(answer)
    )
    reasoning = reasoning_span
    if reasoning is not None:
        reasoning = _check_span("reasoning_span", reasoning, len(answer))
    elif output[0] > 0:
        reasoning = (0, output[0] - 1)
    edges = np.zeros((len(tokens), len(tokens)))
    edges[list(answer.tokens)] = np.clip(rows, 0, None)
    edges = np.tril(edges, -1)
    kept = {*_indices(answer.first, output)}
    if reasoning is not None:
        kept |= {*_indices(answer.first, reasoning)}
    edges[[i for i in range(len(tokens)) if i not in kept]] = 0
    return Chain(edges, tokens, answer.first, output, reasoning, settings, offsets)


def read_chain_layer(method: str, layer: int | str) -> int | None:
    """Return the layer whose scores are the edges of a chain; None for the mean of all.

    Raises InputError for another text, and for the mean of a method other than raw attention.
    """
    is_mean = isinstance(layer, str) and layer == "mean"
    if is_mean and method != "raw":
        raise InputError(
            f"layer is 'mean', and the method is {method!r}",
            expected="method='raw', whose layers can be averaged",
            fix="Use layer=-1 for the last layer.",
        )
    if isinstance(layer, str) and not is_mean:
        raise InputError(
            f"layer is {quote(layer)}",
            expected="a number, or 'mean'",
            fix="Use layer=-1 for the last layer.",
        )
    return None if is_mean else as_index(layer, "layer")


def scale_rows(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale rows to sum to 1; rows of zeros stay.

    >>> scale_rows(np.asarray([[0.0, 0.0], [2.0, 0.0]]))
    array([[0., 0.],
           [1., 0.]])
    """
    sums = edges.sum(axis=1, keepdims=True)
    scaled: NDArray[np.float64] = np.divide(edges, sums, out=np.zeros_like(edges), where=sums > 0)
    return scaled


def _solve_rows(weights: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Start (I - weights)^-1, for weights below the diagonal: back from the last token."""
    result = start.copy()
    for i in range(len(weights) - 1, 0, -1):
        result[:, :i] += result[:, i : i + 1] * weights[i, :i]
    return result


def _indices(first: int, span: TokenSpan) -> tuple[int, ...]:
    return tuple(range(first + span[0], first + span[1] + 1))


def _check_span(name: str, span: Any, n: int) -> TokenSpan:
    values: Sequence[int] = span if is_span(span) else (-1, -1)
    start, end = int(values[0]), int(values[1])
    if not 0 <= start <= end < n:
        raise SelectionError(
            f"{name} is {quote(span)}",
            expected=f"the first and the last of {n} generated tokens, such as (0, {n - 1})",
            fix="Both count from 0, and both are included.",
        )
    return start, end
