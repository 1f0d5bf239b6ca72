"""Studies: run one with `evaluate`, and read its values with `open_study`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os.path import isdir
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.corpus.job import Shards, run_settings
from attnflow.corpus.manifest import Manifest, read_manifest
from attnflow.corpus.settings import EngineName, Format
from attnflow.corpus.status import OnStatus, Summary
from attnflow.corpus.store import Folder, open_folder
from attnflow.errors import InputError, SelectionError
from attnflow.evaluation.orders import tie_ranks
from attnflow.optional import import_optional
from attnflow.study.design import Design

SHARD_SIZE = 1  # a text takes seconds: a killed run loses one
# Columns of the values that are no metrics; see `values`.
TEXT_COLUMNS = ("index", "id", "text", "label", "probability", "tokens", "evidence")


def evaluate(  # noqa: PLR0913 - one argument for each option
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
    **design: Any,
) -> Summary:
    """Measure how well explanations explain a model on a data set, and write the values.

    Interrupted runs resume: call `evaluate` again with the same arguments. Read the values with
    `open_study(out)`.

    data: the input, as in `attnflow.corpus.run`; a list of texts, or of mappings with "text" and
    the columns of the design; or, for vision models, a folder of images or a list of their paths.
    out: the folder, new or of an interrupted run. The other options are those of
    `attnflow.corpus.run`. design: the model, and what is compared; see `Design`.
    Raises InputError as `attnflow.corpus.run` does.

    >>> from tempfile import TemporaryDirectory
    >>> texts = ["the key to the cabinets", "the dogs near the old tree"]
    >>> with TemporaryDirectory() as out:
    ...     summary = evaluate(texts, out, edges="attention", explainers="none", threads=1)
    ...     table = open_study(out).table("comprehensiveness")
    >>> summary.rows, table.row("random").n
    (2, 2)
    """
    chosen = Design.from_options(design)  # reports invalid values before anything starts
    if is_folder(data):
        data = list_images(data)
    elif isinstance(data, list) and not chosen.fields:  # without columns, only texts are read
        data = [row["text"] if isinstance(row, Mapping) and "text" in row else row for row in data]
    return run_settings(
        data,
        out,
        chosen,
        columns=(text_column, id_column),
        fields=chosen.fields,
        limit=chosen.limit,
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


IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def is_folder(data: Any) -> bool:
    """Whether the input is a folder."""
    return isinstance(data, str | Path) and isdir(data)  # noqa: PTH112 - no error if it is long


def list_images(folder: str | Path) -> list[str]:
    """Return the paths of the images in a folder, sorted. Raises InputError if there are none."""
    paths = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    if not paths:
        raise InputError(
            f"the folder {folder} has no images",
            expected=f"files that end in {', '.join(IMAGE_SUFFIXES)}",
            fix="For texts, pass a file.",
        )
    return [str(path) for path in paths]


@dataclass(frozen=True, eq=False)
class Study:
    """The values of a study.

    columns: [rows] by name, as `attnflow.study.values` writes them. design: its settings.
    complete: whether all texts are evaluated. rejected: texts that could not be.
    """

    design: Design
    columns: Mapping[str, Any]
    complete: bool
    rejected: int
    folder: Path
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def n_texts(self) -> int:
        """The number of evaluated texts."""
        return len(np.unique(self.columns["index"]))

    @property
    def explainers(self) -> tuple[str, ...]:
        """The names of all explainers, in the order of the design."""
        return tuple(dict.fromkeys(self.columns["explainer"].tolist()))

    @cached_property
    def orders(self) -> tuple[int, ...]:
        """For each explainer, the first one that ranks the tokens of every text in the same way.

        Explainers that have no scores for any text are not compared.
        """
        chosen = self.columns["replacement"] == self.replacements[0]
        chosen &= self.columns["sign"] == self.columns["sign"][0]
        orders: dict[str, list[bytes]] = {name: [] for name in self.explainers}
        for i in np.flatnonzero(chosen):
            scores = self.columns["scores"][i]
            ranks = b"" if scores is None else tie_ranks(scores).tobytes()
            orders[self.columns["explainer"][i]].append(ranks)
        first: dict[Any, int] = {}
        return tuple(
            first.setdefault(tuple(order) if any(order) else name, i)
            for i, (name, order) in enumerate(orders.items())
        )

    @property
    def replacements(self) -> tuple[str, ...]:
        """How removed tokens were replaced, the default first."""
        return tuple(dict.fromkeys(self.columns["replacement"].tolist()))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics with at least one value."""
        return tuple(name for name in self.design.metrics if np.isfinite(self.columns[name]).any())

    def matrix(
        self, name: str, *, replacement: str | None = None, sign: str | None = None
    ) -> NDArray[np.float64]:
        """Return a numeric column as [texts, explainers]; nan where there is no value.

        replacement, sign: the first of the study by default.
        Raises SelectionError for an unknown one.
        """
        replacement = self.check("replacement", replacement, self.replacements)
        sign = self.check("sign", sign, self.design.signs)
        self.check("column", name, tuple(self.columns))
        key = (name, replacement, sign)
        if key not in self._cache:
            self._cache[key] = self._pivot(name, replacement, sign)
        values: NDArray[np.float64] = self._cache[key]
        return values

    def curves(
        self, first: str, *, replacement: str | None = None, sign: str | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Return the mean curve [points] of each explainer. first: "morf" or "lerf"."""
        replacement = self.check("replacement", replacement, self.replacements)
        sign = self.check("sign", sign, self.design.signs)
        chosen = (self.columns["replacement"] == replacement) & (self.columns["sign"] == sign)
        curves = {}
        for name in self.explainers:
            rows = self.columns[f"{first}_curve"][chosen & (self.columns["explainer"] == name)]
            known = [row for row in rows if row is not None]
            if known:
                curves[name] = np.mean(np.stack(known), axis=0)
        return curves

    def table(self, metric: str, **options: Any) -> Any:
        """Return the summary of a metric for all explainers; see `attnflow.study.table`."""
        from attnflow.study.table import summarize_metric

        return summarize_metric(self, metric, **options)

    def check(self, kind: str, value: str | None, known: Sequence[str]) -> str:
        """Return a name, or the first known one for None. Raises SelectionError if unknown."""
        if value is None:
            return known[0]
        if value not in known:
            raise SelectionError(
                f"{kind} is {value!r}",
                expected=f"one of {', '.join(known)}",
                fix="Use one that the study has.",
            )
        return value

    def _pivot(self, name: str, replacement: str, sign: str) -> NDArray[np.float64]:
        columns = self.columns
        chosen = (columns["replacement"] == replacement) & (columns["sign"] == sign)
        texts, rows = np.unique(columns["index"], return_inverse=True)
        places = {explainer: i for i, explainer in enumerate(self.explainers)}
        values = np.full((len(texts), len(places)), np.nan)
        cells = [places[explainer] for explainer in columns["explainer"][chosen]]
        values[rows[chosen], cells] = columns[name][chosen]
        return values


def open_study(out: str | Path) -> Study:
    """Read the values of a study, also of one that is not complete yet.

    Raises FileError if the folder holds no study, InputError if no shard is finished.
    """
    folder = open_folder(out)
    manifest = read_manifest(folder.manifest, Design)
    entries = list(folder.entries())
    if not entries:
        raise InputError(
            f"{out} has no finished shard",
            expected="at least one",
            fix="Run `attnflow evaluate` with this folder until its first shard is finished.",
        )
    rows = sum(entry.rows for entry in entries)
    return Study(
        design=manifest.settings,
        columns=_read_columns(folder, manifest),
        complete=folder.total() == rows,
        rejected=sum(entry.rejected for entry in entries),
        folder=Path(out),
    )


def _read_columns(folder: Folder, manifest: Manifest) -> dict[str, Any]:
    """Return the columns of all shards as arrays: numbers as float64, lists as objects."""
    pyarrow = import_optional("pyarrow", "reading a study")
    parquet = import_optional("pyarrow.parquet", "reading a study")
    tables = [parquet.read_table(folder.parquet(entry.shard)) for entry in folder.entries()]
    table = pyarrow.concat_tables(tables)
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name)
        if name in manifest.settings.metrics or name in ("probability", "seconds", "megabytes"):
            columns[name] = np.asarray(column.to_numpy(), dtype=np.float64)
            continue
        values = np.empty(len(column), dtype=object)
        values[:] = [
            np.asarray(value) if isinstance(value, list) else value for value in column.to_pylist()
        ]
        columns[name] = values.astype(np.int64) if name == "index" else values
    return columns
