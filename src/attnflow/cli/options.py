"""Options, errors and progress that the commands share.

Help texts for methods and edges come from their registries when help is shown, so registered
plugins appear in them.
"""

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from logging import ERROR, getLogger
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from attnflow.edges.registry import EDGES
from attnflow.errors import AttnflowError, FileError, InputError
from attnflow.methods.registry import METHODS, default_methods
from attnflow.optional import EXTRAS, missing_package
from attnflow.progress import compilation_shown

if TYPE_CHECKING:
    from attnflow.progress import Progress

LOG_INTERVAL = 10.0  # seconds between progress lines when stderr is not a terminal
COMPILING = "compiling (once)"
ALL = "all"
SCORES, OUTPUT = "Scores", "Output"  # panels of the help


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


# Options that commands of several kinds have.
WordsOption = Annotated[bool, typer.Option("--words", help="Merge the tokens of each word.")]
TopOption = Annotated[
    int | None,
    typer.Option(min=1, help="List the K tokens with the highest scores.", rich_help_panel=OUTPUT),
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format", help="A table to read, or json or csv for programs.", rich_help_panel=OUTPUT
    ),
]
CheckOption = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Check the methods on this input: remove the tokens with the highest scores, and "
        "compare the drop of the prediction with that of random tokens and of other methods.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Threads for flow. Default: all cores."),
]


def complete_methods(incomplete: str) -> list[str]:
    """The names of methods that start with what was typed, for the shell.

    >>> complete_methods("ro")
    ['rollout']
    """
    return [name for name in (*METHODS.names, ALL) if name.startswith(incomplete)]


