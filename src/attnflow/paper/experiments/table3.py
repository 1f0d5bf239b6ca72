"""Table 3: sentiment classifiers on SST-2, rank correlation with input gradients."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal

from attnflow.edges.registry import EDGES
from attnflow.errors import FileError, SelectionError
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import resolve_target
from attnflow.paper.data.data_sets import SentimentExample
from attnflow.paper.experiments.agreement import describe_lengths
from attnflow.paper.experiments.correlations import (
    Correlations,
    correlate,
    first_token_share,
    select,
    summarize_correlations,
    summarize_with_tests,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options, Result
from attnflow.paper.experiments.measurements import (
    LabeledTexts,
    Measurement,
    ScoreSettings,
    accuracy,
    list_models,
    open_model,
    split_progress,
)
from attnflow.paper.experiments.report import (
    NO_VALUE,
    Report,
    Table,
    comparison_table,
    first_token_table,
    format_mean,
    format_number,
    interval_table,
    layer_names,
    provenance,
    variants_table,
)
from attnflow.paper.experiments.sentences import read_sentiment
from attnflow.progress import Progress

MODEL = "distilbert-base-uncased-finetuned-sst-2-english"  # the paper's
SMALL_MODEL = "minilm-sst2"  # comes with attnflow
N_SAMPLE = 100  # sentences in the paper
PLAIN_EDGES = "attention"
OTHER_EDGES = tuple(name for name in EDGES.names if name != PLAIN_EDGES)
AUTHORS_VARIANT = "authors' gradient and dense ranks, maximum over positions"

# As printed in the paper, for 100 sentences and DistilBERT; it shows these layers only.
PAPER_LAYERS = (1, 3, 5, 6)
PAPER_TABLE = {
    "raw": ("0.12±0.21", "0.09±0.21", "0.08±0.20", "0.09±0.21"),
    "rollout": ("0.11±0.19", "0.12±0.21", "0.13±0.21", "0.13±0.20"),
    "flow": ("0.11±0.19", "0.11±0.21", "0.12±0.22", "0.14±0.21"),
}

METHOD = (
    "Spearman's rho between the scores of [CLS] for all subword tokens and input gradients: the L2 "
    "norm of the gradient of the predicted class's logit with respect to each token's embedding, "
    "as in table 2."
)
PAPER_MODEL = (
    " The paper's numbers are for 100 sentences and the published DistilBERT classifier. Other "
    "models have other weights, so only the pattern can be compared."
)
AUTHORS_METHOD = (
    "The authors' script for this table differs in four ways. It takes the gradient with respect "
    "to the output of the embedding module, after position embeddings and LayerNorm, and sums it "
    "over the embedding. It uses dense ranks in a formula that assumes no ties. Instead of the row "
    "of [CLS], it uses the maximum score that any position gives to a token. And it explains the "
    "class of the test set's label; GLUE does not publish these labels, all are -1, which selects "
    "the last class. The next table follows the script except for the last point: it explains the "
    "predicted class."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Measure the development set with each model in `options.model`, separated by commas."""
    models = list_models(options, MODEL)
    examples = read_sentiment(options)[: options.examples]  # first, since loading a model is slow
    sample = sorted(Random(options.seed).sample(range(len(examples)), min(N_SAMPLE, len(examples))))
    stages = split_progress(progress, len(models) * (3 + len(OTHER_EDGES)))
    numbers: dict[str, Any] = {}
    for name, model in models.items():
        loaded = open_classifier(
            options if options.model is None else replace(options, model=model)
        )
        numbers[name] = _measure(loaded, examples, sample, options, stages)
    settings = {
        "model": ", ".join(models),
        "data": f"{len(examples):,} sentences of the development set of SST-2",
        "examples": len(examples),
        "seed": options.seed,
    }
    return Result("table3", {"models": numbers}, settings)


