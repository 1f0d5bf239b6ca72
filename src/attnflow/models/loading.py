"""Models and tokenizers: loaded from objects, folders, hub names and the built-in models.

Weights are read from safetensors and GGUF files only, because reading a pickle can run code, and
classes come from transformers only, never from a checkpoint. Context managers run a model in
evaluation mode or on another device and restore it. `attnflow.models.inputs` turns text into
tensors.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from logging import ERROR, getLogger
from os.path import isfile, join
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

from attnflow.errors import FileError, InputError, MissingDependencyError, quote
from attnflow.models.builtin import (
    VERB_NUMBER_MODELS,
    find_adapter,
    find_encoder,
    find_verb_number,
)
from attnflow.models.hub import hub_access, is_reachable
from attnflow.models.wrappers import is_offloaded, unwrap
from attnflow.optional import import_optional

Task: TypeAlias = Literal["classifier", "masked_lm", "causal_lm", "seq2seq", "encoder"]
# A task, the table of transformers that lists its classes, and the class that loads it.
TaskRow: TypeAlias = tuple[Task, str, str]

# BART's class for generation is listed under masked language models too: seq2seq comes first.
TEXT_TASKS: tuple[TaskRow, ...] = (
    ("seq2seq", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "AutoModelForSeq2SeqLM"),
    (
        "classifier",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "AutoModelForSequenceClassification",
    ),
    ("masked_lm", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", "AutoModelForMaskedLM"),
    ("causal_lm", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "AutoModelForCausalLM"),
    (
        "causal_lm",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        "AutoModelForImageTextToText",
    ),
)
# Endings of weights that transformers does not load, and the library that they are for.
FOREIGN_WEIGHTS = {
    ".onnx": "ONNX",
    ".h5": "TensorFlow",
    ".msgpack": "Flax",
    ".tflite": "TensorFlow Lite",
    ".mlmodel": "Core ML",
}
GGUF = ".gguf"  # files of llama.cpp, which hold weights, configuration and tokenizer
WEIGHTS_FILES = ("model.safetensors", "model.safetensors.index.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model")
MAX_NAME = 1000  # characters of a path or a hub name
NAMED_WEIGHTS = 5  # of those that are missing, in an error message
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
        return int(getattr(_text_config(self.model), "num_hidden_layers", None) or 1)

    @property
    def is_causal(self) -> bool:
        """Whether the model is a decoder, in which only the last position sees the whole text."""
        config = _text_config(self.model)
        names = ("is_encoder_decoder", "is_decoder", "model_type")
        return _is_causal(self.task, {name: getattr(config, name, None) for name in names})

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
        config = _text_config(self.model)
        if self.task == "classifier":
            return getattr(config, "classifier_pooling", None) == "mean"
        return self.task == "encoder" and _has_mean_pooling(self.model, self.name)

    @property
    def supports_batches(self) -> bool:
        """Whether texts of different lengths can share a batch.

        A decoder that classifies the last token needs a padding token to find that token.
        """
        padding = getattr(_text_config(self.model), "pad_token_id", None)
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
    return bool(config.get("is_encoder_decoder")) or _is_causal(task, config)


def _is_causal(task: Task, config: Mapping[str, Any]) -> bool:
    """Whether a model with this task and configuration is a decoder."""
    if config.get("is_encoder_decoder"):
        return False
    if task == "causal_lm" or config.get("is_decoder"):
        return True
    tables = _task_tables()
    model_type = config.get("model_type", "")
    return (
        model_type in tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and model_type not in tables.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )


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
    _check_name(name)
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
    positions = getattr(_text_config(model), "max_position_embeddings", None)
    limits += [int(n) for n in (positions, tokenizer.model_max_length) if n and n < NO_LIMIT]
    return min((limit for limit in limits if limit > 0), default=None)


def _text_config(model: Any) -> Any:
    """The configuration of the text part of a model; None if the model has no configuration."""
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


# Modules in evaluation mode by id: how many blocks use them, and the flag to restore.
_evaluated: dict[int, tuple[int, bool]] = {}
_evaluated_lock = Lock()


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Run a block with the model in evaluation mode, and restore the mode of each module.

    Several threads may do so with one model; the last to finish restores it. Flags are set
    directly, because a module may override `train` to change its weights.
    """
    modules = list(model.modules())
    with _evaluated_lock:
        for module in modules:
            users, training = _evaluated.get(id(module), (0, module.training))
            _evaluated[id(module)] = (users + 1, training)
            if module.training:
                module.training = False
    try:
        yield
    finally:
        with _evaluated_lock:
            for module in modules:
                users, training = _evaluated.pop(id(module))
                if users > 1:
                    _evaluated[id(module)] = (users - 1, training)
                elif training:
                    module.training = True


