"""The state of a training under way in a file, which is never left half written."""

import json
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from attnflow.errors import FileError


def write_checkpoint(path: str | Path, identity: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a state; identity: what the run is, by which it is known again."""
    new = Path(path).with_name(f"{Path(path).name}.new")
    new.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"identity": json.dumps(identity, sort_keys=True), **state}, new)
    new.replace(path)


def read_checkpoint(path: str | Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Read a state, without running anything that the file may hold.

    Raises FileError if the file is broken, or comes from another run.
    """
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
        found = json.loads(state["identity"])
    except (EOFError, KeyError, OSError, RuntimeError, TypeError, UnpicklingError) as error:
        raise FileError(
            f"{path} cannot be read ({type(error).__name__}); expected a checkpoint of a training. "
            "Remove it to start anew."
        ) from error
    wanted = json.loads(json.dumps(identity))
    differing = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    if differing:
        pairs = [f"{key} {found.get(key)} and not {wanted.get(key)}" for key in differing]
        raise FileError(
            f"{path} comes from another training, with {', '.join(pairs)}; expected the same "
            "options and data. Give the same ones, or train in another folder."
        )
    return dict(state)
