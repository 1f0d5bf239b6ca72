"""Capture attention while a model runs: as Attentions, as graphs, or as contributions.

Models of transformers and plain torch models are supported, with any attention implementation.
The model runs in evaluation mode and is restored afterwards; its output is unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from warnings import warn

import torch
from torch import Tensor, nn

from attnflow.attentions import Attentions
from attnflow.edges.registry import EDGES, EdgeWeighting, fit_residual
from attnflow.errors import AttentionError, InputError, ShapeError, check_type
from attnflow.graph import AttentionGraph
from attnflow.head_merge import Heads, check_heads, describe_heads
from attnflow.layers import ModelResidual
from attnflow.models.capture.call import AttentionCall, DotProductCall, describe_model
from attnflow.models.capture.forward import check_arguments, run_model
from attnflow.models.capture.fused_attention import attend, has_kernels
from attnflow.models.capture.graphs import (
    CapturedLayer,
    Padding,
    Storage,
    build_graphs,
    check_examples,
)
from attnflow.models.capture.merge import (
    KeptHeads,
    as_shares,
    merge_edges,
    merge_unscaled,
)
from attnflow.models.capture.mixers import ResidualOnlyCall
from attnflow.models.capture.roles import Role, Roles
from attnflow.presentation import residual_only_note

if TYPE_CHECKING:
    from attnflow.models.capture.affine import Affine
    from attnflow.models.capture.contributions import LayerContributions
    from attnflow.models.capture.steps import TracedLayer

Tokens = Sequence[Sequence[str]] | None
# From the output of the model to the score [batch] to explain.
Target: TypeAlias = Callable[[Any], Tensor]


def capture_attentions(
    model: nn.Module, inputs: Mapping[str, Any], *, tokens: Tokens = None
) -> tuple[list[Attentions], Any]:
    """Run the model, and return the attention weights of all heads of all layers.

    model: a model of transformers or a torch module.
    inputs: its arguments by name, such as the result of the tokenizer.
    tokens: the texts of the tokens of each example, without padding; "0", "1", ... by default.
    Returns one Attentions per example, with padding cut away, and the output of the model.
    Raises AttentionError if the model has no attention, or is an encoder-decoder.
    """
    layers: list[Tensor] = []

    def observe(call: AttentionCall, _: Role) -> None:
        layers.append(as_shares(call, call.weights()))

    roles, output = run_observed(model, inputs, observe)
    padding = find_padding(roles, inputs, tokens)
    if roles.is_encoder_decoder:
        raise AttentionError(
            f"{describe_model(model)} is an encoder-decoder, whose cross-attention is not square",
            expected="one stack of layers",
            fix="Use capture_graphs(model, inputs), which joins encoder and decoder, or capture "
            "model.get_encoder().",
        )
    examples = []
    for example in range(layers[0].shape[0]):
        cut = [
            padding.cut(layer[example], "self", example, f"example {example}, layer {i + 1}")
            for i, layer in enumerate(layers)
        ]
        examples.append(Attentions(cut, None if tokens is None else tokens[example]))
    return examples, output


def capture_graphs(  # noqa: PLR0913 - one argument for each option
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    tokens: Tokens = None,
    heads: Heads = "mean",
    residual_weight: ModelResidual | None = None,
    edges: str = "attention",
    target: Target | None = None,
    kept_heads: KeptHeads | None = None,
    storage: Storage | None = None,
) -> tuple[list[AttentionGraph], Any]:
    """Run the model, and return its attention as graphs.

    The heads of each layer are merged while the model runs.
    model, inputs, tokens: as for `capture_attentions`. The tokens of an encoder-decoder are those
    of the encoder, followed by those of the decoder.
    heads: as for `AttentionGraph.from_attentions`. Edges from contributions add up what all heads
    contribute ("mean"), or take one head.
    edges: the name of an edge weighting in `attnflow.edges.registry.EDGES`.
    residual_weight: as for `AttentionGraph.from_attentions`, 0.5 by default; or "measured", which
    measures it at every position from the contributions of the model. None for edges that contain
    the residual connection.
    target: for edges that need a gradient, a function from the output of the model to the score
    [batch] to explain. By default the largest logit of the classes, or of the next token.
    kept_heads: also stores the attention weights of all heads.
    storage: the type of the weights, and where they are; see `Storage`. For long inputs.
    Returns one AttentionGraph per example, and the output of the model.
    Raises AttentionError if the model has no attention, SelectionError for unknown edges,
    InputError for a residual_weight that does not fit the edges.
    """
    weighting = EDGES[edges]
    residual = fit_residual(residual_weight, weighting)
    check_heads(heads)
    if storage is not None:
        check_type(storage, Storage, "Pass Storage(...), or leave it out.")
    if kept_heads is not None:
        check_type(kept_heads, KeptHeads, "Pass KeptHeads(...), or leave it out.")
    if target is not None and not weighting.needs_gradient:
        raise InputError(
            f"target was passed with edges={edges!r}, which need no gradient",
            expected="no target",
            fix="Remove target, or choose edges that need a gradient.",
        )
    if weighting.needs_gradient:
        roles, layers, output = _capture_gradient_edges(
            model, inputs, weighting, heads, target, kept_heads
        )
    elif weighting.needs == "contributions" or _is_measured(residual):
        roles, layers, output = _capture_contribution_edges(
            model, inputs, weighting, heads, kept_heads, storage or Storage()
        )
    else:
        roles, layers, output = _capture_edges(
            model, inputs, weighting, heads, kept_heads, storage or Storage()
        )
    padding = find_padding(roles, inputs, tokens)
    if kept_heads is not None:
        kept_heads.finish(padding, tokens)
    settings: dict[str, Any] = {
        "heads": describe_heads(heads),
        "edges": edges,
        **roles.describe_mixers(),
    }
    if roles.residual_only:
        warn(f"{describe_model(model)}: {residual_only_note(settings)}", stacklevel=2)
    if isinstance(residual, str):
        settings["residual_weight"] = residual
    graphs = build_graphs(
        layers,
        padding,
        tokens=tokens,
        residual_weight=0.0 if isinstance(residual, str) else residual,
        settings=settings,
    )
    return graphs, output


def capture_contributions(
    model: nn.Module, inputs: Mapping[str, Any]
) -> "tuple[list[LayerContributions], Any]":
    """Run the model, and return what each position adds to others through attention.

    model, inputs: as for `capture_attentions`.
    Returns one LayerContributions per attention layer, in the order in which they run, for the
    whole batch with its padding; and the output of the model. A decoder layer of an encoder-decoder
    has two, self-attention and cross-attention.
    Raises AttentionError if the model computes its attention where it cannot be observed, or if the
    way from attention to the residual stream is not a chain of affine steps.
    """
    check_arguments(model, inputs)
    layers: dict[int, LayerContributions] = {}

    def observe(layer: "LayerContributions", _: Role) -> None:
        layers[layer.index] = layer

    _, output, _ = run_contributions(model, inputs, observe)
    return [layers[i] for i in sorted(layers)], output


def _capture_edges(
    model: nn.Module,
    inputs: Mapping[str, Any],
    weighting: EdgeWeighting,
    heads: Heads,
    kept_heads: KeptHeads | None,
    storage: Storage,
) -> tuple[Roles, list[CapturedLayer], Any]:
    """Run the model, and return roles, the edges of each layer, and the output."""
    layers: list[CapturedLayer] = []
    smallest: list[Tensor] = []

    def observe(call: AttentionCall, role: Role) -> None:
        if kept_heads is not None:
            kept_heads.add(call, role)
        if isinstance(call, ResidualOnlyCall):
            layers.append(_residual_only(call.shape, role))
            return
        edges = weighting.weigh(call, heads=heads)
        batch, _, n_queries, n_keys = call.shape
        _check_shape(edges, (batch, n_queries, n_keys), weighting)
        if weighting.name != "attention":  # whose rows sum to 1 already
            smallest.append(edges.amin())
            edges = _normalize_rows(edges)
        layers.append(storage.store(role, edges))

    roles, output = run_observed(model, inputs, observe)
    _check_not_negative(smallest, weighting)
    return roles, layers, output


def _capture_contribution_edges(
    model: nn.Module,
    inputs: Mapping[str, Any],
    weighting: EdgeWeighting,
    heads: Heads,
    kept_heads: KeptHeads | None,
    storage: Storage,
) -> tuple[Roles, list[CapturedLayer], Any]:
    """The same as `_capture_edges`, for edges or residual weights that come from contributions."""
    found: dict[int, CapturedLayer] = {}
    smallest: list[Tensor] = []

    def observe(layer: "LayerContributions", role: Role) -> None:
        if weighting.needs == "contributions":
            edges = weighting.weigh(layer, heads=heads)
            batch, _, n_queries, n_keys = layer.call.shape
            _check_shape(edges, (batch, n_queries, n_keys + layer.is_cross), weighting)
        else:
            edges = weighting.weigh(layer.call, heads=heads)
        smallest.append(edges.amin())
        edges = _normalize_rows(edges)
        if weighting.needs != "contributions":
            own = 1 - layer.mixing_ratio()
            if not layer.is_cross:
                edges = _normalize_rows(edges - torch.diag_embed(edges.diagonal(dim1=1, dim2=2)))
        elif layer.is_cross:
            own = torch.where(edges.sum(-1) > 0, edges[..., -1], 1.0)
            edges = _normalize_rows(edges[..., :-1])
        else:
            own = torch.zeros_like(edges[..., 0])
        found[layer.index] = storage.store(role, edges, own)

    roles, output, _ = run_contributions(model, inputs, observe, kept_heads)
    _check_not_negative(smallest, weighting)
    for i in roles.residual_only:
        found[i] = _residual_only(roles.shapes[i], roles.roles[i], own=0.0)
    return roles, [found[i] for i in range(len(found))], output


def _capture_gradient_edges(
    model: nn.Module,
    inputs: Mapping[str, Any],
    weighting: EdgeWeighting,
    heads: Heads,
    target: Target | None,
    kept_heads: KeptHeads | None,
) -> tuple[Roles, list[CapturedLayer], Any]:
    """The same as `_capture_edges`, for edges that need a gradient."""
    from attnflow.models.capture.weight_gradients import RecordedWeights, score_output

    recorded = RecordedWeights()

    def observe(call: AttentionCall, role: Role) -> None:
        if not isinstance(call, ResidualOnlyCall):
            recorded.add(call)
        if kept_heads is not None:  # afterwards, because it caches tensors without gradients
            kept_heads.add(call, role)

    roles, output = run_observed(model, inputs, observe, differentiable=True)
    padding = find_padding(roles, inputs, None)
    scores = score_output(
        model,
        output,
        target,
        padding.last_tokens(roles.roles[-1]),
        causal=lambda: roles.is_encoder_decoder or padding.attends_backwards(recorded.layers),
    )
    is_added = weighting.residual == "added"
    layers = []
    pairs = iter(recorded.gradients(scores, model))
    for i, role in enumerate(roles.roles):
        if i in roles.residual_only:
            layers.append(_residual_only(roles.shapes[i], role, own=1.0 if is_added else None))
            continue
        weights, gradient = next(pairs)
        edges = weighting.weigh(weights, gradient)
        _check_shape(edges, tuple(weights.shape), weighting)
        _check_not_negative([edges.amin()], weighting)
        merged = merge_edges(edges, heads, f"layer {i + 1}")
        own = share = None
        if is_added:
            own = torch.ones_like(merged[..., 0])
            share = merge_unscaled(edges, heads).sum(-1)
        layers.append(CapturedLayer(role, merged, own, share))
    return roles, layers, output


def _residual_only(
    shape: tuple[int, int, int, int], role: Role, own: float | None = None
) -> CapturedLayer:
    """A layer without edges, whose positions attend to themselves. own: of the other layers."""
    batch, _, n_queries, n_keys = shape
    rows = None if own is None else torch.full((batch, n_queries), own)
    # With the weight of the residual beside edges that are not rescaled, nothing is left to add.
    share = torch.zeros_like(rows) if rows is not None and own == 1.0 else None
    return CapturedLayer(role, torch.zeros(batch, n_queries, n_keys), rows, share)


def _normalize_rows(edges: Tensor) -> Tensor:
    """Rescale rows to sum to 1, except rows of zeros and those that sum to 1 but for rounding.

    To divide the latter again would only round them again.
    """
    sums = edges.sum(-1, keepdim=True)
    is_done = ((sums - 1).abs() <= 1e-5) | (sums == 0)
    return edges / torch.where(is_done, 1.0, sums)


def _check_shape(edges: Any, expected: tuple[int, ...], weighting: EdgeWeighting) -> None:
    """Check the result of a registered function, which may come from another package."""
    if isinstance(edges, Tensor) and edges.shape == expected:
        return
    returned = list(edges.shape) if isinstance(edges, Tensor) else type(edges).__name__
    axes = "[batch, heads, queries, keys]" if len(expected) == 4 else "[batch, queries, keys]"
    raise ShapeError(
        f"the function of edges {weighting.name!r} returned {returned}",
        expected=f"a tensor {axes}, here {list(expected)}",
        fix="Correct the function; EdgeWeighting in attnflow.edges.registry says what it returns.",
    )


def _check_not_negative(smallest: Sequence[Tensor], weighting: EdgeWeighting) -> None:
    """Check the smallest edge of each layer; after the run, so that a GPU waits once."""
    if not smallest:
        return
    values = torch.stack([value.to(smallest[0].device) for value in smallest])
    for value in values.tolist():
        if not value >= 0:
            raise AttentionError(
                f"the function of edges {weighting.name!r} returned {value:.3g}",
                expected="edges that are not negative",
                fix="Return the absolute value or the positive part of each edge.",
            )


def run_contributions(
    model: nn.Module,
    inputs: Mapping[str, Any],
    observe: "Callable[[LayerContributions, Role], None]",
    kept_heads: KeptHeads | None = None,
    *,
    differentiable: bool = False,
) -> "tuple[Roles, Any, tuple[Tensor, Affine] | None]":
    """Run the model, and show the contributions of each layer as soon as they are known.

    Returns the roles, the output of the model, and the last tensor of the residual stream.
    """
    # Imported here, because plain attention does not need them.
    from attnflow.models.capture.contributions import LayerContributions, SumError, check_sums
    from attnflow.models.capture.residual_stream import ResidualStream

    roles_so_far: list[Role] = []
    errors: list[SumError] = []

    def hand_over(layer: "TracedLayer") -> None:
        role = roles_so_far[layer.index]
        contributions = LayerContributions(layer, is_cross=role == "cross")
        errors.append(contributions.sum_error)
        observe(contributions, role)

    stream = ResidualStream(hand_over)

    def begin(call: AttentionCall, role: Role) -> None:
        roles_so_far.append(role)
        if kept_heads is not None:
            kept_heads.add(call, role)
        if isinstance(call, DotProductCall) and has_kernels(call):
            attend(call)  # for the log-sum-exp
        if isinstance(call, ResidualOnlyCall):
            stream.skip()
        else:
            stream.start(call)

    with stream, stream.follow_modules(model):
        roles, output = run_observed(
            model, inputs, begin, differentiable=differentiable, values=True
        )
        stream.finish()
    check_sums(errors, model)
    return roles, output, stream.last


def run_observed(
    model: nn.Module,
    inputs: Mapping[str, Any],
    observe: Callable[[AttentionCall, Role], None],
    *,
    differentiable: bool = False,
    values: bool = False,
) -> tuple[Roles, Any]:
    """Run the model, show each attention call with its role, and check that they fit together."""
    check_arguments(model, inputs)
    roles = Roles(model)

    def assign_role(call: AttentionCall) -> None:
        if roles.has(call):
            observe(call, roles.add(call))

    with roles.count_runs():
        output = run_model(
            model,
            inputs,
            assign_role,
            differentiable=differentiable,
            values=values,
        )
    roles.finish()
    return roles, output


def find_padding(roles: Roles, inputs: Mapping[str, Any], tokens: Tokens) -> Padding:
    """The padding of the captured layers. Raises ShapeError for a wrong number of examples."""
    sizes: dict[Role, int] = {}
    for role, shape in zip(roles.roles, roles.shapes, strict=True):
        sizes.setdefault(role, shape[2])
    n_examples = roles.shapes[0][0]
    check_examples(tokens, n_examples)
    n = sizes.get("self", sizes.get("encoder", 0))
    return Padding(inputs, n_examples, n, sizes.get("decoder", 0))


def _is_measured(residual: Any) -> bool:
    return isinstance(residual, str) and residual == "measured"
