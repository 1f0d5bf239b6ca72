"""Decoders: the causal twin of the verb-number model, and receptive fields (section 5)."""

from typing import Any

import numpy as np

from attnflow.attribution import Normalize
from attnflow.paper.experiments.agreement import describe, natural_texts, stages
from attnflow.paper.experiments.correlating import compare, correlate, first_share, select, sum_up
from attnflow.paper.experiments.layout import (
    comparison_table,
    first_table,
    provenance,
    variants_table,
)
from attnflow.paper.experiments.measuring import METHODS, Attending
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result

NAME = "decoders"
MODEL = "verb-number-causal"
KINDS = {"blank_out": "blank-out", "l2": "input gradients (l2)"}
WAYS: dict[Normalize, str] = {"none": "plain", "receptive_field": "normalized"}

MEANING = (
    "In a decoder, earlier tokens are seen by more positions, and collect weight for no reason "
    "of content; the paper says to normalize by the receptive field first, and leaves open "
    "how. Here each score is divided by the score that the same method gives when attention is "
    "spread evenly over what each position sees, and rows are scaled to 1. The position is the "
    "last token, which the model classifies. For raw attention this divides a row by a "
    "constant, so that its ranks stay."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Correlate the last position of a causal model, with and without normalizing."""
    texts, sentences = natural_texts(options, MODEL)
    begin = stages(progress, 1 + len(WAYS))
    importance = texts.importance(begin())
    ways = {
        title: texts.attention(Attending(normalize=how), begin()) for how, title in WAYS.items()
    }
    numbers: dict[str, Any] = {
        "accuracy": round(float(np.mean([one["right"][0] for one in importance])), 4),
        "first": {title: first_share(found) for title, found in ways.items()},
    }
    for kind in KINDS:
        rows = select(importance, kind)
        found = {title: correlate(attention, rows) for title, attention in ways.items()}
        without = {
            f"{title}, without [CLS]": correlate(attention, rows, leave_out=texts.special)
            for title, attention in ways.items()
        }
        numbers[kind] = {title: sum_up(made) for title, made in {**found, **without}.items()}
        rhos = {f"{way} {m}": made[m] for way, made in found.items() for m in METHODS}
        pairs = [(f"normalized {m}", f"plain {m}") for m in ("rollout", "flow")]
        numbers[f"{kind} comparisons"] = compare(rhos, pairs, options.seed)
    return Result(NAME, numbers, describe(texts, sentences, MODEL))


def render(result: Result) -> Report:
    """Correlations with and without normalizing, and the weight of the first token."""
    numbers = result.numbers
    parts: list[str | Table] = [
        f"{provenance(result)} The model is right on {numbers['accuracy']:.1%} of them.",
        MEANING,
    ]
    for kind, title in KINDS.items():
        parts.append(variants_table(f"Correlation with {title}", numbers[kind]))
        parts.append(
            comparison_table(
                f"Normalized less plain, {title} (Wilcoxon, Holm)", numbers[f"{kind} comparisons"]
            )
        )
        parts.append(_what_it_shows(numbers, kind, title))
    parts.append(first_table(numbers["first"]))
    return Report("Beyond the paper: decoders", tuple(parts))


def _what_it_shows(numbers: Any, kind: str, title: str) -> str:
    """How many layers get better and worse by normalizing."""
    sentences = []
    for one in numbers[f"{kind} comparisons"]:
        clear = [
            d
            for d, p in zip(one["difference"], one["p"], strict=True)
            if p is not None and p < 0.05
        ]
        method = one["first"].removeprefix("normalized ")
        better, worse = sum(d > 0 for d in clear), sum(d < 0 for d in clear)
        sentences.append(
            f"Against {title}, normalizing makes {method} clearly better at {better} of "
            f"{len(one['p'])} layers and clearly worse at {worse}; at the last layer it changes "
            f"rho by {one['difference'][-1]:+.2f}."
        )
    return " ".join(sentences)
