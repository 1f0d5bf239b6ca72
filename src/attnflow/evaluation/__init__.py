"""Evaluation: how well attributions agree over many examples.

Enters: scores of the same tokens, as arrays or Attributions. Leaves: rank correlations, their means
with confidence intervals, and paired significance tests. Nothing here knows about models.

Read `correlation.py` first (ranks, Spearman's rho, `rank_correlation` of two Attributions), then
`significance.py` (means, bootstrap intervals, Wilcoxon tests, Holm's correction).
"""

from attnflow.evaluation.correlation import rank_correlation, spearman
from attnflow.evaluation.significance import (
    Comparison,
    Interval,
    Summary,
    bootstrap_intervals,
    compare_paired,
    holm,
    summarize,
    summarize_groups,
)

__all__ = [
    "Comparison",
    "Interval",
    "Summary",
    "bootstrap_intervals",
    "compare_paired",
    "holm",
    "rank_correlation",
    "spearman",
    "summarize",
    "summarize_groups",
]
