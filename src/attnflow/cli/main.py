"""The command line: parse, call the library, print.

Each command is a module of its own, which imports heavy modules only when it runs, so that
`attnflow --help` answers at once.
"""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from attnflow.cli import corpus, data, explain, image, reproduce, serve, trace, train

app = typer.Typer(
    name="attnflow",
    help="Trace how much each input token reaches each position of a Transformer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


for command in (corpus, data, explain, image, reproduce, serve, trace, train):
    command.register(app)


def main() -> None:
    """Run the command line. What the terminal cannot show is written by its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="attnflow")


if __name__ == "__main__":
    main()
