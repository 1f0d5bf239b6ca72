"""What docs/paper.md says about the results, around the tables that the experiments lay out.

Numbers come from the results. A statement that other numbers could make wrong is checked, and
writing the page fails if it no longer holds, so that nothing stays in the page that is not so.
"""

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

from attnflow.paper.experiments import table1, table2
from attnflow.paper.experiments.agreement import WITHOUT
from attnflow.paper.experiments.result import Result
from tools.paper_beyond import (
    comment_decoders,
    comment_edges,
    comment_residual,
    comment_trainings,
    point_to_trainings,
)
from tools.paper_claims import Results, expect
from tools.paper_figures import (
    comment_accuracy,
    comment_figure1,
    comment_figure2,
    comment_figure3,
    comment_figure4,
)

DENSE = "the authors' ranks"  # the variant of tables 1 and 2 with those

INTRODUCTION = """
# The paper, reproduced

<!-- Written by `python -m tools.write_paper` from docs/results; do not edit. -->

The tables and figures of Abnar and Zuidema, *Quantifying Attention Flow in Transformers* (ACL
2020), run anew on real sentences, with what the paper leaves open. Every number and picture comes
out of a command: `attnflow reproduce NAME` computes one of them and writes its result as JSON, and
`python -m tools.write_paper` makes this page of those. The data sets are not part of attnflow;
`attnflow data` says where each is published. Without them, `--data grammar` runs the agreement
experiments on sentences that are made up.

The paper's own weights are not published. Tables 1 and 2 are run on the verb-number model that
comes with attnflow, which has the paper's sizes and was trained anew, partly on other data and with
two helping tasks, for the sake of accuracy; its model card says how. So the numbers cannot be
expected to be the paper's. What can be compared is the shape of the tables, and below each one it
is said which of the paper's statements hold for this model too, as it is below each figure. The
last section shows the same tables for models that were trained without those tasks, as the paper's
was: there, all of these statements hold.

## How this differs from the authors' scripts

The authors released two scripts that compute correlations, both for DistilBERT: one for SST-2
(table 3), one for a masked language model on agreement sentences. That of the verb-number model of
tables 1 and 2 is not among them, so that what exactly was done there is not known. Read from the
two that exist:

- *Ties.* The script for SST-2 ranks densely, and puts the ranks into a formula that only holds
  without ties. The other one uses average ranks, counts an undefined correlation as 0, and does not
  empty its lists from one layer to the next, so that what it prints for a layer is the mean over
  all layers so far. Here ties have average ranks, undefined correlations are left out and counted,
  and every layer is by itself. Scores that differ by less than 1e-9 are tied, because equal flows
  differ by rounding.
- *Which position.* The script for SST-2 takes, for each token, the highest score that any position
  gives it. The other one means the row of the masked verb, but reads that of the token before it:
  the tokenizer puts [CLS] in front after the place was counted. Here it is the row of [CLS], as the
  paper says.
- *Which gradient.* Both add the gradient up over the embedding and take its absolute value, and
  take it for what the embedding module returns. Here it is the length of the gradient for the
  embedding of the word; table 2 says why. Of what the gradient is taken differs as well: a class's
  logit there, a difference of two verbs' probabilities in the other script; here the logit of the
  predicted class, with the probability and the right class as variants.
- *Blank-out.* The script puts [MASK] in a token's place and takes the absolute change of the
  difference between the two verbs' probabilities. Here it is [UNK], as the paper says, and the
  absolute change of a class's probability; the signed one is a variant.
- *Special tokens* count as tokens there and here; without them is a variant.
- *How many.* The script for SST-2 takes 101 sentences of the test set, as its count ends one late,
  and the other one 1,000 of the validation set; the paper says 100 and 2,000. Here they are 100 and
  all 872 of the development set of SST-2, and 2,000 agreement sentences.
"""


def means(result: Result, method: str, variant: str | None = None) -> list[float]:
    """The mean correlations by layer."""
    numbers: Any = result.numbers
    found = numbers["methods"] if variant is None else numbers["variants"][variant]
    return [float(value) for value in found[method]["mean"]]


def printed(module: ModuleType, method: str) -> list[float]:
    """The means that the paper prints."""
    return [float(cell.split("±")[0]) for cell in module.PAPER[method]]


