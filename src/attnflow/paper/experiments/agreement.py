"""Subject-verb agreement: the verb-number model on held-out sentences.

The numbers of tables 1 and 2, and the texts and sweeps that other experiments share with them.
`agreement_tables` renders the tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from attnflow.models.builtin import NUMBERS
from attnflow.models.loading import LoadedModel
from attnflow.paper.data.data_sets import AgreementExample
from attnflow.paper.experiments.correlations import (
    Correlations,
    Importance,
    correlate,
    select,
    summarize_correlations,
    summarize_with_tests,
    to_list,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options
from attnflow.paper.experiments.measurements import (
    LabeledTexts,
    Measurement,
    ScoreSettings,
    accuracy,
    open_model,
    split_progress,
)
from attnflow.paper.experiments.sentences import AgreementSets, read_agreement
from attnflow.progress import Progress

# Selects one kind of importance from the measurements.
Selection: TypeAlias = Callable[[Sequence[Measurement]], Importance]

MODEL = "verb-number"
LENGTH_GROUPS = ((3, 3), (4, 6), (7, 12), (13, 1000))  # minimum and maximum number of tokens
# Names of variants that reports refer to.
WITHOUT_CLS = "without [CLS]"
DENSE_RANKS = "authors' dense ranks"


def correlate_agreement(
    kind: str,
    variants: Mapping[str, Selection],
    options: Options,
    progress: Progress | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compute all numbers of table 1 or 2. Returns numbers and settings.

    kind: the importance to compare with, a name of `token_importance`; absolute values are used.
    variants: further kinds of importance, by their name in the table of variants.
    """
    texts, sets = natural_texts(options)
    groups = {k: examples for k, examples in sets.by_attractors.items() if examples}
    stages = split_progress(progress, 3 + 2 * len(groups))
    attention = texts.attention(progress=next(stages))
    max_attention = texts.attention(ScoreSettings(rows="max"), next(stages))
    measured = texts.importance(next(stages))
    importance = select(measured, kind)
    others = {name: choose(measured) for name, choose in variants.items()}
    correlations = correlate(attention, importance)
    sum_over_l2 = max((text["sum"] / text["l2"]).max() for text in measured)
    numbers = {
        "accuracy": accuracy(measured),
        "sum_over_l2": float(f"{sum_over_l2:.2g}"),
        **summarize_with_tests(correlations, seed=options.seed),
        "variants": _variants(texts, attention, max_attention, importance, others),
        "lengths": _by_length(correlations, texts),
        "cls_extremes": _cls_extremes(attention, importance),
        "attractors": {
            str(k): _attractor_group(encode_examples(texts.loaded, examples, options), kind, stages)
            for k, examples in groups.items()
        },
    }
    return numbers, describe_settings(texts, sets)


def natural_texts(options: Options, default: str = MODEL) -> tuple[LabeledTexts, AgreementSets]:
    """Return the natural sentences, encoded for the model, and all sets of sentences."""
    sets = read_agreement(options)
    return encode_examples(open_model(options, default), sets.natural, options), sets


def encode_examples(
    loaded: LoadedModel, examples: Sequence[AgreementExample], options: Options
) -> LabeledTexts:
    """Encode agreement examples; the label is the number of the verb."""
    return LabeledTexts.encode(
        loaded,
        [example.text for example in examples],
        [NUMBERS.index(example.number) for example in examples],
        options,
    )


def describe_settings(
    texts: LabeledTexts, sets: AgreementSets, default: str = MODEL
) -> dict[str, Any]:
    """Return the settings of a result: model, data, and the number and lengths of sentences."""
    return {
        "model": texts.options.model or default,
        "data": f"{len(texts):,} {sets.source}",
        "examples": len(texts),
        "tokens": describe_lengths(texts.n_tokens),
        "seed": texts.options.seed,
        **({"attractor_source": sets.attractor_source} if sets.attractor_source else {}),
    }


def describe_lengths(n_tokens: Sequence[int]) -> dict[str, Any]:
    """Return mean, minimum and maximum of the numbers of tokens."""
    return {
        "mean": round(float(np.mean(n_tokens)), 2),
        "min": min(n_tokens),
        "max": max(n_tokens),
    }


def _variants(
    texts: LabeledTexts,
    attention: Sequence[Measurement],
    max_attention: Sequence[Measurement],
    importance: Importance,
    others: Mapping[str, Importance],
) -> dict[str, Any]:
    """Correlate in other ways: without [CLS], with other importance, with the authors' ranks.

    max_attention: maxima over positions. importance: that of the table. others: further kinds.
    """
    unique = texts.unique()
    variants = {
        "all tokens (main table)": correlate(attention, importance),
        WITHOUT_CLS: correlate(attention, importance, exclude=texts.special),
        "unique texts": correlate([attention[i] for i in unique], [importance[i] for i in unique]),
    }
    for name, rows in others.items():
        variants[name] = correlate(attention, rows)
        variants[f"{name}, {WITHOUT_CLS}"] = correlate(attention, rows, exclude=texts.special)
    variants[DENSE_RANKS] = correlate(attention, importance, ties="dense")
    variants[f"{DENSE_RANKS}, maximum over positions"] = correlate(
        max_attention, importance, ties="dense"
    )
    return {name: summarize_correlations(rhos) for name, rhos in variants.items()}


def _cls_extremes(attention: Sequence[Measurement], importance: Importance) -> dict[str, Any]:
    """Return how often [CLS], the first token, has the highest or lowest score, as a share.

    For importance, and for each method by layer.
    """
    shares: dict[str, Any] = {}
    for end, extreme in (("highest", np.max), ("lowest", np.min)):
        shares[end] = {
            "importance": round(float(np.mean([row[0] == extreme(row) for row in importance])), 4)
        }
        for method in PAPER_METHODS:
            rows = [
                scores[method][:, 0] == extreme(scores[method], axis=-1) for scores in attention
            ]
            shares[end][method] = to_list(np.mean(rows, axis=0))
    return shares


def _by_length(correlations: Correlations, texts: LabeledTexts) -> dict[str, Any]:
    """Summarize the correlations by the number of tokens, [CLS] included."""
    n_tokens = np.asarray(texts.n_tokens)
    groups = {}
    for least, most in LENGTH_GROUPS:
        chosen = (n_tokens >= least) & (n_tokens <= most)
        if chosen.any():
            name = f"{least}" if least == most else f"{least} to {min(most, n_tokens.max())}"
            rhos = {method: rho[chosen] for method, rho in correlations.items()}
            groups[name] = {
                "examples": int(chosen.sum()),
                "methods": summarize_correlations(rhos),
            }
    return groups


def _attractor_group(
    texts: LabeledTexts, kind: str, stages: Iterator[Progress | None]
) -> dict[str, Any]:
    """Return the size, the accuracy and the correlations of one set by attractors."""
    attention, measured = texts.attention(progress=next(stages)), texts.importance(next(stages))
    return {
        "examples": len(texts),
        "accuracy": accuracy(measured),
        "methods": summarize_correlations(correlate(attention, select(measured, kind))),
    }
