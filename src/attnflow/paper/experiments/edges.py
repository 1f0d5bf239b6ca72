"""Edges beyond plain attention: effective, gradient-weighted and value-weighted (section 5)."""

from typing import Any

import numpy as np

from attnflow.explainer import Edges
from attnflow.paper.experiments.agreement import describe, natural_texts, stages
from attnflow.paper.experiments.correlating import Correlations, compare, correlate, select, sum_up
from attnflow.paper.experiments.layout import comparison_table, name, provenance, variants_table
from attnflow.paper.experiments.measuring import METHODS, Attending
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result

NAME = "edges"
KINDS = {"blank_out": "blank-out", "l2": "input gradients (l2)"}
PLAIN: Edges = "attention"
EDGES: tuple[Edges, ...] = (PLAIN, "effective", "gradient", "value")
LONG = "long"  # the part of the numbers that is about long texts


def run(options: Options, progress: Progress | None) -> Result:
    """Correlate all methods on graphs with all kinds of edges."""
    texts, sentences = natural_texts(options)
    begin = stages(progress, 1 + len(EDGES))
    importance = texts.importance(begin())
    attention = {edges: texts.attention(Attending(edges=edges), begin()) for edges in EDGES}
    config = texts.loaded.model.config
    width = config.hidden_size // config.num_attention_heads
    long = np.asarray([one.n_inputs > width for one in texts.encoded])
    numbers: dict[str, Any] = {"head_width": width, "n_long": int(long.sum())}
    for kind in KINDS:
        rows = select(importance, kind)
        found = {edges: correlate(attention[edges], rows) for edges in EDGES}
        numbers[kind] = {edges: sum_up(made) for edges, made in found.items()}
        numbers[f"{kind} comparisons"] = _compare(found, options.seed)
        if long.any():
            numbers[f"{kind} {LONG}"] = {
                edges: sum_up({method: rho[long] for method, rho in made.items()})
                for edges, made in found.items()
                if edges in (PLAIN, "effective")
            }
    return Result(NAME, numbers, describe(texts, sentences))


def _compare(found: dict[Edges, Correlations], seed: int) -> list[dict[str, Any]]:
    """All other edges less plain ones, for each method; corrected for all tests together."""
    rhos = {f"{e} {method}": found[e][method] for e in EDGES for method in METHODS}
    pairs = [
        (f"{edges} {method}", f"{PLAIN} {method}")
        for method in METHODS
        for edges in EDGES
        if edges != PLAIN
    ]
    return compare(rhos, pairs, seed)


def render(result: Result) -> Report:
    """For each importance: correlations by edges, and how they differ from plain ones."""
    numbers = result.numbers
    meaning = (
        "Section 5 of the paper suggests to build the graph from effective attention (Brunner et "
        "al. 2020), or from attention adjusted by gradients; value-weighted edges count how long "
        "the vector is that a key adds to the output. Effective attention differs from attention "
        f"only for texts of more tokens than a head is wide, here {numbers['head_width']}; "
        f"{numbers['n_long']} of {result.settings['examples']:,} texts are that long."
    )
    parts: list[str | Table] = [
        provenance(result),
        meaning,
    ]
    for kind, title in KINDS.items():
        parts.append(variants_table(f"Correlation with {title}, by edges", numbers[kind]))
        parts.append(
            comparison_table(
                f"Other edges less plain attention, {title} (Wilcoxon, Holm)",
                numbers[f"{kind} comparisons"],
            )
        )
        if f"{kind} {LONG}" in numbers:
            parts.append(
                variants_table(
                    f"Texts of more than {numbers['head_width']} tokens, {title}",
                    numbers[f"{kind} {LONG}"],
                )
            )
        parts.append(_what_it_shows(numbers, kind, title))
    return Report("Beyond the paper: other edges", tuple(parts))


def _what_it_shows(numbers: Any, kind: str, title: str) -> str:
    """Which edges are best at the last layer, for each method."""
    last = []
    for method in METHODS:
        means = {edges: numbers[kind][edges][method]["mean"][-1] for edges in EDGES}
        known = {edges: mean for edges, mean in means.items() if mean is not None}
        best = max(known, key=lambda edges: known[edges])
        last.append(f"{name(method)} {best} ({known[best]:.2f}; plain {known[PLAIN]:.2f})")
    return f"At the last layer, the edges that agree best with {title} are: {', '.join(last)}."
