"""The comments of docs/paper.md on experiments beyond the paper; see tools/paper_tables.py."""

from typing import Any

from attnflow.paper.experiments.agreement import WITHOUT_CLS
from attnflow.paper.experiments.agreement_tables import (
    CLAIMS,
    FLOW_NOT_BELOW_ROLLOUT,
    RAW_HIGHEST_FIRST,
    means_by_method,
)
from attnflow.paper.experiments.experiment import PAPER_METHODS
from tools.paper_claims import Results, expect

KINDS = {"blank_out": "blank-out", "l2": "gradients"}
TRAINING = {"plain": "only on the number of the verb", "helped": "with auxiliary tasks"}


def comment_decoders(results: Results) -> str:
    numbers: Any = results["decoders"].numbers
    first = numbers["first_token_share"]["plain"]["rollout"]
    plain, normalized, raw = {}, {}, {}
    for kind in KINDS:
        for method in ("rollout", "flow"):
            plain[kind, method] = numbers[kind]["plain"][method]["mean"]
            normalized[kind, method] = numbers[kind]["normalized"][method]["mean"]
        raw[kind] = numbers[kind]["plain"]["raw"]["mean"]
    words = {
        (kind, method): numbers[kind][f"normalized, {WITHOUT_CLS}"][method]["mean"][-1]
        for kind in KINDS
        for method in PAPER_METHODS
    }
    _check_decoders(first, plain, normalized, raw, words)
    return f"""
The effect that the paper warns of occurs. The first token's share of rollout grows with depth, from
{first[0]:.0%} to {first[-1]:.0%}, and at the last layer plain rollout and flow are no better than
chance: {plain["blank_out", "rollout"][-1]:.2f} and {plain["blank_out", "flow"][-1]:.2f} for
blank-out. Normalized by the receptive field, they reach
{normalized["blank_out", "rollout"][-1]:.2f} and {normalized["blank_out", "flow"][-1]:.2f} for
blank-out, and {normalized["l2", "rollout"][-1]:.2f} and {normalized["l2", "flow"][-1]:.2f} for
gradients. So deep rollout and flow of a decoder should be
normalized. At layer 1, where the first token has not collected weight over layers, normalization
lowers the correlation. Whether normalized scores are better than raw attention of the last layer
depends on [CLS]. If it counts as a token, raw attention is ahead in both tables
({raw["blank_out"][-1]:.2f} and {raw["l2"][-1]:.2f}). Among words only, normalized rollout is ahead
for blank-out ({words["blank_out", "rollout"]:.2f}; raw {words["blank_out", "raw"]:.2f}), and
normalized flow for gradients ({words["l2", "flow"]:.2f}; raw {words["l2", "raw"]:.2f}).
"""


def _check_decoders(first: Any, plain: Any, normalized: Any, raw: Any, words: Any) -> None:
    expect(first[-1] > first[0] + 0.2, "the first token collects weight")
    expect(max(means[-1] for means in plain.values()) < 0.1, "deep plain scores are uninformative")
    expect(
        all(normalized[key][-1] > plain[key][-1] + 0.3 for key in plain), "normalization helps deep"
    )
    expect(all(normalized[key][0] < plain[key][0] for key in plain), "it does harm at layer 1")
    expect(
        all(raw[kind][-1] > means[-1] for (kind, _), means in normalized.items()),
        "raw attention is highest at the last layer",
    )
    expect(
        words["blank_out", "rollout"] > words["blank_out", "raw"] > words["blank_out", "flow"],
        "among words, rollout is ahead for blank-out",
    )
    expect(
        words["l2", "flow"] > words["l2", "raw"] > words["l2", "rollout"],
        "among words, flow is ahead for gradients",
    )


