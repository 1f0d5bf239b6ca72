"""Jobs: from an input to a folder of shards, with interruption and resuming.

`run` is the public entry point: it opens the input and the engine, and calls `run_job`, which
scores all shards that are not finished. Scoring is in the engines, writing in `store`.
"""

import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, get_args

from attnflow.corpus.example import Example, Rejected, Result
from attnflow.corpus.journal import Entry, agree
from attnflow.corpus.local_engine import Report, find_device, run_local
from attnflow.corpus.manifest import (
    Manifest,
    checksum_model,
    ensure_manifest,
    installed_versions,
    join_checksums,
)
from attnflow.corpus.readers import Source, open_source
from attnflow.corpus.settings import SHARD_SIZE, EngineName, Format, RunSettings, Settings
from attnflow.corpus.status import Counter, OnStatus, Summary, summarize
from attnflow.corpus.store import (
    MAX_SHARDS,
    Folder,
    Shard,
    global_lock,
    is_only_run,
    shard_lock,
    split_shards,
    write_shard,
)
from attnflow.errors import (
    AttnflowError,
    FileError,
    InputError,
    check_choice,
    check_count,
    check_function,
    check_path,
    check_text,
    quote,
)
from attnflow.storage import DiskError

KEPT = "All finished shards are kept."
Shards: TypeAlias = tuple[int, int | None]  # the first shard, and the one after the last
# Takes the examples of each shard, and yields the results of each shard in the same order.
Engine: TypeAlias = Callable[
    [RunSettings, Iterable[list[Example]], Report], Generator[list[Result], None, None]
]


