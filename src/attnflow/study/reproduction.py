"""Reproduction: the settings and versions of a study, and the calls that repeat it."""

import shlex
from dataclasses import fields
from typing import Any

from attnflow.corpus.manifest import Manifest, read_manifest
from attnflow.corpus.store import open_folder
from attnflow.study.design import Design
from attnflow.study.study import Study

OUT = "study"  # the folder in the calls


def open_manifest(study: Study) -> Manifest:
    """Read the manifest of a study."""
    return read_manifest(open_folder(study.folder).manifest, Design)


def changed_settings(design: Design) -> dict[str, Any]:
    """Return the settings that differ from their defaults, by name."""
    defaults = Design().resolve("cpu")
    names = [field.name for field in fields(design)]
    return {
        name: getattr(design, name)
        for name in names
        if getattr(design, name) != getattr(defaults, name)
    }


def input_options(manifest: Manifest) -> dict[str, Any]:
    """Return the columns of the input, where they were named."""
    names = ("text_column", "id_column")
    return {name: manifest.input[name] for name in names if manifest.input.get(name)}


def python_call(manifest: Manifest) -> str:
    """Return the call in Python that repeats a study."""
    options = {**input_options(manifest), **changed_settings(manifest.settings)}
    in_memory = manifest.input.get("format") == "list"
    data = "texts" if in_memory else repr(manifest.input["name"])
    lines = [f"    {name}={_plain(value)!r},\n" for name, value in options.items()]
    head = "from attnflow.study.study import evaluate\n\n"
    return f'{head}evaluate(\n    {data},\n    "{OUT}",\n{"".join(lines)})'


def shell_call(manifest: Manifest) -> str:
    """Return the command that repeats a study; empty if its input was no file."""
    if manifest.input.get("format") == "list":
        return ""
    words = ["attnflow", "evaluate", str(manifest.input["name"]), "--out", OUT]
    for name, value in input_options(manifest).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    options = {field.name: field.metadata["option"] for field in fields(manifest.settings)}
    for name, value in changed_settings(manifest.settings).items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(options[name].format(value))]
    return shlex.join(words)


def _plain(value: Any) -> Any:
    """Return names as the call takes them: a tuple as a text with commas."""
    return ",".join(value) or "none" if isinstance(value, tuple) else value
