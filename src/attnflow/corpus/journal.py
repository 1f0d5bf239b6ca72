"""The journal: JSON files with checksums of their own, which say what is finished.

A record that was altered is not trusted: a shard whose entry is damaged is computed again, and the
input is read again if its number of rows is unknown or disagrees with the entries. The manifest is
such a record, too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from attnflow.errors import FileError
from attnflow.storage import Written, write_json

CHECKSUM = "sha256"  # the key of a record's own checksum
MAX_RECORD = 2**24  # bytes; a manifest lists the files of a model
MAX_SHARD_COUNT = 10**7  # of one corpus; bounds the memory that a wrong number can take


@dataclass(frozen=True)
class Entry:
    """The journal entry of a finished shard.

    first: the index of its first row. rows: the number of rows, including `rejected` ones.
    pairs: the number of positions and tokens whose flow was computed.
    parquet, errors: sizes and checksums of the files; errors is None if no row was rejected.
    """

    shard: int
    first: int
    rows: int
    rejected: int
    pairs: int
    parquet: Written
    errors: Written | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the journal stores it."""
        # The journal calls rejected rows "refused".
        return {"refused" if k == "rejected" else k: v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Entry":
        """Read what `to_json` wrote. Raises KeyError, TypeError or ValueError if it is invalid."""
        names = ("shard", "first", "rows", "refused", "pairs")
        shard, first, rows, rejected, pairs = (_check_count(values[name]) for name in names)
        if rejected > rows or set(values) != {*names, "parquet", "errors"}:
            raise ValueError("the counts or the names are wrong")
        errors = values["errors"]
        return cls(
            shard=shard,
            first=first,
            rows=rows,
            rejected=rejected,
            pairs=pairs,
            parquet=_read_written(values["parquet"]),
            errors=None if errors is None else _read_written(errors),
        )

    def fits(self, total: int, shard_size: int) -> bool:
        """Whether the entry agrees with the number of rows of the input."""
        return self.rows == max(min(shard_size, total - self.shard * shard_size), 0)


def write_record(path: Path, values: Mapping[str, Any]) -> None:
    """Write a record atomically, with its checksum. Call it with a lock held."""
    write_json(path, {**values, CHECKSUM: _checksum(values)}, locked=True)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises FileError if the file cannot be read or is not one."""
    try:
        if path.stat().st_size > MAX_RECORD:
            raise ValueError(f"it has more than {MAX_RECORD:,} bytes")
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        detail = error.strerror if isinstance(error, OSError) else error
        raise _invalid(path, f"cannot be read ({detail})") from error
    if not isinstance(values, dict):
        raise _invalid(path, f"holds a {type(values).__name__}")
    return values


def check_record(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return a record without its checksum. Raises FileError if it was altered."""
    content = {name: value for name, value in values.items() if name != CHECKSUM}
    try:
        is_valid = values.get(CHECKSUM) == _checksum(content)
    except (ValueError, RecursionError):
        is_valid = False
    if not is_valid:
        raise _invalid(path, "does not match its checksum")
    return content


def read_record(path: Path) -> dict[str, Any]:
    """Read a record. Raises FileError if it is missing, not JSON, or was altered."""
    return check_record(path, read_json(path))


def read_entry(path: Path) -> Entry | None:
    """Read a journal file; None if it does not exist or is invalid."""
    try:
        return Entry.from_json(read_record(path))
    except (FileError, KeyError, TypeError, ValueError):
        return None


def read_total(path: Path) -> int | None:
    """Read the number of rows of the input; None if it does not exist or is invalid."""
    try:
        return _check_count(read_record(path)["rows"])
    except (FileError, KeyError, ValueError):
        return None


def agree(total: int, entries: Iterable[Entry], shard_size: int) -> bool:
    """Whether all entries agree with the number of rows of the input."""
    plausible = total <= MAX_SHARD_COUNT * shard_size
    return plausible and all(entry.fits(total, shard_size) for entry in entries)


def _check_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is no count")
    return value


def _read_written(values: Mapping[str, Any]) -> Written:
    written = Written(**values)
    if len(str(written.sha256)) != 64:
        raise ValueError("a checksum is wrong")
    return Written(_check_count(written.bytes), str(written.sha256))


def _checksum(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _invalid(path: Path, problem: str) -> FileError:
    return FileError(
        f"{path} {problem}",
        expected="a file of `attnflow corpus run`, unaltered",
        fix="Restore it, or use another folder with --out.",
    )
