"""Table 3: a sentiment classifier on SST-2, rank correlation with input gradients."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from attnflow.errors import FileError, SelectionError
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import resolve_target
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
    open_model,
    split_progress,
)
from attnflow.paper.experiments.report import (
    Report,
    Table,
    comparison_table,
    first_token_table,
    format_mean,
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
OTHER_MODEL = (
    " The paper's numbers are for DistilBERT. This is another model, so only the pattern can be "
    "compared."
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
    """Measure all sentences of the development set, and a sample of 100 as in the paper."""
    examples = read_sentiment(options)[: options.examples]  # first, since loading a model is slow
    loaded = open_classifier(options)
    texts = LabeledTexts.encode(
        loaded,
        [example.text for example in examples],
        [find_class(loaded, example.sentiment) for example in examples],
        options,
    )
    stages = split_progress(progress, 3)
    attention = texts.attention(progress=next(stages))
    max_attention = texts.attention(ScoreSettings(rows="max"), next(stages))
    has_embeddings = hasattr(getattr(loaded.model, "base_model", None), "embeddings")
    importance = texts.importance(next(stages), after_embeddings=has_embeddings)
    variants = _correlate_variants(texts, attention, max_attention, importance)
    sample = sorted(Random(options.seed).sample(range(len(texts)), min(N_SAMPLE, len(texts))))
    numbers = {
        "accuracy": accuracy(importance),
        "first_token_share": {"[CLS]": first_token_share(attention)},
        "all": _summarize(variants, range(len(texts)), options.seed),
        "sample": _summarize(variants, sample, options.seed),
    }
    settings = {
        "model": options.model or MODEL,
        "data": f"{len(texts):,} sentences of the development set of SST-2",
        "examples": len(texts),
        "tokens": describe_lengths(texts.n_tokens),
        "seed": options.seed,
    }
    return Result("table3", numbers, settings)


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
    numbers = result.numbers
    everything, sample = numbers["all"], numbers["sample"]
    n_all, n_sample = everything["examples"], sample["examples"]
    sample_tests = (
        (comparison_table(f"The same for {n_sample} sentences", sample["comparisons"]),)
        if n_sample < n_all
        else ()
    )
    return Report(
        "Table 3: a sentiment classifier",
        (
            f"{provenance(result)} Accuracy: {numbers['accuracy']:.1%}.",
            METHOD + ("" if result.settings["model"] == MODEL else OTHER_MODEL),
            _main_table("Table 3: correlation with input gradients", result, None),
            AUTHORS_METHOD,
            _main_table("Table 3 by the method of the authors' script", result, AUTHORS_VARIANT),
            first_token_table(numbers["first_token_share"]),
            interval_table(
                f"Means with 95% bootstrap intervals, {n_all:,} sentences", everything["methods"]
            ),
            comparison_table(
                f"Differences between methods; Wilcoxon signed-rank test over {n_all:,} "
                "sentences, p values corrected (Holm)",
                everything["comparisons"],
            ),
            *sample_tests,
            variants_table(f"Variants, {n_all:,} sentences", everything["variants"]),
        ),
    )


def _main_table(caption: str, result: Result, variant: str | None) -> Table:
    """Return the rows of the paper, of our sample, and of all sentences.

    variant: the main one if None. A model with another number of layers cannot be compared with
    the paper's table.
    """
    # If there are few sentences, the sample contains all of them.
    parts = {result.numbers[key]["examples"]: result.numbers[key] for key in ("sample", "all")}
    n_layers = len(result.numbers["all"]["methods"]["raw"]["mean"])
    comparable = n_layers == PAPER_LAYERS[-1]
    layers = [layer - 1 for layer in PAPER_LAYERS] if comparable else list(range(n_layers))
    rows: list[tuple[str, ...]] = []
    for method in PAPER_METHODS:
        title = method.capitalize()
        if comparable:
            rows.append((f"{title}, paper, DistilBERT, {N_SAMPLE}", *PAPER_TABLE[method]))
        for n, part in parts.items():
            methods = part["methods"] if variant is None else part["variants"][variant]
            cells = (format_mean(methods[method], i) for i in layers)
            rows.append((f"{title}, {result.settings['model']}, {n}", *cells))
    names = layer_names(n_layers)
    return Table(caption, ("", *(names[i] for i in layers)), tuple(rows))
