"""The folder of a corpus: its files, its shards, and the locks of the runs that write to it.

A shard is a fixed number of consecutive rows of the input. It is scored and written as a whole, so
runs resume at shards, and ranges of shards can be computed by different runs.

manifest.json              settings, input, model and versions
shards/part-000000.parquet scores
errors/part-000000.jsonl   rejected rows of the shard, if there are any
journal/part-000000.json   written last: the shard is finished; sizes and checksums
journal/end.json           the number of rows, once the end of the input was reached
locks/                     locks of running processes
"""

import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, islice
from os.path import isfile
from pathlib import Path
from typing import Any

from attnflow.corpus.example import Example, Rejected, Result, Row, excerpt
from attnflow.corpus.journal import Entry, read_entry, read_total, write_record
from attnflow.corpus.manifest import read_manifest
from attnflow.corpus.settings import RunSettings, Settings
from attnflow.errors import AttnflowError, FileError, InputError, check_path
from attnflow.optional import import_optional
from attnflow.storage import TEMPORARY, disk_error, write_atomic

PARTS = ("shards", "errors", "journal")
LOCKS = "locks"
MAX_SHARDS = 2**62  # the end of an open range of shards
JOURNAL_NAME = re.compile(r"part-([0-9]{6,7})\.json")


@dataclass(frozen=True)
class Folder:
    """The files of a corpus."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The file with settings, input, model and versions."""
        return self.path / "manifest.json"

    @property
    def end(self) -> Path:
        """The file with the number of rows of the input."""
        return self.path / "journal" / "end.json"

    def parquet(self, shard: int) -> Path:
        """Return the file with the scores of a shard."""
        return self.path / "shards" / f"part-{shard:06d}.parquet"

    def errors(self, shard: int) -> Path:
        """Return the file with the rejected rows of a shard."""
        return self.path / "errors" / f"part-{shard:06d}.jsonl"

    def journal(self, shard: int) -> Path:
        """Return the file that marks a shard as finished."""
        return self.path / "journal" / f"part-{shard:06d}.json"

    def create(self, settings_class: type[RunSettings] = Settings) -> None:
        """Create the folder. Raises FileError if it exists and holds something else.

        settings_class: of the kind of run that it is for.
        """
        if self.manifest.exists():
            read_manifest(self.manifest, settings_class)
        elif self.path.exists() and not self.path.is_dir():
            raise FileError(
                f"{self.path} is a file",
                expected="a new or empty folder, or a folder of `attnflow corpus run`",
                fix="Use another folder.",
            )
        elif self.path.is_dir():
            names = sorted(path.name for path in self.path.iterdir())
            foreign = [n for n in names if n not in (*PARTS, LOCKS) and not n.endswith(TEMPORARY)]
            if foreign:
                raise FileError(
                    f"the folder {self.path} contains {foreign[0]} but no manifest.json",
                    expected="a new or empty folder, or a folder of `attnflow corpus run`",
                    fix="Use another folder.",
                )
        try:
            for part in (*PARTS, LOCKS):
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(self.path, error) from error

    def finish(self, entry: Entry) -> None:
        """Mark a shard as finished. Its files must be on the disk."""
        write_record(self.journal(entry.shard), entry.to_json())

    def invalidate(self, shard: int) -> None:
        """Mark a finished shard as unfinished; the settings of the corpus stay locked."""
        write_record(self.journal(shard), {"shard": shard, "void": True})

    def entry(self, shard: int) -> Entry | None:
        """Return the entry of a shard; None if it is not finished, or a file is missing or cut."""
        entry = read_entry(self.journal(shard))
        if entry is None or entry.shard != shard:
            return None
        files = [(self.parquet(shard), entry.parquet), (self.errors(shard), entry.errors)]
        complete = all(w is None or _file_size(path) == w.bytes for path, w in files)
        return entry if complete else None

    def journal_numbers(self) -> list[int]:
        """Return the numbers of the shards that have a journal file."""
        names = (path.name for path in (self.path / "journal").glob("part-*.json"))
        numbers = {int(match[1]) for name in names if (match := JOURNAL_NAME.fullmatch(name))}
        return sorted(number for number in numbers if self.journal(number).exists())

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of all finished shards, in order."""
        for number in self.journal_numbers():
            entry = self.entry(number)
            if entry is not None:
                yield entry

    def total(self) -> int | None:
        """Return the number of rows of the input; None if its end was not reached yet."""
        return read_total(self.end)

    def write_total(self, rows: int) -> None:
        """Write the number of rows of the input."""
        if self.total() != rows:
            write_record(self.end, {"rows": rows})

    def has_finished_shards(self) -> bool:
        """Whether a shard was ever finished."""
        return any((self.path / "journal").glob("part-*.json"))

    def clear(self) -> None:
        """Remove everything but locks, for a run that restarts with other settings."""
        parts = (path for part in PARTS for path in (self.path / part).glob("part-*.*"))
        for path in (self.manifest, self.end, *parts):
            path.unlink(missing_ok=True)

    def remove_temporary(self, shards: range) -> None:
        """Remove temporary files that killed runs left. Call it with the lock of the shards."""
        for part in PARTS:
            for path in (self.path / part).glob(f".part-*{TEMPORARY}"):
                number = path.name.removeprefix(".part-").split(".")[0]
                if number.isdecimal() and int(number) in shards:
                    path.unlink(missing_ok=True)


def open_folder(path: str | Path) -> Folder:
    """Return the folder of an existing corpus. Raises FileError if there is none."""
    check_path(path, "the folder")
    folder = Folder(Path(path))
    if not isfile(folder.manifest):  # noqa: PTH113 - Path raises if the name is too long
        raise FileError(
            f"{path} has no manifest.json",
            expected="a folder of `attnflow corpus run`",
            fix="Check the path.",
        )
    return folder


def find_missing(folder: Folder, shard_size: int, total: int | None) -> tuple[int, ...]:
    """Return the numbers of the shards without a journal file, in order.

    total: the number of rows of the input; if it is None, shards after the last finished one are
    not known.
    """
    numbers = set(folder.journal_numbers())
    if total is None:
        n_shards = max((n for n in numbers if folder.entry(n) is not None), default=-1) + 1
    else:
        n_shards = -(-total // shard_size)
    return tuple(number for number in range(n_shards) if number not in numbers)


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


@dataclass(frozen=True)
class Shard:
    """Consecutive rows of the input. number: counts shards from 0."""

    number: int
    rows: tuple[Row, ...]

    @property
    def examples(self) -> list[Example]:
        """The valid rows."""
        return [row for row in self.rows if isinstance(row, Example)]

    @property
    def rejected(self) -> list[Rejected]:
        """The invalid rows."""
        return [row for row in self.rows if isinstance(row, Rejected)]

    def before(self, index: int) -> "Shard":
        """Return the part before a row of the input."""
        row = self.rows[0]
        first = (row if isinstance(row, Example) else row.example).index
        return Shard(self.number, self.rows[: index - first])


def split_shards(
    rows: Iterable[Row],
    size: int,
    *,
    wanted: Callable[[int, int], bool],
    stop: int,
    at_end: Callable[[int], None],
) -> Iterator[Shard]:
    """Split rows into shards of `size` rows, and yield the wanted ones with numbers below `stop`.

    wanted: called with the number of a shard and the number of its rows. at_end: called with the
    number of rows when the end of the input is reached.
    """
    stream = iter(rows)
    for number in count():
        if number >= stop:
            return
        shard = tuple(islice(stream, size))
        if shard and wanted(number, len(shard)):
            yield Shard(number, shard)
        if len(shard) < size:
            at_end(number * size + len(shard))
            return


def write_shard(
    folder: Folder, shard: Shard, results: Sequence[Result], settings: RunSettings, size: int
) -> Entry:
    """Write a shard: the rejected rows, the scores, and last the journal.

    A shard without a journal entry is not finished, and is computed again by the next run.
    """
    rejected = [*shard.rejected, *(r for r in results if isinstance(r, Rejected))]
    rejected.sort(key=lambda row: row.example.index)
    errors = None
    if rejected:
        lines = "".join(f"{json.dumps(_to_json(r), ensure_ascii=False)}\n" for r in rejected)
        errors = write_atomic(
            folder.errors(shard.number),
            lambda file: file.write(lines.encode("utf-8")),
            locked=True,
        )
    scored = [result for result in results if not isinstance(result, Rejected)]
    parquet = write_atomic(
        folder.parquet(shard.number),
        lambda file: settings.write_results(file, scored),
        locked=True,
    )
    entry = Entry(
        shard=shard.number,
        first=shard.number * size,
        rows=len(shard.rows),
        rejected=len(rejected),
        pairs=settings.count_pairs(results),
        parquet=parquet,
        errors=errors,
    )
    folder.finish(entry)
    return entry


def _to_json(rejected: Rejected) -> dict[str, Any]:
    """Return a rejected row as a line of the errors file."""
    example = rejected.example
    return {
        "index": example.index,
        "id": example.id,
        "line": example.line,
        "why": rejected.why,
        "reason": rejected.reason,
        "text": excerpt(example.text),
    }


@contextmanager
def global_lock(folder: Folder) -> Iterator[None]:
    """Hold the lock of the whole folder for a moment; waits for other processes."""
    lock = _file_lock(folder.path / LOCKS / "guard")
    _acquire(lock, wait=True)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def shard_lock(folder: Folder, shards: range) -> Iterator[None]:
    """Hold the lock of some shards.

    It is a lock of the operating system, which releases it when the process ends for any reason.
    Raises InputError, naming the holder, if another run holds any of these shards.
    """
    path = _lock_path(folder, shards)
    lock = _file_lock(path)
    try:
        with global_lock(folder):
            for other in sorted(path.parent.glob("*.lock")):
                _remove_stale(other, shards)
            _acquire(lock)
            _write_holder(path)
        yield
    finally:
        if lock.is_locked:
            with global_lock(folder):
                lock.release()
                _remove_lock(path)


def is_only_run(folder: Folder, shards: range) -> bool:
    """Whether no other run holds a lock. Call it with the global lock and that of the shards."""
    own = _lock_path(folder, shards)
    return all(path == own for path in own.parent.glob("*.lock"))


def _lock_path(folder: Folder, shards: range) -> Path:
    return folder.path / LOCKS / f"{shards.start}-{shards.stop}.lock"


def _holder_path(lock: Path) -> Path:
    """The file that names the holder; the lock itself cannot be read by others on Windows."""
    return lock.with_suffix(".json")


def _remove_stale(path: Path, shards: range) -> None:
    """Remove the lock file of an ended run. Raises InputError if a live one has these shards."""
    start, _, stop = path.stem.partition("-")
    lock = _file_lock(path)
    if _acquire(lock):
        lock.release()
        _remove_lock(path)
    elif int(start) < shards.stop and shards.start < int(stop):
        raise InputError(
            f"{path.parent.parent} is being written by {_read_holder(path)}",
            expected="no other run on the same shards",
            fix="Wait for it, stop it, or use another folder with --out.",
        )


def _remove_lock(path: Path) -> None:
    _holder_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _write_holder(path: Path) -> None:
    """Write who holds the lock, for messages; the lock works without it, so errors are ignored."""
    with suppress(OSError):
        holder = {"pid": os.getpid(), "host": socket.gethostname()}
        _holder_path(path).write_text(json.dumps(holder), encoding="utf-8")


def _read_holder(path: Path) -> str:
    try:
        holder: Any = json.loads(_holder_path(path).read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _file_lock(path: Path) -> Any:
    return import_optional("filelock", "a corpus run").FileLock(path, poll_interval=0.01)


def _acquire(lock: Any, *, wait: bool = False) -> bool:
    """Acquire a lock; returns False if another process or run holds it."""
    filelock = import_optional("filelock", "a corpus run")
    path = Path(lock.lock_file)
    try:
        lock.acquire(blocking=wait)
    except filelock.Timeout:
        return False
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and not path.exists():
            raise disk_error(path, error) from error
        raise _no_locks(path) from error
    if isinstance(lock, filelock.SoftFileLock):  # a lock that would outlive a killed process
        lock.release()
        raise _no_locks(path)
    return True


def _no_locks(path: Path) -> AttnflowError:
    return AttnflowError(
        f"{path} cannot be locked",
        expected="a file system that supports locks",
        fix="Write to a local disk, or mount the file system with locks.",
    )
