"""From an input to a folder of shards, in one call."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from attnflow.corpus.engines import open_engine
from attnflow.corpus.folder import Folder
from attnflow.corpus.identity import checksums
from attnflow.corpus.job import SHARD_SIZE, Job, work
from attnflow.corpus.locking import ENDLESS
from attnflow.corpus.progress import Summary, Watch
from attnflow.corpus.settings import GPU_BATCH_TOKENS, Settings, Truncate, WhichPositions
from attnflow.corpus.source import Format, open_source
from attnflow.errors import InputError

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
        raise InputError(f"shard_size is {shard_size}; expected 1 or more. Use {SHARD_SIZE}.")
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
            f"shards is {first}:{after}; expected a first shard and one after the last, counted "
            "from 0, such as 0:100. Give them like that."
        )
    return range(first, after)
