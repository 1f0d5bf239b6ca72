"""Files that are there whole or not at all, whenever the process or the power dies."""

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, cast

from attnflow.errors import AttnflowError

TEMPORARY = ".tmp"  # ends the names of files that are not finished
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Written:
    """The size in bytes and the SHA-256 of a file."""

    bytes: int
    sha256: str


class _Hashed:
    """A file that knows the checksum of what was written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.digest, self.count, self.closed = file, sha256(), 0, False

    def write(self, data: Any) -> int:
        block = bytes(data)
        self.file.write(block)
        self.digest.update(block)
        self.count += len(block)
        return len(block)

    def tell(self) -> int:
        return self.count

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        """Leave it open: it must still be synced."""


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> Written:
    """Write a file under another name, bring it to the disk, and only then give it its name.

    write: called with the file. A file of that name is replaced.
    Raises AttnflowError if the disk is full or does not take it; nothing is left behind then.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            hashed = _Hashed(file)
            write(cast(IO[bytes], hashed))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        _remove(temporary)
        raise unwritable(path, error) from error
    return Written(hashed.count, hashed.digest.hexdigest())


def write_json(path: Path, value: Any) -> Written:
    """Write a value as JSON, whole or not at all; the same value gives the same bytes."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return write_whole(path, lambda file: file.write(text.encode("utf-8")))


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot
            raise
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> AttnflowError:
    """The error for a file that the disk did not take."""
    if error.errno in FULL:
        return AttnflowError(
            f"the disk is full: {path} could not be written. All shards finished before are kept. "
            "Make room, and run the same command again: it goes on from there."
        )
    return AttnflowError(
        f"{path} could not be written ({error.strerror or error}). All shards finished before are "
        "kept. Mend that, and run the same command again: it goes on from there."
    )


def _remove(path: Path) -> None:
    with suppress(OSError):  # the next run removes it
        path.unlink(missing_ok=True)
