"""Contributions: what each position adds to others must add up to what the model added."""

import pytest
import torch
from torch import Tensor, nn

from attnflow.errors import AttentionError, InputError
from attnflow.models.capture.affine import Affine
from attnflow.models.capture.api import capture_contributions
from attnflow.models.capture.contributions import LayerContributions
from tests.models.tiny import BART, GROUPED, NO_TOKENS, SIZES, TINY, VISION, Tiny
from tests.refusal import refusal

GPTJ = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "rotary_dim": 4, **NO_TOKENS}
BLOOM = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, **NO_TOKENS}
OPT = {**SIZES, "ffn_dim": 37, "word_embed_proj_dim": 32}
MOE = {
    "layer_types": ["full_attention"] * 2,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
EXPERTS = {
    **GROUPED,
    **NO_TOKENS,
    "intermediate_size": 32,
    "num_local_experts": 2,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
}
LATENT = {  # keys and values from a common vector
    **SIZES,
    **NO_TOKENS,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
}
MARIAN = {**BART, "pad_token_id": 0, "decoder_start_token_id": 0}
PARALLEL = {**SIZES, "use_parallel_residual": True, "num_key_value_heads": 4}

# Architectures whose way from attention to the residual stream differs from those in TINY.
MORE = {
    "bloom": Tiny("BloomModel", "BloomConfig", BLOOM),  # computes attention by itself
    "cohere": Tiny("CohereModel", "CohereConfig", {**SIZES, **NO_TOKENS}),  # parallel blocks
    "deepseek-v3": Tiny("DeepseekV3Model", "DeepseekV3Config", LATENT),
    "dinov2": Tiny("Dinov2Model", "Dinov2Config", VISION, kind="image"),  # scales each layer
    "falcon": Tiny("FalconModel", "FalconConfig", {**SIZES, **NO_TOKENS}),  # adds in place
    "glm4": Tiny("Glm4Model", "Glm4Config", GROUPED),  # norms before and after the branch
    "gpt-j": Tiny("GPTJModel", "GPTJConfig", GPTJ),
    "granite": Tiny("GraniteModel", "GraniteConfig", {**SIZES, "residual_multiplier": 0.3}),
    "granite-moe": Tiny(  # gives the router's weights the type of what is followed
        "GraniteMoeModel", "GraniteMoeConfig", {**EXPERTS, "num_experts_per_tok": 2}
    ),
    "llama4": Tiny("Llama4TextModel", "Llama4TextConfig", EXPERTS),
    "marian": Tiny("MarianModel", "MarianConfig", MARIAN, kind="pair"),
    "minimax": Tiny(  # scales the residual stream, and takes it after the norm
        "MiniMaxModel",
        "MiniMaxConfig",
        {**GROUPED, **MOE, "num_local_experts": 2, "intermediate_size": 32},
    ),
    "mixtral": Tiny("MixtralModel", "MixtralConfig", EXPERTS),
    "olmo2": Tiny("Olmo2Model", "Olmo2Config", SIZES),  # norms after the branch
    "opt": Tiny("OPTModel", "OPTConfig", OPT),
    "phi": Tiny("PhiModel", "PhiConfig", SIZES),
    "qwen3-moe": Tiny("Qwen3MoeModel", "Qwen3MoeConfig", EXPERTS),
    "qwen3-next": Tiny("Qwen3NextModel", "Qwen3NextConfig", {**GROUPED, **MOE}),  # gated heads
    "stablelm": Tiny("StableLmModel", "StableLmConfig", PARALLEL),
}
ALL = {**TINY, **MORE}
EAGER_ONLY = ("deberta-v2", "bloom", "gpt-j", "gemma2", "gpt-oss")


def make(name: str) -> nn.Module:
    """Make a model with biases and gains that are not 0 and 1."""
    model: nn.Module = ALL[name].make("eager" if name in EAGER_ONLY else "sdpa")
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def largest_error(layer: LayerContributions) -> float:
    """The largest difference to what the model added, relative to its length."""
    total = layer.contributions().sum(2) + layer.bias
    error = torch.linalg.vector_norm(total - layer.added, dim=-1)
    return float((error / torch.linalg.vector_norm(layer.added, dim=-1)).max())


@pytest.mark.parametrize("name", ALL)
def test_contributions_add_up_to_what_the_model_added(name: str) -> None:
    model, inputs = make(name), ALL[name].inputs((7, 5))
    inputs.pop("attention_mask", None)
    inputs.pop("decoder_attention_mask", None)
    with torch.no_grad():
        expected = model(**inputs)[0]
    layers, output = capture_contributions(model, inputs)
    assert max(map(largest_error, layers)) < 1e-4
    assert torch.allclose(output[0], expected, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2", "bart"])
def test_padding_contributes_nothing(name: str) -> None:
    layers, _ = capture_contributions(make(name), TINY[name].inputs((7, 4)))
    for layer in layers:
        if layer.call.shape[3] == 7:
            assert float(layer.contributions()[1, :, 4:].abs().max()) == 0


def record(model: nn.Module, path: str, *, inputs: bool) -> list[Tensor]:
    """Record the hidden states that enter or leave a module."""
    found: list[Tensor] = []

    def hook(_: nn.Module, args: tuple[Tensor, ...], result: object = None) -> None:
        value = args[0] if inputs else result
        found.append(value[0] if isinstance(value, tuple) else value)  # type: ignore[arg-type]

    module = model.get_submodule(path)
    if inputs:
        module.register_forward_pre_hook(hook)
    else:
        module.register_forward_hook(hook)
    return found


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("llama", "model.layers.1", "model.layers.1.post_attention_layernorm"),
        ("gemma2", "layers.1", "layers.1.pre_feedforward_layernorm"),
        ("gpt2", "h.1", "h.1.ln_2"),
        ("opt", "decoder.layers.1", "decoder.layers.1.final_layer_norm"),
        ("bert", "encoder.layer.1", "encoder.layer.1.attention.output.LayerNorm"),
    ],
)
def test_the_residual_stream_is_that_of_the_block(name: str, before: str, after: str) -> None:
    model = make(name)
    entering = record(model, before, inputs=True)
    summed = record(model, after, inputs=True)
    layers, _ = capture_contributions(model, ALL[name].inputs((6,)))
    assert torch.allclose(layers[1].residual, entering[0].reshape_as(layers[1].residual))
    assert torch.allclose(layers[1].output, summed[0].reshape_as(layers[1].output), atol=1e-5)


