"""How often the verb-number models are right on sentences that were held out (section 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnflow.evaluation import bootstrap_intervals
from attnflow.models.builtin.folders import BUNDLED, NUMBERS
from attnflow.models.inputs import EncodedText
from attnflow.paper.data.readers import AgreementExample
from attnflow.paper.experiments.agreement import describe, encode, stages
from attnflow.paper.experiments.keeping import Measured
from attnflow.paper.experiments.layout import NONE, number, provenance
from attnflow.paper.experiments.measuring import Texts, open_model
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result
from attnflow.paper.experiments.sentences import read_agreement

NAME = "accuracy"
PAPER = 0.96  # section 2, for the paper's model and its test set

MEANING = (
    f"The paper says {PAPER} of its own model. The share of sentences whose verb's number the "
    "model predicts, with 95% bootstrap intervals, and the shares of those that are singular and "
    "plural: where nearly all subjects have one number, to guess that number would often be right. "
    "The last columns say how many sentences have a word that the model does not know, and count "
    "each sentence once, since short ones recur in any text."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Count for each set of sentences, and for both bundled models if none is named."""
    sentences = read_agreement(options)
    sets: dict[str, Sequence[AgreementExample]] = {"natural": sentences.natural}
    for k, group in sentences.by_attractors.items():
        if group:
            sets[f"{k} attractor{'' if k == 1 else 's'}"] = group
    models = [options.model] if options.model else list(BUNDLED)
    begin = stages(progress, len(models) * len(sets))
    numbers: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for model in models:
        chosen = replace(options, model=model)
        loaded = open_model(chosen, model)
        found = {}
        for title, examples in sets.items():
            texts = encode(loaded, examples, chosen)
            found[title] = count(texts, begin())
            settings = settings or describe(texts, sentences)
        numbers[loaded.name] = found
    return Result(NAME, {"models": numbers}, {**settings, "model": ", ".join(numbers)})


def count(texts: Texts, progress: Progress | None) -> dict[str, Any]:
    """How many texts there are and how many are right, also each once and by number."""

    def predict(chunk: Sequence[EncodedText], labels: Sequence[int]) -> list[Measured]:
        from attnflow.importance.batch import predict_classes

        predicted = predict_classes(texts.loaded, chunk).argmax(-1)
        return [
            {"right": np.asarray([float(p == y)])} for p, y in zip(predicted, labels, strict=True)
        ]

    measured = texts.measure(predict, {"accuracy": "predicted class"}, progress)
    right = np.asarray([one["right"][0] for one in measured])
    interval = bootstrap_intervals(right, seed=texts.options.seed)
    once = texts.first_of_each()
    unknown = texts.loaded.tokenizer.unk_token
    return {
        "examples": len(right),
        "accuracy": round(float(right.mean()), 4),
        "low": round(float(interval.low), 4),
        "high": round(float(interval.high), 4),
        "different": len(once),
        "accuracy_once": round(float(right[once].mean()), 4),
        "with_unknown": sum(unknown in one.tokens for one in texts.encoded),
        "by_number": _by_number(right, np.asarray(texts.labels)),
    }


def _by_number(right: Any, labels: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for i, title in enumerate(NUMBERS):
        chosen = right[labels == i]
        share = round(float(chosen.mean()), 4) if len(chosen) else None
        found[title] = {"examples": len(chosen), "accuracy": share}
    return found


def render(result: Result) -> Report:
    """A table for each model."""
    tables = (_table(title, sets) for title, sets in result.numbers["models"].items())
    told = result.settings.get("groups")
    groups = (f"The natural ones are a random sample of all. {told}",) if told else ()
    return Report("Accuracy of the models", (provenance(result), MEANING, *groups, *tables))


def _table(model: str, sets: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            title,
            f"{found['examples']:,}",
            f"{found['accuracy']:.3f} [{found['low']:.3f}, {found['high']:.3f}]",
            *(_share(found["by_number"][name]) for name in NUMBERS),
            f"{found['with_unknown']:,}",
            f"{found['accuracy_once']:.3f} of {found['different']:,}",
        )
        for title, found in sets.items()
    )
    header = ("", "examples", "accuracy", *NUMBERS, "unknown words", "each once")
    return Table(f"Accuracy of {model}", header, rows)


def _share(found: Mapping[str, Any]) -> str:
    if found["accuracy"] is None:
        return NONE
    return f"{number(found['accuracy'], 3)} of {found['examples']:,}"
