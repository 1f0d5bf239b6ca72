"""How much the residual weight matters: 0.1 to 0.9, where the paper has 0.5 throughout."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnflow.paper.experiments.agreement import RESIDUALS, describe, natural_texts, stages, sweep
from attnflow.paper.experiments.correlating import select
from attnflow.paper.experiments.layout import layer_names, number, provenance
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result

NAME = "residual"
USUAL = "0.5"  # the paper's residual weight
CLEAR = 0.005  # a smaller difference is none in the tables
KINDS = {"blank_out": "blank-out", "l2": "input gradients (l2)"}

MEANING = (
    "The paper mixes attention and the residual connection half and half. Here the residual "
    "weight r of A = (1 - r) W + r I goes from 0.1 to 0.9; the numbers are mean correlations. "
    "Raw attention has no residual connection, and at layer 1 the weight only moves [CLS] "
    "itself among the ranks."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Correlate rollout and flow with blank-out and gradients, for each residual weight."""
    texts, sentences = natural_texts(options)
    begin = stages(progress, 1 + len(RESIDUALS))
    importance = texts.importance(begin())
    numbers = sweep(texts, {kind: select(importance, kind) for kind in KINDS}, begin)
    return Result(NAME, numbers, describe(texts, sentences))


def render(result: Result) -> Report:
    """A table for each method and importance, and where it is best."""
    parts: list[str | Table] = [
        provenance(result),
        MEANING,
    ]
    for kind, title in KINDS.items():
        for method in ("rollout", "flow"):
            found = {weight: summed[method] for weight, summed in result.numbers[kind].items()}
            parts.append(_table(f"{method.capitalize()} and {title}", found))
        parts.append(_best(title, result.numbers[kind]))
    return Report("Beyond the paper: the residual weight", tuple(parts))


def _table(caption: str, found: Mapping[str, Any]) -> Table:
    rows = tuple(
        (f"r = {weight}", *(number(value) for value in summed["mean"]))
        for weight, summed in found.items()
    )
    return Table(caption, ("", *layer_names(len(rows[0]) - 1)), rows)


def _best(title: str, found: Mapping[str, Any]) -> str:
    """Where each method is best, and what the paper's weight gives at the last layer."""
    sentences = []
    for method in ("rollout", "flow"):
        means = {
            (weight, layer): mean
            for weight, summed in found.items()
            for layer, mean in enumerate(summed[method]["mean"], start=1)
            if mean is not None
        }
        weight, layer = max(means, key=lambda place: means[place])
        last = max(layer for _, layer in means)
        usual, at_last = means[USUAL, last], _highest(found, method, last)
        gain = means[at_last, last] - usual
        told = f"the paper's r = {USUAL} is as good as any ({usual:.2f})"
        if gain >= CLEAR:
            best = means[at_last, last]
            told = f"r = {at_last} is best ({best:.2f}, against {usual:.2f} for r = {USUAL})"
        sentences.append(
            f"{method.capitalize()} agrees best with {title} at r = {weight} and layer {layer} "
            f"({means[weight, layer]:.2f}); at the last layer {told}."
        )
    return " ".join(sentences)


def _highest(found: Mapping[str, Any], method: str, layer: int) -> str:
    """The residual weight that is best at a layer."""
    means: Sequence[tuple[str, float]] = [
        (weight, summed[method]["mean"][layer - 1]) for weight, summed in found.items()
    ]
    return max(means, key=lambda pair: pair[1])[0]
