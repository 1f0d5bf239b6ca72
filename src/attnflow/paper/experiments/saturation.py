"""How much of flow is decided by saturation at each depth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.methods.flow import SAME
from attnflow.models.inputs import EncodedText
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import resolve_explained
from attnflow.paper.experiments.agreement import describe, natural_texts, stages
from attnflow.paper.experiments.correlating import listed
from attnflow.paper.experiments.keeping import Measured
from attnflow.paper.experiments.layout import layer_names, number, provenance
from attnflow.paper.experiments.measuring import Attending, capture
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result

NAME = "saturation"
WEIGHTS = (0.5, 0.7, 0.9)  # residual weights

# What is counted, and what to call it.
SHARES = {
    "source": "all that can leave the position (saturated)",
    "sink": "all that can enter the token",
    "between": "less than both: edges on the way decide",
    "tied": "pairs of tokens that are tied",
    "flat": "texts in which all tokens are tied",
}

MEANING = (
    "A flow cannot exceed what leaves the position (1, since rows sum to 1), nor what enters "
    "the token at layer 1 (the sum of its column). Where it reaches the first bound it is "
    "saturated: all such tokens tie for the highest score. Where it reaches the second, it is "
    "what layer 1 gives the token, and no layer above has any say. Only the rest is decided "
    "by edges on the way. Shares of tokens, means over texts, flows of the position that "
    "the model classifies."
)


def run(options: Options, progress: Progress | None) -> Result:
    """For each layer, count what limits the flows of the explained position."""
    texts, sentences = natural_texts(options)
    begin = stages(progress, len(WEIGHTS))
    numbers = {}
    for weight in WEIGHTS:
        how = Attending(residual_weight=weight)

        def compute(
            chunk: Sequence[EncodedText], _: Sequence[int], how: Attending = how
        ) -> list[Measured]:
            return measure_limits(texts.loaded, chunk, how, options.threads)

        measured = texts.measure(compute, {"limits": weight}, begin())
        numbers[str(weight)] = count_limits(measured)
    return Result(NAME, numbers, describe(texts, sentences))


def measure_limits(
    loaded: LoadedModel, encoded: Sequence[EncodedText], how: Attending, threads: int | None
) -> list[Measured]:
    """Of each text: flow, what can leave the position, what can enter tokens; [layers, tokens]."""
    from attnflow.methods.flow import flow

    measured = []
    for graph, one in zip(capture(loaded, encoded, how), encoded, strict=True):
        position = resolve_explained(loaded, one, None)
        capacities = graph.capacities()
        flows = flow(graph, positions=position, threads=threads).to_numpy()[:, 0]
        measured.append(
            {
                "flow": flows,
                "leaving": np.broadcast_to(
                    capacities[:, position].sum(-1)[:, None], flows.shape
                ).copy(),
                "entering": np.broadcast_to(capacities[0].sum(0), flows.shape).copy(),
            }
        )
    return measured


def count_limits(measured: Sequence[Measured]) -> dict[str, Any]:
    """The shares of SHARES for each layer, means over texts."""
    shares: dict[str, list[NDArray[np.float64]]] = {name: [] for name in SHARES}
    for one in measured:
        flows = one["flow"]
        source = flows >= one["leaving"] - SAME
        sink = flows >= one["entering"] - SAME
        shares["source"].append(source.mean(-1))
        shares["sink"].append((sink & ~source).mean(-1))
        shares["between"].append((~sink & ~source).mean(-1))
        tied = np.abs(flows[:, :, None] - flows[:, None, :]) <= SAME
        n = flows.shape[-1]
        pairs: NDArray[np.float64] = np.asarray(tied.sum((1, 2)) - n, dtype=np.float64)
        shares["tied"].append(pairs / max(n * (n - 1), 1))
        shares["flat"].append(np.asarray(tied.all((1, 2)), dtype=np.float64))
    return {name: listed(np.mean(found, axis=0)) for name, found in shares.items()}


def render(result: Result) -> Report:
    """A table for each residual weight."""
    parts: list[str | Table] = [
        provenance(result),
        MEANING,
    ]
    for weight, found in result.numbers.items():
        rows = tuple(
            (title, *(number(value, 3) for value in found[name])) for name, title in SHARES.items()
        )
        parts.append(Table(f"Residual weight {weight}", ("", *layer_names(len(rows[0]) - 1)), rows))
    parts.append(_what_it_shows(result))
    return Report("Beyond the paper: saturation of flow", tuple(parts))


def _what_it_shows(result: Result) -> str:
    usual = result.numbers[str(WEIGHTS[0])]
    n = len(usual["source"])
    deepest = max((i + 1 for i, share in enumerate(usual["between"]) if share >= 0.01), default=0)
    above = (
        f"Above layer {deepest}, flow is the sum of the token's column at layer 1, cut off at 1, "
        "for all but one token in a hundred: what attention does in higher layers does not enter "
        "it. A greater residual weight moves this depth up."
        if deepest < n
        else "At every layer, edges on the way decide for one token in a hundred or more."
    )
    return (
        f"With the paper's residual weight, {usual['source'][-1]:.0%} of tokens are saturated at "
        f"layer {n}, and {usual['tied'][-1]:.0%} of pairs of tokens are tied there; in "
        f"{usual['flat'][-1]:.0%} of texts all tokens are. {above}"
    )
