"""Options of the commands that run over a data set: `corpus run` and `evaluate`.

The options that decide what is computed are derived from the fields of the settings of the command;
those of the input and of the execution are the same for all, and listed here.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from typer.core import TyperCommand, TyperOption

from attnflow.corpus.settings import EngineName, Format, Option, RunSettings
from attnflow.errors import InputError

# Panels of the help.
SCORES, INPUT, EXECUTION, REPORT = "Scores", "Input", "Execution", "Report"


def join_choices(choices: tuple[str, ...]) -> str | None:
    """Return the placeholder of an option with fixed choices; None if it has none."""
    return f"[{'|'.join(choices)}]" if choices else None


OutOption = Annotated[Path, typer.Option(help="Folder to write to, or to resume in.")]
TextColumnOption = Annotated[
    str | None,
    typer.Option(help="Column of the texts. Default: text, or sentence.", rich_help_panel=INPUT),
]
IdColumnOption = Annotated[
    str | None,
    typer.Option(help="Column of the IDs. Default: the row number.", rich_help_panel=INPUT),
]
FileFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar=join_choices(get_args(Format)),
        help="If the file has another extension.",
        rich_help_panel=INPUT,
    ),
]
InputIdOption = Annotated[
    str | None,
    typer.Option(help="Input ID (instead of a checksum).", rich_help_panel=INPUT),
]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Stop at the first invalid row.", rich_help_panel=INPUT),
]
ShardSizeOption = Annotated[
    int, typer.Option(min=1, help="Rows in a shard.", rich_help_panel=EXECUTION)
]
ShardsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A:B",
        help="Only shards A to B - 1, such as 0:100; other processes compute the others.",
        rich_help_panel=EXECUTION,
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        metavar=join_choices(get_args(EngineName)),
        help="This machine, or a Ray cluster.",
        rich_help_panel=EXECUTION,
    ),
]
RunThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Default: all processors.", rich_help_panel=EXECUTION),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Ray workers, which hold the model.", rich_help_panel=EXECUTION),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster: host:port, auto for a running one, local to start one.",
        rich_help_panel=EXECUTION,
    ),
]
AcceptVersionsOption = Annotated[
    bool,
    typer.Option(
        "--accept-versions",
        help="Resume with other library versions.",
        rich_help_panel=EXECUTION,
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", help="Show no progress and no summary.", rich_help_panel=REPORT)
]


def run_command(settings: type[RunSettings]) -> type[TyperCommand]:
    """Return a class of commands whose help lists what is registered: methods, edges and so on.

    It is looked up only for the help of the command: that imports the registries and plugins.
    """

    class RunCommand(TyperCommand):
        """A command with the options of some settings."""

        def format_help(self, ctx: Any, formatter: Any) -> None:
            """Write the help."""
            options = settings.options()
            for parameter in self.params:
                if isinstance(parameter, TyperOption) and parameter.name in options:
                    parameter.help = options[parameter.name].full_help()
            super().format_help(ctx, formatter)

    return RunCommand


def add_settings(command: Callable[..., None], settings: type[RunSettings]) -> None:
    """Replace `**settings` in the signature of a command, from which Typer derives the options."""
    own = [p for p in signature(command).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    # After INPUT and --out.
    parameters = [*own[:2], *_setting_parameters(settings), *own[2:]]
    command.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]


def parse_settings(settings: type[RunSettings], values: dict[str, Any]) -> dict[str, Any]:
    """Convert texts of the command line to values of settings."""
    options = settings.options()
    return {
        name: options[name].parse(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _setting_parameters(settings: type[RunSettings]) -> Iterator[Parameter]:
    """Yield a keyword parameter of the command for each setting."""
    for field in fields(cast(Any, settings)):
        option: Option = field.metadata["option"]
        assert field.default is not MISSING
        details: dict[str, Any] = {
            "help": option.help,
            "min": option.minimum,
            "metavar": None if option.several else join_choices(option.choices),
            "show_default": "Default:" not in option.help,  # which says it in words
            "rich_help_panel": SCORES,
        }
        flag = f"--{field.name.replace('_', '-')}"
        annotation: Any = option.kind if option.kind is bool else option.kind | None
        yield Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=option.format(field.default) if option.kind is str else field.default,
            annotation=Annotated[annotation, typer.Option(flag, **details)],
        )


def parse_shards(text: str | None) -> tuple[int, int | None] | None:
    """Read the option --shards. Raises InputError for anything but "A:B"."""
    if text is None:
        return None
    first, colon, end = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return int(first or 0), int(end) if end else None
    except ValueError:
        raise InputError(
            f"--shards is {text!r}",
            expected="two whole numbers with a colon between them",
            fix="For the first hundred: --shards 0:100.",
        ) from None
