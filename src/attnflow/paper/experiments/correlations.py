"""Rank correlations of attention scores with token importance, summarized as JSON values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.evaluation import bootstrap_intervals, compare_paired, holm, spearman, summarize
from attnflow.evaluation.correlation import Sign, Ties, apply_sign
from attnflow.evaluation.significance import RESAMPLES
from attnflow.paper.experiments.experiment import PAPER_METHODS
from attnflow.paper.experiments.measurements import Measurement

# Importance of the tokens of each example, [tokens] each.
Importance: TypeAlias = Sequence[NDArray[np.float64]]
# Rank correlations [examples, layers] by method.
Correlations: TypeAlias = dict[str, NDArray[np.float64]]

# The kinds of importance that tables 1 and 2 compare with, and their names in captions.
IMPORTANCE_TITLES = {"blank_out": "blank-out", "l2": "input gradients (l2)"}
PAIRS = (("rollout", "raw"), ("flow", "raw"), ("flow", "rollout"))
DIGITS = 5  # of numbers in results


def correlate(
    attention: Sequence[Measurement],
    importance: Iterable[NDArray[np.float64]],
    *,
    exclude: Sequence[NDArray[np.bool_]] | None = None,
    ties: Ties = "average",
    methods: Sequence[str] = PAPER_METHODS,
) -> Correlations:
    """Return Spearman's rho of each method with importance, for each example and layer.

    attention: for each example the scores [layers, tokens] by method. importance: for each example
    [tokens]. exclude: for each example which tokens to exclude, such as special tokens.
    """
    rows: dict[str, list[NDArray[np.float64]]] = {method: [] for method in methods}
    for i, (scores, weights) in enumerate(zip(attention, importance, strict=True)):
        keep = slice(None) if exclude is None else ~exclude[i]
        stacked = np.stack([scores[method] for method in methods])[..., keep]
        for method, rho in zip(methods, spearman(stacked, weights[keep], ties=ties), strict=True):
            rows[method].append(rho)
    return {method: np.asarray(rhos) for method, rhos in rows.items()}


def select(
    importance: Sequence[Measurement], name: str, sign: Sign = "absolute"
) -> list[NDArray[np.float64]]:
    """Return one kind of importance [tokens] of each example. sign: as in `rank_correlation`."""
    return [apply_sign(example[name], sign) for example in importance]


def summarize_correlations(correlations: Correlations) -> dict[str, Any]:
    """Return mean, standard deviation and counts for each method; each is a list over layers.

    n: examples with a defined correlation. undefined: the others.
    """
    summaries = {}
    for method, rho in correlations.items():
        summary = summarize(rho)
        summaries[method] = {
            "mean": to_list(summary.mean),
            "sd": to_list(summary.sd),
            "n": summary.n.tolist(),
            "undefined": summary.left_out.tolist(),
        }
    return summaries


def summarize_with_tests(
    correlations: Correlations, *, seed: int, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Return "methods", summaries with bootstrap intervals, and "comparisons" of all pairs.

    p values are corrected for all pairs and layers together.
    """
    summaries = summarize_correlations(correlations)
    for method, rho in correlations.items():
        interval = bootstrap_intervals(rho, seed=seed, resamples=resamples)
        summaries[method] |= {"low": to_list(interval.low), "high": to_list(interval.high)}
    return {"methods": summaries, "comparisons": compare(correlations, PAIRS, seed, resamples)}


def compare(
    correlations: Mapping[str, NDArray[np.float64]],
    pairs: Sequence[tuple[str, str]],
    seed: int,
    resamples: int = RESAMPLES,
) -> list[dict[str, Any]]:
    """Compare pairs at each layer: mean difference, interval, and p corrected by Holm's method."""
    comparisons = [
        compare_paired(correlations[first], correlations[second], seed=seed, resamples=resamples)
        for first, second in pairs
    ]
    corrected = holm(np.asarray([comparison.p for comparison in comparisons]))
    return [
        {
            "first": first,
            "second": second,
            "difference": to_list(comparison.difference),
            "low": to_list(comparison.interval.low),
            "high": to_list(comparison.interval.high),
            "p": [None if np.isnan(value) else float(f"{value:.3g}") for value in p],
        }
        for (first, second), comparison, p in zip(pairs, comparisons, corrected, strict=True)
    ]


def first_token_share(attention: Sequence[Measurement]) -> dict[str, list[float | None]]:
    """Return the first token's share of the scores, by method and layer, averaged over texts."""
    shares = {}
    for method in PAPER_METHODS:
        rows = [scores[method][:, 0] / scores[method].sum(-1) for scores in attention]
        shares[method] = to_list(np.mean(rows, axis=0))
    return shares


def to_list(values: NDArray[np.float64]) -> list[float | None]:
    """Return rounded numbers for JSON, with None for nan."""
    return [None if np.isnan(value) else round(float(value), DIGITS) for value in values]
