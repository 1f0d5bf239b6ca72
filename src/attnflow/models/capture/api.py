"""Attention captured while a model runs, whatever kernels it was loaded with.

Models of transformers are captured through its attention registry, or through `output_attentions`
where they do not use that; plain torch models through `scaled_dot_product_attention`. In every case
the model is left as it was, and its output is its own.

Rollout while a model runs: only the product of the layers so far is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnflow.attentions import Attentions, label_tokens
from attnflow.attribution import Attribution
from attnflow.edges.gradient import Target, WithGradients, score_output
from attnflow.edges.value import Edges, check_edges, weigh
from attnflow.errors import AttentionError, InputError
from attnflow.graph import AttentionGraph
from attnflow.layers import Heads, ResidualWeight, describe_heads, resolve_residual
from attnflow.models.capture.build import KeptHeads, build_graphs, merge_call, rescale
from attnflow.models.capture.call import AttentionCall, describe_model
from attnflow.models.capture.hooks import check_run, run
from attnflow.models.capture.padding import Padding, check_examples
from attnflow.models.capture.roles import Role, Roles
from attnflow.selection import Positions, resolve_positions


class RunningRollout:
    """The product of the layers that have run, for a batch.

    own: [batch, n, n], positions of the model or its encoder over the tokens of the input.
    decoder: [batch, m, n + m], positions of the decoder over those of encoder and decoder.
    """

    def __init__(self, residual_weight: ResidualWeight) -> None:
        self.residual_weight = residual_weight
        self.n_layers = 0
        self.own: Tensor | None = None
        self.decoder: Tensor | None = None

    def add(self, layer: Tensor, role: Role) -> None:
        """Put a layer [batch, queries, keys] on top, with its residual connection."""
        residual = self._next_residual()
        if role in ("self", "encoder"):
            if self.own is not None and self.own.shape != layer.shape:
                return  # another input: refused, with its name, once the model has run
            self.own = _mix(residual, layer, self.own)
        elif role == "decoder":
            self.decoder = _mix(residual, layer, self._start(layer))
        else:
            below = self._start(layer.new_zeros(layer.shape[0], layer.shape[1], 0))
            assert self.own is not None
            below *= residual
            n = self.own.shape[-1]
            below[..., :n] += (1 - residual) * (layer.to(self.own.device) @ self.own)
            self.decoder = below

    def product(self) -> Tensor:
        """[batch, positions, tokens] of the whole model."""
        assert self.own is not None
        if self.decoder is None:
            return self.own
        n_decoder = self.decoder.shape[1]
        encoder = torch.nn.functional.pad(self.own, (0, n_decoder))
        return torch.cat([encoder, self.decoder], dim=1)

    def _next_residual(self) -> float:
        """The residual weight of the next layer; the last one where too few were given.

        How many are needed is only known, and checked, after the model has run.
        """
        layer, self.n_layers = self.n_layers, self.n_layers + 1
        if isinstance(self.residual_weight, int | float):
            return float(self.residual_weight)
        return float(self.residual_weight[min(layer, len(self.residual_weight) - 1)])

    def _start(self, layer: Tensor) -> Tensor:
        """The decoder's positions so far: at first, each is its own token."""
        if self.decoder is not None:
            return self.decoder
        assert self.own is not None
        batch, n_decoder = layer.shape[:2]
        unit = torch.eye(n_decoder, dtype=self.own.dtype, device=self.own.device)
        own = torch.nn.functional.pad(unit, (self.own.shape[-1], 0))
        return own.expand(batch, *own.shape).clone()


def _mix(residual: float, layer: Tensor, below: Tensor | None) -> Tensor:
    """((1 - r) W + r I) P; the first layer stands on the identity."""
    if below is None:
        mixed = layer * (1 - residual)
        mixed.diagonal(dim1=-2, dim2=-1).add_(residual)
        return mixed
    return torch.baddbmm(below, layer.to(below.device), below, beta=residual, alpha=1 - residual)


Tokens = Sequence[Sequence[str]] | None


