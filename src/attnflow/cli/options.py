"""Options, errors and progress that the commands share.

Help texts for methods and edges come from their registries when help is shown, so registered
plugins appear in them.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from logging import ERROR, getLogger
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from attnflow.edges.registry import EDGES
from attnflow.errors import AttnflowError, InputError
from attnflow.methods.registry import METHODS

if TYPE_CHECKING:
    from attnflow.progress import Progress

LOG_INTERVAL = 10.0  # seconds between progress lines when stderr is not a terminal
ALL = "all"


class Scaling(StrEnum):
    """How to normalize scores."""

    NONE = "none"
    ROWS = "rows"
    RECEPTIVE_FIELD = "receptive_field"


class Format(StrEnum):
    """What to print."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class SpecialTokens(StrEnum):
    """What to do with special tokens."""

    SHOW = "show"
    HIDE = "hide"


class Truncation(StrEnum):
    """What to do with a text that is too long."""

    ERROR = "error"
    CUT = "cut"


MethodOption = Annotated[str, typer.Option("--method", metavar="NAME", help="The method.")]
EdgesOption = Annotated[str, typer.Option("--edges", metavar="NAME", help="The edge weights.")]
LayerOption = Annotated[
    str, typer.Option(help="The number of a layer, from 1; -1 is the last; or 'all'.")
]
HeadsOption = Annotated[
    str, typer.Option(help="How to merge heads: mean, max, min, or the index of a head, from 0.")
]
ResidualOption = Annotated[
    float, typer.Option(help="The weight of the residual connection, from 0 to 1.")
]
NormalizeOption = Annotated[
    Scaling,
    typer.Option(
        help="rows: scale the scores of a position to sum to 1. receptive_field: divide them by "
        "the scores under uniform attention first; meant for decoders.",
    ),
]
SpecialOption = Annotated[
    SpecialTokens, typer.Option(help="Show or hide special tokens such as [CLS].")
]
TargetOption = Annotated[
    str | None,
    typer.Option(help="The class or token to explain, by index or name. Default: the prediction."),
]
TopOption = Annotated[
    int | None, typer.Option(min=1, help="List the K tokens with the highest scores.")
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="A table to read, or json or csv for programs.")
]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        help="Write the scores to a .safetensors file. With --method all, one file per method: its "
        "name is added before the suffix."
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(help="Write an interactive page to this file. It works offline in any browser."),
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="Threads for flow. Default: all cores.")
]
DeviceOption = Annotated[
    str | None, typer.Option(help="The device to run the model on, such as cpu or cuda.")
]


class RegistryCommand(TyperCommand):
    """A command whose help for --method and --edges lists what is registered."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, with up-to-date help texts."""
        params = super().get_params(ctx)
        for param in params:
            if not isinstance(param, TyperOption):
                continue
            if param.name == "edges":
                param.help = f"What to weight the edges by. {EDGES.help()}"
            elif param.name == "method":
                param.help = f"How to attribute the prediction. {METHODS.help()} all: all of them."
            elif param.name == "methods":
                param.help = f"Methods, separated by commas. {METHODS.help()}"
        return params


def parse_methods(name: str) -> list[str]:
    """The methods of --method: one, or all. Raises SelectionError for an unknown one."""
    return list(METHODS.names) if name == ALL else [METHODS[name].name]


def parse_layer(text: str) -> int | None:
    """The number of a layer; None for all."""
    if text == ALL:
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"--layer is {text!r}",
            expected="a number, or 'all'",
            fix="Layers are numbered from 1.",
        ) from None


def number_or_text(text: str) -> Any:
    """A whole number if the text is one, otherwise the text: a position, a head, a target."""
    try:
        return int(text)
    except ValueError:
        return text


@contextmanager
def clear_errors() -> Iterator[None]:
    """Print our errors without a traceback: exit 2 for invalid input, 1 for other failures."""
    try:
        yield
    except AttnflowError as error:
        typer.echo(f"attnflow: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, InputError) else 1) from None


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print warnings on stderr, one line each, when the block ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        typer.echo(f"attnflow: {warning.message}", err=True)


def silence_transformers() -> None:
    """Turn off progress bars of transformers and log messages of the hub client.

    Our own errors report what cannot be loaded.
    """
    try:
        logging = import_module("transformers.utils.logging")
    except ImportError:
        return  # the library reports that transformers is missing
    logging.disable_progress_bar()
    getLogger("huggingface_hub").setLevel(ERROR)


def echo(text: str) -> None:
    """Print text for programs, with escapes for what UTF-8 cannot encode."""
    typer.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"))


@contextmanager
def spinner(message: str) -> Iterator[None]:
    """Show a message on stderr while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield


@contextmanager
def progress_bar(task_name: str) -> "Iterator[Progress]":
    """A progress callback: a bar on stderr if it is a terminal, log lines otherwise."""
    if not sys.stderr.isatty():
        yield _ProgressLog(task_name)
        return
    from rich.console import Console
    from rich.progress import Progress as ProgressDisplay

    with ProgressDisplay(console=Console(stderr=True), transient=True) as display:
        task = display.add_task(task_name, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)


class _ProgressLog:
    """Prints a progress line every LOG_INTERVAL seconds."""

    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self.last = monotonic()

    def __call__(self, done: int, total: int) -> None:
        if monotonic() - self.last >= LOG_INTERVAL and total > 0:
            self.last = monotonic()
            typer.echo(f"attnflow: {self.task_name}: {done / total:.0%}", err=True)
