"""Tables 1 and 2: rank correlation of the scores of [CLS] with blank-out and input gradients.

`run_trainings` repeats them for several trained models: how much they depend on the weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from attnflow.paper.experiments.agreement import (
    MODEL,
    WITHOUT_CLS,
    correlate_agreement,
    describe_settings,
    encode_examples,
)
from attnflow.paper.experiments.correlations import (
    IMPORTANCE_TITLES,
    correlate,
    select,
    summarize_correlations,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options, Result
from attnflow.paper.experiments.measurements import (
    accuracy,
    list_models,
    open_model,
    split_progress,
)
from attnflow.paper.experiments.report import (
    Report,
    Table,
    comparison_table,
    format_mean,
    format_number,
    interval_table,
    layer_names,
    paper_table,
    provenance,
    table_by_layer,
    variants_table,
)
from attnflow.paper.experiments.sentences import AgreementSets, read_agreement
from attnflow.progress import Progress

# As printed in the paper, for 2,000 sentences of its test set and its own model.
PAPER_TABLE1 = {
    "raw": ("0.69±0.27", "0.10±0.43", "-0.11±0.49", "-0.09±0.52", "0.20±0.45", "0.29±0.39"),
    "rollout": ("0.32±0.26", "0.38±0.27", "0.51±0.26", "0.62±0.26", "0.70±0.25", "0.71±0.24"),
    "flow": ("0.32±0.26", "0.44±0.29", "0.70±0.25", "0.70±0.22", "0.71±0.22", "0.70±0.22"),
}
PAPER_TABLE2 = {
    "raw": ("0.53±0.33", "0.16±0.38", "-0.06±0.42", "0.00±0.47", "0.24±0.40", "0.46±0.35"),
    "rollout": ("0.22±0.31", "0.27±0.32", "0.39±0.32", "0.47±0.32", "0.53±0.32", "0.54±0.31"),
    "flow": ("0.22±0.31", "0.31±0.34", "0.54±0.32", "0.61±0.28", "0.60±0.28", "0.61±0.28"),
}

TITLE1 = "Table 1: correlation with blank-out"
TITLE2 = "Table 2: correlation with input gradients"
PAPER_TABLES = {"blank_out": PAPER_TABLE1, "l2": PAPER_TABLE2}

METHOD1 = (
    "Spearman's rho between the scores of [CLS] for all input tokens and blank-out importance: "
    "each token in turn is replaced by [UNK], and its importance is the absolute change in the "
    "probability of the predicted class. With two classes, the change is the same for the true "
    "class. Cells are mean ± standard deviation over examples; ties get average ranks. Examples "
    "with an undefined rho are excluded: fewer than three tokens, or all scores tied."
)
METHOD2 = (
    "Spearman's rho between the scores of [CLS] for all input tokens and the L2 norm of the "
    "gradient of the predicted class's logit with respect to each token's embedding. Cells are "
    "mean ± standard deviation over examples; ties get average ranks. Examples with an undefined "
    "rho are excluded."
)
SUM_NOTE = (
    "The authors' released scripts sum the gradient over the embedding and take the absolute "
    "value. In models that apply LayerNorm before each block, such as GPT-2 and this one, that sum "
    "is 0 for every text: adding a constant to all components of an embedding does not change the "
    "output of LayerNorm, so the gradient has no component in this direction, and only rounding "
    "errors remain. The table therefore uses the norm. The sum is listed as a variant, as is "
    "gradient times input."
)
TRAININGS_METHOD = (
    "The measurements of tables 1 and 2 for models that differ in the seed of their training only. "
    "Cells are the median over models, with the lowest and the highest. All tokens count, [CLS] "
    "included."
)

# Further kinds of gradients: their names in the table, and in the measurements.
GRADIENT_VARIANTS = {
    "gradient times input": "times_input",
    "sum (rounding errors)": "sum",
    "l2, gradient of the probability": "l2 of probability",
    "l2, gradient of the true class": "l2 of true class",
}
TOLERANCE = 0.02  # smaller differences of correlations do not count in CLAIMS


def run_table1(options: Options, progress: Progress | None) -> Result:
    """Correlate the three methods with blank-out on held-out sentences."""
    variants = {"signed change": partial(select, name="blank_out", sign="signed")}
    numbers, settings = correlate_agreement("blank_out", variants, options, progress)
    return Result("table1", numbers, settings)


def render_table1(result: Result) -> Report:
    """Render table 1 next to the paper's, with details and variants."""
    return _render(result, TITLE1, METHOD1, PAPER_TABLE1)


def run_table2(options: Options, progress: Progress | None) -> Result:
    """Correlate the three methods with input gradients on held-out sentences."""
    variants = {title: partial(select, name=name) for title, name in GRADIENT_VARIANTS.items()}
    numbers, settings = correlate_agreement("l2", variants, options, progress)
    return Result("table2", numbers, settings)


