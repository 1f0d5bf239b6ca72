"""The registry of edge weightings: what the edges of an attention graph measure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from attnflow.errors import InputError, check_choice
from attnflow.registry import Registry, choose_title, resolve_function

if TYPE_CHECKING:
    from attnflow.layers import ModelResidual, ResidualWeight

Needs: TypeAlias = Literal["attention", "gradient", "contributions"]
Residual: TypeAlias = Literal["mixed", "inside", "added"]


@dataclass(frozen=True)
class EdgeWeighting:
    """A way to weight the edges of one layer.

    name: the value of the option `edges`. title: in figures and pages. summary: one sentence.
    function: computes the edges of a layer; or "package.module:name" of such a function.
    needs: what the function gets.
    residual: how the residual connection enters the graph.

    needs="attention": `function(call, heads=heads)` is called while the layer runs, with an
    `attnflow.models.capture.call.AttentionCall` and the option `heads` of `capture_graphs`. It
    returns edges [batch, queries, keys]. To weight each head first, merge edges [batch, heads,
    queries, keys] with `attnflow.models.capture.merge.merge_edges(edges, heads, call.layer)`.

    needs="gradient": `function(weights, gradient)` is called after the model has run, with tensors
    [batch, heads, queries, keys], and returns edges of that shape; heads are merged afterwards.

    needs="contributions": `function(layer, heads=heads)` is called with an
    `attnflow.models.capture.contributions.LayerContributions`: the vectors that keys add to the
    residual stream. It returns what `layer.score` returns.

    residual="mixed": rows are rescaled to sum to 1, a position whose row is 0 attends to itself,
    and the graph is (1 - r) W + r I with the option `residual_weight`.
    residual="inside": the edges contain the residual connection. Rows are rescaled; nothing is
    added.
    residual="added": rows keep their scale, and the graph is W + I.

    Edges are not negative.
    """

    name: str
    title: str
    summary: str
    function: Callable[..., Any] | str
    needs: Needs = "attention"
    residual: Residual = "mixed"

    @property
    def needs_gradient(self) -> bool:
        """Whether the edges depend on the gradient of a score."""
        return self.needs == "gradient"

    def weigh(self, *arguments: Any, **options: Any) -> Any:
        """Call the function."""
        return resolve_function(self.function)(*arguments, **options)


EDGES: Registry[EdgeWeighting] = Registry("edges")

# How results describe residual connections that are not mixed in with one weight per layer.
RESIDUALS = {"inside": "inside the edges", "added": "added, rows not rescaled"}


def register_edges(
    name: str,
    function: Callable[..., Any] | str,
    *,
    title: str = "",
    summary: str,
    needs: Needs = "attention",
    residual: Residual = "mixed",
) -> EdgeWeighting:
    """Add an edge weighting to Python, the command line, corpus runs and the viewer.

    The arguments are those of `EdgeWeighting`; the title is derived from the name by default.
    Raises InputError if the name is taken, or for an unknown value of `needs` or `residual`.

    >>> from attnflow.edges.registry import EDGES, register_edges
    >>> def first_head(call, *, heads):
    ...     return call.weights(slice(0, 1))[:, 0]
    >>> register_edges("first_head", first_head, summary="weights of the first head.").title
    'First head'
    >>> EDGES.unregister("first_head")
    """
    check_choice("needs", needs, ("attention", "gradient", "contributions"))
    check_choice("residual", residual, ("mixed", "inside", "added"))
    title = choose_title(name, title)
    return EDGES.register(EdgeWeighting(name, title, summary, function, needs, residual))


def default_edges(*, has_decoder: bool) -> str:
    """The edges that are used for a model unless others are chosen.

    Encoders: plain attention, as in the paper. Decoders and encoder-decoders: ALTI, because their
    attention to the first or last token carries little information; docs/edges.md has the
    measurements.
    """
    return "alti" if has_decoder else "attention"


def fit_residual(
    residual_weight: "ModelResidual | None", weighting: EdgeWeighting
) -> "ResidualWeight | str":
    """Return the residual weight, or a few words about it where the edges decide.

    Raises InputError for a weight that does not fit the edges.

    >>> fit_residual(None, EDGES["attention"]), fit_residual(None, EDGES["alti"])
    (0.5, 'inside the edges')
    """
    if weighting.residual != "mixed":
        if residual_weight is None:
            return RESIDUALS[weighting.residual]
        raise InputError(
            f"residual_weight is {residual_weight!r} with edges={weighting.name!r}",
            expected=f"None: the residual connection is {RESIDUALS[weighting.residual]}",
            fix="Leave out residual_weight, or choose other edges, such as edges='attention'.",
        )
    if residual_weight is None:
        return 0.5
    is_measured = isinstance(residual_weight, str) and residual_weight == "measured"
    if is_measured and weighting.needs_gradient:
        raise InputError(
            f"residual_weight is 'measured' with edges={weighting.name!r}",
            expected="a number",
            fix="Use residual_weight=0.5, or edges='attention'.",
        )
    if isinstance(residual_weight, str) and residual_weight != "measured":
        raise InputError(
            f"residual_weight is {residual_weight!r}",
            expected="a number from 0 to 1, one for each layer, or 'measured'",
            fix="The paper uses 0.5.",
        )
    return residual_weight


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
    "value",
    "attnflow.edges.value:value_edges",
    title="Value norm",
    summary="the length of the vector that a key adds to the output of the layer.",
)
register_edges(
    "norm",
    "attnflow.edges.value:norm_edges",
    title="Norm with residual (N-Res)",
    summary="the length of what a position contributes, residual stream included.",
    needs="contributions",
    residual="inside",
)
register_edges(
    "globenc",
    "attnflow.edges.value:globenc_edges",
    title="GlobEnc (N-Enc)",
    summary="the same length after the normalizations of the block.",
    needs="contributions",
    residual="inside",
)
register_edges(
    "alti",
    "attnflow.edges.alti:alti_edges",
    title="ALTI",
    summary="how near a contribution is to the output of the block, by L1 distance.",
    needs="contributions",
    residual="inside",
)
register_edges(
    "contribution",
    "attnflow.edges.alti:contribution_edges",
    title="Projected contribution",
    summary="the positive projection of a contribution on the output of the block.",
    needs="contributions",
    residual="inside",
)
register_edges(
    "gradient",
    "attnflow.edges.gradient:gradient_edges",
    title="Attention times gradient",
    summary="the positive part of attention times its gradient for the prediction, not rescaled.",
    needs="gradient",
    residual="added",
)
register_edges(
    "gradient_rescaled",
    "attnflow.edges.gradient:gradient_edges",
    title="Attention times gradient, rescaled",
    summary="the same, with rows rescaled to sum to 1.",
    needs="gradient",
)
