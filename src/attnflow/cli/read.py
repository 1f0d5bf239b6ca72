"""Attention weights from files: safetensors, .npy and .npz. Never pickle."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from attnflow import storage
from attnflow.arrays import Array
from attnflow.attentions import KIND, Attentions
from attnflow.errors import FileError

# layer.0 as attnflow writes it, layer0, layer_0, and arr_0 as np.savez names what has no name.
NUMBERED = re.compile(r"(?:layer[._]?|arr_)(\d+)")


def read_attentions(path: Path, tokens: Sequence[str] | None = None) -> Attentions:
    """Read the attention of one input; `tokens` go before those in the file.

    The file holds one array, or one array per layer named layer.0, layer.1 and so on.
    Raises FileError for a file of another kind, and the errors of `Attentions`.
    """
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return _read_safetensors(path, tokens)
    if suffix not in (".npy", ".npz"):
        raise FileError(
            f"{path} ends in {suffix or 'nothing'!r}; expected .safetensors, .npy or .npz. "
            "Save the weights with Attentions.save or numpy.save."
        )
    arrays = _load_numpy(path)
    in_file = _tokens_in(path, arrays)
    return Attentions(find_layers(path, arrays), tokens if tokens is not None else in_file)


def _read_safetensors(path: Path, tokens: Sequence[str] | None) -> Attentions:
    arrays, header = storage.read_any(path)
    if header is None:
        return Attentions(find_layers(path, arrays), tokens)
    if tokens is None or header.get("kind") != KIND:
        return Attentions.load(path)
    return Attentions(find_layers(path, arrays), tokens)


def _load_numpy(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"array": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (BadZipFile, EOFError, OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read ({str(error).splitlines()[0]}); expected arrays of numbers as "
            "numpy.save and numpy.savez write them. Save it again, without Python objects in it."
        ) from error


def _tokens_in(path: Path, arrays: dict[str, Array]) -> list[str] | None:
    """Take the array named `tokens` out of the others, if there is one."""
    tokens = arrays.pop("tokens", None)
    if tokens is None:
        return None
    if tokens.ndim != 1 or tokens.dtype.kind != "U":
        raise FileError(
            f"{path} has tokens of type {tokens.dtype} and shape {list(tokens.shape)}; expected a "
            "list of text. Save them as numpy.array(tokens)."
        )
    return [str(token) for token in tokens]


def find_layers(path: Path, arrays: Mapping[str, Array]) -> Array | list[Array]:
    """The one array of a file, or its numbered arrays in order.

    Raises FileError if there is neither, or if a number is missing.
    """
    # numpy.savez(path, array) names its one array arr_0.
    if len(arrays) == 1 and not next(iter(arrays)).startswith("layer"):
        return next(iter(arrays.values()))
    numbered = {}
    for name in arrays:
        match = NUMBERED.fullmatch(name)
        if match:
            numbered[int(match[1])] = arrays[name]
    numbers = sorted(numbered)
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise FileError(
            f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; expected one array, or one "
            "per layer named layer.0, layer.1 and so on, with none missing. Rename the arrays."
        )
    return [numbered[number] for number in numbers]
