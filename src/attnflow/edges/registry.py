"""The registry of edge weightings: what the edges of an attention graph measure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnflow.registry import Registry, resolve_function


@dataclass(frozen=True)
class EdgeWeighting:
    """A way to weight the edges of one layer.

    name: the value of the option `edges`. title: in figures and pages. summary: one sentence.
    function: computes the edges of a layer; or "package.module:name" of such a function.
    needs_gradient: whether the edges depend on the gradient of a score.

    If not, the function is called as `function(call, heads=heads)` while the layer runs, with an
    `attnflow.models.capture.call.AttentionCall` and the option `heads` of `capture_graphs`. It
    returns edges [batch, queries, keys]. To weight each head first, merge edges [batch, heads,
    queries, keys] with `attnflow.models.capture.merge.merge_edges(edges, heads, call.layer)`.

    If so, the function is called as `function(weights, gradient)` after the model has run, with
    tensors [batch, heads, queries, keys], and returns edges of that shape; heads are merged
    afterwards.

    Edges are not negative. Rows are rescaled to sum to 1 afterwards. A position whose row is 0
    attends to itself.
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
    """Add an edge weighting to Python, the command line, corpus runs and the viewer.

    The arguments are those of `EdgeWeighting`; the title is derived from the name by default.
    Raises InputError if the name is taken.

    >>> from attnflow.edges.registry import EDGES, register_edges
    >>> def first_head(call, *, heads):
    ...     return call.weights(slice(0, 1))[:, 0]
    >>> register_edges("first_head", first_head, summary="weights of the first head.").title
    'First head'
    >>> EDGES.unregister("first_head")
    """
    title = title or name.replace("_", " ").capitalize()
    return EDGES.register(EdgeWeighting(name, title, summary, function, needs_gradient))


register_edges(
    "attention",
    "attnflow.edges.attention:attention_edges",
    title="Attention",
    summary="the attention weight.",
)
register_edges(
    "effective",
    "attnflow.edges.effective:effective_edges",
    title="Effective attention",
    summary="the part of the attention weight that can change the output of the layer.",
)
register_edges(
    "gradient",
    "attnflow.edges.gradient:gradient_edges",
    title="Attention times gradient",
    summary="the positive part of attention times its gradient for the prediction.",
    needs_gradient=True,
)
register_edges(
    "value",
    "attnflow.edges.value:value_edges",
    title="Value norm",
    summary="the length of the vector that a key adds to the output of the layer.",
)
