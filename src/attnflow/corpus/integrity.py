"""Whether what was written still is what was written: every file against its checksum.

Computing damaged and missing shards again, from what the manifest names.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from attnflow.corpus.job import run
from attnflow.corpus.manifest import Manifest, read_manifest
from attnflow.corpus.progress import Summary, Watch
from attnflow.corpus.store import ENDLESS, Entry, Folder, locked, open_folder, read_entry
from attnflow.errors import FileError
from attnflow.storage import Written


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written. shard: its number. what: in words."""

    shard: int
    path: Path
    what: str


@dataclass(frozen=True)
class Check:
    """What a check found.

    checked: finished shards. damaged: those with a file that is not right.
    missing: numbers of shards that are not finished, as far as the end of the input is known.
    """

    checked: int
    damaged: tuple[Damage, ...]
    missing: tuple[int, ...]
    complete: bool


def check(out: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Check:
    """Read every file of a corpus, and compare it with its checksum.

    progress: called with shards done and shards in all.
    Raises FileError if the folder holds no corpus.
    """
    folder = open_folder(out)
    manifest = read_manifest(folder.manifest)
    numbers = _numbers(folder)
    damaged: list[Damage] = []
    for done, number in enumerate(numbers, start=1):
        damaged += check_shard(folder, manifest, number)
        if progress is not None:
            progress(done, len(numbers))
    missing = _missing(folder, manifest, numbers)
    complete = not damaged and not missing and folder.total() is not None
    return Check(len(numbers), tuple(damaged), missing, complete)


def check_shard(folder: Folder, manifest: Manifest, number: int) -> list[Damage]:
    """What is wrong with the files of a shard that the journal calls finished."""
    entry = read_entry(folder.journal(number))
    if entry is None:
        path = folder.journal(number)
        why = "says to compute it again" if _is_void(path) else "cannot be read"
        return [Damage(number, path, why)]
    found = []
    for path, written in _files(folder, entry):
        what = compare_file(path, written)
        if what is not None:
            found.append(Damage(number, path, what))
    if not found and not _counts_right(folder, manifest, entry):
        found.append(Damage(number, folder.journal(number), "counts other rows than there are"))
    return found


def _counts_right(folder: Folder, manifest: Manifest, entry: Entry) -> bool:
    """Whether the rows that the journal counts are those of the shard; its files must be right."""
    first, total = entry.shard * manifest.shard_size, folder.total()
    rows = manifest.shard_size if total is None else min(manifest.shard_size, total - first)
    refused = 0
    if entry.errors is not None:
        with folder.errors(entry.shard).open("rb") as file:
            refused = sum(1 for _ in file)
    counted = (entry.first, entry.refused)
    # Of a shard that was cut short by the end of the input the length is known only with the end.
    return counted == (first, refused) and (entry.rows == rows or total is None)


def compare_file(path: Path, written: Written) -> str | None:
    """What is wrong with a file; None if it is what was written."""
    try:
        size = path.stat().st_size
        if size != written.bytes:
            return f"has {size:,} bytes, {written.bytes:,} were written"
        with path.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if found != written.sha256:
        return f"has the SHA-256 {found[:12]}..., {written.sha256[:12]}... was written"
    return None


def drop_damaged(out: str | Path, found: Check) -> list[int]:
    """Take damaged shards out of the journal, so that the next run computes them again.

    Returns their numbers. Raises InputError if a run is writing to the folder.
    """
    folder = open_folder(out)
    numbers = sorted({damage.shard for damage in found.damaged})
    with locked(folder.path / "locks", range(ENDLESS)):
        for number in numbers:
            folder.void(number)
    return numbers


def _is_void(path: Path) -> bool:
    try:
        return "void" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def input_of(manifest: Manifest) -> str:
    """The input of a corpus, if it can be opened by its name.

    Raises FileError if it was an object of the caller's.
    """
    name, format = str(manifest.input["name"]), manifest.input["format"]
    if format == "list" or (format == "dataset" and not name.startswith("hf:")):
        raise FileError(
            f"the input was a {name} of Python",
            expected="one that has a path or an address",
            fix="The damaged shards were taken out of the journal: call attnflow.corpus.run again.",
        )
    return name


def _files(folder: Folder, entry: Entry) -> list[tuple[Path, Written]]:
    files = [(folder.parquet(entry.shard), entry.parquet)]
    if entry.errors is not None:
        files.append((folder.errors(entry.shard), entry.errors))
    return files


def _numbers(folder: Folder) -> list[int]:
    names = [path.stem.removeprefix("part-") for path in folder.end.parent.glob("part-*.json")]
    return sorted(int(name) for name in names if name.isdecimal())


def _missing(folder: Folder, manifest: Manifest, numbers: list[int]) -> tuple[int, ...]:
    total = folder.total()
    known = max(numbers, default=-1) + 1
    n_shards = known if total is None else -(-total // manifest.shard_size)
    return tuple(sorted(set(range(n_shards)) - set(numbers)))


def repair(
    out: str | Path,
    found: Check,
    *,
    threads: int | None = None,
    accept_versions: bool = False,
    progress: Watch | None = None,
) -> Summary:
    """Take damaged shards out of the journal, and run the corpus again on this machine.

    accept_versions: whether to do so with other versions of libraries.
    Raises FileError if the input cannot be opened by its name, InputError if it or the model is
    not what it was.
    """
    manifest = read_manifest(open_folder(out).manifest)
    drop_damaged(out, found)
    written, settings = manifest.input, manifest.settings
    options = {name: getattr(settings, name) for name in settings.to_json()}
    return run(
        input_of(manifest),
        out,
        text_column=written["text_column"],
        id_column=written["id_column"],
        format=None if written["format"] == "dataset" else written["format"],
        input_id=written["checksum"] if written.get("told_by") == "input_id" else None,
        shard_size=manifest.shard_size,
        accept_versions=accept_versions,
        threads=threads,
        progress=progress,
        **options,
    )
