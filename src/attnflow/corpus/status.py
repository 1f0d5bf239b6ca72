"""The status of a run while it runs, and its summary at the end.

`Counter` counts; drawing progress bars is up to the command line.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import TypeAlias

from attnflow.corpus.journal import Entry
from attnflow.corpus.store import Folder

WINDOW = 60.0  # seconds over which the current rate is measured


@dataclass(frozen=True)
class Status:
    """The status of a running run.

    done, total: rows of the input, including those of earlier runs; total is None if unknown.
    new: rows of this run. rejected: invalid rows so far. pairs: flow pairs of this run.
    seconds: since the start. recent_rate: rows per second in the last minute, if known.
    """

    done: int
    total: int | None
    new: int
    rejected: int
    pairs: int
    seconds: float
    recent_rate: float | None = None

    @property
    def rate(self) -> float:
        """Rows per second in this run."""
        return self.new / self.seconds if self.seconds else 0.0

    @property
    def pair_rate(self) -> float:
        """Flow pairs per second in this run."""
        return self.pairs / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds left at the current rate; None if it is unknown."""
        rate = self.recent_rate or self.rate
        if self.total is None or not rate:
            return None
        return max(self.total - self.done, 0) / rate


OnStatus: TypeAlias = Callable[[Status], None]


@dataclass(frozen=True)
class Summary:
    """The contents of a folder after a run.

    complete: whether every row of the input, or of the requested range, is finished.
    interrupted: whether the run was asked to stop.
    rows: finished rows of the input, including `rejected` ones.
    shards, bytes: finished shards, and the size of their Parquet files.
    new_rows, new_pairs, seconds: of this run only.
    """

    folder: str
    complete: bool
    interrupted: bool
    rows: int
    rejected: int
    shards: int
    bytes: int
    new_rows: int
    new_pairs: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows per second in this run."""
        return self.new_rows / self.seconds if self.seconds else 0.0


@dataclass
class Counter:
    """Counts scored examples and finished shards, and calls `on_status`.

    total: rows of the input. before: rows finished by earlier runs. finished: rows of this run.
    """

    on_status: OnStatus | None
    total: int | None
    before: int = 0
    rejected: int = 0
    finished: int = 0
    pairs: int = 0
    # Rows and pairs that are scored and not written yet.
    _ahead: list[int] = field(default_factory=lambda: [0, 0])
    _started: float = field(default_factory=monotonic)
    # Seconds and rows of recent reports.
    _recent: deque[tuple[float, int]] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    @property
    def seconds(self) -> float:
        """Seconds since the counter was created."""
        return monotonic() - self._started

    def report(self, examples: int, pairs: int) -> None:
        """Count scored examples. Engines call this from any thread."""
        with self._lock:
            self._ahead[0] += examples
            self._ahead[1] += pairs
            self._notify()

    def finish(self, entry: Entry, examples: int) -> None:
        """Count a finished shard, of which `examples` were reported before."""
        with self._lock:
            self.finished += entry.rows
            self.rejected += entry.rejected
            self.pairs += entry.pairs
            self._ahead[0] = max(self._ahead[0] - examples, 0)
            self._ahead[1] = max(self._ahead[1] - entry.pairs, 0)
            self._notify()

    def _notify(self) -> None:
        if self.on_status is None:
            return
        new = self.finished + self._ahead[0]
        seconds = self.seconds
        self.on_status(
            Status(
                done=self.before + new,
                total=self.total,
                new=new,
                rejected=self.rejected,
                pairs=self.pairs + self._ahead[1],
                seconds=seconds,
                recent_rate=self._measure_rate(seconds, new),
            )
        )

    def _measure_rate(self, seconds: float, new: int) -> float | None:
        """Return rows per second in the last minute; None during the first second."""
        recent = self._recent
        if not recent or seconds - recent[-1][0] >= 1:
            recent.append((seconds, new))
        while len(recent) > 1 and seconds - recent[0][0] > WINDOW:
            recent.popleft()
        elapsed = seconds - recent[0][0]
        return (new - recent[0][1]) / elapsed if elapsed >= 1 else None


def summarize(folder: Folder, counter: Counter, *, complete: bool, interrupted: bool) -> Summary:
    """Return the summary of a folder after a run."""
    entries = list(folder.entries())
    return Summary(
        folder=str(folder.path),
        complete=complete,
        interrupted=interrupted,
        rows=sum(entry.rows for entry in entries),
        rejected=sum(entry.rejected for entry in entries),
        shards=len(entries),
        bytes=sum(entry.parquet.bytes for entry in entries),
        new_rows=counter.finished,
        new_pairs=counter.pairs,
        seconds=counter.seconds,
    )
