"""The catalog of data sets: what is published where, checks of local files, and downloads.

The sets are listed in `catalog.toml`. Interrupted downloads resume, and checksums are verified.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from hashlib import file_digest
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from attnflow.errors import FileError, InputError, SelectionError
from attnflow.paper.data.data_sets import open_lines
from attnflow.progress import Progress

State: TypeAlias = Literal["complete", "missing", "different"]

SCHEMES = ("https://", "http://")
BLOCK_SIZE = 2**16  # bytes
TIMEOUT = 30.0  # seconds


@dataclass(frozen=True)
class DataFile:
    """A file of a data set.

    path: relative to the data folder. rows: the number of examples. size: in bytes.
    url: where to download it; None if exactly this file is not published.
    """

    path: str
    rows: int
    size: int
    sha256: str
    url: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set and its files. source: where to get it."""

    name: str
    description: str
    license: str
    source: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class FileStatus:
    """The state of a file in a data folder.

    state: "different" if the checksum does not match.
    rows: the number of examples; None if the file is missing or not text.
    """

    state: State
    rows: int | None


@cache
def read_catalog() -> tuple[DataSet, ...]:
    """Return all data sets of the catalog."""
    text = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")
    sets = []
    for entry in tomllib.loads(text)["sets"]:
        files = tuple(DataFile(**file) for file in entry.pop("files"))
        sets.append(DataSet(**entry, files=files))
    return tuple(sets)


def find_sets(names: Sequence[str]) -> list[DataSet]:
    """Return the data sets with these names, or all if there are no names.

    Raises SelectionError for an unknown name.
    """
    sets = {data_set.name: data_set for data_set in read_catalog()}
    for name in names:
        if name not in sets:
            close = get_close_matches(name, sets, n=1, cutoff=0.3)
            raise SelectionError(
                f"there is no data set {name!r}",
                expected=f"one of {', '.join(sets)}",
                fix=f"Did you mean {close[0]!r}?" if close else "Choose one of these.",
            )
    return [sets[name] for name in (names or sets)]


def use_mirror(data_set: DataSet, url: str) -> DataSet:
    """Return the data set with files that are downloaded from a mirror of the data folder.

    Raises InputError unless the URL starts with http:// or https://.
    """
    if not url.startswith(SCHEMES):
        raise InputError(
            f"the mirror is {url!r}",
            expected="a URL that starts with http:// or https://",
            fix="To serve a folder: python -m http.server --directory FOLDER",
        )
    root = url.rstrip("/")
    files = tuple(replace(file, url=f"{root}/{file.path}") for file in data_set.files)
    return replace(data_set, files=files)


def check_file(folder: str | Path, file: DataFile) -> FileStatus:
    """Check whether a file is in a data folder and has the right checksum."""
    path = Path(folder) / file.path
    if not path.is_file():
        return FileStatus("missing", None)
    if compute_checksum(path) == file.sha256:
        return FileStatus("complete", file.rows)
    return FileStatus("different", count_rows(path))


def compute_checksum(path: Path) -> str:
    """Return the SHA-256 checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def count_rows(path: Path) -> int | None:
    """Count the examples in a file, without the header of a table; None if it is not text."""
    try:
        with open_lines(path) as lines:
            n_headers = 1 if ".tsv" in path.name else 0
            return max(sum(1 for _ in lines) - n_headers, 0)
    except FileError:
        return None


def download(file: DataFile, folder: str | Path, *, progress: Progress | None = None) -> Path:
    """Download a file into a data folder, and return its path.

    A partial download is stored in a file that ends in `.part`, and resumes from there. A file that
    is complete is not downloaded again.
    progress: called with the bytes done and the bytes in total.
    Raises InputError if the file has no URL; FileError if the download fails or the checksum does
    not match. An existing file is then unchanged.
    """
    if file.url is None or not file.url.startswith(SCHEMES):
        raise InputError(
            f"{file.path} has no URL to download it from",
            expected="a file with an http:// or https:// URL",
            fix="Run `attnflow data` to see where to get it.",
        )
    path = Path(folder) / file.path
    if path.is_file() and compute_checksum(path) == file.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _fetch(file, part, progress)
    except (HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        n_stored = part.stat().st_size if part.is_file() else 0
        raise FileError(
            f"{file.url} cannot be downloaded ({reason}); {n_stored:,} bytes are stored",
            expected=f"{file.size:,} bytes",
            fix=f"Run the command again to resume, or copy the file to {path}.",
        ) from error
    checksum = compute_checksum(part)
    if checksum != file.sha256:
        part.unlink()
        raise FileError(
            f"{file.url} has the SHA-256 checksum {checksum[:12]}...",
            expected=f"{file.sha256[:12]}...",
            fix="The file may have changed there; the download was deleted. Try another mirror.",
        )
    part.replace(path)
    return path


def _fetch(file: DataFile, part: Path, progress: Progress | None) -> None:
    """Download the missing bytes of a file. Raises OSError if the connection breaks."""
    n_done = part.stat().st_size if part.is_file() else 0
    if n_done >= file.size:
        return  # complete, or too long, in which case the checksum does not match
    headers = {"User-Agent": "attnflow", "Accept-Encoding": "identity"}
    if n_done:
        headers["Range"] = f"bytes={n_done}-"
    try:
        response = urlopen(Request(str(file.url), headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        raise
    with response:
        resumes = response.status == 206
        if not resumes:  # the server does not support ranges, and sends the whole file
            n_done = 0
        with part.open("ab" if resumes else "wb") as out:
            _copy(response, out, n_done, file.size, progress)
    if part.stat().st_size < file.size:
        raise OSError("the connection was closed early")


def _copy(response: Any, out: IO[bytes], n_done: int, size: int, progress: Progress | None) -> None:
    # Stops soon after the expected size, so that a server cannot fill the disk.
    while n_done <= size and (block := response.read(BLOCK_SIZE)):
        out.write(block)
        n_done += len(block)
        if progress is not None:
            progress(n_done, size)
