"""Tables 1 and 2 for several trainings of the verb-number model: what the weights decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from attnflow.errors import InputError
from attnflow.paper.experiments import table1, table2
from attnflow.paper.experiments.agreement import MODEL, describe, encode, stages
from attnflow.paper.experiments.agreement_report import claims_table
from attnflow.paper.experiments.correlating import correlate, select, sum_up
from attnflow.paper.experiments.layout import layer_names, mean_and_sd, name, provenance
from attnflow.paper.experiments.measuring import METHODS, open_model
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result
from attnflow.paper.experiments.sentences import Agreement, read_agreement

NAME = "trainings"
KINDS: dict[str, tuple[str, ModuleType]] = {
    "blank_out": ("blank-out", table1),
    "l2": ("input gradients (l2)", table2),
}

MEANING = (
    "The same measurement as in tables 1 and 2, on the same sentences, for several models of the "
    "same size that were trained on the same data. Those named plain learnt nothing but the number "
    "of the verb, as in the paper (`attnflow train verb-number --no-helping-tasks`); those named "
    "helped also learnt to guess blanked words and tags, as the model that comes with attnflow "
    "did. The number after the name is the seed. All tokens count, [CLS] too."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Correlate the scores of [CLS] for each model that `options.model` names, with commas."""
    models = [part.strip() for part in (options.model or MODEL).split(",") if part.strip()]
    titles = [Path(model).name for model in models]
    if not models or len(set(titles)) < len(titles):
        raise InputError(
            f"the models are {options.model!r}",
            expected="one or more names or folders with commas between them, whose last parts "
            "differ",
            fix="Name them like that.",
        )
    sentences = read_agreement(options)
    begin = stages(progress, 2 * len(models))
    found: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for title, model in zip(titles, models, strict=True):
        found[title], settings = _measure(replace(options, model=model), sentences, begin)
    return Result(NAME, {"models": found}, {**settings, "model": ", ".join(titles)})


def _measure(
    options: Options, sentences: Agreement, begin: Callable[[], Progress | None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Accuracy and correlations of one model, and the settings."""
    texts = encode(open_model(options, MODEL), sentences.natural, options)
    attention, importance = texts.attention(progress=begin()), texts.importance(begin())
    numbers: dict[str, Any] = {
        "accuracy": round(float(np.mean([one["right"][0] for one in importance])), 4)
    }
    for kind in KINDS:
        numbers[kind] = sum_up(correlate(attention, select(importance, kind)))
    return numbers, describe(texts, sentences)


def render(result: Result) -> Report:
    """For blank-out and for gradients: the correlations of each model, and what they show."""
    models = result.numbers["models"]
    parts: list[str | Table] = [provenance(result), MEANING]
    for kind, (what, table) in KINDS.items():
        parts.append(_correlations(f"Correlation with {what}", kind, models))
        printed = {m: [float(cell.split("±")[0]) for cell in table.PAPER[m]] for m in METHODS}
        shapes = {
            title: {m: found[kind][m]["mean"] for m in METHODS} for title, found in models.items()
        }
        if all(len(means["raw"]) == len(printed["raw"]) for means in shapes.values()):
            claims = claims_table({"paper": printed, **shapes})
            parts.append(replace(claims, caption=f"{claims.caption}, for {what}"))
    return Report("Beyond the paper: other trainings", tuple(parts))


def _correlations(caption: str, kind: str, models: Mapping[str, Any]) -> Table:
    rows: list[Sequence[str]] = []
    for title, found in models.items():
        for method in METHODS:
            summed = found[kind][method]
            cells = [mean_and_sd(summed, i) for i in range(len(summed["mean"]))]
            rows.append((f"{title}: {name(method)}", f"{found['accuracy']:.3f}", *cells))
    n = max(len(row) for row in rows) - 2
    return Table(
        caption, ("model: method", "accuracy", *layer_names(n)), tuple(tuple(row) for row in rows)
    )
