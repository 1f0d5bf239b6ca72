"""The command line: each command parses its options, calls the library and prints.

Commands import heavy modules only when they run, so that `attnflow --help` is fast.
"""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from attnflow.cli import corpus, data, explain, reproduce, serve, trace, train

app = typer.Typer(
    name="attnflow",
    help="Explain the predictions of Transformers by raw attention, rollout and flow.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
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
    """Explain the predictions of Transformers by raw attention, rollout and flow."""


for command in (corpus, data, explain, reproduce, serve, trace, train):
    command.register(app)


def main() -> None:
    """Run the command line. Characters that the terminal cannot encode are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="attnflow")


if __name__ == "__main__":
    main()
