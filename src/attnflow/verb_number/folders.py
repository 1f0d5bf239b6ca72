"""Folders that hold a verb-number model: those that come with attnflow, and trained ones."""

import json
from pathlib import Path

MODEL_TYPE = "attnflow_verb_number"  # in config.json
BUNDLED = ("verb-number", "verb-number-causal")  # names; the first is the default


def find_folder(name: str) -> Path | None:
    """The folder of a verb-number model, given by its path or as the name of a bundled one.

    None if it is neither, in which case it may be any other model.
    """
    folder = Path(name)
    if not folder.exists() and name in BUNDLED:
        return Path(__file__).parent / "bundled" / name
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(config, dict) and config.get("model_type") == MODEL_TYPE
    return folder if ours else None
