"""Hybrid models: layers that mix positions by state spaces, linear attention or convolutions."""

from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnflow import explain
from attnflow.arrays import to_numpy
from attnflow.errors import AttentionError
from attnflow.importance import alti_logit
from attnflow.models.capture.api import (
    capture_attentions,
    capture_contributions,
    capture_graphs,
)
from attnflow.models.capture.call import AttentionCall
from attnflow.models.capture.forward import run_model
from attnflow.models.capture.mixers import MixingCall, find_mixers
from attnflow.models.capture.padded_batch import supports_padded_batches
from attnflow.models.capture.rollout_capture import capture_rollout
from attnflow.notes import explanation_notes
from tests.models.capture.test_contributions import largest_error
from tests.models.checkpoints import make_tokenizer
from tests.models.tiny import GROUPED, NO_TOKENS, SIZES, TINY, Tiny
from tests.refusal import refusal

BASE: dict[str, Any] = {**GROUPED, **NO_TOKENS, "intermediate_size": 32, "num_hidden_layers": 4}
PLAIN: dict[str, Any] = {
    **SIZES,
    **NO_TOKENS,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
}
EXPERTS = {
    "num_experts": 2,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
MAMBA = {
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 3,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
KIMI = {
    **EXPERTS,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "linear_num_heads": 4,
    "linear_head_dim": 8,
}
JAMBA = {**EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8}
GRANITE = {**MAMBA, **EXPERTS, "layer_types": ["mamba", "attention"] * 2}
NEMOTRON = {
    "layers_block_type": ["mamba", "attention", "mlp", "attention"],
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "ssm_state_size": 8,
    "n_groups": 1,
    "chunk_size": 8,
}
SPACES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 8,
    **NO_TOKENS,
}
LFM2 = {"layer_types": ["conv", "full_attention"] * 2, "block_auto_adjust_ff_dim": False}
ZAMBA2 = {
    "mamba_d_state": 8,
    "mamba_headdim": 8,
    "n_mamba_heads": 8,
    "mamba_ngroups": 1,
    "chunk_size": 8,
    "layers_block_type": ["mamba", "hybrid"] * 2,
    "num_mem_blocks": 1,
    "use_mem_rope": True,
    "adapter_rank": 4,
}
MINIMAX = {**EXPERTS, "layer_types": ["linear_attention", "full_attention"] * 2, "block_size": 4}
GRIFFIN = {"lru_width": 32, "block_types": ["recurrent", "recurrent", "attention"]}

HYBRIDS = {
    "bamba": Tiny("BambaForCausalLM", "BambaConfig", {**BASE, **MAMBA, "attn_layer_indices": [1]}),
    "falcon-h1": Tiny(  # both kinds in each block
        "FalconH1ForCausalLM", "FalconH1Config", {**BASE, **MAMBA, "mamba_d_ssm": 64}
    ),
    "granite-hybrid": Tiny(
        "GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", {**BASE, **GRANITE}
    ),
    "jamba": Tiny("JambaForCausalLM", "JambaConfig", {**BASE, **JAMBA}),
    "kimi-linear": Tiny("KimiLinearForCausalLM", "KimiLinearConfig", {**PLAIN, **KIMI}),
    "lfm2": Tiny("Lfm2ForCausalLM", "Lfm2Config", {**BASE, **LFM2}),
    "mamba": Tiny("MambaForCausalLM", "MambaConfig", SPACES),
    "mamba2": Tiny(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {**SPACES, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8},
    ),
    "nemotron-h": Tiny("NemotronHForCausalLM", "NemotronHConfig", {**BASE, **NEMOTRON}),
    "olmo-hybrid": Tiny("OlmoHybridForCausalLM", "OlmoHybridConfig", {**BASE, **LINEAR}),
    "qwen3-next": Tiny("Qwen3NextForCausalLM", "Qwen3NextConfig", {**BASE, **EXPERTS, **LINEAR}),
    "qwen3.5": Tiny("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", {**BASE, **LINEAR}),
}
# Layers of which only the residual connection is known.
PARTLY = {
    "minimax": Tiny("MiniMaxForCausalLM", "MiniMaxConfig", {**BASE, **MINIMAX}),
    "recurrent-gemma": Tiny(
        "RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", {**BASE, **GRIFFIN}
    ),
}
NO_ATTENTION = ("mamba", "mamba2")
TOKENIZER = make_tokenizer(encoder=False)


def make(name: str) -> Any:
    tiny = {**HYBRIDS, **PARTLY}[name]
    return tiny.make("eager" if name in NO_ATTENTION else "sdpa")


def mixing_calls(model: Any, inputs: Any) -> list[MixingCall]:
    """The layers without attention."""
    calls: list[AttentionCall] = []
    run_model(model, inputs, calls.append)
    return [call for call in calls if isinstance(call, MixingCall)]


@pytest.mark.parametrize("name", HYBRIDS)
def test_contributions_of_all_layers_add_up_to_what_the_model_added(name):
    model, inputs = make(name), {"input_ids": torch.randint(5, 99, (2, 11))}
    with torch.no_grad():
        expected = model(**inputs).logits
    layers, output = capture_contributions(model, inputs)
    assert len(layers) >= model.config.num_hidden_layers - (name == "nemotron-h")
    assert max(map(largest_error, layers)) < 1e-4
    assert torch.allclose(output.logits, expected, atol=1e-4)


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("edges", ["attention", "value", "gradient"])
def test_all_layers_are_in_the_graph(name, edges):
    model, inputs = make(name), HYBRIDS[name].inputs((7,))
    with torch.no_grad():
        expected = model(**inputs).logits
    [graph], output = capture_graphs(model, inputs, edges=edges)
    assert graph.n_layers >= model.config.num_hidden_layers - (name == "nemotron-h")
    mixers = sum(1 for part in graph.settings["mixing"].split() if part.strip(",").isdigit())
    # The attention layers of Kimi have a name that looks like linear attention.
    assert mixers == (2 if name == "kimi-linear" else len(find_mixers(model)))
    assert graph.causal
    assert torch.allclose(output.logits, expected, atol=1e-3)


def test_the_matrices_of_mamba2_are_those_of_its_formula():
    model, inputs = make("mamba2"), {"input_ids": torch.randint(5, 99, (1, 13))}
    [call, _] = mixing_calls(model, inputs)
    mixer = model.backbone.layers[0].mixer
    seen: list[Any] = []
    mixer.in_proj.register_forward_hook(lambda *args: seen.append(args[2]))
    with torch.no_grad():
        model(**inputs)
        gate_and_more = seen[0]
        _, mixed, steps = gate_and_more.split([64, mixer.conv_dim, 4], dim=-1)
        padded = torch.nn.functional.pad(mixed.transpose(1, 2), (3, 0))
        convolved = torch.nn.functional.conv1d(
            padded, mixer.conv1d.weight, mixer.conv1d.bias, groups=mixer.conv_dim
        )
        values, b, c = torch.nn.functional.silu(convolved).transpose(1, 2).split([64, 8, 8], -1)
        step = torch.nn.functional.softplus(steps + mixer.dt_bias)[0].T  # [heads, positions]
        total = (-mixer.A_log.exp()[:, None] * step).cumsum(-1)
        decay = (total[:, :, None] - total[:, None]).exp().tril()
        expected = (c[0] @ b[0].T) * decay * step[:, None]
        expected += torch.diag_embed(mixer.D[:, None].expand(4, 13))
    assert torch.allclose(call.matrices[0], expected, atol=1e-4)
    assert torch.allclose(call.value[0].transpose(0, 1).flatten(1), values[0], atol=1e-5)


def delta_rule(query: Tensor, key: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """The matrix [positions, positions] of one head of a gated delta rule, step by step."""
    n, width = key.shape
    query, key = (
        part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (query, key)
    )
    state = torch.zeros(width, n)  # of values that are unit vectors
    rows = []
    for i in range(n):
        state = state * decay[i].exp()
        new = beta[i] * (torch.eye(n)[i] - key[i] @ state)
        state = state + torch.outer(key[i], new)
        rows.append(query[i] * width**-0.5 @ state)
    return torch.stack(rows)


def test_the_matrices_of_gated_delta_nets_are_those_of_their_recurrence(monkeypatch):
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling

    seen: list[Any] = []
    kernel = modeling.torch_chunk_gated_delta_rule

    @wraps(kernel)
    def record(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return kernel(*args, **kwargs)

    monkeypatch.setattr(modeling, "torch_chunk_gated_delta_rule", record)
    # More positions than a chunk of the kernel has.
    calls = mixing_calls(make("qwen3-next"), {"input_ids": torch.randint(5, 99, (1, 70))})
    assert modeling.torch_chunk_gated_delta_rule is record
    (query, key, _), options = seen[0]
    for head in range(4):
        expected = delta_rule(
            query[0, :, head],
            key[0, :, head],
            options["g"][0, :, head],
            options["beta"][0, :, head],
        )
        assert torch.allclose(calls[0].matrices[0, head], expected, atol=1e-4)


@pytest.mark.parametrize("name", ["qwen3-next", "bamba", "jamba", "lfm2", "falcon-h1"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("edges", ["attention", "alti"])
def test_padding_changes_nothing(name, side, edges):
    model = make(name)
    graphs, _ = capture_graphs(model, HYBRIDS[name].inputs((7, 5), side), edges=edges)
    ids = HYBRIDS[name].inputs((7, 5), side)["input_ids"]
    alone = ids[1:, -5:] if side == "left" else ids[1:, :5]
    [expected], _ = capture_graphs(model, {"input_ids": alone}, edges=edges)
    np.testing.assert_allclose(to_numpy(graphs[1].weights), to_numpy(expected.weights), atol=1e-4)


@pytest.mark.parametrize("name", ["qwen3-next", "bamba", "jamba", "lfm2"])
@pytest.mark.parametrize("edges", ["attention", "alti"])
def test_half_precision(name, edges):
    model, inputs = make(name), HYBRIDS[name].inputs((7,))
    [expected], _ = capture_graphs(model, inputs, edges=edges)
    [graph], _ = capture_graphs(model.to(torch.bfloat16), inputs, edges=edges)
    np.testing.assert_allclose(to_numpy(graph.weights), to_numpy(expected.weights), atol=0.05)


def test_heads_and_rollout_have_all_layers():
    model, inputs = make("qwen3-next"), HYBRIDS["qwen3-next"].inputs((7,))
    [attentions], _ = capture_attentions(model, inputs)
    assert attentions.n_layers == 4
    [graph], _ = capture_graphs(model, inputs)
    np.testing.assert_allclose(
        np.stack([to_numpy(layer).mean(0) for layer in attentions.layers]),
        to_numpy(graph.attention),
        atol=1e-6,
    )
    [rollout], _ = capture_rollout(model, inputs)
    expected = np.eye(7)
    for layer in to_numpy(graph.weights):
        expected = layer @ expected
    np.testing.assert_allclose(to_numpy(rollout.scores)[0], expected, atol=1e-6)


def test_alti_logit_of_a_hybrid_adds_up():
    text = "the key to the cabinets is here"
    scores = alti_logit(text, make("qwen3-next"), tokenizer=TOKENIZER)
    total = float(scores.scores.sum()) + scores.settings["rest"]
    assert total == pytest.approx(scores.settings["score"], abs=1e-4)
    assert np.abs(to_numpy(scores.scores)).min() > 0


@pytest.mark.parametrize("name", PARTLY)
@pytest.mark.parametrize("edges", ["attention", "alti", "value", "gradient", "gradient_rescaled"])
def test_a_layer_that_is_not_captured_is_its_residual_connection(name, edges):
    model, inputs = make(name), PARTLY[name].inputs((7,))
    with pytest.warns(UserWarning, match="residual connections only"):
        [graph], _ = capture_graphs(model, inputs, edges=edges)
    skipped = [i for i, kind in enumerate(_kinds(name, model)) if kind != "full_attention"]
    assert graph.n_layers == model.config.num_hidden_layers
    for i in range(graph.n_layers):
        is_identity = np.allclose(to_numpy(graph.weights)[i], np.eye(7))
        assert is_identity == (i in skipped)
    listed = ", ".join(str(i + 1) for i in skipped)
    assert graph.settings["residual_only"].startswith(f"{listed} (")


def _kinds(name: str, model: Any) -> list[str]:
    if name == "minimax":
        return list(model.config.layer_types)
    blocks = ["linear", "linear", "full_attention"] * 2
    return blocks[: model.config.num_hidden_layers]


def test_the_note_on_layers_that_are_not_captured():
    with pytest.warns(UserWarning, match="MiniMaxLightningAttention"):
        explanation = explain("the key to the cabinets", make("minimax"), tokenizer=TOKENIZER)
    notes = explanation_notes(explanation, explanation.rollout())
    assert "1, 3 (MiniMaxLightningAttention)" in notes[-1]


def test_alti_edges_of_zamba2_are_replaced_with_a_warning():
    model = Tiny("Zamba2ForCausalLM", "Zamba2Config", {**PLAIN, **ZAMBA2}).make()
    with pytest.warns(UserWarning, match="'attention' instead"):
        explanation = explain("the key to the cabinets", model, tokenizer=TOKENIZER)
    assert explanation.graph.settings["edges"] == "attention"
    assert explanation.graph.n_layers == 6  # an attention layer, and a mixer, in hybrid blocks


def test_a_model_with_nothing_to_capture_is_refused():
    sizes = {**SPACES, "attention_hidden_size": 32}
    sizes.pop("state_size")
    tiny = Tiny("RwkvForCausalLM", "RwkvConfig", sizes)
    with refusal(AttentionError, "RwkvForCausalLM"):
        capture_graphs(tiny.make("eager"), tiny.inputs((7,)))


def test_mixers_are_found_by_class():
    assert not find_mixers(TINY["llama"].make())
    assert not supports_padded_batches(make("qwen3-next"))
