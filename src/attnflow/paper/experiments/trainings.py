"""Tables 1 and 2 for several trained models: how much the results depend on the weights."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnflow.errors import InputError
from attnflow.paper.experiments.agreement import MODEL, describe_settings, encode_examples
from attnflow.paper.experiments.agreement_tables import (
    PAPER_TABLE1,
    PAPER_TABLE2,
    claims_table,
    means_by_method,
    printed_means,
)
from attnflow.paper.experiments.correlations import (
    IMPORTANCE_TITLES,
    correlate,
    select,
    summarize_correlations,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options, Result
from attnflow.paper.experiments.measurements import accuracy, open_model, split_progress
from attnflow.paper.experiments.report import (
    Report,
    Table,
    format_mean,
    layer_names,
    provenance,
)
from attnflow.paper.experiments.sentences import AgreementSets, read_agreement
from attnflow.progress import Progress

PAPER_TABLES = {"blank_out": PAPER_TABLE1, "l2": PAPER_TABLE2}

METHOD = (
    "The measurements of tables 1 and 2 on the same sentences, for models of the same size trained "
    "on the same data. Models named plain learned only the number of the verb, as in the paper "
    "(`attnflow train verb-number --no-auxiliary-tasks`). Models named helped also learned "
    "auxiliary tasks, predicting masked words and tags, as the bundled model did. The number in "
    "the name is the seed. All tokens count, [CLS] included."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Correlate the scores of [CLS] for each model in `options.model`, separated by commas."""
    models = [part.strip() for part in (options.model or MODEL).split(",") if part.strip()]
    names = [Path(model).name for model in models]
    if not models or len(set(names)) < len(names):
        raise InputError(
            f"the models are {options.model!r}",
            expected="names or folders, separated by commas, whose last parts differ",
            fix="Use for example --model runs/plain-0,runs/plain-1.",
        )
    sets = read_agreement(options)
    stages = split_progress(progress, 2 * len(models))
    numbers: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for name, model in zip(names, models, strict=True):
        numbers[name], settings = _measure(replace(options, model=model), sets, stages)
    return Result("trainings", {"models": numbers}, {**settings, "model": ", ".join(names)})


def _measure(
    options: Options, sets: AgreementSets, stages: Iterator[Progress | None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the accuracy and the correlations of one model, and the settings."""
    texts = encode_examples(open_model(options, MODEL), sets.natural, options)
    attention, importance = texts.attention(progress=next(stages)), texts.importance(next(stages))
    numbers: dict[str, Any] = {"accuracy": accuracy(importance)}
    for kind in IMPORTANCE_TITLES:
        numbers[kind] = summarize_correlations(correlate(attention, select(importance, kind)))
    return numbers, describe_settings(texts, sets)


def render(result: Result) -> Report:
    """Render the correlations of each model, and which of the paper's observations hold."""
    models = result.numbers["models"]
    parts: list[str | Table] = [provenance(result), METHOD]
    for kind, title in IMPORTANCE_TITLES.items():
        parts.append(_correlation_table(f"Correlation with {title}", kind, models))
        printed = printed_means(PAPER_TABLES[kind])
        means = {name: means_by_method(numbers[kind]) for name, numbers in models.items()}
        if all(len(columns["raw"]) == len(printed["raw"]) for columns in means.values()):
            claims = claims_table({"paper": printed, **means})
            parts.append(replace(claims, caption=f"{claims.caption}: {title}"))
    return Report("Beyond the paper: other trainings", tuple(parts))


def _correlation_table(caption: str, kind: str, models: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, numbers in models.items():
        for method in PAPER_METHODS:
            summary = numbers[kind][method]
            cells = (format_mean(summary, i) for i in range(len(summary["mean"])))
            rows.append((f"{name}: {method}", f"{numbers['accuracy']:.3f}", *cells))
    n_layers = max(len(row) for row in rows) - 2
    return Table(caption, ("model: method", "accuracy", *layer_names(n_layers)), tuple(rows))
