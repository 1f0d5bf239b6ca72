"""Evaluator: a loaded model, and the values of all metrics for many texts.

For one text: every explainer computes its scores, the metrics say which changed texts they need,
the model runs each of these once, and the metrics are read from the answers. Texts follow one
another; torch uses all threads for each.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from attnflow.corpus.batches import Plan
from attnflow.corpus.example import Example, Rejected
from attnflow.errors import AttnflowError, check_choice
from attnflow.evaluation.metrics import METRICS, Trial
from attnflow.evaluation.orders import Sign
from attnflow.evaluation.perturbation import Curves, aopc_limits, grid
from attnflow.head_merge import check_head
from attnflow.importance.replacement import resolve_replacement
from attnflow.importance.target import check_task
from attnflow.models.generation import check_generates
from attnflow.models.loading import load_model, text_config
from attnflow.models.model_state import evaluation_mode, move_model
from attnflow.models.prediction import resolve_word
from attnflow.models.vision import is_image_model, load_image_model
from attnflow.optional import import_optional
from attnflow.study.case import Question, make_case
from attnflow.study.cost import Cost, measure_cost
from attnflow.study.design import Design
from attnflow.study.explainers import (
    EXPLAINERS,
    check_scores,
    explain_all,
    resolve_explainers,
)
from attnflow.study.image_case import REPLACEMENTS as IMAGE_REPLACEMENTS
from attnflow.study.image_case import MaskedImage, make_image_case
from attnflow.study.masked_model import MaskedModel

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = "random"  # its noise is in every comparison, so it has twice the orders
CURVE_POINTS = 11  # of a stored curve, at equal shares of the tokens
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of an explainer for a case, or why there are none; and what they cost."""

    values: Floats | None
    cost: Cost
    problem: str = ""


