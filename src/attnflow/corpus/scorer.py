"""Scorer: a loaded model, and the scores of many examples.

A batch goes through two stages. `Scorer.run_batch` runs the model. `score_batch` computes the
methods from what the model returned; it needs neither the model nor torch, so it can run in another
thread or on another machine. Every batch runs on one thread of torch, and several threads process
several batches. Therefore the numbers do not depend on the number of threads or on earlier batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import rescale_rows, to_numpy
from attnflow.attribution import Row
from attnflow.corpus.batches import Outcomes, Plan, Task, plan_shard
from attnflow.corpus.example import (
    Answered,
    Example,
    Float32,
    Outcome,
    Rejected,
    Result,
    Scored,
)
from attnflow.corpus.settings import Settings
from attnflow.edges.registry import EDGES
from attnflow.errors import AttnflowError, first_line
from attnflow.graph import AttentionGraph
from attnflow.layers import resolve_residual
from attnflow.methods.registry import METHODS
from attnflow.methods.rollout import multiply_layers
from attnflow.models.generation import check_generates
from attnflow.models.inputs import collate
from attnflow.models.loading import load_model
from attnflow.models.model_state import move_model
from attnflow.optional import import_optional
from attnflow.selection import resolve_layers
from attnflow.units import Units

# The methods that `PaddedBatch` can serve: it holds rows of raw attention and rollout, and the
# weights that flow is computed from. All other methods get an AttentionGraph per example.
PADDED_METHODS = frozenset({"raw", "rollout", "flow"})


class Scorer:
    """A loaded model that computes the scores in the settings.

    threads: the number of batches processed at the same time; all processors if not given.
    Raises FileError if the model cannot be loaded, InputError if it cannot compute the scores.
    """

    def __init__(self, settings: Settings, threads: int | None = None) -> None:
        self.settings = settings = settings.resolve("cpu").resolve_edges()
        self.threads = threads
        self._heads: Any = settings.heads
        self.loaded = load_model(settings.model, settings.tokenizer)
        if settings.has_answers:
            check_generates(self.loaded)
        move_model(self.loaded.model, settings.device)
        self.outcomes = Outcomes(self.loaded, settings)
        self.padded = self._prepare_padded()
        # Gradients need a hook on the model, and graphs change its attention while it runs.
        shared = self.padded and "input_gradients" not in settings.importance
        self._exclusive: AbstractContextManager[Any] = nullcontext() if shared else Lock()

    def score(self, examples: Sequence[Example]) -> list[Result]:
        """Return the scores of each example, or why it is rejected, in the same order."""
        from attnflow.corpus.local_engine import score_shards

        [results] = score_shards(self, [list(examples)])
        return results

    def capture(self, examples: Sequence[Example]) -> "CapturedShard":
        """Run the model on a shard; `score_captured` computes the results that `score` returns."""
        plan = self.plan(examples)
        with single_torch_thread():
            batches = tuple(self.run_batch(batch) for batch in plan.batches)
        return CapturedShard(plan.size, batches, plan.rejected)

    def plan(self, examples: Sequence[Example]) -> Plan:
        """Return the batches of a shard. Generates the answers, if they are asked for."""
        if not self.settings.generate:
            return plan_shard(self.loaded, self.settings, examples)
        with self._exclusive, single_torch_thread():
            return plan_shard(self.loaded, self.settings, examples)

    def run_batch(self, batch: Sequence[Task]) -> "CapturedBatch":
        """Run the model on a batch. Call it within `single_torch_thread`.

        If it fails, it runs on each text alone; a text that it cannot take is rejected.
        """
        torch = import_optional("torch", "running a model")
        try:
            with self._exclusive:
                return self._run_padded(batch) if self.padded else self._run_graphs(batch)
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError) as error:
            if len(batch) > 1:
                return SplitBatch(tuple(self.run_batch([task]) for task in batch))
            if not self._runs_on_first_token(batch[0]):
                raise  # not a problem of this text
            return SplitBatch((), {batch[0].place: reject_failed(batch[0].example, error)})

    def _runs_on_first_token(self, task: Task) -> bool:
        torch = import_optional("torch", "running a model")
        inputs = collate(self.loaded, [task.encoded])
        try:
            with self._exclusive, torch.inference_mode():
                self.loaded.model(**{name: values[:, :1] for name, values in inputs.items()})
        except (IndexError, RuntimeError):
            return False
        return True

    def score_batch(self, captured: "CapturedBatch") -> dict[int, Result]:
        """Return the result of each example of a batch, by its index in the shard."""
        return score_batch(self.settings, captured)

    def torch_threads(self) -> AbstractContextManager[None]:
        """Limit torch to one thread while a run lasts; see `single_torch_thread`."""
        return single_torch_thread()

    def limit_torch(self) -> None:
        """Limit torch to one thread in a new thread."""
        import_optional("torch", "running a model").set_num_threads(1)

    def _prepare_padded(self) -> bool:
        """Prepare the model for padded batches, and return whether they serve these settings."""
        from attnflow.models.capture.padded_batch import supports_padded_batches
        from attnflow.models.capture.transformers_hooks import install_hooks

        settings = self.settings
        served = (
            PADDED_METHODS.issuperset(settings.methods)
            and settings.edges == "attention"
            and settings.residual_weight != "measured"
            and settings.normalize != "receptive_field"
            and not settings.words
            and not settings.has_answers
            and settings.image_column is None
            and supports_padded_batches(self.loaded.model)
        )
        if served:
            install_hooks(self.loaded.model)
        return served

    def _run_padded(self, batch: Sequence[Task]) -> "PaddedBatch":
        from attnflow.models.capture.padded_batch import run_padded

        inputs = collate(self.loaded, [task.encoded for task in batch])
        merged, output = run_padded(self.loaded.model, inputs, self._heads)
        layers = resolve_layers(len(merged), self.settings.layers)
        residual = resolve_residual(self.settings.describe_residual(), len(merged))
        weights = None
        if "flow" in self.settings.methods:
            torch = import_optional("torch", "flow")
            weights = torch.stack(merged[: max(layers)]).cpu().numpy()
        return PaddedBatch(
            examples=self._describe(batch, output),
            layers=layers,
            residual=residual,
            rows=self._compute_rows(batch, merged, layers, residual),
            weights=weights,
        )

    def _compute_rows(
        self,
        batch: Sequence[Task],
        merged: Sequence[Any],
        layers: Sequence[int],
        residual: Sequence[float],
    ) -> dict[str, Float32]:
        """Return raw attention and rollout [examples, layers, positions, tokens] if requested."""
        from attnflow.models.capture.padded_batch import raw_rows

        torch = import_optional("torch", "rollout")
        positions = None  # all of them; otherwise [examples, positions]
        if self.settings.positions != "all":
            positions = torch.tensor([task.positions for task in batch], device=merged[0].device)
        rows = {}
        with torch.inference_mode():
            if "raw" in self.settings.methods:
                rows["raw"] = raw_rows(merged, layers, positions)
            if "rollout" in self.settings.methods:
                rows["rollout"] = multiply_layers(merged, layers, positions, residual=residual)
        return {name: values.cpu().numpy() for name, values in rows.items()}

    def _run_graphs(self, batch: Sequence[Task]) -> "GraphBatch":
        from attnflow.models.capture.api import capture_graphs

        settings, encoded = self.settings, [task.encoded for task in batch]
        edges, residual_weight = settings.edges or "attention", cast(Any, settings.residual_weight)
        options: dict[str, Any] = {"edges": edges, "residual_weight": residual_weight}
        if EDGES[edges].needs_gradient:
            options["target"] = partial(self.outcomes.explained_logits, batch)
        graphs, output = capture_graphs(
            self.loaded.model,
            collate(self.loaded, encoded),
            tokens=[encoding.tokens for encoding in encoded],
            heads=self._heads,
            **options,
        )
        return GraphBatch(
            examples=self._describe(batch, output),
            layers=resolve_layers(graphs[0].n_layers, settings.layers),
            graphs=tuple(
                replace(graph, weights=to_numpy(graph.weights), attention=to_numpy(graph.attention))
                for graph in graphs
            ),
        )

    def _describe(self, batch: Sequence[Task], output: Any) -> tuple["CapturedExample", ...]:
        outcomes = self.outcomes.predict(batch, output)
        importance = self.outcomes.importance(batch, outcomes)
        chances: list[tuple[float, ...]] = [()] * len(batch)
        if self.settings.has_answers:
            chances = self.outcomes.answer_probabilities(batch, output)
        return tuple(
            CapturedExample(
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
                answer=None
                if task.answered is None
                else Answered(task.answered.text, task.answered.first, task.explained, chances[i]),
            )
            for i, task in enumerate(batch)
        )


@dataclass(frozen=True, eq=False)
class CapturedExample:
    """An example after the model ran on it: everything but its attention.

    place: its index in the shard. explained: the index of the explained token.
    positions: the positions to score, as indices of tokens, or of words if the settings ask for
    words. importance: [tokens] by name, or the error that prevents it.
    """

    place: int
    example: Example
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Units
    explained: int
    positions: tuple[int, ...]
    prediction: Outcome | None
    target: Outcome | None
    importance: Mapping[str, NDArray[np.float64]] | AttnflowError
    answer: Answered | None = None


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """The attention of a batch, padded to its longest example: the fast way for common settings.

    layers: the numbers of the requested layers. residual: r of each layer of the model.
    rows: raw attention and rollout [examples, layers, positions, tokens], if requested.
    weights: for flow, [layers of the model, examples, tokens, tokens], without residual
    connections; None if flow is not requested.
    """

    examples: tuple[CapturedExample, ...]
    layers: tuple[int, ...]
    residual: tuple[float, ...]
    rows: Mapping[str, Float32]
    weights: Float32 | None

    def scores(self, settings: Settings, i: int) -> dict[str, Any]:
        """Return the scores [layers, positions, tokens] of example i, by method."""
        example = self.examples[i]
        n, n_positions = len(example.tokens), len(example.positions)
        scores: dict[str, Any] = {}
        for method in settings.methods:
            if method == "flow":
                assert self.weights is not None
                weights = self.weights[:, i, :n, :n]
                scores[method] = flow_rows(weights, self.residual, self.layers, example.positions)
            else:
                scores[method] = self.rows[method][i, :, :n_positions, :n]
            if settings.normalize == "rows":
                scores[method] = rescale_rows(scores[method])
        return scores


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """The attention graph of each example of a batch, for all other settings and methods."""

    examples: tuple[CapturedExample, ...]
    layers: tuple[int, ...]
    graphs: tuple[AttentionGraph, ...]

    def scores(self, settings: Settings, i: int) -> dict[str, Any]:
        """Return the scores [layers, positions, tokens or words] of example i, by method."""
        example = self.examples[i]
        scores: dict[str, Any] = {}
        for method in settings.methods:
            attribution = METHODS[method].attribute(
                self.graphs[i],
                layers=self.layers,
                positions=example.positions,
                rows=_answer_rows(example) if settings.has_answers else (),
                units=example.words if settings.words else None,
                normalize=settings.normalize,  # type: ignore[arg-type]
                threads=1,
            )
            scores[method] = attribution.to_numpy()
        return scores


def _answer_rows(example: CapturedExample) -> tuple[Row, ...]:
    """A row for each token of the answer; positions are tokens, also if columns are words."""
    return tuple(Row(example.tokens[i], (i,)) for i in example.positions)


@dataclass(frozen=True, eq=False)
class SplitBatch:
    """A batch whose texts ran alone. rejected: those that the model cannot take, by their place."""

    parts: tuple["CapturedBatch", ...]
    rejected: Mapping[int, Rejected] = field(default_factory=dict)


CapturedBatch: TypeAlias = PaddedBatch | GraphBatch | SplitBatch


def reject_failed(example: Example, error: Exception) -> Rejected:
    """Reject an example that the model failed on."""
    reason = f"the model failed ({first_line(error)}); expected a text that it can take."
    return Rejected(example, reason, "other")


@dataclass(frozen=True, eq=False)
class CapturedShard:
    """All batches of a shard with `size` examples, and the rejected ones by their index in it."""

    size: int
    batches: tuple[CapturedBatch, ...]
    rejected: Mapping[int, Rejected]


def score_captured(
    settings: Settings, captured: CapturedShard, threads: int | None = None
) -> list[Result]:
    """Return the results of a shard that `Scorer.capture` ran the model on."""
    from attnflow.corpus.local_engine import map_threads

    parts = map_threads(lambda batch: score_batch(settings, batch), captured.batches, threads)
    return order_results(captured.size, captured.rejected, parts)


def score_batch(settings: Settings, batch: CapturedBatch) -> dict[int, Result]:
    """Return the result of each example of a batch, by its index in the shard."""
    if isinstance(batch, SplitBatch):
        parts = [score_batch(settings, part) for part in batch.parts]
        return {
            place: result for part in (batch.rejected, *parts) for place, result in part.items()
        }
    results: dict[int, Result] = {}
    for i, example in enumerate(batch.examples):
        try:
            scores = batch.scores(settings, i)
            results[example.place] = _make_result(settings, batch.layers, example, scores)
        except AttnflowError as error:
            results[example.place] = Rejected(example.example, str(error), "other")
    return results


def order_results(
    size: int, rejected: Mapping[int, Rejected], parts: Sequence[Mapping[int, Result]]
) -> list[Result]:
    """Return the results of a shard in the order of its examples."""
    results: dict[int, Result] = dict(rejected)
    for part in parts:
        results.update(part)
    return [results[place] for place in range(size)]


def flow_rows(
    weights: Float32, residual: Sequence[float], layers: Sequence[int], positions: Sequence[int]
) -> NDArray[np.float64]:
    """Return the flow [layers, positions, tokens] of some positions.

    weights: W of each layer, [layers, n, n]. residual: r of each layer.
    """
    from attnflow.maxflow import max_flows  # loads Numba, which the other methods do not need

    depth, n, _ = weights.shape
    r = np.asarray(residual[:depth])[:, None, None]
    capacities = np.multiply(weights, 1 - r, dtype=np.float64)
    diagonal = np.arange(n)
    capacities[:, diagonal, diagonal] += r[:, 0]
    return max_flows(capacities, layers=layers, sources=positions, threads=1).values


@contextmanager
def single_torch_thread() -> Iterator[None]:
    """Limit torch to one thread.

    Sums that are split over threads round differently. One thread per batch is also faster than
    several threads that share a batch.
    """
    torch = import_optional("torch", "running a model")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _make_result(
    settings: Settings,
    layers: tuple[int, ...],
    captured: CapturedExample,
    scores: Mapping[str, Any],
) -> Result:
    tokens, special, position = captured.tokens, captured.special, captured.explained
    importance, answer = captured.importance, captured.answer
    if isinstance(importance, AttnflowError):
        raise importance
    if settings.words:
        words = captured.words
        answer = answer and replace(answer, first=words.word_of(answer.first))
        tokens, special, position = words.texts, words.special, words.word_of(position)
        importance = {
            name: np.asarray([values[list(group)].sum() for group in words.groups])
            for name, values in importance.items()
        }
    single = {name: np.array(values, dtype=np.float32) for name, values in scores.items()}
    if not all(np.isfinite(values).all() for values in single.values()):
        reason = "the attention weights are not finite; expected rows that sum to 1."
        return Rejected(captured.example, reason, "other")
    return Scored(
        example=captured.example,
        tokens=tokens,
        special=special,
        position=position,
        positions=captured.positions,
        layers=layers,
        prediction=captured.prediction,
        scores=single,
        importance={name: np.array(v, dtype=np.float32) for name, v in importance.items()},
        target=captured.target,
        answer=answer,
    )
