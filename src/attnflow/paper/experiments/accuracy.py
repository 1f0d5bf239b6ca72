"""Accuracy of the verb-number models on held-out sentences (section 2 of the paper)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.evaluation import bootstrap_intervals
from attnflow.models.builtin import NUMBERS, VERB_NUMBER_MODELS
from attnflow.models.inputs import EncodedText
from attnflow.paper.data.data_sets import AgreementExample, name_attractors
from attnflow.paper.experiments.agreement import describe_settings, encode_examples
from attnflow.paper.experiments.experiment import Options, Result
from attnflow.paper.experiments.measurements import (
    LabeledTexts,
    Measurement,
    open_model,
    split_progress,
)
from attnflow.paper.experiments.report import (
    NO_VALUE,
    Report,
    Table,
    format_number,
    provenance,
)
from attnflow.paper.experiments.sentences import read_agreement
from attnflow.progress import Progress

PAPER_ACCURACY = 0.96  # section 2, for the paper's model and test set

METHOD = (
    f"The paper reports {PAPER_ACCURACY} for its own model. Accuracy is the share of sentences for "
    "which the model predicts the number of the verb, with 95% bootstrap intervals. It is also "
    "shown for singular and plural separately, because a model that always predicts the more "
    "frequent number can have a high accuracy. The last columns count sentences with a word that "
    "is not in the vocabulary, and give the accuracy over unique sentences, because short ones are "
    "often repeated."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Compute the accuracy on each set, for both bundled models if none is given."""
    sets = read_agreement(options)
    examples: dict[str, tuple[AgreementExample, ...]] = {"natural": sets.natural}
    for k, group in sets.by_attractors.items():
        if group:
            examples[name_attractors(k)] = group
    models = [options.model] if options.model else list(VERB_NUMBER_MODELS)
    stages = split_progress(progress, len(models) * len(examples))
    numbers: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for model in models:
        model_options = replace(options, model=model)
        loaded = open_model(model_options, model)
        numbers[loaded.name] = {}
        for name, group in examples.items():
            texts = encode_examples(loaded, group, model_options)
            numbers[loaded.name][name] = measure_accuracy(texts, next(stages))
            settings = settings or describe_settings(texts, sets)
    return Result("accuracy", {"models": numbers}, {**settings, "model": ", ".join(numbers)})


def measure_accuracy(texts: LabeledTexts, progress: Progress | None) -> dict[str, Any]:
    """Return accuracy and counts: of all texts, of unique texts, and by number of the verb."""

    def predict(chunk: Sequence[EncodedText], labels: Sequence[int]) -> list[Measurement]:
        from attnflow.importance.target import predict_classes

        predicted = predict_classes(texts.loaded, chunk).argmax(-1)
        return [
            {"correct": np.asarray([float(p == label)])}
            for p, label in zip(predicted, labels, strict=True)
        ]

    measured = texts.measure(predict, {"accuracy": "predicted class"}, progress)
    correct = np.asarray([text["correct"][0] for text in measured])
    interval = bootstrap_intervals(correct, seed=texts.options.seed)
    unique = texts.unique()
    unknown = texts.loaded.tokenizer.unk_token
    return {
        "examples": len(correct),
        "accuracy": round(float(correct.mean()), 4),
        "low": round(float(interval.low), 4),
        "high": round(float(interval.high), 4),
        "unique": len(unique),
        "accuracy_unique": round(float(correct[unique].mean()), 4),
        "unknown_words": sum(unknown in text.tokens for text in texts.encoded),
        "by_number": _by_number(correct, np.asarray(texts.labels)),
    }


def _by_number(correct: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for i, number in enumerate(NUMBERS):
        chosen = correct[labels == i]
        share = round(float(chosen.mean()), 4) if len(chosen) else None
        groups[number] = {"examples": len(chosen), "accuracy": share}
    return groups


def render(result: Result) -> Report:
    """Render a table for each model."""
    tables = (_table(name, sets) for name, sets in result.numbers["models"].items())
    source = result.settings.get("attractor_source")
    notes = (f'"natural" is a random sample of all sentences. {source}',) if source else ()
    return Report("Accuracy of the models", (provenance(result), METHOD, *notes, *tables))


def _table(model: str, sets: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            name,
            f"{numbers['examples']:,}",
            f"{numbers['accuracy']:.3f} [{numbers['low']:.3f}, {numbers['high']:.3f}]",
            *(_format_share(numbers["by_number"][number]) for number in NUMBERS),
            f"{numbers['unknown_words']:,}",
            f"{numbers['accuracy_unique']:.3f} of {numbers['unique']:,}",
        )
        for name, numbers in sets.items()
    )
    header = ("", "examples", "accuracy", *NUMBERS, "unknown words", "unique sentences")
    return Table(f"Accuracy of {model}", header, rows)


def _format_share(group: Mapping[str, Any]) -> str:
    if group["accuracy"] is None:
        return NO_VALUE
    return f"{format_number(group['accuracy'], 3)} of {group['examples']:,}"