@dataclass(frozen=True, eq=False)
class Measured:
    """The values of an explainer for a text.

    replacement, sign: how tokens were removed and ranked. values: by metric; nan where there is
    none. morf, lerf: p at equal shares of removed tokens, most and least relevant first.
    """

    explainer: str
    replacement: str
    sign: str
    values: Mapping[str, float]
    morf: Floats
    lerf: Floats


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A text of a study.

    label, probability: the explained prediction. labels: the ranked tokens or words. evidence:
    whether each is evidence, if it is known. scores: by explainer. measured: the values.
    """

    example: Example
    label: str
    probability: float
    labels: tuple[str, ...]
    evidence: NDArray[np.bool_] | None
    scores: Mapping[str, Scores]
    measured: tuple[Measured, ...]


class Evaluator:
    """A loaded model that computes the values of a study.

    threads: of torch; all processors if not given.
    Raises FileError if the model cannot be loaded, InputError if it predicts nothing.
    """

    def __init__(self, design: Design, threads: int | None = None) -> None:
        self.settings = self.design = design.resolve("cpu")
        self.threads = 1  # of the engine: texts follow one another
        self._torch_threads = threads
        self.takes_images = is_image_model(design.model)
        self.loaded: Any = self._load()
        self._check_options()
        move_model(self.loaded.model, self.design.device)
        self.metrics = [METRICS[name] for name in design.metrics]
        self.names = resolve_explainers(
            design.methods,
            design.edges,
            design.explainers,
            "image" if self.takes_images else "text",
        )
        for name in self.names:
            if "/" not in name:
                EXPLAINERS[name].check()
        self.replacements = self._resolve_replacements()

    def plan(self, examples: Sequence[Example]) -> Plan:
        """Return the batches of a shard: one for each text."""
        batches = tuple((place,) for place in enumerate(examples))
        return Plan(len(examples), cast(Any, batches), {})

    def run_batch(self, batch: Any) -> dict[int, Any]:
        """Evaluate the texts of a batch; a text that cannot be evaluated is rejected."""
        results: dict[int, Any] = {}
        for place, example in batch:
            try:
                results[place] = self.evaluate(example)
            except AttnflowError as error:
                results[place] = Rejected(example, str(error), "other")
        return results

    def score_batch(self, captured: dict[int, Any]) -> dict[int, Any]:
        """Return the results of `run_batch`."""
        return captured

    def score(self, examples: Sequence[Example]) -> list[Any]:
        """Return the result of each example, in order."""
        with self.torch_threads():
            results = self.run_batch(tuple(enumerate(examples)))
        return [results[place] for place in range(len(examples))]

    capture = score

    def torch_threads(self) -> AbstractContextManager[None]:
        """Let torch use the threads of the study while it lasts."""
        return _limited(self._torch_threads)

    def limit_torch(self) -> None:
        """Let torch use the threads of the study in a new thread."""
        if self._torch_threads is not None:
            import_optional("torch", "running a model").set_num_threads(self._torch_threads)

    def evaluate(self, example: Example) -> Evaluated:
        """Return the values of all explainers and metrics for a text.

        Raises AttnflowError if the text cannot be evaluated.
        """
        with evaluation_mode(self.loaded.model):
            case = self._make_case(example)
            scores = self._explain(case)
            models = self._mask(case)
            measured = [values for model in models for values in self._measure(case, scores, model)]
        return Evaluated(
            example, case.label, case.probability, case.labels, case.evidence, scores,
            tuple(measured),
        )  # fmt: skip

    def _load(self) -> Any:
        """Load the model. Raises InputError if it predicts nothing."""
        design = self.design
        if self.takes_images:
            return load_image_model(design.model, design.tokenizer)
        loaded = load_model(design.model, design.tokenizer)
        check_task(loaded)
        return loaded

    def _check_options(self) -> None:
        """Raise an error for an option that does not fit the model: it would fail for all texts."""
        design, loaded = self.design, self.loaded
        if design.generate or design.continuation_column is not None:
            check_generates(loaded)
        config = text_config(loaded.model)
        names = getattr(config, "id2label", None) or ()
        n = len(names) if loaded.task == "classifier" else getattr(config, "vocab_size", 0)
        predicting = loaded.predicting if self.takes_images else loaded
        for value in (design.target, design.against):
            if value is not None and n:
                resolve_word(predicting, self._read_class(value), n)
        n_heads = getattr(config, "num_attention_heads", None)
        if isinstance(design.heads, int) and isinstance(n_heads, int):
            check_head(design.heads, n_heads, "each layer")

    def _make_case(self, example: Example) -> Any:
        design, question = self.design, self._ask(example)
        if self.takes_images:
            return make_image_case(self.loaded, example.text, question)
        options: Any = {"words": design.words, "truncate": design.truncate}
        return make_case(self.loaded, example.text, question, **options)

    def _ask(self, example: Example) -> Question:
        """Return what the study asks about a text."""
        design, fields = self.design, example.fields

        def read(column: str | None, default: Any = None) -> Any:
            value = fields.get(column) if column is not None else None
            return default if value in (None, "") else value

        evidence = read(design.evidence_column)
        if isinstance(evidence, str) and evidence.lstrip().startswith("["):
            with suppress(ValueError):  # or a text that begins with a bracket
                evidence = json.loads(evidence)
        return Question(
            target=self._read_class(read(design.target_column, design.target)),
            against=self._read_class(read(design.against_column, design.against)),
            continuation=read(design.continuation_column),
            generate=design.generate,
            evidence=evidence,
        )

    def _read_class(self, value: Any) -> Any:
        """Return the number of a class for a text such as "1", which CSV has for numbers."""
        if self.loaded.task != "classifier":
            return value  # a token may be a digit
        config = getattr(self.loaded.model, "config", None)
        names = getattr(config, "id2label", None) or {}
        is_number = isinstance(value, str) and value.isdecimal() and value not in names.values()
        return int(value) if is_number else value

    def _explain(self, case: Any) -> dict[str, Scores]:
        """Return the scores of all explainers. One that fails has none."""
        device, heads = self.design.device, self.design.heads
        scores: dict[str, Scores] = {}
        shared: dict[str, Cost] = {}
        for name, compute in explain_all(case, self.names, heads=heads):
            values, problem = None, ""
            with measure_cost(device) as cost:
                try:
                    values = check_scores(name, compute())
                except AttnflowError as error:
                    problem = str(error)
            # The first method on some edges captures the graph for the others.
            edges = name.partition("/")[2]
            first = shared.setdefault(edges, cost) if edges else cost
            if first is not cost:
                cost = Cost(first.seconds + cost.seconds, max(first.megabytes, cost.megabytes))
            scores[name] = Scores(values, cost, problem)
        return scores

    def _mask(self, case: Any) -> list[Any]:
        """Return a model for each replacement."""
        design = self.design
        options: dict[str, Any] = {
            "batch_tokens": design.batch_tokens or 1, "draws": design.draws, "seed": design.seed
        }  # fmt: skip
        if self.takes_images:
            return [MaskedImage(case, name, **options) for name in self.replacements]
        models: list[Any] = []
        for name in self.replacements:
            other = models[0] if models else None
            models.append(MaskedModel(case, cast(Any, name), other=other, **options))
        return models

    def _measure(self, case: Any, scores: Mapping[str, Scores], model: Any) -> list[Measured]:
        """Return the values of all explainers, with removed tokens replaced in one way."""
        design, replacement = self.design, model.replacement
        needs = [metric.needs for metric in self.metrics]
        limits = aopc_limits(model) if "limits" in needs else None
        trials = {
            (name, sign): Trial(
                found.values,
                model,
                sign=cast(Sign, sign),
                evidence=case.evidence,
                samples=design.samples * (2 if name == REFERENCE else 1),
                limits=limits,
            )
            for name, found in scores.items()
            if found.values is not None
            for sign in design.signs
        }
        if trials:
            model.log_probability(np.concatenate([t.sets(needs) for t in trials.values()]))
        return [
            self._read(name, replacement, sign, trials.get((name, sign)))
            for name in scores
            for sign in design.signs
        ]

    def _read(self, name: str, replacement: str, sign: str, trial: Trial | None) -> Measured:
        """Return the values of one trial; nan if the explainer failed."""
        empty = np.full(CURVE_POINTS, np.nan)
        if trial is None:
            nothing = {metric.name: float("nan") for metric in self.metrics}
            return Measured(name, replacement, sign, nothing, empty, empty)
        values = {metric.name: metric.measure(trial) for metric in self.metrics}
        has_curves = any(metric.needs == "grid" for metric in self.metrics)
        morf, lerf = (
            (_resample(trial.curves, first) for first in ("most", "least"))
            if has_curves
            else (empty, empty)
        )
        return Measured(name, replacement, sign, values, morf, lerf)

    def _resolve_replacements(self) -> tuple[str, ...]:
        """Return the replacements of the study. Raises InputError for one that does not fit."""
        if self.takes_images:
            for name in self.design.replacements:
                check_choice("replacements", name, IMAGE_REPLACEMENTS)
            return self.design.replacements or IMAGE_REPLACEMENTS
        names = self.design.replacements or (None, "remove")
        resolved = [resolve_replacement(self.loaded, cast(Any, name)) for name in names]
        return tuple(dict.fromkeys(resolved))


def _resample(curves: Curves, first: Any) -> Floats:
    """Return p at equal shares of removed tokens."""
    counts = grid(curves.n)
    shares = np.asarray(counts) / curves.n
    wanted = np.linspace(0, 1, CURVE_POINTS)
    return np.interp(wanted, shares, curves.probabilities(counts, first))


@contextmanager
def _limited(threads: int | None) -> "Iterator[None]":
    """Let torch use some threads, and restore their number afterwards."""
    torch = import_optional("torch", "running a model")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
