"""Tables 1 and 2 on other graphs: a causal model, other edges, other residual weights.

The paper suggests the first two in its section 5; it uses a residual weight of 0.5 throughout.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnflow.attribution import Normalize
from attnflow.edges.registry import EDGES
from attnflow.paper.experiments.agreement import (
    WITHOUT_CLS,
    describe_settings,
    natural_texts,
)
from attnflow.paper.experiments.correlations import (
    IMPORTANCE_TITLES,
    Correlations,
    compare,
    correlate,
    first_token_share,
    select,
    summarize_correlations,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options, Result
from attnflow.paper.experiments.measurements import ScoreSettings, accuracy, split_progress
from attnflow.paper.experiments.report import (
    Report,
    Table,
    comparison_table,
    first_token_table,
    format_number,
    provenance,
    table_by_layer,
    variants_table,
)
from attnflow.progress import Progress

CAUSAL_MODEL = "verb-number-causal"
NORMALIZATIONS: dict[str, Normalize] = {"plain": "none", "normalized": "receptive_field"}
PLAIN_EDGES = "attention"
# Edges that differ from attention only in texts with more tokens than the dimension of a head.
LONG_TEXT_EDGES = "effective"
RESIDUAL_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PAPER_RESIDUAL = "0.5"
RESIDUAL_METHODS = ("rollout", "flow")  # raw attention has no residual connection
CLEAR = 0.005  # a smaller difference is not visible in the tables

DECODERS_METHOD = (
    "In a decoder, more positions see the earlier tokens, which collect weight for that reason "
    "alone. The paper says to normalize by the receptive field and leaves open how. Here each "
    "score is divided by the score that the same method gives for uniform attention over all "
    "visible positions, and rows are scaled to sum to 1. The explained position is the last token, "
    "from which the model classifies. For raw attention this divides a row by a constant, so the "
    "ranks do not change."
)
RESIDUAL_METHOD = (
    "The paper weights attention and the residual connection equally. Here the residual weight r "
    "of A = (1 - r) W + r I ranges from 0.1 to 0.9; cells are mean correlations. Raw attention has "
    "no residual connection, and at layer 1 the weight changes only the rank of [CLS] itself."
)


def run_decoders(options: Options, progress: Progress | None) -> Result:
    """Correlate the scores of a causal model, with and without receptive-field normalization."""
    texts, sets = natural_texts(options, CAUSAL_MODEL)
    stages = split_progress(progress, 1 + len(NORMALIZATIONS))
    importance = texts.importance(next(stages))
    attention = {
        name: texts.attention(ScoreSettings(normalize=normalize), next(stages))
        for name, normalize in NORMALIZATIONS.items()
    }
    numbers: dict[str, Any] = {
        "accuracy": accuracy(importance),
        "first_token_share": {name: first_token_share(rows) for name, rows in attention.items()},
    }
    for kind in IMPORTANCE_TITLES:
        rows = select(importance, kind)
        variants = {name: correlate(scores, rows) for name, scores in attention.items()}
        words = {
            f"{name}, {WITHOUT_CLS}": correlate(scores, rows, exclude=texts.special)
            for name, scores in attention.items()
        }
        numbers[kind] = {
            name: summarize_correlations(rhos) for name, rhos in {**variants, **words}.items()
        }
        by_name = _join_names(variants)
        pairs = [(f"normalized {method}", f"plain {method}") for method in RESIDUAL_METHODS]
        numbers[f"{kind}_comparisons"] = compare(by_name, pairs, options.seed)
    return Result("decoders", numbers, describe_settings(texts, sets, CAUSAL_MODEL))


def _join_names(variants: Mapping[str, Correlations]) -> dict[str, Any]:
    """Return correlations by "variant method"."""
    return {f"{name} {m}": rho for name, rhos in variants.items() for m, rho in rhos.items()}


def render_decoders(result: Result) -> Report:
    """Render the correlations with and without normalization, and the share of the first token."""
    numbers = result.numbers
    parts: list[str | Table] = [
        f"{provenance(result)} Accuracy: {numbers['accuracy']:.1%}.",
        DECODERS_METHOD,
    ]
    for kind, title in IMPORTANCE_TITLES.items():
        comparisons = numbers[f"{kind}_comparisons"]
        parts += [
            variants_table(f"Correlation with {title}", numbers[kind]),
            comparison_table(
                f"Normalized minus plain, {title} (Wilcoxon test, Holm correction)", comparisons
            ),
            " ".join(_describe_normalization(title, comparison) for comparison in comparisons),
        ]
    parts.append(first_token_table(numbers["first_token_share"]))
    return Report("Beyond the paper: decoders", tuple(parts))


def _describe_normalization(title: str, comparison: Mapping[str, Any]) -> str:
    """Return a sentence on how many layers improve and how many get worse."""
    method = comparison["first"].removeprefix("normalized ")
    significant = [
        difference
        for difference, p in zip(comparison["difference"], comparison["p"], strict=True)
        if p is not None and p < 0.05
    ]
    higher = sum(difference > 0 for difference in significant)
    lower = sum(difference < 0 for difference in significant)
    return (
        f"Normalization significantly increases the correlation of {method} with {title} at "
        f"{higher} of {len(comparison['p'])} layers and decreases it at {lower}; at the last layer "
        f"rho changes by {comparison['difference'][-1]:+.2f}."
    )


def run_edges(options: Options, progress: Progress | None) -> Result:
    """Correlate the methods on graphs with each registered edge weighting."""
    texts, sets = natural_texts(options)
    all_edges = EDGES.names
    stages = split_progress(progress, 1 + len(all_edges))
    importance = texts.importance(next(stages))
    attention = {
        edges: texts.attention(ScoreSettings(edges=edges), next(stages)) for edges in all_edges
    }
    config = texts.loaded.model.config
    head_dim = config.hidden_size // config.num_attention_heads
    long = np.asarray(texts.n_tokens) > head_dim
    numbers: dict[str, Any] = {"head_dim": head_dim, "n_long": int(long.sum())}
    for kind in IMPORTANCE_TITLES:
        rows = select(importance, kind)
        variants = {edges: correlate(scores, rows) for edges, scores in attention.items()}
        numbers[kind] = {edges: summarize_correlations(rhos) for edges, rhos in variants.items()}
        pairs = [
            (f"{edges} {method}", f"{PLAIN_EDGES} {method}")
            for method in PAPER_METHODS
            for edges in all_edges
            if edges != PLAIN_EDGES
        ]
        numbers[f"{kind}_comparisons"] = compare(_join_names(variants), pairs, options.seed)
        if long.any():
            numbers[f"{kind}_long"] = {
                edges: summarize_correlations({m: rho[long] for m, rho in variants[edges].items()})
                for edges in (PLAIN_EDGES, LONG_TEXT_EDGES)
            }
    return Result("edges", numbers, describe_settings(texts, sets))


def render_edges(result: Result) -> Report:
    """Render the correlations by edges, and their differences from plain attention."""
    numbers = result.numbers
    method = (
        "Section 5 of the paper suggests building the graph from effective attention (Brunner et "
        "al. 2020) or from attention adjusted by gradients. Value-weighted edges use the norm of "
        "the vector that a key adds to the output. Norm, GlobEnc, ALTI and contribution edges "
        "contain the residual connection. Effective attention differs from attention only "
        f"in texts with more tokens than the dimension of a head, {numbers['head_dim']} here; "
        f"{numbers['n_long']} of {result.settings['examples']:,} texts are that long."
    )
    parts: list[str | Table] = [provenance(result), method]
    for kind, title in IMPORTANCE_TITLES.items():
        parts += [
            variants_table(f"Correlation with {title}, by edges", numbers[kind]),
            comparison_table(
                f"Other edges minus plain attention, {title} (Wilcoxon test, Holm correction)",
                numbers[f"{kind}_comparisons"],
            ),
        ]
        if f"{kind}_long" in numbers:
            caption = f"Texts with more than {numbers['head_dim']} tokens, {title}"
            parts.append(variants_table(caption, numbers[f"{kind}_long"]))
        parts.append(_describe_best_edges(title, numbers[kind]))
    return Report("Beyond the paper: other edges", tuple(parts))


def _describe_best_edges(title: str, summaries: Mapping[str, Any]) -> str:
    """Return a sentence on the edges with the highest correlation at the last layer."""
    best = []
    for method in PAPER_METHODS:
        means = {edges: methods[method]["mean"][-1] for edges, methods in summaries.items()}
        defined = {edges: mean for edges, mean in means.items() if mean is not None}
        edges = max(defined, key=lambda name: defined[name])
        best.append(
            f"{edges} for {method} ({defined[edges]:.2f}; plain {defined[PLAIN_EDGES]:.2f})"
        )
    return (
        f"At the last layer, the edges with the highest correlation with {title} are "
        f"{', '.join(best)}."
    )


def run_residual(options: Options, progress: Progress | None) -> Result:
    """Correlate rollout and flow with blank-out and gradients, for each residual weight."""
    texts, sets = natural_texts(options)
    stages = split_progress(progress, 1 + len(RESIDUAL_WEIGHTS))
    measured = texts.importance(next(stages))
    numbers: dict[str, dict[str, Any]] = {kind: {} for kind in IMPORTANCE_TITLES}
    for weight in RESIDUAL_WEIGHTS:
        attention = texts.attention(ScoreSettings(residual_weight=weight), next(stages))
        for kind in IMPORTANCE_TITLES:
            rhos = correlate(attention, select(measured, kind), methods=RESIDUAL_METHODS)
            numbers[kind][str(weight)] = summarize_correlations(rhos)
    return Result("residual", numbers, describe_settings(texts, sets))


def render_residual(result: Result) -> Report:
    """Render a table for each method and importance, and the best weight."""
    parts: list[str | Table] = [provenance(result), RESIDUAL_METHOD]
    for kind, title in IMPORTANCE_TITLES.items():
        sentences = []
        for method in RESIDUAL_METHODS:
            means = {weight: s[method]["mean"] for weight, s in result.numbers[kind].items()}
            rows = [
                (f"r = {weight}", *(format_number(value) for value in values))
                for weight, values in means.items()
            ]
            parts.append(table_by_layer(f"{method.capitalize()} and {title}", rows))
            sentences.append(_describe_best_weight(method, title, means))
        parts.append(" ".join(sentences))
    return Report("Beyond the paper: the residual weight", tuple(parts))


def _describe_best_weight(
    method: str, title: str, means: Mapping[str, Sequence[float | None]]
) -> str:
    """Return a sentence on the best weight at any layer and at the last layer."""
    defined = {
        (weight, layer): mean
        for weight, values in means.items()
        for layer, mean in enumerate(values, start=1)
        if mean is not None
    }
    weight, layer = max(defined, key=lambda place: defined[place])
    last = max(layer for _, layer in defined)
    at_last = {weight: mean for (weight, layer), mean in defined.items() if layer == last}
    best_weight = max(at_last, key=lambda name: at_last[name])
    best, usual = at_last[best_weight], at_last[PAPER_RESIDUAL]
    comparison = f"no weight is better than the paper's r = {PAPER_RESIDUAL} ({usual:.2f})"
    if best - usual >= CLEAR:
        comparison = (
            f"r = {best_weight} is best ({best:.2f}; the paper's r = {PAPER_RESIDUAL}: {usual:.2f})"
        )
    return (
        f"The correlation of {method} with {title} is highest at r = {weight} and layer {layer} "
        f"({defined[weight, layer]:.2f}); at the last layer {comparison}."
    )
