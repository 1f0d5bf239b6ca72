"""Models as they are run: compiled, wrapped, offloaded, quantized, in half precision."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnflow import explain
from attnflow.arrays import to_numpy
from attnflow.errors import AttentionError, FileError, InputError
from attnflow.importance import alti_logit
from attnflow.models.capture.api import capture_contributions
from attnflow.models.capture.linear_modules import hides_operations, module_matrix
from attnflow.models.loading import load_model, load_tokenizer
from attnflow.models.model_state import on_device
from attnflow.models.wrappers import find_device, unwrap
from tests.models.capture.test_contributions import largest_error
from tests.models.checkpoints import make_model, make_tokenizer
from tests.models.tiny import GROUPED, NO_TOKENS, Tiny
from tests.refusal import refusal

LLAMA = Tiny("LlamaForCausalLM", "LlamaConfig", {**GROUPED, **NO_TOKENS})
TOKENIZER = make_tokenizer(encoder=False)
TEXT = "the key to the cabinets"
EDGES = ["attention", "alti", "value", "gradient"]


def scores(model: Any, edges: str) -> Any:
    """The rollout of the last position."""
    explanation = explain(TEXT, model, tokenizer=TOKENIZER, edges=edges)
    assert explanation.prediction is not None
    return to_numpy(explanation.rollout().row())


def check_same(model: Any, tolerance: float = 1e-6, edges: list[str] = EDGES) -> None:
    """Check that a model is explained as the one with the same weights."""
    plain = LLAMA.make()
    for name in edges:
        np.testing.assert_allclose(scores(model, name), scores(plain, name), atol=tolerance)


class HiddenLinear(nn.Module):
    """A linear layer that computes outside of torch, and rounds its weights and its input."""

    def __init__(self, linear: nn.Linear, step: float) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.rounded = (linear.weight.detach() / step).round() * step
        self.step = step

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        rounded = np.round(vectors.detach().numpy() / self.step) * self.step
        return torch.from_numpy((rounded @ self.rounded.numpy().T).astype(np.float32))


class CurvedLinear(HiddenLinear):
    """A layer that looks like a linear one."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return super().forward(vectors) ** 3


def hide(model: Any, kind: type[HiddenLinear] = HiddenLinear) -> Any:
    for layer in model.model.layers:
        layer.self_attn.o_proj = kind(layer.self_attn.o_proj, 1e-3)
    return model


def test_a_hidden_layer_is_measured_by_unit_vectors():
    linear = nn.Linear(3, 2)
    hidden = HiddenLinear(linear, 1e-3)
    assert hides_operations(hidden)
    assert not hides_operations(linear)
    matrix = module_matrix(hidden, 3, torch.zeros(1, 3))
    assert torch.allclose(matrix, linear.weight.T, atol=1e-3)


def test_layers_that_hide_their_operations_are_followed():
    model = hide(LLAMA.make())
    check_same(model, 0.01, ["attention", "alti", "value"])
    layers, _ = capture_contributions(model, LLAMA.inputs())
    assert max(map(largest_error, layers)) < 1e-4
    # What the layer rounded belongs to no key.
    assert 0 < float(layers[0].bias.abs().max()) < 0.1


def test_a_hidden_layer_that_is_not_linear_is_refused():
    with refusal(AttentionError, "layer 1"):
        capture_contributions(hide(LLAMA.make(), CurvedLinear), LLAMA.inputs())


class ScaledLinear(nn.Module):
    """Adds to the output of a layer a function of it, as DoRA does."""

    def __init__(self, linear: nn.Linear, power: int) -> None:
        super().__init__()
        self.linear, self.power = linear, power
        self.factor = torch.linspace(-1, 1, linear.out_features).view(1, -1)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(vectors)
        return result + self.factor * (result if self.power == 1 else result**self.power)


def test_a_layer_that_is_added_to_itself_is_one_branch():
    model, merged = LLAMA.make(), LLAMA.make()
    for layer, twin in zip(model.model.layers, merged.model.layers, strict=True):
        layer.self_attn.o_proj = ScaledLinear(layer.self_attn.o_proj, 1)
        with torch.no_grad():
            twin.self_attn.o_proj.weight.mul_(1 + layer.self_attn.o_proj.factor.T)
    np.testing.assert_allclose(scores(model, "alti"), scores(merged, "alti"), atol=1e-5)


def test_a_function_of_the_branch_is_not_another_branch():
    model = LLAMA.make()
    layer = model.model.layers[0].self_attn
    layer.o_proj = ScaledLinear(layer.o_proj, 2)
    with refusal(AttentionError, "layer 1"):
        capture_contributions(model, LLAMA.inputs())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from torch.compile itself
@pytest.mark.parametrize("how", ["whole", "in place", "inside"])
def test_compiled_models(how):
    model = LLAMA.make()
    if how == "whole":
        model = torch.compile(model)
    elif how == "in place":
        model.compile()
    else:
        model.model = torch.compile(model.model)
    check_same(model)


def test_data_parallel_models():
    model = LLAMA.make()
    assert unwrap(nn.DataParallel(model)) is model
    assert load_model(nn.DataParallel(model), TOKENIZER).task == "causal_lm"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    check_same(LLAMA.make().to(dtype), 0.02)