def capture_attentions(
    model: nn.Module, inputs: Mapping[str, Any], *, tokens: Tokens = None
) -> tuple[list[Attentions], Any]:
    """Run the model, and keep the attention weights of all heads of all layers.

    model: in evaluation mode. inputs: its arguments by name, such as the tokenizer returned.
    tokens: the text of each example's tokens without padding; "0", "1", ... if not given.
    Returns one Attentions per example, with padding cut away, and the output of the model.
    Raises AttentionError if there is no attention to see, or for an encoder-decoder.
    """
    layers: list[Tensor] = []

    def look(call: AttentionCall, _: Role) -> None:
        layers.append(rescale(call, call.weights()))

    roles, output = _run(model, inputs, look)
    padding = _padding(roles, inputs, tokens)
    if roles.is_encoder_decoder:
        raise AttentionError(
            f"{describe_model(model)} is an encoder-decoder, whose cross-attention is not square",
            expected="one stack of layers",
            fix="Use capture_graphs(model, inputs), which joins encoder and decoder, or give "
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


def capture_graphs(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    tokens: Tokens = None,
    heads: Heads = "mean",
    residual_weight: ResidualWeight = 0.5,
    edges: Edges = "attention",
    target: Target | None = None,
    kept_heads: KeptHeads | None = None,
) -> tuple[list[AttentionGraph], Any]:
    """Run the model, and merge the heads of each layer as it finishes.

    model, inputs, tokens: as for `capture_attentions`; tokens of an encoder-decoder are those of
    the encoder, then those of the decoder.
    heads, residual_weight: as for AttentionGraph.from_attentions.
    edges: "attention"; "effective", the absolute value of the attention that can change a layer's
    output; "value", the length of what each key adds to the output; "gradient", the positive part
    of attention times its gradient for the target. Rows are rescaled to sum to 1. Where a row has
    nothing, the position attends to itself.
    target: for "gradient", from the output to the score [batch] to explain; if not given, the
    largest logit of the class, or of the next token.
    kept_heads: where to keep the attention of all heads as well, which changes nothing else.
    Returns one AttentionGraph per example, and the output of the model.
    """
    check_edges(edges)
    if target is not None and edges != "gradient":
        raise InputError(
            f"target was given with edges={edges!r}",
            expected="one with edges='gradient' only",
            fix="Leave target out, or ask for gradient edges.",
        )
    if edges == "gradient":
        roles, layers, padding, output = _gradient_layers(
            model, inputs, tokens, heads, target, kept_heads
        )
    else:
        roles, layers, output = _edge_layers(model, inputs, edges, heads, kept_heads)
        padding = _padding(roles, inputs, tokens)
    if kept_heads is not None:
        kept_heads.finish(padding, tokens)
    graphs = build_graphs(
        list(zip(roles.roles, layers, strict=True)),
        padding,
        tokens=tokens,
        residual_weight=residual_weight,
        settings={"heads": describe_heads(heads)}
        | ({} if edges == "attention" else {"edges": edges}),
    )
    return graphs, output


def capture_rollout(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    tokens: Tokens = None,
    heads: Heads = "mean",
    residual_weight: ResidualWeight = 0.5,
    positions: Positions = None,
) -> tuple[list[Attribution], Any]:
    """Attention rollout of the last layer, multiplied up while the model runs.

    Only the product of the layers so far is kept, so memory does not grow with their number.
    The options are those of `capture_graphs`. positions: indices or texts of tokens; all if not
    given.
    Returns one Attribution [1, positions, tokens] per example, and the output of the model.
    """
    rollout = RunningRollout(residual_weight)

    def look(call: AttentionCall, role: Role) -> Tensor | None:
        layer, output = merge_call(call, heads, f"layer {rollout.n_layers + 1}")
        rollout.add(layer, role)
        return output

    roles, output = _run(model, inputs, look)
    padding = _padding(roles, inputs, tokens)
    residual = resolve_residual(residual_weight, rollout.n_layers)
    settings = {
        "heads": describe_heads(heads),
        "residual_weight": residual[0] if len(set(residual)) == 1 else list(residual),
        "to_layer": 0,
        "normalize": "none",
    }
    examples = []
    for example, product in enumerate(rollout.product()):
        scores = padding.cut_product(product, roles.roles[-1], example)
        labels = label_tokens(None if tokens is None else tokens[example], scores.shape[-1])
        chosen = resolve_positions(labels, len(labels), positions)
        examples.append(
            Attribution(
                scores=scores[list(chosen)][None],
                tokens=labels,
                method="rollout",
                layers=(rollout.n_layers,),
                positions=chosen,
                settings=settings,
            )
        )
    return examples, output


def _edge_layers(
    model: nn.Module,
    inputs: Mapping[str, Any],
    edges: Edges,
    heads: Heads,
    kept_heads: KeptHeads | None,
) -> tuple[Roles, list[Tensor], Any]:
    """The edges [batch, queries, keys] of each layer, for all weightings but gradients."""
    layers: list[Tensor] = []

    def look(call: AttentionCall, role: Role) -> Tensor | None:
        if kept_heads is not None:
            kept_heads.look(call, role)
        layer, output = weigh(model, call, edges, heads, f"layer {len(layers) + 1}")
        layers.append(layer)
        return output

    roles, output = _run(model, inputs, look)
    return roles, layers, output


def _gradient_layers(
    model: nn.Module,
    inputs: Mapping[str, Any],
    tokens: Tokens,
    heads: Heads,
    target: Target | None,
    kept_heads: KeptHeads | None,
) -> tuple[Roles, list[Tensor], Padding, Any]:
    """The gradient edges [batch, queries, keys] of each layer."""
    kept = WithGradients()

    def look(call: AttentionCall, role: Role) -> Tensor | None:
        replaced = kept.keep(call, role)
        if kept_heads is not None:  # afterwards: what a call keeps must know of gradients
            kept_heads.look(call, role)
        return replaced

    roles, output = _run(model, inputs, look, differentiable=True)
    padding = _padding(roles, inputs, tokens)
    scores = score_output(
        model,
        output,
        target,
        padding.last(roles.roles[-1]),
        causal=lambda: roles.is_encoder_decoder or padding.looks_back_only(kept.weights),
    )
    return roles, kept.edges(scores, heads, model), padding, output


def _run(
    model: nn.Module,
    inputs: Mapping[str, Any],
    look: Callable[[AttentionCall, Role], Tensor | None],
    *,
    differentiable: bool = False,
) -> tuple[Roles, Any]:
    """Run the model, look at each call of attention with its role, and check what was seen."""
    check_run(model, inputs)
    roles = Roles(model)
    with roles.counting():
        output = run(
            model, inputs, lambda call: look(call, roles.of(call)), differentiable=differentiable
        )
    roles.finish()
    return roles, output


def _padding(roles: Roles, inputs: Mapping[str, Any], tokens: Tokens) -> Padding:
    """The padding of what was captured, and a check of the number of examples."""
    sizes: dict[Role, int] = {}
    for role, shape in zip(roles.roles, roles.shapes, strict=True):
        sizes.setdefault(role, shape[2])
    n_examples = roles.shapes[0][0]
    check_examples(tokens, n_examples)
    n = sizes.get("self", sizes.get("encoder", 0))
    return Padding(inputs, n_examples, n, sizes.get("decoder", 0))
