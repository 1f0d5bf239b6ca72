"""A model, its tokenizer and what it predicts, from an object, a folder or a hub name.

What may be read and run of a checkpoint is decided in `attnflow.models.checkpoint`.
Turning text into inputs is the work of `attnflow.models.encoding`.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from attnflow.errors import FileError, InputError
from attnflow.minilm.folders import find_adapter, find_encoder
from attnflow.models.checkpoint import (
    Task,
    first_line,
    import_transformers,
    load_checkpoint,
    task_of,
)
from attnflow.verb_number.folders import BUNDLED, find_folder

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model")
NO_LIMIT = 10**6  # tokenizers without a limit say 1e30


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to be explained.

    model: called with the tokenizer's tensors, in evaluation mode. tokenizer: its tokenizer.
    task: "classifier", "masked_lm", "causal_lm", "seq2seq", or "encoder", which predicts nothing.
    name: what it was loaded from. max_length: the most tokens it takes; None if it has no limit.
    """

    model: Any
    tokenizer: Any
    task: Task
    name: str
    max_length: int | None

    @property
    def n_layers(self) -> int:
        """The number of layers that the configuration names; 1 for a model without one."""
        return int(getattr(_text_config(self.model), "num_hidden_layers", None) or 1)

    @property
    def sees_only_earlier(self) -> bool:
        """Whether this is a decoder: its last position is the one that sees the whole text."""
        config = _text_config(self.model)
        if getattr(config, "is_encoder_decoder", False):
            return False
        if self.task == "causal_lm" or getattr(config, "is_decoder", False):
            return True
        tables = import_module("transformers.models.auto.modeling_auto")
        kind = getattr(config, "model_type", "")
        causal, masked = (
            tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            tables.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        )
        return kind in causal and kind not in masked

    @property
    def takes_one_at_a_time(self) -> bool:
        """Whether this is a classifier that looks for the last token, and cannot tell padding."""
        padding = getattr(_text_config(self.model), "pad_token_id", None)
        return self.task == "classifier" and padding is None and self.sees_only_earlier


def load_model(model: Any = None, tokenizer: Any = None) -> LoadedModel:
    """Load a model and its tokenizer, and find out what it predicts.

    model: a transformers model (put into evaluation mode), a folder, a name on the hub, or a
    LoadedModel, which is given back. The class is chosen by `architectures` in its configuration.
    "verb-number", which is the default, and "verb-number-causal" are models of the paper's kind
    that come with attnflow; "minilm-sst2" and "minilm-mlm" are adapters to a MiniLM encoder, whose
    package must be installed.
    tokenizer: an object, a folder or a name; where the model came from if not given.
    Raises FileError for a checkpoint that is missing, has no safetensors weights or needs its own
    code, InputError if no tokenizer is named, MissingDependencyError without
    transformers. Warns if weights are missing, since those would be random.
    """
    if isinstance(model, LoadedModel):
        return model
    import_transformers("loading a model")
    model = BUNDLED[0] if model is None else model
    if isinstance(model, str | Path):
        name = str(model)
        task, loaded = _load_named(name)
    else:
        name, loaded, task = _given_object(model)
    loaded.eval()
    if tokenizer is None and not isinstance(model, str | Path) and not _origin(model):
        raise InputError(
            f"no tokenizer was given, and the {name} does not say where it came from; expected a "
            "tokenizer with such a model. Name it with tokenizer=..."
        )
    if tokenizer is None or isinstance(tokenizer, str | Path):
        tokenizer = load_tokenizer(str(tokenizer or name))
    return LoadedModel(loaded, tokenizer, task, name, find_max_length(loaded, tokenizer))


def _load_named(name: str) -> tuple[Task, Any]:
    """The model of a folder, of a name on the hub, or one that comes with attnflow."""
    adapter = find_adapter(name)
    if adapter is not None:
        from attnflow.minilm.building import load_adapted

        return load_adapted(adapter)
    folder = find_folder(name)
    if folder is None:
        return load_checkpoint(name)
    from attnflow.verb_number.storing import load_verb_number

    return "classifier", load_verb_number(folder)


def _given_object(model: Any) -> tuple[str, Any, Task]:
    if not callable(getattr(model, "forward", None)):
        raise InputError(
            f"model is a {type(model).__name__}; expected a transformers model, a folder or a name "
            "on the hub. Give one of these."
        )
    return (
        _origin(model) or type(model).__name__,
        model,
        task_of(kind.__name__ for kind in type(model).__mro__),
    )


def _origin(model: Any) -> str:
    """Where a model object was loaded from; empty if it was not."""
    return str(getattr(model, "name_or_path", "") or "")


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer from a folder or by its name on the hub.

    Raises FileError if there is none: transformers would make up an empty one for some folders.
    """
    transformers = import_transformers("loading a tokenizer")
    name = str(find_encoder()) if find_adapter(name) else name
    folder = find_folder(name) or Path(name)
    if folder.is_dir() and not any(file for kind in TOKENIZER_FILES for file in folder.glob(kind)):
        raise FileError(
            f"the folder {name} has no tokenizer; expected tokenizer.json or the like. "
            "Write it there with tokenizer.save_pretrained, or name it with tokenizer=..."
        )
    try:
        if find_folder(name):
            return transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
        return transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its parts raise
        raise FileError(
            f"no tokenizer can be loaded from {name} ({first_line(error)}); expected a folder or "
            "name that has one. Name it with tokenizer=..."
        ) from error


def find_max_length(model: Any, tokenizer: Any) -> int | None:
    """The most tokens that fit: the smaller of the model's limit and the tokenizer's, if any.

    RoBERTa and its kin count positions from after the padding token, and so take fewer tokens than
    they have position embeddings.
    """
    limits = []
    for name, module in getattr(model, "named_modules", list)():
        offset = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and offset is not None:
            limits.append(int(module.num_embeddings) - int(offset) - 1)
    positions = getattr(_text_config(model), "max_position_embeddings", None)
    limits += [int(n) for n in (positions, tokenizer.model_max_length) if n and n < NO_LIMIT]
    return min((limit for limit in limits if limit > 0), default=None)


def _text_config(model: Any) -> Any:
    """The part of the configuration that is about text; None if the model has none."""
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config
