"""Checkpoints in folders or on the hub, opened without running anything that they bring along.

Weights are read from safetensors files only: a pickle can run code when it is read. Classes come
from transformers only, never from a checkpoint.
"""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias
from warnings import warn

from attnflow.errors import FileError, MissingDependencyError

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
            f"{name} cannot be loaded ({first_line(error)}); expected a checkpoint as "
            "model.save_pretrained writes it. Check the folder, or save it again."
        ) from error
    warn_of_missing(name, task, found["missing_keys"])
    return task, model


def read_config(name: str) -> dict[str, Any]:
    """The configuration as it is written, before anything acts on it."""
    from transformers import PretrainedConfig

    folder = Path(name)
    if folder.is_file():
        raise FileError(
            f"{name} is a file; expected the folder that holds config.json and model.safetensors. "
            f"Name the folder {folder.parent}."
        )
    if (folder / "adapter_config.json").is_file():
        raise FileError(
            f"the folder {name} holds an adapter; expected a whole model. Merge it into its model "
            "first, and save that with save_pretrained."
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise FileError(
            f"the folder {name} has no config.json; expected a checkpoint as "
            "model.save_pretrained writes it. Name the folder that holds config.json."
        )
    try:
        config: Any = PretrainedConfig.get_config_dict(name)[0]
    except (AttributeError, OSError, TypeError, ValueError) as error:
        if folder.is_dir():
            raise _unreadable(name, first_line(error)) from error
        raise FileError(
            f"there is no folder {name}, and no model of that name in the cache or on a hub that "
            "can be reached; expected the name of a model, or a folder that holds one. Without a "
            "network, name a folder written by model.save_pretrained."
        ) from error
    if not isinstance(config, dict):
        raise _unreadable(name, f"it holds a {type(config).__name__}")
    return config


def _unreadable(name: str, why: str) -> FileError:
    return FileError(
        f"{name}/config.json cannot be read ({why}); expected a JSON object. Save the model again."
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
        f"class {', '.join(classes) or 'it names'}; expected a model that transformers has itself. "
        "attnflow never runs such code: load the model yourself, if you trust it, and pass the "
        "object with model=..."
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
        f"{name} has no safetensors weights ({given}); expected model.safetensors. Convert it "
        "once, if you trust it: transformers.AutoModel...from_pretrained(old)"
        ".save_pretrained(new), with the class of the model, and name the new folder."
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
