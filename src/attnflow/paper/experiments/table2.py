"""Table 2: rank correlation of raw attention, rollout and flow of [CLS] with input gradients."""

from functools import partial

from attnflow.paper.experiments.agreement import correlations_with
from attnflow.paper.experiments.agreement_report import report_correlations
from attnflow.paper.experiments.correlating import select
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report
from attnflow.paper.experiments.result import Result

NAME = "table2"
TITLE = "Table 2: correlation with input gradients"

# As printed in the paper, for 2,000 samples of its test set and its own model.
PAPER = {
    "raw": ("0.53±0.33", "0.16±0.38", "-0.06±0.42", "0.00±0.47", "0.24±0.40", "0.46±0.35"),
    "rollout": ("0.22±0.31", "0.27±0.32", "0.39±0.32", "0.47±0.32", "0.53±0.32", "0.54±0.31"),
    "flow": ("0.22±0.31", "0.31±0.34", "0.54±0.32", "0.61±0.28", "0.60±0.28", "0.61±0.28"),
}

MEANING = (
    "Spearman's rho between the scores of [CLS] over all input tokens and the length (l2) of the "
    "gradient of the predicted class's logit for each token's embedding. Mean ± standard deviation "
    "over examples; ties have average ranks; examples without a rho are left out.\n\n"
    "The authors' released scripts add the gradient up over the embedding and take the absolute "
    "value. For blocks that normalize their input first, as those of GPT-2 do, that sum is 0 "
    "whatever the text: adding a constant to all components of an embedding changes nothing that "
    "LayerNorm lets through, so that the gradient has no part in that direction. What is left of "
    "it are rounding errors. So the table uses the length, and the sum is only shown as a variant, "
    "beside gradient times input."
)

# What to call each variant, and its name where it is measured.
VARIANTS = {
    "gradient times input": "times_input",
    "sum (rounding errors)": "sum",
    "l2, of the probability": "l2 of probability",
    "l2, of the right class": "l2 of right class",
}


def run(options: Options, progress: Progress | None) -> Result:
    """Measure gradients and all three methods on the held-out sentences."""
    variants = {title: partial(select, name=name) for title, name in VARIANTS.items()}
    numbers, settings = correlations_with("l2", variants, options, progress)
    return Result(NAME, numbers, settings)


def render(result: Result) -> Report:
    """The paper's table with ours beside it, and what the paper lacks."""
    proof = (
        f"At most, it is {result.numbers['sum_over_l2']:.1g} of the gradient's length here, where "
        "a vector in a random direction would have a sum of about its length."
    )
    return report_correlations(result, TITLE, f"{MEANING} {proof}", PAPER)
