"""What docs/paper.md says about what goes beyond the paper; see tools/paper_comments.py."""

from typing import Any

from attnflow.paper.experiments.agreement_report import CLAIMS
from attnflow.paper.experiments.measuring import METHODS
from tools.paper_claims import Results, expect

KINDS = {"blank_out": "blank-out", "l2": "gradients"}
TRAINED = {"plain": "for the number alone, as in the paper,", "helped": "with helping tasks"}


def comment_decoders(results: Results) -> str:
    numbers: Any = results["decoders"].numbers
    first = numbers["first"]["plain"]["rollout"]
    plain, normalized, raw = {}, {}, {}
    for kind in ("blank_out", "l2"):
        for method in ("rollout", "flow"):
            plain[kind, method] = numbers[kind]["plain"][method]["mean"]
            normalized[kind, method] = numbers[kind]["normalized"][method]["mean"]
        raw[kind] = numbers[kind]["plain"]["raw"]["mean"]
    words = {
        (kind, method): numbers[kind]["normalized, without [CLS]"][method]["mean"][-1]
        for kind in ("blank_out", "l2")
        for method in METHODS
    }
    expect(first[-1] > first[0] + 0.2, "the first token collects weight")
    expect(max(plain[key][-1] for key in plain) < 0.1, "deep scores are lost without normalizing")
    expect(
        all(normalized[key][-1] > plain[key][-1] + 0.3 for key in plain), "normalizing helps deep"
    )
    expect(all(normalized[key][0] < plain[key][0] for key in plain), "and harms at layer 1")
    expect(
        all(raw[kind][-1] > normalized[kind, method][-1] for kind, method in normalized),
        "raw attention is better than both at the last layer",
    )
    expect(
        words["blank_out", "rollout"] > words["blank_out", "raw"] > words["blank_out", "flow"],
        "among words, rollout is ahead against blank-out",
    )
    expect(
        words["l2", "flow"] > words["l2", "raw"] > words["l2", "rollout"],
        "among words, flow is ahead against gradients",
    )
    return f"""
What the paper warns of is there. The first token's share of rollout grows with depth, from
{first[0]:.0%} to {first[-1]:.0%}, and at the last layer rollout and flow as they are rank tokens no
better than chance, or the wrong way round: {plain["blank_out", "rollout"][-1]:.2f} and
{plain["blank_out", "flow"][-1]:.2f} against blank-out. Normalized by the receptive field they come
to {normalized["blank_out", "rollout"][-1]:.2f} and {normalized["blank_out", "flow"][-1]:.2f}, and
to {normalized["l2", "rollout"][-1]:.2f} and {normalized["l2", "flow"][-1]:.2f} against gradients.
So deep rollout and flow of a decoder should be normalized. At layer 1, where weight had no layers
to gather over, it does harm. Whether it makes them better than raw attention of the last layer
depends on [CLS]: if it counts as a token, raw attention is ahead against both
({raw["blank_out"][-1]:.2f} and {raw["l2"][-1]:.2f}); among words only, normalized rollout is ahead
against blank-out ({words["blank_out", "rollout"]:.2f}; raw {words["blank_out", "raw"]:.2f}), and
normalized flow against gradients ({words["l2", "flow"]:.2f}; raw {words["l2", "raw"]:.2f}).
"""


def comment_edges(results: Results) -> str:
    numbers: Any = results["edges"].numbers

    def mean(kind: str, edges: str, method: str) -> list[float]:
        return [float(value) for value in numbers[kind][edges][method]["mean"]]

    def better(kind: str, edges: str, method: str) -> list[int]:
        pairs = zip(mean(kind, edges, method), mean(kind, "attention", method), strict=True)
        return [i + 1 for i, (other, plain) in enumerate(pairs) if other > plain + 0.01]

    long = {
        edges: numbers["blank_out long"][edges]["rollout"]["mean"][-1]
        for edges in ("attention", "effective")
    }
    layers = {
        kind: ", ".join(map(str, better(kind, "value", "rollout"))) for kind in ("blank_out", "l2")
    }
    for kind in ("blank_out", "l2"):
        for method in ("rollout", "flow"):
            expect(not better(kind, "effective", method), "effective attention is no better")
            expect(not better(kind, "gradient", method), "gradient edges are no better")
        expect(bool(layers[kind]), "value-weighted edges are better for rollout somewhere")
    flows = {edges: mean("l2", edges, "flow") for edges in ("attention", "value")}
    expect(
        flows["value"][2] > flows["attention"][2] + 0.2, "value-weighted flow is good at layer 3"
    )
    expect(mean("blank_out", "value", "flow")[-1] < 0.1, "value-weighted flow is lost at depth")
    return f"""
None of the edges is better throughout. Effective attention is a little worse for every method, and
more so where it can differ at all: rollout of the last layer against blank-out falls from
{long["attention"]:.2f} to {long["effective"]:.2f} for long texts. Its negative parts, of which the
graph can only take the size, may be a reason. Gradient-weighted edges are worse for rollout and
flow at every layer. Value-weighted edges are better for rollout at layers {layers["blank_out"]}
against blank-out and {layers["l2"]} against gradients, and no better at the others. For flow they
are much better against gradients at layer 3 ({flows["value"][2]:.2f} in place of
{flows["attention"][2]:.2f}), and far worse against blank-out from layer 4 on. For this model, plain
attention is the safe choice, and value-weighted edges the ones worth trying.
"""


