"""AttnLRP by lxt: relevance by hand, and models that are the same afterwards."""

import importlib.util
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from attnflow.errors import InputError, MissingDependencyError
from attnflow.importance import lrp
from attnflow.importance.lrp import lrp_relevance
from attnflow.models.inputs import encode_text
from attnflow.models.loading import LoadedModel, load_model
from attnflow.models.prediction import Contrast
from tests.models.checkpoints import VOCABULARY, make_loaded, make_tokenizer
from tests.refusal import refusal

TEXT = "the key to cabinets is here"
LAST, TARGET = 5, 7

needs_lxt = pytest.mark.skipif(
    importlib.util.find_spec("lxt") is None, reason="lxt is not installed: see attnflow.optional"
)


@dataclass(frozen=True)
class Step:
    position: int = LAST
    contrast: Contrast = field(default_factory=lambda: Contrast(TARGET))


def make_decoder(kind: str, layers: int = 2, **options: Any) -> Any:
    """A random decoder without biases."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **options,
    )
    return getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(config).eval()


def load(model: Any) -> LoadedModel:
    return load_model(model, make_tokenizer(encoder=False))


def relevance(loaded: LoadedModel, *steps: Step) -> np.ndarray:
    return lrp_relevance(loaded, encode_text(loaded, TEXT), steps or (Step(),))


def logit(loaded: LoadedModel) -> Tensor:
    ids = encode_text(loaded, TEXT).inputs["input_ids"]
    result: Tensor = loaded.model(ids).logits[0, LAST, TARGET]
    return result


@needs_lxt
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_relevance_sums_to_the_logit_without_attention(attention):
    # Norms and feed-forward layers conserve relevance; attention does not, see the next test.
    model = make_decoder("Llama", attn_implementation=attention)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    loaded = load(model)
    scores = relevance(loaded)
    assert scores.sum() == pytest.approx(logit(loaded).item(), rel=1e-5)
    assert (scores[:LAST] == 0).all()


@needs_lxt
def test_uniform_attention_passes_on_half_of_its_relevance():
    # One half of the relevance of attention goes to the values, the other to the weights, which
    # here are constant and pass on nothing. The rest of the model is linear if its norms are
    # constants, as the rule for norms demands.
    model = make_decoder("Llama", layers=1)
    [layer] = model.model.layers
    with torch.no_grad():
        layer.self_attn.q_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    loaded = load(model)
    ids = encode_text(loaded, TEXT).inputs["input_ids"][0]
    with torch.no_grad():
        x = model.model.embed_tokens(ids)
        unembed = model.lm_head.weight[TARGET]

        def norm_factor(vectors: Tensor) -> Tensor:
            return torch.rsqrt(vectors.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps)

        attention = layer.self_attn
        values = attention.o_proj(attention.v_proj(x * norm_factor(x))) / len(ids)
        factor = norm_factor(x[LAST] + values.sum(0))
        expected = values @ unembed * factor / 2
        expected[LAST] += x[LAST] @ unembed * factor[0]
    np.testing.assert_allclose(relevance(loaded), expected.numpy(), rtol=1e-4, atol=1e-6)


@needs_lxt
def test_relevance_of_several_steps_is_summed():
    loaded = load(make_decoder("Llama"))
    steps = Step(3, Contrast(6)), Step(5, Contrast(8, 9))
    parts = [relevance(loaded, step) for step in steps]
    np.testing.assert_allclose(relevance(loaded, *steps), sum(parts), rtol=1e-4, atol=1e-6)
    assert np.abs(parts[0]).min() < np.abs(parts[0]).max()
    assert (parts[0][4:] == 0).all()


def fingerprint(model: Any, loaded: LoadedModel) -> list[Any]:
    """The prediction and all its gradients, and what the model and its classes are made of."""
    prediction = logit(loaded)
    weights = list(model.parameters())
    gradients: Any = torch.autograd.grad(prediction, weights, allow_unused=True)
    kinds = [type(module) for module in model.modules()]
    module = sys.modules[type(model).__module__]
    return [
        [prediction.detach(), *(g for g in gradients if g is not None)],
        kinds,
        [kind.forward for kind in kinds],
        [vars(module)["eager_attention_forward"], vars(module)["ALL_ATTENTION_FUNCTIONS"]],
        dict(vars(module)),
        [part.config._attn_implementation for part in model.modules() if hasattr(part, "config")],
        [part.training for part in model.modules()],
        [(list(part._forward_hooks), part.__dict__.keys()) for part in model.modules()],
    ]


def check_same(before: list[Any], after: list[Any]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    assert before[1:] == after[1:]


DECODERS = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 8},
    "Gemma3Text": {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4},
}


@needs_lxt
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", [*DECODERS, "GPT2"])
def test_models_are_the_same_afterwards(kind, attention):
    if kind == "GPT2":
        loaded = make_loaded("GPT2LMHeadModel", attn_implementation=attention)
        model: Any = loaded.model
    else:
        model = make_decoder(kind, attn_implementation=attention, **DECODERS[kind])
        loaded = load(model)
    model.train()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    before = fingerprint(model, loaded)
    scores = relevance(loaded)
    assert np.isfinite(scores).all()
    assert (scores != 0).all()
    check_same(before, fingerprint(model, loaded))
    np.testing.assert_array_equal(relevance(loaded), scores)


@needs_lxt
def test_models_are_the_same_after_an_error():
    model = make_decoder("Llama")
    loaded = load(model)
    before = fingerprint(model, loaded)
    with pytest.raises(IndexError):
        relevance(loaded, Step(contrast=Contrast(len(VOCABULARY))))
    check_same(before, fingerprint(model, loaded))


@needs_lxt
def test_rules_that_change_the_prediction_are_refused(monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    class Doubled(LlamaRMSNorm):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return 2 * super().forward(hidden_states)

    loaded = load(make_decoder("Llama"))
    rules = lrp._find_rules(loaded)
    wrong = lrp._Rules({LlamaRMSNorm: Doubled}, rules.functions)
    monkeypatch.setattr(lrp, "_find_rules", lambda _: wrong)
    before = fingerprint(loaded.model, loaded)
    with refusal(InputError, "lxt", transformers.__version__):
        relevance(loaded)
    check_same(before, fingerprint(loaded.model, loaded))


@needs_lxt
@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertForMaskedLM"])
def test_architectures_without_rules_are_refused(kind):
    loaded = make_loaded(kind)
    with refusal(InputError, kind, "llama", "qwen3", "gemma3", "gpt2"):
        lrp_relevance(loaded, encode_text(loaded, "the key [MASK]"), [Step(3)])


def test_lxt_is_optional(monkeypatch):
    caches = (lrp._import_lxt, lrp._known_maps)
    for cached in caches:
        cached.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "lxt"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lxt", None)
    with refusal(MissingDependencyError, "lxt", "pip install"):
        relevance(load(make_decoder("Llama")))
    for cached in caches:
        cached.cache_clear()
