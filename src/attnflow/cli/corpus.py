"""The command `corpus run`, and the group of the corpus commands.

The options that decide what is computed are derived from the fields of
`attnflow.corpus.settings.Settings`; the others are listed in `run`. The commands that read a
finished corpus are in `corpus_results`.
"""

import json
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields
from inspect import Parameter, signature
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperOption

from attnflow.cli import corpus_results
from attnflow.cli.options import clear_errors, echo, require_command
from attnflow.cli.progress_bars import clock, plain_warnings, show_status, stop_on_signals
from attnflow.corpus.settings import OPTIONS, SHARD_SIZE, EngineName, Format, Option, Settings
from attnflow.errors import InputError

if TYPE_CHECKING:
    from attnflow.corpus.status import Summary

# Panels of the help.
SCORES, INPUT, EXECUTION, REPORT = "Scores", "Input", "Execution", "Report"


def _join_choices(choices: tuple[str, ...]) -> str | None:
    """Return the placeholder of an option with fixed choices; None if it has none."""
    return f"[{'|'.join(choices)}]" if choices else None


class RunCommand(TyperCommand):
    """A command whose help lists the registered methods and edges.

    They are looked up only for the help of this command: that imports the registries and plugins.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.name in OPTIONS:
                parameter.help = OPTIONS[parameter.name].full_help()
        super().format_help(ctx, formatter)


def register(app: typer.Typer) -> None:
    """Add the group `corpus` to the command line."""
    corpus = typer.Typer(
        help="Score whole data sets. Interrupted runs resume.", invoke_without_command=True
    )
    corpus.callback(help="Score whole data sets. Interrupted runs resume.")(require_command)
    corpus.command(cls=RunCommand)(run)
    corpus_results.register(corpus)
    app.add_typer(corpus, name="corpus")


def run(  # noqa: PLR0913 - one argument for each option
    data: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="File of texts (.txt, .csv, .tsv, .jsonl, each also with .gz, or .parquet), or "
            "hf:name[:split] for a Hugging Face data set.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder to write to, or to resume in.")],
    text_column: Annotated[
        str | None,
        typer.Option(
            help="Column of the texts. Default: text, or sentence.", rich_help_panel=INPUT
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(help="Column of the IDs. Default: the row number.", rich_help_panel=INPUT),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar=_join_choices(get_args(Format)),
            help="If the file has another extension.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    input_id: Annotated[
        str | None,
        typer.Option(help="Input ID (instead of a checksum).", rich_help_panel=INPUT),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Stop at the first invalid row.", rich_help_panel=INPUT),
    ] = False,
    shard_size: Annotated[
        int, typer.Option(min=1, help="Rows in a shard.", rich_help_panel=EXECUTION)
    ] = SHARD_SIZE,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Only shards A to B - 1, such as 0:100.",
            rich_help_panel=EXECUTION,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar=_join_choices(get_args(EngineName)),
            help="This machine, or a Ray cluster.",
            rich_help_panel=EXECUTION,
        ),
    ] = "local",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Default: all processors.", rich_help_panel=EXECUTION),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Ray workers, which hold the model.", rich_help_panel=EXECUTION),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Ray cluster: host:port, auto for a running one, local to start one.",
            rich_help_panel=EXECUTION,
        ),
    ] = None,
    accept_versions: Annotated[
        bool,
        typer.Option(
            "--accept-versions",
            help="Resume with other library versions.",
            rich_help_panel=EXECUTION,
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=REPORT)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=REPORT)
    ] = False,
    summary: Annotated[
        Path | None,
        typer.Option(help="Write the summary as JSON to this file.", rich_help_panel=REPORT),
    ] = None,
    **settings: Any,
) -> None:
    """Score every text of an input, and write the scores to a folder as Parquet.

    Interrupted runs resume: run the same command again. Invalid rows are recorded as rejected.
    Exit codes: 0 if complete, 1 after a failure, 2 for invalid options, 130 after Ctrl-C.

    Example: attnflow corpus run texts.txt --model ./my-model --methods rollout,flow --out scores
    """
    with clear_errors(), stop_on_signals(at_once=engine == "local") as stopper:
        _check_summary_path(summary)
        from attnflow.corpus.job import run as run_corpus
        from attnflow.storage import write_json

        with plain_warnings(), show_status(quiet) as on_status:
            result = run_corpus(
                data,
                out,
                text_column=text_column,
                id_column=id_column,
                format=file_format,  # type: ignore[arg-type]
                input_id=input_id,
                shard_size=shard_size,
                shards=_parse_shards(shards),
                engine=engine,  # type: ignore[arg-type]
                threads=threads,
                workers=workers,
                address=address,
                strict=strict,
                accept_versions=accept_versions,
                on_status=on_status,
                stop=stopper,
                **_parse_settings(settings),
            )
        if summary is not None:
            write_json(summary, _summary_to_json(result))
        if as_json:
            echo(json.dumps(_summary_to_json(result), indent=2))
        elif not quiet:
            _print_summary(result, shards)
    if result.interrupted:
        raise typer.Exit(stopper.exit_code)


def _setting_parameters() -> Iterator[Parameter]:
    """Yield a keyword parameter of the command for each field of `Settings`."""
    for field in fields(Settings):
        option: Option = field.metadata["option"]
        assert field.default is not MISSING
        details: dict[str, Any] = {
            "help": option.help,
            "min": option.minimum,
            "metavar": None if option.several else _join_choices(option.choices),
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


def _parse_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Convert texts of the command line to values of settings."""
    return {
        name: OPTIONS[name].parse(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _add_settings() -> None:
    """Replace `**settings` in the signature of `run`, from which Typer derives the options."""
    own = [p for p in signature(run).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    # After INPUT and --out.
    parameters = [*own[:2], *_setting_parameters(), *own[2:]]
    run.__signature__ = signature(run).replace(parameters=parameters)  # type: ignore[attr-defined]


_add_settings()


def _check_summary_path(path: Path | None) -> None:
    """Raise InputError if the summary cannot be written, before the run starts."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError(
            f"--summary is {path}, and there is no folder {path.parent}",
            expected="an existing folder",
            fix="Create it first.",
        )
    if path is not None:
        try:
            path.lstat()
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise InputError(
                f"--summary is {path} ({getattr(error, 'strerror', error)})",
                expected="a name that a file can have",
                fix="Use a shorter name.",
            ) from error
    if path is not None and isdir(path):  # noqa: PTH112 - Path raises if the name is too long
        raise InputError(
            f"--summary is {path}, a folder", expected="a file", fix="Add a file name."
        )


def _parse_shards(text: str | None) -> tuple[int, int | None] | None:
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


def _summary_to_json(summary: "Summary") -> dict[str, Any]:
    return {**asdict(summary), "rows_per_second": summary.rows_per_second}


def _print_summary(summary: "Summary", shards: str | None) -> None:
    state = "complete" if summary.complete else "incomplete; run the same command again to resume"
    if summary.complete and shards is not None:
        state = f"shards {shards} are complete"
    typer.echo(
        f"{summary.folder}: {state}\n"
        f"{_count(summary.rows, 'row')} in {_count(summary.shards, 'shard')}, "
        f"{summary.rejected:,} rejected, {summary.bytes:,} bytes\n"
        f"{_count(summary.new_rows, 'row')} in this run, {clock(summary.seconds)}, "
        f"{summary.rows_per_second:,.1f} rows/s"
    )
    if summary.rejected:
        typer.echo(f"list the rejected rows: attnflow corpus errors {summary.folder}")


def _count(n: int, noun: str) -> str:
    """Return a number with its noun.

    >>> _count(1, "row"), _count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
