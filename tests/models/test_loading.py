"""Loading models: what is chosen, and what is refused in which words."""

import json
import sys
from pathlib import Path

import pytest
import torch
import transformers

from attnflow.errors import FileError, InputError, MissingDependencyError
from attnflow.models.loading import (
    LoadedModel,
    find_max_length,
    load_model,
    load_tokenizer,
    task_of,
)
from tests.models.checkpoints import LIMIT, make_model, make_tokenizer, save
from tests.refusal import refusal


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("BertForSequenceClassification", "classifier"),
        ("BertForMaskedLM", "masked_lm"),
        ("GPT2LMHeadModel", "causal_lm"),
        ("BertModel", "encoder"),
    ],
)
def test_a_folder_is_loaded_as_what_it_was_saved_as(tmp_path, kind, task):
    loaded = load_model(save(tmp_path, kind))
    assert type(loaded.model).__name__ == kind
    assert (loaded.task, loaded.name, loaded.max_length) == (task, str(tmp_path), LIMIT)
    assert loaded.n_layers == 2
    assert not loaded.model.training
    expected = make_model(kind).state_dict()
    for name, weights in loaded.model.state_dict().items():
        assert torch.equal(weights, expected[name])


def test_a_path_and_an_object_are_taken_too(tmp_path):
    save(tmp_path)
    model = load_model(tmp_path).model
    model.train()
    again = load_model(model)  # its tokenizer is found where the model came from
    assert again.model is model
    assert not model.training
    assert again.tokenizer("the key")["input_ids"] == [2, 5, 6, 3]
    assert load_model(again) is again


def test_an_object_from_nowhere_needs_a_tokenizer(tmp_path):
    model = make_model()
    with refusal(
        InputError,
        "no tokenizer was given, and the BertForSequenceClassification does not say where it came",
        "Name it with tokenizer=...",
    ):
        load_model(model)
    tokenizer = make_tokenizer()
    assert load_model(model, tokenizer).tokenizer is tokenizer
    tokenizer.save_pretrained(tmp_path)
    assert load_model(model, tmp_path).tokenizer.mask_token == "[MASK]"


def test_classes_of_the_users_own_count_as_what_they_derive_from():
    class Mine(transformers.BertForMaskedLM):
        pass

    assert (
        load_model(Mine(make_model("BertForMaskedLM").config), make_tokenizer()).task == "masked_lm"
    )


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("BartForConditionalGeneration", "seq2seq"),
        ("T5ForConditionalGeneration", "seq2seq"),
        ("LlamaForCausalLM", "causal_lm"),
        ("BertForTokenClassification", "encoder"),
    ],
)
def test_tasks_by_class(name, task):
    assert task_of([name]) == task


def test_the_bundled_model_is_the_default():
    loaded = load_model()
    assert (loaded.name, loaded.task, loaded.n_layers) == ("verb-number", "classifier", 6)
    assert load_model(loaded.model).tokenizer("the key")["input_ids"][0] == 2  # found again


def test_something_else_is_no_model():
    with refusal(InputError, "model is a int; expected a transformers model, a folder or a name"):
        load_model(3)


