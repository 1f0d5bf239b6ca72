"""Other packages that evaluate explanations, behind one signature.

`Ferret` computes comprehensiveness and sufficiency, `Interpreto` deletion and insertion. Both take
the scores of explanations that were computed before, for the tokens without [CLS] and [SEP].
The packages are imported when they are used, because the tests and checks do not need them.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.models.loading import LoadedModel

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Job:
    """What all packages are asked to evaluate: explanations of one prediction.

    tokens: without special tokens. scores: [explanations, tokens]. target: the explained class.
    """

    text: str
    tokens: tuple[str, ...]
    scores: Floats
    target: int


class Ferret:
    """ferret-xai: removes the first k tokens for several k, once for each explanation and metric.

    Tokens are masked, or with replacement="remove" cut out, which is the default of ferret; it then
    decodes the ids to text and tokenizes it again.
    """

    name = "ferret-xai"

    def __init__(self, loaded: LoadedModel, counts: Sequence[int], replacement: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measures = import_module("ferret.evaluators.faithfulness_measures")
            self.explanation = import_module("ferret.explainers.explanation").Explanation
        self.metrics = [
            kind(loaded.model, loaded.tokenizer)
            for kind in (
                measures.AOPC_Comprehensiveness_Evaluation,
                measures.AOPC_Sufficiency_Evaluation,
            )
        ]
        cut = replacement == "remove"
        removal = {"remove_tokens": cut, "based_on": "k", "thresholds": list(counts)}
        self.options: dict[str, Any] = {"removal_args": removal}

    def evaluate(self, job: Job) -> Floats:
        """Return comprehensiveness and sufficiency, [explanations, 2]."""
        rows = []
        for scores in job.scores:
            # ferret ignores tokens without a positive score; its option against that fails with
            # NumPy 2. Only the order counts, so ranks do.
            ranks = scores.argsort().argsort() + 1
            explanation = self.explanation(job.text, list(job.tokens), ranks, "", job.target)
            values = [
                metric.compute_evaluation(explanation, target=job.target, **self.options).score
                for metric in self.metrics
            ]
            rows.append(values)
        return np.asarray(rows, dtype=np.float64)


class Interpreto:
    """interpreto: masks tokens one after another, once for each explanation and metric.

    points: the number of steps of a curve. batch_size: the default of interpreto is 4.
    """

    name = "interpreto"

    def __init__(self, loaded: LoadedModel, points: int, batch_size: int) -> None:
        self.torch = import_module("torch")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.base = import_module("interpreto.attributions.base")
            metrics = import_module("interpreto.attributions.metrics")
        self.tokenizer = loaded.tokenizer
        self.metrics = [
            kind(loaded.model, loaded.tokenizer, batch_size=batch_size, n_perturbations=points)
            for kind in (metrics.Deletion, metrics.Insertion)
        ]

    def evaluate(self, job: Job) -> Floats:
        """Return the areas under the curves of deletion and insertion, [explanations, 2]."""
        return np.stack([_areas(curves) for curves in self.curves(job)], axis=1)

    def curves(self, job: Job) -> tuple[Floats, Floats]:
        """Return the probabilities of deletion and insertion, [explanations, points]."""
        outputs = [self._output(job, scores) for scores in job.scores]
        deletion, insertion = (
            np.asarray([curve[0].tolist() for curve in metric.evaluate(outputs)[1]])
            for metric in self.metrics
        )
        return deletion, insertion

    def _output(self, job: Job, scores: Floats) -> Any:
        """Return the scores as a result of interpreto."""
        return self.base.AttributionOutput(
            attributions=self.torch.tensor(scores[None], dtype=self.torch.float32),
            elements=list(job.tokens),
            model_inputs_to_explain=self.tokenizer(job.text, return_tensors="pt"),
            targets=self.torch.tensor([job.target]),
            model_task=self.base.ModelTask.CLASSIFICATION,
            granularity=self.base.Granularity.TOKEN,
        )


def _areas(curves: Floats) -> Floats:
    """Return the areas under curves [explanations, points], as interpreto computes them."""
    return np.asarray(np.trapezoid(curves, axis=1) / (curves.shape[1] - 1))


def text_returns(
    tokenizer: Any, ids: NDArray[np.int64], removed: NDArray[np.bool_], replacement: str
) -> bool:
    """Whether a changed text, [tokens], is the same after it was decoded and tokenized again.

    Otherwise, ferret evaluates another text: "[MASK]ing" has a new token "ing" for "##ing".
    """
    changed = np.where(removed, tokenizer.mask_token_id, ids)
    if replacement == "remove":
        changed = ids[~removed]
    again = tokenizer(tokenizer.decode(changed), add_special_tokens=False)["input_ids"]
    return bool(np.array_equal(changed, again))