@pytest.mark.parametrize(("name", "attention", "mlp"), [("gpt-neox", "attention", "mlp")])
def test_parallel_blocks_leave_the_feed_forward_branch_out(
    name: str, attention: str, mlp: str
) -> None:
    model = make(name)
    branch = record(model, f"layers.0.{attention}", inputs=False)
    other = record(model, f"layers.0.{mlp}", inputs=False)
    layers, _ = capture_contributions(model, ALL[name].inputs((6,)))
    assert torch.allclose(layers[0].added, branch[0], atol=1e-6)
    assert not torch.allclose(layers[0].added, other[0], atol=1e-2)


def test_norms_after_the_sum_are_found() -> None:
    expected = {"bert": [2, 2], "llama": [0, 0], "gemma2": [0, 0], "bart": [2, 2, 1, 2, 1, 2]}
    for name, counts in expected.items():
        layers, _ = capture_contributions(make(name), TINY[name].inputs((6,)))
        assert [layer.n_norms for layer in layers] == counts


def test_normalized_parts_add_up_to_the_normalized_stream() -> None:
    model = make("bert")
    normalized = record(model, "encoder.layer.0.attention.output.LayerNorm", inputs=False)
    layers, _ = capture_contributions(model, TINY["bert"].inputs((6,)))
    sums: list[Tensor] = []

    def add_up(parts: Tensor, total: Tensor) -> Tensor:
        sums.append(parts.sum(2))
        assert torch.allclose(total, normalized[0])
        return parts.sum(-1)

    layers[0].score(add_up, norms=1)
    weights = dict(model.named_parameters())
    gain, shift, added = (
        weights[f"encoder.layer.0.attention.output.{name}"]
        for name in ("LayerNorm.weight", "LayerNorm.bias", "dense.bias")
    )
    spread = layers[0].output.std(-1, unbiased=False, keepdim=True)
    bias = (added - added.mean()) * gain / spread + shift
    assert torch.allclose(sums[0] + bias, normalized[0], atol=1e-4)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_plain_torch_models(batch_first: bool, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=batch_first, norm_first=norm_first, dropout=0.1
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    inputs = torch.randn(3, 5, 16)
    layers, _ = capture_contributions(
        model, {"src": inputs if batch_first else inputs.transpose(0, 1)}
    )
    assert max(map(largest_error, layers)) < 1e-4
    assert torch.allclose(layers[0].residual, inputs)
    assert [layer.n_norms for layer in layers] == ([0, 0] if norm_first else [2, 2])


def test_blocks_give_the_same_scores_as_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, _ = capture_contributions(make("llama"), TINY["llama"].inputs((7, 7)))

    def lengths(parts: Tensor, total: Tensor) -> Tensor:
        assert total.shape == (2, parts.shape[1], 32)
        scores: Tensor = torch.linalg.vector_norm(parts, dim=-1)
        return scores

    whole = layers[1].score(lengths)
    parts = layers[1].contributions() + torch.diag_embed(
        layers[1].residual.transpose(1, 2)
    ).permute(0, 2, 3, 1)
    assert torch.allclose(whole, torch.linalg.vector_norm(parts, dim=-1), atol=1e-5)
    monkeypatch.setitem(LayerContributions._blocks.__globals__["BLOCK_SIZE"], "cpu", 2 * 7 * 32 * 2)
    assert torch.allclose(layers[1].score(lengths), whole, atol=1e-6)


def test_heads_add_up() -> None:
    layers, _ = capture_contributions(make("gpt2"), TINY["gpt2"].inputs((5,)))
    heads = sum(layers[0].contributions(head) for head in range(4))
    assert torch.allclose(torch.as_tensor(heads), layers[0].contributions(), atol=1e-5)
    with refusal(InputError, "max"):
        layers[0].contributions("max")


def test_mixing_ratio_by_hand() -> None:
    layers, _ = capture_contributions(make("llama"), TINY["llama"].inputs((4,)))
    parts = layers[0].contributions()[0]
    own = layers[0].residual[0, 2] + parts[2, 2]
    others = parts[2, 0] + parts[2, 1]
    expected = others.norm() / (others.norm() + own.norm())
    ratio = layers[0].mixing_ratio()[0]
    assert float(ratio[2]) == pytest.approx(float(expected), rel=1e-4)
    assert float(ratio[0]) == pytest.approx(0, abs=1e-6)


class Squared(nn.Module):
    """A model whose attention is squared before it is added."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = self.attention(x, x, x)[0]
        return x + attended**2


def test_a_step_that_is_not_affine_is_an_error() -> None:
    with refusal(AttentionError, "layer 1", "Squared"):
        capture_contributions(Squared(), {"x": torch.randn(1, 3, 8)})


class Clamped(nn.Module):
    """A model that changes its attention in place, which is not seen as a step."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = self.attention(x, x, x)[0]
        return x + attended.clamp_(min=0)


def test_contributions_that_do_not_add_up_are_an_error() -> None:
    with refusal(AttentionError, "layer 1", "Clamped"):
        capture_contributions(Clamped(), {"x": torch.randn(1, 3, 8)})


def test_one_factor_per_head_is_followed() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.gate = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            parts = self.project(x).unflatten(-1, (3, 2, 4)).unbind(2)
            query, key, value = (part.transpose(1, 2) for part in parts)
            heads = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
            gated = heads * self.gate(x).sigmoid().unsqueeze(-1)
            projected: Tensor = self.out(gated.flatten(-2))
            return x + projected

    torch.manual_seed(0)
    layers, _ = capture_contributions(Gated(), {"x": torch.randn(2, 5, 8)})
    assert largest_error(layers[0]) < 1e-5


def test_affine_steps_compose() -> None:
    torch.manual_seed(0)
    vectors, first, second = torch.randn(2, 3, 4), torch.randn(4, 5), torch.randn(5, 6)
    bias, gain = torch.randn(5), torch.randn(6)
    scale = torch.rand(2, 3, 1)
    step: Affine | None = Affine().project(first, bias)
    step = step and step.multiply(scale, (2, 3))
    step = step and step.project(second, None).multiply(gain, (2, 3))
    step = step and step.center()
    expected = (((vectors @ first + bias) * scale) @ second) * gain
    expected = expected - expected.mean(-1, keepdim=True)
    assert step is not None
    assert step.scale is not None
    assert step.bias is not None
    assert torch.allclose(step.transform(vectors) * step.scale + step.bias, expected, atol=1e-5)