def test_the_device_is_that_of_the_input_embeddings():
    class Hook:
        execution_device = "meta"

    model = make_model("GPT2LMHeadModel")
    assert find_device(model) == torch.device("cpu")
    model.transformer.wte._hf_hook = Hook()  # as accelerate marks modules
    assert find_device(model) == torch.device("meta")
    assert find_device(nn.Identity()) == torch.device("cpu")


@pytest.mark.parametrize("place", ["cpu", "disk", "both"])
def test_offloaded_models(place, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    model = LLAMA.make()
    if place == "cpu":
        accelerate.cpu_offload(model, execution_device="cpu")
    elif place == "disk":
        accelerate.disk_offload(model, tmp_path, execution_device="cpu")
    else:
        parts = {"model.layers.1": "disk", "lm_head": "disk", "model.layers.0": "cpu"}
        others = {f"model.{name}": "cpu" for name in ("embed_tokens", "norm", "rotary_emb")}
        accelerate.dispatch_model(
            model, parts | others, main_device="cpu", offload_dir=tmp_path, force_hooks=True
        )
    check_same(model)
    with refusal(InputError, "cpu"), on_device(model, "cpu"):
        pass


def move_to(device: str) -> Any:
    """A hook that moves all tensors that enter a module, as accelerate does."""

    def move(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(move, value))
        return value.to(device) if isinstance(value, torch.Tensor) else value

    return lambda _, args, kwargs: (move(args), {name: move(kwargs[name]) for name in kwargs})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("first", "second"), [("cpu", "cuda:0"), ("cuda:0", "cpu")])
def test_models_on_two_devices(first, second):
    model = LLAMA.make().to(first)
    for part in (model.model.layers[1], model.model.norm, model.lm_head):
        part.to(second).register_forward_pre_hook(move_to(second), with_kwargs=True)
    assert find_device(model) == torch.device(first)
    check_same(model, 1e-4)
    alone = alti_logit(TEXT, LLAMA.make(), tokenizer=TOKENIZER).scores
    spread = alti_logit(TEXT, model, tokenizer=TOKENIZER).scores
    np.testing.assert_allclose(to_numpy(spread), to_numpy(alone), atol=1e-4)


def add_adapter(kind: str) -> Any:
    peft = pytest.importorskip("peft")
    configs = {
        "lora": lambda: peft.LoraConfig(target_modules=["q_proj", "o_proj"], r=4),
        "dora": lambda: peft.LoraConfig(target_modules=["o_proj"], r=4, use_dora=True),
        "ia3": lambda: peft.IA3Config(
            target_modules=["v_proj", "down_proj"], feedforward_modules=["down_proj"]
        ),
        "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
        "prefix": lambda: peft.PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    }
    model = peft.get_peft_model(LLAMA.make(), configs[kind]())
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "ia3" in name:
                parameter.normal_()
    return model


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_adapters_are_explained_as_merged_models(kind):
    model = add_adapter(kind)
    found = [scores(model, edges) for edges in EDGES]
    merged = model.merge_and_unload()
    for edges, row in zip(EDGES, found, strict=True):
        np.testing.assert_allclose(row, scores(merged, edges), atol=1e-5)
    assert np.abs(found[1] - scores(LLAMA.make(), "alti")).max() > 0.01


def test_an_adapter_in_a_folder_is_loaded_with_its_model(tmp_path):
    base, folder = str(tmp_path / "base"), str(tmp_path / "adapter")
    model = add_adapter("lora")
    LLAMA.make().save_pretrained(base)
    TOKENIZER.save_pretrained(base)
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(folder)
    found = explain(TEXT, folder)
    assert found.prediction is not None
    expected = explain(TEXT, model, tokenizer=TOKENIZER)
    np.testing.assert_allclose(
        to_numpy(found.graph.weights), to_numpy(expected.graph.weights), atol=1e-6
    )
    (tmp_path / "base" / "model.safetensors").unlink()
    with refusal(FileError, "adapter", "model.safetensors"):
        load_model(folder)
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with refusal(FileError, "adapter_model.safetensors"):
        load_model(folder)
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with refusal(FileError, "base_model_name_or_path"):
        load_tokenizer(folder)


@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_virtual_tokens_are_refused(kind):
    with refusal(InputError, 3):
        explain(TEXT, add_adapter(kind), tokenizer=TOKENIZER)


@pytest.mark.parametrize("kind", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_weights_quantized_by_torchao(kind):
    quantization = pytest.importorskip("torchao.quantization")
    model = LLAMA.make()
    quantization.quantize_(model, getattr(quantization, kind)())
    check_same(model, 0.03, ["attention", "alti", "value"])
    layers, _ = capture_contributions(model, LLAMA.inputs())
    assert max(map(largest_error, layers)) < 1e-4


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_quantized_by_bitsandbytes(bits, tmp_path):
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig, LlamaForCausalLM

    LLAMA.make().save_pretrained(tmp_path)
    config = BitsAndBytesConfig(load_in_8bit=bits == 8, load_in_4bit=bits == 4)
    model = LlamaForCausalLM.from_pretrained(
        tmp_path, quantization_config=config, device_map="cpu", dtype=torch.float32
    )
    check_same(model, 0.03 if bits == 8 else 0.15)
    layers, _ = capture_contributions(model, LLAMA.inputs())
    assert max(map(largest_error, layers)) < 1e-4
