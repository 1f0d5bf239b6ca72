"""The commands `corpus table` and `corpus show`: what is in a corpus that was written.

The commands `corpus check` and `corpus errors`: what is damaged, and what was refused.
"""

import csv
import io
import json
import shlex
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.explain import SpecialTokens
from attnflow.cli.options import (
    Format,
    FormatOption,
    ThreadsOption,
    clear_errors,
    echo,
    progress_bar,
)
from attnflow.cli.progress import plain_warnings, shown_progress
from attnflow.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from attnflow.corpus.integrity import Check
    from attnflow.corpus.results import Agreement, Stored

FolderArgument = Annotated[Path, typer.Argument(help="The folder that `corpus run` wrote.")]


def register_checks(app: typer.Typer) -> None:
    """Add the commands to `corpus`."""
    for command in (check, errors):
        app.command()(command)


def check(
    folder: FolderArgument,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Compute damaged and missing shards again.")
    ] = False,
    accept_versions: Annotated[
        bool, typer.Option("--accept-versions", help="Repair with other versions of libraries.")
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Compare every file with its checksum. Exits with 1 if one is damaged or missing.

    Example: attnflow corpus check scores --repair
    """
    with clear_errors():
        from attnflow.corpus.integrity import check as check_corpus
        from attnflow.corpus.integrity import repair as repair_corpus

        with progress_bar("checking") as progress:
            found = check_corpus(folder, progress=progress)
        _print_check(found)
        if repair and not found.complete:
            with plain_warnings(), shown_progress(quiet=False) as watch:
                repair_corpus(
                    folder,
                    found,
                    threads=threads,
                    accept_versions=accept_versions,
                    progress=watch,
                )
            found = check_corpus(folder)
            typer.echo("after the repair:")
            _print_check(found)
    if not found.complete:
        raise typer.Exit(1)


def _print_check(found: "Check") -> None:
    for damage in found.damaged:
        typer.echo(f"shard {damage.shard}: {damage.path} {damage.what}")
    if found.missing:
        shown = ", ".join(map(str, found.missing[:10]))
        more = f" and {len(found.missing) - 10:,} more" if len(found.missing) > 10 else ""
        typer.echo(f"not finished: {shown}{more}")
    bad = len({damage.shard for damage in found.damaged})
    state = "complete" if found.complete else "not complete"
    n = f"{found.checked:,} shard{'' if found.checked == 1 else 's'}"
    typer.echo(f"{n} checked, {bad:,} damaged; the corpus is {state}")


def errors(
    folder: FolderArgument,
    *,
    counts: Annotated[bool, typer.Option("--counts", help="Only how many of each kind.")] = False,
) -> None:
    """Print the rows that were refused, as JSON Lines, in the order of the input.

    Example: attnflow corpus errors scores --counts
    """
    with clear_errors():
        from collections import Counter

        from attnflow.corpus.results import open_corpus

        refused = open_corpus(folder).refused()
        if counts:
            for why, n in Counter(row["why"] for row in refused).most_common():
                typer.echo(f"{why}: {n:,}")
            return
        for row in refused:
            echo(json.dumps(row, ensure_ascii=False))


BEST = 5  # tokens named under a strip
SHOWN = 1000  # characters of a text
IMPORTANCE = ("blank_out", "input_gradients")


def register(app: typer.Typer) -> None:
    """Add the commands to `corpus`."""
    for command in (table, show):
        app.command()(command)


def table(
    folder: FolderArgument,
    *,
    special: Annotated[
        SpecialTokens, typer.Option(help="Whether special tokens such as [CLS] are ranked.")
    ] = SpecialTokens.SHOW,
    output: FormatOption = Format.TABLE,
) -> None:
    """Print how well methods agree with importance scores, and with each other, at each layer.

    Example: attnflow corpus table scores --special hide
    """
    with clear_errors():
        from attnflow.corpus.results import correlate, open_corpus

        with progress_bar("correlating") as progress:
            found = correlate(open_corpus(folder), special=special.value, progress=progress)
        if output is Format.JSON:
            echo(json.dumps([_record(one) for one in found], indent=2))
        elif output is Format.CSV:
            echo(_to_csv(found))
        else:
            _print_table(found)


def _record(one: "Agreement") -> dict[str, Any]:
    """An agreement as JSON can write it; null where there is no value."""
    numbers = {"mean": one.mean, "sd": one.sd}
    written = {k: [None if isnan(x) else x for x in v.tolist()] for k, v in numbers.items()}
    counts = {"n": one.n.tolist(), "left_out": one.left_out.tolist()}
    names = {"method": one.method, "against": one.against, "layers": list(one.layers)}
    return {**names, **written, **counts}


def _to_csv(found: "list[Agreement]") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "against", "layer", "mean", "sd", "n", "left_out"])
    for one in found:
        columns = (one.layers, one.mean.tolist(), one.sd.tolist(), one.n, one.left_out)
        for row in zip(*columns, strict=True):
            writer.writerow([one.method, one.against, *row])
    return text.getvalue().rstrip("\n")


def _print_table(found: "list[Agreement]") -> None:
    """One table for each score compared with: a row for each layer, a column for each method."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print("Spearman's rank correlation at the explained position, mean ± sd over examples")
    importance = [one for one in found if one.against in IMPORTANCE]
    for against in dict.fromkeys(one.against for one in importance):
        chosen = [one for one in importance if one.against == against]
        _print_block(console, f"with {against}", chosen, [one.method for one in chosen])
    others = [one for one in found if one not in importance]
    if others:
        names = [f"{one.method}, {one.against}" for one in others]
        _print_block(console, "methods with each other", others, names)


def _print_block(
    console: "Console", title: str, found: "list[Agreement]", names: list[str]
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("layer", justify="right")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for i, layer in enumerate(found[0].layers):
        table.add_row(str(layer), *(f"{one.mean[i]:.2f} ± {one.sd[i]:.2f}" for one in found))
    console.print()
    console.print(Text(title, style="bold"))
    console.print(table)
    counts = f"{int(max(one.n.max() for one in found)):,} examples"
    left = int(max(one.left_out.max() for one in found))
    console.print(f"{counts}, {left:,} left out without an order to compare" if left else counts)


def show(
    folder: FolderArgument,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The id of an example; of several with the same id, the first."
        ),
    ],
    *,
    index: Annotated[
        bool, typer.Option("--index", help="ID is the row's number in the input, from 0.")
    ] = False,
    position: Annotated[
        int | None, typer.Option(help="One of the positions; the explained one if not given.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Name the K tokens with the highest scores.")
    ] = BEST,
    html: Annotated[
        Path | None,
        typer.Option(help="Explain the example anew, and write it to this file for a browser."),
    ] = None,
) -> None:
    """Print the scores of one example, or write it as a page to look into.

    Example: attnflow corpus show scores 17 --html example.html
    """
    with clear_errors():
        from rich.console import Console

        from attnflow.corpus.results import open_corpus

        corpus = open_corpus(folder)
        stored = corpus.find(_row_number(name) if index else name)
        if html is None:
            _print(stored, position, top, Console(highlight=False))
            hint = (
                f"attnflow corpus show {shlex.quote(str(folder))} {shlex.quote(name)} --html FILE"
            )
            typer.echo(f"attnflow: to look into it in a browser: {hint}", err=True)
            return
        from attnflow.corpus.results import write_page

        with plain_warnings():
            write_page(corpus.manifest, stored.text, html)
        typer.echo(f"attnflow: wrote {html}; open it in a browser", err=True)


def _excerpt(text: str) -> str:
    """The text, or the beginning of one that is longer than a screen."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"


def _row_number(text: str) -> int:
    if not text.isdecimal():
        raise InputError(
            f"the index is {text!r}",
            expected="the number of a row, from 0",
            fix="Leave --index out to name an id.",
        )
    return int(text)


def _print(stored: "Stored", position: int | None, top: int, console: "Console") -> None:
    from rich.text import Text

    from attnflow.cli.render import print_strip, show_token

    console.print(Text(f"{show_token(stored.id)}: {show_token(_excerpt(stored.text))}"))
    if stored.prediction is not None:
        text = Text(f"{stored.kind}: ")
        text.append(f"{show_token(stored.prediction)} {stored.probability:.3f}", style="bold")
        console.print(text)
    place = stored.choose(position)
    token = show_token(stored.tokens[place])
    console.print(Text(f"position {place} {token}, {len(stored.tokens)} tokens"))
    importance = stored.importance if place == stored.explained else ()
    for method in (*stored.scores, *importance):
        print_strip(stored.attribution(method, position=place), top, console)
