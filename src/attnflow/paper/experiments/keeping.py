"""Measurements kept on disk chunk by chunk, so that a run that was killed goes on where it was.

A chunk is one file, named after a hash of all that its numbers depend on: the weights of the model,
the tokens of the texts, the settings, and the version of this format. It is written whole or not
at all. It holds numbers only, no text.
"""

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.models.inputs import EncodedText
from attnflow.models.loading import LoadedModel
from attnflow.paper.experiments.options import Progress
from attnflow.paper.experiments.result import write_whole

# What was measured of one text, by name; the last axis is that of tokens.
Measured: TypeAlias = dict[str, NDArray[np.float64]]
# From some texts and their right classes to what is measured of each.
Compute: TypeAlias = Callable[[Sequence[EncodedText], Sequence[int]], Sequence[Measured]]

CHUNK = 50  # texts
FORMAT = 1  # to be raised when the same settings come to mean other numbers
LENGTHS = "lengths of "


def hash_model(loaded: LoadedModel) -> str:
    """A hash of all weights of a model, with their names, and of its configuration."""
    found = sha256(str(getattr(loaded.model, "config", "")).encode())
    for name, part in sorted(loaded.model.state_dict().items()):
        found.update(name.encode())
        found.update(np.ascontiguousarray(part.detach().float().cpu().numpy()).tobytes())
    return found.hexdigest()


def measure_in_chunks(
    encoded: Sequence[EncodedText],
    labels: Sequence[int],
    compute: Compute,
    *,
    key: Mapping[str, Any],
    cache: Path | None,
    progress: Progress | None = None,
) -> list[Measured]:
    """What `compute` gives for all texts, of which chunks that are in the cache are read.

    labels: the right class of each text.
    key: all that the numbers depend on besides the texts, as JSON can write it.
    progress: called with texts done and texts in all.
    """
    measured: list[Measured] = []
    for start in range(0, len(encoded), CHUNK):
        chunk, right = encoded[start : start + CHUNK], labels[start : start + CHUNK]
        path = None if cache is None else cache / f"{hash_chunk(chunk, right, key)}.npz"
        found = None if path is None else read_chunk(path, len(chunk))
        if found is None:
            found = list(compute(chunk, right))
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, pack(found))
        measured += found
        if progress is not None:
            progress(len(measured), len(encoded))
    return measured


def hash_chunk(chunk: Sequence[EncodedText], labels: Sequence[int], key: Mapping[str, Any]) -> str:
    """The name of a chunk: a hash of its tokens, their labels and the key."""
    texts = [one.inputs["input_ids"][0].tolist() for one in chunk]
    content = {"format": FORMAT, "texts": texts, "labels": list(labels), "key": dict(key)}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def pack(measured: Sequence[Measured]) -> bytes:
    """A chunk as the bytes of an npz file: for each name, all texts side by side."""
    arrays = {}
    for name in measured[0]:
        rows = [one[name] for one in measured]
        arrays[name] = np.concatenate(rows, axis=-1)
        arrays[LENGTHS + name] = np.asarray([row.shape[-1] for row in rows])
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def read_chunk(path: Path, n: int) -> list[Measured] | None:
    """The n texts of a chunk; None if it is not there, or is broken, and must be made again."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        names = [name for name in arrays if not name.startswith(LENGTHS)]
        parts = {
            name: np.split(arrays[name], np.cumsum(arrays[LENGTHS + name])[:-1], axis=-1)
            for name in names
        }
        if not parts or any(len(rows) != n for rows in parts.values()):
            return None
        return [{name: parts[name][i] for name in names} for i in range(n)]
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile):
        return None