@contextmanager
def on_device(model: Any, device: Any) -> Iterator[None]:
    """Run a block with the model on a device, and move the model back afterwards.

    device: anything that `torch.device` takes; None leaves the model where it is.
    Raises InputError if the model cannot be moved there, or is spread over several devices.
    """
    if device is None:
        yield
        return
    before = sorted({str(weights.device) for weights in model.parameters()})
    if len(before) > 1 or is_offloaded(model):
        raise InputError(
            f"device is {device}, and the model is spread over {', '.join(before)} or offloaded",
            expected="a model on one device",
            fix="Leave device out, or load the model without device_map.",
        )
    try:
        move_model(model, device)
        yield
    finally:
        if before:
            model.to(before[0])


def check_device(device: Any) -> None:
    """Raise InputError unless torch can use a device here; None is the default."""
    if device is not None:
        move_model(import_optional("torch", "using a device").nn.Linear(1, 1), device)


def move_model(model: Any, device: Any) -> None:
    """Move a model to a device. Raises InputError if it cannot be moved there."""
    torch = import_optional("torch", "moving a model to a device")
    try:
        place = torch.device(device)
        if place.type == "meta":
            raise RuntimeError("tensors on meta have no values")
        model.to(place)
    except Exception as error:  # torch raises many kinds of errors
        raise InputError(
            f"the model cannot be moved to the device {quote(device)} ({first_line(error)})",
            expected='a device that torch can use here, such as "cpu" or "cuda"',
            fix="Choose another device with --device (device=...).",
        ) from error


def load_checkpoint(name: str, tasks: tuple[TaskRow, ...]) -> tuple[Task, Any]:
    """Load the checkpoint in a folder or of a hub name, with the class that it was saved from.

    tasks: the tasks to choose from. Returns the task and the model.
    Raises FileError if the checkpoint is missing or broken, has no safetensors weights, lacks some
    of them, or needs its own code.
    """
    import_optional("transformers", "loading a model")
    config = read_config(name)
    _check_no_remote_code(name, config)
    _check_safetensors(name)
    task, loader = find_loader(config, tasks)
    try:
        with hub_access(name), errors_only():
            model, report = loader.from_pretrained(
                name,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # check_weights names them
            )
    except Exception as error:  # transformers raises many kinds of errors
        raise FileError(
            f"{name} cannot be loaded ({first_line(error)})",
            expected="a checkpoint as model.save_pretrained writes it",
            fix="Check the folder, or save the model again.",
        ) from error
    check_weights(name, task, report)
    return task, model


def find_loader(config: Mapping[str, Any], tasks: tuple[TaskRow, ...]) -> tuple[Task, Any]:
    """Return the task of a configuration, and the class of transformers that loads the model."""
    transformers = import_optional("transformers", "loading a model")
    row = _find_row(config.get("architectures") or [], tasks)
    task, _, loader = row or ("encoder", "", "AutoModel")
    return task, getattr(transformers, loader)


def find_task(classes: Iterable[str], tasks: tuple[TaskRow, ...]) -> Task:
    """Return the task of the first class that transformers lists; "encoder" if it lists none.

    >>> find_task(["GPT2LMHeadModel"], TEXT_TASKS), find_task(["BertModel"], TEXT_TASKS)
    ('causal_lm', 'encoder')
    """
    row = _find_row(classes, tasks)
    return "encoder" if row is None else row[0]


def _find_row(classes: Iterable[str], tasks: tuple[TaskRow, ...]) -> TaskRow | None:
    tables = _task_tables()
    for name in classes:
        for row in tasks:
            for entry in getattr(tables, row[1]).values():  # a class or a tuple of classes
                if name == entry or (not isinstance(entry, str) and name in entry):
                    return row
    return None


def _task_tables() -> Any:
    return import_optional("transformers.models.auto.modeling_auto", "finding a model's task")


def read_config(name: str) -> dict[str, Any]:
    """Read the configuration of a checkpoint as plain JSON, without running anything."""
    from transformers import PretrainedConfig

    folder = Path(name)
    _check_folder(name, folder)
    try:
        with hub_access(name):
            config: Any = PretrainedConfig.get_config_dict(name)[0]
    except (AttributeError, OSError, TypeError, ValueError) as error:
        if folder.is_dir():
            raise _invalid_config(name, first_line(error)) from error
        # Hub names have no spaces.
        is_text = " The text comes before the model: explain(text, model)." if " " in name else ""
        where = "in the cache or on the hub"
        if not is_reachable():
            where = "in the cache, and the hub cannot be reached"
        raise FileError(
            f"there is no folder {name}, and no model of that name {where}",
            expected="a hub name, or a folder written by model.save_pretrained",
            fix=f"Check the name. Without a network, use a folder.{is_text}",
        ) from error
    if not isinstance(config, dict):
        raise _invalid_config(name, f"it holds a {type(config).__name__}")
    return config


def is_adapter(name: str) -> bool:
    """Whether a folder holds an adapter, as PEFT writes it, instead of a model."""
    return isfile(join(name, "adapter_config.json"))  # noqa: PTH113, PTH118 - names may be too long


