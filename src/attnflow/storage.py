"""Files: arrays in safetensors with a JSON header, and atomic writes.

Nothing here knows about attention. Files hold numbers and text only, so reading an untrusted file
cannot run code.
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from os.path import isdir
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open

from attnflow.arrays import Array, dtype_name, to_numpy
from attnflow.errors import AttnflowError, FileError, check_path
from attnflow.optional import import_optional

HEADER_KEY = "attnflow"
VERSION = 1
# The types of arrays that can be read, as safetensors calls them.
ARRAY_TYPES = (
    *("F64", "F32", "F16", "BF16", "BOOL"),
    *("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8"),
)

TEMPORARY = ".tmp"  # the suffix of unfinished files
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskError(AttnflowError):
    """A file cannot be written: the disk is full, read-only or failing."""


def write(
    path: str | PathLike[str], *, kind: str, arrays: Mapping[str, Array], header: Mapping[str, Any]
) -> None:
    """Write arrays and a JSON header to a safetensors file.

    kind: the kind of contents, which `read` checks.
    Raises FileError if the folder does not exist or the file cannot be written.
    """
    check_path(path)
    folder = Path(path).parent
    if not isdir(folder):  # noqa: PTH112 - Path raises if the name is too long
        raise FileError(
            f"cannot write {path}: there is no folder {folder}",
            expected="an existing folder",
            fix="Create it first.",
        )
    text = json.dumps({"kind": kind, "version": VERSION, **header})
    if _is_special(Path(path)):
        raise FileError(
            f"cannot write {path}: it is a device or a pipe",
            expected="a file",
            fix="Choose another path.",
        )
    try:
        _save(path, arrays, {HEADER_KEY: text})
    except (OSError, UnicodeError, SafetensorError) as error:
        raise FileError(
            f"cannot write {path}: {error}",
            expected="a file that can be written",
            fix="Choose another path.",
        ) from error


def _save(path: str | PathLike[str], arrays: Mapping[str, Array], metadata: dict[str, str]) -> None:
    if not any(dtype_name(array) == "bfloat16" for array in arrays.values()):
        from safetensors.numpy import save_file

        save_file({k: np.ascontiguousarray(to_numpy(a)) for k, a in arrays.items()}, path, metadata)
        return
    # NumPy has no bfloat16. Two layers may be one tensor, which safetensors refuses, hence clones.
    from safetensors.torch import save_file as save_tensors

    torch = import_optional("torch", "writing bfloat16")
    tensors = {k: torch.as_tensor(a).cpu().contiguous().clone() for k, a in arrays.items()}
    save_tensors(tensors, path, metadata)


def read(path: str | PathLike[str], *, kind: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `write` wrote: the arrays by name, and the header.

    Raises FileError if the file is not a complete safetensors file, was not written by attnflow, or
    holds another kind.
    """
    arrays, header = read_any(path)
    if header is None:
        raise FileError(
            f"{path} has no attnflow header",
            expected=f"a file written by attnflow that holds {kind}",
            fix="Read its arrays with the safetensors package.",
        )
    if header.get("kind") != kind:
        raise FileError(
            f"{path} holds {header.get('kind')}",
            expected=kind,
            fix="Load it with the class that saved it.",
        )
    if header.get("version") != VERSION:
        raise FileError(
            f"{path} has format version {header.get('version')}",
            expected=f"version {VERSION}",
            fix="Update attnflow, or save the file again with this version.",
        )
    return arrays, header


def read_any(path: str | PathLike[str]) -> tuple[dict[str, Array], dict[str, Any] | None]:
    """Read any safetensors file: arrays by name, and the attnflow header if there is one.

    Arrays are NumPy, or all are torch tensors if one of them is bfloat16, which NumPy lacks.
    Raises FileError if it is not a complete file, or has arrays of another type.
    """
    check_path(path)
    try:
        with safe_open(path, framework="np") as file:
            names = list(file.keys())
            metadata = file.metadata() or {}
            types = {name: str(file.get_slice(name).get_dtype()) for name in names}
            _check_types(path, types)
            if "BF16" not in types.values():
                return {name: file.get_tensor(name) for name in names}, _header(path, metadata)
        import_optional("torch", f"reading the bfloat16 arrays of {path}")
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in names}, _header(path, metadata)
    except (SafetensorError, OSError, UnicodeError, MemoryError) as error:
        raise FileError(
            f"{path} is not a complete safetensors file ({error})",
            expected="a whole file in the safetensors format",
            fix="Check the path, or save or copy the file again.",
        ) from error


