"""Safetensors files with an attnflow header: arrays by name, and JSON beside them.

Knows nothing of attention. Files hold numbers and text only, so that reading one from a stranger
cannot run code.
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from attnflow.arrays import Array, dtype_name, import_torch, to_numpy
from attnflow.errors import FileError

HEADER_KEY = "attnflow"
VERSION = 1


def write(
    path: str | PathLike[str], *, kind: str, arrays: Mapping[str, Array], header: Mapping[str, Any]
) -> None:
    """Write arrays and a JSON header to a safetensors file.

    kind: what the file holds, checked again by `read`.
    Raises FileError if the folder does not exist or the file cannot be written.
    """
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileError(
            f"cannot write {path}: there is no folder {folder}; expected an existing one. "
            "Create it first."
        )
    text = json.dumps({"kind": kind, "version": VERSION, **header})
    try:
        _save(path, arrays, {HEADER_KEY: text})
    except (OSError, SafetensorError) as error:
        raise FileError(
            f"cannot write {path}: {error}; expected a file that can be written. Choose another."
        ) from error


def _save(path: str | PathLike[str], arrays: Mapping[str, Array], metadata: dict[str, str]) -> None:
    if not any(dtype_name(array) == "bfloat16" for array in arrays.values()):
        from safetensors.numpy import save_file

        save_file({k: np.ascontiguousarray(to_numpy(a)) for k, a in arrays.items()}, path, metadata)
        return
    # NumPy has no bfloat16. Two layers may be one tensor, which safetensors refuses, hence clones.
    from safetensors.torch import save_file as save_tensors

    torch = import_torch("writing bfloat16")
    tensors = {k: torch.as_tensor(a).cpu().contiguous().clone() for k, a in arrays.items()}
    save_tensors(tensors, path, metadata)


def read(path: str | PathLike[str], *, kind: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `write` wrote: the arrays by name, and the header.

    Raises FileError if the file is no safetensors file, is cut short, was not written by attnflow,
    or holds another kind.
    """
    arrays, header = read_any(path)
    if header is None:
        raise FileError(
            f"{path} has no attnflow header; expected a file written by attnflow that holds "
            f"{kind}. Read its arrays with safetensors, and pass them on yourself."
        )
    if header.get("kind") != kind:
        raise FileError(
            f"{path} holds {header.get('kind')}; expected {kind}. "
            "Load it with the class that saved it."
        )
    if header.get("version") != VERSION:
        raise FileError(
            f"{path} is in version {header.get('version')} of the format; expected {VERSION}. "
            "Update attnflow, or save the file again with this version."
        )
    return arrays, header


def read_any(path: str | PathLike[str]) -> tuple[dict[str, Array], dict[str, Any] | None]:
    """Read any safetensors file: arrays by name, and the attnflow header if there is one.

    Arrays are NumPy, or all are torch tensors if one of them is bfloat16, which NumPy lacks.
    """
    try:
        with safe_open(path, framework="np") as file:
            names = list(file.keys())
            metadata = file.metadata() or {}
            if all(file.get_slice(name).get_dtype() != "BF16" for name in names):
                return {name: file.get_tensor(name) for name in names}, _header(path, metadata)
        import_torch(f"reading the bfloat16 arrays of {path}")
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in names}, _header(path, metadata)
    except SafetensorError as error:
        if "incomplete" in str(error).lower():
            given, fix = "is cut short", "Save it, or copy it, again."
        else:
            given, fix = "is not a safetensors file", "Check that it is the file you meant."
        raise FileError(
            f"{path} {given} ({error}); expected a whole safetensors file. {fix}"
        ) from error


def _header(path: str | PathLike[str], metadata: Mapping[str, str]) -> dict[str, Any] | None:
    if HEADER_KEY not in metadata:
        return None
    try:
        header = json.loads(metadata[HEADER_KEY])
    except json.JSONDecodeError as error:
        header = error
    if not isinstance(header, dict):
        raise FileError(
            f"{path} has an attnflow header that is not a JSON object; expected one as attnflow "
            "writes it. Save the file again."
        )
    return header
