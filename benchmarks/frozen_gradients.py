"""How much of the order of input gradients survives when parts of a model are frozen.

    python -m benchmarks.frozen_gradients MODEL --agreement FILE [--examples 100]

MODEL: a folder or hub name of a decoder of the Llama kind. FILE: as for `benchmarks.edges`.

Attention graphs follow values only: they freeze attention weights, the statistics of normalization,
and the gates of feed-forward layers. The gradient of such a frozen model shows what a graph can be
expected to know of the real one. Prints and saves Spearman's correlation between the norms of both
gradients, averaged over texts, as more and more is frozen.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

from attnflow import load_model
from attnflow.evaluation import spearman
from attnflow.models.loading import LoadedModel
from attnflow.storage import write_json
from benchmarks.edges import agreement_texts
from benchmarks.edges_report import RESULTS

FROZEN = "attnflow_frozen"


def frozen_attention(
    _module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """Causal attention whose weights have no gradient."""
    repeats = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(repeats, 1) for tensor in (key, value))
    n = query.shape[2]
    scores = (query @ key.transpose(-1, -2)) * options["scaling"]
    scores = scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf)
    return (scores.softmax(-1).detach() @ value).transpose(1, 2).contiguous(), None


def frozen_norm(self: Any, hidden: Tensor) -> Tensor:
    """RMSNorm whose statistics have no gradient."""
    mean = hidden.float().square().mean(-1, keepdim=True).detach()
    normalized: Tensor = self.weight * (hidden * torch.rsqrt(mean + self.variance_epsilon))
    return normalized


def frozen_gate(self: Any, hidden: Tensor) -> Tensor:
    """A gated feed-forward layer whose gate has no gradient."""
    gate = self.act_fn(self.gate_proj(hidden)).detach()
    result: Tensor = self.down_proj(gate * self.up_proj(hidden))
    return result


@contextmanager
def frozen(model: Any, parts: int) -> Iterator[None]:
    """Freeze the first parts of: attention weights, normalization, gates."""
    block = model.model.layers[0]
    with ExitStack() as stack:
        if parts > 0:
            AttentionInterface.register(FROZEN, frozen_attention)
            before = model.config._attn_implementation
            stack.callback(model.set_attn_implementation, before)
            model.set_attn_implementation(FROZEN)
        if parts > 1:
            stack.enter_context(patch.object(type(block.input_layernorm), "forward", frozen_norm))
        if parts > 2:
            stack.enter_context(patch.object(type(block.mlp), "forward", frozen_gate))
        yield


def gradient_norms(loaded: LoadedModel, text: str) -> Any:
    """The norm of the gradient of the largest next-token logit, [tokens]."""
    ids = loaded.tokenizer(text, return_tensors="pt")["input_ids"]
    embeddings = loaded.model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = loaded.model(inputs_embeds=embeddings).logits[0, -1]
    [gradient] = torch.autograd.grad(logits.max(), embeddings)
    return gradient[0].norm(dim=-1).numpy()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--agreement", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=100)
    options = parser.parse_args()
    loaded = load_model(options.model)
    names = ("attention weights", "and normalization", "and gates")
    rows: dict[str, list[float]] = {name: [] for name in names}
    for text in agreement_texts(options.agreement, options.examples):
        real = gradient_norms(loaded, text.text)
        for parts, name in enumerate(names, start=1):
            with frozen(loaded.model, parts):
                rows[name].append(float(spearman(gradient_norms(loaded, text.text), real)))
    means = [round(float(np.nanmean(values)), 4) for values in rows.values()]
    for name, mean in zip(names, means, strict=True):
        print(f"frozen: {name:20} {mean:.2f}")
    result = dict(zip(("attention", "norms", "gates"), means, strict=True))
    write_json(RESULTS / "frozen-gradients.json", {**result, "examples": options.examples})


if __name__ == "__main__":
    main()
