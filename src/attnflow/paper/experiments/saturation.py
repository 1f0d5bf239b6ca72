"""Saturation of flow: the share of tokens whose flow is decided by a bound, at each layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.methods.flow import AT_BOUND
from attnflow.methods.registry import METHODS
from attnflow.models.inputs import EncodedText
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import resolve_explained
from attnflow.paper.experiments.agreement import describe_settings, natural_texts
from attnflow.paper.experiments.correlations import to_list
from attnflow.paper.experiments.experiment import Options, Result
from attnflow.paper.experiments.measurements import (
    Measurement,
    ScoreSettings,
    attention_graphs,
    split_progress,
)
from attnflow.paper.experiments.report import (
    Report,
    Table,
    format_number,
    provenance,
    table_by_layer,
)
from attnflow.progress import Progress

RESIDUAL_WEIGHTS = (0.5, 0.7, 0.9)  # the paper's first

# The shares that are counted, and their names in the tables.
SHARES = {
    "source": "flow equals the outflow of the position (saturated)",
    "sink": "flow equals the inflow of the token",
    "between": "flow is below both bounds",
    "tied": "pairs of tokens with equal flow",
    "flat": "texts in which all tokens have equal flow",
}

METHOD = (
    "A flow has two upper bounds: the total weight that leaves the position (1, because rows sum "
    "to 1), and the total weight that enters the token at layer 1 (the sum of its column). A flow "
    "at the first bound is saturated: all such tokens tie for the highest score. A flow at the "
    "second bound depends on layer 1 alone. Only flows below both bounds depend on the edges in "
    "between. Cells are shares of tokens, averaged over texts, for flows from the position that "
    "the model classifies from."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Count, for each layer, which bounds the flows of the explained position reach."""
    texts, sets = natural_texts(options)
    stages = split_progress(progress, len(RESIDUAL_WEIGHTS))
    numbers = {}
    for weight in RESIDUAL_WEIGHTS:
        settings = ScoreSettings(residual_weight=weight)

        def measure(
            chunk: Sequence[EncodedText], _: Sequence[int], settings: ScoreSettings = settings
        ) -> list[Measurement]:
            return measure_bounds(texts.loaded, chunk, settings, threads=options.threads)

        measured = texts.measure(measure, {"flow_bounds": weight}, next(stages))
        numbers[str(weight)] = count_bounds(measured)
    return Result("saturation", numbers, describe_settings(texts, sets))


def measure_bounds(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    settings: ScoreSettings,
    *,
    threads: int | None = None,
) -> list[Measurement]:
    """Return the flow of each text and its two bounds, "outflow" and "inflow": [layers, tokens]."""
    measured = []
    for graph, text in zip(attention_graphs(loaded, encoded, settings), encoded, strict=True):
        position = resolve_explained(loaded, text, None)
        capacities = graph.capacities()
        flow = METHODS["flow"].attribute(graph, positions=position, threads=threads)
        flows = flow.to_numpy()[:, 0]
        outflow = capacities[:, position].sum(-1)[:, None]
        inflow = capacities[0].sum(0)
        measured.append(
            {
                "flow": flows,
                "outflow": np.broadcast_to(outflow, flows.shape).copy(),
                "inflow": np.broadcast_to(inflow, flows.shape).copy(),
            }
        )
    return measured


def count_bounds(measured: Sequence[Measurement]) -> dict[str, Any]:
    """Return the shares of SHARES for each layer, averaged over texts."""
    shares: dict[str, list[NDArray[np.float64]]] = {name: [] for name in SHARES}
    for text in measured:
        flows = text["flow"]
        source = flows >= text["outflow"] - AT_BOUND
        sink = flows >= text["inflow"] - AT_BOUND
        shares["source"].append(source.mean(-1))
        shares["sink"].append((sink & ~source).mean(-1))
        shares["between"].append((~sink & ~source).mean(-1))
        tied = np.abs(flows[:, :, None] - flows[:, None, :]) <= AT_BOUND
        n = flows.shape[-1]
        pairs: NDArray[np.float64] = np.asarray(tied.sum((1, 2)) - n, dtype=np.float64)
        shares["tied"].append(pairs / max(n * (n - 1), 1))
        shares["flat"].append(np.asarray(tied.all((1, 2)), dtype=np.float64))
    return {name: to_list(np.mean(rows, axis=0)) for name, rows in shares.items()}


def render(result: Result) -> Report:
    """Render a table for each residual weight."""
    parts: list[str | Table] = [provenance(result), METHOD]
    for weight, shares in result.numbers.items():
        rows = [
            (title, *(format_number(share, 3) for share in shares[name]))
            for name, title in SHARES.items()
        ]
        parts.append(table_by_layer(f"Residual weight {weight}", rows))
    parts.append(_describe(result.numbers[str(RESIDUAL_WEIGHTS[0])]))
    return Report("Beyond the paper: saturation of flow", tuple(parts))


def _describe(shares: dict[str, Any]) -> str:
    """Return a paragraph on the paper's residual weight."""
    n_layers = len(shares["source"])
    deepest = max((i + 1 for i, share in enumerate(shares["between"]) if share >= 0.01), default=0)
    conclusion = "At every layer, the flow of 1% of tokens or more is below both bounds."
    if deepest < n_layers:
        conclusion = (
            f"Above layer {deepest}, the flow of over 99% of tokens is the column sum of layer 1, "
            "clipped at 1, so attention in higher layers has no effect on it. A larger residual "
            "weight moves this depth up."
        )
    return (
        f"With the paper's residual weight, {shares['source'][-1]:.0%} of tokens are saturated at "
        f"layer {n_layers}, {shares['tied'][-1]:.0%} of pairs of tokens are tied, and in "
        f"{shares['flat'][-1]:.0%} of texts all tokens are. {conclusion}"
    )
