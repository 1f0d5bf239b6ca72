"""Attentions.from_layers: layers from the caches of other packages, one after another."""

import gc
import os
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import attnflow
from attnflow import AttentionError, AttentionGraph, Attentions, InputError, ShapeError
from tests.convert.models import make_speaker
from tests.refusal import refusal


def random_layers(n_layers=3, n_heads=4, n=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n), size=(n_layers, n_heads, n))


@pytest.mark.parametrize("heads", ["mean", "max", 2, lambda layer: layer[0] + layer[1]])
@pytest.mark.parametrize("kind", ["numpy", "torch", "half"])
def test_the_graph_is_that_of_all_heads(heads, kind):
    layers = random_layers()
    if kind != "numpy":
        layers = torch.tensor(layers, dtype=torch.float16 if kind == "half" else torch.float64)
    tokens = list("abcde")
    merged = Attentions.from_layers((layer for layer in layers), tokens=tokens, heads=heads)
    assert (merged.n_heads, merged.tokens) == ((1, 1, 1), tuple(tokens))
    graph = AttentionGraph.from_attentions(merged)
    expected = AttentionGraph.from_attentions(Attentions(list(layers), tokens), heads=heads)
    assert isinstance(graph.weights, type(layers))
    np.testing.assert_allclose(graph.weights, expected.weights, atol=1e-6)


def test_batches_of_one_and_mappings():
    layers = random_layers()
    cache = {f"blocks.{i}.attn.hook_pattern": layer[None] for i, layer in enumerate(layers)}
    merged = Attentions.from_layers(cache)
    for layer, expected in zip(merged.layers, layers.mean(axis=1), strict=True):
        np.testing.assert_allclose(layer[0], expected)


def test_only_one_layer_is_in_memory():
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def generate():
        nonlocal most
        for layer in torch.tensor(random_layers(n_layers=6)):
            gc.collect()
            most = max(most, sum(ref() is not None for ref in alive))
            fresh = layer.clone()
            alive.append(weakref.ref(fresh))
            yield fresh
            del fresh

    assert Attentions.from_layers(generate()).n_layers == 6
    assert most == 0  # none of the layers before is left when the next one is made


def test_invalid_layers_are_refused():
    with refusal(AttentionError, "no items"):
        Attentions.from_layers([])
    with refusal(AttentionError, "layer 2", "eager"):
        Attentions.from_layers([random_layers()[0], None])
    scores = random_layers()
    with refusal(AttentionError, "layer 3", "head 0"):
        Attentions.from_layers([*scores[:2], scores[2] * 2])
    with refusal(ShapeError, "layer 2"):
        Attentions.from_layers([random_layers(n=4)[0], random_layers(n=5)[0]])
    with refusal(InputError, "median"):
        Attentions.from_layers(random_layers(), heads="median")  # type: ignore[arg-type]
    with refusal(ShapeError, "batch of 2"):
        Attentions.from_layers([random_layers()[:2]])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of TransformerLens
def test_the_cache_of_transformer_lens():
    bridge = pytest.importorskip("transformer_lens.model_bridge").TransformerBridge
    size = {"n_layers": 3, "d_model": 16, "n_ctx": 16, "d_head": 8, "n_heads": 2, "d_vocab": 20}
    model = bridge.boot_native({**size, "act_fn": "gelu", "seed": 0}, device="cpu")
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([[1, 5, 7, 2]]))
    merged = Attentions.from_layers(cache["pattern", i] for i in range(3))
    assert (merged.n_layers, merged.n_tokens) == (3, 4)
    for i, layer in enumerate(merged.layers):
        expected = cache["pattern", i][0].mean(dim=0)
        torch.testing.assert_close(layer[0], expected)
    assert AttentionGraph.from_attentions(merged).causal


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of nnsight
def test_a_trace_of_nnsight_merges_layers_as_it_goes():
    nnsight = pytest.importorskip("nnsight")
    loaded = make_speaker()
    loaded.model.set_attn_implementation("eager")
    llm = nnsight.LanguageModel(loaded.model, tokenizer=loaded.tokenizer)
    with llm.trace("the key to"):
        merged = nnsight.save(
            Attentions.from_layers(
                layer.self_attn.source.attention_interface_0.output[1] for layer in llm.model.layers
            )
        )
    expected = attnflow.explain("the key to", loaded, edges="attention").graph
    graph = AttentionGraph.from_attentions(merged)
    torch.testing.assert_close(graph.weights, expected.weights)


@pytest.mark.slow
def test_hooks_on_a_model_of_transformers():
    """Weights handed over layer by layer, as nnsight does: none are kept by the model."""
    models = Path(os.environ.get("ATTNFLOW_MODELS", "")) / "smollm2"
    if not models.is_dir():
        pytest.skip("set ATTNFLOW_MODELS to a folder that contains smollm2")
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(models, attn_implementation="eager")
    tokenizer = transformers.AutoTokenizer.from_pretrained(models)
    text = "The keys to the cabinet"
    caught: list[torch.Tensor] = []
    for block in model.model.layers:
        block.self_attn.register_forward_hook(lambda _module, _args, out: caught.append(out[1]))
    with torch.no_grad():
        model(**tokenizer(text, return_tensors="pt"))
    merged = Attentions.from_layers(caught, tokens=tokenizer.tokenize(text))
    expected = attnflow.explain(text, model, tokenizer=tokenizer, edges="attention").graph
    graph = AttentionGraph.from_attentions(merged)
    np.testing.assert_allclose(graph.weights.numpy(), expected.weights.numpy(), atol=1e-5)
