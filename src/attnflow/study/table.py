"""Tables of a study: means with intervals, and paired tests between explainers.

Every comparison is paired by text. Intervals are bootstrapped, tests are Wilcoxon's with Holm's
correction, and wins, ties and losses are counted, so that a difference can be judged by its size,
its certainty and its consistency. Explainers with the same values on all texts, such as raw
attention with and without residual weights on most encoders, count as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import SelectionError
from attnflow.evaluation.metrics import METRICS, Better
from attnflow.evaluation.significance import bootstrap_intervals, compare_paired, holm
from attnflow.study.explainers import explainer_title
from attnflow.study.study import Study

RESAMPLES = 2000
TIED = 1e-12  # a difference of values that is no difference
SAME = 1e-6  # a difference of values that comes from the rounding of scores
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Row:
    """An explainer in a table.

    mean: over n texts, with its 95 % interval from low to high.
    gain: the mean difference from the reference, positive if better; gain_low, gain_high: its
    interval. p: of the paired test against the reference, corrected; nan for the reference.
    wins, ties, losses: texts on which it is better than the reference, as good, or worse.
    seconds, megabytes: the median cost of its scores. failed: texts without a value.
    copy_of: an earlier explainer with the same values on all texts; the two count as one test.
    """

    explainer: str
    n: int
    mean: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    p: float
    wins: int
    ties: int
    losses: int
    seconds: float
    megabytes: float
    failed: int
    copy_of: str = ""

    @property
    def title(self) -> str:
        """The name of the explainer in words."""
        return explainer_title(self.explainer)

    @property
    def beats_reference(self) -> bool:
        """Whether the explainer is significantly better than the reference."""
        return self.p < SIGNIFICANT and self.gain > 0


@dataclass(frozen=True)
class MetricTable:
    """The explainers of a study by one metric, the best first.

    against: the reference of the comparisons. replacement, sign: how tokens were removed, ranked.
    """

    metric: str
    title: str
    better: Better
    replacement: str
    sign: str
    against: str
    rows: tuple[Row, ...]

    def row(self, explainer: str) -> Row:
        """Return the row of an explainer. Raises SelectionError if there is none."""
        for row in self.rows:
            if row.explainer == explainer:
                return row
        raise SelectionError(
            f"there is no explainer {explainer!r}",
            expected=f"one of {', '.join(row.explainer for row in self.rows)}",
            fix="Use a name of the study.",
        )


def summarize_metric(
    study: Study,
    metric: str,
    *,
    against: str = "random",
    replacement: str | None = None,
    sign: str | None = None,
    resamples: int = RESAMPLES,
) -> MetricTable:
    """Summarize a metric for all explainers of a study, and compare each with one of them.

    against: the explainer to compare with. replacement, sign: the first of the study by default.
    Explainers with fewer than 1 value have means of nan and come last.
    Raises SelectionError for an unknown name.
    """
    study.check("metric", metric, study.design.metrics)
    study.check("explainer", against, study.explainers)
    replacement = study.check("replacement", replacement, study.replacements)
    sign = study.check("sign", sign, study.design.signs)
    options = {"replacement": replacement, "sign": sign}
    values = study.matrix(metric, **options)
    entry = METRICS[metric]
    signed = values if entry.better == "high" else -values
    index = study.explainers.index(against)
    reference = signed[:, index]
    interval = bootstrap_intervals(values, resamples=resamples)
    compared = compare_paired(
        signed, np.repeat(reference[:, None], values.shape[1], axis=1), resamples=resamples
    )
    first = find_first_copies(study, values)
    corrected = _correct(compared.p, first, index)
    rows = []
    for i, name in enumerate(study.explainers):
        known = np.isfinite(values[:, i])
        difference = (signed[:, i] - reference)[known & np.isfinite(reference)]
        rows.append(
            Row(
                explainer=name,
                n=int(known.sum()),
                mean=float(values[known, i].mean()) if known.any() else float("nan"),
                low=float(interval.low[i]),
                high=float(interval.high[i]),
                gain=float(compared.difference[i]),
                gain_low=float(compared.interval.low[i]),
                gain_high=float(compared.interval.high[i]),
                p=float(corrected[i]),
                **count_outcomes(difference),
                seconds=_median(study.matrix("seconds", **options)[:, i]),
                megabytes=_median(study.matrix("megabytes", **options)[:, i]),
                failed=int((~known).sum()),
                copy_of=study.explainers[first[i]] if first[i] != i else "",
            )
        )
    return MetricTable(
        metric, entry.title, entry.better, replacement, sign, against,
        tuple(sorted(rows, key=lambda row: _order(row, entry.better))),
    )  # fmt: skip


def find_first_copies(study: Study, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the first explainer that is the same as each one; itself if there is none.

    The same: it ranks the tokens of all texts alike, and has the same values [texts, explainers].
    Values alone can be equal by chance, as those of the pointing game on few texts.
    """
    first = np.arange(values.shape[1])
    for i, group in enumerate(study.orders):
        for j in range(group, i):
            if first[j] == j and study.orders[j] == group:
                same = np.isclose(values[:, i], values[:, j], rtol=0, atol=SAME, equal_nan=True)
                if same.all():
                    first[i] = j
                    break
    return first