def comment_table1(results: Results) -> str:
    result, saturation = results["table1"], results["saturation"].numbers["0.5"]
    raw, rollout, flow = (means(result, method) for method in ("raw", "rollout", "flow"))
    dense = means(result, "flow", DENSE)
    best = raw.index(max(raw)) + 1
    short = result.numbers["lengths"]["3"]["examples"] / result.settings["examples"]
    theirs = ", ".join(f"{value:.2f}" for value in printed(table1, "flow")[2:])
    expect(best > 1 and raw[-1] < 0.1, "raw attention is best in the middle and lost at the top")
    expect(rollout[-1] > rollout[0] + 0.2, "rollout climbs")
    expect(rollout[-1] < max(rollout), "rollout is past its best at the top")
    expect(all(f < r for f, r in list(zip(flow, rollout, strict=True))[2:]), "flow falls behind")
    expect(flow[1] > max(flow) - 0.05, "flow is near its best early")
    expect(saturation["between"][-1] < 0.01, "saturation decides the last layer")
    expect(dense[-1] > flow[-1] + 0.03, "dense ranks flatter flow")
    for method in ("raw", "rollout"):
        same = zip(means(result, method), means(result, method, DENSE), strict=True)
        expect(all(abs(a - b) < 0.005 for a, b in same), f"{method} has hardly any ties")
    return f"""
*As in the paper*, raw attention of the last layer says less about blank-out ({raw[-1]:.2f}) than
rollout and flow of that layer ({rollout[-1]:.2f} and {flow[-1]:.2f}), rollout climbs with depth,
from {rollout[0]:.2f} to {max(rollout):.2f}, and flow is near its best early: {flow[1]:.2f} at layer
2, {max(flow):.2f} at most.

*Other than in the paper*, raw attention does not fall after layer 1: it is best at layer {best}
({raw[best - 1]:.2f}), and only the last layer is lost. Which layer gathers what matters is up to
the weights: in the paper's model it is layer 1 ({printed(table1, "raw")[0]:.2f}), in this one later
layers. Rollout loses a little at the last layer. And flow does not stay at its best: it is below
rollout from layer 3 on.

*Why flow falls behind.* The experiment on saturation, below, shows what deep flow is: at the last
layer, {1 - saturation["between"][-1]:.1%} of tokens have a flow that equals what enters the token
at layer 1, or the most that can leave [CLS]. So deep flow ranks tokens by layer 1 alone, and
ties half of them ({saturation["source"][-1]:.0%}) at the top. Where layer 1 is the layer that
knows, that serves flow well, and it fits that the paper's flow is the same from layer 3 on
({theirs}). Here layer 1 knows little (raw attention: {raw[0]:.2f}). The paper's weights cannot be
looked at, but the trainings of the last section that learnt the number alone are of that kind too.

*Ranks matter.* With the dense ranks and the formula of the authors' script, flow at the last layer
comes out at {dense[-1]:.2f} in place of {flow[-1]:.2f}: the formula takes ties for agreement. Raw
attention and rollout have hardly any ties and stay as they are.

*Short texts* widen the standard deviations: {short:.0%} of the sentences are two words long, and
rho of three tokens is -1, -0.5, 0.5 or 1 if none tie. The table by number of tokens shows the rest.

{point_to_trainings(results, "blank_out")}
"""


