"""Models and tokenizers: loaded from objects, folders, hub names and the built-in models.

`attnflow.models.checkpoint` reads configurations and weights, and says what is refused.
`attnflow.models.inputs` turns text into tensors.
"""

import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from os.path import exists
from pathlib import Path
from typing import Any

from attnflow.errors import FileError, InputError, MissingDependencyError, first_line, quote
from attnflow.models.builtin import (
    VERB_NUMBER_MODELS,
    find_adapter,
    find_encoder,
    find_verb_number,
)
from attnflow.models.checkpoint import (
    GGUF,
    TEXT_TASKS,
    Task,
    check_name,
    check_weights,
    errors_only,
    find_task,
    is_adapter,
    is_causal,
    load_checkpoint,
    read_config,
)
from attnflow.models.hub import hub_access
from attnflow.models.wrappers import unwrap
from attnflow.optional import import_optional

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model")
NO_LIMIT = 10**6  # tokenizers without a limit have a model_max_length of 1e30


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model with its tokenizer, ready to be explained.

    model: called with the tokenizer's tensors. tokenizer: its tokenizer.
    task: "classifier", "masked_lm", "causal_lm", "seq2seq", or "encoder", which predicts nothing.
    name: a hub name, a folder or a class. max_length: the maximum number of tokens; None if the
    model has no limit. processor: turns texts and images into tensors, if it was passed.
    """

    model: Any
    tokenizer: Any
    task: Task
    name: str
    max_length: int | None
    processor: Any = None

    @property
    def n_layers(self) -> int:
        """The number of layers in the configuration; 1 for a model without a configuration."""
        return int(getattr(text_config(self.model), "num_hidden_layers", None) or 1)

    @property
    def is_causal(self) -> bool:
        """Whether the model is a decoder, in which only the last position sees the whole text."""
        config = text_config(self.model)
        names = ("is_encoder_decoder", "is_decoder", "model_type")
        return is_causal(self.task, {name: getattr(config, name, None) for name in names})

    @property
    def generates(self) -> bool:
        """Whether the model is a decoder or has one, whose edges are measured by default."""
        return self.is_causal or self.task == "seq2seq"

    @property
    def pools_mean(self) -> bool:
        """Whether the model predicts from the mean over its positions.

        Classifiers say so in their configuration, and encoders of sentences in the folder of their
        pooling layer.
        """
        config = text_config(self.model)
        if self.task == "classifier":
            return getattr(config, "classifier_pooling", None) == "mean"
        return self.task == "encoder" and _has_mean_pooling(self.model, self.name)

    @property
    def supports_batches(self) -> bool:
        """Whether texts of different lengths can share a batch.

        A decoder that classifies the last token needs a padding token to find that token.
        """
        padding = getattr(text_config(self.model), "pad_token_id", None)
        return self.task != "classifier" or padding is not None or not self.is_causal


def _has_mean_pooling(model: Any, name: str) -> bool:
    """Whether the folder of a model has a pooling layer of sentence-transformers that averages."""
    for source in (name, str(getattr(model, "name_or_path", ""))):
        file = Path(source) / "1_Pooling" / "config.json"
        try:
            settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except (OSError, ValueError):
            continue
        if isinstance(settings, dict) and settings.get("pooling_mode_mean_tokens"):
            return True
    return False


def has_decoder(name: str) -> bool:
    """Whether a model is a decoder or has one, given its folder or name.

    Only its configuration is read.

    Raises FileError if there is no such model.
    """
    import_optional("transformers", "reading the configuration of a model")
    if find_adapter(name) is not None or name.lower().endswith(GGUF):
        return name.lower().endswith(GGUF)
    config = read_config(str(find_verb_number(name) or name))
    task = find_task(config.get("architectures") or [], TEXT_TASKS)
    config = config.get("text_config") or config
    return bool(config.get("is_encoder_decoder")) or is_causal(task, config)


def load_model(model: Any = None, tokenizer: Any = None) -> LoadedModel:
    """Load a model and its tokenizer, and determine the model's task.

    model: a transformers model, a folder with a model or an adapter of PEFT, a GGUF file, a hub
    name, the name of a built-in model, or a LoadedModel, which is returned as it is. Built-in are
    "verb-number" (the default) and "verb-number-causal", and with the package of the `minilm` extra
    "minilm-sst2" and "minilm-mlm". The class of a checkpoint is the one in `architectures` of its
    configuration.
    tokenizer: an object, a folder or a name; for models of texts and images also their processor.
    Default: the tokenizer saved with the model.
    A model object stays in its mode and on its device.
    Raises FileError for a checkpoint that is missing, has no safetensors weights or needs its own
    code; InputError if there is no tokenizer; MissingDependencyError without transformers.
    A checkpoint that lacks weights is refused too, because these would be random.

    >>> load_model("verb-number").task
    'classifier'
    """
    if isinstance(model, LoadedModel):
        return model if tokenizer is None else _replace_tokenizer(model, tokenizer)
    import_optional("transformers", "loading a model")
    model = VERB_NUMBER_MODELS[0] if model is None else model
    if isinstance(model, str | Path):
        name = source = str(model)
        task, loaded = _load_by_name(name)
    else:
        source = find_source(model, "a transformers model, a folder or a hub name")
        loaded = unwrap(model)
        name = source or type(loaded).__name__
        task = find_task((cls.__name__ for cls in type(loaded).__mro__), TEXT_TASKS)
    processor = tokenizer if hasattr(tokenizer, "image_processor") else None
    if processor is not None:  # of a model of texts and images
        tokenizer = processor.tokenizer
    if tokenizer is None and not source:
        raise InputError(
            f"no tokenizer was given, and the {name} was not loaded from a folder or the hub",
            expected="a tokenizer with such a model",
            fix="Pass it as tokenizer=...",
        )
    if tokenizer is None or isinstance(tokenizer, str | Path):
        tokenizer = load_tokenizer(str(source if tokenizer is None else tokenizer))
    _check_tokenizer(tokenizer)
    limit = find_max_length(loaded, tokenizer)
    return LoadedModel(loaded, tokenizer, task, name, limit, processor)


def _load_by_name(name: str) -> tuple[Task, Any]:
    """Load a built-in model, or the checkpoint in a folder or on the hub."""
    adapter = find_adapter(name)
    if adapter is not None:
        from attnflow.models.builtin.minilm import load_minilm

        return load_minilm(adapter)
    folder = find_verb_number(name)
    if folder is not None:
        from attnflow.models.builtin.verb_number import load_verb_number

        return "classifier", load_verb_number(folder)
    if name.lower().endswith(GGUF):
        from attnflow.models.gguf import load_gguf

        with errors_only():
            model, report = load_gguf(name)
        check_weights(name, "causal_lm", report)
        return "causal_lm", model
    if is_adapter(name) and find_spec("peft") is not None:
        from attnflow.models.adapters import load_adapter

        return load_adapter(name)
    return load_checkpoint(name, TEXT_TASKS)


def _replace_tokenizer(loaded: LoadedModel, tokenizer: Any) -> LoadedModel:
    if isinstance(tokenizer, str | Path):
        tokenizer = load_tokenizer(str(tokenizer))
    _check_tokenizer(tokenizer)
    return replace(loaded, tokenizer=tokenizer, max_length=find_max_length(loaded.model, tokenizer))


def _check_tokenizer(tokenizer: Any) -> None:
    """Raise InputError unless the object is a tokenizer."""
    names = ("convert_ids_to_tokens", "model_max_length")
    is_class = isinstance(tokenizer, type)
    if is_class or not callable(tokenizer) or not all(hasattr(tokenizer, n) for n in names):
        raise InputError(
            f"tokenizer is {quote(tokenizer)}",
            expected="a tokenizer of transformers, a folder or a hub name",
            fix="Pass one of these.",
        )


def find_source(model: Any, expected: str) -> str:
    """Return the folder or hub name that a model object was loaded from; "" if there is none.

    Raises InputError if the object is not a model. expected: what to ask for then.
    """
    if isinstance(model, type) or not callable(getattr(model, "forward", None)):
        raise InputError(
            f"model is of type {type(model).__name__}", expected=expected, fix="Pass one of these."
        )
    return str(getattr(model, "name_or_path", "") or "")


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer from a folder or by its hub name.

    Raises FileError if there is none, where transformers would create an empty tokenizer.
    """
    transformers = import_optional("transformers", "loading a tokenizer")
    check_name(name)
    name = str(find_encoder()) if find_adapter(name) else name
    if name.lower().endswith(GGUF):
        from attnflow.models.gguf import load_gguf_tokenizer

        return load_gguf_tokenizer(name)
    own = find_verb_number(name)
    folder = own or Path(name)
    if folder.is_file():
        raise FileError(
            f"the tokenizer {name} is a file",
            expected="a folder with tokenizer.json",
            fix=f"Use the folder {folder.parent}.",
        )
    has_files = any(any(folder.glob(file)) for file in TOKENIZER_FILES)
    if folder.is_dir() and not has_files and is_adapter(name):
        from attnflow.models.adapters import find_base

        return load_tokenizer(find_base(name))
    if folder.is_dir() and not has_files:
        raise FileError(
            f"the folder {name} has no tokenizer",
            expected="tokenizer.json or another tokenizer file",
            fix="Write it there with tokenizer.save_pretrained, or pass tokenizer=...",
        )
    try:
        if own is not None:
            return transformers.PreTrainedTokenizerFast.from_pretrained(str(own))
        with hub_access(name):
            return transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except ImportError as error:  # slow tokenizers need packages of their own
        package = "sentencepiece" if any(map(is_sentence_piece, folder.glob("*"))) else ""
        raise MissingDependencyError(
            f"the tokenizer of {name} needs a package that is not installed",
            expected=package or f"what transformers asks for ({first_line(error)})",
            fix=f"Run: pip install {package}." if package else "Install it.",
        ) from error
    except Exception as error:  # transformers raises many kinds of errors
        raise FileError(
            f"no tokenizer can be loaded from {name} ({first_line(error)})",
            expected="a folder or hub name with a tokenizer",
            fix="Install the package that it needs."
            if isinstance(error, ImportError)
            else "Pass another as tokenizer=...",
        ) from error


def is_sentence_piece(path: Path) -> bool:
    """Whether a file is a SentencePiece vocabulary, judging by its name."""
    return path.suffix in (".spm", ".model")


def find_max_length(model: Any, tokenizer: Any) -> int | None:
    """Return the smaller of the model's and the tokenizer's limit in tokens; None without limits.

    RoBERTa counts positions from after the padding token, and so takes fewer tokens than it has
    position embeddings.
    """
    limits = []
    for name, module in getattr(model, "named_modules", list)():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            limits.append(int(module.num_embeddings) - int(padding) - 1)
    positions = getattr(text_config(model), "max_position_embeddings", None)
    limits += [int(n) for n in (positions, tokenizer.model_max_length) if n and n < NO_LIMIT]
    return min((limit for limit in limits if limit > 0), default=None)


def text_config(model: Any) -> Any:
    """The configuration of the text part of a model; None if the model has no configuration."""
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def display_name(name: str) -> str:
    """The name of a model in results and on pages: for a folder its last part."""
    return Path(name).resolve().name if exists(name) else name  # noqa: PTH110 - no error if it is long
