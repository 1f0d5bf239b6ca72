"""The command `corpus run`, and the group of the corpus commands.

The options that decide what is computed are derived from the fields of
`attnflow.corpus.settings.Settings`; see `run_options`. The commands that read a finished corpus are
in `corpus_results`.
"""

import json
from dataclasses import asdict
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli import corpus_results
from attnflow.cli.options import check_outputs, clear_errors, echo, require_command
from attnflow.cli.progress_bars import clock, plain_warnings, show_status, stop_on_signals
from attnflow.cli.run_options import (
    REPORT,
    AcceptVersionsOption,
    AddressOption,
    EngineOption,
    FileFormatOption,
    IdColumnOption,
    InputIdOption,
    OutOption,
    QuietOption,
    RunThreadsOption,
    ShardSizeOption,
    ShardsOption,
    StrictOption,
    TextColumnOption,
    WorkersOption,
    add_settings,
    parse_settings,
    parse_shards,
    run_command,
)
from attnflow.corpus.settings import SHARD_SIZE, Settings
from attnflow.errors import InputError

if TYPE_CHECKING:
    from attnflow.corpus.status import Summary


def register(app: typer.Typer) -> None:
    """Add the group `corpus` to the command line."""
    corpus = typer.Typer(
        help="Score whole data sets. Interrupted runs resume.", invoke_without_command=True
    )
    corpus.callback(help="Score whole data sets. Interrupted runs resume.")(require_command)
    corpus.command(cls=run_command(Settings))(run)
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
    out: OutOption,
    text_column: TextColumnOption = None,
    id_column: IdColumnOption = None,
    file_format: FileFormatOption = None,
    input_id: InputIdOption = None,
    strict: StrictOption = False,
    shard_size: ShardSizeOption = SHARD_SIZE,
    shards: ShardsOption = None,
    engine: EngineOption = "local",
    threads: RunThreadsOption = None,
    workers: WorkersOption = None,
    address: AddressOption = None,
    accept_versions: AcceptVersionsOption = False,
    quiet: QuietOption = False,
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
        check_outputs({"--summary": summary}, Path(data))
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
                shards=parse_shards(shards),
                engine=engine,  # type: ignore[arg-type]
                threads=threads,
                workers=workers,
                address=address,
                strict=strict,
                accept_versions=accept_versions,
                on_status=on_status,
                stop=stopper,
                **parse_settings(Settings, settings),
            )
        if summary is not None:
            write_json(summary, _summary_to_json(result))
        if as_json:
            echo(json.dumps(_summary_to_json(result), indent=2))
        elif not quiet:
            _print_summary(result, shards)
    if result.interrupted:
        raise typer.Exit(stopper.exit_code)


add_settings(run, Settings)


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
