"""How well two attributions agree, over many examples: rank correlation, confidence, significance.

Nothing here knows of models: it sees arrays and Attributions.
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
