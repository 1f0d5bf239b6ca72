"""One run at a time for each shard: locks of the operating system, which die with their process."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from attnflow.corpus.writing import unwritable
from attnflow.errors import AttnflowError, InputError

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
                f"{path.parent.parent} is being written by {_holder(file)}; expected no other run "
                "on the same shards. Wait for it, stop it, or name another folder with --out."
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
        raise unwritable(path, error) from error
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
            f"{file.name} cannot be locked ({error.strerror}); expected a file system with locks. "
            "Write to a local disk, or mount it with locks."
        ) from error
    return True