def _correct(
    p: NDArray[np.float64], first: NDArray[np.int64], reference: int
) -> NDArray[np.float64]:
    """Correct p values for the number of different tests; nan for the reference.

    first: of `find_first_copies`. Copies of the reference do not differ from it: their p is 1.
    """
    alike = first == first[reference]
    counted = (first == np.arange(len(first))) & ~alike
    corrected: NDArray[np.float64] = holm(np.where(counted, p, np.nan))[first]
    corrected[alike] = 1.0
    corrected[reference] = np.nan
    return corrected


def count_outcomes(differences: NDArray[np.float64]) -> dict[str, int]:
    """Count wins, ties and losses among differences.

    >>> count_outcomes(np.asarray([0.1, 0.0, -0.2, 0.3]))
    {'wins': 2, 'ties': 1, 'losses': 1}
    """
    tied = np.abs(differences) <= TIED
    return {
        "wins": int((~tied & (differences > 0)).sum()),
        "ties": int(tied.sum()),
        "losses": int((~tied & (differences < 0)).sum()),
    }


def mean_ranks(study: Study, metric: str, **options: Any) -> tuple[dict[str, float], int]:
    """Return the mean rank of each explainer over texts, 1 for the best, and the number of texts.

    Only texts and explainers with values count; tied explainers share a rank. Copies of an
    explainer have its rank, and do not change those of others.
    """
    from attnflow.evaluation.correlation import rank

    values = study.matrix(metric, **options)
    usable: NDArray[np.bool_] = np.asarray(np.isfinite(values).any(axis=0))
    texts = np.isfinite(values[:, usable]).all(axis=1)
    chosen = values[texts][:, usable]
    oriented = -chosen if METRICS[metric].better == "high" else chosen
    first = find_first_copies(study, values)[usable]
    counted, places = np.unique(first, return_inverse=True)
    columns = np.searchsorted(np.flatnonzero(usable), counted)
    ranks = np.full(len(counted), np.nan)
    if len(oriented):
        ranks = rank(oriented[:, columns]).mean(axis=0)
    names = [name for name, use in zip(study.explainers, usable, strict=True) if use]
    return dict(zip(names, ranks[places].tolist(), strict=True)), int(texts.sum())


def find_disagreements(
    study: Study, explainers: Sequence[str], count: int = 5, **options: Any
) -> list[int]:
    """Return the texts, by index, on which the scores of some explainers agree least.

    Agreement is the mean Spearman correlation of all pairs.
    """
    from attnflow.evaluation.correlation import spearman

    columns = study.columns
    replacement = study.check("replacement", options.get("replacement"), study.replacements)
    sign = study.check("sign", options.get("sign"), study.design.signs)
    chosen = (columns["replacement"] == replacement) & (columns["sign"] == sign)
    scores: dict[int, list[Any]] = {}
    for i in np.flatnonzero(chosen):
        if columns["explainer"][i] in explainers and columns["scores"][i] is not None:
            scores.setdefault(int(columns["index"][i]), []).append(columns["scores"][i])
    agreement = {}
    for index, rows in scores.items():
        pairs = [spearman(a, b) for i, a in enumerate(rows) for b in rows[:i]]
        if pairs and np.isfinite(pairs).any():
            agreement[index] = float(np.nanmean(pairs))
    return sorted(agreement, key=lambda index: agreement[index])[:count]


def _median(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _order(row: Row, better: Better) -> tuple[bool, float]:
    """The best first, explainers without values last."""
    return not np.isfinite(row.mean), -row.mean if better == "high" else row.mean
