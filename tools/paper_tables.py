"""The summary of docs/paper.md, and its comments on the tables and the accuracy.

Numbers come from the results. Statements that other numbers could contradict are checked with
`expect`: writing the page fails if one no longer holds.
"""

from itertools import pairwise
from typing import Any

from attnflow.paper.experiments.accuracy import PAPER_ACCURACY
from attnflow.paper.experiments.agreement import DENSE_RANKS, WITHOUT_CLS
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
from tools.paper_variants import all_claims_hold, group_trainings, refer_to_trainings


def write_summary(results: Results) -> str:
    """Return the main results, as a list."""
    plain = group_trainings(results)["plain"]
    held = {
        name: sum(
            holds(means_by_method(results[name].numbers["methods"])) for holds in CLAIMS.values()
        )
        for name in ("table1", "table2")
    }
    expect(all_claims_hold(plain), "all observations hold for plain models")
    expect(max(held.values()) < len(CLAIMS), "not all observations hold for the bundled model")
    return f"""
- **Tables 1 and 2** are reproduced in pattern: for models trained only on the number of the verb,
  as in the paper, all {len(CLAIMS)} observations of the paper hold in both tables, for all
  {len(plain)} seeds ([other trainings](#beyond-the-paper-other-trainings)). For the bundled model,
  which is more accurate because it also learned auxiliary tasks, {held["table1"]} of them hold in
  table 1 and {held["table2"]} in table 2.
- **Table 3** depends on the method: the authors' script gives the paper's order of methods, and
  scores of [CLS] with the norm of the gradient give the opposite order.
- **Figures 1 to 4** agree with the paper in part; the text below each figure says where.
- **Deep flow saturates**: at the last layer it ranks tokens by layer 1 alone
  ([saturation](#beyond-the-paper-saturation-of-flow)).
"""


def _means(result: Result, method: str, variant: str | None = None) -> list[float]:
    """Return the mean correlations by layer."""
    numbers: Any = result.numbers
    methods = numbers["methods"] if variant is None else numbers["variants"][variant]
    return [float(value) for value in methods[method]["mean"]]


def comment_accuracy(results: Results) -> str:
    models: Any = results["accuracy"].numbers["models"]
    natural = {name: sets["natural"] for name, sets in models.items()}
    first, causal = natural["verb-number"], natural["verb-number-causal"]
    hard = models["verb-number"]["4 attractors"]["accuracy"]
    expect(
        min(first["low"], causal["low"]) > PAPER_ACCURACY, "both models exceed the paper's accuracy"
    )
    expect(abs(first["accuracy"] - first["accuracy_unique"]) < 0.005, "repetitions hardly matter")
    expect(hard < first["accuracy"] - 0.03, "attractors make it harder")
    return f"""
Both models are more accurate than the paper's ({PAPER_ACCURACY}), on other sentences of the same
kind, because of their auxiliary tasks (see other trainings). "Held-out" means that the same
sequence of words occurs nowhere in the training data. The {first["examples"]:,} natural sentences
include {first["unique"]:,} unique ones, and counting each once changes little
({first["accuracy_unique"]:.3f}). Attractors make the task harder: with four of them the accuracy is
{hard:.3f}. `--data FILE` computes the same for any file in a format that attnflow reads.
"""


def comment_table1(results: Results) -> str:
    result, saturation = results["table1"], results["saturation"].numbers["0.5"]
    raw, rollout, flow = (_means(result, method) for method in PAPER_METHODS)
    paper = printed_means(PAPER_TABLE1)
    dense = _means(result, "flow", DENSE_RANKS)
    best = raw.index(max(raw)) + 1
    short = result.numbers["lengths"]["3"]["examples"] / result.settings["examples"]
    paper_flow = ", ".join(f"{value:.2f}" for value in paper["flow"][2:])
    expect(best > 1 and raw[-1] < 0.1, "raw attention peaks in the middle and is low at the top")
    expect(rollout[-1] > rollout[0] + 0.2, "rollout increases with depth")
    expect(rollout[-1] < max(rollout), "rollout is below its maximum at the last layer")
    expect(all(f < r for f, r in list(zip(flow, rollout, strict=True))[2:]), "flow falls behind")
    expect(flow[1] > max(flow) - 0.05, "flow is near its maximum early")
    expect(saturation["between"][-1] < 0.01, "bounds decide flow at the last layer")
    expect(dense[-1] > flow[-1] + 0.03, "dense ranks favor flow")
    for method in ("raw", "rollout"):
        pairs = zip(_means(result, method), _means(result, method, DENSE_RANKS), strict=True)
        expect(all(abs(a - b) < 0.005 for a, b in pairs), f"{method} has hardly any ties")
    return f"""
*As in the paper*, raw attention of the last layer correlates less with blank-out ({raw[-1]:.2f})
than rollout and flow of that layer ({rollout[-1]:.2f} and {flow[-1]:.2f}). Rollout increases with
depth, from {rollout[0]:.2f} to {max(rollout):.2f}, and flow is near its maximum early:
{flow[1]:.2f} at layer 2, {max(flow):.2f} at most.

*Unlike in the paper*, raw attention does not drop after layer 1: it peaks at layer {best}
({raw[best - 1]:.2f}), and only the last layer is low. Which layer attends to the important tokens
depends on the weights: layer 1 in the paper's model ({paper["raw"][0]:.2f}), later layers in this
one. Rollout decreases a little at the last layer. Flow does not stay at its maximum, and is below
rollout from layer 3 on.

*Why flow falls behind.* At the last layer, {1 - saturation["between"][-1]:.1%} of tokens have a
flow equal to the total weight that enters the token at layer 1 or to the most that can leave [CLS]
(see the section on saturation). So deep flow ranks tokens by layer 1 alone, with
{saturation["source"][-1]:.0%} of them tied at the top. This helps flow if layer 1 attends to the
important tokens, and it fits the paper's flow, which is nearly constant from layer 3 on
({paper_flow}). In this model layer 1 does not (raw attention: {raw[0]:.2f}). The paper's weights
are not available, but the models of the section on other trainings that learned only the number of
the verb behave like the paper's.

*Ranks.* With the dense ranks and the formula of the authors' script, flow at the last layer has a
correlation of {dense[-1]:.2f} instead of {flow[-1]:.2f}, because the formula counts ties as
agreement. Raw attention and rollout have hardly any ties and do not change.

*Short texts* increase the standard deviations: {short:.0%} of the sentences have two words, and
with three tokens rho is -1, -0.5, 0.5 or 1 if none tie. The details include a table by number of
tokens.

{refer_to_trainings(results, "blank_out")}
"""