def test_a_pickle_is_refused(tmp_path):
    save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"would run code")
    with refusal(
        FileError,
        "has no safetensors weights",
        "only pytorch_model.bin, a pickle, which can run code when it is read",
        "Convert it once, if you trust it",
        ".save_pretrained(new)",
    ):
        load_model(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with refusal(FileError, "has no safetensors weights (none); expected model.safetensors"):
        load_model(tmp_path)


def write_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize("model_type", ["mine", "bert"])
def test_code_that_comes_with_a_checkpoint_is_never_run(tmp_path, model_type):
    save(tmp_path)
    (tmp_path / "mine.py").write_text("import pathlib; pathlib.Path(__file__).unlink()")
    code = {"AutoConfig": "mine.C", "AutoModelForSequenceClassification": "mine.MyModel"}
    write_config(tmp_path, model_type=model_type, auto_map=code, architectures=["MyModel"])
    with refusal(
        FileError,
        "asks to run Python code that comes with it (auto_map in config.json)",
        "for the class MyModel",
        "attnflow never runs such code",
        "pass the object with model=...",
    ):
        load_model(tmp_path)
    assert (tmp_path / "mine.py").exists()


def test_code_is_not_needed_where_transformers_has_the_class(tmp_path):
    save(tmp_path)
    write_config(tmp_path, auto_map={"AutoModel": "mine.MyModel"})
    assert type(load_model(tmp_path).model) is transformers.BertForSequenceClassification


def test_a_hub_name_without_a_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with refusal(
        FileError,
        "there is no folder nobody/nothing, and no model of that name in the cache or on a hub",
        "Without a network, name a folder written by model.save_pretrained",
    ):
        load_model("nobody/nothing")


def test_folders_that_lack_something(tmp_path):
    with refusal(FileError, "has no config.json", "Name the folder that holds config.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with refusal(FileError, "config.json cannot be read", "expected a JSON object"):
        load_model(tmp_path)
    make_model().save_pretrained(tmp_path)
    with refusal(
        FileError, "has no tokenizer; expected tokenizer.json", "tokenizer.save_pretrained"
    ):
        load_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with refusal(FileError, "no tokenizer can be loaded from"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with refusal(FileError, "cannot be loaded", "expected a checkpoint"):
        load_model(tmp_path)


def test_files_and_adapters_are_no_models(tmp_path):
    save(tmp_path)
    weights = tmp_path / "model.safetensors"
    with refusal(FileError, f"{weights} is a file", f"Name the folder {tmp_path}."):
        load_model(weights)
    (tmp_path / "adapter_config.json").write_text("{}")
    with refusal(FileError, "holds an adapter; expected a whole model", "save_pretrained"):
        load_model(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", '"bert"', "\xff"])
def test_a_configuration_that_is_none(tmp_path, text):
    save(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with refusal(FileError, "config.json cannot be read", "Save the model again"):
        load_model(tmp_path)


def test_code_that_comes_with_a_tokenizer_is_never_run(tmp_path):
    save(tmp_path)
    (tmp_path / "mine.py").write_text("import pathlib; pathlib.Path(__file__).unlink()")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"auto_map": {"AutoTokenizer": ["mine.T", "mine.T"]}, "tokenizer_class": "T"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_model(tmp_path).tokenizer("the key")["input_ids"] == [2, 5, 6, 3]
    assert (tmp_path / "mine.py").exists()


def test_random_weights_are_warned_of(tmp_path):
    save(tmp_path, "BertModel")
    write_config(tmp_path, architectures=["BertForSequenceClassification"])
    with pytest.warns(UserWarning, match=r"lacks 2 of its weights \(classifier.bias, .* random"):
        load_model(tmp_path)


def test_transformers_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refusal(MissingDependencyError, "pip install 'attnflow[models]'"):
        load_model("anything")


def test_the_limit_is_that_of_the_position_embeddings():
    tokenizer = make_tokenizer()
    assert tokenizer.model_max_length > 1e20
    assert find_max_length(make_model(), tokenizer) == LIMIT
    tokenizer.model_max_length = 7
    assert find_max_length(make_model(), tokenizer) == 7


def test_roberta_counts_positions_from_after_the_padding_token():
    config = transformers.RobertaConfig(
        vocab_size=12,
        max_position_embeddings=18,
        pad_token_id=1,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    assert find_max_length(transformers.RobertaModel(config), make_tokenizer()) == 16


def test_a_model_without_positions_has_no_limit():
    assert find_max_length(torch.nn.Linear(1, 1), make_tokenizer()) is None


@pytest.mark.parametrize(
    ("kind", "decoder"),
    [("GPT2Model", True), ("GPT2ForSequenceClassification", True), ("BertModel", False)],
)
def test_decoders_are_known(kind, decoder):
    assert load_model(make_model(kind), make_tokenizer()).sees_only_earlier is decoder


def test_a_loaded_model_can_be_put_together_by_hand():
    loaded = LoadedModel(torch.nn.Linear(1, 1), make_tokenizer(), "classifier", "mine", None)
    assert loaded.n_layers == 1
    assert Path(loaded.name).name == "mine"
