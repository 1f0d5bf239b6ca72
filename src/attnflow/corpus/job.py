"""From an input to a folder of shards, in one call.

A job: the loop that computes what is not finished, can be killed at any moment, and goes on.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from attnflow.corpus.example import Example, Refused, Result
from attnflow.corpus.local_engine import Engine, open_engine
from attnflow.corpus.manifest import Manifest, checksums, join_checksums, settle, versions
from attnflow.corpus.progress import Counter, Summary, Watch, summarize
from attnflow.corpus.readers import Format, Source, open_source
from attnflow.corpus.settings import GPU_BATCH_TOKENS, Settings, Truncate, WhichPositions
from attnflow.corpus.store import ENDLESS, Folder, Shard, alone, cut, guarded, locked, write_shard
from attnflow.errors import AttnflowError, FileError, InputError
from attnflow.storage import write_json

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
        return summarize(folder, counter, complete=complete, interrupted=loop.stopped)


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
                f"{source.name} changed while it was read",
                expected="it to stay as it was",
                fix="Put it back, or begin anew in another folder.",
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


Shards: TypeAlias = tuple[int, int | None]  # the first, and the one after the last


class SettingOptions(TypedDict, total=False):
    """The settings, for type checkers; see `Settings`."""

    model: str
    tokenizer: str | None
    methods: tuple[str, ...]
    positions: WhichPositions
    layers: tuple[int, ...] | None
    importance: tuple[str, ...]
    normalize: str
    residual_weight: float
    heads: str | int
    edges: str
    target: str | int | None
    truncate: Truncate
    words: bool
    batch_tokens: int
    device: str


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

    >>> from tempfile import TemporaryDirectory
    >>> from attnflow.corpus import check, open_corpus
    >>> with TemporaryDirectory() as out:
    ...     summary = run(["the key to the cabinets", ""], out, methods=("rollout",))
    ...     complete = check(out).complete
    ...     [example] = open_corpus(out).examples()
    ...     [refused] = open_corpus(out).refused()
    >>> summary.rows, complete, refused["why"]
    (2, True, 'empty')
    >>> example.scores["rollout"].shape  # layers, positions, tokens
    (6, 1, 6)
    """
    if shard_size < 1:
        raise InputError(
            f"shard_size is {shard_size}",
            expected="1 or more",
            fix=f"Use {SHARD_SIZE}.",
        )
    wanted = _resolve_shards(shards)
    Settings(**settings)  # refuses what is wrong before anything is started
    with open_engine(engine, threads=threads, workers=workers, address=address) as (
        compute,
        device,
    ):
        chosen = _place(Settings(**_complete(settings, device)))
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


def _complete(settings: SettingOptions, device: str) -> SettingOptions:
    """The settings with what depends on where models run, unless it is given."""
    made: SettingOptions = {"device": device, **settings}
    if made["device"] != "cpu":
        made.setdefault("batch_tokens", GPU_BATCH_TOKENS)
    return made


def _place(settings: Settings) -> Settings:
    """Name folders from the root, for workers and later runs that are elsewhere."""
    model, tokenizer = (
        str(Path(name).absolute()) if name is not None and Path(name).is_dir() else name
        for name in (settings.model, settings.tokenizer)
    )
    return replace(settings, model=model or settings.model, tokenizer=tokenizer)


def _resolve_shards(shards: Shards | None) -> range:
    first, after = shards or (0, None)
    after = ENDLESS if after is None else after
    if not 0 <= first < after:
        raise InputError(
            f"shards is {first}:{after}",
            expected="a first shard and one after the last, counted from 0, such as 0:100",
            fix="Give them like that.",
        )
    return range(first, after)
