"""Evaluation: how well scores explain predictions, and how well they agree.

Enters: scores of tokens, as arrays or Attributions, and for perturbation metrics a way to ask a
model about a text without some tokens (`perturbation.Ask`). Leaves: values of metrics, rank
correlations, their means with confidence intervals, and paired significance tests. Nothing here
knows models.

Read `correlation.py` first (ranks, Spearman's rho, `rank_correlation` of two Attributions), then
`significance.py` (means, bootstrap intervals, Wilcoxon tests, Holm's correction). The metrics of
studies: `orders.py` (ties), `perturbation.py` (curves), `evidence.py`, and their registry,
`metrics.py`.
"""

from attnflow.evaluation.correlation import kendall, rank_correlation, spearman
from attnflow.evaluation.metrics import METRICS, Trial, register_metric
from attnflow.evaluation.significance import (
    Comparison,
    Interval,
    Summary,
    bootstrap_intervals,
    compare_paired,
    critical_difference,
    friedman,
    holm,
    summarize,
    summarize_groups,
)

__all__ = [
    "METRICS",
    "Comparison",
    "Interval",
    "Summary",
    "Trial",
    "bootstrap_intervals",
    "compare_paired",
    "critical_difference",
    "friedman",
    "holm",
    "kendall",
    "rank_correlation",
    "register_metric",
    "spearman",
    "summarize",
    "summarize_groups",
]
