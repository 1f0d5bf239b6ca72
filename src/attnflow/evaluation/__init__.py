"""How well two attributions agree, over many examples: rank correlation, confidence, significance.

Nothing here knows of models: it sees arrays and Attributions.
"""

from attnflow.evaluation.bootstrap import Interval, bootstrap_intervals
from attnflow.evaluation.correlation import rank_correlation, spearman
from attnflow.evaluation.significance import Comparison, compare_paired, holm
from attnflow.evaluation.summary import Summary, summarise, summarise_groups

__all__ = [
    "Comparison",
    "Interval",
    "Summary",
    "bootstrap_intervals",
    "compare_paired",
    "holm",
    "rank_correlation",
    "spearman",
    "summarise",
    "summarise_groups",
]
