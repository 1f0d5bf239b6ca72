"""The explanations that a study compares: methods on edges, opponents, and baselines.

An explainer is named "method/edges", such as "rollout/alti", where edges may name a residual
weight, as in "rollout/attention:measured"; or it is registered here: gradients and other scores
measured on the model, and baselines that know nothing of the model or little. All return scores
[units] of a case, the higher the more relevant.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.edges.registry import EDGES, fit_residual
from attnflow.errors import InputError
from attnflow.graph import AttentionGraph
from attnflow.layers import resolve_residual
from attnflow.methods.registry import METHODS
from attnflow.models.inputs import collate
from attnflow.models.prediction import logits_of
from attnflow.optional import import_optional
from attnflow.registry import Registry, choose_title, resolve_function
from attnflow.units import NOT_ADDITIVE

Floats: TypeAlias = NDArray[np.float64]
Kind: TypeAlias = Literal["opponent", "baseline"]
Inputs: TypeAlias = Literal["text", "image", "any"]


@dataclass(frozen=True)
class Explainer:
    """Scores that are no attention method.

    name, title, summary: as in other registries. function: from a `Case` to scores [units]; or
    "package.module:name" of such a function. kind: a baseline is part of every study.
    default: whether an opponent is part of a study unless others are named.
    inputs: whether it explains a "text", an "image", or "any" of them.
    package: a module that the function needs, if it is optional.
    """

    name: str
    title: str
    summary: str
    function: Callable[[Any], Floats] | str
    kind: Kind = "opponent"
    default: bool = True
    inputs: Inputs = "text"
    package: str = ""

    def check(self) -> None:
        """Raise MissingDependencyError if a package is missing that the function needs."""
        if self.package:
            import_optional(self.package, self.title)

    def explain(self, case: Any) -> Floats:
        """Return the scores [units] of a `Case`, or of an `ImageCase`."""
        return np.asarray(resolve_function(self.function)(case), dtype=np.float64)


EXPLAINERS: Registry[Explainer] = Registry("explainer")


def register_explainer(
    name: str,
    function: Callable[[Any], Floats] | str,
    *,
    title: str = "",
    summary: str,
    kind: Kind = "opponent",
    default: bool = True,
    inputs: Inputs = "text",
    package: str = "",
) -> Explainer:
    """Make an explainer known to `attnflow evaluate`. The arguments are those of `Explainer`.

    Raises InputError if the name is taken.
    """
    title = choose_title(name, title)
    return EXPLAINERS.register(
        Explainer(name, title, summary, function, kind, default, inputs, package)
    )


@dataclass(frozen=True)
class Edges:
    """Edges of a study: a registered weighting, and the residual weight, if one is named."""

    name: str
    residual_weight: Any = None

    @classmethod
    def parse(cls, text: str) -> "Edges":
        """Read "alti", "attention:measured" or "attention:0.3".

        Raises SelectionError for unknown edges, InputError for a residual weight that does not fit.

        >>> Edges.parse("attention:0.3")
        Edges(name='attention', residual_weight=0.3)
        """
        name, colon, weight = text.partition(":")
        residual: Any = None
        if colon:
            try:
                residual = float(weight)
            except ValueError:
                residual = weight
        weighting = EDGES[name]
        fit_residual(residual, weighting)
        if isinstance(residual, float):
            resolve_residual(residual, 1)  # raises for a number outside 0 to 1
        return cls(name, residual)

    @property
    def text(self) -> str:
        """The edges as `parse` reads them."""
        weight = self.residual_weight
        return self.name if weight is None else f"{self.name}:{weight}"


def explainer_title(name: str) -> str:
    """Return the name of an explainer for tables and figures.

    >>> explainer_title("rollout/alti"), explainer_title("random")
    ('rollout, ALTI', 'random')
    """
    method, slash, edges = name.partition("/")
    if not slash:
        known = name in EXPLAINERS.names
        return _lower(EXPLAINERS[name].title if known else name.replace("_", " "))
    weighting, colon, weight = edges.partition(":")
    title = _lower(EDGES[weighting].title if weighting in EDGES.names else weighting)
    residual = f", residual {weight}" if colon else ""
    return f"{method.replace('_', ' ')}, {title}{residual}"


def _lower(title: str) -> str:
    """Return a title as it is written inside a sentence; ALTI and GlobEnc stay as they are."""
    word = title.split(maxsplit=1)[0]
    return title if word[1:] != word[1:].lower() else title[0].lower() + title[1:]


def capture(case: Any, edges: Edges, heads: Any = "mean") -> AttentionGraph:
    """Run the model, and return its graph with NumPy arrays. case: a Case or an ImageCase.

    Gradient edges are those of the sum of the scores of all steps.
    """
    if hasattr(case, "capture"):  # an image
        graph: AttentionGraph = case.capture(edges, heads)
        return graph
    from attnflow.models.capture.api import capture_graphs

    loaded, encoded = case.loaded, case.encoded

    def total_score(output: Any) -> Any:
        rows = [logits_of(loaded, output.logits[0], encoded, step.position) for step in case.steps]
        scores = [step.contrast.score(row) for step, row in zip(case.steps, rows, strict=True)]
        return sum(scores[1:], scores[0])[None]

    options: dict[str, Any] = {"target": total_score} if EDGES[edges.name].needs_gradient else {}
    [graph], _ = capture_graphs(
        loaded.model,
        collate(loaded, [encoded]),
        tokens=[encoded.tokens],
        edges=edges.name,
        residual_weight=edges.residual_weight,
        heads=heads,
        **options,
    )
    return replace(graph, weights=to_numpy(graph.weights), attention=to_numpy(graph.attention))


def attribute(case: Any, graph: AttentionGraph, method: str, layer: int = -1) -> Floats:
    """Return the scores [units] of a method at a layer.

    Scores that add up are summed over the tokens of a unit, and averaged over the positions of
    the steps. Flow is one maximum flow from all positions to a unit, divided by their number.
    """
    if method in NOT_ADDITIVE:
        from attnflow.methods.flow import group_flow

        values = group_flow(
            graph, layers=layer, positions=[case.positions], tokens=list(case.units), threads=1
        ).values[0, 0]
        return np.asarray(values) / len(case.steps)
    result = METHODS[method].attribute(graph, layers=layer, positions=case.positions, threads=1)
    scores: Floats = case.merge(result.to_numpy()[0].mean(axis=0))
    return scores


def resolve_explainers(
    methods: Iterable[str],
    edges: Iterable[str],
    explainers: Iterable[str],
    inputs: Inputs = "text",
) -> list[str]:
    """Return the names of all explainers of a study, baselines last.

    inputs: what the model takes; explainers of other inputs are left out.
    Raises SelectionError for a name that is not registered.
    """
    weightings = [Edges.parse(text).text for text in edges]
    names = [f"{METHODS[method].name}/{text}" for text in weightings for method in methods]
    chosen = [EXPLAINERS[name] for name in explainers]
    others = [entry for entry in chosen if entry.kind == "opponent"]
    others += [entry for entry in EXPLAINERS if entry.kind == "baseline"]
    return names + [entry.name for entry in others if entry.inputs in (inputs, "any")]


def default_opponents() -> tuple[str, ...]:
    """The opponents of a study unless others are named."""
    return tuple(e.name for e in EXPLAINERS if e.kind == "opponent" and e.default)


def explain_all(
    case: Any, names: Sequence[str], *, heads: Any = "mean"
) -> Iterator[tuple[str, Callable[[], Floats]]]:
    """Yield the name of each explainer, and a function that computes its scores.

    Methods on the same edges share a graph: it is captured by the first of them.
    """
    graphs: dict[str, AttentionGraph] = {}
    for name in names:
        method, slash, edges = name.partition("/")
        if not slash:
            yield name, lambda name=name: EXPLAINERS[name].explain(case)  # type: ignore[misc]
            continue

        def compute(method: str = method, edges: str = edges) -> Floats:
            if edges not in graphs:
                graphs.clear()  # names are grouped by edges, and a graph can be large
                graphs[edges] = capture(case, Edges.parse(edges), heads)
            return attribute(case, graphs[edges], method)

        yield name, compute


def check_scores(name: str, scores: Floats) -> Floats:
    """Return finite scores. Raises InputError for others."""
    if not np.isfinite(scores).all():
        raise InputError(
            f"the scores of {name} are not finite",
            expected="numbers",
            fix="Leave the explainer out, or run the model in float32.",
        )
    return scores


_OPPONENTS = "attnflow.study.opponents"
_BASELINES = "attnflow.study.baselines"

register_explainer(
    "input_gradients",
    f"{_OPPONENTS}:gradient_norm",
    summary="length of the gradient of the logit with respect to each embedding or patch.",
    inputs="any",
)
register_explainer(
    "gradient_times_input",
    f"{_OPPONENTS}:gradient_times_input",
    title="Gradient x input",
    summary="gradient times embedding, summed, with its sign.",
    inputs="any",
)
register_explainer(
    "integrated_gradients",
    f"{_OPPONENTS}:path_gradients",
    summary="gradients along the path from the mean embedding or color, with their sign.",
    inputs="any",
    package="captum.attr",
)
register_explainer(
    "alti_logit",
    f"{_OPPONENTS}:logit_contributions",
    title="ALTI-Logit",
    summary="what each token adds to the logit through the residual stream, with its sign.",
)
register_explainer(
    "leave_one_out",
    f"{_OPPONENTS}:leave_one_out",
    title="Leave-one-out",
    summary="drop of log p without each token; close to what perturbation metrics measure.",
    inputs="any",
)
register_explainer(
    "attn_lrp",
    f"{_OPPONENTS}:attn_lrp",
    title="AttnLRP",
    summary="layer-wise relevance propagation by the package lxt, which has its own license.",
    default=False,
    package="lxt",
)
register_explainer(
    "random",
    f"{_BASELINES}:constant",
    summary="all tokens tied: the level of chance.",
    inputs="any",
    kind="baseline",
)
register_explainer(
    "position",
    f"{_BASELINES}:earlier",
    title="Position, earlier first",
    summary="earlier tokens are more relevant.",
    kind="baseline",
)
register_explainer(
    "recency",
    f"{_BASELINES}:later",
    title="Position, later first",
    summary="later tokens are more relevant.",
    kind="baseline",
)
register_explainer(
    "frequency",
    f"{_BASELINES}:rarity",
    title="Frequency, rare first",
    summary="rare tokens are more relevant; rare ones have high numbers in most vocabularies.",
    kind="baseline",
)
register_explainer(
    "embedding_norm",
    f"{_BASELINES}:embedding_norm",
    summary="tokens with long embeddings are more relevant.",
    kind="baseline",
)
register_explainer(
    "center",
    f"{_BASELINES}:center",
    title="Center of the image",
    summary="patches near the center of the image are more relevant.",
    kind="baseline",
    inputs="image",
)
register_explainer(
    "contrast",
    f"{_BASELINES}:contrast",
    title="Contrast of a patch",
    summary="patches that differ from the mean color are more relevant.",
    kind="baseline",
    inputs="image",
)
