"""MiniLM adapters: attached, extracted, written, read and merged."""

import pytest
import torch
import transformers

from attnflow import FileError
from attnflow.models.builtin.minilm import (
    attach_adapter,
    extract_adapter,
    linear_maps,
    merge_adapter,
    read_adapter,
    write_adapter,
)
from tests.models.checkpoints import make_model
from tests.refusal import refusal

NEW = {"classifier.weight", "classifier.bias"}


def logits_of(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 5, 6, 3]])).logits


def trained(rank=2):
    """A model whose adapter and new parameters have random values."""
    model = make_model()
    attach_adapter(model, rank=rank, new=NEW)
    for weight in model.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def test_a_new_adapter_changes_nothing():
    model, before = make_model(), logits_of(make_model())
    attach_adapter(model, rank=2, new=NEW)
    assert torch.equal(logits_of(model), before)


def test_only_the_adapter_and_the_new_parameters_are_trained():
    model = make_model()
    attach_adapter(model, rank=2, new=NEW)
    trainable = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trainable >= NEW
    # Six maps per layer: query, key, value, attention output, and two in the feed-forward part.
    assert len(linear_maps(model)) == 12
    assert len(trainable) == len(NEW) + 2 * 12


def test_merging_adds_the_product_of_two_matrices():
    model = make_model()
    name, part = next(iter(linear_maps(model).items()))
    up, down = torch.tensor([[1.0], [2.0]] * 4), torch.arange(8.0)[None]
    before = part.weight.detach().clone()
    merge_adapter(model, {f"{name}.up": up, f"{name}.down": down})
    assert torch.allclose(part.weight - before, up @ down)


def test_a_written_adapter_can_be_read(tmp_path):
    model = trained()
    write_adapter(
        tmp_path, extract_adapter(model, new=NEW), class_name="BertForSequenceClassification"
    )
    weights, kind = read_adapter(tmp_path)
    fresh = make_model()
    merge_adapter(fresh, weights)
    assert kind == "BertForSequenceClassification"
    assert torch.allclose(logits_of(fresh), logits_of(model), atol=0.02)  # half precision
    assert not torch.allclose(logits_of(fresh), logits_of(make_model()), atol=0.02)


def test_a_broken_file_is_rejected(tmp_path):
    (tmp_path / "adapter.safetensors").write_bytes(b"nothing")
    with refusal(FileError, "adapter.safetensors", "attnflow train"):
        read_adapter(tmp_path)


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM"])
def test_maps_outside_the_layers_have_no_adapter(kind):
    maps = linear_maps(make_model(kind))
    assert len(maps) == 12
    assert all("encoder.layer" in name for name in maps)
    assert isinstance(make_model(kind), transformers.PreTrainedModel)
