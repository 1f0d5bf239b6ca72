"""Adapters in folders, as PEFT saves them, loaded with the model that they were trained for."""

import json
from pathlib import Path
from typing import Any

from attnflow.errors import FileError, first_line
from attnflow.models.checkpoint import TEXT_TASKS, Task, load_checkpoint
from attnflow.models.wrappers import unwrap
from attnflow.optional import import_optional

WEIGHTS = "adapter_model.safetensors"


def load_adapter(name: str) -> tuple[Task, Any]:
    """Load the adapter in a folder with its model. Returns the task and the model.

    Raises FileError if the adapter or its model is missing or cannot be loaded, or has no
    safetensors weights; InputError for adapters that put virtual tokens before the input.
    """
    peft = import_optional("peft", "loading an adapter")
    if not (Path(name) / WEIGHTS).is_file():
        raise FileError(
            f"the folder {name} holds an adapter without safetensors weights",
            expected=WEIGHTS,
            fix="Load the adapter with peft, and save it again with save_pretrained.",
        )
    try:
        task, model = load_checkpoint(find_base(name), TEXT_TASKS)
    except FileError as error:
        raise error.within(f"the model of the adapter {name}") from error
    try:
        adapted = peft.PeftModel.from_pretrained(model, name)
    except Exception as error:  # peft raises many kinds of errors
        raise FileError(
            f"the adapter {name} cannot be loaded ({first_line(error)})",
            expected="an adapter as PEFT saves it, for its model",
            fix="Load model and adapter yourself, and pass the object as model=...",
        ) from error
    return task, unwrap(adapted)


def find_base(name: str) -> str:
    """The folder or hub name of the model that an adapter was trained for.

    Raises FileError if the adapter does not say.
    """
    file = Path(name) / "adapter_config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        base = config["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unknown_base(file) from error
    if not isinstance(base, str) or not base:
        raise _unknown_base(file)
    return base


def _unknown_base(file: Path) -> FileError:
    return FileError(
        f"{file} does not say which model the adapter is for",
        expected="base_model_name_or_path",
        fix="Add the folder or hub name of the model.",
    )
