"""Checkpoints: their configuration, their task, and their weights, with what is refused and why.

Weights are read from safetensors files only, because reading a pickle can run code, and classes
come from transformers only, never from a checkpoint. `attnflow.models.loading` adds the tokenizer
and the built-in models.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import ERROR, getLogger
from os.path import isfile, join
from pathlib import Path
from typing import Any, Literal, TypeAlias
from warnings import warn

from attnflow.errors import FileError, first_line, quote
from attnflow.models.hub import hub_access, is_reachable
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
MAX_NAME = 1000  # characters of a path or a hub name
NAMED_WEIGHTS = 5  # of those that are missing, in an error message


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
    _warn_unnamed(name, config, report)
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


def is_causal(task: Task, config: Mapping[str, Any]) -> bool:
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


def check_name(name: str) -> None:
    """Raise FileError for a name that neither a folder nor a model on the hub can have."""
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise FileError(
            f"the model or tokenizer is {quote(name)}",
            expected="a hub name, or a folder written by save_pretrained",
            fix="Check the name. The text comes before the model: explain(text, model).",
        )


def _check_folder(name: str, folder: Path) -> None:
    """Raise FileError if the path exists and cannot be a checkpoint."""
    check_name(name)
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


def _warn_unnamed(name: str, config: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    """Warn if config.json names no class, so that the weights of a head are not used."""
    unused = sorted(report.get("unexpected_keys", ()))
    if unused and not config.get("architectures"):
        warn(
            f"config.json of {name} names no class, so that {list_names(unused)} are not used and "
            "nothing is predicted. Add the class that the weights were saved from, as "
            '`architectures`: ["..."].',
            UserWarning,
            stacklevel=2,
        )


def list_names(names: Sequence[str]) -> str:
    """The first of several names of weights, and how many more there are."""
    more = f" and {len(names) - NAMED_WEIGHTS} more" if len(names) > NAMED_WEIGHTS else ""
    return f"{', '.join(names[:NAMED_WEIGHTS])}{more}"


def check_weights(name: str, task: Task, report: Mapping[str, Any]) -> None:
    """Raise FileError if the model has weights that the checkpoint lacks: they would be random."""
    # Nothing depends on the pooler of an encoder.
    lost = sorted(key for key in report["missing_keys"] if task != "encoder" or "pooler" not in key)
    lost += [
        f"{key} ({list(saved)} instead of {list(needed)})"
        for key, saved, needed in sorted(report.get("mismatched_keys", ()))
    ]
    if lost:
        raise FileError(
            f"{name} lacks {len(lost)} of the weights that its class needs: {list_names(lost)}",
            expected=f"all weights of a model of the kind {task!r}; others would be random",
            fix="Use a checkpoint that was trained for its task, or name the class that it was "
            "saved from in `architectures` of its config.json.",
        )