def render_table2(result: Result) -> Report:
    """Render table 2 next to the paper's, with details and variants."""
    check = (
        f"The sum is at most {result.numbers['sum_over_l2']:.1g} times the norm here; for a vector "
        "in a random direction it would be about as large as the norm."
    )
    return _render(result, TITLE2, METHOD2, PAPER_TABLE2, note=f"{SUM_NOTE} {check}")


def run_trainings(options: Options, progress: Progress | None) -> Result:
    """Correlate the scores of [CLS] for each model in `options.model`, separated by commas."""
    models = list_models(options, MODEL)
    sets = read_agreement(options)
    stages = split_progress(progress, 2 * len(models))
    numbers: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for name, model in models.items():
        numbers[name], settings = _measure_training(replace(options, model=model), sets, stages)
    return Result("trainings", {"models": numbers}, {**settings, "model": ", ".join(models)})


def _measure_training(
    options: Options, sets: AgreementSets, stages: Iterator[Progress | None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the accuracy and the correlations of one model, and the settings."""
    texts = encode_examples(open_model(options, MODEL), sets.natural, options)
    attention, importance = texts.attention(progress=next(stages)), texts.importance(next(stages))
    numbers: dict[str, Any] = {"accuracy": accuracy(importance)}
    for kind in IMPORTANCE_TITLES:
        numbers[kind] = summarize_correlations(correlate(attention, select(importance, kind)))
    return numbers, describe_settings(texts, sets)


def render_trainings(result: Result) -> Report:
    """Render medians over models, and for how many of them the paper's observations hold."""
    models = result.numbers["models"]
    rows = tuple((name, f"{numbers['accuracy']:.3f}") for name, numbers in models.items())
    accuracies = Table("Accuracy on these sentences", ("model", "accuracy"), rows)
    parts: list[str | Table] = [provenance(result), TRAININGS_METHOD, accuracies]
    for kind, title in IMPORTANCE_TITLES.items():
        means = {name: means_by_method(numbers[kind]) for name, numbers in models.items()}
        printed = printed_means(PAPER_TABLES[kind])
        has_paper_layers = all(len(m["raw"]) == len(printed["raw"]) for m in means.values())
        paper = printed if has_paper_layers else None
        parts.append(_median_table(f"Correlation with {title}", means, paper))
        if has_paper_layers:
            claims = claims_table({"paper": printed, "median": median_means(means), **means})
            parts.append(replace(claims, caption=f"{claims.caption}: {title}"))
    return Report("Beyond the paper: other trainings", tuple(parts))


def median_means(means: Mapping[str, "Means"]) -> dict[str, list[float]]:
    """Return the median over models by method and layer."""
    return {
        method: [
            median(column) for column in zip(*(m[method] for m in means.values()), strict=True)
        ]
        for method in PAPER_METHODS
    }


def _median_table(caption: str, means: Mapping[str, "Means"], paper: "Means | None") -> Table:
    """Return the median over models by method and layer, with the range, next to the paper's."""
    rows: list[tuple[str, ...]] = []
    for method in PAPER_METHODS:
        columns = list(zip(*(model[method] for model in means.values()), strict=True))
        if paper is not None:
            rows.append((f"{method}: paper", *(format_number(value) for value in paper[method])))
        cells = (
            f"{format_number(median(column))} [{format_number(min(column))}, "
            f"{format_number(max(column))}]"
            for column in columns
        )
        rows.append((f"{method}: median of {len(means)}", *cells))
    return table_by_layer(caption, rows)


def _render(
    result: Result, title: str, method: str, paper: Mapping[str, Sequence[str]], *, note: str = ""
) -> Report:
    """Render a table: the paper's rows and ours, claims, intervals, tests, groups and variants."""
    numbers, methods = result.numbers, result.numbers["methods"]
    return Report(
        title,
        (
            f"{provenance(result)} Accuracy: {numbers['accuracy']:.1%}.",
            f"{method} Excluded here: {methods['raw']['undefined'][0]}.",
            *_main_tables(numbers, title, paper),
            *([note] if note else []),
            interval_table("Means with 95% bootstrap intervals", methods),
            comparison_table(
                "Differences between methods; Wilcoxon signed-rank test over examples, p values "
                "corrected for all tests in this table (Holm)",
                numbers["comparisons"],
            ),
            *_attractor_parts(result),
            group_table("By number of tokens, [CLS] included", "tokens", numbers["lengths"]),
            variants_table("Variants", numbers["variants"]),
            cls_table(numbers["cls_extremes"]),
        ),
    )


def _main_tables(
    numbers: Mapping[str, Any], title: str, paper: Mapping[str, Sequence[str]]
) -> tuple[Table, ...]:
    """Return our table next to the paper's, and which claims hold in both.

    A model with another number of layers cannot be compared with the paper's table.
    """
    methods = numbers["methods"]
    if len(methods["raw"]["mean"]) != len(paper["raw"]):
        return (variants_table(title, {"ours": methods}),)
    compared = {"ours": methods, f"ours {WITHOUT_CLS}": numbers["variants"][WITHOUT_CLS]}
    means = {name: means_by_method(summaries) for name, summaries in compared.items()}
    claims = claims_table({"paper": printed_means(paper), **means})
    return paper_table(title, paper, {"ours": methods}), claims


def _attractor_parts(result: Result) -> tuple[str | Table, ...]:
    """Return the table by attractors; nothing if the data has no number of attractors."""
    groups = result.numbers["attractors"]
    if not groups:
        return ()
    table = group_table("By number of attractors", "attractors", groups)
    source = result.settings.get("attractor_source")
    if not source:
        return (table,)
    return table, f"These sentences are separate samples, not part of the main table. {source}"


def group_table(caption: str, what: str, groups: Mapping[str, Any]) -> Table:
    """Return the correlations of groups of examples, such as those with 2 attractors."""
    rows: list[tuple[str, ...]] = []
    with_accuracy = all("accuracy" in group for group in groups.values())
    for name, group in groups.items():
        counts = [f"{group['examples']:,}"]
        counts += [f"{group['accuracy']:.3f}"] if with_accuracy else []
        for method in PAPER_METHODS:
            summary = group["methods"][method]
            cells = (format_mean(summary, i) for i in range(len(summary["mean"])))
            rows.append((f"{name}: {method}", *counts, *cells))
    columns = ["examples", *(["accuracy"] if with_accuracy else [])]
    n_layers = len(rows[0]) - 1 - len(columns)
    return Table(caption, (f"{what}: method", *columns, *layer_names(n_layers)), tuple(rows))


def cls_table(shares: Mapping[str, Any]) -> Table:
    """Return how often [CLS] has the highest or lowest score of all tokens."""
    rows: list[tuple[str, ...]] = []
    for end, found in shares.items():
        n_layers = len(found["raw"])
        rows.append((f"{end}: importance", *([f"{found['importance']:.0%}"] * n_layers)))
        for method in PAPER_METHODS:
            rows.append((f"{end}: {method}", *(f"{share:.0%}" for share in found[method])))
    return table_by_layer(
        "Share of texts in which [CLS] itself has the highest or lowest score of all tokens", rows
    )


# The claims that the paper makes about its tables, checked on mean correlations by method.

Means = Mapping[str, Sequence[float]]


def means_by_method(summaries: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the means by layer, from summaries by method."""
    return {method: summaries[method]["mean"] for method in PAPER_METHODS}


def printed_means(paper: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """Return the means that the paper prints, from cells such as "0.69±0.27"."""
    return {
        method: [float(cell.split("±")[0]) for cell in cells] for method, cells in paper.items()
    }


def claims_table(means: Mapping[str, Means]) -> Table:
    """Return which of CLAIMS hold, with a column for each table of means."""
    rows = tuple(
        (claim, *("yes" if holds(columns) else "no" for columns in means.values()))
        for claim, holds in CLAIMS.items()
    )
    caption = f"Which of the paper's observations hold (within {TOLERANCE})"
    return Table(caption, ("", *means), rows)


def _raw_highest_first(means: Means) -> bool:
    return max(means["raw"][1:]) < means["raw"][0] - TOLERANCE


def _rollout_increases(means: Means) -> bool:
    steps = zip(means["rollout"], means["rollout"][1:], strict=False)
    return all(above >= below - TOLERANCE for below, above in steps)


def _flow_early(means: Means) -> bool:
    return means["flow"][2] >= max(means["flow"]) - 0.1


def _flow_highest_last(means: Means) -> bool:
    return means["flow"][-1] >= max(means["flow"]) - TOLERANCE


def _both_above_raw(means: Means) -> bool:
    return min(means["rollout"][-1], means["flow"][-1]) > means["raw"][-1] + TOLERANCE


def _flow_not_below_rollout(means: Means) -> bool:
    pairs = zip(means["flow"][1:4], means["rollout"][1:4], strict=True)
    return all(flow >= rollout - TOLERANCE for flow, rollout in pairs)


def _flow_close_to_rollout(means: Means) -> bool:
    return means["flow"][-1] >= means["rollout"][-1] - 0.1


CLAIMS = {
    "Raw attention is highest at layer 1": _raw_highest_first,
    "Rollout increases from layer to layer": _rollout_increases,
    "Flow at layer 3 is within 0.1 of its maximum": _flow_early,
    "Flow at the last layer is at its maximum": _flow_highest_last,
    "Rollout and flow are higher than raw attention at the last layer": _both_above_raw,
    "Flow is at least as high as rollout at layers 2 to 4": _flow_not_below_rollout,
    "Flow is at most 0.1 below rollout at the last layer": _flow_close_to_rollout,
}