def complete_edges(incomplete: str) -> list[str]:
    """The names of edge weightings that start with what was typed, for the shell."""
    return [name for name in EDGES.names if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of `explain` and `explain-image`, which run a model."""

    target: Annotated[
        str | None,
        typer.Option(
            help="The class or token to explain, by index or name. Default: the prediction."
        ),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(
            help="A class or token to compare the target with: gradient edges are then those of "
            "the difference."
        ),
    ] = None
    edges: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The edge weights.",
            rich_help_panel=SCORES,
            autocompletion=complete_edges,
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="The device to run the model on, such as cpu or cuda.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of `explain` and `explain_image`."""
        return {
            "target": None if self.target is None else number_or_text(self.target),
            "against": None if self.against is None else number_or_text(self.against),
            "edges": self.edges,
            "device": self.device,
        }


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Options of `explain`, `explain-image` and `trace`: the graph, the methods, the output."""

    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The method.",
            rich_help_panel=SCORES,
            autocompletion=complete_methods,
        ),
    ] = "rollout"
    layer: Annotated[
        str,
        typer.Option(
            help="The number of a layer, from 1; -1 is the last; or 'all'.", rich_help_panel=SCORES
        ),
    ] = ALL
    heads: Annotated[
        str,
        typer.Option(
            help="How to merge heads: mean, max, min, or the index of a head, from 0.",
            rich_help_panel=SCORES,
        ),
    ] = "mean"
    residual_weight: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="The weight of the residual connection, from 0 to 1; or measured, which needs a "
            "model. Default: 0.5, unless the edges contain the residual connection.",
            rich_help_panel=SCORES,
        ),
    ] = None
    normalize: Annotated[
        Scaling,
        typer.Option(
            help="rows: scale the scores of a position to sum to 1. receptive_field: divide them "
            "by the scores under uniform attention first; meant for decoders.",
            rich_help_panel=SCORES,
        ),
    ] = Scaling.NONE
    special: Annotated[
        SpecialTokens,
        typer.Option(help="Show or hide special tokens such as [CLS].", rich_help_panel=SCORES),
    ] = SpecialTokens.SHOW
    top: TopOption = None
    output: FormatOption = Format.TABLE
    save: Annotated[
        Path | None,
        typer.Option(
            help="Write the scores to a .safetensors file. With --method all, one file per "
            "method: its name is added before the suffix.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write an interactive page to this file. It works offline in any browser.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    threads: ThreadsOption = None

    @property
    def methods(self) -> list[str]:
        """The methods to compute. Raises SelectionError for an unknown one."""
        return list(default_methods()) if self.method == ALL else [METHODS[self.method].name]

    def check(self, *inputs: Path | None, overlay: Path | None = None) -> None:
        """Raise InputError, before anything is computed, for values that would fail later.

        inputs: files that are read, which must not be written over. overlay: a further output.
        """
        _ = self.methods, _parse_layer(self.layer)
        outputs = {"--save": self.save, "--html": self.html, "--overlay": overlay}
        check_outputs(outputs, *inputs)
        if self.html is not None:
            from attnflow.viewer.page import check_target

            check_target(self.html)

    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of `explain`, `explain_image` and `Explanation.from_attentions`."""
        arguments: dict[str, Any] = {"heads": number_or_text(self.heads)}
        if self.residual_weight is not None:
            arguments["residual_weight"] = _parse_residual(self.residual_weight)
        return arguments

    def method_arguments(self) -> dict[str, Any]:
        """Arguments of `Explanation.attribute`."""
        return {
            "layers": _parse_layer(self.layer),
            "normalize": self.normalize.value,
            "special": self.special.value,
            "threads": self.threads,
        }

    def view_arguments(self) -> dict[str, Any]:
        """Arguments of `Explanation.to_html`: what the page shows when it opens."""
        layer = _parse_layer(self.layer)
        view = {
            "method": None if self.method == ALL else self.method,
            "layer": layer,
            "top": self.top,
            "normalize": self.normalize.value,
            "special": self.special.value,
        }
        return {name: value for name, value in view.items() if value is not None}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass of options by its fields.

    Typer derives the options of a command from its signature. The command itself is called with
    instances of the dataclasses.
    """
    own = signature(command)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in own.parameters.items()
        if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    parameters: list[Parameter] = []
    for name, parameter in own.parameters.items():
        parameters += _field_parameters(groups[name]) if name in groups else [parameter]
    call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _field_parameters(group: Any) -> list[Parameter]:
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(group)
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
                param.help = (
                    "What to weight the edges by. Default: attention, and alti for decoders and "
                    f"encoder-decoders. {EDGES.help()}"
                )
            elif param.name == "method":
                every = ", ".join(default_methods())
                param.help = f"How to attribute the prediction. {METHODS.help()} all: {every}."
        return params


def _parse_residual(text: str) -> float | str:
    """A number, or a word such as "measured"."""
    try:
        return float(text)
    except ValueError:
        return text


def check_outputs(outputs: Mapping[str, Path | None], *inputs: Path | None) -> None:
    """Raise InputError if an output would be written over an input, or over another output."""
    taken = {os.path.realpath(path): "the input" for path in inputs if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        place = os.path.realpath(path)
        if place in taken:
            raise InputError(
                f"{option} is {path}, which is also {taken[place]}",
                expected="a file of its own",
                fix="Choose another name.",
            )
        taken[place] = f"that of {option}"


def _parse_layer(text: str) -> int | None:
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
    """Print our errors without a traceback: exit 2 for invalid input, 1 for other failures.

    Errors of the system about files become ours here, for all commands.
    """
    try:
        yield
    except AttnflowError as error:
        code, problem = (2 if isinstance(error, InputError) else 1), error
    except ModuleNotFoundError as error:  # by an import at the top of a module
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        code, problem = 1, missing_package(package, "this command")
    except BrokenPipeError:
        raise  # the reader of the output ended; not an error of ours
    except (OSError, UnicodeError) as error:
        code, problem = (1 if _is_full(error) else 2), file_error(error)
    else:
        return
    typer.echo(f"attnflow: {problem}", err=True)
    raise typer.Exit(code) from None


def file_error(error: OSError | UnicodeError) -> AttnflowError:
    """Our error for one of the system about a file, or about the output if it names none."""
    if isinstance(error, UnicodeError):
        return FileError(
            f"a text or a file name cannot be decoded ({error})",
            expected="UTF-8",
            fix="Convert the file, or rename it.",
        )
    name = getattr(error, "filename", None)
    place = "the output" if name is None else os.fsdecode(name)
    return FileError(
        f"{place} cannot be read or written ({error.strerror or error})",
        expected="a file that can be read, or free space to write to",
        fix="Check the path, the permissions and the disk.",
    )


def _is_full(error: OSError | UnicodeError) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def require_command(context: typer.Context) -> None:
    """Callback of a group of commands: report a missing command, with those that there are."""
    if context.invoked_subcommand is None:
        names = ", ".join(getattr(context.command, "commands", {}))
        with clear_errors():
            raise InputError(
                f"`{context.command_path}` has no command",
                expected=f"one of {names}",
                fix=f"`{context.command_path} --help` describes them.",
            )


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

    with Console(stderr=True).status(message) as status:

        def show_compilation(done: int, total: int) -> None:
            status.update(f"{COMPILING}: {done / total:.0%}" if done < total else message)

        with compilation_shown(show_compilation):
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
        compiling = display.add_task(COMPILING, visible=False)

        def show_compilation(done: int, total: int) -> None:
            display.update(compiling, completed=done, total=total, visible=done < total)

        with compilation_shown(show_compilation):
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
