"""What commands share: kinds of output, parsing of options, errors and progress on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from time import monotonic
from typing import Annotated, Any

import typer

from attnflow.errors import AttnflowError, InputError

EVERY = 10.0  # seconds between lines of a log


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


# Options that several commands have.
LayerOption = Annotated[
    str, typer.Option(help="Number of a layer from 1, -1 for the last, or 'all'.")
]
HeadsOption = Annotated[
    str, typer.Option(help="How to merge heads: mean, max, min, or the number of one head.")
]
ResidualOption = Annotated[
    float, typer.Option(help="Weight of the residual connection, from 0 to 1.")
]
NormalizeOption = Annotated[
    Scaling,
    typer.Option(
        metavar="HOW",
        help="none; rows: a position's scores sum to 1; or receptive_field: scores are divided "
        "by what uniform attention would give, which is meant for decoders.",
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="A table to look at; json or csv for programs.")
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="Threads for flow; all cores if not given.")
]


def parse_layer(text: str) -> int | None:
    """The number of a layer; None for all."""
    if text == "all":
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
    """Print an error of ours as one sentence: exit 2 if the caller can fix it, otherwise 1."""
    try:
        yield
    except AttnflowError as error:
        typer.echo(f"attnflow: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, InputError) else 1) from None


def echo(text: str) -> None:
    """Print text for programs. Tokens can hold half a surrogate pair, which none can encode."""
    typer.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"))


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Say what is being done on stderr, if that is a terminal, until it is done."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to report progress to: a bar on stderr if that is a terminal, a log if not."""
    if not sys.stderr.isatty():
        yield _Log(what)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Log:
    """Prints a line now and then."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.last = monotonic()

    def __call__(self, done: int, total: int) -> None:
        if monotonic() - self.last >= EVERY and total > 0:
            self.last = monotonic()
            typer.echo(f"attnflow: {self.what}: {done / total:.0%}", err=True)