def comment_table2(results: Results) -> str:
    result = results["table2"]
    rollout = means(result, "rollout")
    words = {method: means(result, method, WITHOUT) for method in ("raw", "rollout", "flow")}
    own = result.numbers["own"]
    middle = slice(1, 4)
    expect(min(words["rollout"][1:]) > max(words["raw"]), "rollout beats raw without [CLS]")
    expect(min(words["flow"][middle]) > max(words["raw"]), "flow beats raw without [CLS]")
    expect(words["flow"][2] == max(words["flow"]), "flow is at its best at layer 3 without [CLS]")
    expect(rollout[-1] < words["rollout"][-1] - 0.1, "[CLS] spoils the correlation")
    expect(all(b > a - 0.02 for a, b in pairwise(rollout)), "rollout climbs")
    expect(own["highest"]["rollout"][1] > own["highest"]["importance"] + 0.3, "[CLS] is on top")
    return f"""
*As in the paper*, rollout climbs from layer to layer, here from {rollout[0]:.2f} to
{rollout[-1]:.2f} (paper: {printed(table2, "rollout")[0]:.2f} to
{printed(table2, "rollout")[-1]:.2f}), and at the last layer rollout and flow are far better than
raw attention. *Other than in the paper*, raw attention is best in the middle layers, and flow is
behind rollout from layer 3 on; the comment on table 1 says why.

*[CLS] decides much of it.* By the residual connection, rollout of layer 2 gives [CLS] itself the
highest score in {own["highest"]["rollout"][1]:.0%} of texts, and that of the last layer still in
{own["highest"]["rollout"][-1]:.0%}; its gradient is the longest in
{own["highest"]["importance"]:.0%} and the shortest in {own["lowest"]["importance"]:.0%}. Among
words only, rollout comes to {max(words["rollout"]):.2f} and all but stays there
({words["rollout"][-1]:.2f} at the last layer), flow is at its best at layer 3
({words["flow"][2]:.2f}), and from layer 2 to 4 both are above raw attention of any layer
({max(words["raw"]):.2f} at most). That is the paper's shape, but for flow at depth, where it
saturates.

*Which gradient* matters more than which class: of the right class in place of the predicted one, or
of the probability in place of the logit, the numbers move little; gradient times input agrees much
less with attention of any kind. The sum of the gradient is no measure at all for a model of this
kind, as said above. That its rounding errors still correlate with attention a little only shows
that longer gradients have larger rounding errors.

{point_to_trainings(results, "l2")}
"""


def comment_table3(results: Results) -> str:
    numbers: Any = results["table3"].numbers
    found, first = numbers["all"]["methods"], numbers["first"]["[CLS]"]["raw"]
    raw, rollout, flow = (found[method]["mean"] for method in ("raw", "rollout", "flow"))
    theirs = numbers["all"]["ways"]["the authors' gradient and ranks, highest positions"]
    last = {method: theirs[method]["mean"][-1] for method in theirs}
    expect(raw[-1] > 0.4 and rollout[-1] < 0.1 and flow[-1] < -0.3, "raw attention is the best")
    expect(max(flow) - min(flow) < 0.02, "flow ranks tokens alike at every layer")
    expect(min(first[1:5]) > 0.7 and first[-1] < 0.3, "[CLS] attends to itself until the end")
    expect(last["flow"] > last["rollout"] > last["raw"], "the authors' way has the paper's order")
    return f"""
In the authors' way, this model gives the paper's picture: all correlations are low, and at the last
layer flow ({last["flow"]:.2f}) is before rollout ({last["rollout"]:.2f}) and raw attention
({last["raw"]:.2f}). From [CLS], and with the length of the gradient, the picture is the opposite:
raw attention of the last layer is far ahead ({raw[-1]:.2f}), rollout says nothing
({rollout[-1]:.2f}), and flow ranks tokens the wrong way round ({flow[-1]:.2f}). So table 3 depends
on how it is made more than tables 1 and 2 do.

A reason can be seen in the attention. In layers 2 to 5, [CLS] of this model spends
{min(first[1:5]):.0%} to {max(first[1:5]):.0%} of its attention on itself, and only at the last
layer does it turn to the words ({first[-1]:.0%}). The residual connection, counted as half, makes
that still more. So most of what rollout finds of words is what [CLS] saw of them in layer 1, and
what the layers above add to the flow of each word is so nearly the same for all that the ranks, and
with them the correlation, stay those of layer 1. The authors' script does not look from [CLS], and
so does not show this.
"""


# What is said, and after how many tables; at the end of the report if it is None.
COMMENTS: dict[str, tuple[Callable[[Results], str], int | None]] = {
    "accuracy": (comment_accuracy, None),
    "table1": (comment_table1, 2),
    "table2": (comment_table2, 2),
    "table3": (comment_table3, 2),
    "figure1": (comment_figure1, None),
    "figure2": (comment_figure2, None),
    "figure3": (comment_figure3, None),
    "figure4": (comment_figure4, None),
    "decoders": (comment_decoders, None),
    "edges": (comment_edges, None),
    "residual": (comment_residual, None),
    "trainings": (comment_trainings, None),
}
