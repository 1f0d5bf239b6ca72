"""The command `reproduce`: the paper's tables and figures, and what goes beyond them."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from attnflow.cli.options import clear_errors, echo, progress_bar

if TYPE_CHECKING:
    from attnflow.paper.experiments.options import Options
    from attnflow.paper.experiments.report import Report
    from attnflow.paper.experiments.result import Result


class ReportFormat(StrEnum):
    """What to print."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class PictureFormat(StrEnum):
    """What to write pictures as."""

    SVG = "svg"
    PDF = "pdf"
    PNG = "png"


class MapScale(StrEnum):
    """Which maps share a scale."""

    SHARED = "shared"
    OWN = "own"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(reproduce)


def reproduce(  # noqa: PLR0913 - one argument for each option
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="accuracy, table1 to table3, figure1 to figure4, decoders, edges, saturation, "
            "residual, trainings; or all. They are listed if none is named.",
        ),
    ] = None,
    *,
    data: Annotated[
        str | None,
        typer.Option(
            help="A folder of data, see `attnflow data`; a file of agreement sentences; or "
            "'grammar' for sentences that are made up. If not given: the folder in ATTNFLOW_DATA, "
            "or ./data."
        ),
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=3, help="At most so many of each set; all if not given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for results.")] = Path("results"),
    pictures: Annotated[
        Path | None, typer.Option(help="The folder for pictures; that of results if not given.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="The folder that keeps what was measured; the user's if not given."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A name or folder; the experiment's own if not given. For trainings several, with "
            "commas between them."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where the model runs, such as cpu or cuda.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads; if not given, all cores for flow, and one for a small model, which "
            "gains nothing by more.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of samples and of the bootstrap.")] = 0,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="A table to look at; others for programs.")
    ] = ReportFormat.TABLE,
    picture_format: Annotated[
        PictureFormat, typer.Option(help="What figures are written as.")
    ] = PictureFormat.SVG,
    width: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            max=100.0,
            help="Of figures, in inches: 3.3 is a column of a page. 6.9 if not "
            "given, which is the whole.",
        ),
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Draw figures on a dark ground.")] = False,
    scale: Annotated[
        MapScale | None,
        typer.Option(
            help="For figure2 and figure3: one scale shared by all maps, or each its own. If not "
            "given, shared unless that would leave a map without shades."
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="For figures: a text of your own. May be given several times."),
    ] = None,
    fillers: Annotated[
        str, typer.Option(help="For figure4: the words to compare at the mask.")
    ] = "his,her",
    candidates: Annotated[
        list[str] | None,
        typer.Option(
            help="For figure4, once for each --text: the words that these may refer to, in the "
            "same order, such as 'John,Mary'."
        ),
    ] = None,
) -> None:
    """Run the paper's experiments: its tables, its figures, and its open questions.

    What was measured is kept, so that a run that was stopped goes on where it was.

    Example: attnflow reproduce table1 --data ./data
    """
    with clear_errors():
        from attnflow.paper.experiments import EXPERIMENTS, find_experiment
        from attnflow.paper.experiments.options import Options, default_cache

        if not names:
            for name, what in EXPERIMENTS.items():
                typer.echo(f"{name}: {what}")
            return
        chosen = list(EXPERIMENTS) if "all" in names else names
        for name in chosen:
            find_experiment(name)  # a name that is wrong is told before a long run
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
        failed = [name for name in chosen if not _reproduce(name, options, output, chosen)]
        if failed:
            typer.echo(f"attnflow: not done: {', '.join(failed)}", err=True)
            raise typer.Exit(1)


def _reproduce(name: str, options: "Options", output: ReportFormat, chosen: Sequence[str]) -> bool:
    """Run and print one experiment; of several, one that fails does not stop the others."""
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


def _run(name: str, options: "Options") -> "tuple[Result, Report]":
    """Run one experiment, and save its result."""
    from datetime import UTC, datetime

    from attnflow import __version__
    from attnflow.paper.experiments import find_experiment
    from attnflow.paper.experiments.result import write_result

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


def _command(name: str, options: "Options") -> str:
    """What to type for the same numbers, without the folders of this machine."""
    words = ["attnflow", "reproduce", name]
    if options.data is not None:
        words += ["--data", _data(options.data)]
    for option in ("examples", "model"):
        given = getattr(options, option)
        if given is not None:
            words += [f"--{option}", Path(given).name if option == "model" else str(given)]
    for text in options.texts:
        words += ["--text", quote(text)]
    for several in options.candidates:
        words += ["--candidates", quote(several)]
    if name == "figure4" and options.fillers != ("his", "her"):
        words += ["--fillers", quote(",".join(options.fillers))]
    if options.width is not None:
        words += ["--width", f"{options.width:g}"]
    words += ["--dark"] if options.dark else []
    words += [] if options.scale is None else ["--scale", options.scale]
    if options.seed:
        words += ["--seed", str(options.seed)]
    return " ".join(words)


def _data(given: str) -> str:
    """Data as anyone may name it: the grammar, the name of a file, or ./data for any folder."""
    if given == "grammar":
        return given
    return quote(Path(given).name) if Path(given).is_file() else "./data"


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