def _measure(
    loaded: LoadedModel,
    examples: Sequence[SentimentExample],
    sample: Sequence[int],
    options: Options,
    stages: Iterator[Progress | None],
) -> dict[str, Any]:
    """Return the numbers of one model: for all examples, and for a sample as large as the paper's.

    Other edges are measured on the sample.
    """
    texts = LabeledTexts.encode(
        loaded,
        [example.text for example in examples],
        [find_class(loaded, example.sentiment) for example in examples],
        options,
    )
    attention = texts.attention(progress=next(stages))
    max_attention = texts.attention(ScoreSettings(rows="max"), next(stages))
    has_embeddings = hasattr(getattr(loaded.model, "base_model", None), "embeddings")
    importance = texts.importance(next(stages), after_embeddings=has_embeddings)
    variants = _correlate_variants(texts, attention, max_attention, importance)
    gradients = select([importance[i] for i in sample], "l2")
    few = replace(
        texts,
        encoded=tuple(texts.encoded[i] for i in sample),
        labels=tuple(texts.labels[i] for i in sample),
    )
    scores = {PLAIN_EDGES: [attention[i] for i in sample]}
    for edges in OTHER_EDGES:
        scores[edges] = few.attention(ScoreSettings(edges=edges), next(stages))
    return {
        "accuracy": accuracy(importance),
        "tokens": describe_lengths(texts.n_tokens),
        "first_token_share": first_token_share(attention),
        "all": _summarize(variants, range(len(texts)), options.seed),
        "sample": _summarize(variants, sample, options.seed),
        "edges": {
            edges: summarize_correlations(correlate(rows, gradients))
            for edges, rows in scores.items()
        },
    }


def open_classifier(options: Options) -> LoadedModel:
    """Load the model of the options, or the paper's.

    Raises FileError if the model cannot be loaded; for the paper's model, the error names one that
    comes with attnflow.
    """
    try:
        return open_model(options, MODEL)
    except FileError as error:
        if options.model is not None:
            raise
        raise FileError(
            error.given,
            error.expected,
            f"{error.fix} Or use the classifier that comes with attnflow: --model {SMALL_MODEL}.",
        ) from error


def find_class(loaded: LoadedModel, sentiment: str) -> int:
    """Return the class with this name; if classes have other names, 0 is negative, 1 positive."""
    n = int(loaded.model.config.num_labels)
    try:
        return resolve_target(loaded, sentiment, n)
    except SelectionError:
        return min(("negative", "positive").index(sentiment), n - 1)


def _correlate_variants(
    texts: LabeledTexts,
    attention: Sequence[Measurement],
    max_attention: Sequence[Measurement],
    importance: Sequence[Measurement],
) -> dict[str, Correlations]:
    """Return the correlations of all variants by name; the first is that of the table."""
    variants: dict[str, Correlations] = {}
    for name, kind in {
        "input gradients (l2)": "l2",
        "gradient times input": "times_input",
        "blank-out": "blank_out",
    }.items():
        rows = select(importance, kind)
        variants[name] = correlate(attention, rows)
        variants[f"{name}, without special tokens"] = correlate(
            attention, rows, exclude=texts.special
        )
    # The authors' script takes the gradient after the embedding module, if the model has one.
    after_embeddings = "sum after embeddings"
    rows = select(importance, after_embeddings if after_embeddings in importance[0] else "sum")
    variants["authors' gradient"] = correlate(attention, rows)
    variants[AUTHORS_VARIANT] = correlate(max_attention, rows, ties="dense")
    return variants


def _summarize(
    variants: Mapping[str, Correlations], rows: Sequence[int], seed: int
) -> dict[str, Any]:
    """Summarize the correlations of the texts with these indices."""
    chosen = {
        name: {method: rho[list(rows)] for method, rho in correlations.items()}
        for name, correlations in variants.items()
    }
    main = next(iter(chosen.values()))
    return {
        "examples": len(rows),
        **summarize_with_tests(main, seed=seed),
        "variants": {name: summarize_correlations(rhos) for name, rhos in chosen.items()},
    }


