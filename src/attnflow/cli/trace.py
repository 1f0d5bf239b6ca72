"""The command `trace`: attention weights from a file in, an attribution out."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.options import (
    Format,
    FormatOption,
    HeadsOption,
    LayerOption,
    NormaliseOption,
    ResidualOption,
    Scaling,
    ThreadsOption,
    clear_errors,
    echo,
    number_or_text,
    parse_layer,
    progress_bar,
)
from attnflow.errors import InputError

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
    normalise: NormaliseOption = Scaling.NONE,
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
        from attnflow.cli.read import read_attentions
        from attnflow.graph import AttentionGraph

        attentions = read_attentions(file, _read_tokens(tokens, tokens_file))
        graph = AttentionGraph.from_attentions(
            attentions, heads=number_or_text(heads), residual_weight=residual_weight
        )
        result = _run(graph, method, _selection(layer, position, normalise), threads)
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


def _selection(layer: str, position: str, normalise: Scaling) -> dict[str, Any]:
    return {
        "layers": parse_layer(layer),
        "positions": None if position == "all" else number_or_text(position),
        "normalise": normalise.value,
    }


def _read_tokens(tokens: str | None, tokens_file: Path | None) -> list[str] | None:
    if tokens is not None and tokens_file is not None:
        raise InputError(
            "--tokens and --tokens-file were both given; expected one of them. Leave one out."
        )
    if tokens_file is not None:
        return tokens_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return None if tokens is None else tokens.split(",")