def comment_residual(results: Results) -> str:
    numbers: Any = results["residual"].numbers

    def last(kind: str, method: str, weight: str) -> float:
        return float(numbers[kind][weight][method]["mean"][-1])

    rollout, flow = (
        {kind: [last(kind, method, w) for w in numbers[kind]] for kind in KINDS}
        for method in ("rollout", "flow")
    )
    half = [*numbers["l2"]].index("0.5")
    for kind in KINDS:
        near = max(rollout[kind][half : half + 2])
        expect(near == max(rollout[kind]), "rollout is best at 0.5 or 0.6")
        level = flow[kind][: half + 1]
        expect(max(level) - min(level) < 0.005, "deep flow is the same up to 0.5")
    expect(flow["blank_out"][-1] > flow["blank_out"][half] + 0.05, "much weight helps here")
    expect(flow["l2"][-1] < flow["l2"][half] - 0.1, "and harms there")
    return f"""
At the last layer, rollout is best with the paper's 0.5 or a little more, against both, and loses on
either side. Deep flow does not change at all up to 0.5, where it is saturated; more weight keeps it
from saturating, which brings it nearer to blank-out ({flow["blank_out"][half]:.2f} to
{flow["blank_out"][-1]:.2f} at 0.9) and further from gradients ({flow["l2"][half]:.2f} to
{flow["l2"][-1]:.2f}). No weight is best for all; half and half is a fair choice.
"""


def group_trainings(results: Results) -> dict[str, list[Any]]:
    """The numbers of models by how they were trained, which their names begin with."""
    groups: dict[str, list[Any]] = {"plain": [], "helped": []}
    for title, found in results["trainings"].numbers["models"].items():
        group = "plain" if title.startswith("plain") else "helped"
        groups[group].append(found)
    return groups


def comment_trainings(results: Results) -> str:
    """How many models of each kind bear out what the paper reads from its tables."""
    groups = group_trainings(results)
    rows = ["| | " + " | ".join(f"{group}, {what}" for what in KINDS.values() for group in groups)]
    rows = [f"{rows[0]} |", "| --- " + "| ---: " * len(groups) * len(KINDS) + "|"]
    for claim, holds in CLAIMS.items():
        cells = []
        for kind in KINDS:
            for models in groups.values():
                shapes = [{m: found[kind][m]["mean"] for m in METHODS} for found in models]
                cells.append(f"{sum(holds(shape) for shape in shapes)} of {len(shapes)}")
        rows.append(f"| {claim} | {' | '.join(cells)} |")
    sentences = []
    for group, models in groups.items():
        if models:
            accuracies = [found["accuracy"] for found in models]
            lines = [
                f"{name} {average(models, 'l2', name, 0):.2f} at layer 1, "
                f"{average(models, 'l2', name, 2):.2f} at layer 3 and "
                f"{average(models, 'l2', name, -1):.2f} at the last"
                for name in METHODS
            ]
            sentences.append(
                f"The models trained {TRAINED[group]} are right on {min(accuracies):.3f} to "
                f"{max(accuracies):.3f} of the sentences; on average their correlations with "
                f"gradients are, for {'; for '.join(lines)}."
            )
    expect(all_hold(groups["plain"]), "all statements hold for plain models")
    expect(not all_hold(groups["helped"]), "not all do for the others")
    return (
        "In how many of the models the paper's statements hold:\n\n"
        + "\n".join(rows)
        + "\n\nModels that learnt the number alone bear out every one of them, in both tables and "
        "with every seed. So the paper's tables can be reproduced in shape, and what differs in "
        "tables 1 and 2 above comes from the helping tasks, not from how it was measured: a model "
        "that also learnt to guess words gathers what matters in later layers, is right more "
        "often, and deep flow explains it worse. " + " ".join(sentences)
    )


def all_hold(models: list[Any]) -> bool:
    """Whether every statement holds for every model, in both tables."""
    return all(
        holds({m: found[kind][m]["mean"] for m in METHODS})
        for found in models
        for kind in KINDS
        for holds in CLAIMS.values()
    )


def average(models: list[Any], kind: str, method: str, layer: int) -> float:
    """The mean of a correlation over models."""
    return sum(float(found[kind][method]["mean"][layer]) for found in models) / len(models)


def point_to_trainings(results: Results, kind: str) -> str:
    """A sentence on models that were trained for nothing but the number, if there are results."""
    plain = group_trainings(results)["plain"] if "trainings" in results else []
    if not plain:
        return ""
    shapes = [{m: found[kind][m]["mean"] for m in METHODS} for found in plain]
    falls = sum(CLAIMS["Raw attention is highest at layer 1"](shape) for shape in shapes)
    near = sum(CLAIMS["Flow is no worse than rollout at any layer"](shape) for shape in shapes)
    return (
        "*Other trainings* of the same model, without the helping tasks that the bundled one also "
        f"learnt, are in the last section: raw attention is highest at layer 1 in {falls} of "
        f"{len(plain)} of them, and flow is no worse than rollout at any layer in {near}."
    )
