"""The command `data`: lists, checks, downloads and extracts the data sets of the catalog."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnflow.cli.options import clear_errors, progress_bar
from attnflow.errors import FileError, InputError

if TYPE_CHECKING:
    from attnflow.paper.data.catalog import DataFile, DataSet, FileStatus


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(data)


def data(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of data sets. Default: all.")
    ] = None,
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--in", help="The data folder to check, download to or extract to."),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download missing files to the folder.")
    ] = False,
    mirror: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Download from a mirror of the data folder, such as http://localhost:8000. "
            "Checksums are still verified.",
        ),
    ] = None,
    treebanks: Annotated[
        list[Path] | None,
        typer.Option(
            "--extract",
            metavar="FILE",
            help="Extract the agreement examples of a data set from this CoNLL-U file. Can be "
            "repeated.",
        ),
    ] = None,
) -> None:
    """List, check, download and extract the data sets that attnflow reads.

    Without --in, lists the data sets and where they are published. With --in, checks the files in
    the folder, and exits with 1 if one is missing or has another checksum.

    Example: attnflow data linzen_numpred --in ./data --download
    """
    with clear_errors():
        from attnflow.paper.data.catalog import find_sets, use_mirror

        sets = find_sets(names or [])
        if mirror is not None:
            sets = [use_mirror(data_set, mirror) for data_set in sets]
        if folder is None and download:
            raise InputError(
                "--download has no folder", expected="a data folder", fix="Add --in FOLDER."
            )
        if treebanks:
            _extract(sets, folder, treebanks)
            return
        if folder is None:
            _list(sets)
            return
        # A list, because all(...) over a generator would stop at the first incomplete set.
        complete = [_check(data_set, folder, download) for data_set in sets]
    if not all(complete):
        raise typer.Exit(1)


def _list(sets: "list[DataSet]") -> None:
    """Print what the data sets are and where they are published."""
    for data_set in sets:
        typer.echo(f"{data_set.name}: {data_set.description}")
        typer.echo(f"  license: {data_set.license}")
        typer.echo(f"  source: {data_set.source}")
        for file in data_set.files:
            note = "" if file.url else ", no download URL"
            typer.echo(f"  {file.path}: {file.rows:,} rows, {file.size:,} bytes{note}")
    typer.echo("To run experiments without data: attnflow reproduce NAME --data grammar")


def _extract(sets: "list[DataSet]", folder: Path | None, treebanks: list[Path]) -> None:
    """Write the table of a data set, and print its number of rows."""
    from attnflow.paper.data.treebanks import extract_agreement

    tables = [file for data_set in sets for file in data_set.files if _is_extracted(file)]
    if folder is None or len(sets) != 1 or not tables:
        names = ", ".join(data_set.name for data_set in sets)
        raise InputError(
            f"--extract was used with {names} and {folder or 'no folder'}",
            expected="amalgum_agreement or ud_agreement, and --in FOLDER",
            fix="Use for example: attnflow data ud_agreement --in ./data --extract "
            "en_ewt-ud-train.conllu",
        )
    table = tables[0]
    n_rows = extract_agreement(treebanks, folder / table.path)
    typer.echo(f"{table.path}: extracted {n_rows:,} rows; the catalog has {table.rows:,}")


def _is_extracted(file: "DataFile") -> bool:
    return file.path.endswith("agreement.tsv.gz")


def _check(data_set: "DataSet", folder: Path, download: bool) -> bool:
    """Print the state of each file; return whether all are complete."""
    from attnflow.paper.data.catalog import check_file

    if not data_set.files:
        typer.echo(f"{data_set.name}: not checked, no checksums; {data_set.source}")
    complete = True
    for file in data_set.files:
        status = check_file(folder, file)
        if status.state == "missing" and download and file.url:
            _download(file, folder)
            status = check_file(folder, file)
        typer.echo(f"{file.path}: {_describe_status(status, file, data_set)}")
        complete = complete and status.state == "complete"
    return complete


def _describe_status(status: "FileStatus", file: "DataFile", data_set: "DataSet") -> str:
    if status.state == "complete":
        return f"complete, {file.rows:,} rows"
    if status.state == "missing":
        return "missing" if file.url else f"missing; {data_set.source}"
    rows = "not text" if status.rows is None else f"{status.rows:,} rows"
    fix = "; delete it and run with --download" if file.url else ""
    return f"different checksum, {rows}, expected {file.rows:,} rows{fix}"


def _download(file: "DataFile", folder: Path) -> None:
    """Download a file. Prints errors, so that the other files are still downloaded."""
    from attnflow.paper.data.catalog import download

    try:
        with progress_bar(file.path) as progress:
            download(file, folder, progress=progress)
    except FileError as error:
        typer.echo(f"attnflow: {error}", err=True)
