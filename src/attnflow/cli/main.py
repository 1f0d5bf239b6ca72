"""The command line: a table of the commands, which are imported by name when they are called."""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

# The commands in the order of the help: the module that registers each, and its line of the help.
COMMANDS = {
    "explain": (
        "attnflow.cli.explain",
        "Show what a model predicts for a text, or generates, and which tokens reach it.",
    ),
    "explain-image": (
        "attnflow.cli.explain",
        "Show what a vision model predicts for an image, and which patches reach that prediction.",
    ),
    "trace": (
        "attnflow.cli.trace",
        "Show how much each token reaches a position, from stored attention weights.",
    ),
    "convert": (
        "attnflow.cli.convert",
        "Convert a pickle checkpoint to safetensors, with its tokenizer.",
    ),
    "serve": (
        "attnflow.cli.serve",
        "Start a local web page: enter a text or chat, choose a model, and explore the attention.",
    ),
    "corpus": ("attnflow.cli.corpus", "Score whole data sets. Interrupted runs resume."),
    "evaluate": (
        "attnflow.cli.evaluate",
        "Measure which explanation to trust: faithfulness of methods, edges, gradients, baselines.",
    ),
    "reproduce": (
        "attnflow.cli.reproduce",
        "Reproduce the paper's tables and figures, and further experiments.",
    ),
    "data": (
        "attnflow.cli.data",
        "List, check, download and extract the data sets that attnflow reads.",
    ),
    "train": ("attnflow.cli.train", "Train a built-in model again."),
}


class LazyCommands(TyperGroup):
    """A group that lists the commands of the table, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the called command, the command, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if name is None or command is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Import the module of a command, and return the command."""
    module, _ = COMMANDS[name]
    registered = typer.Typer()
    import_module(module).register(registered)
    return get_group(registered).commands[name]


app = typer.Typer(
    name="attnflow",
    cls=LazyCommands,
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


def main() -> None:
    """Run the command line. Characters that the terminal cannot encode are escaped.

    Output that cannot be written, such as to a full disk, is an error with the exit code 1.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as with 2>&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app(prog_name="attnflow")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(1) from None
    except OSError as error:
        _discard_output()
        from attnflow.cli.options import file_error

        sys.stderr.write(f"attnflow: {file_error(error)}\n")
        raise SystemExit(1) from None


def _discard_output() -> None:
    """Drop what is left to print, which Python would try to write again when it ends."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


if __name__ == "__main__":
    main()
