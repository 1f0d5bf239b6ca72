"""Keeping the weights of all heads beside a graph, from the same run of the model."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from attnflow.attentions import Attentions
from attnflow.models.call import AttentionCall
from attnflow.models.masks import Padding
from attnflow.models.merge import rescale
from attnflow.models.roles import Role

BYTES = 2  # of a float16


class KeptHeads:
    """The weights of all heads of a run, as float16, as long as they take no more than `limit`.

    limit: bytes for all layers and examples together; None for no limit.
    examples: after the run, one Attentions for each example, or None if nothing was kept: there was
    too much, or the model is an encoder-decoder, whose cross-attention is not square.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.examples: list[Attentions] | None = None
        self._layers: list[Tensor] | None = []
        self._bytes = 0

    def look(self, call: AttentionCall, role: Role) -> None:
        """Keep the weights of one layer, or give up, before computing them, if they do not fit."""
        if self._layers is None:
            return
        batch, n_heads, n_queries, n_keys = call.shape
        self._bytes += batch * n_heads * n_queries * n_keys * BYTES
        if role != "self" or (self.limit is not None and self._bytes > self.limit):
            self._layers = None
            return
        with torch.no_grad():
            kept = [
                rescale(call, call.weights(slice(head, head + 1))).to(torch.float16).cpu()
                for head in range(n_heads)
            ]
        self._layers.append(torch.cat(kept, 1))

    def finish(self, padding: Padding, tokens: Sequence[Sequence[str]] | None) -> None:
        """Make the examples, with padding cut away."""
        layers, self._layers = self._layers, None
        if not layers:
            return
        self.examples = []
        for example in range(layers[0].shape[0]):
            # Cutting checks sums, for which float16 is too coarse.
            cut = [
                padding.cut(layer[example].float(), "self", example, f"layer {i + 1}")
                for i, layer in enumerate(layers)
            ]
            halves = [np.asarray(layer.to(torch.float16)) for layer in cut]
            self.examples.append(Attentions(halves, None if tokens is None else tokens[example]))
