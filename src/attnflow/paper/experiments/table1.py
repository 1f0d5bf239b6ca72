"""Table 1: rank correlation of raw attention, rollout and flow of [CLS] with blank-out."""

from attnflow.paper.experiments.agreement import correlations_with
from attnflow.paper.experiments.agreement_report import report_correlations
from attnflow.paper.experiments.correlating import select
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report
from attnflow.paper.experiments.result import Result

NAME = "table1"
TITLE = "Table 1: correlation with blank-out"

# As printed in the paper, for 2,000 samples of its test set and its own model.
PAPER = {
    "raw": ("0.69±0.27", "0.10±0.43", "-0.11±0.49", "-0.09±0.52", "0.20±0.45", "0.29±0.39"),
    "rollout": ("0.32±0.26", "0.38±0.27", "0.51±0.26", "0.62±0.26", "0.70±0.25", "0.71±0.24"),
    "flow": ("0.32±0.26", "0.44±0.29", "0.70±0.25", "0.70±0.22", "0.71±0.22", "0.70±0.22"),
}

MEANING = (
    "Spearman's rho between the scores of [CLS] over all input tokens and blank-out: each token is "
    "replaced by [UNK] in turn, and its importance is by how much the probability of the predicted "
    "class changes, up or down. With two classes that is also by how much the probability of the "
    "right class changes, so that it does not matter which of them is meant. Mean ± standard "
    "deviation over examples; ties have average ranks. An example is left out where rho does not "
    "exist: fewer than three tokens, or nothing but ties."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Measure blank-out and all three methods on the held-out sentences."""
    variants = {"signed: a rise is below 0": lambda m: select(m, "blank_out", lambda v: v)}
    numbers, settings = correlations_with("blank_out", variants, options, progress)
    return Result(NAME, numbers, settings)


def render(result: Result) -> Report:
    """The paper's table with ours beside it, and what the paper lacks."""
    return report_correlations(result, TITLE, MEANING, PAPER)