def run(  # noqa: PLR0913 - one argument for each option
    data: Any,
    out: str | Path,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    format: Format | None = None,
    input_id: str | None = None,
    shard_size: int = SHARD_SIZE,
    shards: Shards | None = None,
    engine: EngineName = "local",
    threads: int | None = None,
    workers: int | None = None,
    address: str | None = None,
    strict: bool = False,
    accept_versions: bool = False,
    on_status: OnStatus | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> Summary:
    """Score every text of an input, and write the scores to a folder as Parquet shards.

    Interrupted runs resume: call `run` again with the same arguments.

    data, text_column, id_column, format, input_id: the input, as in `open_source`.
    out: the folder, new or of an interrupted run.
    shard_size: rows in a shard. shards: first shard, and one after the last; all if not given.
    engine: "local", this machine, with `threads`; or "ray", with `workers` on a cluster at
    `address` ("local" starts a cluster, "auto" finds a running one).
    strict: whether to stop at the first invalid row, instead of recording it as rejected.
    accept_versions: whether to resume with other library versions.
    on_status: called with a `Status` after each batch. stop: called before each shard; the run
    stops if it returns True.
    settings: the model and the scores to compute; see `Settings`.
    Raises InputError if the folder was created with other settings, another model or another input,
    or if another run writes to it; DiskError if the disk is full; AttnflowError for an invalid row
    in a strict run. All finished shards are kept.

    >>> from tempfile import TemporaryDirectory
    >>> from attnflow.corpus import check, open_corpus
    >>> with TemporaryDirectory() as out:
    ...     summary = run(["the key to the cabinets", ""], out, methods=("rollout",))
    ...     complete = check(out).complete
    ...     [example] = open_corpus(out).examples()
    ...     [rejected] = open_corpus(out).rejected()
    >>> summary.rows, complete, rejected["why"]
    (2, True, 'empty')
    >>> example.scores["rollout"].shape  # layers, positions, tokens
    (6, 1, 6)
    """
    chosen = Settings.from_options(settings)  # reports invalid values before anything starts
    return run_settings(
        data,
        out,
        chosen,
        columns=(text_column, id_column),
        fields=chosen.fields,
        paths=() if chosen.image_column is None else (chosen.image_column,),
        format=format,
        input_id=input_id,
        shard_size=shard_size,
        shards=shards,
        engine=engine,
        threads=threads,
        workers=workers,
        address=address,
        strict=strict,
        accept_versions=accept_versions,
        on_status=on_status,
        stop=stop,
    )


def run_settings(  # noqa: PLR0913 - one argument for each option
    data: Any,
    out: str | Path,
    settings: RunSettings,
    *,
    columns: tuple[str | None, str | None] = (None, None),
    fields: Sequence[str] = (),
    paths: Sequence[str] = (),
    limit: int | None = None,
    format: Format | None = None,
    input_id: str | None = None,
    shard_size: int = SHARD_SIZE,
    shards: Shards | None = None,
    engine: EngineName = "local",
    threads: int | None = None,
    workers: int | None = None,
    address: str | None = None,
    strict: bool = False,
    accept_versions: bool = False,
    on_status: OnStatus | None = None,
    stop: Callable[[], bool] | None = None,
) -> Summary:
    """Run any kind of settings over an input; see `run` for the other options.

    columns: of texts and of IDs. fields: further columns of the input that the settings need;
    paths: those with paths of files.
    limit: only the first rows of the input.
    """
    check_path(out, "out")
    if shard_size is None:
        raise InputError("shard_size is None", expected="1 or more", fix=f"Use {SHARD_SIZE}.")
    for name, number in {"shard_size": shard_size, "threads": threads, "workers": workers}.items():
        check_count(name, number)
    for name, function in {"on_status": on_status, "stop": stop}.items():
        check_function(name, function)
    check_text("address", address)
    selected = _resolve_shards(shards)
    with open_engine(engine, threads=threads, workers=workers, address=address) as (
        compute,
        device,
    ):
        settings = _make_absolute(settings.resolve(device))
        model = checksum_model(settings)
        source = open_source(
            data,
            text_column=columns[0],
            id_column=columns[1],
            format=format,
            input_id=input_id,
            fields=fields,
            paths=paths,
        )
        job = Job(
            source=source if limit is None else source.first(limit),
            folder=Folder(Path(out)),
            settings=settings.resolve_edges(),
            model=model,
            columns=columns,
            shard_size=shard_size,
            shards=selected,
            strict=strict,
            accept_versions=accept_versions,
        )
        return run_job(job, compute, on_status=on_status, stop=stop)


@dataclass(frozen=True)
class Job:
    """The work of a run.

    model: the checksums of the model's files. columns: of texts and of IDs, if requested.
    shards: the shards to compute. strict: whether to stop at the first invalid row.
    accept_versions: as in `ensure_manifest`.
    """

    source: Source
    folder: Folder
    settings: RunSettings
    model: dict[str, str]
    columns: tuple[str | None, str | None] = (None, None)
    shard_size: int = SHARD_SIZE
    shards: range = range(MAX_SHARDS)
    strict: bool = False
    accept_versions: bool = False


def run_job(
    job: Job,
    engine: Engine,
    *,
    on_status: OnStatus | None = None,
    stop: Callable[[], bool] | None = None,
) -> Summary:
    """Run a job: check the manifest, hold the lock, and compute the shards that are missing."""
    try:
        return _run_locked(job, engine, on_status, stop or (lambda: False))
    except DiskError as error:
        raise DiskError(error.given, error.expected, f"{error.fix} {KEPT}") from error


def _run_locked(
    job: Job, engine: Engine, on_status: OnStatus | None, stop: Callable[[], bool]
) -> Summary:
    folder = job.folder
    folder.create(type(job.settings))
    with shard_lock(folder, job.shards):
        with global_lock(folder):
            # Settings are locked once the first shard is finished.
            locked = folder.has_finished_shards() or not is_only_run(folder, job.shards)
            ensure_manifest(
                folder.manifest,
                _make_manifest(job),
                accept_versions=job.accept_versions,
                restart=None if locked else folder.clear,
            )
        folder.remove_temporary(job.shards)
        entries = list(folder.entries())
        _check_total(job, entries)
        finished = {entry.shard: entry for entry in entries if entry.shard in job.shards}
        counter = Counter(
            on_status,
            _count_rows(job, folder.total() or job.source.count),
            before=sum(entry.rows for entry in finished.values()),
            rejected=sum(entry.rejected for entry in finished.values()),
        )
        rows = {number: entry.rows for number, entry in finished.items()}
        loop = _Loop(job, engine, counter, rows, stop)
        loop.run()
        complete = loop.at_end and not loop.stopped
        return summarize(folder, counter, complete=complete, interrupted=loop.stopped)


def _check_total(job: Job, entries: list[Entry]) -> None:
    """Remove the number of rows if it disagrees with the shards: the input is then read again."""
    total = job.folder.total()
    if total is not None and not agree(total, entries, job.shard_size):
        warnings.warn(
            f"{job.folder.end} does not match the finished shards: the input is read again",
            stacklevel=2,
        )
        job.folder.end.unlink(missing_ok=True)


class _Loop:
    """Feeds shards to an engine, and writes the results in order.

    finished: the number of rows of each shard that earlier runs finished.
    """

    def __init__(
        self,
        job: Job,
        engine: Engine,
        counter: Counter,
        finished: Mapping[int, int],
        stop: Callable[[], bool],
    ) -> None:
        self.job, self.engine, self.counter = job, engine, counter
        self.finished, self.stop = finished, stop
        self.waiting: deque[Shard] = deque()  # passed to the engine, results not yet received
        self.invalid: Rejected | None = None  # the first invalid row of a strict run
        self.invalid_shard: int | None = None
        self.stopped = self.at_end = False

    def run(self) -> None:
        examples = self.feed()
        first = next(examples, None)
        if first is not None:  # otherwise the model need not be loaded
            self.compute(chain([first], examples))
        if self.invalid is not None:
            self.raise_first_rejected([self.invalid])

    def compute(self, shards: Iterable[list[Example]]) -> None:
        job = self.job
        with closing(self.engine(job.settings, shards, self.counter.report)) as computed:
            for results in computed:
                shard = self.waiting.popleft()
                self.check_input_unchanged()
                if job.strict:
                    self.raise_first_rejected(results)
                    if shard.number == self.invalid_shard:
                        return
                entry = write_shard(job.folder, shard, results, job.settings, job.shard_size)
                self.counter.finish(entry, len(results))

    def feed(self) -> Iterator[list[Example]]:
        """Yield the examples of each missing shard, until the run is asked to stop."""
        for shard in self.missing_shards():
            if self.stop():
                self.stopped = True
                return
            if self.job.strict and shard.rejected:
                self.invalid, self.invalid_shard = shard.rejected[0], shard.number
                # The model may reject an earlier row of this shard.
                part = shard.before(self.invalid.example.index)
                if part.rows:
                    self.waiting.append(part)
                    yield part.examples
                return
            self.waiting.append(shard)
            yield shard.examples
        self.at_end = True

    def missing_shards(self) -> Iterable[Shard]:
        """Return the shards to compute. If there are none, the input is not read again."""
        job, total = self.job, self.job.folder.total()
        if total is not None:
            end = min(-(-total // job.shard_size), job.shards.stop)
            if all(number in self.finished for number in range(job.shards.start, end)):
                return []
        return split_shards(
            job.source.rows(),
            job.shard_size,
            wanted=lambda number, rows: number in job.shards and self.finished.get(number) != rows,
            stop=job.shards.stop,
            at_end=self.write_total,
        )

    def write_total(self, rows: int) -> None:
        """Write the number of rows, unless the input changed while it was read."""
        self.check_input_unchanged()
        self.job.folder.write_total(rows)

    def check_input_unchanged(self) -> None:
        """Raise FileError if the input changed since its checksum was computed."""
        source = self.job.source
        if not source.unchanged():
            raise FileError(
                f"{source.name} changed while it was read",
                expected="a file that stays the same during the run",
                fix="Restore it, or start a new run in another folder.",
            )

    def raise_first_rejected(self, results: Iterable[Result]) -> None:
        """Raise AttnflowError for the first rejected row."""
        for result in results:
            if isinstance(result, Rejected):
                index, line = result.example.index, result.example.line
                place = f"row {index}" if line is None else f"line {line}"
                raise AttnflowError(
                    f"{self.job.source.name}, {place}: {result.reason}",
                    fix=f"Fix the row, or run without --strict. {KEPT}",
                )


@contextmanager
def open_engine(
    name: str,
    *,
    threads: int | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> Iterator[tuple[Engine, str]]:
    """Open an engine by name; yields it and the default device, "cuda" or "cpu".

    Raises InputError for an unknown engine or for options of the other, FileError without a
    cluster.
    """
    check_choice("engine", name, get_args(EngineName))
    if name == "local":
        if workers is not None or address is not None:
            raise InputError(
                "workers or address were given for the local engine",
                expected="these options for a cluster only",
                fix="Use --engine ray (engine='ray'), or --threads (threads=...).",
            )
        yield partial(run_local, threads=threads), find_device()
        return
    if threads is not None:
        raise InputError(
            "threads were given for the engine ray",
            expected="workers, which have one thread each",
            fix="Use --workers (workers=...).",
        )
    from attnflow.corpus.ray_engine import connect, run_on_cluster

    with connect(address) as device:
        yield partial(run_on_cluster, workers=workers), device


def _resolve_shards(shards: Shards | None) -> range:
    first, end = (0, None) if shards is None else shards if _is_pair(shards) else (-1, None)
    end = MAX_SHARDS if end is None else end
    if not 0 <= first < end <= MAX_SHARDS:
        raise InputError(
            f"shards is {f'{first}:{end}' if _is_pair(shards) else quote(shards)}",
            expected="the first shard and the one after the last, counted from 0",
            fix="For the first hundred: --shards 0:100 (shards=(0, 100)).",
        )
    return range(first, end)


def _is_pair(shards: Any) -> bool:
    """Whether these are two whole numbers, the second perhaps None."""
    if not isinstance(shards, tuple | list) or len(shards) != 2:
        return False
    first, end = shards
    return type(first) is int and (end is None or type(end) is int)


def _make_absolute(settings: Any) -> Any:
    """Make the paths of model and tokenizer absolute, for workers and runs in other folders."""
    model, tokenizer = (
        str(Path(name).absolute()) if name is not None and Path(name).is_dir() else name
        for name in (settings.model, settings.tokenizer)
    )
    return replace(settings, model=model or settings.model, tokenizer=tokenizer)


def _count_rows(job: Job, total: int | None) -> int | None:
    """Return the number of rows in the shards of the job; None if it is unknown."""
    if total is None:
        return None
    first, end = (min(n * job.shard_size, total) for n in (job.shards.start, job.shards.stop))
    return end - first


def _make_manifest(job: Job) -> Manifest:
    source = job.source
    path = Path(source.name)
    return Manifest(
        settings=job.settings,
        shard_size=job.shard_size,
        input={
            "name": str(path.absolute()) if path.is_file() else source.name,
            "format": source.format,
            "checksum": source.checksum,
            "text_column": job.columns[0],
            "id_column": job.columns[1],
            **({"told_by": "input_id"} if source.has_input_id else {}),
        },
        model={"sha256": join_checksums(job.model), "files": job.model},
        versions=(installed_versions(),),
    )
