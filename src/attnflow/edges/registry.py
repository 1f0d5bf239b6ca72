"""The registry of edge weightings: what the edges of the attention graph are weighted by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnflow.registry import Registry, resolve_function


@dataclass(frozen=True)
class EdgeWeighting:
    """A way to weight the edges of one layer.

    name: as options spell it. title: as figures and pages show it. summary: one sentence.
    function: computes the edges of a layer; or "package.module:name" of such a function.
    needs_gradient: whether the edges depend on the gradient of a target score. If not, the
    function takes an AttentionCall and the keyword argument `heads`, and returns edges [batch,
    queries, keys]. If so, it takes weights and their gradient, both [batch, heads, queries, keys],
    and returns edges of that shape; heads are merged afterwards.
    Edges are not negative. Rows are rescaled to sum to 1 afterwards; where a row is 0, the
    position attends to itself.
    """

    name: str
    title: str
    summary: str
    function: Callable[..., Any] | str
    needs_gradient: bool = False

    def weigh(self, *arguments: Any, **options: Any) -> Any:
        """Call the function."""
        return resolve_function(self.function)(*arguments, **options)


EDGES: Registry[EdgeWeighting] = Registry("edges")


def register_edges(
    name: str,
    function: Callable[..., Any] | str,
    *,
    title: str = "",
    summary: str,
    needs_gradient: bool = False,
) -> EdgeWeighting:
    """Make an edge weighting known to Python, the command line, corpus runs and viewer.

    The arguments are those of `EdgeWeighting`; the title is made from the name if not given.
    Raises InputError if the name is taken.
    """
    title = title or name.replace("_", " ").capitalize()
    return EDGES.register(EdgeWeighting(name, title, summary, function, needs_gradient))
