"""A model, its tokenizer and what it predicts, from an object, a folder or a hub name.

What may be read and run of a checkpoint is decided in `attnflow.models.loading`.
Turning text into inputs is the work of `attnflow.models.inputs`.

Checkpoints in folders or on the hub, opened without running anything that they bring along.

Weights are read from safetensors files only: a pickle can run code when it is read. Classes come
from transformers only, never from a checkpoint.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias
from warnings import warn

from attnflow.errors import FileError, InputError, MissingDependencyError
from attnflow.models.builtin.folders import BUNDLED, find_adapter, find_encoder, find_folder
from attnflow.optional import import_optional

Task: TypeAlias = Literal["classifier", "masked_lm", "causal_lm", "seq2seq", "encoder"]

# Which table of transformers lists the classes of a task, and which class loads it. In this order,
# because BART's class for generation is listed under masked language models too.
TASKS: tuple[tuple[Task, str, str], ...] = (
    ("seq2seq", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "AutoModelForSeq2SeqLM"),
    (
        "classifier",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "AutoModelForSequenceClassification",
    ),
    ("masked_lm", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", "AutoModelForMaskedLM"),
    ("causal_lm", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "AutoModelForCausalLM"),
)
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def import_transformers(purpose: str) -> Any:
    """Import transformers, or say what it is needed for and how to install it."""
    try:
        return import_module("transformers")
    except ImportError as error:
        raise MissingDependencyError(
            f"transformers is not installed and {purpose} needs it. "
            "Install it: pip install 'attnflow[models]'"
        ) from error


def task_of(classes: Iterable[str]) -> Task:
    """What the first known class of these predicts; "encoder" if none predicts anything.

    >>> task_of(["GPT2LMHeadModel"]), task_of(["BertModel"])
    ('causal_lm', 'encoder')
    """
    tables = import_module("transformers.models.auto.modeling_auto")
    for name in classes:
        for task, table, _ in TASKS:
            if name in class_names(getattr(tables, table)):
                return task
    return "encoder"


def class_names(table: Any) -> set[str]:
    """The class names of a table, some of whose entries are tuples."""
    names: set[str] = set()
    for entry in table.values():
        names.update([entry] if isinstance(entry, str) else entry)
    return names


def load_checkpoint(name: str) -> tuple[Task, Any]:
    """Load the model in a folder or of a name on the hub, by the class that it was saved as.

    Raises FileError if it is missing or broken, has no safetensors weights or needs its own code.
    """
    transformers = import_transformers("loading a model")
    config = read_config(name)
    refuse_remote_code(name, config)
    require_safetensors(name)
    task = task_of(config.get("architectures") or [])
    loaders = {task: loader for task, _, loader in TASKS}
    loader = getattr(transformers, loaders.get(task, "AutoModel"))
    try:
        model, found = loader.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # transformers raises whatever its parts raise
        raise FileError(
            f"{name} cannot be loaded ({first_line(error)})",
            expected="a checkpoint as model.save_pretrained writes it",
            fix="Check the folder, or save it again.",
        ) from error
    warn_of_missing(name, task, found["missing_keys"])
    return task, model


def read_config(name: str) -> dict[str, Any]:
    """The configuration as it is written, before anything acts on it."""
    from transformers import PretrainedConfig

    folder = Path(name)
    if folder.is_file():
        raise FileError(
            f"{name} is a file",
            expected="the folder that holds config.json and model.safetensors",
            fix=f"Name the folder {folder.parent}.",
        )
    if (folder / "adapter_config.json").is_file():
        raise FileError(
            f"the folder {name} holds an adapter",
            expected="a whole model",
            fix="Merge it into its model first, and save that with save_pretrained.",
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise FileError(
            f"the folder {name} has no config.json",
            expected="a checkpoint as model.save_pretrained writes it",
            fix="Name the folder that holds config.json.",
        )
    try:
        config: Any = PretrainedConfig.get_config_dict(name)[0]
    except (AttributeError, OSError, TypeError, ValueError) as error:
        if folder.is_dir():
            raise _unreadable(name, first_line(error)) from error
        raise FileError(
            f"there is no folder {name}, and no model of that name in the cache or on a "
            "hub that can be reached",
            expected="the name of a model, or a folder that holds one",
            fix="Without a network, name a folder written by model.save_pretrained.",
        ) from error
    if not isinstance(config, dict):
        raise _unreadable(name, f"it holds a {type(config).__name__}")
    return config


def _unreadable(name: str, why: str) -> FileError:
    return FileError(
        f"{name}/config.json cannot be read ({why})",
        expected="a JSON object",
        fix="Save the model again.",
    )


def refuse_remote_code(name: str, config: dict[str, Any]) -> None:
    """Raise FileError if the checkpoint can only be loaded by running code that it brings along."""
    from transformers import CONFIG_MAPPING

    transformers = import_transformers("loading a model")
    native = config.get("model_type") in CONFIG_MAPPING
    classes = [str(name) for name in config.get("architectures") or []]
    if not config.get("auto_map") or (native and all(hasattr(transformers, c) for c in classes)):
        return
    raise FileError(
        f"{name} asks to run Python code that comes with it (auto_map in config.json), for the "
        f"class {', '.join(classes) or 'it names'}",
        expected="a model that transformers has itself. attnflow never runs such code: load "
        "the model yourself, if you trust it, and pass the object with model=...",
    )


def require_safetensors(name: str) -> None:
    """Raise FileError if there are no safetensors weights; pickles could run code when read."""
    from transformers.utils.hub import cached_file

    for file in WEIGHTS:
        try:
            if cached_file(name, file):
                return
        except OSError:
            continue
    pickles = sorted(p.name for p in Path(name).glob("*.bin")) if Path(name).is_dir() else []
    given = (
        f"only {pickles[0]}, a pickle, which can run code when it is read" if pickles else "none"
    )
    raise FileError(
        f"{name} has no safetensors weights ({given})",
        expected="model.safetensors",
        fix="Convert it once, if you trust it: "
        "transformers.AutoModel...from_pretrained(old).save_pretrained(new), with the class of "
        "the model, and name the new folder.",
    )


def warn_of_missing(name: str, task: Task, missing: Iterable[str]) -> None:
    """Warn of weights that a checkpoint lacks, and that are random for that reason."""
    lost = sorted(key for key in missing if task != "encoder" or "pooler" not in key)
    if lost:
        warn(
            f"{name} lacks {len(lost)} of its weights ({', '.join(lost[:3])}); these are random, "
            "and so is what depends on them. Load a checkpoint that was trained for its task.",
            UserWarning,
            stacklevel=4,
        )


def first_line(error: Exception) -> str:
    """The first line of an error's message, for ours to quote."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


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
            f"no tokenizer was given, and the {name} does not say where it came from",
            expected="a tokenizer with such a model",
            fix="Name it with tokenizer=...",
        )
    if tokenizer is None or isinstance(tokenizer, str | Path):
        tokenizer = load_tokenizer(str(tokenizer or name))
    return LoadedModel(loaded, tokenizer, task, name, find_max_length(loaded, tokenizer))


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Run a block with the model in evaluation mode, and restore the mode of each module.

    Flags are set directly, because a module may override `train` to change its weights.
    """
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
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
    if len(before) > 1:
        raise InputError(
            f"device is {device}, and the model is spread over {', '.join(before)}",
            expected="a model on one device",
            fix="Leave device out, or move the model yourself with model.to(...).",
        )
    try:
        move_model(model, device)
        yield
    finally:
        if before:
            model.to(before[0])


def move_model(model: Any, device: Any) -> None:
    """Move a model to a device. Raises InputError if it cannot be moved there."""
    torch = import_optional("torch", "moving a model to a device")
    try:
        place = torch.device(device)
        if place.type == "meta":
            raise RuntimeError("tensors on meta have no values")
        model.to(place)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        raise InputError(
            f"the model cannot be moved to the device {device!r} ({first_line(error)})",
            expected='a device that torch can use here, such as "cpu" or "cuda"',
            fix="Choose another device with --device (device=...).",
        ) from error


def _load_named(name: str) -> tuple[Task, Any]:
    """The model of a folder, of a name on the hub, or one that comes with attnflow."""
    adapter = find_adapter(name)
    if adapter is not None:
        from attnflow.models.builtin.minilm import load_adapted

        return load_adapted(adapter)
    folder = find_folder(name)
    if folder is None:
        return load_checkpoint(name)
    from attnflow.models.builtin.verb_number import load_verb_number

    return "classifier", load_verb_number(folder)


def _given_object(model: Any) -> tuple[str, Any, Task]:
    if not callable(getattr(model, "forward", None)):
        raise InputError(
            f"model is a {type(model).__name__}",
            expected="a transformers model, a folder or a name on the hub",
            fix="Give one of these.",
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
            f"the folder {name} has no tokenizer",
            expected="tokenizer.json or the like",
            fix="Write it there with tokenizer.save_pretrained, or name it with tokenizer=...",
        )
    try:
        if find_folder(name):
            return transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
        return transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its parts raise
        raise FileError(
            f"no tokenizer can be loaded from {name} ({first_line(error)})",
            expected="a folder or name that has one",
            fix="Name it with tokenizer=...",
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
