"""Which positions of each example are tokens, and cutting captured layers down to them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnflow.attentions import Kept, cut_layer, kept_positions
from attnflow.errors import AttentionError, ShapeError
from attnflow.layers import looks_back_only
from attnflow.models.capture.roles import Role

# Where inputs say what is padding, and whether they mark the padding or the tokens.
OWN = {"attention_mask": "tokens", "src_key_padding_mask": "padding", "key_padding_mask": "padding"}
DECODER = {"decoder_attention_mask": "tokens", "tgt_key_padding_mask": "padding"}

# A query of a layer may lose this much of its weight by cutting padding away.
LOST = 1e-4


class Padding:
    """The positions of each example that are tokens, for the parts of a model.

    n: the number of positions, with padding, of the model or its encoder.
    n_decoder: that of the decoder, 0 if there is none.
    """

    def __init__(self, inputs: Mapping[str, Any], n_examples: int, n: int, n_decoder: int) -> None:
        self.own = kept_positions(_find(inputs, OWN), n_examples, n)
        self.decoder = self.own
        if n_decoder:
            self.decoder = kept_positions(_find(inputs, DECODER), n_examples, n_decoder)

    def cut(self, layer: Tensor, role: Role, example: int, what: str) -> Tensor:
        """The tokens' part of one example's layer [..., queries, keys].

        Raises AttentionError if a token attends to padding.
        """
        rows = self.decoder[example] if role in ("decoder", "cross") else self.own[example]
        columns = self.decoder[example] if role == "decoder" else self.own[example]
        if role != "cross":
            cut: Tensor = cut_layer(layer.reshape(-1, *layer.shape[-2:]), rows, what)
            return cut.reshape(*layer.shape[:-2], *cut.shape[-2:])
        kept = layer[..., _indices(rows, layer), :]
        part = kept[..., _indices(columns, layer)]
        if float((kept.sum(-1) - part.sum(-1)).max()) > LOST:
            raise AttentionError(
                f"{what} gives some of a token's attention to padding",
                expected="none",
                fix="Give the mask of the encoder as attention_mask, with 1 for a token and 0 "
                "for padding.",
            )
        return part

    def cut_product(self, product: Tensor, role: Role, example: int) -> Tensor:
        """The tokens' part of one example's rollout, [positions, tokens] of encoder and decoder."""
        kept = self.own[example]
        if role != "self":
            kept = np.concatenate([kept, self.decoder[example]])
        cut: Tensor = cut_layer(product[None], kept, f"the rollout of example {example}")
        return cut[0]

    def looks_back_only(self, layers: Sequence[Tensor]) -> bool:
        """Whether no token sees a later one, in layers [batch, heads, queries, keys]."""
        return all(
            looks_back_only(self.cut(weights, "self", example, f"layer {i + 1}"))
            for i, layer in enumerate(layers)
            for example, weights in enumerate(layer.detach())
        )

    def last(self, role: Role) -> list[int]:
        """The last token of each example, of the decoder if there is one."""
        masks = self.own if role == "self" else self.decoder
        return [int(np.flatnonzero(kept)[-1]) for kept in masks]


def _find(inputs: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    for name, marks in names.items():
        mask = inputs.get(name)
        if isinstance(mask, Tensor) and mask.dim() == 2:
            if marks == "tokens":
                return (mask > 0).to(torch.float32)
            hidden = mask if mask.dtype == torch.bool else mask < 0
            return (~hidden).to(torch.float32)
    return None


def _indices(kept: Kept, like: Tensor) -> Tensor:
    return torch.as_tensor(np.flatnonzero(kept), device=like.device)


def check_examples(tokens: Sequence[Sequence[str]] | None, n_examples: int) -> None:
    """Raise ShapeError unless there are tokens for each example, or none at all."""
    if tokens is not None and len(tokens) != n_examples:
        raise ShapeError(
            f"tokens were given for {len(tokens)} examples",
            expected=f"{n_examples}",
            fix="Give one list of text for each example of the batch.",
        )
