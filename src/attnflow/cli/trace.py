"""The command `trace`: attributions of attention weights that are stored in a file.

Reads .safetensors, .npy and .npz files, and never unpickles anything.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnflow.cli.explain import attribute, parse_position, report
from attnflow.cli.options import (
    RegistryCommand,
    ScoreOptions,
    WordsOption,
    clear_errors,
    with_options,
)
from attnflow.errors import FileError, InputError

if TYPE_CHECKING:
    from attnflow.arrays import Array
    from attnflow.attentions import Attentions


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(cls=RegistryCommand)(with_options(trace))


def trace(
    file: Annotated[
        Path,
        typer.Argument(
            help="Attention weights in .safetensors, .npy or .npz: one array with the axes layers, "
            "heads, queries, keys, or one array per layer named layer.0, layer.1 and so on.",
            exists=True,
            dir_okay=False,
        ),
    ],
    *,
    tokens: Annotated[
        str | None, typer.Option(help="The tokens, separated by commas: 'the,key,is'.")
    ] = None,
    tokens_file: Annotated[
        Path | None,
        typer.Option(help="A text file with one token per line.", exists=True, dir_okay=False),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="The position to explain: an index from 0, the text of a token, or 'all'. "
            "Default: the last token of a causal model, the first one otherwise."
        ),
    ] = None,
    words: WordsOption = False,
    scores: ScoreOptions,
) -> None:
    """Show how much each token reaches a position, from stored attention weights.

    Example: attnflow trace attention.safetensors --method flow --position key --layer 3
    """
    with clear_errors():
        scores.check(file, tokens_file)
        from attnflow.explanation import Explanation

        attentions = read_attentions(file, _read_tokens(tokens, tokens_file))
        explanation = Explanation.from_attentions(
            attentions, position=parse_position(position), **scores.graph_arguments()
        )
        results = attribute(explanation, scores, position, words=words)
        report(explanation, results, scores, words=words)


def _read_tokens(tokens: str | None, tokens_file: Path | None) -> list[str] | None:
    if tokens is not None and tokens_file is not None:
        raise InputError(
            "--tokens and --tokens-file are both set",
            expected="one of them",
            fix="Remove one.",
        )
    if tokens_file is not None:
        from attnflow.storage import read_text

        return read_text(tokens_file).removesuffix("\n").split("\n")
    return None if tokens is None else tokens.split(",")


# layer.0 as attnflow writes it, layer0, layer_0, and arr_0, the default of numpy.savez.
NUMBERED = re.compile(r"(?:layer[._]?|arr_)([0-9]{1,6})")
NPY, ZIP = b"\x93NUMPY", b"PK"  # how files of numpy.save and numpy.savez begin
MAX_NAMES = 10  # of arrays, in an error message


def read_attentions(path: Path, tokens: Sequence[str] | None = None) -> "Attentions":
    """Read the attention weights of one input; `tokens` override those in the file.

    The file holds one array, or one array per layer named layer.0, layer.1 and so on.
    Raises FileError for an unsupported file, and the errors of `Attentions`.
    """
    from attnflow.attentions import Attentions

    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return _read_safetensors(path, tokens)
    if suffix not in (".npy", ".npz"):
        raise FileError(
            f"{path} ends in {suffix or 'nothing'!r}",
            expected=".safetensors, .npy or .npz",
            fix="Save the weights with Attentions.save or numpy.save.",
        )
    arrays = _load_numpy(path)
    in_file = _tokens_in(path, arrays)
    return Attentions(find_layers(path, arrays), tokens if tokens is not None else in_file)


def _read_safetensors(path: Path, tokens: Sequence[str] | None) -> "Attentions":
    from attnflow import storage
    from attnflow.attentions import KIND, Attentions

    arrays, header = storage.read_any(path)
    if header is None:
        return Attentions(find_layers(path, arrays), tokens)
    if tokens is None or header.get("kind") != KIND:
        return Attentions.load(path)
    return Attentions(find_layers(path, arrays), tokens)


def _load_numpy(path: Path) -> "dict[str, Array]":
    import numpy as np

    try:
        with path.open("rb") as file:
            if not file.peek(len(NPY))[: len(NPY)].startswith((NPY, ZIP)):
                raise ValueError("it does not begin as such a file does")
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"array": loaded}
            _check_unique(path, loaded.files)
            return {name: _check_array(path, name, loaded[name]) for name in loaded.files}
    except FileError:
        raise
    except Exception as error:  # NumPy and zipfile raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(
            f"{path} cannot be read ({reason})",
            expected="arrays of numbers as numpy.save and numpy.savez write them",
            fix="Save it again, without Python objects in it.",
        ) from error


def _check_unique(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FileError(
            f"{path} has {', '.join(twice)} more than once",
            expected="arrays with different names",
            fix="Save it again with numpy.savez.",
        )


def _check_array(path: Path, name: str, array: "Array") -> "Array":
    """Raise FileError if a member of an archive is no array: NumPy returns its bytes."""
    if isinstance(array, bytes):
        raise FileError(
            f"{path} has the member {name}, which is no array",
            expected="arrays as numpy.savez writes them",
            fix="Remove it from the archive.",
        )
    return array


def _tokens_in(path: Path, arrays: "dict[str, Array]") -> list[str] | None:
    """Remove the array named `tokens` from the others, and return it."""
    tokens = arrays.pop("tokens", None)
    if tokens is None:
        return None
    if tokens.ndim != 1 or tokens.dtype.kind != "U":
        raise FileError(
            f"{path} has tokens of type {tokens.dtype} and shape {list(tokens.shape)}",
            expected="a list of text",
            fix="Save them as numpy.array(tokens).",
        )
    return [str(token) for token in tokens]


def find_layers(path: Path, arrays: "Mapping[str, Array]") -> "Array | list[Array]":
    """The one array of a file, or its numbered arrays in order.

    Raises FileError if there is neither, if a number is missing or occurs twice, or if there are
    other arrays: none is left out silently.
    """
    # numpy.savez(path, array) names its one array arr_0.
    if len(arrays) == 1 and not next(iter(arrays)).startswith("layer"):
        return next(iter(arrays.values()))
    numbered: dict[int, str] = {}
    for name in arrays:
        match = NUMBERED.fullmatch(name)
        number = int(match[1]) if match else None
        if number is None or number in numbered:
            raise _not_layers(path, arrays)
        numbered[number] = name
    first = min(numbered, default=0)
    if first > 1 or sorted(numbered) != list(range(first, first + max(len(numbered), 1))):
        raise _not_layers(path, arrays)
    return [arrays[numbered[number]] for number in sorted(numbered)]


def _not_layers(path: Path, arrays: "Mapping[str, Array]") -> FileError:
    names = sorted(arrays)
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return FileError(
        f"{path} holds {', '.join(names[:MAX_NAMES]) or 'nothing'}{more}",
        expected="one array, or one per layer named layer.0, layer.1 and so on, without gaps, and "
        "no others",
        fix="Rename the arrays, and remove the others.",
    )
