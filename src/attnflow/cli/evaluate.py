"""The command `evaluate`: which explanation to trust, measured on a model and a data set."""

import json
from dataclasses import asdict
from enum import StrEnum
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.options import check_outputs, clear_errors, echo
from attnflow.cli.progress_bars import plain_warnings, show_status, stop_on_signals
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
from attnflow.study.design import Design

if TYPE_CHECKING:
    from attnflow.corpus.status import Summary
    from attnflow.study.findings import Choice, Results

SHARD_SIZE = 1  # a text takes seconds: a killed run loses one
# Columns of the table in the terminal, as far as the study has them; the report has all.
SHOWN = (
    "comprehensiveness",
    "sufficiency",
    "reciprocal_rank",
    "lerf_minus_morf",
    "rise",
    "mas",
    "spearman_loo",
    "pointing_game",
)
NAMES_WIDTH, METRIC_WIDTH = 40, 12  # characters: of the other columns, and of one metric
HEADINGS = {
    "comprehensiveness": "compr.",
    "sufficiency": "suff.",
    "lerf_minus_morf": "LeRF-MoRF",
    "rise": "RISE",
    "mas": "MAS",
    "spearman_loo": "rho LOO",
    "reciprocal_rank": "1/rank",
    "pointing_game": "pointing",
}


class Printed(StrEnum):
    """What to print."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    LATEX = "latex"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(cls=run_command(Design))(evaluate)


def evaluate(  # noqa: PLR0913 - one argument for each option
    data: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="File of texts (.txt, .csv, .tsv, .jsonl, each also with .gz, or .parquet), "
            "hf:name[:split] for a Hugging Face data set, or a folder of images.",
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
    output: Annotated[
        Printed,
        typer.Option(
            "--print", help="A table to read, or json, csv or latex.", rich_help_panel=REPORT
        ),
    ] = Printed.TABLE,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write the HTML report to this file. Default: report.html in the folder.",
            rich_help_panel=REPORT,
        ),
    ] = None,
    **settings: Any,
) -> None:
    """Measure which explanation to trust: faithfulness of methods, edges, gradients, baselines.

    Interrupted runs resume: run the same command again. It ends with a table and an HTML report.
    Exit codes: 0 if complete, 1 after a failure, 2 for invalid options, 130 after Ctrl-C.

    Example: attnflow evaluate reviews.csv --model ./my-model --limit 100 --out trust
    """
    with clear_errors(), stop_on_signals(at_once=engine == "local") as stopper:
        check_outputs({"--report": report}, Path(data))
        from attnflow.study.study import evaluate as run_study

        with plain_warnings(), show_status(quiet) as on_status:
            summary = run_study(
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
                **parse_settings(Design, settings),
            )
        if summary.rows > summary.rejected:
            _report(out, output, report, quiet)
        _print_state(summary, shards, quiet)
    if summary.interrupted:
        raise typer.Exit(stopper.exit_code)


add_settings(evaluate, Design)


def _report(out: Path, output: Printed, path: Path | None, quiet: bool) -> None:
    """Write the report, and print the values."""
    from attnflow.study.export import to_csv, to_latex
    from attnflow.study.findings import gather_results
    from attnflow.study.html_report import write_report
    from attnflow.study.study import open_study

    study = open_study(out)
    results = gather_results(study)
    target = write_report(results, path or out / "report.html")
    if output is Printed.CSV:
        echo(to_csv(study).rstrip("\n"))
    elif output is Printed.LATEX:
        echo(to_latex(list(results.tables.values())).rstrip("\n"))
    elif output is Printed.JSON:
        echo(json.dumps(_to_records(results), indent=2))
    elif not quiet:
        _print_results(results)
    if not quiet:
        typer.echo(f"attnflow: wrote {target}; open it in a browser", err=True)


def _to_records(results: "Results") -> list[dict[str, Any]]:
    """Return all tables with types that JSON has; null where there is no value."""
    records = []
    for (metric, choice), table in results.tables.items():
        for row in table.rows:
            values = {
                name: None if isinstance(value, float) and isnan(value) else value
                for name, value in asdict(row).items()
            }
            records.append({"metric": metric, "better": table.better, **choice._asdict(), **values})
    return records


def _print_results(results: "Results") -> None:
    """Print what the study says, and a table for each replacement."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from attnflow.study.findings import list_warnings, state_answer, state_copies

    console = Console(highlight=False)
    for sentence in state_answer(results):
        console.print(Text(sentence))
    for choice in results.choices:
        if choice.sign == results.default.sign:
            console.print()
            _print_table(console, results, choice)
    legend = (
        "Higher is better for ↑, lower for ↓. * better than random scores (p < .05, Wilcoxon, "
        "Holm). rank: mean over texts and metrics. s: median seconds of the scores of a text."
    )
    console.print(Padding(Text(legend, style="dim"), (1, 0, 0, 0)))
    if results.copies:
        console.print(Text(state_copies(results), style="dim"))
    for warning in list_warnings(results):
        console.print(Text(f"note: {warning}", style="yellow"))


def _print_table(console: Any, results: "Results", choice: "Choice") -> None:
    from rich.table import Table
    from rich.text import Text

    from attnflow.evaluation.metrics import METRICS

    fitting = max((console.width - NAMES_WIDTH) // METRIC_WIDTH, 1)
    metrics = [name for name in SHOWN if name in results.metrics][:fitting]
    ranks = results.average_ranks(choice)
    table = Table(box=None, pad_edge=False)
    table.add_column("explanation", no_wrap=True)
    table.add_column("rank", justify="right", no_wrap=True)
    for name in metrics:
        arrow = "↑" if METRICS[name].better == "high" else "↓"
        table.add_column(f"{HEADINGS[name]} {arrow}", justify="right", no_wrap=True)
    table.add_column("s", justify="right")
    rows = {name: {r.explainer: r for r in results.table(name, choice).rows} for name in metrics}
    named = [name for name in ranks if name not in results.copies]
    for explainer in sorted(named, key=lambda name: ranks[name]):
        cells = [_cell(rows[name][explainer], results.table(name, choice)) for name in metrics]
        seconds = rows[metrics[0]][explainer].seconds if metrics else float("nan")
        table.add_row(explainer, f"{ranks[explainer]:.1f}", *cells, f"{seconds:.2g}")
    study = results.study
    console.print(Text(f"{study.n_texts:,} texts, {choice}", style="bold"))
    console.print(table)


def _cell(row: Any, table: Any) -> Any:
    """Return a mean, bold if it is the best, with a star if it is better than random."""
    from rich.text import Text

    best = row.explainer == table.rows[0].explainer
    star = "*" if row.beats_reference else " "
    return Text(f"{row.mean:.3f}{star}", style="bold" if best else "")


def _print_state(summary: "Summary", shards: str | None, quiet: bool) -> None:
    """Print what is finished, on stderr."""
    if quiet:
        return
    state = "complete" if summary.complete else "incomplete; run the same command again to resume"
    if summary.complete and shards is not None:
        state = f"shards {shards} are complete"
    rows = f"{summary.rows:,} rows, {summary.rejected:,} rejected"
    typer.echo(f"attnflow: {summary.folder}: {state}; {rows}", err=True)
    if summary.rejected:
        typer.echo(f"attnflow: why: see {summary.folder}/errors", err=True)
