"""The summary of docs/paper.md, and its comments on the tables.

Numbers come from the results. Statements that other numbers could contradict are checked with
`expect`: writing the page fails if one no longer holds.
"""

from statistics import median
from typing import Any

from attnflow.paper.experiments.accuracy import PAPER_ACCURACY
from attnflow.paper.experiments.agreement import WITHOUT_CLS
from attnflow.paper.experiments.agreement_tables import (
    CLAIMS,
    PAPER_TABLE1,
    PAPER_TABLE2,
    means_by_method,
    printed_means,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, Result
from attnflow.paper.experiments.table3 import AUTHORS_VARIANT
from tools.paper_claims import Results, expect

KINDS = {"blank_out": "table 1", "l2": "table 2"}


def write_summary(results: Results) -> str:
    """Return the main results, as a list."""
    models: Any = results["trainings"].numbers["models"]
    accuracies = [model["accuracy"] for model in models.values()]
    for name in ("table1", "table2"):
        means = means_by_method(results[name].numbers["methods"])
        expect(all(holds(means) for holds in CLAIMS.values()), f"all observations hold in {name}")
    accuracy = results["table1"].numbers["accuracy"]
    return f"""
- **Tables 1 and 2** have the paper's shape: all {len(CLAIMS)} observations of the paper hold for
  the bundled model, in both tables. {_count_claims(results)}
- **The correlations with blank-out are lower than the paper's**
  (see [all seeds](paper-appendix.md#beyond-the-paper-other-trainings):
  {_last(results, "blank_out", "rollout"):.2f} for rollout and
  {_last(results, "blank_out", "flow"):.2f} for flow at the last layer, medians over
  {len(models)} seeds; paper 0.71 and 0.70), and those with gradients are higher
  ({_last(results, "l2", "rollout"):.2f} and {_last(results, "l2", "flow"):.2f}; paper 0.54 and
  0.61).
- **Accuracy**: the bundled model predicts {accuracy:.1%} of 2,000 held-out sentences correctly
  (paper: {PAPER_ACCURACY:.0%}); the seeds have {min(accuracies):.1%} to {max(accuracies):.1%} on
  the first 500 of them.
- **Table 3** depends on the method: the authors' script gives the paper's order of methods, and
  scores of [CLS] with the norm of the gradient give the opposite order.
- **Figures 1 to 3** show the paper's story; figure 4 in part.
"""


def _count_claims(results: Results) -> str:
    """Return for how many of the other trainings each observation holds, as a sentence."""
    models: Any = results["trainings"].numbers["models"]
    failures = []
    for kind, table in KINDS.items():
        for claim, holds in CLAIMS.items():
            n = sum(not holds(means_by_method(model[kind])) for model in models.values())
            if n:
                failures.append(f'"{claim}" fails for {n} in {table}')
    if not failures:
        return f"They hold for all {len(models)} seeds."
    return f"Of {len(models)} seeds, {'; '.join(failures)}; all others hold for every seed."


def _last(results: Results, kind: str, method: str) -> float:
    """Return the median over seeds of a correlation at the last layer."""
    models: Any = results["trainings"].numbers["models"]
    return float(median(model[kind][method]["mean"][-1] for model in models.values()))


def _means(result: Result) -> list[list[float]]:
    """Return the mean correlations of raw attention, rollout and flow by layer."""
    numbers: Any = result.numbers
    return [[float(v) for v in numbers["methods"][method]["mean"]] for method in PAPER_METHODS]


def comment_table1(results: Results) -> str:
    result, saturation = results["table1"], results["saturation"].numbers["0.5"]
    raw, rollout, flow = _means(result)
    paper = printed_means(PAPER_TABLE1)
    extremes = result.numbers["cls_extremes"]
    words = result.numbers["variants"][WITHOUT_CLS]["rollout"]["mean"]
    expect(words[0] > 0.2 and words[-1] < rollout[-1], "[CLS] matters at layer 1 only")
    expect(rollout[-1] > rollout[0] + 0.2, "rollout increases with depth")
    expect(flow[2] > max(flow) - 0.05, "flow is near its maximum at layer 3")
    expect(saturation["between"][-1] < 0.01, "bounds decide flow at the last layer")
    expect(rollout[0] < paper["rollout"][0] - 0.2, "rollout of layer 1 is lower than the paper's")
    expect(extremes["lowest"]["importance"] > 0.3, "[CLS] is often the least important token")
    return f"""
*As in the paper*, raw attention is informative at layer 1 only ({raw[0]:.2f}); above it, it is
between {min(raw[1:]):.2f} and {max(raw[1:]):.2f}. Rollout climbs to {rollout[-1]:.2f}, and flow
is at {flow[2]:.2f} by layer 3 and stays there.

*What separates the rest.* At layer 1, [CLS] does: by the residual connection it has the highest
rollout of all tokens, but blanking it out changes the prediction less than any word in
{extremes["lowest"]["importance"]:.0%} of sentences, so rollout and flow of layer 1 are negative
({rollout[0]:.2f}; paper {paper["rollout"][0]:.2f}); among words only they have {words[0]:.2f}.
At the last layer it does not: among words only, rollout has {words[-1]:.2f}. There the length of
the training may matter: after the four epochs of this model, the loss was still decreasing.

*Flow is constant from layer 4 on* because it saturates: at the last layer,
{1 - saturation["between"][-1]:.1%} of tokens have a flow equal to the total weight that enters the
token at layer 1, or to the most that can leave [CLS]. Deep flow ranks tokens by layer 1. It is good
here because layer 1 attends to the important tokens, as it does in the paper.
"""


def comment_table2(results: Results) -> str:
    raw, rollout, flow = _means(results["table2"])
    paper = printed_means(PAPER_TABLE2)
    expect(flow[2] > rollout[2] + 0.1, "flow is ahead at layer 3")
    expect(rollout[-1] > paper["rollout"][-1], "correlations are higher than the paper's")
    return f"""
*As in the paper*, raw attention is highest at layer 1 ({raw[0]:.2f}), rollout increases from
layer to layer to {rollout[-1]:.2f}, and flow is ahead of it until layer 4 ({flow[2]:.2f} against
{rollout[2]:.2f} at layer 3). Here rollout overtakes flow at the end ({rollout[-1]:.2f} and
{flow[-1]:.2f}), while the paper has {paper["rollout"][-1]:.2f} and {paper["flow"][-1]:.2f}.
"""


def comment_table3(results: Results) -> str:
    numbers: Any = results["table3"].numbers
    raw, rollout, flow = (numbers["all"]["methods"][method]["mean"] for method in PAPER_METHODS)
    first = numbers["first_token_share"]["[CLS]"]["raw"]
    authors = numbers["all"]["variants"][AUTHORS_VARIANT]
    last = {method: summary["mean"][-1] for method, summary in authors.items()}
    expect(raw[-1] > 0.4 and rollout[-1] < 0.1 and flow[-1] < -0.3, "raw attention is highest")
    expect(min(first[1:5]) > 0.7 and first[-1] < 0.3, "[CLS] attends to itself until the end")
    expect(last["flow"] > last["rollout"] > last["raw"], "the authors' method gives their order")
    return f"""
With the method of the authors' script, this model shows the paper's pattern: all correlations are
low, and at the last layer flow ({last["flow"]:.2f}) is above rollout ({last["rollout"]:.2f}) and
raw attention ({last["raw"]:.2f}). With the scores of [CLS] and the norm of the gradient, the order
is the opposite: {raw[-1]:.2f} for raw attention, {rollout[-1]:.2f} for rollout and {flow[-1]:.2f}
for flow. In layers 2 to 5, [CLS] of this model puts {min(first[1:5]):.0%} to
{max(first[1:5]):.0%} of its attention on itself, so most of the rollout of a word comes from
layer 1, and flow adds nearly the same to every word. The authors' script does not use the row of
[CLS].
"""


def comment_accuracy(results: Results) -> str:
    models: Any = results["accuracy"].numbers["models"]
    first = models["verb-number"]["natural"]
    hard = models["verb-number"]["4 attractors"]["accuracy"]
    expect(first["low"] > PAPER_ACCURACY, "the model exceeds the paper's accuracy")
    expect(hard < first["accuracy"] - 0.03, "attractors make it harder")
    return f"""
"Held-out" means that the same sequence of words occurs nowhere in the training data. The
{first["examples"]:,} natural sentences include {first["unique"]:,} unique ones, and counting each
once gives {first["accuracy_unique"]:.3f}. Attractors mislead the model: with four of them the
accuracy is {hard:.3f}. `--data FILE` computes the same for any file in a format that attnflow
reads.
"""


def comment_decoders(results: Results) -> str:
    numbers: Any = results["decoders"].numbers
    first = numbers["first_token_share"]["plain"]["rollout"]
    plain, normalized = (
        {kind: numbers[kind][name]["rollout"]["mean"][-1] for kind in KINDS}
        for name in ("plain", "normalized")
    )
    expect(first[-1] > first[0] + 0.2, "the first token collects weight")
    expect(all(normalized[k] > plain[k] + 0.3 for k in KINDS), "normalization helps deep rollout")
    return f"""
The effect that the paper warns of occurs. The first token's share of rollout grows with depth, from
{first[0]:.0%} to {first[-1]:.0%}, and at the last layer plain rollout is no better than chance
({plain["blank_out"]:.2f} for blank-out). Normalized by the receptive field it has
{normalized["blank_out"]:.2f}, and {normalized["l2"]:.2f} for gradients. Deep rollout and flow of a
decoder should be normalized.
"""
