"""Loading models and tokenizers, and restoring a model's mode and device."""

import json
import sys
from pathlib import Path

import pytest
import torch
import transformers

from attnflow.errors import FileError, InputError, MissingDependencyError
from attnflow.models.checkpoint import TEXT_TASKS, find_task
from attnflow.models.loading import LoadedModel, find_max_length, load_model, load_tokenizer
from attnflow.models.model_state import evaluation_mode, move_model, on_device
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
def test_a_folder_is_loaded_with_the_class_it_was_saved_from(tmp_path, kind, task):
    loaded = load_model(save(tmp_path, kind))
    assert type(loaded.model).__name__ == kind
    assert (loaded.task, loaded.name, loaded.max_length) == (task, str(tmp_path), LIMIT)
    assert loaded.n_layers == 2
    assert not loaded.model.training
    expected = make_model(kind).state_dict()
    for name, weights in loaded.model.state_dict().items():
        assert torch.equal(weights, expected[name])


def test_a_model_object_stays_as_it_is(tmp_path):
    save(tmp_path)
    model = load_model(tmp_path).model
    model.train()
    again = load_model(model)  # finds its tokenizer in the folder of the model
    assert again.model is model
    assert model.training
    assert again.tokenizer("the key")["input_ids"] == [2, 5, 6, 3]
    assert load_model(again) is again


def test_another_tokenizer_for_a_loaded_model(tmp_path):
    loaded = load_model(save(tmp_path))
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 5
    changed = load_model(loaded, tokenizer)
    assert changed.tokenizer is tokenizer
    assert (changed.model, changed.max_length) == (loaded.model, 5)


def test_an_object_without_a_folder_needs_a_tokenizer(tmp_path):
    model = make_model()
    with refusal(InputError, "BertForSequenceClassification", "tokenizer=..."):
        load_model(model)
    tokenizer = make_tokenizer()
    assert load_model(model, tokenizer).tokenizer is tokenizer
    tokenizer.save_pretrained(tmp_path)
    assert load_model(model, tmp_path).tokenizer.mask_token == "[MASK]"


def test_a_subclass_has_the_task_of_its_base_class():
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
    assert find_task([name], TEXT_TASKS) == task


def test_the_default_model():
    loaded = load_model()
    assert (loaded.name, loaded.task, loaded.n_layers) == ("verb-number", "classifier", 6)
    assert load_model(loaded.model).tokenizer("the key")["input_ids"][0] == 2  # found by its folder


def test_other_types_are_rejected():
    with refusal(InputError, "int", "a transformers model, a folder or a hub name"):
        load_model(3)


def test_a_pickle_is_rejected(tmp_path):
    save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"would run code")
    with refusal(FileError, "pytorch_model.bin", "model.safetensors", "attnflow convert"):
        load_model(tmp_path)


def test_a_folder_without_weights_is_rejected(tmp_path):
    save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with refusal(FileError, str(tmp_path), "model.safetensors"):
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
    with refusal(FileError, "auto_map", "MyModel", "model=..."):
        load_model(tmp_path)
    assert (tmp_path / "mine.py").exists()


def test_code_is_not_needed_where_transformers_has_the_class(tmp_path):
    save(tmp_path)
    write_config(tmp_path, auto_map={"AutoModel": "mine.MyModel"})
    assert type(load_model(tmp_path).model) is transformers.BertForSequenceClassification


def test_a_hub_name_without_a_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with refusal(FileError, "nobody/nothing", "model.save_pretrained"):
        load_model("nobody/nothing")
    with refusal(FileError, "the key to the cabinets", "explain(text, model)"):
        load_model("the key to the cabinets")


