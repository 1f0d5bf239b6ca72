"""The command `data`: which data sets there are, which are here, and downloading them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnflow.cli.options import clear_errors, progress_bar

if TYPE_CHECKING:
    from attnflow.data.sets import DataSet


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(data)


def data(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets; all if none is named.")
    ] = None,
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--in", help="A folder of data to look into, or to download to."),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download what is missing in the folder.")
    ] = False,
) -> None:
    """List the data sets that attnflow reads, check them, and download them.

    Exits with 1 if something that was looked for is missing or different.

    Example: attnflow data linzen_numpred --in ./data --download
    """
    with clear_errors():
        from attnflow.data.sets import choose_sets
        from attnflow.errors import InputError

        sets = choose_sets(names or [])
        if folder is None and download:
            raise InputError(
                "no folder was named to download to; expected one. Name it with --in FOLDER."
            )
        if folder is None:
            for one in sets:
                _describe(one)
            return
        # Not all(...), which would stop at the first that is not right.
        right = [_check(one, folder, download) for one in sets]
    if not all(right):
        raise typer.Exit(1)


def _describe(one: "DataSet") -> None:
    typer.echo(f"{one.name}: {one.what}")
    typer.echo(f"  licence: {one.licence}")
    typer.echo(f"  where: {one.find}")
    for file in one.files:
        away = "" if file.url else ", no address to download it from"
        typer.echo(f"  {file.path}: {file.rows:,} rows, {file.size:,} bytes{away}")


def _check(one: "DataSet", folder: Path, download: bool) -> bool:
    """Print the state of each file; whether all of them are right in the end."""
    from attnflow.data.sets import check_file

    right = True
    for file in one.files:
        found = check_file(folder, file)
        if found.state == "missing" and download and file.url:
            with progress_bar(file.path) as progress:
                from attnflow.data.download import download as fetch

                fetch(file, folder, progress=progress)
            found = check_file(folder, file)
        state: str = found.state
        if found.state == "complete":
            state = f"complete, {file.rows:,} rows"
        elif found.state == "different":
            rows = "no text" if found.rows is None else f"{found.rows:,} rows"
            state = f"different: {rows}, expected {file.rows:,} and another checksum"
        elif not file.url:
            state = f"missing; {one.find}"
        typer.echo(f"{file.path}: {state}")
        right = right and found.state == "complete"
    return right
