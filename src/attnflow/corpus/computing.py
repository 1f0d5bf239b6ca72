"""Computer: a model held ready, and the scores of many examples from it.

A batch goes through two stages: `run_batch`, which runs the model, and `attribute_batch`, which
needs no model. Every batch runs on one thread of torch; several threads take several batches. So
the numbers depend neither on how many threads there are nor on what they did before.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from attnflow.arrays import import_torch, to_numpy
from attnflow.corpus.batching import Plan, Task, plan_shard
from attnflow.corpus.captured import (
    CapturedShard,
    GraphBatch,
    PaddedBatch,
    Seen,
    arrange,
    attribute_batch,
)
from attnflow.corpus.example import Example, Float32, Result
from attnflow.corpus.outcomes import Outcomes
from attnflow.corpus.settings import Settings
from attnflow.errors import InputError
from attnflow.merging import resolve_residual
from attnflow.models.encoding import collate
from attnflow.models.loading import load_model
from attnflow.selection import resolve_layers


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
        from attnflow.corpus.pipeline import run_shards

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
        plain = settings.edges == "attention" and settings.normalise != "receptive_field"
        from attnflow.models.padded import can_run_padded

        if not plain or settings.words or not can_run_padded(self.loaded.model):
            return False
        from attnflow.models.registry import switch

        switch(self.loaded.model)
        return True

    def _run_padded(self, batch: Sequence[Task]) -> PaddedBatch:
        from attnflow.models.padded import run_padded

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
        from attnflow.models.padded import raw_rows, rollout_rows

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
        from attnflow.models.capture import capture_graphs

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
            f"the model cannot be moved to the device {device!r} ({why}); expected cpu, or cuda "
            "where there is a GPU with enough memory. Choose one with --device (device=...)."
        ) from error


def attribute(
    settings: Settings, captured: CapturedShard, threads: int | None = None
) -> list[Result]:
    """The results of a shard that `Computer.capture` ran the model on."""
    from attnflow.corpus.pipeline import map_threads

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
