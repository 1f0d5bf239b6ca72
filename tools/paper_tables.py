"""The summary of docs/paper.md, and its comments on the tables.

Numbers come from the results. Statements that other numbers could contradict are checked with
`expect`: writing the page fails if one no longer holds.
"""

from collections.abc import Mapping
from statistics import median
from typing import Any

from attnflow.paper.experiments.accuracy import PAPER_ACCURACY
from attnflow.paper.experiments.agreement import WITHOUT_CLS
from attnflow.paper.experiments.agreement_tables import (
    CLAIMS,
    PAPER_TABLE1,
    PAPER_TABLE2,
    TOLERANCE,
    means_by_method,
    median_means,
    printed_means,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS, Result
from attnflow.paper.experiments.report import Table, format_number, parts_to_markdown
from attnflow.paper.experiments.table3 import AUTHORS_VARIANT
from tools.paper_claims import Results, expect

KINDS = {"blank_out": "table 1", "l2": "table 2"}


def write_summary(results: Results) -> str:
    """Return the main results, as a list."""
    models: Any = results["trainings"].numbers["models"]
    accuracies = [model["accuracy"] for model in models.values()]
    accuracy = results["table1"].numbers["accuracy"]
    n = results["trainings"].settings["examples"]
    expect(n == results["table1"].settings["examples"], "the seeds have the sentences of table 1")
    for means in _means_of_seeds(results).values():
        failed = [name for name, holds in CLAIMS.items() if not holds(median_means(means))]
        expect(not failed, "all observations hold for the median of the seeds")
    return f"""
- **Tables 1 and 2** show the paper's main result: raw attention loses its meaning with depth, and
  rollout and flow do not. All {len(CLAIMS)} observations of the paper hold in both tables for the
  median of {len(models)} seeds (table below). On the development set, one fails in table 2: flow
  loses 0.03. The model's card says how recipe and seed were chosen.
- **Correlations at the last layer**, medians over {len(models)} seeds ([all of
  them](paper-appendix.md#beyond-the-paper-other-trainings)): with blank-out
  {_last(results, "blank_out", "rollout")} for rollout and {_last(results, "blank_out", "flow")}
  for flow (paper 0.71 and 0.70), with gradients {_last(results, "l2", "rollout")} and
  {_last(results, "l2", "flow")} (paper 0.54 and 0.61).
- **Accuracy**: the bundled model predicts
  {accuracy:.1%} of {n:,} held-out sentences correctly (paper: {PAPER_ACCURACY:.0%}); the seeds
  have {min(accuracies):.1%} to {max(accuracies):.1%}.
- **Table 3** depends on the method, for DistilBERT and for MiniLM: the authors' script gives the
  paper's order of methods, and scores of [CLS] with the norm of the gradient put raw attention
  first.
- **Figures 1 and 3** show the paper's story, figures 2 and 4 in part.

{claims_table(results)}
"""


def claims_table(results: Results) -> str:
    """Return which observations hold: for the bundled model, the median, and how many seeds."""
    columns = []
    for table, means in _means_of_seeds(results).items():
        bundled = means_by_method(results[table.replace(" ", "")].numbers["methods"])
        columns.append((bundled, median_means(means), list(means.values())))
    rows = [
        (
            claim,
            *(
                f"{_yes(holds(bundled))}, {_yes(holds(middle))}, {sum(map(holds, seeds))}"
                for bundled, middle, seeds in columns
            ),
        )
        for claim, holds in CLAIMS.items()
    ]
    caption = (
        f"Which of the paper's observations hold (within {TOLERANCE}): for the bundled model, for "
        f"the median of {len(columns[0][-1])} seeds, and for how many seeds"
    )
    [_, table] = parts_to_markdown([Table(caption, ("", *KINDS.values()), tuple(rows))])
    return f"{caption}:\n\n{table}"


def _means_of_seeds(results: Results) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return the mean correlations of each seed, by table."""
    models: Any = results["trainings"].numbers["models"]
    return {
        table: {name: means_by_method(model[kind]) for name, model in models.items()}
        for kind, table in KINDS.items()
    }


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _last(results: Results, kind: str, method: str) -> str:
    """Return the median over seeds of a correlation at the last layer, with the range."""
    models: Any = results["trainings"].numbers["models"]
    values = [model[kind][method]["mean"][-1] for model in models.values()]
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


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
    groups = [means_by_method(group["methods"]) for group in result.numbers["lengths"].values()]
    short, long = groups[1], groups[-1]
    lengths = list(result.numbers["lengths"])
    expect(rollout[0] < paper["rollout"][0] - 0.2, "rollout of layer 1 is lower than the paper's")
    expect(words[0] > rollout[0] + 0.3, "[CLS] matters at layer 1")
    expect(extremes["lowest"]["importance"] > 0.3, "[CLS] is often the least important token")
    expect(raw[0] > max(raw[1:]) + 0.3 and raw[-1] < 0.15, "raw attention decreases with depth")
    expect(flow[2] > max(flow) - 0.1, "flow is near its maximum at layer 3")
    expect(saturation["between"][-1] < 0.05, "bounds decide flow at the last layer")
    expect(
        min(short[m][-1] for m in ("rollout", "flow")) > 0.68, "short texts are like the paper's"
    )
    expect(max(long["raw"]) < 0.3, "in long texts, no layer attends to what matters")
    return f"""
*As in the paper*, raw attention is best at layer 1 ({raw[0]:.2f}) and uninformative at the last
({raw[-1]:.2f}), rollout climbs to {rollout[-1]:.2f}, and flow is at {flow[2]:.2f} by layer 3.

*What separates the rest: long sentences.* With {lengths[1]} tokens, the last layer has
{short["rollout"][-1]:.2f} for rollout and {short["flow"][-1]:.2f} for flow, as in the paper; with
{lengths[-1]}, {long["rollout"][-1]:.2f} and {long["flow"][-1]:.2f}. Raw attention of [CLS] has at
most {max(long["raw"]):.2f} there at any layer; in short ones, {short["raw"][0]:.2f} at layer 1.
Deep flow depends on the first and the last layer only: at the last layer,
{1 - saturation["between"][-1]:.0%} of tokens have a flow equal to all the weight that enters them
at layer 1, or to the most that can leave [CLS].
{_compare_seeds(results)}
*At the first layers*, [CLS] itself does. By the residual connection it has the highest rollout of
all tokens at layer 1, but blanking it out changes the prediction less than any word in
{extremes["lowest"]["importance"]:.0%} of sentences. So rollout and flow are {rollout[0]:.2f}
(paper {paper["rollout"][0]:.2f}); among words only, {words[0]:.2f}. At layer 2 it still has the
highest flow in {extremes["highest"]["flow"][1]:.0%} of sentences.
"""


def _compare_seeds(results: Results) -> str:
    """Say which observation fails for most seeds, by how much, and why."""
    losses = [
        sorted(max(means["flow"]) - means["flow"][-1] for means in seeds.values())
        for seeds in _means_of_seeds(results).values()
    ]
    fails = [sum(loss > TOLERANCE for loss in seeds) for seeds in losses]
    n = len(losses[0])
    expect(fails[0] < n / 2 < fails[1], "flow stays at its maximum in most seeds of table 1")
    expect(losses[1][-1] < 0.1, "flow loses little")
    behind = [_behind_rollout(means) for means in _means_of_seeds(results)["table 2"].values()]
    behind = [share for share in behind if share > TOLERANCE]
    return f"""
*Where seeds differ.* The observation that fails most often is that flow stays at its maximum: in
{fails[0]} of {n} seeds of table 1 and {fails[1]} of table 2. These lose up to {losses[0][-1]:.2f}
and {losses[1][-1]:.2f}: deeper layers saturate the flow of more tokens, which makes them equal.
In {len(behind)} seeds of table 2, flow is up to {max(behind):.2f} below rollout at layers 2 to 4.
"""


def _behind_rollout(means: Mapping[str, list[float]]) -> float:
    """Return how far flow is below rollout at layers 2 to 4, at most."""
    pairs = zip(means["rollout"][1:4], means["flow"][1:4], strict=True)
    return max(rollout - flow for rollout, flow in pairs)


def comment_table2(results: Results) -> str:
    raw, rollout, flow = _means(results["table2"])
    paper = printed_means(PAPER_TABLE2)
    expect(flow[2] > rollout[2] + 0.05, "flow is ahead at layer 3")
    expect(rollout[-1] > paper["rollout"][-1] + 0.05, "correlations are higher than the paper's")
    return f"""
*As in the paper*, raw attention is highest at layer 1 ({raw[0]:.2f}), rollout increases to
{rollout[-1]:.2f}, and flow is ahead of it at layer 3 ({flow[2]:.2f} against {rollout[2]:.2f}).
Here rollout overtakes flow at the end ({rollout[-1]:.2f} and {flow[-1]:.2f}; paper
{paper["rollout"][-1]:.2f} and {paper["flow"][-1]:.2f}).
"""


def comment_table3(results: Results) -> str:
    models: Any = results["table3"].numbers["models"]
    script = [_last_layer(m["all"]["variants"][AUTHORS_VARIANT]) for m in models.values()]
    ours = [_last_layer(m["all"]["methods"]) for m in models.values()]
    best = [_best_edges(numbers["edges"]) for numbers in models.values()]
    first = models["minilm-sst2"]["first_token_share"]["raw"][1:5]
    expect(all(m["flow"] > m["rollout"] > m["raw"] for m in script), "the script gives its order")
    expect(all(m["raw"] > max(m["rollout"], m["flow"]) for m in ours), "raw attention is highest")
    expect(min(first) > 0.7, "[CLS] of MiniLM attends to itself")
    expect(ours[1]["flow"] < -0.3 < 0.2 < ours[0]["flow"], "flow differs between the models")
    return f"""
distilbert-sst2 is not the paper's checkpoint, which is not at hand: it is distilbert-base-cased,
from a package that holds it with weights of 8 bits and tuned to tag grammatical errors, then
fine-tuned on SST-2 ([how](models.md#distilbert)).

By the method of the authors' script ([appendix](paper-appendix.md#details-of-table-3)), both
models show the paper's pattern: correlations are low, and at the last layer flow
({_pair(script, "flow")}) is above rollout ({_pair(script, "rollout")}) and raw attention
({_pair(script, "raw")}). With the scores of [CLS] and the norm of the gradient, raw attention is
highest ({_pair(ours, "raw")}). Flow of MiniLM is negative: in layers 2 to 5, its [CLS] puts
{min(first):.0%} to {max(first):.0%} of its attention on itself, so flow adds nearly the same to
every word. Other edges help: {" and ".join(best)}.
"""


def _last_layer(summaries: Any) -> dict[str, float]:
    """Return the mean correlation at the last layer by method."""
    return {method: float(summaries[method]["mean"][-1]) for method in PAPER_METHODS}


def _pair(models: list[dict[str, float]], method: str) -> str:
    return " and ".join(format_number(model[method]) for model in models)


def _best_edges(summaries: Any) -> str:
    """Return the edges, and the method on them, with the highest correlation at the last layer."""
    means = {
        f"{method} on {edges}": _last_layer(methods)[method]
        for edges, methods in summaries.items()
        for method in ("rollout", "flow")
    }
    best = max(means, key=lambda name: means[name])
    return f"{best} ({means[best]:.2f})"


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
The effect that the paper warns of occurs. The first token's share of rollout grows with depth,
from {first[0]:.0%} to {first[-1]:.0%}, and at the last layer plain rollout is no better than
chance ({plain["blank_out"]:.2f} for blank-out). Normalized by the receptive field it has
{normalized["blank_out"]:.2f}, and {normalized["l2"]:.2f} for gradients. Deep rollout and flow of
a decoder should be normalized.
"""
