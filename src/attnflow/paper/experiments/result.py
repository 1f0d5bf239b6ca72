"""Result: the numbers of an experiment, and how they came about; saved as JSON."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attnflow.errors import FileError


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    experiment: its name. numbers: aggregated over examples, as JSON can write them.
    settings: model, data and options that the numbers depend on.
    pictures: the names of pictures, in the folder for pictures.
    command, date, version: what was run, when, and the version of attnflow; the command line adds
    them.
    """

    experiment: str
    numbers: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[str, ...] = ()
    command: str = ""
    date: str = ""
    version: str = ""


def write_result(result: Result, folder: Path) -> Path:
    """Write a result to NAME.json in the folder, whole or not at all; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.experiment}.json"
    text = json.dumps(asdict(result), indent=1, allow_nan=False)
    write_whole(path, f"{text}\n".encode())
    return path


def read_result(path: Path) -> Result:
    """Read what `write_result` wrote.

    Raises FileError if there is no such file, or it is something else.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        result = Result(**{**fields, "pictures": tuple(fields.get("pictures", ()))})
    except (OSError, TypeError, ValueError, AttributeError) as error:
        raise FileError(
            f"{path} is no result of an experiment ({error})",
            expected="one as `attnflow reproduce` writes it",
            fix="Run the experiment again.",
        ) from error
    return result


def write_whole(path: Path, content: bytes) -> None:
    """Write a file such that, killed at any moment, it is there whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
