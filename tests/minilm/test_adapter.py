"""Low-rank additions: attached, taken out, stored and merged again."""

import pytest
import torch
import transformers

from attnflow import FileError
from attnflow.models.builtin.minilm import attach, extract, linear_maps, merge, read, write
from tests.models.checkpoints import make_model
from tests.refusal import refusal

NEW = {"classifier.weight", "classifier.bias"}


def answer(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 5, 6, 3]])).logits


def trained(rank=2):
    """A model whose additions and new parameters are no longer what they were at first."""
    model = make_model()
    attach(model, rank=rank, new=NEW)
    for weight in model.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def test_nothing_changes_at_first():
    model, before = make_model(), answer(make_model())
    attach(model, rank=2, new=NEW)
    assert torch.equal(answer(model), before)


def test_only_the_additions_and_the_new_parameters_are_learnt():
    model = make_model()
    attach(model, rank=2, new=NEW)
    learnt = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert learnt >= NEW
    # Six maps a layer: queries, keys, values, what follows them, and two of the feed-forward.
    assert len(linear_maps(model)) == 12
    assert len(learnt) == len(NEW) + 2 * 12


def test_an_addition_is_the_product_of_two_thin_matrices():
    model = make_model()
    name, part = next(iter(linear_maps(model).items()))
    up, down = torch.tensor([[1.0], [2.0]] * 4), torch.arange(8.0)[None]
    before = part.weight.detach().clone()
    merge(model, {f"{name}.up": up, f"{name}.down": down})
    assert torch.allclose(part.weight - before, up @ down)


def test_what_is_written_is_what_is_read(tmp_path):
    model = trained()
    write(tmp_path, extract(model, new=NEW), kind="BertForSequenceClassification")
    weights, kind = read(tmp_path)
    fresh = make_model()
    merge(fresh, weights)
    assert kind == "BertForSequenceClassification"
    assert torch.allclose(answer(fresh), answer(model), atol=0.02)  # half precision
    assert not torch.allclose(answer(fresh), answer(make_model()), atol=0.02)


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "adapter.safetensors").write_bytes(b"nothing")
    with refusal(FileError, "no adapter can be read from", "expected a file that `attnflow train`"):
        read(tmp_path)


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM"])
def test_maps_outside_the_layers_get_no_addition(kind):
    maps = linear_maps(make_model(kind))
    assert len(maps) == 12
    assert all("encoder.layer" in name for name in maps)
    assert isinstance(make_model(kind), transformers.PreTrainedModel)