def _check_types(path: str | PathLike[str], types: Mapping[str, str]) -> None:
    for name, type_name in types.items():
        if type_name not in ARRAY_TYPES:
            raise FileError(
                f"{path} has the array {name} of type {type_name}",
                expected=f"one of {', '.join(ARRAY_TYPES)}",
                fix="Save it in one of these types.",
            )


def read_text(path: str | PathLike[str]) -> str:
    """Read a file of text in UTF-8. Raises FileError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        detail = error.strerror if isinstance(error, OSError) else error
        raise FileError(
            f"{path} cannot be read ({detail})",
            expected="a file of text in UTF-8",
            fix="Check the file and its permissions, or convert it: iconv -f LATIN1 -t UTF-8",
        ) from error


def _header(path: str | PathLike[str], metadata: Mapping[str, str]) -> dict[str, Any] | None:
    if HEADER_KEY not in metadata:
        return None
    try:
        header = json.loads(metadata[HEADER_KEY])
    except (ValueError, RecursionError) as error:
        header = error
    if not isinstance(header, dict):
        raise FileError(
            f"{path} has an attnflow header that is not a JSON object",
            expected="one as attnflow writes it",
            fix="Save the file again.",
        )
    return header


@dataclass(frozen=True)
class Written:
    """The size in bytes and the SHA-256 checksum of a file."""

    bytes: int
    sha256: str


class _Hashed:
    """A file that computes the checksum of what is written to it."""

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
        """Keep the file open: it must still be synced."""


def write_atomic(
    path: Path, write: Callable[[IO[bytes]], object], *, locked: bool = False
) -> Written:
    """Write a file completely or not at all: under a temporary name first, synced, then renamed.

    write: called with the open file. An existing file is replaced.
    locked: whether a lock excludes other writers. The temporary name is then fixed, and the next
    write replaces what a killed process left; otherwise each process uses a name of its own.
    Returns its size and checksum. Raises DiskError if it cannot be written; nothing is left behind.
    """
    _check_name(path)
    if _is_special(path):
        return _write_special(path, write)
    unique = "" if locked else f".{os.getpid()}"
    temporary = path.with_name(f".{path.name}{unique}{TEMPORARY}")
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
        raise disk_error(path, error) from error
    return Written(hashed.count, hashed.digest.hexdigest())


def _is_special(path: Path) -> bool:
    """Whether a path is a device or a pipe, such as /dev/stdout, which must not be replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _write_special(path: Path, write: Callable[[IO[bytes]], object]) -> Written:
    try:
        with path.open("wb") as file:
            hashed = _Hashed(file)
            write(cast(IO[bytes], hashed))
    except OSError as error:
        raise disk_error(path, error) from error
    return Written(hashed.count, hashed.digest.hexdigest())


def _check_name(path: Path) -> None:
    """Raise DiskError for a name that no file can have."""
    try:
        is_valid = b"\0" not in os.fsencode(path)
    except UnicodeError:
        is_valid = False
    if not is_valid:
        raise DiskError(
            f"{str(path)!r} was not written",
            expected="a file name that the system can encode",
            fix="Choose another name.",
        )


def write_json(path: Path, value: Any, *, locked: bool = False) -> Written:
    """Write a value as JSON, like `write_atomic`; equal values give equal bytes."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return write_atomic(path, lambda file: file.write(text.encode("utf-8")), locked=locked)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk."""
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


def disk_error(path: Path, error: OSError) -> DiskError:
    """The error for a file that cannot be written."""
    if error.errno in FULL:
        return DiskError(
            f"the disk is full: {path} was not written",
            expected="free space",
            fix="Free some space, then run the same command again.",
        )
    return DiskError(
        f"{path} was not written ({error.strerror or error})",
        expected="a file that can be written",
        fix="Fix this, then run the same command again.",
    )


def _remove(path: Path) -> None:
    with suppress(OSError):  # the next run removes it
        path.unlink(missing_ok=True)
