"""The command `data`: which data sets there are and which are here; downloads and extracts them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnflow.cli.options import clear_errors, progress_bar

if TYPE_CHECKING:
    from attnflow.paper.data.catalog import DataFile, DataSet


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
    mirror: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="For --download: where a copy of the folder is, such as http://localhost:8000; in "
            "place of the addresses that are listed. Checksums stay.",
        ),
    ] = None,
    treebanks: Annotated[
        list[Path] | None,
        typer.Option(
            "--extract",
            help="A treebank in CoNLL-U, to extract the agreement examples of a set from. May be "
            "given several times.",
        ),
    ] = None,
) -> None:
    """List the data sets that attnflow reads, check them, download and extract them.

    Exits with 1 if something that was looked for is missing or different.

    Example: attnflow data linzen_numpred --in ./data --download
    """
    with clear_errors():
        from attnflow.errors import InputError
        from attnflow.paper.data.catalog import choose_sets, use_mirror

        sets = choose_sets(names or [])
        if mirror is not None:
            sets = [use_mirror(one, mirror) for one in sets]
        if folder is None and download:
            raise InputError(
                "no folder was named to download to",
                expected="one",
                fix="Name it with --in FOLDER.",
            )
        if treebanks:
            _extract(sets, folder, treebanks)
            return
        if folder is None:
            for one in sets:
                _describe(one)
            typer.echo(
                "Without data: attnflow reproduce NAME --data grammar, with made-up sentences."
            )
            return
        # Not all(...), which would stop at the first that is not right.
        right = [_check(one, folder, download) for one in sets]
    if not all(right):
        raise typer.Exit(1)


def _describe(one: "DataSet") -> None:
    typer.echo(f"{one.name}: {one.what}")
    typer.echo(f"  license: {one.license}")
    typer.echo(f"  where: {one.find}")
    for file in one.files:
        away = "" if file.url else ", no address to download it from"
        typer.echo(f"  {file.path}: {file.rows:,} rows, {file.size:,} bytes{away}")


def _extract(sets: "list[DataSet]", folder: Path | None, treebanks: list[Path]) -> None:
    """Write the table of one set of treebanks, and say how many examples it has."""
    from attnflow.errors import InputError
    from attnflow.paper.data.treebanks import extract_agreement

    tables = [file for one in sets for file in one.files if file.path.endswith("agreement.tsv.gz")]
    if folder is None or len(sets) != 1 or not tables:
        raise InputError(
            "--extract was given without one set of treebanks and a folder",
            expected="both, such as: attnflow data ud_agreement --in ./data --extract "
            "en_ewt-ud-train.conllu",
        )
    path = folder / tables[0].path
    rows = extract_agreement(treebanks, path)
    typer.echo(f"{tables[0].path}: extracted, {rows:,} rows; the listed one has {tables[0].rows:,}")


def _check(one: "DataSet", folder: Path, download: bool) -> bool:
    """Print the state of each file; whether all of them are right in the end."""
    if not one.files:
        typer.echo(f"{one.name}: no checksums are known; {one.find}")
    right = [_check_file(one, file, folder, download) for file in one.files]
    return all(right)


def _check_file(one: "DataSet", file: "DataFile", folder: Path, download: bool) -> bool:
    from attnflow.paper.data.catalog import check_file

    found = check_file(folder, file)
    if found.state == "missing" and download and file.url:
        _fetch(file, folder)
        found = check_file(folder, file)
    state: str = found.state
    if found.state == "complete":
        state = f"complete, {file.rows:,} rows"
    elif found.state == "different":
        rows = "no text" if found.rows is None else f"{found.rows:,} rows"
        state = f"different: {rows}, expected {file.rows:,} and another checksum"
        state += "; remove it to get it again" if file.url else ""
    elif not file.url:
        state = f"missing; {one.find}"
    typer.echo(f"{file.path}: {state}")
    return found.state == "complete"


def _fetch(file: "DataFile", folder: Path) -> None:
    """Download a file. One that cannot be is told, and does not stop the others."""
    from attnflow.errors import FileError
    from attnflow.paper.data.catalog import download

    try:
        with progress_bar(file.path) as progress:
            download(file, folder, progress=progress)
    except FileError as error:
        typer.echo(f"attnflow: {error}", err=True)