def comment_edges(results: Results) -> str:
    numbers: Any = results["edges"].numbers

    def means(kind: str, edges: str, method: str) -> list[float]:
        return [float(value) for value in numbers[kind][edges][method]["mean"]]

    def better_layers(kind: str, edges: str, method: str) -> list[int]:
        pairs = zip(means(kind, edges, method), means(kind, "attention", method), strict=True)
        return [i + 1 for i, (other, plain) in enumerate(pairs) if other > plain + 0.01]

    long = {
        edges: numbers["blank_out_long"][edges]["rollout"]["mean"][-1]
        for edges in ("attention", "effective")
    }
    layers = {kind: ", ".join(map(str, better_layers(kind, "value", "rollout"))) for kind in KINDS}
    for kind in KINDS:
        for method in ("rollout", "flow"):
            expect(not better_layers(kind, "effective", method), "effective attention is no better")
            expect(
                not better_layers(kind, "gradient_rescaled", method),
                "rescaled gradient edges are no better",
            )
        expect(bool(layers[kind]), "value-weighted edges are better for rollout at some layers")
    flows = {edges: means("l2", edges, "flow") for edges in ("attention", "value")}
    expect(
        flows["value"][2] > flows["attention"][2] + 0.2, "value-weighted flow is good at layer 3"
    )
    expect(means("blank_out", "value", "flow")[-1] < 0.1, "deep value-weighted flow is low")
    expect(
        means("blank_out", "gradient", "flow")[-1] > means("blank_out", "attention", "flow")[-1],
        "published gradient edges help deep flow for blank-out",
    )
    last = {
        (kind, edges): means(kind, edges, "rollout")[-1]
        for kind in KINDS
        for edges in ("attention", "norm", "contribution", "alti")
    }
    for kind in KINDS:
        expect(last[kind, "alti"] < last[kind, "attention"], "ALTI edges are worse for rollout")
    deep = {edges: means("blank_out", edges, "flow")[-1] for edges in ("attention", "gradient")}
    return f"""
No edge weighting is better everywhere. Effective attention is slightly worse for every method, and
more so in long texts, where it can differ from attention: rollout of the last layer drops from
{long["attention"]:.2f} to {long["effective"]:.2f} for blank-out. A possible reason is its negative
weights, of which the graph uses absolute values. Gradient-weighted edges with rescaled rows are
worse for rollout and flow at every layer; as published, without rescaling, they raise the flow of
the last layer from {deep["attention"]:.2f} to {deep["gradient"]:.2f} for blank-out. Value-weighted
edges are better for rollout at layers {layers["blank_out"]}
for blank-out and {layers["l2"]} for gradients, and not at the others. For flow they are much better
for gradients at layer 3 ({flows["value"][2]:.2f} instead of {flows["attention"][2]:.2f}), and far
worse for blank-out from layer 4 on. Edges that contain the residual connection, which LLMs need
([Edges](edges.md)), do not help this small encoder: the rollout of the last layer with ALTI edges
reaches {last["blank_out", "alti"]:.2f} for blank-out and {last["l2", "alti"]:.2f} for gradients,
with plain attention {last["blank_out", "attention"]:.2f} and {last["l2", "attention"]:.2f}. GlobEnc
equals the norm with residual here, because the model normalizes before each block. For this model,
plain attention is the safe choice, and value-weighted edges are worth trying.
"""


def comment_residual(results: Results) -> str:
    numbers: Any = results["residual"].numbers
    rollout, flow = (
        {kind: [s[method]["mean"][-1] for s in numbers[kind].values()] for kind in KINDS}
        for method in ("rollout", "flow")
    )
    half = [*numbers["l2"]].index("0.5")
    for kind in KINDS:
        best = max(rollout[kind][half : half + 2])
        expect(best == max(rollout[kind]), "rollout is best at 0.5 or 0.6")
        small = flow[kind][: half + 1]
        expect(max(small) - min(small) < 0.005, "deep flow is constant up to 0.5")
    expect(flow["blank_out"][-1] > flow["blank_out"][half] + 0.05, "0.9 is better for blank-out")
    expect(flow["l2"][-1] < flow["l2"][half] - 0.1, "0.9 is worse for gradients")
    return f"""
At the last layer, rollout is best at the paper's 0.5 or slightly above, in both tables, and lower
on either side. Deep flow is constant up to 0.5, where it is saturated. Larger weights prevent
saturation, which raises the correlation of flow with blank-out ({flow["blank_out"][half]:.2f} to
{flow["blank_out"][-1]:.2f} at 0.9) and lowers that with gradients ({flow["l2"][half]:.2f} to
{flow["l2"][-1]:.2f}). No weight is best for everything; 0.5 is a reasonable choice.
"""


