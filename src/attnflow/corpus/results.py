"""Results of a corpus: its examples, its rejected rows, rank correlations, and HTML pages.

`open_corpus` reads a folder, one row group at a time. `correlate` compares methods with importance
scores and with each other; it keeps only sums, so memory does not grow with the corpus.
`write_page` explains one example again, with everything that the viewer shows.
"""

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.corpus.manifest import Manifest, changed_files, checksum_model, read_manifest
from attnflow.corpus.settings import Settings
from attnflow.corpus.store import Folder, open_folder
from attnflow.errors import FileError, InputError, SelectionError, first_line
from attnflow.evaluation.correlation import Sign, apply_sign, spearman
from attnflow.explainer import explain
from attnflow.optional import import_optional
from attnflow.progress import Progress
from attnflow.viewer.page import to_html

# The settings that an Attribution records.
GRAPH_SETTINGS = ("heads", "residual_weight", "edges", "normalize")
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stored:
    """A stored example.

    scores: [layers, positions, tokens] by method. importance: [tokens] by name, NaN where unknown.
    explained: the position of the prediction. settings: those of the corpus.
    """

    index: int
    id: str
    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    explained: int
    positions: tuple[int, ...]
    layers: tuple[int, ...]
    prediction: str | None
    probability: float | None
    kind: str | None
    scores: dict[str, NDArray[np.float32]]
    importance: dict[str, NDArray[np.float32]]
    settings: Settings

    def choose_position(self, position: int | None) -> int:
        """Return the index of a position; by default the explained one, or the first with scores.

        Raises SelectionError if the position has no scores.
        """
        if position is None:
            return self.explained if self.explained in self.positions else self.positions[0]
        place = position + len(self.tokens) if position < 0 else position
        if place not in self.positions:
            raise SelectionError(
                f"position {position} was not scored",
                expected=f"one of {', '.join(map(str, self.positions))}",
                fix="Use one of these positions.",
            )
        return place

    def attribution(self, method: str, *, position: int | None = None) -> Attribution:
        """Return the scores of a method or an importance score, at one position or at all.

        Importance scores have the last layer and the explained position only.
        """
        if method in self.scores:
            positions = self.positions if position is None else (position,)
            axes = [self.positions.index(place) for place in positions]
            return Attribution(
                scores=self.scores[method][:, axes],
                tokens=self.tokens,
                method=method,
                layers=self.layers,
                positions=positions,
                settings={
                    **{name: getattr(self.settings, name) for name in GRAPH_SETTINGS},
                    "residual_weight": self.settings.describe_residual(),
                },
            )
        values = self.importance[method]
        known = np.flatnonzero(~np.isnan(values))
        return Attribution(
            scores=values[known][None, None, :],
            tokens=self.tokens,
            method=method,
            layers=(self.layers[-1],),
            positions=(self.explained,),
            columns=tuple(int(i) for i in known),
        )


