"""From an input to a folder of shards: the loop that can be killed at any moment and goes on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from attnflow.corpus.engines import Engine, open_engine
from attnflow.corpus.example import Example, Refused, Result
from attnflow.corpus.folder import Folder
from attnflow.corpus.identity import checksums, join_checksums, versions
from attnflow.corpus.locking import ENDLESS, guarded, locked
from attnflow.corpus.manifest import Manifest, settle
from attnflow.corpus.progress import Counter, Summary, Watch, summarise
from attnflow.corpus.settings import Settings, Truncate, WhichPositions
from attnflow.corpus.shards import Shard, cut, write_shard
from attnflow.corpus.source import Format, Source, open_source
from attnflow.corpus.writing import write_json
from attnflow.errors import AttnflowError, FileError, InputError

SHARD_SIZE = 1000
Shards: TypeAlias = tuple[int, int | None]  # the first, and the one after the last


class SettingOptions(TypedDict, total=False):
    """The settings, for type checkers; see `Settings`."""

    model: str
    tokenizer: str | None
    methods: tuple[str, ...]
    positions: WhichPositions
    layers: tuple[int, ...] | None
    importance: tuple[str, ...]
    normalise: str
    residual_weight: float
    heads: str | int
    edges: str
    target: str | int | None
    truncate: Truncate
    words: bool
    batch_tokens: int
    device: str


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


def run(  # noqa: PLR0913 - one argument for each option
    given: Any,
    out: str | Path,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    format: Format | None = None,
    input_id: str | None = None,
    shard_size: int = SHARD_SIZE,
    shards: Shards | None = None,
    engine: Literal["local", "ray"] = "local",
    threads: int | None = None,
    workers: int | None = None,
    address: str | None = None,
    strict: bool = False,
    accept_versions: bool = False,
    progress: Watch | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Unpack[SettingOptions],
) -> Summary:
    """Score every text of an input, and write the scores to a folder, in shards of Parquet.

    given, text_column, id_column, format, input_id: the input, as in `open_source`.
    out: the folder. If it holds part of the same run, the run goes on; nothing is done twice.
    shard_size: rows of the input in a shard. shards: only those from the first to before the last.
    engine: "local", this machine, with `threads`; or "ray", with `workers` on a cluster at
    `address` ("local" starts one here, "auto" finds one that runs).
    strict: stop at the first bad row, which otherwise is written to the errors of its shard.
    accept_versions: go on although versions of libraries changed.
    progress: called with a `Progress` now and then. stop: asked before each shard whether to stop.
    settings: what to compute; see `Settings`.
    Raises InputError if the folder was begun with other settings, another model or another input,
    or if another run is writing to it; AttnflowError if the disk is full, or a row is bad and the
    run strict. What is finished is kept in any case.
    """
    if shard_size < 1:
        raise InputError(f"shard_size is {shard_size}; expected 1 or more. Use {SHARD_SIZE}.")
    wanted = _resolve_shards(shards)
    Settings(**settings)  # refuses what is wrong before anything is started
    with open_engine(engine, threads=threads, workers=workers, address=address) as (
        compute,
        device,
    ):
        settings.setdefault("device", device)
        chosen = Settings(**settings)
        job = Job(
            source=open_source(
                given,
                text_column=text_column,
                id_column=id_column,
                format=format,
                input_id=input_id,
            ),
            folder=Folder(Path(out)),
            settings=chosen,
            model=checksums(chosen),
            columns=(text_column, id_column),
            shard_size=shard_size,
            shards=wanted,
            strict=strict,
            accept_versions=accept_versions,
        )
        return work(job, compute, progress=progress, stop=stop)


def _resolve_shards(shards: Shards | None) -> range:
    first, after = shards or (0, None)
    after = ENDLESS if after is None else after
    if not 0 <= first < after:
        raise InputError(
            f"shards is {first}:{after}; expected a first shard and one after the last, counted "
            "from 0, such as 0:100. Give them like that."
        )
    return range(first, after)


def work(
    job: Job,
    engine: Engine,
    *,
    progress: Watch | None = None,
    stop: Callable[[], bool] | None = None,
) -> Summary:
    """Do a job with an engine: settle the manifest, hold the lock, compute what is not finished."""
    folder = job.folder
    folder.create()
    with locked(folder.path / "locks", job.shards):
        with guarded(folder.path / "locks"):
            settle(folder.manifest, _manifest(job), accept_versions=job.accept_versions)
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
        self.job, self.engine, self.counter, self.known, self.stop = (
            job,
            engine,
            counter,
            known,
            stop,
        )
        self.waiting: deque[Shard] = deque()
        self.bad: Refused | None = None
        self.stopped = self.at_end = False

    def run(self) -> None:
        job = self.job
        with closing(self.engine(job.settings, self.feed(), self.counter.report)) as computed:
            for results in computed:
                shard = self.waiting.popleft()
                if not job.source.unchanged():
                    raise FileError(
                        f"{job.source.name} changed while it was read; expected it to stay as it "
                        "was. Put it back, or begin anew in another folder."
                    )
                if job.strict:
                    self.refuse_bad(results)
                entry = write_shard(job.folder, shard, results, job.settings, job.shard_size)
                self.counter.finish(entry, len(results))
        if self.bad is not None:
            self.refuse_bad([self.bad])

    def feed(self) -> Iterator[list[Example]]:
        """The examples of each shard that is not finished, until asked to stop."""
        for shard in self.shards():
            if self.stop():
                self.stopped = True
                return
            if self.job.strict and shard.refused:
                self.bad = shard.refused[0]
                return
            self.waiting.append(shard)
            yield shard.examples
        self.at_end = True

    def shards(self) -> Iterable[Shard]:
        job, total = self.job, self.job.folder.total()
        n_shards = None if total is None else -(-total // job.shard_size)
        if n_shards is not None and self.known >= set(
            range(job.shards.start, min(n_shards, job.shards.stop))
        ):
            return []  # all is done, and there is no need to read the input again
        return cut(
            job.source.rows(),
            job.shard_size,
            wanted=lambda number: number in job.shards and number not in self.known,
            stop=job.shards.stop,
            at_end=lambda rows: write_end(job.folder, rows),
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
        },
        model={"sha256": join_checksums(job.model), "files": job.model},
        versions=(versions(),),
    )
