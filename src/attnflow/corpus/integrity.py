"""Integrity of a corpus: compares files with their checksums, and computes damaged shards again."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from attnflow.corpus.job import run
from attnflow.corpus.journal import Entry, agree, read_entry, read_record
from attnflow.corpus.manifest import Manifest, read_manifest
from attnflow.corpus.settings import OPTIONS
from attnflow.corpus.status import OnStatus, Summary
from attnflow.corpus.store import MAX_SHARDS, Folder, find_missing, open_folder, shard_lock
from attnflow.errors import FileError
from attnflow.progress import Progress
from attnflow.storage import Written


@dataclass(frozen=True)
class Damage:
    """A damaged file. problem: what is wrong, for messages.

    shard: its number; None for the number of rows of the input, which the next run finds again.
    """

    shard: int | None
    path: Path
    problem: str


@dataclass(frozen=True)
class Check:
    """The result of a check.

    checked: the number of finished shards. damaged: their damaged files.
    missing: the numbers of unfinished shards, as far as the length of the input is known.
    """

    checked: int
    damaged: tuple[Damage, ...]
    missing: tuple[int, ...]
    complete: bool


def check(out: str | Path, *, progress: Progress | None = None) -> Check:
    """Read every file of a corpus, and compare it with its checksum.

    progress: called with the numbers of checked shards and of all shards.
    Raises FileError if the folder holds no corpus.
    """
    folder = open_folder(out)
    manifest = read_manifest(folder.manifest)
    numbers = folder.journal_numbers()
    damaged = _check_end(folder, manifest)
    for done, number in enumerate(numbers, start=1):
        damaged += check_shard(folder, manifest, number)
        if progress is not None:
            progress(done, len(numbers))
    total = None if any(damage.path == folder.end for damage in damaged) else folder.total()
    missing = find_missing(folder, manifest.shard_size, total)
    complete = not damaged and not missing and total is not None
    return Check(len(numbers), tuple(damaged), missing, complete)


def _check_end(folder: Folder, manifest: Manifest) -> list[Damage]:
    """Return whether the number of rows of the input is damaged.

    It cannot be what the shards are judged by: their own entries have checksums.
    """
    if not folder.end.exists():
        return []
    total = folder.total()
    if total is None:
        return [Damage(None, folder.end, "cannot be read, or does not match its checksum")]
    if not agree(total, folder.entries(), manifest.shard_size):
        return [Damage(None, folder.end, "does not match the rows of the finished shards")]
    return []


def check_shard(folder: Folder, manifest: Manifest, number: int) -> list[Damage]:
    """Return the damaged files of a shard that has a journal entry."""
    path = folder.journal(number)
    entry = read_entry(path)
    if entry is None:
        problem = "cannot be read, or does not match its checksum"
        if _is_invalidated(path):
            problem = "marks the shard as damaged"
        return [Damage(number, path, problem)]
    files = [(folder.parquet(number), entry.parquet)]
    if entry.errors is not None:
        files.append((folder.errors(number), entry.errors))
    problems = [(file, compare_file(file, written)) for file, written in files]
    damaged = [Damage(number, file, problem) for file, problem in problems if problem]
    if not damaged and not _counts_match(folder, manifest, entry):
        damaged.append(Damage(number, path, "has wrong row counts"))
    return damaged


def compare_file(path: Path, written: Written) -> str | None:
    """Return what is wrong with a file; None if it has the expected size and checksum."""
    try:
        size = path.stat().st_size
        if size != written.bytes:
            return f"has {size:,} bytes instead of {written.bytes:,}"
        with path.open("rb") as file:
            checksum = file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if checksum != written.sha256:
        return f"has the SHA-256 {checksum[:12]}... instead of {written.sha256[:12]}..."
    return None


def invalidate_damaged(out: str | Path, result: Check) -> list[int]:
    """Mark damaged shards as unfinished, so that the next run computes them again.

    Each is checked again first, so that no undamaged shard is lost. A damaged number of rows is
    removed; the next run reads the input again for it.
    Returns the numbers of the shards. Raises InputError if a run is writing to the folder.
    """
    folder = open_folder(out)
    manifest = read_manifest(folder.manifest)
    suspects = sorted({damage.shard for damage in result.damaged if damage.shard is not None})
    with shard_lock(folder, range(MAX_SHARDS)):
        if _check_end(folder, manifest):
            folder.end.unlink(missing_ok=True)
        numbers = [number for number in suspects if check_shard(folder, manifest, number)]
        for number in numbers:
            folder.invalidate(number)
    return numbers


def repair(
    out: str | Path,
    result: Check,
    *,
    threads: int | None = None,
    accept_versions: bool = False,
    on_status: OnStatus | None = None,
    stop: Callable[[], bool] | None = None,
) -> Summary:
    """Compute damaged and missing shards again on this machine.

    result: of `check`. accept_versions: whether to do so with other library versions.
    on_status, stop: as in `attnflow.corpus.run`.
    Raises FileError if the input cannot be opened by its name, InputError if the input or the model
    changed.
    """
    manifest = read_manifest(open_folder(out).manifest)
    invalidate_damaged(out, result)
    source, settings = manifest.input, manifest.settings
    return run(
        _input_name(manifest),
        out,
        text_column=source["text_column"],
        id_column=source["id_column"],
        format=None if source["format"] == "dataset" else source["format"],
        input_id=source["checksum"] if source.get("told_by") == "input_id" else None,
        shard_size=manifest.shard_size,
        accept_versions=accept_versions,
        threads=threads,
        on_status=on_status,
        stop=stop,
        **{name: getattr(settings, name) for name in OPTIONS},
    )


def _input_name(manifest: Manifest) -> str:
    """Return the path or address of the input. Raises FileError if it was a Python object."""
    name, format = str(manifest.input["name"]), manifest.input["format"]
    if format == "list" or (format == "dataset" and not name.startswith("hf:")):
        raise FileError(
            f"the input was a Python object ({name})",
            expected="an input with a path or an address",
            fix="Call attnflow.corpus.run again with it: damaged shards are marked as unfinished.",
        )
    return name


def _counts_match(folder: Folder, manifest: Manifest, entry: Entry) -> bool:
    """Whether the row counts in the journal match the shard, whose files must be undamaged."""
    rejected = 0
    if entry.errors is not None:
        with folder.errors(entry.shard).open("rb") as file:
            rejected = sum(1 for _ in file)
    expected = (entry.shard * manifest.shard_size, rejected)
    return (entry.first, entry.rejected) == expected and 1 <= entry.rows <= manifest.shard_size


def _is_invalidated(path: Path) -> bool:
    try:
        return "void" in read_record(path)
    except FileError:
        return False