@dataclass(frozen=True)
class Corpus:
    """A corpus of `attnflow.corpus.run`, complete or not."""

    folder: Folder
    manifest: Manifest

    def examples(self) -> Iterator[Stored]:
        """Yield all examples in the order of the input, reading one row group at a time."""
        for entry in self.folder.entries():
            yield from read_shard(self.folder.parquet(entry.shard), self.manifest)

    def find(self, name: str | int) -> Stored:
        """Return the first example with an ID, or with a row index if the name is an integer.

        Raises SelectionError if there is none.
        """
        column = "index" if isinstance(name, int) else "id"
        for entry in self.folder.entries():
            path = self.folder.parquet(entry.shard)
            example = next(read_shard(path, self.manifest, (column, name)), None)
            if example is not None:
                return example
        for rejected in self.rejected():
            if rejected[column] == name:
                raise SelectionError(
                    f"example {name!r} was rejected: {rejected['reason']}",
                    fix="`attnflow corpus errors` lists all rejected rows.",
                )
        incomplete = self.describe_missing()
        raise SelectionError(
            f"there is no example {name!r} in {incomplete or self.folder.path}",
            expected="an ID of the input (the row index if it has none), or an index with --index",
            fix="Use an existing ID." if not incomplete else "Resume the run, or use another ID.",
        )

    def describe_missing(self) -> str:
        """Return how much of the corpus is finished, in words; empty if it is complete."""
        n, total = sum(1 for _ in self.folder.entries()), self.folder.total()
        if total is None:
            shards = f"{n:,} shard{'' if n == 1 else 's'}"
            return f"{self.folder.path}, which is not complete: {shards} so far"
        expected = -(-total // self.manifest.shard_size)
        if n == expected:
            return ""
        return f"{self.folder.path}, which is not complete: {n:,} of {expected:,} shards"

    def rejected(self) -> Iterator[dict[str, Any]]:
        """Yield the rejected rows in the order of the input: index, id, line, why, reason, text."""
        for entry in self.folder.entries():
            if entry.errors is not None:
                with self.folder.errors(entry.shard).open(encoding="utf-8") as lines:
                    yield from map(json.loads, lines)


def open_corpus(out: str | Path) -> Corpus:
    """Open a folder of `attnflow.corpus.run`. Raises FileError if it holds no corpus.

    Warns if shards are missing, because results are then those of a part of the input.
    """
    folder = open_folder(out)
    corpus = Corpus(folder, read_manifest(folder.manifest))
    incomplete = corpus.describe_missing()
    if incomplete:
        warnings.warn(f"reading {incomplete}. `attnflow corpus check` lists them.", stacklevel=2)
    return corpus


def row_groups(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the row groups of a shard as tables. Raises FileError if it is damaged."""
    pa = import_optional("pyarrow", "reading a corpus")
    parquet = import_optional("pyarrow.parquet", "reading a corpus")
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise FileError(
            f"{path} cannot be read ({first_line(error)})",
            expected="an undamaged shard",
            fix=f"Compute it again: attnflow corpus check {path.parent.parent} --repair",
        ) from error


def read_shard(
    path: Path, manifest: Manifest, only: tuple[str, str | int] | None = None
) -> Iterator[Stored]:
    """Yield the examples of a shard. only: a column and its value, such as ("id", "a")."""
    rows: list[dict[str, Any]] = []
    for row in _read_rows(path, only):
        if rows and row["index"] != rows[0]["index"]:
            yield _join_rows(rows, manifest)
            rows = []
        rows.append(row)
    if rows:
        yield _join_rows(rows, manifest)


def _read_rows(path: Path, only: tuple[str, str | int] | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a shard; those of a large example may be in several row groups."""
    if only is None:
        for group in row_groups(path):
            yield from group.to_pylist()
        return
    column, value = only
    columns = (group.column(column).to_pylist() for group in row_groups(path, [column]))
    if any(value in values for values in columns):
        compute = import_optional("pyarrow.compute", "reading a corpus")
        for group in row_groups(path):
            yield from group.filter(compute.equal(group.column(column), value)).to_pylist()


def _join_rows(rows: list[dict[str, Any]], manifest: Manifest) -> Stored:
    """Return the example with these rows, which are ordered by position and layer."""
    first = rows[0]
    positions = tuple(dict.fromkeys(row["position"] for row in rows))
    layers = tuple(dict.fromkeys(row["layer"] for row in rows))
    settings = manifest.settings

    def scores(method: str) -> NDArray[np.float32]:
        flat = np.asarray([row[method] for row in rows], dtype=np.float32)
        return flat.reshape(len(positions), len(layers), -1).transpose(1, 0, 2)

    return Stored(
        index=first["index"],
        id=first["id"],
        text=first["text"],
        tokens=tuple(first["tokens"]),
        special=tuple(first["special"]),
        explained=first["explained"],
        positions=positions,
        layers=layers,
        prediction=first["prediction"],
        probability=first["prediction_probability"],
        kind=first["prediction_kind"],
        scores={method: scores(method) for method in settings.methods},
        importance={
            name: np.asarray(first[name], dtype=np.float32) for name in settings.importance
        },
        settings=settings,
    )


NORMAL_95 = 1.96  # standard errors of a 95 % interval


@dataclass(frozen=True, eq=False)
class Agreement:
    """Spearman's rho between a method and another score of the explained position, per layer.

    mean, sd: [layers], over the examples. n: [layers], the number of examples. left_out: [layers],
    the number of examples without ranks to compare, such as texts of fewer than three tokens.
    """

    method: str
    against: str
    layers: tuple[int, ...]
    mean: Floats
    sd: Floats
    n: NDArray[np.int64]
    left_out: NDArray[np.int64]

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """The ends of the 95 % confidence intervals of the means, [layers], by standard errors."""
        error = NORMAL_95 * self.sd / np.sqrt(np.maximum(self.n - 1, 1))
        return self.mean - error, self.mean + error


def correlate(
    corpus: Corpus,
    *,
    special: Literal["show", "hide"] = "show",
    sign: Sign = "absolute",
    progress: Progress | None = None,
) -> list[Agreement]:
    """Correlate every method with every importance score, and with every other method.

    sign: as in `attnflow.evaluation.rank_correlation`; the corpus itself has signed scores.
    special: "hide" leaves special tokens such as [CLS] out of the ranks.
    progress: called with the numbers of finished shards and of all shards.
    Raises InputError if there is nothing to compare.
    """
    pairs = _find_pairs(corpus)
    sums = {pair: _Sums() for pair in pairs}
    layers: tuple[int, ...] = ()
    entries = list(corpus.folder.entries())
    columns = ["explained", "position", "layer", "special", *_names_in(pairs)]
    for done, entry in enumerate(entries, start=1):
        for group in row_groups(corpus.folder.parquet(entry.shard), columns):
            layers = _add_group(group, pairs, sums, special, sign) or layers
        if progress is not None:
            progress(done, len(entries))
    if not any(entry.rows > entry.rejected for entry in entries):
        raise InputError(
            f"{corpus.folder.path} has no scored examples",
            expected="at least one",
            fix="`attnflow corpus errors` lists the rejected rows with reasons.",
        )
    if not layers:
        raise InputError(
            f"{corpus.folder.path} has no scores of the explained position",
            expected="scores of this position, to compare",
            fix="Run it with --positions explained, or all.",
        )
    return [sums[pair].agreement(*pair, layers) for pair in pairs]


def _find_pairs(corpus: Corpus) -> list[tuple[str, str]]:
    """Return the pairs of scores to compare: a method first."""
    settings = corpus.manifest.settings
    pairs = [(m, i) for i in settings.importance for m in settings.methods]
    pairs += list(combinations(settings.methods, 2))
    if not pairs:
        raise InputError(
            f"{corpus.folder.path} has only {', '.join(settings.methods + settings.importance)}",
            expected="two scores to compare",
            fix="Run it with --importance blank_out, or with two methods.",
        )
    return pairs


@dataclass
class _Sums:
    """Sums of rho and of its square, [layers]: enough for mean and standard deviation."""

    n: Any = 0
    left_out: Any = 0
    total: Any = 0.0
    squares: Any = 0.0

    def add(self, rho: Floats) -> None:
        """Add rho [examples, layers]."""
        known = ~np.isnan(rho)
        filled = np.where(known, rho, 0.0)
        self.n = self.n + known.sum(axis=0)
        self.left_out = self.left_out + (~known).sum(axis=0)
        self.total = self.total + filled.sum(axis=0)
        self.squares = self.squares + np.square(filled).sum(axis=0)

    def agreement(self, method: str, against: str, layers: tuple[int, ...]) -> Agreement:
        divisor = np.where(self.n > 0, self.n, np.nan)
        mean = self.total / divisor
        # rho is in [-1, 1], so this form of the variance is accurate enough.
        sd = np.sqrt(np.maximum(self.squares / divisor - np.square(mean), 0.0))
        return Agreement(method, against, layers, mean, sd, self.n, self.left_out)


def _names_in(pairs: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for pair in pairs for name in pair))


def _add_group(
    group: Any,
    pairs: list[tuple[str, str]],
    sums: dict[tuple[str, str], _Sums],
    special: str,
    sign: Sign,
) -> tuple[int, ...]:
    """Add the examples of a row group; returns its layers, empty if it has no such rows."""
    pa = import_optional("pyarrow", "reading a corpus")
    explained = _numbers(group, "position") == _numbers(group, "explained")
    group = group.filter(pa.array(explained))
    layers = tuple(dict.fromkeys(_numbers(group, "layer").tolist()))
    if not layers:
        return ()
    for arrays, hidden in _by_length(group, _names_in(pairs), len(layers)):
        for method, against in pairs:
            # [examples, layers, tokens]
            first, second = (apply_sign(arrays[name], sign) for name in (method, against))
            keep = ~np.isnan(first[:, 0]) & ~np.isnan(second[:, 0])
            if special == "hide":
                keep &= ~hidden
            for examples, tokens in _by_tokens(keep):
                rho = spearman(first[examples][..., tokens], second[examples][..., tokens])
                sums[method, against].add(rho)
    return layers


def _by_length(
    group: Any, names: list[str], n_layers: int
) -> Iterator[tuple[dict[str, Floats], NDArray[np.bool_]]]:
    """Yield scores [examples, layers, tokens] by name, and special tokens, for each length."""
    flat = {name: _lists(group, name) for name in [*names, "special"]}
    lengths = np.diff(flat["special"][1])[::n_layers]
    for n in np.unique(lengths):
        examples = np.flatnonzero(lengths == n)
        rows = examples[:, None] * n_layers + np.arange(n_layers)
        arrays = {}
        for name, (values, offsets) in flat.items():
            arrays[name] = values[offsets[rows][..., None] + np.arange(n)]
        yield arrays, arrays.pop("special")[:, 0].astype(bool)


def _by_tokens(keep: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Group examples that keep the same tokens; yields both as indices.

    keep: [examples, tokens].
    """
    patterns, pattern_of = np.unique(keep, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        yield np.flatnonzero(pattern_of.reshape(-1) == i), np.flatnonzero(pattern)


def _numbers(group: Any, name: str) -> NDArray[Any]:
    return np.asarray(group.column(name).to_numpy())


def _lists(group: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the concatenated values of a column of lists, and the offset of each list."""
    column = group.column(name).combine_chunks()
    values = column.values.to_numpy(zero_copy_only=False)
    return values, np.asarray(column.offsets.to_numpy(), dtype=np.int64)


def write_page(manifest: Manifest, text: str, path: str | Path) -> Path:
    """Explain a text with the settings of the corpus, and write it to an HTML file.

    Raises FileError if the file cannot be written or the model no longer exists, InputError if the
    model changed.
    """
    settings = manifest.settings
    changed = changed_files(manifest.model["files"], checksum_model(settings))
    if changed:
        raise InputError(
            f"the model {settings.model} changed since the run: {changed}",
            expected="the same files",
            fix="Restore them, or print the stored scores without --html.",
        )
    heads: Any = settings.heads
    edges: Any = settings.edges
    residual: Any = settings.residual_weight
    explanation = explain(
        text,
        settings.model,
        tokenizer=settings.tokenizer,
        target=settings.target,
        residual_weight=residual,
        heads=heads,
        edges=edges,
        truncate=settings.truncate,
    )
    return to_html(path, explanation)
