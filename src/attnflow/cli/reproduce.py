"""The command `reproduce`: runs the paper's experiments, saves and prints their results."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from attnflow.cli.options import clear_errors, echo, progress_bar
from attnflow.paper.experiments.experiment import EXPERIMENTS, Options, find_experiment

if TYPE_CHECKING:
    from attnflow.paper.experiments.experiment import Result
    from attnflow.paper.experiments.report import Report

ALL = "all"


class ReportFormat(StrEnum):
    """The format of printed reports."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class PictureFormat(StrEnum):
    """The file format of figures."""

    SVG = "svg"
    PDF = "pdf"
    PNG = "png"


class MapScale(StrEnum):
    """The color scale of maps."""

    SHARED = "shared"
    OWN = "own"


# \b keeps the lines of the paragraph that follows.
HELP = """Reproduce the paper's tables and figures, and further experiments.

Results are saved as JSON and printed. Measurements are cached, so interrupted runs resume.

\b
{experiments}

Example: attnflow reproduce table1 --data ./data
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    experiments = "\n".join(
        f"{name}: {experiment.summary}" for name, experiment in EXPERIMENTS.items()
    )
    app.command(help=HELP.format(experiments=experiments))(reproduce)


def reproduce(  # noqa: PLR0913 - one argument for each option
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help=f"Experiments to run, or '{ALL}'. Without a name, experiments are listed.",
        ),
    ] = None,
    *,
    data: Annotated[
        str | None,
        typer.Option(
            help="A folder of data sets, see `attnflow data`; a file of agreement sentences; or "
            "'grammar' for generated sentences. Default: the folder named by ATTNFLOW_DATA, or "
            "./data."
        ),
    ] = None,
    examples: Annotated[
        int | None,
        typer.Option(min=3, help="Maximum number of examples of each set. Default: all."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("results"),
    pictures: Annotated[
        Path | None, typer.Option(help="Folder for figures. Default: that of the results.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for cached measurements. Default: the user's cache folder."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model name or folder; for trainings and table3 several, separated by commas. "
            "Default: the model of the experiment."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device to run the model on, such as cpu or cuda.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of threads. Default: all cores for flow, one for a small model."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for samples and the bootstrap.")] = 0,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="Format of the printed report.")
    ] = ReportFormat.TABLE,
    picture_format: Annotated[
        PictureFormat, typer.Option(help="File format of figures.")
    ] = PictureFormat.SVG,
    width: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            max=100.0,
            help="Width of figures in inches; 3.3 is one column. Default: 6.9, a full page.",
        ),
    ] = None,
    dark: Annotated[
        bool, typer.Option("--dark", help="Draw figures on a dark background.")
    ] = False,
    scale: Annotated[
        MapScale | None,
        typer.Option(
            help="Color scale of figure2 and figure3: shared by all maps, or each its own. "
            "Default: shared, unless one map would be nearly blank."
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="A text for the figures. Can be repeated."),
    ] = None,
    fillers: Annotated[
        str, typer.Option(help="For figure4: words to compare at the mask.")
    ] = "his,her",
    candidates: Annotated[
        list[str] | None,
        typer.Option(
            help="For figure4, once for each --text: the words that the fillers refer to, in the "
            "same order, such as 'John,Mary'."
        ),
    ] = None,
) -> None:
    """Run experiments, save their results and print their reports."""
    with clear_errors():
        from attnflow.paper.experiments.experiment import default_cache

        if not names:
            for name, experiment in EXPERIMENTS.items():
                typer.echo(f"{name}: {experiment.summary}")
            return
        chosen = list(EXPERIMENTS) if ALL in names else names
        for name in chosen:
            find_experiment(name)  # fail on a wrong name before a long run
        if device is not None:
            from attnflow.models.model_state import check_device

            check_device(device)
        options = Options(
            data=data,
            examples=examples,
            out=out,
            pictures=pictures,
            cache=cache or default_cache(),
            model=model,
            device=device,
            threads=threads,
            seed=seed,
            picture_format=picture_format.value,
            width=width,
            dark=dark,
            scale=None if scale is None else scale.value,
            texts=tuple(text or ()),
            fillers=tuple(word.strip() for word in fillers.split(",")),
            candidates=tuple(candidates or ()),
        )
        failed = [name for name in chosen if not _run_and_print(name, options, output, chosen)]
        if failed:
            typer.echo(f"attnflow: failed: {', '.join(failed)}", err=True)
            raise typer.Exit(1)


def _run_and_print(
    name: str, options: Options, output: ReportFormat, chosen: Sequence[str]
) -> bool:
    """Run and print one experiment. If there are several, an error does not stop the others."""
    from attnflow.errors import AttnflowError

    try:
        result, report = _run(name, options)
    except AttnflowError as error:
        if len(chosen) == 1:
            raise
        typer.echo(f"attnflow: {name}: {error}", err=True)
        return False
    _print(result, report, output)
    return True


def _run(name: str, options: Options) -> "tuple[Result, Report]":
    """Run one experiment and save its result."""
    from datetime import UTC, datetime

    from attnflow import __version__
    from attnflow.paper.experiments.experiment import write_result

    experiment = find_experiment(name)
    with progress_bar(name) as progress:
        result = experiment.run(options, progress)
    result = replace(
        result,
        command=_command(name, options),
        date=datetime.now(UTC).date().isoformat(),
        version=__version__,
    )
    path = write_result(result, options.out)
    typer.echo(f"attnflow: wrote {path}", err=True)
    return result, experiment.render(result)


def _command(name: str, options: Options) -> str:
    """Return the command that gives the same numbers, without local folders."""
    words = ["attnflow", "reproduce", name]
    if options.data is not None:
        words += ["--data", _public_data(options.data)]
    if options.examples is not None:
        words += ["--examples", str(options.examples)]
    if options.model is not None:
        names = (Path(part.strip()).name for part in options.model.split(","))
        words += ["--model", ",".join(names)]
    for text in options.texts:
        words += ["--text", quote(text)]
    for candidates in options.candidates:
        words += ["--candidates", quote(candidates)]
    if name == "figure4" and options.fillers != Options().fillers:
        words += ["--fillers", quote(",".join(options.fillers))]
    if options.width is not None:
        words += ["--width", f"{options.width:g}"]
    words += ["--dark"] if options.dark else []
    words += [] if options.scale is None else ["--scale", options.scale]
    if options.seed:
        words += ["--seed", str(options.seed)]
    return " ".join(words)


def _public_data(data: str) -> str:
    """Return --data without local folders: the grammar, a file name, or ./data for a folder."""
    if data == "grammar":
        return data
    return quote(Path(data).name) if Path(data).is_file() else "./data"


def _print(result: "Result", report: "Report", output: ReportFormat) -> None:
    import json
    from dataclasses import asdict

    from attnflow.paper.experiments.report import to_csv, to_markdown, to_text

    if output is ReportFormat.JSON:
        echo(json.dumps(asdict(result)))
    elif output is ReportFormat.CSV:
        echo(to_csv(report))
    elif output is ReportFormat.MARKDOWN:
        echo(to_markdown(report))
    else:
        echo(to_text(report) + ("\n" if sys.stdout.isatty() else ""))
