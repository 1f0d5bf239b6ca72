"""The data sets that are known, and what of them is in a folder. They are listed in sets.toml."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal

from attnflow.errors import InputError, SelectionError

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
    """A data set: what it is, under which licence, where to find it, and its files."""

    name: str
    what: str
    licence: str
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
                f"there is no data set {name!r}; expected one of {', '.join(sets)}. {hint}"
            )
    return [sets[name] for name in (names or sets)]


def use_mirror(one: DataSet, address: str) -> DataSet:
    """The data set with files to be downloaded from a copy of the folder of data.

    Raises InputError unless the address begins with http:// or https://.
    """
    if not address.startswith(("https://", "http://")):
        raise InputError(
            f"the mirror is {address!r}; expected an address that begins with http:// or https://. "
            "Serve a folder with: python -m http.server --directory FOLDER"
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
    from attnflow.data.example import open_lines
    from attnflow.errors import FileError

    try:
        with open_lines(path) as lines:
            header = ".tsv" in Path(path).name
            return max(sum(1 for _ in lines) - header, 0)
    except FileError:
        return None
