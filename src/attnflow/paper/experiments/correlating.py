"""Rank correlations of attention methods with importance, summed up as JSON can write them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.evaluation import bootstrap_intervals, compare_paired, holm, spearman, summarize
from attnflow.evaluation.correlation import Ties
from attnflow.evaluation.significance import RESAMPLES
from attnflow.paper.experiments.keeping import Measured
from attnflow.paper.experiments.measuring import METHODS

# Rank correlations [examples, layers] by method.
Correlations: TypeAlias = dict[str, NDArray[np.float64]]

PAIRS = (("rollout", "raw"), ("flow", "raw"), ("flow", "rollout"))
DIGITS = 5


def correlate(
    attention: Sequence[Measured],
    importance: Iterable[NDArray[np.float64]],
    *,
    leave_out: Sequence[NDArray[np.bool_]] | None = None,
    ties: Ties = "average",
    methods: Sequence[str] = METHODS,
) -> Correlations:
    """Spearman's rho of each method with importance, for each example and layer.

    attention: of each example, [layers, tokens] by method. importance: of each example, [tokens].
    leave_out: which tokens of each example to leave out, such as special ones.
    """
    rows: dict[str, list[NDArray[np.float64]]] = {method: [] for method in methods}
    for i, (measured, weights) in enumerate(zip(attention, importance, strict=True)):
        keep = slice(None) if leave_out is None else ~leave_out[i]
        stacked = np.stack([measured[method] for method in methods])[..., keep]
        for method, rho in zip(methods, spearman(stacked, weights[keep], ties=ties), strict=True):
            rows[method].append(rho)
    return {method: np.asarray(found) for method, found in rows.items()}


def select(
    measured: Sequence[Measured],
    name: str,
    change: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.abs,
) -> list[NDArray[np.float64]]:
    """One kind of importance [tokens] of each example; its absolute value unless told."""
    return [change(one[name]) for one in measured]


def sum_up(correlations: Correlations) -> dict[str, Any]:
    """Mean, standard deviation and numbers of examples of each method, [layers] each."""
    summed = {}
    for method, rho in correlations.items():
        summary = summarize(rho)
        summed[method] = {
            "mean": listed(summary.mean),
            "sd": listed(summary.sd),
            "n": summary.n.tolist(),
            "left_out": summary.left_out.tolist(),
        }
    return summed


def sum_up_fully(
    correlations: Correlations, *, seed: int, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """As `sum_up`, with bootstrap intervals, and with all pairs of methods compared.

    p values are corrected for all pairs and layers together.
    """
    summed = sum_up(correlations)
    for method, rho in correlations.items():
        interval = bootstrap_intervals(rho, seed=seed, resamples=resamples)
        summed[method] |= {"low": listed(interval.low), "high": listed(interval.high)}
    return {"methods": summed, "comparisons": compare(correlations, PAIRS, seed, resamples)}


def compare(
    correlations: Mapping[str, NDArray[np.float64]],
    pairs: Sequence[tuple[str, str]],
    seed: int,
    resamples: int = RESAMPLES,
) -> list[dict[str, Any]]:
    """Each pair, layer by layer: the mean difference, its interval, and p corrected by Holm."""
    made = [
        compare_paired(correlations[first], correlations[second], seed=seed, resamples=resamples)
        for first, second in pairs
    ]
    corrected = holm(np.asarray([one.p for one in made]))
    return [
        {
            "first": first,
            "second": second,
            "difference": listed(one.difference),
            "low": listed(one.interval.low),
            "high": listed(one.interval.high),
            "p": [None if np.isnan(value) else float(f"{value:.3g}") for value in p],
        }
        for (first, second), one, p in zip(pairs, made, corrected, strict=True)
    ]


def first_share(measured: Sequence[Measured]) -> dict[str, list[float | None]]:
    """The share of each method's scores that the first token has, by layer, mean over texts."""
    shares = {}
    for method in METHODS:
        rows = [one[method][:, 0] / one[method].sum(-1) for one in measured]
        shares[method] = listed(np.mean(rows, axis=0))
    return shares


def listed(values: NDArray[np.float64]) -> list[float | None]:
    """Numbers for JSON: rounded, and None for nan."""
    return [None if np.isnan(value) else round(float(value), DIGITS) for value in values]
