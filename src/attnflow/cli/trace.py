"""The command `trace`: attention weights from a file in, an attribution out.

Attention weights from files: safetensors, .npy and .npz. Never pickle.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import BadZipFile

import numpy as np
import typer

from attnflow import storage
from attnflow.arrays import Array
from attnflow.attentions import KIND, Attentions
from attnflow.cli.options import (
    Format,
    FormatOption,
    HeadsOption,
    LayerOption,
    NormalizeOption,
    ResidualOption,
    Scaling,
    ThreadsOption,
    clear_errors,
    echo,
    number_or_text,
    parse_layer,
    progress_bar,
)
from attnflow.errors import FileError, InputError

if TYPE_CHECKING:
    from attnflow.attribution import Attribution
    from attnflow.graph import AttentionGraph


class Method(StrEnum):
    """How to attribute a position to tokens."""

    RAW = "raw"
    ROLLOUT = "rollout"
    FLOW = "flow"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(trace)


def trace(  # noqa: PLR0913 - one argument for each option
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
    method: Annotated[
        Method,
        typer.Option(
            help="raw: the weights of one layer. rollout: the product of the layers. "
            "flow: the maximum flow through the layers."
        ),
    ] = Method.ROLLOUT,
    layer: LayerOption = "-1",
    position: Annotated[
        str, typer.Option(help="Where to look from: an index from 0, a token's text, or 'all'.")
    ] = "0",
    heads: HeadsOption = "mean",
    residual_weight: ResidualOption = 0.5,
    normalize: NormalizeOption = Scaling.NONE,
    top: Annotated[
        int | None, typer.Option(min=1, help="Show only the K tokens with the highest scores.")
    ] = None,
    output: FormatOption = Format.TABLE,
    threads: ThreadsOption = None,
    tokens: Annotated[
        str | None, typer.Option(help="The tokens, separated by commas: 'the,key,is'.")
    ] = None,
    tokens_file: Annotated[
        Path | None,
        typer.Option(help="A text file with one token per line.", exists=True, dir_okay=False),
    ] = None,
) -> None:
    """Print how much each input token reaches a position.

    Example: attnflow trace attention.safetensors --method flow --position key --layer all
    """
    with clear_errors():
        from attnflow.graph import AttentionGraph

        attentions = read_attentions(file, _read_tokens(tokens, tokens_file))
        graph = AttentionGraph.from_attentions(
            attentions, heads=number_or_text(heads), residual_weight=residual_weight
        )
        result = _run(graph, method, _selection(layer, position, normalize), threads)
        _print(result, output, top)


def _run(
    graph: "AttentionGraph", method: Method, options: dict[str, Any], threads: int | None
) -> "Attribution":
    if method is Method.RAW:
        from attnflow.methods.raw import raw_attention

        return raw_attention(graph, **options)
    if method is Method.ROLLOUT:
        from attnflow.methods.rollout import rollout

        return rollout(graph, **options)
    from attnflow.methods.flow import flow

    with progress_bar("flow") as progress:
        return flow(graph, **options, threads=threads, progress=progress)


def _print(result: "Attribution", output: Format, top: int | None) -> None:
    from rich.console import Console

    from attnflow.cli.render import print_tables, to_csv, to_json

    if output is Format.TABLE:
        print_tables(result, top, Console(highlight=False))
    else:
        echo((to_json if output is Format.JSON else to_csv)(result, top))


def _selection(layer: str, position: str, normalize: Scaling) -> dict[str, Any]:
    return {
        "layers": parse_layer(layer),
        "positions": None if position == "all" else number_or_text(position),
        "normalize": normalize.value,
    }


def _read_tokens(tokens: str | None, tokens_file: Path | None) -> list[str] | None:
    if tokens is not None and tokens_file is not None:
        raise InputError(
            "--tokens and --tokens-file were both given",
            expected="one of them",
            fix="Leave one out.",
        )
    if tokens_file is not None:
        return tokens_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return None if tokens is None else tokens.split(",")


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
            f"{path} ends in {suffix or 'nothing'!r}",
            expected=".safetensors, .npy or .npz",
            fix="Save the weights with Attentions.save or numpy.save.",
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
            f"{path} cannot be read ({str(error).splitlines()[0]})",
            expected="arrays of numbers as numpy.save and numpy.savez write them",
            fix="Save it again, without Python objects in it.",
        ) from error


def _tokens_in(path: Path, arrays: dict[str, Array]) -> list[str] | None:
    """Take the array named `tokens` out of the others, if there is one."""
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
            f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}",
            expected="one array, or one per layer named layer.0, layer.1 and so on, with none "
            "missing",
            fix="Rename the arrays.",
        )
    return [numbered[number] for number in numbers]
