"""Computer: a model held ready, and the scores of many examples from it.

A batch goes through two stages: `run_batch`, which runs the model, and `attribute_batch`, which
needs no model. Every batch runs on one thread of torch; several threads take several batches. So
the numbers depend neither on how many threads there are nor on what they did before.

What the model gave for a batch, and the scores that are made of it without the model.

Nothing here needs torch: it can be done in another thread or on another machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import import_torch, to_numpy
from attnflow.attentions import rescale_rows
from attnflow.corpus.batches import Outcomes, Plan, Task, plan_shard
from attnflow.corpus.example import Example, Float32, Outcome, Refused, Result, Scored
from attnflow.corpus.settings import Settings
from attnflow.errors import AttnflowError, InputError
from attnflow.explanation import Explanation
from attnflow.graph import AttentionGraph
from attnflow.layers import resolve_residual
from attnflow.models.inputs import collate
from attnflow.models.loading import load_model
from attnflow.selection import resolve_layers
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
        if settings.normalize == "rows":
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
        "normalize": settings.normalize,
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


class Computer:
    """A model that is loaded once, and computes what the settings ask for.

    threads: how many batches to work on at the same time; as many as there are processors if not
    given.
    Raises FileError if the model cannot be loaded, InputError if it cannot give what is asked for.
    """

    def __init__(self, settings: Settings, threads: int | None = None) -> None:
        self.settings = settings
        self.threads = threads
        self._heads: Any = settings.heads
        self.loaded = load_model(settings.model, settings.tokenizer)
        _move(self.loaded.model, settings.device)
        self.outcomes = Outcomes(self.loaded, settings)
        self.padded = self._switch_over()
        # Gradients are taken with a hook on the model, and graphs with the model switched over.
        shares = self.padded and "input_gradients" not in settings.importance
        self._turn: AbstractContextManager[Any] = nullcontext() if shares else Lock()

    def compute(self, examples: Sequence[Example]) -> list[Result]:
        """What is asked for of each example, or why it is refused, in the order given."""
        from attnflow.corpus.local_engine import run_shards

        [results] = run_shards(self, [list(examples)])
        return results

    def capture(self, examples: Sequence[Example]) -> CapturedShard:
        """What the model gives for a shard; `attribute` makes the same of it as `compute`."""
        plan = self.plan(examples)
        with one_thread_of_torch():
            batches = tuple(self.run_batch(batch) for batch in plan.batches)
        return CapturedShard(plan.size, batches, plan.refused)

    def plan(self, examples: Sequence[Example]) -> Plan:
        """The batches of a shard."""
        return plan_shard(self.loaded, self.settings, examples)

    def run_batch(self, batch: Sequence[Task]) -> PaddedBatch | GraphBatch:
        """Run the model on a batch. Call it inside `one_thread_of_torch`."""
        with self._turn:
            return self._run_padded(batch) if self.padded else self._run_graphs(batch)

    def _switch_over(self) -> bool:
        """Whether the fast way serves, for which the model is switched over."""
        settings = self.settings
        plain = settings.edges == "attention" and settings.normalize != "receptive_field"
        from attnflow.models.capture.batch import can_run_padded

        if not plain or settings.words or not can_run_padded(self.loaded.model):
            return False
        from attnflow.models.capture.hooks import switch

        switch(self.loaded.model)
        return True

    def _run_padded(self, batch: Sequence[Task]) -> PaddedBatch:
        from attnflow.models.capture.batch import run_padded

        inputs = collate(self.loaded, [task.encoded for task in batch])
        merged, output = run_padded(self.loaded.model, inputs, self._heads)
        numbers = resolve_layers(len(merged), self.settings.layers)
        residual = resolve_residual(self.settings.residual_weight, len(merged))
        weights = None
        if "flow" in self.settings.methods:
            weights = import_torch("flow").stack(merged[: max(numbers)]).cpu().numpy()
        return PaddedBatch(
            seen=self._describe(batch, output),
            layers=numbers,
            residual=residual,
            rows=self._rows(batch, merged, numbers, residual),
            weights=weights,
        )

    def _rows(
        self,
        batch: Sequence[Task],
        merged: Sequence[Any],
        numbers: Sequence[int],
        residual: Sequence[float],
    ) -> dict[str, Float32]:
        """Raw attention and rollout [examples, layers, positions, tokens], where asked for."""
        from attnflow.models.capture.batch import raw_rows, rollout_rows

        torch = import_torch("rollout")
        places = None
        if self.settings.positions != "all":
            places = torch.tensor([task.positions for task in batch], device=merged[0].device)
        rows = {}
        with torch.inference_mode():
            if "raw" in self.settings.methods:
                rows["raw"] = raw_rows(merged, numbers, places)
            if "rollout" in self.settings.methods:
                rows["rollout"] = rollout_rows(merged, numbers, places, residual)
        return {name: values.cpu().numpy() for name, values in rows.items()}

    def _run_graphs(self, batch: Sequence[Task]) -> GraphBatch:
        from attnflow.models.capture.api import capture_graphs

        settings, encoded = self.settings, [task.encoded for task in batch]
        weighting: dict[str, Any] = {"edges": settings.edges}
        if settings.edges == "gradient":
            weighting["target"] = partial(self.outcomes.explained_scores, batch)
        graphs, output = capture_graphs(
            self.loaded.model,
            collate(self.loaded, encoded),
            tokens=[one.tokens for one in encoded],
            heads=self._heads,
            residual_weight=settings.residual_weight,
            **weighting,
        )
        return GraphBatch(
            seen=self._describe(batch, output),
            layers=resolve_layers(graphs[0].n_layers, settings.layers),
            graphs=tuple(
                replace(graph, weights=to_numpy(graph.weights), attention=to_numpy(graph.attention))
                for graph in graphs
            ),
        )

    def _describe(self, batch: Sequence[Task], output: Any) -> tuple[Seen, ...]:
        """What is known of each example besides its attention."""
        outcomes = self.outcomes.of(batch, output)
        importance = self.outcomes.importance(batch, outcomes)
        return tuple(
            Seen(
                place=task.place,
                example=task.example,
                tokens=task.tokens,
                special=task.encoded.special,
                words=task.encoded.words,
                explained=task.explained,
                positions=task.positions,
                prediction=outcomes[i][0],
                target=outcomes[i][1],
                importance=importance[i],
            )
            for i, task in enumerate(batch)
        )


def _move(model: Any, device: str) -> None:
    """Move a model to a device. Raises InputError if there is no such device."""
    try:
        model.to(device)
    except (AssertionError, RuntimeError) as error:  # torch without CUDA asserts
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"the model cannot be moved to the device {device!r} ({why})",
            expected="cpu, or cuda where there is a GPU with enough memory",
            fix="Choose one with --device (device=...).",
        ) from error


def attribute(
    settings: Settings, captured: CapturedShard, threads: int | None = None
) -> list[Result]:
    """The results of a shard that `Computer.capture` ran the model on."""
    from attnflow.corpus.local_engine import map_threads

    parts = map_threads(lambda batch: attribute_batch(settings, batch), captured.batches, threads)
    return arrange(captured.size, captured.refused, parts)


@contextmanager
def one_thread_of_torch() -> Iterator[None]:
    """Let torch compute on the calling thread alone.

    Sums that are shared out over threads round differently; and batches on a thread each are
    faster than threads that share a batch.
    """
    torch = import_torch("running a model")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
