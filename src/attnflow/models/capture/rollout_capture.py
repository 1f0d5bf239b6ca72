"""Attention rollout while a model runs.

`capture_rollout` has two ways. All positions: layers are multiplied as they come, and only the
product is kept. A few positions: queries and keys are kept, and the rows of these positions are
multiplied with the layers afterwards, top layer first (`row_rollout`).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnflow.attentions import label_tokens
from attnflow.attribution import Attribution
from attnflow.errors import check_type
from attnflow.head_merge import Heads, describe_heads
from attnflow.layers import ResidualWeight, resolve_residual
from attnflow.methods.rollout import add_layer
from attnflow.models.capture.api import Tokens, find_padding, run_observed
from attnflow.models.capture.call import AttentionCall
from attnflow.models.capture.graphs import Padding
from attnflow.models.capture.merge import merge_call
from attnflow.models.capture.roles import Role, Roles
from attnflow.models.capture.row_rollout import Done, KeptLayers, Memory, Rows
from attnflow.selection import Positions, resolve_positions

FEW_POSITIONS = 64  # as many as are multiplied row by row


class _Captured(NamedTuple):
    """One row of scores [tokens with padding] for each position of each example.

    positions: those of each example, among its tokens. rows: [batch, positions, tokens].
    """

    roles: Roles
    padding: Padding
    positions: list[tuple[int, ...]]
    rows: list[Tensor]
    residual: tuple[float, ...]
    output: Any


def capture_rollout(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    tokens: Tokens = None,
    heads: Heads = "mean",
    residual_weight: ResidualWeight = 0.5,
    positions: Positions = None,
    memory: Memory | None = None,
) -> tuple[list[Attribution], Any]:
    """Run the model, and return the attention rollout of its last layer.

    The options are those of `capture_graphs`. positions: indices or texts of tokens; all by
    default.
    Up to 64 positions are computed without any matrix of all pairs of tokens: memory grows with
    the number of tokens, not with its square. memory: for these, how much queries and keys may
    take; see `Memory`.
    Returns one Attribution [1, positions, tokens] per example, and the output of the model.
    """
    if memory is not None:
        check_type(memory, Memory, "Pass Memory(host=8 * 2**30), or leave it out.")
    capture: Callable[..., _Captured] = _capture_all
    if _count(positions) <= FEW_POSITIONS:
        capture = partial(_capture_rows, memory=memory or Memory())
    captured = capture(model, inputs, tokens, heads, residual_weight, positions)
    residual = captured.residual
    settings = {
        "heads": describe_heads(heads),
        "edges": "attention",
        **captured.roles.describe_mixers(),
        "residual_weight": residual[0] if len(set(residual)) == 1 else list(residual),
        "to_layer": 0,
        "normalize": "none",
    }
    examples = []
    for example, (chosen, rows) in enumerate(zip(captured.positions, captured.rows, strict=True)):
        scores = captured.padding.cut_rows(rows, captured.roles.roles[-1], example)
        examples.append(
            Attribution(
                scores=scores[None],
                tokens=label_tokens(None if tokens is None else tokens[example], scores.shape[-1]),
                method="rollout",
                layers=(len(residual),),
                positions=chosen,
                settings=settings,
            )
        )
    return examples, captured.output


def _count(positions: Positions) -> float:
    """The number of positions; infinite for all."""
    if positions is None:
        return float("inf")
    try:
        return 1 if isinstance(positions, str) else len(positions)  # type: ignore[arg-type]
    except Exception:  # a number, or what resolve_positions refuses
        return 1


def _capture_all(
    model: nn.Module,
    inputs: Mapping[str, Any],
    tokens: Tokens,
    heads: Heads,
    residual_weight: ResidualWeight,
    positions: Positions,
) -> _Captured:
    """Multiply layers while the model runs, and select rows of the product."""
    rollout = RunningRollout(residual_weight)

    def observe(call: AttentionCall, role: Role) -> None:
        rollout.add(merge_call(call, heads), role)

    roles, output = run_observed(model, inputs, observe)
    padding = find_padding(roles, inputs, tokens)
    chosen = _choose_positions(roles, padding, tokens, positions)
    product, role = rollout.product(), roles.roles[-1]
    rows = [
        product[example][padding.places(some, role, example)] for example, some in enumerate(chosen)
    ]
    residual = resolve_residual(residual_weight, rollout.n_layers)
    return _Captured(roles, padding, chosen, rows, residual, output)


def _capture_rows(
    model: nn.Module,
    inputs: Mapping[str, Any],
    tokens: Tokens,
    heads: Heads,
    residual_weight: ResidualWeight,
    positions: Positions,
    *,
    memory: Memory,
) -> _Captured:
    """Keep queries and keys, and multiply rows with them, top layer first."""
    kept = KeptLayers(heads, memory)
    roles, output = run_observed(model, inputs, kept.add)
    padding = find_padding(roles, inputs, tokens)
    chosen = _choose_positions(roles, padding, tokens, positions)
    residual = resolve_residual(residual_weight, len(roles.roles))
    rows = _unit_rows(roles, padding, chosen)
    with torch.no_grad():
        for layer in _from_top(kept, model, inputs):
            rows.multiply(layer, residual[layer.index], heads)
    result = rows.result()
    counted = [result[example, : len(some)] for example, some in enumerate(chosen)]
    return _Captured(roles, padding, chosen, counted, residual, output)


def _from_top(kept: KeptLayers, model: nn.Module, inputs: Mapping[str, Any]) -> Iterator[Any]:
    """The layers from the top, each freed before the next; missing ones by another run."""
    while True:
        n_missing = kept.n_missing
        while kept.layers:
            yield kept.layers.pop()
        if not n_missing:
            return
        kept.start_again(n_missing)
        try:
            run_observed(model, inputs, kept.add)
        except Done:
            continue


def _choose_positions(
    roles: Roles, padding: Padding, tokens: Tokens, positions: Positions
) -> list[tuple[int, ...]]:
    chosen = []
    for example in range(roles.shapes[0][0]):
        n = padding.n_tokens(roles.roles[-1], example)
        labels = label_tokens(None if tokens is None else tokens[example], n)
        chosen.append(resolve_positions(labels, len(labels), positions))
    return chosen


def _unit_rows(roles: Roles, padding: Padding, chosen: list[tuple[int, ...]]) -> Rows:
    """A row for each position: 1 there, 0 elsewhere. Examples with fewer positions have zeros."""
    role = roles.roles[-1]
    sizes: dict[Role, int] = {}
    for name, shape in zip(roles.roles, roles.shapes, strict=True):
        sizes.setdefault(name, shape[2])
    n_own = sizes.get("self", sizes.get("encoder", 0))
    rows = torch.zeros(len(chosen), max(map(len, chosen)), n_own + sizes.get("decoder", 0))
    for example, some in enumerate(chosen):
        rows[example, range(len(some)), padding.places(some, role, example)] = 1
    if role == "self":
        return Rows(rows)
    return Rows(rows[..., :n_own], rows[..., n_own:])


class RunningRollout:
    """The rollout of the layers that have run so far, for a batch.

    own: [batch, n, n], positions of the model, or of its encoder, over input tokens.
    decoder: [batch, m, n + m], positions of the decoder over tokens of encoder and decoder.
    """

    def __init__(self, residual_weight: ResidualWeight) -> None:
        self.residual_weight = residual_weight
        self.n_layers = 0
        self.own: Tensor | None = None
        self.decoder: Tensor | None = None

    def add(self, layer: Tensor, role: Role) -> None:
        """Add a layer [batch, queries, keys], without its residual connection, on top."""
        residual = self._next_residual()
        if self.own is not None:
            layer = layer.to(self.own.device)
        if role in ("self", "encoder"):
            if self.own is not None and self.own.shape != layer.shape:
                return  # positions changed: Roles.finish raises the error after the model has run
            self.own = add_layer(self.own, layer, residual)
        elif role == "decoder":
            below = self._identity(layer) if self.decoder is None else self.decoder
            self.decoder = add_layer(below, layer, residual)
        else:
            assert self.own is not None
            assert self.decoder is not None
            encoder, decoder = self.decoder.tensor_split([self.own.shape[-1]], dim=-1)
            attended = add_layer(self.own, layer, residual, carried=encoder)
            self.decoder = torch.cat([attended, residual * decoder], dim=-1)

    def product(self) -> Tensor:
        """The rollout [batch, positions, tokens] of the whole model."""
        assert self.own is not None
        if self.decoder is None:
            return self.own
        n_decoder = self.decoder.shape[1]
        encoder = torch.nn.functional.pad(self.own, (0, n_decoder))
        return torch.cat([encoder, self.decoder], dim=1)

    def _next_residual(self) -> float:
        """The residual weight of the next layer; the last weight if there are too few.

        The number of layers is known, and checked, only after the model has run.
        """
        layer, self.n_layers = self.n_layers, self.n_layers + 1
        if isinstance(self.residual_weight, int | float):
            return float(self.residual_weight)
        return float(self.residual_weight[min(layer, len(self.residual_weight) - 1)])

    def _identity(self, layer: Tensor) -> Tensor:
        """The rollout of the decoder before its first layer: each position is its own token."""
        assert self.own is not None
        batch, n_decoder = layer.shape[:2]
        identity = torch.eye(n_decoder, dtype=self.own.dtype, device=self.own.device)
        identity = torch.nn.functional.pad(identity, (self.own.shape[-1], 0))
        return identity.expand(batch, *identity.shape)