def render(result: Result) -> Report:
    """Render table 3 next to the paper's, by our method and by that of the authors' script."""
    models = result.numbers["models"]
    accuracies = ", ".join(f"{name} {numbers['accuracy']:.1%}" for name, numbers in models.items())
    n_all, n_sample = (next(iter(models.values()))[key]["examples"] for key in ("all", "sample"))
    caption = "Table 3: correlation with input gradients"
    script = "Table 3 by the method of the authors' script"
    few = f"{n_sample} of the sentences"
    parts: list[str | Table] = [
        f"{provenance(result)} Accuracy: {accuracies}.",
        METHOD + ("" if list(models) == [MODEL] else PAPER_MODEL),
        _main_table(caption, models, "all"),
        _edges_table(f"Other edges, last layer, {few}", models),
        AUTHORS_METHOD,
        _main_table(script, models, "all", AUTHORS_VARIANT),
    ]
    if n_sample < n_all:
        parts += [
            _main_table(f"{caption}, {few}", models, "sample"),
            _main_table(f"{script}, {few}", models, "sample", AUTHORS_VARIANT),
        ]
    shares = {name: numbers["first_token_share"] for name, numbers in models.items()}
    parts.append(first_token_table(shares))
    for name, numbers in models.items():
        parts += _details(name, numbers)
    return Report("Table 3: a sentiment classifier", tuple(parts))


def _details(name: str, numbers: Mapping[str, Any]) -> list[Table]:
    """Return intervals, tests, variants and edges of one model."""
    everything, sample = numbers["all"], numbers["sample"]
    what = f"{name}, {everything['examples']:,} sentences"
    return [
        interval_table(f"Means with 95% bootstrap intervals: {what}", everything["methods"]),
        comparison_table(
            "Differences between methods; Wilcoxon signed-rank test over sentences, p values "
            f"corrected (Holm): {what}",
            everything["comparisons"],
        ),
        variants_table(f"Variants: {what}", everything["variants"]),
        variants_table(f"Edges: {name}, {sample['examples']} sentences", numbers["edges"]),
    ]


def _main_table(
    caption: str,
    models: Mapping[str, Any],
    part: Literal["all", "sample"],
    variant: str | None = None,
) -> Table:
    """Return the rows of the paper and of each model.

    variant: the main one if None. A model with another number of layers cannot be compared with
    the paper's table.
    """
    n_layers = max(len(m["all"]["methods"]["raw"]["mean"]) for m in models.values())
    comparable = n_layers == PAPER_LAYERS[-1]
    layers = [layer - 1 for layer in PAPER_LAYERS] if comparable else list(range(n_layers))
    rows: list[tuple[str, ...]] = []
    for method in PAPER_METHODS:
        title = method.capitalize()
        if comparable:
            rows.append((f"{title}, paper", *PAPER_TABLE[method]))
        for name, numbers in models.items():
            found = numbers[part]
            methods = found["methods"] if variant is None else found["variants"][variant]
            own = [i for i in layers if i < len(methods[method]["mean"])]
            cells = [format_mean(methods[method], i) for i in own]
            rows.append((f"{title}, {name}", *cells, *[NO_VALUE] * (len(layers) - len(own))))
    names = layer_names(n_layers)
    return Table(caption, ("", *(names[i] for i in layers)), tuple(rows))


def _edges_table(caption: str, models: Mapping[str, Any]) -> Table:
    """Return the mean correlations at the last layer by edges, for each method and model."""
    header = [f"{name}: {method}" for name in models for method in PAPER_METHODS]
    rows = [
        (
            edges,
            *(
                format_number(numbers["edges"][edges][method]["mean"][-1])
                for numbers in models.values()
                for method in PAPER_METHODS
            ),
        )
        for edges in next(iter(models.values()))["edges"]
    ]
    return Table(caption, ("", *header), tuple(rows))
