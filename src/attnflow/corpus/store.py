"""Shards: pieces of the input of a fixed size, each computed and written as a whole.

What a shard holds depends on the input alone. So it is what a run resumes at, what engines are
given, and what ranges of shards are shared out by.

The folder that a corpus is written to: which files there are, and what is finished.

manifest.json              what is computed from what
shards/part-000000.parquet the scores
errors/part-000000.jsonl   the refused rows of the shard, if there are any
journal/part-000000.json   written last: the shard is finished, with sizes and checksums
journal/end.json           how many rows the input has, once its end was seen
locks/                     who is writing

One run at a time for each shard: locks of the operating system, which die with their process.
"""

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

from attnflow.corpus.example import Example, Refused, Result, Row, Scored, excerpt
from attnflow.corpus.parquet import write_parquet
from attnflow.corpus.settings import Settings
from attnflow.errors import AttnflowError, FileError, InputError
from attnflow.storage import TEMPORARY, Written, disk_error, write_atomic, write_json

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
                    f"the folder {self.path} holds {strange[0]} and no manifest.json",
                    expected="a new or empty folder, or one that `attnflow corpus run` made",
                    fix="Name another.",
                )
        try:
            for part in PARTS:
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(self.path, error) from error

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
            f"{path} has no manifest.json",
            expected="a folder that `attnflow corpus run` wrote",
            fix="Name that folder.",
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


@dataclass(frozen=True)
class Shard:
    """Some rows of the input that follow each other. number: counts shards from 0."""

    number: int
    rows: tuple[Row, ...]

    @property
    def examples(self) -> list[Example]:
        """The rows that can be given to a model."""
        return [row for row in self.rows if isinstance(row, Example)]

    @property
    def refused(self) -> list[Refused]:
        """The rows that cannot."""
        return [row for row in self.rows if isinstance(row, Refused)]

    def before(self, index: int) -> "Shard":
        """The part of it that comes before a row of the input."""
        return Shard(self.number, self.rows[: index - self.first])

    @property
    def first(self) -> int:
        """The index of its first row."""
        row = self.rows[0]
        return (row if isinstance(row, Example) else row.example).index


def cut(
    rows: Iterable[Row],
    size: int,
    *,
    wanted: Callable[[int], bool],
    stop: int,
    at_end: Callable[[int], None],
) -> Iterator[Shard]:
    """Cut rows into shards of `size` and give those whose numbers are wanted, up to `stop`.

    at_end: called with the number of rows when the end of the input is seen.
    """
    stream = iter(rows)
    for number in count():
        if number >= stop:
            return
        held = tuple(islice(stream, size))
        if held and wanted(number):
            yield Shard(number, held)
        if len(held) < size:
            at_end(number * size + len(held))
            return


def count_pairs(settings: Settings, results: Iterable[Result]) -> int:
    """How many pairs of positions and tokens a flow was computed for, over all layers."""
    if "flow" not in settings.methods:
        return 0
    return sum(
        len(one.layers) * len(one.positions) * len(one.tokens)
        for one in results
        if isinstance(one, Scored)
    )


def write_shard(
    folder: Folder, shard: Shard, results: Sequence[Result], settings: Settings, size: int
) -> Entry:
    """Write what was computed for a shard: refused rows, scores, and last the journal.

    Killed before the journal is written, the shard does not count, and is computed again.
    """
    refused = [*shard.refused, *(one for one in results if isinstance(one, Refused))]
    refused.sort(key=lambda one: one.example.index)
    errors = None
    if refused:
        lines = "".join(f"{json.dumps(describe(one), ensure_ascii=False)}\n" for one in refused)
        errors = write_atomic(
            folder.errors(shard.number), lambda file: file.write(lines.encode("utf-8"))
        )
    scored = [one for one in results if isinstance(one, Scored)]
    parquet = write_atomic(
        folder.parquet(shard.number), lambda file: write_parquet(file, scored, settings)
    )
    entry = Entry(
        shard=shard.number,
        first=shard.number * size,
        rows=len(shard.rows),
        refused=len(refused),
        pairs=count_pairs(settings, results),
        parquet=parquet,
        errors=errors,
    )
    folder.finish(entry)
    return entry


def describe(refused: Refused) -> dict[str, Any]:
    """A refused row as a line of the errors file."""
    example = refused.example
    return {
        "index": example.index,
        "id": example.id,
        "line": example.line,
        "why": refused.why,
        "reason": refused.reason,
        "text": excerpt(example.text),
    }


ENDLESS = 2**62  # the end of the range of a run without one


@contextmanager
def guarded(locks: Path) -> Iterator[None]:
    """Be alone for a moment, waiting for others in the same place."""
    with _opened(locks / "guard") as file:
        _flock(file, wait=True)
        yield


@contextmanager
def locked(locks: Path, shards: range) -> Iterator[None]:
    """Hold the lock of some shards.

    The lock is held by an open file, and so by nobody once the process is dead, however it died.
    Raises InputError, naming the holder, if another run has any of these shards.
    """
    path = _path(locks, shards)
    with guarded(locks):
        for other in sorted(locks.glob("*.lock")):
            _remove_dead(other, shards)
        file = path.open("a+b")
        _flock(file, wait=False)
        _name_holder(file)
    with file:
        try:
            yield
        finally:
            with guarded(locks):
                path.unlink(missing_ok=True)


def alone(locks: Path, shards: range) -> bool:
    """Whether no other run holds a lock. Call it with the guard and the lock of shards held."""
    return all(path == _path(locks, shards) for path in locks.glob("*.lock"))


def _path(locks: Path, shards: range) -> Path:
    return locks / f"{shards.start}-{shards.stop}.lock"


def _remove_dead(path: Path, shards: range) -> None:
    """Remove the lock of a dead run. Raises InputError for that of a living one that overlaps."""
    start, _, stop = path.stem.partition("-")
    with _opened(path) as file:
        if _flock(file, wait=False):
            path.unlink(missing_ok=True)
        elif int(start) < shards.stop and shards.start < int(stop):
            raise InputError(
                f"{path.parent.parent} is being written by {_holder(file)}",
                expected="no other run on the same shards",
                fix="Wait for it, stop it, or name another folder with --out.",
            )


def _name_holder(file: IO[bytes]) -> None:
    """Write who holds the lock, for others to say; the lock itself needs no room on the disk."""
    with suppress(OSError):
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        file.flush()


def _holder(file: IO[bytes]) -> str:
    file.seek(0)
    try:
        written: Any = json.loads(file.read())
        return f"process {written['pid']} on {written['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        file = path.open("a+b")
    except OSError as error:
        raise disk_error(path, error) from error
    with file:
        yield file


def _flock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock an open file; False if another has it. Where there are no such locks, always True."""
    try:
        fcntl = import_module("fcntl")
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise AttnflowError(
            f"{file.name} cannot be locked ({error.strerror})",
            expected="a file system with locks",
            fix="Write to a local disk, or mount it with locks.",
        ) from error
    return True