def test_incomplete_folders_are_rejected(tmp_path):
    with refusal(FileError, str(tmp_path), "config.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with refusal(FileError, "config.json", "JSON object"):
        load_model(tmp_path)
    make_model().save_pretrained(tmp_path)
    with refusal(FileError, "tokenizer.json", "tokenizer.save_pretrained", "tokenizer=..."):
        load_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with refusal(FileError, f"tokenizer can be loaded from {tmp_path}"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with refusal(FileError, f"{tmp_path} cannot be loaded"):
        load_model(tmp_path)


def test_files_and_adapters_are_rejected(tmp_path):
    save(tmp_path)
    weights = tmp_path / "model.safetensors"
    with refusal(FileError, f"{weights} is a file", f"folder {tmp_path}."):
        load_model(weights)
    (tmp_path / "adapter_config.json").write_text("{}")
    with refusal(FileError, "an adapter", "save_pretrained"):
        load_model(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", '"bert"', "\xff"])
def test_a_broken_configuration_is_rejected(tmp_path, text):
    save(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with refusal(FileError, f"{tmp_path}/config.json"):
        load_model(tmp_path)


def test_code_that_comes_with_a_tokenizer_is_never_run(tmp_path):
    save(tmp_path)
    (tmp_path / "mine.py").write_text("import pathlib; pathlib.Path(__file__).unlink()")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"auto_map": {"AutoTokenizer": ["mine.T", "mine.T"]}, "tokenizer_class": "T"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_model(tmp_path).tokenizer("the key")["input_ids"] == [2, 5, 6, 3]
    assert (tmp_path / "mine.py").exists()


@pytest.mark.parametrize(
    ("saved", "needed", "names"),
    [
        ("BertModel", "BertForSequenceClassification", ["2", "classifier.bias", "classifier.w"]),
        ("BertModel", "BertForMaskedLM", ["cls.predictions"]),
        ("BertForMaskedLM", "BertForSequenceClassification", ["bert.pooler.dense", "classifier."]),
        ("GPT2Model", "GPT2ForSequenceClassification", ["score.weight"]),
    ],
)
def test_missing_weights_are_refused_by_name(tmp_path, saved, needed, names):
    save(tmp_path, saved)
    write_config(tmp_path, architectures=[needed])
    with refusal(FileError, str(tmp_path), "architectures", *names):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"num_hidden_layers": 3}, ["16", "layer.2.attention", "11 more"]),
        ({"intermediate_size": 17}, ["8", "intermediate.dense.bias", "[16] instead of [17]"]),
        ({"num_labels": 3, "id2label": {"0": "a", "1": "b", "2": "c"}}, ["classifier.bias", "[3]"]),
        ({"vocab_size": 20}, ["word_embeddings", "[12, 8] instead of [20, 8]"]),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights_is_refused(tmp_path, change, names):
    save(tmp_path)
    write_config(tmp_path, **change)
    with refusal(FileError, str(tmp_path), *names):
        load_model(tmp_path)


def test_an_encoder_needs_no_pooler(tmp_path):
    save(tmp_path, "BertForMaskedLM")
    write_config(tmp_path, architectures=["BertModel"])
    assert load_model(tmp_path).task == "encoder"


def test_transformers_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refusal(MissingDependencyError, "pip install 'attnflow[models]'"):
        load_model("anything")


def test_the_position_embeddings_limit_the_length():
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
def test_decoders_are_causal(kind, decoder):
    assert load_model(make_model(kind), make_tokenizer()).is_causal is decoder


def test_a_loaded_model_can_be_constructed():
    loaded = LoadedModel(torch.nn.Linear(1, 1), make_tokenizer(), "classifier", "mine", None)
    assert loaded.n_layers == 1
    assert Path(loaded.name).name == "mine"


def test_evaluation_mode_restores_each_module():
    model = make_model().train()
    model.bert.eval()
    before = {name: module.training for name, module in model.named_modules()}
    assert len(set(before.values())) == 2
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert {name: module.training for name, module in model.named_modules()} == before
    with pytest.raises(KeyError), evaluation_mode(model):
        raise KeyError
    assert {name: module.training for name, module in model.named_modules()} == before


def test_overlapping_blocks_keep_evaluation_mode_until_the_last_ends():
    model = make_model().train()
    first, second = evaluation_mode(model), evaluation_mode(model)
    with first:
        second.__enter__()
    assert not any(module.training for module in model.modules())
    second.__exit__(None, None, None)
    assert all(module.training for module in model.modules())


class MovedModel(torch.nn.Linear):
    """A model that only records where it is moved."""

    def __init__(self):
        super().__init__(2, 2)
        self.moves = []

    def to(self, device):  # type: ignore[override]
        self.moves.append(str(device))
        if str(device) == "cuda:7":
            raise RuntimeError("no such device\nand more")
        return self


def test_a_model_is_moved_to_a_device_and_back():
    model = MovedModel()
    with on_device(model, "cuda:0"):
        assert model.moves == ["cuda:0"]
    assert model.moves == ["cuda:0", "cpu"]
    with pytest.raises(KeyError), on_device(model, torch.device("cpu")):
        raise KeyError
    assert model.moves[2:] == ["cpu", "cpu"]
    with on_device(model, None):
        assert len(model.moves) == 4


@pytest.mark.parametrize("device", ["cuda:7", "nowhere", "meta", torch.float16])
def test_a_device_that_cannot_be_used(device):
    model = MovedModel()
    with refusal(InputError, repr(device), "--device"), on_device(model, device):
        pass
    assert model.moves[-1:] == ["cpu"]  # moved back
    with refusal(InputError, repr(device)):
        move_model(torch.nn.Linear(1, 1), device)


def test_a_model_on_several_devices_is_not_moved():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1, device="meta"))
    with refusal(InputError, "cpu, meta"), on_device(model, "cpu"):
        pass


@pytest.mark.parametrize(("file", "package"), [("source.spm", "sentencepiece"), ("vocab.txt", "")])
def test_a_tokenizer_without_its_package_says_what_to_install(tmp_path, monkeypatch, file, package):
    def fail(*_names, **_options):
        raise ImportError("this tokenizer requires a library")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    (tmp_path / file).write_text("")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    parts = [str(tmp_path), f"pip install {package}" if package else "requires a library"]
    with refusal(MissingDependencyError, *parts):
        load_tokenizer(str(tmp_path))
