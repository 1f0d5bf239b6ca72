"""The commands `corpus check` and `corpus errors`: what is damaged, and what was refused."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnflow.cli.corpus_progress import plain_warnings, shown_progress
from attnflow.cli.options import ThreadsOption, clear_errors, echo, progress_bar

if TYPE_CHECKING:
    from attnflow.corpus.checking import Check

FolderArgument = Annotated[Path, typer.Argument(help="The folder that `corpus run` wrote.")]


def register(app: typer.Typer) -> None:
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
        from attnflow.corpus.checking import check as check_corpus
        from attnflow.corpus.repairing import repair as repair_corpus

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

        from attnflow.corpus.reading import open_corpus

        refused = open_corpus(folder).refused()
        if counts:
            for why, n in Counter(row["why"] for row in refused).most_common():
                typer.echo(f"{why}: {n:,}")
            return
        for row in refused:
            echo(json.dumps(row, ensure_ascii=False))
