"""The registry of methods: from an AttentionGraph to an Attribution."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any

from attnflow.attribution import Attribution, Normalize, check_normalize, normalize_scores
from attnflow.graph import AttentionGraph
from attnflow.progress import Progress
from attnflow.registry import Registry, resolve_function
from attnflow.selection import Layers, Positions


@dataclass(frozen=True)
class Method:
    """A way to attribute positions to input tokens.

    name: as options spell it. title: as figures and pages show it. summary: one sentence.
    function: from a graph, with the keyword arguments `layers` and `positions`, to an Attribution;
    or "package.module:name" of such a function. It may also take `threads` and `progress`.
    """

    name: str
    title: str
    summary: str
    function: Callable[..., Attribution] | str

    def attribute(
        self,
        graph: AttentionGraph,
        *,
        layers: Layers = None,
        positions: Positions = None,
        normalize: Normalize = "none",
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Attribution:
        """Compute the method, and normalize its scores.

        layers, positions: all if not given. normalize: "none", "rows" or "receptive_field".
        threads, progress: passed on to methods that take them.
        Returns scores [layers, positions, tokens].
        """
        check_normalize(normalize)
        function = resolve_function(self.function)
        selection = {"layers": layers, "positions": positions}
        running = {"threads": threads, "progress": progress}
        options = {name: running[name] for name in self._running_options}
        result: Attribution = function(graph, **selection, **options)
        return normalize_scores(result, normalize, lambda: function(graph.uniform(), **selection))

    @cached_property
    def _running_options(self) -> tuple[str, ...]:
        accepted = signature(resolve_function(self.function)).parameters
        return tuple(name for name in ("threads", "progress") if name in accepted)


METHODS: Registry[Method] = Registry("method")


def register_method(
    name: str, function: Callable[..., Attribution] | str, *, title: str = "", summary: str
) -> Method:
    """Make a method known to Python, the command line, corpus runs, viewer and figures.

    The arguments are those of `Method`; the title is made from the name if it is not given.
    Raises InputError if the name is taken.
    """
    title = title or name.replace("_", " ").capitalize()
    return METHODS.register(Method(name, title, summary, function))


register_method(
    "raw",
    "attnflow.methods.raw:raw_attention",
    title="Raw attention",
    summary="the attention weights of one layer.",
)
register_method(
    "rollout",
    "attnflow.methods.rollout:rollout",
    title="Attention rollout",
    summary="the product of the layers, with residual connections.",
)
register_method(
    "flow",
    "attnflow.methods.flow:flow",
    title="Attention flow",
    summary="the exact maximum flow through the layers.",
)


def attribute(graph: AttentionGraph, method: str, **options: Any) -> Attribution:
    """Compute a registered method by its name; the options are those of `Method.attribute`.

    Raises SelectionError for a method that is not registered.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]])
    >>> attribute(graph, "raw", positions=0).scores
    array([[[0.5, 0.5]]])
    """
    return METHODS[method].attribute(graph, **options)
