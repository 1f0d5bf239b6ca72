"""The commands `corpus table` and `corpus show`: what is in a corpus that was written."""

import csv
import io
import json
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.explain import SpecialTokens
from attnflow.cli.options import Format, FormatOption, clear_errors, echo, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from attnflow.corpus.reading import Stored
    from attnflow.corpus.tables import Agreement

FolderArgument = Annotated[Path, typer.Argument(help="The folder that `corpus run` wrote.")]
BEST = 5  # tokens named under a strip


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
        from attnflow.corpus.reading import open_corpus
        from attnflow.corpus.tables import correlate

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
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Spearman's rank correlation, mean ± standard deviation", box=None)
    table.add_column("method")
    table.add_column("against")
    for layer in found[0].layers:
        table.add_column(f"layer {layer}", justify="right", no_wrap=True)
    table.add_column("examples", justify="right")
    for one in found:
        cells = [f"{m:.2f}±{s:.2f}" for m, s in zip(one.mean, one.sd, strict=True)]
        counted = f"{int(one.n.max()):,}"
        table.add_row(one.method, one.against, *cells, counted)
    console = Console(highlight=False)
    console.print(table)
    left = max(int(one.left_out.max()) for one in found)
    if left:
        console.print(f"left out, without an order to compare: {left:,} examples at most")


def show(
    folder: FolderArgument,
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of an example.")],
    *,
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

        from attnflow.corpus.reading import open_corpus

        corpus = open_corpus(folder)
        stored = corpus.find(name)
        if html is None:
            _print(stored, position, top, Console(highlight=False))
            return
        from attnflow.corpus.viewing import write_page

        write_page(corpus.manifest.settings, stored.text, html)
        typer.echo(f"attnflow: wrote {html}; open it in a browser", err=True)


def _print(stored: "Stored", position: int | None, top: int, console: "Console") -> None:
    from rich.text import Text

    from attnflow.cli.render import show_token
    from attnflow.cli.strip import print_strip

    console.print(Text(f"{stored.id}: {stored.text}"))
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
