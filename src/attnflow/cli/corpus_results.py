"""The commands that read a corpus: `table`, `show`, `check` and `errors`."""

import csv
import io
import json
import shlex
from collections import Counter
from enum import StrEnum
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.options import (
    OUTPUT,
    Format,
    FormatOption,
    SpecialTokens,
    ThreadsOption,
    TopOption,
    clear_errors,
    echo,
    printed_warnings,
    progress_bar,
)
from attnflow.cli.progress_bars import plain_warnings, show_status, stop_on_signals
from attnflow.corpus.settings import IMPORTANCE
from attnflow.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from attnflow.attribution import Attribution
    from attnflow.corpus.integrity import Check
    from attnflow.corpus.results import Agreement, Stored

MAX_CHARACTERS = 1000  # of a printed text
MAX_LISTED = 10  # missing shards
FolderArgument = Annotated[Path, typer.Argument(help="Folder of `corpus run`.")]


class Sign(StrEnum):
    """Which scores to rank."""

    ABSOLUTE = "absolute"
    SIGNED = "signed"


def register(app: typer.Typer) -> None:
    """Add the commands to the group `corpus`."""
    for command in (table, show, check, errors):
        app.command()(command)


def table(
    folder: FolderArgument,
    *,
    special: Annotated[
        SpecialTokens,
        typer.Option(help="Include special tokens such as [CLS] in the ranks, or hide them."),
    ] = SpecialTokens.SHOW,
    sign: Annotated[
        Sign,
        typer.Option(
            help="Rank tokens by absolute scores, or by signed ones: tokens that support the "
            "prediction first, tokens that oppose it last."
        ),
    ] = Sign.ABSOLUTE,
    output: FormatOption = Format.TABLE,
) -> None:
    """Print rank correlations of methods with importance scores and with each other, per layer.

    Example: attnflow corpus table scores --special hide
    """
    with clear_errors():
        from attnflow.corpus.results import correlate, open_corpus

        with printed_warnings(), progress_bar("correlating") as progress:
            agreements = correlate(
                open_corpus(folder), special=special.value, sign=sign.value, progress=progress
            )
        if output is Format.JSON:
            echo(json.dumps([_to_record(agreement) for agreement in agreements], indent=2))
        elif output is Format.CSV:
            echo(_to_csv(agreements))
        else:
            _print_tables(agreements)


def show(
    folder: FolderArgument,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="ID of an example; the first if several have the same ID."
        ),
    ],
    *,
    index: Annotated[
        bool, typer.Option("--index", help="ID is the row number in the input, from 0.")
    ] = False,
    position: Annotated[
        int | None, typer.Option(help="Index of a position. Default: the explained one.")
    ] = None,
    top: TopOption = None,
    output: FormatOption = Format.TABLE,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Explain the example again, and write an HTML page to this file.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Print the scores of one example, or write it as an interactive HTML page.

    Example: attnflow corpus show scores 17 --html example.html
    """
    with clear_errors():
        from rich.console import Console

        from attnflow.corpus.results import open_corpus, write_page

        with printed_warnings():
            corpus = open_corpus(folder)
        stored = corpus.find(_parse_index(name) if index else name)
        if html is None and output is not Format.TABLE:
            _echo_example(stored, position, output, top)
            return
        if html is None:
            _print_example(stored, position, top, Console(highlight=False))
            flags = " --index" if index else ""
            command = f"corpus show {shlex.quote(str(folder))} {shlex.quote(name)}{flags}"
            typer.echo(
                f"attnflow: for an interactive page: attnflow {command} --html FILE", err=True
            )
            return
        with plain_warnings():
            write_page(corpus.manifest, stored.text, html)
        typer.echo(f"attnflow: wrote {html}; open it in a browser", err=True)


def check(
    folder: FolderArgument,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Compute damaged and missing shards again.")
    ] = False,
    accept_versions: Annotated[
        bool, typer.Option("--accept-versions", help="Repair with other library versions.")
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Compare every file with its checksum. The exit code is 1 if one is damaged or missing.

    Example: attnflow corpus check scores --repair
    """
    with clear_errors():
        from attnflow.corpus.integrity import check as check_corpus
        from attnflow.corpus.integrity import repair as repair_corpus

        with progress_bar("checking") as progress:
            result = check_corpus(folder, progress=progress)
        _print_check(result)
        if repair and not result.complete:
            with (
                stop_on_signals(at_once=True) as stopper,
                plain_warnings(),
                show_status(quiet=False) as on_status,
            ):
                summary = repair_corpus(
                    folder,
                    result,
                    threads=threads,
                    accept_versions=accept_versions,
                    on_status=on_status,
                    stop=stopper,
                )
            if summary.interrupted:
                raise typer.Exit(stopper.exit_code)
            result = check_corpus(folder)
            typer.echo("after the repair:")
            _print_check(result)
    if not result.complete:
        raise typer.Exit(1)


def errors(
    folder: FolderArgument,
    *,
    counts: Annotated[
        bool, typer.Option("--counts", help="Print only the number of each kind.")
    ] = False,
) -> None:
    """Print the rejected rows as JSON Lines, in the order of the input.

    Example: attnflow corpus errors scores --counts
    """
    with clear_errors():
        from attnflow.corpus.results import open_corpus

        with printed_warnings():
            rejected = open_corpus(folder).rejected()
        if counts:
            for why, n in Counter(row["why"] for row in rejected).most_common():
                typer.echo(f"{why}: {n:,}")
            return
        for row in rejected:
            echo(json.dumps(row, ensure_ascii=False))


