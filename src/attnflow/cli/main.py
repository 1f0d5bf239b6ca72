"""The command line: parse, call the library, print.

Heavy modules are imported inside commands, so that `attnflow --help` answers at once.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.errors import AttnflowError, InputError

if TYPE_CHECKING:
    from attnflow.attribution import Attribution
    from attnflow.graph import AttentionGraph

app = typer.Typer(
    name="attnflow",
    help="Trace how much each input token reaches each position of a Transformer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Method(StrEnum):
    """How to attribute a position to tokens."""

    RAW = "raw"
    ROLLOUT = "rollout"
    FLOW = "flow"


class Scaling(StrEnum):
    """How to scale scores."""

    NONE = "none"
    ROWS = "rows"
    RECEPTIVE_FIELD = "receptive_field"


class Format(StrEnum):
    """What to print."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def _print_version(asked: bool) -> None:
    if asked:
        from attnflow import __version__

        typer.echo(f"attnflow {__version__}")
        raise typer.Exit


@app.callback()
def attnflow(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Trace how much each input token reaches each position of a Transformer."""


@app.command()
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
    layer: Annotated[
        str, typer.Option(help="Number of a layer from 1, -1 for the last, or 'all'.")
    ] = "-1",
    position: Annotated[
        str, typer.Option(help="Where to look from: an index from 0, a token's text, or 'all'.")
    ] = "0",
    heads: Annotated[
        str, typer.Option(help="How to merge heads: mean, max, min, or the number of one head.")
    ] = "mean",
    residual_weight: Annotated[
        float, typer.Option(help="Weight of the residual connection, from 0 to 1.")
    ] = 0.5,
    normalise: Annotated[
        Scaling,
        typer.Option(
            metavar="HOW",
            help="none; rows: a position's scores sum to 1; or receptive_field: scores are divided "
            "by what uniform attention would give, which is meant for decoders.",
        ),
    ] = Scaling.NONE,
    top: Annotated[
        int | None, typer.Option(min=1, help="Show only the K tokens with the highest scores.")
    ] = None,
    output: Annotated[
        Format, typer.Option("--format", help="A table to look at; json or csv for programs.")
    ] = Format.TABLE,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for flow; all cores if not given.")
    ] = None,
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
    with _clear_errors():
        from attnflow.cli.read import read_attentions
        from attnflow.graph import AttentionGraph

        attentions = read_attentions(file, _read_tokens(tokens, tokens_file))
        graph = AttentionGraph.from_attentions(
            attentions, heads=parse_heads(heads), residual_weight=residual_weight
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

    with _progress_bar() as progress:
        return flow(graph, **options, threads=threads, progress=progress)


def _print(result: "Attribution", output: Format, top: int | None) -> None:
    from rich.console import Console

    from attnflow.cli.render import print_tables, to_csv, to_json

    if output is Format.TABLE:
        print_tables(result, top, Console(highlight=False))
        return
    text = (to_json if output is Format.JSON else to_csv)(result, top)
    # Tokens can hold half a surrogate pair, which no encoding can write.
    typer.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _selection(layer: str, position: str, normalise: Scaling) -> dict[str, Any]:
    return {
        "layers": None if layer == "all" else parse_layer(layer),
        "positions": None if position == "all" else parse_position(position),
        "normalise": normalise.value,
    }


def parse_layer(text: str) -> int:
    """The number of a layer."""
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"--layer is {text!r}; expected a number, or 'all'. Layers are numbered from 1."
        ) from None


def parse_position(text: str) -> int | str:
    """An index if the text is a whole number, otherwise the text of a token."""
    try:
        return int(text)
    except ValueError:
        return text


def parse_heads(text: str) -> Any:
    """The number of a head if the text is a whole number; otherwise left to the graph to check."""
    try:
        return int(text)
    except ValueError:
        return text


def _read_tokens(tokens: str | None, tokens_file: Path | None) -> list[str] | None:
    if tokens is not None and tokens_file is not None:
        raise InputError(
            "--tokens and --tokens-file were both given; expected one of them. Leave one out."
        )
    if tokens_file is not None:
        return tokens_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return None if tokens is None else tokens.split(",")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Print an error of ours as one sentence: exit 2 if the caller can fix it, otherwise 1."""
    try:
        yield
    except AttnflowError as error:
        typer.echo(f"attnflow: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, InputError) else 1) from None


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """A function to report progress to, drawn on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("flow", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def main() -> None:
    """Run the command line."""
    app(prog_name="attnflow")


if __name__ == "__main__":
    main()
