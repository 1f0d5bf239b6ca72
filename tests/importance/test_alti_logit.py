"""ALTI-Logit against the decomposition of the logit by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnflow.errors import InputError
from attnflow.importance import alti_logit
from attnflow.models.capture.api import capture_contributions, capture_graphs
from attnflow.models.capture.logit_paths import capture_logit_paths
from tests.models.checkpoints import make_loaded
from tests.models.tiny import TINY
from tests.refusal import refusal

TEXT = "the key to cabinets"


def outputs_of(modules: list[torch.nn.Module]) -> list[Tensor]:
    """Record what modules return."""
    found: list[Tensor] = []

    def hook(_: Any, __: Any, result: Any) -> None:
        found.append((result[0] if isinstance(result, tuple) else result).detach())

    for module in modules:
        module.register_forward_hook(hook)
    return found


def test_the_logit_of_a_decoder_is_decomposed() -> None:
    loaded = make_loaded("GPT2LMHeadModel")
    model: Any = loaded.model
    blocks = list(model.transformer.h)
    attention = outputs_of([block.attn for block in blocks])
    feed_forward = outputs_of([block.mlp for block in blocks])
    embeddings = outputs_of([model.transformer.drop])
    result = alti_logit(TEXT, loaded, target=7)
    final, unembedding = model.transformer.ln_f, model.lm_head.weight[7].detach()
    count = len(blocks)
    stream = embeddings[0][0, -1] + sum(x[0, -1] for x in attention[:count])
    stream = stream + sum(x[0, -1] for x in feed_forward[:count])
    spread = torch.sqrt(stream.var(unbiased=False) + final.eps)

    def to_logit(vector: Tensor) -> Tensor:
        centered: Tensor = (vector - vector.mean()) / spread * final.weight.detach()
        logit: Tensor = centered @ unembedding
        return logit

    logit = to_logit(stream) + final.bias.detach() @ unembedding
    assert result.settings["score"] == pytest.approx(float(logit), abs=1e-4)
    biases = [block.attn.c_proj.bias.detach() for block in blocks]
    traced = to_logit(embeddings[0][0, -1]) + sum(
        to_logit(x[0, -1] - bias) for x, bias in zip(attention[:count], biases, strict=True)
    )
    assert result.to_numpy().sum() == pytest.approx(float(traced), abs=1e-4)
    total = result.to_numpy().sum() + result.settings["rest"]
    assert total == pytest.approx(result.settings["score"], abs=1e-6)


def test_contributions_of_the_last_layer_are_traced_by_rollout() -> None:
    """Every pair of layer and key by hand, from the vectors themselves."""
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs((5,))
    paths = capture_logit_paths(model, inputs, lambda output: output.logits[:, -1, 3])
    layers, _ = capture_contributions(model, inputs)
    [graph], _ = capture_graphs(model, inputs, edges="alti")
    stream: list[Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, args: stream.append(args[0][0, -1]))
    with torch.no_grad():
        model(**inputs)
    norm = model.model.norm
    scale = torch.rsqrt(stream[0].square().mean() + norm.variance_epsilon)
    direction = model.lm_head.weight[3] * norm.weight * scale
    for layer, mine, theirs in zip(layers, paths.directions, paths.layers, strict=True):
        added = theirs.project(mine)[0]
        torch.testing.assert_close(added, layer.contributions()[0, -1] @ direction)
    assert graph.n_layers == len(layers)


def test_post_normalization_is_followed_to_the_embeddings() -> None:
    """Without feed-forward layers, the frozen map from embeddings to logit is exact."""
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs((5,))
    with torch.no_grad():
        for layer in model.encoder.layer:
            layer.output.dense.weight.zero_()
            layer.output.dense.bias.zero_()
    direction = torch.randn(32)
    paths = capture_logit_paths(
        model, inputs, lambda output: output.last_hidden_state[:, 0] @ direction
    )
    # All that enters the stream: embeddings, attention with its biases, biases of norms.
    total = float((paths.entry * paths.layers[0].residual).sum())
    for layer, mine in zip(paths.layers, paths.directions, strict=True):
        total += float(layer.project(mine).sum() + (layer.bias * mine).sum())
    norms = [
        part
        for layer in model.encoder.layer
        for part in (layer.attention.output.LayerNorm, layer.output.LayerNorm)
    ]
    for norm in norms:
        assert float(norm.bias.detach().abs().max()) == 0
    assert total == pytest.approx(float(paths.score), abs=1e-4)


@pytest.mark.parametrize(
    "kind", ["BertForSequenceClassification", "GPT2LMHeadModel", "BertForMaskedLM"]
)
def test_contrasts_are_differences(kind: str) -> None:
    loaded = make_loaded(kind)
    text = "the key [MASK] here" if kind == "BertForMaskedLM" else TEXT
    one, other = (alti_logit(text, loaded, target=i) for i in (0, 1))
    both = alti_logit(text, loaded, target=0, against=1)
    if kind == "GPT2LMHeadModel":  # a linear head
        np.testing.assert_allclose(both.scores, one.scores - other.scores, atol=1e-5)
    assert both.settings["score"] == pytest.approx(
        one.settings["score"] - other.settings["score"], abs=1e-5
    )
    assert both.method == "alti_logit"


def test_encoder_decoders_reach_the_source() -> None:
    model, inputs = TINY["t5"].make(model="T5ForConditionalGeneration"), TINY["t5"].inputs((6,))
    paths = capture_logit_paths(model, inputs, lambda output: output.logits[:, -1, 3])
    assert paths.roles[:2] == ("encoder", "encoder")
    assert float(paths.directions[0].abs().max()) == 0
    cross = [i for i, role in enumerate(paths.roles) if role == "cross"]
    assert all(float(paths.layers[i].project(paths.directions[i]).abs().max()) > 0 for i in cross)


def test_a_model_that_predicts_nothing_is_an_error() -> None:
    with refusal(InputError, "BertModel"):
        alti_logit(TEXT, make_loaded("BertModel"))