def _to_record(agreement: "Agreement") -> dict[str, Any]:
    """Return an agreement with types that JSON has; null where there is no value."""
    low, high = agreement.interval
    numbers = {"mean": agreement.mean, "sd": agreement.sd, "low": low, "high": high}
    return {
        "method": agreement.method,
        "against": agreement.against,
        "layers": list(agreement.layers),
        **{k: [None if isnan(x) else x for x in v.tolist()] for k, v in numbers.items()},
        "n": agreement.n.tolist(),
        "left_out": agreement.left_out.tolist(),
    }


def _to_csv(agreements: "list[Agreement]") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "against", "layer", "mean", "sd", "low", "high", "n", "left_out"])
    for a in agreements:
        numbers = [values.tolist() for values in (a.mean, a.sd, *a.interval)]
        columns = (a.layers, *numbers, a.n, a.left_out)
        for row in zip(*columns, strict=True):
            writer.writerow([a.method, a.against, *row])
    return text.getvalue().rstrip("\n")


def _print_tables(agreements: "list[Agreement]") -> None:
    """Print a table for each importance score, and one for pairs of methods; a row per layer."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        "Spearman's rank correlation at the explained position, mean ± sd over examples, and the "
        "95 % interval of the mean"
    )
    for name in IMPORTANCE:
        columns = {a.method: a for a in agreements if a.against == name}
        _print_table(console, f"with {name}", columns)
    pairs = [a for a in agreements if a.against not in IMPORTANCE]
    columns = {f"{a.method}, {a.against}": a for a in pairs}
    _print_table(console, "methods with each other", columns)


def _print_table(console: "Console", title: str, columns: "dict[str, Agreement]") -> None:
    from rich.table import Table
    from rich.text import Text

    if not columns:
        return
    agreements = list(columns.values())
    table = Table(box=None, pad_edge=False)
    table.add_column("layer", justify="right")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for i, layer in enumerate(agreements[0].layers):
        table.add_row(str(layer), *(_format_agreement(a, i) for a in agreements))
    console.print()
    console.print(Text(title, style="bold"))
    console.print(table)
    examples = f"{int(max(a.n.max() for a in agreements)):,} examples"
    left_out = int(max(a.left_out.max() for a in agreements))
    console.print(
        f"{examples}, {left_out:,} left out without ranks to compare" if left_out else examples
    )


def _format_agreement(agreement: "Agreement", i: int) -> str:
    low, high = agreement.interval
    mean, sd = agreement.mean[i], agreement.sd[i]
    return f"{mean:.2f} ± {sd:.2f} [{low[i]:.2f}, {high[i]:.2f}]"


def _attributions(stored: "Stored", position: int) -> "list[Attribution]":
    """Methods, and at the explained position importance scores too."""
    importance = stored.importance if position == stored.explained else ()
    return [stored.attribution(name, position=position) for name in (*stored.scores, *importance)]


def _echo_example(stored: "Stored", position: int | None, output: Format, top: int | None) -> None:
    """Print an example as JSON or CSV."""
    from attnflow.cli.render import attribution_to_dict, to_csv

    place = stored.choose_position(position)
    attributions = _attributions(stored, place)
    if output is Format.CSV:
        echo(to_csv(attributions, top))
        return
    example = {
        "id": stored.id,
        "text": stored.text,
        "tokens": stored.tokens,
        "position": place,
        "prediction": {
            "kind": stored.kind,
            "label": stored.prediction,
            "probability": stored.probability,
        },
        "attributions": [attribution_to_dict(attribution, top) for attribution in attributions],
    }
    echo(json.dumps(example))


def _print_example(
    stored: "Stored", position: int | None, top: int | None, console: "Console"
) -> None:
    from rich.text import Text

    from attnflow.cli.render import print_attribution, printable
    from attnflow.token_text import readable_tokens

    console.print(Text(f"{printable(stored.id)}: {printable(_shorten(stored.text))}"))
    if stored.prediction is not None:
        text = Text(f"{stored.kind}: ")
        text.append(f"{printable(stored.prediction)} {stored.probability:.3f}", style="bold")
        console.print(text)
    place = stored.choose_position(position)
    token = printable(readable_tokens(stored.tokens, text=stored.text)[place])
    console.print(Text(f"position {place} {token} (of {len(stored.tokens)} tokens)"))
    for attribution in _attributions(stored, place):
        print_attribution(attribution, top, console)


def _shorten(text: str) -> str:
    """Return the text, or the start of a text that is longer than a screen."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}... ({len(text):,} characters)"


def _parse_index(text: str) -> int:
    if not text.isdecimal():
        raise InputError(
            f"the index is {text!r}",
            expected="a row number, from 0",
            fix="Remove --index to use an ID.",
        )
    return int(text)


def _print_check(result: "Check") -> None:
    for damage in result.damaged:
        place = "" if damage.shard is None else f"shard {damage.shard}: "
        typer.echo(f"{place}{damage.path} {damage.problem}")
    if result.missing:
        listed = ", ".join(map(str, result.missing[:MAX_LISTED]))
        more = len(result.missing) - MAX_LISTED
        typer.echo(f"missing shards: {listed}{f' and {more:,} more' if more > 0 else ''}")
    damaged = len({damage.shard for damage in result.damaged if damage.shard is not None})
    state = "complete" if result.complete else "not complete"
    n = f"{result.checked:,} shard{'' if result.checked == 1 else 's'}"
    typer.echo(f"{n} checked, {damaged:,} damaged; the corpus is {state}")
