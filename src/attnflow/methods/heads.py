"""Rollout and flow of single heads (paper, appendix A.1).

One head of a layer is put on top of the layers below, whose heads are averaged, because the
feed-forward network mixes the outputs of heads. The heads of a layer are a batch: results have a
leading axis for them.
"""

from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from attnflow.arrays import Array, stack
from attnflow.attentions import Attentions, name_layer
from attnflow.attribution import Attribution, Normalize, check_normalize, normalize_scores
from attnflow.graph import AttentionGraph
from attnflow.head_merge import merge_heads
from attnflow.layers import ResidualWeight, mix_residual
from attnflow.methods.rollout import multiply_rows, rollout, unstack_layers
from attnflow.selection import Positions, as_index, resolve_layer, resolve_positions


def head_rollout(
    attentions: Attentions,
    *,
    layer: int,
    head: int | None = None,
    positions: Positions = None,
    residual_weight: ResidualWeight = 0.5,
    normalize: Normalize = "none",
) -> Attribution:
    """Attribute positions to input tokens by the rollout of single heads of one layer.

    layer: its number from 1, -1 for the last. head: its number from 0; all heads by default.
    The other options are those of `rollout` and of `AttentionGraph.from_attentions`.
    Returns scores: [1, positions, tokens] for one head, [heads, 1, positions, tokens] for all;
    each row sums to 1. The axis of size 1 is the layer. The mean over heads is the rollout.
    Raises SelectionError for a layer, head or position that does not exist.

    >>> heads = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    >>> head_rollout(Attentions([heads]), layer=1, positions=0).scores
    array([[[[1. , 0. ]]],
           [[[0.5, 0.5]]]])
    """
    check_normalize(normalize)
    chosen = _choose_heads(attentions, layer, head, residual_weight)
    graph, number = chosen.graph, chosen.layer
    rows = resolve_positions(graph.tokens, graph.n_tokens, positions)
    top = chosen.weights[..., list(rows), :]
    result = Attribution(
        scores=multiply_rows(top, unstack_layers(graph.weights)[: number - 1]),
        tokens=graph.tokens,
        method="head_rollout",
        layers=(number,),
        positions=rows,
        settings={**graph.settings, "head": chosen.label},
    )
    return normalize_scores(
        result, normalize, lambda: rollout(graph.uniform(), layers=number, positions=rows)
    )


def head_flow(
    attentions: Attentions,
    *,
    layer: int,
    head: int | None = None,
    positions: Positions = None,
    residual_weight: ResidualWeight = 0.5,
    normalize: Normalize = "none",
    threads: int | None = None,
) -> Attribution:
    """Attribute positions to input tokens by the flow of single heads of one layer.

    The options are those of `head_rollout` and of `flow`, and so is the shape of the scores.
    Raises SelectionError for a layer, head or position that does not exist.
    """
    from attnflow.methods.flow import flow  # imports Numba, which head_rollout does not need

    check_normalize(normalize)
    chosen = _choose_heads(attentions, layer, head, residual_weight)
    graph, number = chosen.graph, chosen.layer
    results = [
        flow(head_graph, layers=number, positions=positions, threads=threads)
        for head_graph in chosen.graphs()
    ]
    result = replace(
        results[0],
        scores=results[0].scores if head is not None else stack([r.scores for r in results]),
        method="head_flow",
        settings={**graph.settings, "head": chosen.label},
    )
    return normalize_scores(
        result,
        normalize,
        lambda: flow(graph.uniform(), layers=number, positions=positions, threads=threads),
    )


@dataclass(frozen=True)
class _ChosenHeads:
    """Heads of a layer, [..., 1, n, n] with and without the residual connection, and the rest."""

    graph: AttentionGraph
    layer: int
    label: int | list[int]
    attention: Array
    weights: Array

    def graphs(self) -> list[AttentionGraph]:
        """For each head, the graph of the layers below with that head on top."""
        xp = array_namespace(self.weights)
        n = self.graph.n_tokens
        tops = zip(
            xp.reshape(self.weights, (-1, 1, n, n)),
            xp.reshape(self.attention, (-1, 1, n, n)),
            strict=True,
        )
        below = self.layer - 1
        return [
            replace(
                self.graph,
                weights=xp.concat([self.graph.weights[:below, :, :], weights], axis=0),
                attention=xp.concat([self.graph.attention[:below, :, :], attention], axis=0),
                residual_weights=(self.graph.residual_weights or ())[: self.layer],
                widths=self.graph.widths[: self.layer + 1],
            )
            for weights, attention in tops
        ]


def _choose_heads(
    attentions: Attentions, layer: int, head: int | None, residual_weight: ResidualWeight
) -> _ChosenHeads:
    graph = AttentionGraph.from_attentions(attentions, residual_weight=residual_weight)
    number = resolve_layer(graph.n_layers, layer)
    source = attentions.layers[number - 1]
    label = list(range(int(source.shape[0]))) if head is None else as_index(head, "head")
    heads = label if isinstance(label, list) else [label]
    merged = [merge_heads(source, k, name_layer(number - 1))[None, :, :] for k in heads]
    attention = merged[0] if head is not None else stack(merged)
    assert graph.residual_weights is not None
    weights = mix_residual(attention, [graph.residual_weights[number - 1]])
    return _ChosenHeads(graph, number, label, attention, weights)
