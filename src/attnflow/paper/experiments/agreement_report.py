"""How tables 1 and 2 are laid out."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnflow.paper.experiments.agreement import WITHOUT
from attnflow.paper.experiments.layout import (
    beside_paper,
    comparison_table,
    interval_table,
    layer_names,
    mean_and_sd,
    name,
    number,
    provenance,
    variants_table,
)
from attnflow.paper.experiments.measuring import METHODS
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result

NEAR = 0.02  # correlations closer than this count as the same in the table of claims
ATTRACTORS = "These sentences were drawn apart from those of the table above."
SHOWN_RESIDUALS = ("0.1", "0.3", "0.5", "0.7", "0.9")


def report_correlations(
    result: Result, title: str, meaning: str, paper: Mapping[str, Sequence[str]]
) -> Report:
    """The paper's table beside ours; intervals, significance, groups and variants."""
    numbers, methods = result.numbers, result.numbers["methods"]
    return Report(
        title,
        (
            f"{provenance(result)} The model is right on {numbers['accuracy']:.1%} of them.",
            f"{meaning} Left out here: {methods['raw']['left_out'][0]}.",
            *_first_tables(numbers, title, paper),
            interval_table("95% bootstrap intervals of the means", methods),
            comparison_table(
                "Differences between methods, Wilcoxon signed-rank test over examples, p corrected "
                "for all of these tests (Holm)",
                numbers["comparisons"],
            ),
            *_attractors(result),
            group_table("By the number of tokens, with [CLS]", "tokens", numbers["lengths"]),
            variants_table("Variants", numbers["variants"]),
            own_table(numbers["own"]),
            residual_table(numbers["residual"], SHOWN_RESIDUALS),
        ),
    )


def _first_tables(
    numbers: Mapping[str, Any], title: str, paper: Mapping[str, Sequence[str]]
) -> tuple[Table, ...]:
    """Our table beside the paper's, and what both show.

    A model of another depth has no table in the paper to be put beside.
    """
    methods, words = numbers["methods"], numbers["variants"][WITHOUT]
    if len(methods["raw"]["mean"]) != len(paper["raw"]):
        return (variants_table(title, {"ours": methods}),)
    ours = {"ours": methods, "ours without [CLS]": words}
    printed = {method: [float(cell.split("±")[0]) for cell in paper[method]] for method in paper}
    shapes = {
        name: {method: summed["mean"] for method, summed in found.items()}
        for name, found in ours.items()
    }
    return beside_paper(title, paper, ours), claims_table({"paper": printed, **shapes})


def _attractors(result: Result) -> tuple[str | Table, ...]:
    """The table by attractors; none for a file that does not tell how many sentences have."""
    found = result.numbers["attractors"]
    if not found:
        return ()
    table = group_table("By the number of attractors", "attractors", found)
    told = result.settings.get("groups")
    return (table, f"{ATTRACTORS} {told}") if told else (table,)


def claims_table(shapes: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """What the paper reads from its table, and which numbers show it."""
    rows = tuple(
        (claim, *("yes" if holds(means) else "no" for means in shapes.values()))
        for claim, holds in CLAIMS.items()
    )
    return Table("The shape of the table", ("", *shapes), rows)


def _raw_falls(means: Mapping[str, Sequence[float]]) -> bool:
    return max(means["raw"][1:]) < means["raw"][0] - NEAR


def _rollout_climbs(means: Mapping[str, Sequence[float]]) -> bool:
    steps = zip(means["rollout"], means["rollout"][1:], strict=False)
    return all(above >= below - NEAR for below, above in steps)


def _rollout_ends_higher(means: Mapping[str, Sequence[float]]) -> bool:
    return means["rollout"][-1] > means["rollout"][0] + NEAR


def _flow_is_there(means: Mapping[str, Sequence[float]]) -> bool:
    return means["flow"][2] >= max(means["flow"]) - 0.1


def _flow_stays(means: Mapping[str, Sequence[float]]) -> bool:
    return means["flow"][-1] >= max(means["flow"]) - NEAR


def _both_beat_raw(means: Mapping[str, Sequence[float]]) -> bool:
    return min(means["rollout"][-1], means["flow"][-1]) > means["raw"][-1] + NEAR


def _flow_beats_rollout(means: Mapping[str, Sequence[float]]) -> bool:
    steps = zip(means["flow"][1:], means["rollout"][1:], strict=True)
    return all(flow > rollout - NEAR for flow, rollout in steps)


CLAIMS = {
    "Raw attention is highest at layer 1": _raw_falls,
    "Rollout climbs from layer to layer": _rollout_climbs,
    "Rollout is higher at the last layer than at the first": _rollout_ends_higher,
    "Flow is within 0.1 of its best at layer 3": _flow_is_there,
    "Flow is still at its best at the last layer": _flow_stays,
    "Rollout and flow beat raw attention at the last layer": _both_beat_raw,
    "Flow is no worse than rollout at any layer": _flow_beats_rollout,
}


def group_table(caption: str, what: str, groups: Mapping[str, Any]) -> Table:
    """The correlations of groups of examples, such as those with as many attractors."""
    rows = [
        (
            f"{group}: {name(method)}",
            f"{found['examples']:,}",
            *([f"{found['accuracy']:.3f}"] if "accuracy" in found else []),
            *(mean_and_sd(found["methods"][method], i) for i in range(n)),
        )
        for group, found in groups.items()
        for n in [len(found["methods"]["raw"]["mean"])]
        for method in METHODS
    ]
    columns = ["examples", *(["accuracy"] if "accuracy" in next(iter(groups.values())) else [])]
    n = len(rows[0]) - 1 - len(columns)
    return Table(caption, (f"{what}: method", *columns, *layer_names(n)), tuple(rows))


def own_table(own: Mapping[str, Any]) -> Table:
    """How often [CLS] has the highest or lowest score of all tokens."""
    rows = []
    for end, found in own.items():
        n = len(found["raw"])
        rows.append((f"{end}: importance", *([f"{found['importance']:.0%}"] * n)))
        rows += [(f"{end}: {name(m)}", *(f"{share:.0%}" for share in found[m])) for m in METHODS]
    caption = "In how many texts [CLS] itself has the highest, or lowest, score of all tokens"
    return Table(caption, ("", *layer_names(len(rows[0]) - 1)), tuple(rows))


def residual_table(found: Mapping[str, Any], weights: Sequence[str]) -> Table:
    """Means of rollout and flow by residual weight."""
    rows = tuple(
        (f"{weight}: {method}", *(number(value) for value in found[weight][method]["mean"]))
        for method in ("rollout", "flow")
        for weight in weights
    )
    return Table(
        "By residual weight (0.5 is the paper's); raw attention has none",
        ("", *layer_names(len(rows[0]) - 1)),
        rows,
    )
