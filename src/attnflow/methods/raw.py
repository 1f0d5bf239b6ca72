"""Raw attention: the attention weights of one layer."""

from array_api_compat import array_namespace
from array_api_compat import device as device_of

from attnflow.attribution import Attribution, Normalize, check_normalize, normalize_scores
from attnflow.errors import check_type
from attnflow.graph import AttentionGraph
from attnflow.selection import Layers, Positions, resolve_layers, resolve_positions


def raw_attention(
    graph: AttentionGraph,
    *,
    layers: Layers = None,
    positions: Positions = None,
    normalize: Normalize = "none",
) -> Attribution:
    """Return the attention of each position to the layer below, without residual connections.

    layers: numbers from 1, -1 for the last; all by default.
    positions: indices or texts of tokens; all by default.
    normalize: "none", "rows" or "receptive_field".
    Returns scores: [..., layers, positions, tokens]; each row sums to 1. Above layer 1 the columns
    are positions of the layer below, not input tokens; rollout and flow trace them to the input.
    Raises SelectionError for a layer or position that does not exist.

    >>> graph = AttentionGraph.from_weights([[[0.5, 0.5], [0.0, 1.0]]])
    >>> raw_attention(graph, positions=0).scores
    array([[[0.5, 0.5]]])
    """
    check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_attentions(attentions).")
    check_normalize(normalize)
    numbers = resolve_layers(graph.n_layers, layers)
    chosen = resolve_positions(graph.tokens, graph.n_tokens, positions)
    xp = array_namespace(graph.attention)
    place = {"device": device_of(graph.attention)}
    scores = xp.take(graph.attention, xp.asarray([n - 1 for n in numbers], **place), axis=-3)
    if positions is not None:
        scores = xp.take(scores, xp.asarray(list(chosen), **place), axis=-2)
    raw = Attribution(
        scores=scores,
        tokens=graph.tokens,
        method="raw",
        layers=numbers,
        positions=chosen,
        settings=graph.settings,
    )
    return normalize_scores(
        raw,
        normalize,
        lambda: raw_attention(graph.uniform(), layers=layers, positions=positions),
    )
