"""The command line: a table of the commands, which are imported by name when they are called.

Shell completion comes from Typer: `attnflow --install-completion`.
"""

import os
import sys
from contextvars import copy_context
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


class Entry(NamedTuple):
    """A command in the table."""

    module: str  # that registers it
    line: str  # of the help
    extra: str | None = None  # with all packages that it needs


# The commands in the order of the help.
COMMANDS = {
    "explain": Entry(
        "attnflow.cli.explain",
        "Show what a model predicts for a text, or generates, and which tokens reach it.",
        "models",
    ),
    "explain-image": Entry(
        "attnflow.cli.explain",
        "Show what a vision model predicts for an image, and which patches reach that prediction.",
        "images",
    ),
    "trace": Entry(
        "attnflow.cli.trace",
        "Show how much each token reaches a position, from stored attention weights.",
    ),
    "convert": Entry(
        "attnflow.cli.convert",
        "Convert a pickle checkpoint to safetensors, with its tokenizer.",
        "models",
    ),
    "serve": Entry(
        "attnflow.cli.serve",
        "Start a local web page: enter a text or chat, choose a model, and explore the attention.",
        "serve",
    ),
    "corpus": Entry(
        "attnflow.cli.corpus", "Score whole data sets. Interrupted runs resume.", "corpus"
    ),
    "evaluate": Entry(
        "attnflow.cli.evaluate",
        "Measure which explanation to trust: faithfulness of methods, edges, gradients, baselines.",
        "evaluation",
    ),
    "reproduce": Entry(
        "attnflow.cli.reproduce",
        "Reproduce the paper's tables and figures, and further experiments.",
        "paper",
    ),
    "data": Entry(
        "attnflow.cli.data",
        "List, check, download and extract the data sets that attnflow reads.",
    ),
    "train": Entry("attnflow.cli.train", "Train a built-in model again.", "paper"),
    "warmup": Entry(
        "attnflow.cli.warmup",
        "Compile the flow solver now, so that the first flow does not wait for it.",
    ),
    "doctor": Entry(
        "attnflow.cli.doctor",
        "Show what is installed: versions, extras, devices, compiled code and caches.",
    ),
}

# What `attnflow` alone prints.
FIRST_COMMANDS = """\
attnflow explains the predictions of Transformers: which input tokens reach them.

Three commands to try{missing}:

  attnflow explain "the keys to the old cabinet"
  attnflow explain "the keys to the old cabinet" --method all --html keys.html
  attnflow doctor

`attnflow --help` lists all commands.
"""


class LazyCommands(TyperGroup):
    """A group that lists the commands of the table, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in COMMANDS.items():
            self.add_command(TyperCommand(name, help=entry.line))

    def invoke(self, ctx: Any) -> Any:
        """Run the called command in a context of its own: `attnflow` sets `command_extra` in it."""
        return copy_context().run(super().invoke, ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the called command, the command, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if name is None or command is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Import the module of a command, and return the command."""
    registered = typer.Typer()
    import_module(COMMANDS[name].module).register(registered)
    return get_group(registered).commands[name]


app = typer.Typer(
    name="attnflow",
    cls=LazyCommands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        from attnflow import __version__

        typer.echo(f"attnflow {__version__}")
        raise typer.Exit


@app.callback()
def attnflow(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Explain the predictions of Transformers by raw attention, rollout and flow."""
    if context.invoked_subcommand is None:
        has_models = find_spec("torch") and find_spec("transformers")
        missing = "" if has_models else ", after `pip install 'attnflow[models]'`"
        typer.echo(FIRST_COMMANDS.format(missing=missing), nl=False)
    else:
        from attnflow.optional import command_extra

        command_extra.set(COMMANDS[context.invoked_subcommand].extra)


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