def _check_name(name: str) -> None:
    """Raise FileError for a name that neither a folder nor a model on the hub can have."""
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise FileError(
            f"the model or tokenizer is {quote(name)}",
            expected="a hub name, or a folder written by save_pretrained",
            fix="Check the name. The text comes before the model: explain(text, model).",
        )


def _check_folder(name: str, folder: Path) -> None:
    """Raise FileError if the path exists and cannot be a checkpoint."""
    _check_name(name)
    if folder.is_file():
        raise FileError(
            f"{name} is a file",
            expected="the folder with config.json and model.safetensors",
            fix=f"Use the folder {folder.parent}.",
        )
    if is_adapter(name):
        raise FileError(
            f"the folder {name} holds an adapter, and peft is not installed",
            expected="a whole model, or peft",
            fix="Install it: pip install peft. Or merge the adapter into its model, and save that "
            "with save_pretrained.",
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise FileError(
            f"the folder {name} has no config.json",
            expected="a checkpoint as model.save_pretrained writes it",
            fix="Use the folder that contains config.json.",
        )


def _invalid_config(name: str, reason: str) -> FileError:
    return FileError(
        f"{name}/config.json cannot be read ({reason})",
        expected="a JSON object",
        fix="Save the model again.",
    )


def _check_no_remote_code(name: str, config: dict[str, Any]) -> None:
    """Raise FileError if loading the checkpoint would run Python code that comes with it."""
    transformers = import_optional("transformers", "loading a model")
    is_known = config.get("model_type") in transformers.CONFIG_MAPPING
    classes = [str(name) for name in config.get("architectures") or []]
    if not config.get("auto_map") or (is_known and all(hasattr(transformers, c) for c in classes)):
        return
    raise FileError(
        f"{name} needs Python code that comes with it (auto_map in config.json) for the class "
        f"{', '.join(classes) or 'it names'}, and attnflow never runs such code",
        expected="a model whose class is in transformers",
        fix="If you trust the code, load the model yourself and pass the object as model=...",
    )


def _check_safetensors(name: str) -> None:
    """Raise FileError if there are no safetensors weights."""
    from transformers.utils.hub import cached_file

    for file in WEIGHTS_FILES:
        try:
            with hub_access(name):
                if cached_file(name, file):
                    return
        except OSError:
            continue
    given, fix = _describe_weights(Path(name)) if Path(name).is_dir() else ("", OTHER_WEIGHTS)
    raise FileError(
        f"{name} has no safetensors weights{f' ({given})' if given else ''}",
        expected="model.safetensors",
        fix=fix,
    )


OTHER_WEIGHTS = "Use a checkpoint with model.safetensors; most models on the hub have one."


def _describe_weights(folder: Path) -> tuple[str, str]:
    """Return what weights a folder has in place of safetensors, and what to do about it."""
    from attnflow.models.conversion import find_pickles

    others = sorted(folder.glob("*.safetensors"))
    pickles = find_pickles(folder)
    quantized = sorted(folder.glob(f"*{GGUF}"))
    foreign = sorted(path for end in FOREIGN_WEIGHTS for path in folder.rglob(f"*{end}"))
    if others:
        return f"only {others[0].name}", f"If these are the weights, rename {others[0].name}."
    if pickles:
        given = f"only {pickles[0].name}, a pickle, which can run code when it is read"
        return given, f"Convert it, with its tokenizer: attnflow convert {folder}"
    if quantized:
        return f"only {quantized[0].name}", f"Use the file itself as the model: {quantized[0]}"
    if foreign:
        kind = FOREIGN_WEIGHTS[foreign[0].suffix]
        given = f"only {foreign[0].name}, weights for {kind}, which cannot be converted"
        return given, f"Use the PyTorch checkpoint that it was made from. {OTHER_WEIGHTS}"
    return "no weights at all", OTHER_WEIGHTS


@contextmanager
def errors_only() -> Iterator[None]:
    """Hide the warnings that transformers logs; ours say what matters."""
    logger = getLogger("transformers")
    before = logger.level
    logger.setLevel(ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def check_weights(name: str, task: Task, report: Mapping[str, Any]) -> None:
    """Raise FileError if the model has weights that the checkpoint lacks: they would be random."""
    # Nothing depends on the pooler of an encoder.
    lost = sorted(key for key in report["missing_keys"] if task != "encoder" or "pooler" not in key)
    lost += [
        f"{key} ({list(saved)} instead of {list(needed)})"
        for key, saved, needed in sorted(report.get("mismatched_keys", ()))
    ]
    if lost:
        more = f" and {len(lost) - NAMED_WEIGHTS} more" if len(lost) > NAMED_WEIGHTS else ""
        raise FileError(
            f"{name} lacks {len(lost)} of the weights that its class needs: "
            f"{', '.join(lost[:NAMED_WEIGHTS])}{more}",
            expected=f"all weights of a model of the kind {task!r}; others would be random",
            fix="Use a checkpoint that was trained for its task, or name the class that it was "
            "saved from in `architectures` of its config.json.",
        )


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, to quote it in another message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
