"""A job: the loop that computes what is not finished, can be killed at any moment, and goes on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from attnflow.corpus.engines import Engine
from attnflow.corpus.example import Example, Refused, Result
from attnflow.corpus.folder import Folder
from attnflow.corpus.identity import join_checksums, versions
from attnflow.corpus.locking import ENDLESS, alone, guarded, locked
from attnflow.corpus.manifest import Manifest, settle
from attnflow.corpus.progress import Counter, Summary, Watch, summarise
from attnflow.corpus.settings import Settings
from attnflow.corpus.shards import Shard, cut, write_shard
from attnflow.corpus.source import Source
from attnflow.corpus.writing import write_json
from attnflow.errors import AttnflowError, FileError

SHARD_SIZE = 1000  # rows, if the caller does not say


@dataclass(frozen=True)
class Job:
    """What a run has to do.

    model: the checksums of the model's files. shards: those to compute.
    strict: whether to stop at the first bad row. accept_versions: as in `settle`.
    """

    source: Source
    folder: Folder
    settings: Settings
    model: dict[str, str]
    columns: tuple[str | None, str | None] = (None, None)
    shard_size: int = SHARD_SIZE
    shards: range = range(ENDLESS)
    strict: bool = False
    accept_versions: bool = False


def work(
    job: Job,
    engine: Engine,
    *,
    progress: Watch | None = None,
    stop: Callable[[], bool] | None = None,
) -> Summary:
    """Do a job with an engine: settle the manifest, hold the lock, compute what is not finished."""
    folder, locks = job.folder, job.folder.path / "locks"
    folder.create()
    with locked(locks, job.shards):
        with guarded(locks):
            settle(
                folder.manifest,
                _manifest(job),
                accept_versions=job.accept_versions,
                # A run that failed before its first shard holds nobody to its settings.
                anew=folder.clear if folder.untouched() and alone(locks, job.shards) else None,
            )
        folder.clean(job.shards)
        known = {entry.shard: entry for entry in folder.entries() if entry.shard in job.shards}
        counter = Counter(
            progress,
            _rows_in_range(job, folder.total() or job.source.count),
            before=sum(entry.rows for entry in known.values()),
            refused=sum(entry.refused for entry in known.values()),
        )
        loop = _Loop(job, engine, counter, frozenset(known), stop or (lambda: False))
        loop.run()
        complete = loop.at_end and not loop.stopped
        return summarise(folder, counter, complete=complete, interrupted=loop.stopped)


class _Loop:
    """Feeds an engine with shards, and writes what comes back, in order."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        counter: Counter,
        known: frozenset[int],
        stop: Callable[[], bool],
    ) -> None:
        self.job, self.engine, self.counter = job, engine, counter
        self.known, self.stop = known, stop
        self.waiting: deque[Shard] = deque()
        self.bad: Refused | None = None
        self.bad_shard: int | None = None
        self.stopped = self.at_end = False

    def run(self) -> None:
        feed = self.feed()
        first = next(feed, None)
        if first is not None:  # otherwise no model need be loaded
            self.compute(chain([first], feed))
        if self.bad is not None:
            self.refuse_bad([self.bad])

    def compute(self, shards: Iterable[list[Example]]) -> None:
        job = self.job
        with closing(self.engine(job.settings, shards, self.counter.report)) as computed:
            for results in computed:
                shard = self.waiting.popleft()
                self.require_same_input()
                if job.strict:
                    self.refuse_bad(results)
                    if shard.number == self.bad_shard:
                        return
                entry = write_shard(job.folder, shard, results, job.settings, job.shard_size)
                self.counter.finish(entry, len(results))

    def feed(self) -> Iterator[list[Example]]:
        """The examples of each shard that is not finished, until asked to stop."""
        for shard in self.shards():
            if self.stop():
                self.stopped = True
                return
            if self.job.strict and shard.refused:
                self.bad, self.bad_shard = shard.refused[0], shard.number
                # The model may refuse one that comes before.
                part = shard.before(self.bad.example.index)
                if part.rows:
                    self.waiting.append(part)
                    yield part.examples
                return
            self.waiting.append(shard)
            yield shard.examples
        self.at_end = True

    def shards(self) -> Iterable[Shard]:
        """Those to compute; none if all is done, and then the input is not read again."""
        job, total = self.job, self.job.folder.total()
        if total is not None:
            after = min(-(-total // job.shard_size), job.shards.stop)
            if self.known >= set(range(job.shards.start, after)):
                return []
        return cut(
            job.source.rows(),
            job.shard_size,
            wanted=lambda number: number in job.shards and number not in self.known,
            stop=job.shards.stop,
            at_end=self.note_end,
        )

    def note_end(self, rows: int) -> None:
        """Note how many rows the input has, unless it was cut meanwhile."""
        self.require_same_input()
        write_end(self.job.folder, rows)

    def require_same_input(self) -> None:
        """Raise FileError if the input is no longer what its checksum was of."""
        source = self.job.source
        if not source.unchanged():
            raise FileError(
                f"{source.name} changed while it was read; expected it to stay as it was. Put it "
                "back, or begin anew in another folder."
            )

    def refuse_bad(self, results: Iterable[Result]) -> None:
        """Raise AttnflowError for the first bad row."""
        for one in results:
            if isinstance(one, Refused):
                index, line = one.example.index, one.example.line
                where = f"row {index}" if line is None else f"line {line}"
                raise AttnflowError(
                    f"{self.job.source.name}, {where}: {one.reason} The run is strict and stops "
                    "here; all shards finished before are kept. Mend the row, or run without "
                    "--strict."
                )


def write_end(folder: Folder, rows: int) -> None:
    """Note how many rows the input has."""
    if folder.total() != rows:
        write_json(folder.end, {"rows": rows})


def _rows_in_range(job: Job, total: int | None) -> int | None:
    """How many rows the shards of the job have; None if it is not known."""
    if total is None:
        return None
    first, after = (min(n * job.shard_size, total) for n in (job.shards.start, job.shards.stop))
    return after - first


def _manifest(job: Job) -> Manifest:
    source = job.source
    return Manifest(
        settings=job.settings,
        shard_size=job.shard_size,
        input={
            "name": str(Path(source.name).absolute())
            if Path(source.name).is_file()
            else source.name,
            "format": source.format,
            "checksum": source.checksum,
            "text_column": job.columns[0],
            "id_column": job.columns[1],
            **({"told_by": "input_id"} if source.told_by_caller else {}),
        },
        model={"sha256": join_checksums(job.model), "files": job.model},
        versions=(versions(),),
    )
