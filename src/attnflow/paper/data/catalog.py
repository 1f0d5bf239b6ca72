"""The data sets that are known, and what of them is in a folder. They are listed in sets.toml.

Downloading the files of data sets: resumed where it broke off, and checked by their sums.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from attnflow.errors import FileError, InputError, SelectionError

State = Literal["complete", "missing", "different"]


@dataclass(frozen=True)
class DataFile:
    """A file of a data set.

    path: where it is in a folder of data. rows: how many examples it has. size: in bytes.
    url: where it can be downloaded; None where its address is not known.
    """

    path: str
    rows: int
    size: int
    sha256: str
    url: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set: what it is, under which license, where to find it, and its files."""

    name: str
    what: str
    license: str
    find: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class Found:
    """What was found in the place of a file. rows: None if there is none."""

    file: DataFile
    state: State
    rows: int | None


@cache
def known_sets() -> tuple[DataSet, ...]:
    """All data sets that are known."""
    text = Path(__file__).with_name("sets.toml").read_text(encoding="utf-8")
    sets = []
    for entry in tomllib.loads(text)["sets"]:
        files = tuple(DataFile(**file) for file in entry.pop("files"))
        sets.append(DataSet(**entry, files=files))
    return tuple(sets)


def choose_sets(names: Sequence[str]) -> list[DataSet]:
    """The data sets of these names; all if there are no names.

    Raises SelectionError for a name that is not known.
    """
    sets = {one.name: one for one in known_sets()}
    for name in names:
        if name not in sets:
            close = get_close_matches(name, sets, n=1, cutoff=0.3)
            hint = f"Did you mean {close[0]!r}?" if close else "Choose one of these."
            raise SelectionError(
                f"there is no data set {name!r}",
                expected=f"one of {', '.join(sets)}",
                fix=f"{hint}",
            )
    return [sets[name] for name in (names or sets)]


def use_mirror(one: DataSet, address: str) -> DataSet:
    """The data set with files to be downloaded from a copy of the folder of data.

    Raises InputError unless the address begins with http:// or https://.
    """
    if not address.startswith(("https://", "http://")):
        raise InputError(
            f"the mirror is {address!r}",
            expected="an address that begins with http:// or https://",
            fix="Serve a folder with: python -m http.server --directory FOLDER",
        )
    root = address.rstrip("/")
    return replace(one, files=tuple(replace(f, url=f"{root}/{f.path}") for f in one.files))


def check_file(folder: str | Path, file: DataFile) -> Found:
    """Look whether a file is in a folder, and is what it should be, by its checksum."""
    path = Path(folder) / file.path
    if not path.is_file():
        return Found(file, "missing", None)
    if checksum(path) == file.sha256:
        return Found(file, "complete", file.rows)
    return Found(file, "different", count_rows(path))


def checksum(path: str | Path) -> str:
    """The SHA-256 of a file, as text."""
    from hashlib import file_digest

    with Path(path).open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def count_rows(path: str | Path) -> int | None:
    """How many examples a file has, without the header of a table; None if it is no text."""
    from attnflow.errors import FileError
    from attnflow.paper.data.readers import open_lines

    try:
        with open_lines(path) as lines:
            header = ".tsv" in Path(path).name
            return max(sum(1 for _ in lines) - header, 0)
    except FileError:
        return None


BLOCK = 2**16  # bytes read at a time
PATIENCE = 30.0  # seconds without an answer

Progress = Callable[[int, int], None]  # bytes done, and all


def download(file: DataFile, folder: str | Path, *, progress: Progress | None = None) -> Path:
    """Download a file into a folder of data, and return its path.

    What was downloaded before it broke off is in a file that ends in `.part`, and is not downloaded
    again. A file that is there and right is left alone.
    Raises InputError if no address is known, FileError if the address cannot be reached or gives
    something else; a file that is there already is then as it was.
    """
    if file.url is None or not file.url.startswith(("https://", "http://")):
        raise InputError(
            f"no address is known for {file.path}",
            expected="one to download it from. `attnflow data` says where to find it.",
        )
    path = Path(folder) / file.path
    if path.is_file() and checksum(path) == file.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _fetch(file, part, progress)
    except (HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        kept = part.stat().st_size if part.is_file() else 0
        raise FileError(
            f"{file.url} cannot be downloaded ({reason})",
            expected=f"{file.size:,} bytes, of which {kept:,} are here",
            fix=f"Try again, which goes on from there, or copy the file to {path}.",
        ) from error
    found = checksum(part)
    if found != file.sha256:
        part.unlink()
        raise FileError(
            f"{file.url} gave a file with the SHA-256 {found[:12]}...",
            expected=f"{file.sha256[:12]}..",
            fix="It may have changed there, or on the way; it was not kept.",
        )
    part.replace(path)
    return path


def _fetch(file: DataFile, part: Path, progress: Progress | None) -> None:
    """Download what is missing of a file. Raises OSError if the connection breaks."""
    done = part.stat().st_size if part.is_file() else 0
    if done >= file.size:
        return  # all of it; or too much, which the checksum will tell
    headers = {"User-Agent": "attnflow", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        answer = urlopen(Request(str(file.url), headers=headers), timeout=PATIENCE)
    except HTTPError as error:
        error.close()
        raise
    with answer:
        goes_on = answer.status == 206
        done = done if goes_on else 0  # a server may know nothing of ranges, and send all
        with part.open("ab" if goes_on else "wb") as out:
            _copy(answer, out, done, file.size, progress)
    if part.stat().st_size < file.size:
        raise OSError("the connection broke off")


def _copy(answer: Any, out: Any, done: int, size: int, progress: Progress | None) -> None:
    # Never much more than expected, so that no server can fill the disk.
    while done <= size and (block := answer.read(BLOCK)):
        out.write(block)
        done += len(block)
        if progress is not None:
            progress(done, size)
