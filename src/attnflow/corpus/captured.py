"""What the model gave for a batch, and the scores that are made of it without the model.

Nothing here needs torch: it can be done in another thread or on another machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.corpus.example import Example, Float32, Outcome, Refused, Result, Scored
from attnflow.corpus.settings import Settings
from attnflow.errors import AttnflowError
from attnflow.explanation import Explanation
from attnflow.graph import AttentionGraph
from attnflow.rows import rescale_rows
from attnflow.words import Words


@dataclass(frozen=True, eq=False)
class Seen:
    """An example as the model saw it, and what it predicts for it.

    place: in the shard. explained: the explained position, among tokens. positions: those asked
    for, among words if these are asked for. importance: [tokens] by its name, or why it cannot be
    had.
    """

    place: int
    example: Example
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Words
    explained: int
    positions: tuple[int, ...]
    prediction: Outcome | None
    target: Outcome | None
    importance: Mapping[str, NDArray[np.float64]] | AttnflowError


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """A batch of examples of like length, filled up to the longest.

    layers: the numbers of those asked for. residual: r of each layer of the model.
    rows: by method, [examples, layers, positions, tokens].
    weights: for flow, [layers of the model, examples, tokens, tokens], without residual
    connections; None if flow is not asked for.
    """

    seen: tuple[Seen, ...]
    layers: tuple[int, ...]
    residual: tuple[float, ...]
    rows: Mapping[str, Float32]
    weights: Float32 | None


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """A batch of examples with a graph each, for everything that is not in a `PaddedBatch`."""

    seen: tuple[Seen, ...]
    layers: tuple[int, ...]
    graphs: tuple[AttentionGraph, ...]


@dataclass(frozen=True, eq=False)
class CapturedShard:
    """All batches of a shard of some size, and the examples refused, by their place in it."""

    size: int
    batches: tuple[PaddedBatch | GraphBatch, ...]
    refused: Mapping[int, Refused]


def attribute_batch(settings: Settings, batch: PaddedBatch | GraphBatch) -> dict[int, Result]:
    """The result of each example of a batch, by its place in the shard."""
    score = (
        partial(_score_padded, settings, batch)
        if isinstance(batch, PaddedBatch)
        else partial(_score_graph, settings, batch)
    )
    results: dict[int, Result] = {}
    for i, seen in enumerate(batch.seen):
        try:
            results[seen.place] = _result(settings, batch.layers, seen, score(i))
        except AttnflowError as error:
            results[seen.place] = Refused(seen.example, str(error), "other")
    return results


def arrange(
    size: int, refused: Mapping[int, Refused], parts: Sequence[Mapping[int, Result]]
) -> list[Result]:
    """The results of a shard in the order of its examples."""
    found: dict[int, Result] = dict(refused)
    for part in parts:
        found.update(part)
    return [found[place] for place in range(size)]


def _score_padded(settings: Settings, batch: PaddedBatch, i: int) -> dict[str, Any]:
    """Scores [layers, positions, tokens] of one example, by method."""
    seen = batch.seen[i]
    n, n_positions = len(seen.tokens), len(seen.positions)
    scores: dict[str, Any] = {}
    for method in settings.methods:
        if method == "flow":
            assert batch.weights is not None
            weights = batch.weights[:, i, :n, :n]
            scores[method] = flow_rows(weights, batch.residual, batch.layers, seen.positions)
        else:
            scores[method] = batch.rows[method][i, :, :n_positions, :n]
        if settings.normalise == "rows":
            scores[method] = rescale_rows(scores[method])
    return scores


def flow_rows(
    weights: Float32, residual: Sequence[float], layers: Sequence[int], positions: Sequence[int]
) -> NDArray[np.float64]:
    """Flow [layers, positions, tokens] of some positions.

    weights: W of each layer, [layers, n, n]. residual: r of each.
    """
    from attnflow.maxflow import max_flows  # loads Numba, which the other methods can do without

    depth, n, _ = weights.shape
    r = np.asarray(residual[:depth])[:, None, None]
    capacities = np.multiply(weights, 1 - r, dtype=np.float64)
    places = np.arange(n)
    capacities[:, places, places] += r[:, 0]
    return max_flows(capacities, layers=layers, sources=positions, threads=1).values


def _score_graph(settings: Settings, batch: GraphBatch, i: int) -> dict[str, Any]:
    """Scores [layers, positions, tokens or words] of one example, by method."""
    seen = batch.seen[i]
    explanation = Explanation(
        text=seen.example.text,
        tokens=seen.tokens,
        special=seen.special,
        words=seen.words,
        position=seen.explained,
        prediction=None,
        graph=batch.graphs[i],
    )
    options: dict[str, Any] = {
        "layers": batch.layers,
        "positions": seen.positions,
        "normalise": settings.normalise,
        "words": settings.words,
    }
    scores: dict[str, Any] = {}
    for method in settings.methods:
        running = {"threads": 1} if method == "flow" else {}
        scores[method] = getattr(explanation, method)(**options, **running).to_numpy()
    return scores


def _result(
    settings: Settings, layers: tuple[int, ...], seen: Seen, scores: Mapping[str, Any]
) -> Result:
    tokens, special, position = seen.tokens, seen.special, seen.explained
    importance = seen.importance
    if isinstance(importance, AttnflowError):
        raise importance
    if settings.words:
        words = seen.words
        tokens, special, position = words.texts, words.special, words.word_of(position)
        importance = {
            name: np.asarray([values[list(group)].sum() for group in words.groups])
            for name, values in importance.items()
        }
    made = {name: np.array(values, dtype=np.float32) for name, values in scores.items()}
    if not all(np.isfinite(values).all() for values in made.values()):
        reason = "the model gives attention that is no finite number; expected rows that sum to 1."
        return Refused(seen.example, reason, "other")
    return Scored(
        example=seen.example,
        tokens=tokens,
        special=special,
        position=position,
        positions=seen.positions,
        layers=layers,
        prediction=seen.prediction,
        scores=made,
        importance={name: np.array(v, dtype=np.float32) for name, v in importance.items()},
        target=seen.target,
    )