def comment_table2(results: Results) -> str:
    result = results["table2"]
    rollout, paper = _means(result, "rollout"), printed_means(PAPER_TABLE2)["rollout"]
    words = {method: _means(result, method, WITHOUT_CLS) for method in PAPER_METHODS}
    highest, lowest = (result.numbers["cls_extremes"][end] for end in ("highest", "lowest"))
    expect(min(words["rollout"][1:]) > max(words["raw"]), "rollout exceeds raw without [CLS]")
    expect(min(words["flow"][1:4]) > max(words["raw"]), "flow exceeds raw without [CLS]")
    expect(words["flow"][2] == max(words["flow"]), "flow peaks at layer 3 without [CLS]")
    expect(rollout[-1] < words["rollout"][-1] - 0.1, "[CLS] lowers the correlation")
    expect(all(b > a - 0.02 for a, b in pairwise(rollout)), "rollout increases with depth")
    expect(highest["rollout"][1] > highest["importance"] + 0.3, "[CLS] has the highest rollout")
    return f"""
*As in the paper*, rollout increases from layer to layer, from {rollout[0]:.2f} to
{rollout[-1]:.2f} (paper: {paper[0]:.2f} to {paper[-1]:.2f}), and at the last layer rollout and flow
are far above raw attention. *Unlike in the paper*, raw attention peaks in the middle layers, and
flow is below rollout from layer 3 on; the text below table 1 explains why.

*[CLS] has a large effect.* Because of the residual connection, rollout of layer 2 gives [CLS]
itself the highest score in {highest["rollout"][1]:.0%} of texts, and rollout of the last layer in
{highest["rollout"][-1]:.0%}. Its gradient has the highest norm in {highest["importance"]:.0%} and
the lowest in {lowest["importance"]:.0%}. Among words only, rollout reaches
{max(words["rollout"]):.2f} and nearly stays there ({words["rollout"][-1]:.2f} at the last layer),
flow peaks at layer 3 ({words["flow"][2]:.2f}), and from layer 2 to 4 both exceed raw attention of
any layer ({max(words["raw"]):.2f} at most). That is the paper's pattern, except for deep flow,
which saturates.

*Which gradient* matters more than which class. Using the true class instead of the predicted one,
or the probability instead of the logit, changes little; gradient times input correlates much less
with all methods. The sum of the gradient is meaningless for a model with LayerNorm before its
blocks, as explained above. Its rounding errors correlate weakly with attention because larger
gradients have larger rounding errors.

{refer_to_trainings(results, "l2")}
"""


def comment_table3(results: Results) -> str:
    numbers: Any = results["table3"].numbers
    raw, rollout, flow = (numbers["all"]["methods"][method]["mean"] for method in PAPER_METHODS)
    first = numbers["first_token_share"]["[CLS]"]["raw"]
    authors = numbers["all"]["variants"][AUTHORS_VARIANT]
    last = {method: summary["mean"][-1] for method, summary in authors.items()}
    expect(raw[-1] > 0.4 and rollout[-1] < 0.1 and flow[-1] < -0.3, "raw attention is highest")
    expect(max(flow) - min(flow) < 0.02, "flow ranks tokens alike at every layer")
    expect(min(first[1:5]) > 0.7 and first[-1] < 0.3, "[CLS] attends to itself until the end")
    expect(last["flow"] > last["rollout"] > last["raw"], "the authors' method gives their order")
    return f"""
With the method of the authors' script, this model shows the paper's pattern: all correlations are
low, and at the last layer flow ({last["flow"]:.2f}) is above rollout ({last["rollout"]:.2f}) and
raw attention ({last["raw"]:.2f}). With the scores of [CLS] and the norm of the gradient, the order
is the opposite: raw attention of the last layer is far ahead ({raw[-1]:.2f}), rollout is close to 0
({rollout[-1]:.2f}), and flow is negative ({flow[-1]:.2f}). Table 3 depends on the method more than
tables 1 and 2 do.

The attention weights suggest a reason. In layers 2 to 5, [CLS] of this model puts
{min(first[1:5]):.0%} to {max(first[1:5]):.0%} of its attention on itself; only at the last layer
does it attend to the words (itself: {first[-1]:.0%}). The residual connection, with a weight of
one half, increases this further. So most of the rollout of a word comes from layer 1. The layers
above add nearly the same flow to every word, so the ranks, and with them the correlation, stay
those of layer 1. The authors' script does not use the row of [CLS] and therefore does not show
this effect.
"""