def comment_trainings(results: Results) -> str:
    """Count the models of each kind for which the paper's observations hold."""
    groups = group_trainings(results)
    columns = [f"{group}, {title}" for title in KINDS.values() for group in groups]
    rows = [f"| | {' | '.join(columns)} |", "| --- " + "| ---: " * len(columns) + "|"]
    for claim, holds in CLAIMS.items():
        cells = []
        for kind in KINDS:
            for models in groups.values():
                held = [holds(means_by_method(model[kind])) for model in models]
                cells.append(f"{sum(held)} of {len(held)}")
        rows.append(f"| {claim} | {' | '.join(cells)} |")
    expect(all_claims_hold(groups["plain"]), "all observations hold for plain models")
    expect(not all_claims_hold(groups["helped"]), "not all hold for the others")
    descriptions = [_describe_group(group, models) for group, models in groups.items() if models]
    table = "\n".join(rows)
    return f"""
The number of models for which each observation of the paper holds:

{table}

For the models that learned only the number of the verb, all of them hold, in both tables and with
every seed. So the paper's tables are reproduced in pattern, and the differences in tables 1 and 2
come from the auxiliary tasks, not from the measurement: a model that also learned to predict words
attends to the important tokens in later layers, is more accurate, and is explained less well by
deep flow. {" ".join(descriptions)}
"""


def _describe_group(group: str, models: list[Any]) -> str:
    """Return a sentence with the accuracies and the mean correlations of a group of models."""
    accuracies = [model["accuracy"] for model in models]
    correlations = [
        f"{method} {_average(models, method, 0):.2f} at layer 1, "
        f"{_average(models, method, 2):.2f} at layer 3 and "
        f"{_average(models, method, -1):.2f} at the last"
        for method in PAPER_METHODS
    ]
    return (
        f"Models trained {TRAINING[group]} have an accuracy of {min(accuracies):.3f} to "
        f"{max(accuracies):.3f}; their mean correlations with gradients are: "
        f"{'; '.join(correlations)}."
    )


def _average(models: list[Any], method: str, layer: int) -> float:
    """Return the mean correlation with gradients over models."""
    return sum(float(model["l2"][method]["mean"][layer]) for model in models) / len(models)


def group_trainings(results: Results) -> dict[str, list[Any]]:
    """Return the numbers of models by how they were trained, which their names begin with."""
    groups: dict[str, list[Any]] = {"plain": [], "helped": []}
    for name, numbers in results["trainings"].numbers["models"].items():
        groups["plain" if name.startswith("plain") else "helped"].append(numbers)
    return groups


def all_claims_hold(models: list[Any]) -> bool:
    """Return whether every observation holds for every model, in both tables."""
    return all(
        holds(means_by_method(model[kind]))
        for model in models
        for kind in KINDS
        for holds in CLAIMS.values()
    )


def refer_to_trainings(results: Results, kind: str) -> str:
    """Return a sentence on the models trained without auxiliary tasks, if there are results."""
    plain = group_trainings(results)["plain"] if "trainings" in results else []
    if not plain:
        return ""
    means = [means_by_method(model[kind]) for model in plain]
    raw = sum(CLAIMS[RAW_HIGHEST_FIRST](columns) for columns in means)
    flow = sum(CLAIMS[FLOW_NOT_BELOW_ROLLOUT](columns) for columns in means)
    return (
        "*Other trainings.* For models trained without the auxiliary tasks of the bundled model, "
        f"raw attention is highest at layer 1 in {raw} of {len(plain)}, and flow is at "
        f"least as high as rollout at every layer in {flow}."
    )
