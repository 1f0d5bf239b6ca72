"""The attention of padded batches, and rollout of it, against hand-computed and single results."""

from threading import Thread

import pytest
import torch

from attnflow import AttentionError
from attnflow.models import capture_graphs
from attnflow.models.capture.batch import can_run_padded, raw_rows, rollout_rows, run_padded
from attnflow.models.capture.hooks import switch
from tests.models.checkpoints import make_loaded, make_model
from tests.models.tiny import TINY
from tests.refusal import refusal

# One text, two tokens: the first layer swaps them, in the second all look at token 1.
SWAP = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
TO_LAST = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])
LENGTHS = (6, 3, 5)


def batch_of(lengths=LENGTHS):
    torch.manual_seed(1)
    n = max(lengths)
    ids = torch.randint(5, 12, (len(lengths), n))
    mask = torch.tensor([[int(i < length) for i in range(n)] for length in lengths])
    return {"input_ids": ids * mask, "attention_mask": mask}


def test_rollout_by_hand():
    layers, residual = [SWAP, TO_LAST], [0.5, 0.5]
    # A1 = [[.5, .5], [.5, .5]]; A2 = [[.5, .5], [0, 1]]; A2 A1 has .5 everywhere.
    rows = rollout_rows(layers, [1, 2], torch.tensor([[0]]), residual)
    assert rows.tolist() == [[[[0.5, 0.5]], [[0.5, 0.5]]]]
    # With r = 0.25 for the first layer, A1 = [[.25, .75], [.75, .25]]:
    # row 0 of A2 A1 = .5 * [.25, .75] + .5 * [.75, .25], row 1 = [.75, .25].
    rows = rollout_rows(layers, [2, 1], torch.tensor([[1, 0]]), [0.25, 0.5])
    assert rows.tolist() == [[[[0.75, 0.25], [0.5, 0.5]], [[0.75, 0.25], [0.25, 0.75]]]]
    everything = rollout_rows(layers, [2], None, [0.25, 0.5])
    assert everything.tolist() == [[[[0.5, 0.5], [0.75, 0.25]]]]


def test_raw_attention_by_hand():
    layers = [SWAP, TO_LAST]
    assert raw_rows(layers, [2, 1], torch.tensor([[0]])).tolist() == [[[[0.0, 1.0]], [[0.0, 1.0]]]]
    assert raw_rows(layers, [1], None).tolist() == [[SWAP[0].tolist()]]


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "llama", "gemma3", "distilbert"])
@pytest.mark.parametrize("heads", ["mean", "max", 1])
def test_padded_batches_give_what_graphs_give(name, heads):
    tiny = TINY[name]
    model = tiny.make()
    inputs = batch_of()
    graphs, expected = capture_graphs(model, inputs, heads=heads)
    assert can_run_padded(model)
    switch(model)
    layers, output = run_padded(model, inputs, heads)
    for i, (graph, length) in enumerate(zip(graphs, LENGTHS, strict=True)):
        mine = torch.stack([layer[i, :length, :length] for layer in layers])
        torch.testing.assert_close(mine, graph.attention, atol=1e-6, rtol=0)
        torch.testing.assert_close(
            output[0][i, :length], expected[0][i, :length], atol=1e-5, rtol=1e-5
        )


def test_a_switched_model_gives_its_own_output_and_can_be_captured():
    model = make_model()
    inputs = batch_of()
    with torch.no_grad():
        before = model(**inputs).logits
        switch(model)
        assert torch.equal(model(**inputs).logits, before)
    graphs, output = capture_graphs(model, inputs)
    assert [graph.n_tokens for graph in graphs] == list(LENGTHS)
    torch.testing.assert_close(output.logits, before)


def test_threads_run_one_model_at_the_same_time():
    model = make_model()
    switch(model)
    batches = [batch_of(lengths) for lengths in ((6, 3), (4, 4, 2), (9,), (2,))]
    expected = [run_padded(model, inputs)[0] for inputs in batches]
    found = {}

    def work(k):
        for _ in range(20):
            found[k] = run_padded(model, batches[k])[0]

    threads = [Thread(target=work, args=(k,)) for k in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, layers in enumerate(expected):
        assert all(torch.equal(mine, its) for mine, its in zip(found[k], layers, strict=True))


def test_models_of_another_shape_are_left_to_capture_graphs():
    assert not can_run_padded(TINY["t5"].make())
    assert not can_run_padded(torch.nn.Linear(2, 2))
    assert can_run_padded(make_loaded().model)


def test_a_model_that_is_not_switched_over_is_refused():
    model = make_model()
    with refusal(AttentionError, "of the shapes none", "Use capture_graphs"):
        run_padded(model, batch_of())
