"""The folder that a corpus is written to: which files there are, and what is finished.

manifest.json              what is computed from what
shards/part-000000.parquet the scores
errors/part-000000.jsonl   the refused rows of the shard, if there are any
journal/part-000000.json   written last: the shard is finished, with sizes and checksums
journal/end.json           how many rows the input has, once its end was seen
locks/                     who is writing
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnflow.corpus.writing import TEMPORARY, Written, unwritable, write_json
from attnflow.errors import FileError

PARTS = ("shards", "errors", "journal", "locks")


@dataclass(frozen=True)
class Entry:
    """A finished shard.

    rows: of the input, of which `refused` were bad. pairs: of positions and tokens whose flow was
    computed. parquet, errors: what was written; errors is None if no row was refused.
    """

    shard: int
    first: int
    rows: int
    refused: int
    pairs: int
    parquet: Written
    errors: Written | None


@dataclass(frozen=True)
class Folder:
    """The files of a corpus."""

    path: Path

    @property
    def manifest(self) -> Path:
        """What is computed from what."""
        return self.path / "manifest.json"

    @property
    def end(self) -> Path:
        """How many rows the input has."""
        return self.path / "journal" / "end.json"

    def parquet(self, shard: int) -> Path:
        """The scores of a shard."""
        return self.path / "shards" / f"part-{shard:06d}.parquet"

    def errors(self, shard: int) -> Path:
        """The refused rows of a shard."""
        return self.path / "errors" / f"part-{shard:06d}.jsonl"

    def journal(self, shard: int) -> Path:
        """The file that says that a shard is finished."""
        return self.path / "journal" / f"part-{shard:06d}.json"

    def create(self) -> None:
        """Make the folder and those in it. Raises FileError if something else is in it."""
        if self.path.is_dir() and not self.manifest.exists():
            strange = sorted(p.name for p in self.path.iterdir() if p.name not in PARTS)
            strange = [name for name in strange if not name.endswith(TEMPORARY)]
            if strange:
                raise FileError(
                    f"the folder {self.path} holds {strange[0]} and no manifest.json; expected a "
                    "new or empty folder, or one that `attnflow corpus run` made. Name another."
                )
        try:
            for part in PARTS:
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def finish(self, entry: Entry) -> None:
        """Say that a shard is finished. Its files must be on the disk."""
        write_json(self.journal(entry.shard), asdict(entry))

    def void(self, shard: int) -> None:
        """Say that a shard is not finished after all, and that the corpus was begun."""
        write_json(self.journal(shard), {"shard": shard, "void": True})

    def entry(self, shard: int) -> Entry | None:
        """What is known of a shard; None if it is not finished, or its files are not all there."""
        entry = read_entry(self.journal(shard))
        if entry is None or entry.shard != shard:
            return None
        files = [(self.parquet(shard), entry.parquet), (self.errors(shard), entry.errors)]
        return (
            entry
            if all(written is None or _size(p) == written.bytes for p, written in files)
            else None
        )

    def entries(self) -> Iterator[Entry]:
        """All finished shards, in order."""
        for path in sorted((self.path / "journal").glob("part-*.json")):
            number = path.stem.removeprefix("part-")
            entry = self.entry(int(number)) if number.isdecimal() else None
            if entry is not None:
                yield entry

    def total(self) -> int | None:
        """How many rows the input has; None if its end has not been seen."""
        try:
            return int(json.loads(self.end.read_text(encoding="utf-8"))["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def untouched(self) -> bool:
        """Whether no shard was ever finished."""
        return not any((self.path / "journal").glob("part-*.json"))

    def clear(self) -> None:
        """Remove everything but locks, for a run that begins anew where none finished a shard."""
        for path in (self.manifest, self.end, *self._parts()):
            path.unlink(missing_ok=True)

    def _parts(self) -> Iterator[Path]:
        for part in ("shards", "errors", "journal"):
            yield from (self.path / part).glob("part-*.*")

    def clean(self, shards: range) -> None:
        """Remove what runs that died left of these shards. Call it with the lock held."""
        for part in ("shards", "errors", "journal"):
            for path in (self.path / part).glob(f".part-*{TEMPORARY}"):
                number = path.name.removeprefix(".part-").split(".")[0]
                if number.isdecimal() and int(number) in shards:
                    path.unlink(missing_ok=True)


def open_folder(path: str | Path) -> Folder:
    """The folder of a corpus that was written. Raises FileError if it is none."""
    folder = Folder(Path(path))
    if not folder.manifest.is_file():
        raise FileError(
            f"{path} has no manifest.json; expected a folder that `attnflow corpus run` wrote. "
            "Name that folder."
        )
    return folder


def read_entry(path: Path) -> Entry | None:
    """What a file of the journal says; None if it says nothing."""
    try:
        written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        files = {name: written.pop(name) for name in ("parquet", "errors")}
        errors = None if files["errors"] is None else Written(**files["errors"])
        return Entry(**written, parquet=Written(**files["parquet"]), errors=errors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
