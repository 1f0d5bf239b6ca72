"""How far a run is, while it runs and at its end."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import TypeAlias

from attnflow.corpus.store import Entry, Folder

WINDOW = 60.0  # seconds that the time left is told from


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    done, total: rows of the input, with those finished by earlier runs; total is None if it is not
    known. new: those of this run. refused: bad rows so far. pairs: of flow, in this run.
    seconds: since computing began. recent: rows a second of late, if that is known.
    """

    done: int
    total: int | None
    new: int
    refused: int
    pairs: int
    seconds: float
    recent: float | None = None

    @property
    def rate(self) -> float:
        """Rows a second in this run."""
        return self.new / self.seconds if self.seconds else 0.0

    @property
    def pair_rate(self) -> float:
        """Flow pairs a second in this run."""
        return self.pairs / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds left at the rate of late, without the start; None if it is not known."""
        rate = self.recent or self.rate
        if self.total is None or not rate:
            return None
        return max(self.total - self.done, 0) / rate


Watch: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True)
class Summary:
    """What is in a folder after a run.

    complete: whether every row of the input, or of the range asked for, is finished.
    interrupted: whether the run was asked to stop. rows: of the input, of which `refused` were bad.
    shards, bytes: finished ones, and the size of their Parquet files.
    new_rows, new_pairs, seconds: of this run alone.
    """

    folder: str
    complete: bool
    interrupted: bool
    rows: int
    refused: int
    shards: int
    bytes: int
    new_rows: int
    new_pairs: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows that this run finished in a second."""
        return self.new_rows / self.seconds if self.seconds else 0.0


@dataclass
class Counter:
    """Counts what engines report and what is finished, and tells the watch."""

    watch: Watch | None
    total: int | None
    before: int = 0
    refused: int = 0
    finished: int = 0
    pairs: int = 0
    _ahead: list[int] = field(default_factory=lambda: [0, 0])  # rows and pairs not yet written
    _started: float = field(default_factory=monotonic)
    _seen: deque[tuple[float, int]] = field(default_factory=deque)  # seconds and rows, of late
    _lock: Lock = field(default_factory=Lock)

    @property
    def seconds(self) -> float:
        """Since the counter was made."""
        return monotonic() - self._started

    def report(self, examples: int, pairs: int) -> None:
        """Engines call this as work is done, from any thread."""
        with self._lock:
            self._ahead[0] += examples
            self._ahead[1] += pairs
            self._tell()

    def finish(self, entry: Entry, examples: int) -> None:
        """A shard was written; what was reported of it is no longer ahead."""
        with self._lock:
            self.finished += entry.rows
            self.refused += entry.refused
            self.pairs += entry.pairs
            self._ahead[0] = max(self._ahead[0] - examples, 0)
            self._ahead[1] = max(self._ahead[1] - entry.pairs, 0)
            self._tell()

    def _tell(self) -> None:
        if self.watch is None:
            return
        new = self.finished + self._ahead[0]
        pairs = self.pairs + self._ahead[1]
        done, seconds = self.before + new, self.seconds
        recent = self._recent(seconds, new)
        self.watch(Progress(done, self.total, new, self.refused, pairs, seconds, recent))

    def _recent(self, seconds: float, new: int) -> float | None:
        """Rows a second since the oldest report of the last minute; None before a second."""
        seen = self._seen
        if not seen or seconds - seen[-1][0] >= 1:
            seen.append((seconds, new))
        while len(seen) > 1 and seconds - seen[0][0] > WINDOW:
            seen.popleft()
        past = seconds - seen[0][0]
        return (new - seen[0][1]) / past if past >= 1 else None


def summarize(folder: Folder, counter: Counter, *, complete: bool, interrupted: bool) -> Summary:
    """What is in the folder now."""
    entries = list(folder.entries())
    return Summary(
        folder=str(folder.path),
        complete=complete,
        interrupted=interrupted,
        rows=sum(entry.rows for entry in entries),
        refused=sum(entry.refused for entry in entries),
        shards=len(entries),
        bytes=sum(entry.parquet.bytes for entry in entries),
        new_rows=counter.finished,
        new_pairs=counter.pairs,
        seconds=counter.seconds,
    )
