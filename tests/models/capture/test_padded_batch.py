"""Padded batches: against values computed by hand, and against single examples."""

from threading import Thread

import pytest
import torch

from attnflow import AttentionError
from attnflow.models import capture_graphs
from attnflow.models.capture.padded_batch import raw_rows, run_padded, supports_padded_batches
from attnflow.models.capture.transformers_hooks import install_hooks
from tests.models.checkpoints import make_loaded, make_model
from tests.models.tiny import TINY
from tests.refusal import refusal

pytestmark = pytest.mark.slow

# One text of two tokens: the first layer swaps them, in the second both attend to token 1.
SWAP = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
TO_LAST = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])
LENGTHS = (6, 3, 5)


def batch_of(lengths=LENGTHS):
    torch.manual_seed(1)
    n = max(lengths)
    ids = torch.randint(5, 12, (len(lengths), n))
    mask = torch.tensor([[int(i < length) for i in range(n)] for length in lengths])
    return {"input_ids": ids * mask, "attention_mask": mask}


def test_raw_attention_by_hand():
    layers = [SWAP, TO_LAST]
    assert raw_rows(layers, [2, 1], torch.tensor([[0]])).tolist() == [[[[0.0, 1.0]], [[0.0, 1.0]]]]
    assert raw_rows(layers, [1], None).tolist() == [[SWAP[0].tolist()]]


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "llama", "gemma3", "distilbert"])
@pytest.mark.parametrize("heads", ["mean", "max", 1])
def test_padded_batches_equal_captured_graphs(name, heads):
    tiny = TINY[name]
    model = tiny.make()
    inputs = batch_of()
    graphs, expected = capture_graphs(model, inputs, heads=heads)
    assert supports_padded_batches(model)
    install_hooks(model)
    layers, output = run_padded(model, inputs, heads)
    for i, (graph, length) in enumerate(zip(graphs, LENGTHS, strict=True)):
        cut = torch.stack([layer[i, :length, :length] for layer in layers])
        torch.testing.assert_close(cut, graph.attention, atol=1e-6, rtol=0)
        torch.testing.assert_close(
            output[0][i, :length], expected[0][i, :length], atol=1e-5, rtol=1e-5
        )


def test_hooks_do_not_change_the_output_and_the_model_can_be_captured():
    model = make_model()
    inputs = batch_of()
    with torch.no_grad():
        before = model(**inputs).logits
        install_hooks(model)
        assert torch.equal(model(**inputs).logits, before)
    graphs, output = capture_graphs(model, inputs)
    assert [graph.n_tokens for graph in graphs] == list(LENGTHS)
    torch.testing.assert_close(output.logits, before)


def test_several_threads_run_one_model():
    model = make_model()
    install_hooks(model)
    batches = [batch_of(lengths) for lengths in ((6, 3), (4, 4, 2), (9,), (2,))]
    expected = [run_padded(model, inputs)[0] for inputs in batches]
    results = {}

    def work(k):
        for _ in range(20):
            results[k] = run_padded(model, batches[k])[0]

    threads = [Thread(target=work, args=(k,)) for k in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, layers in enumerate(expected):
        assert all(
            torch.equal(layer, other) for layer, other in zip(results[k], layers, strict=True)
        )


def test_training_mode_is_restored_after_several_threads():
    model = make_model()
    install_hooks(model)
    inputs = batch_of()
    expected, _ = run_padded(model, inputs)
    model.train()
    results = []

    def work():
        for _ in range(10):
            results.append(run_padded(model, inputs)[0])

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(module.training for module in model.modules())
    assert len(results) == 30
    for layers in results:
        assert torch.equal(layers[-1], expected[-1])


def test_encoder_decoders_and_torch_models_are_not_supported():
    assert not supports_padded_batches(TINY["t5"].make())
    assert not supports_padded_batches(torch.nn.Linear(2, 2))
    assert supports_padded_batches(make_loaded().model)


def test_a_model_without_hooks_is_an_error():
    model = make_model()
    with refusal(AttentionError, "BertForSequenceClassification", "[3, 6, 6]", "capture_graphs"):
        run_padded(model, batch_of())
