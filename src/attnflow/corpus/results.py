"""A corpus that was written, read again: its examples, its refused rows, one shard at a time.

Rank correlations over a whole corpus: methods against importance, and against each other.

Examples are read a row group at a time and only sums are kept, so that memory stays flat.

One example of a corpus as a page: explained anew, with all that the viewer shows.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.corpus.manifest import Manifest, changed_files, checksums, read_manifest
from attnflow.corpus.packages import import_pyarrow
from attnflow.corpus.settings import Settings
from attnflow.corpus.store import Folder, open_folder
from attnflow.errors import FileError, InputError, SelectionError
from attnflow.evaluation.correlation import spearman
from attnflow.explainer import explain
from attnflow.viewer.page import to_html

GRAPH = ("heads", "residual_weight", "edges", "normalize")  # settings that scores are shown with


@dataclass(frozen=True, eq=False)
class Stored:
    """An example as it is stored.

    scores: [layers, positions, tokens] by method. importance: [tokens] by name, NaN where unknown.
    explained: the position that the model predicts at, or is explained from.
    settings: those of the corpus.
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

    def choose(self, position: int | None) -> int:
        """The position to look at: the explained one if none is given, or the first that is held.

        Raises SelectionError if there are no scores of it.
        """
        if position is None:
            return self.explained if self.explained in self.positions else self.positions[0]
        place = position + len(self.tokens) if position < 0 else position
        if place not in self.positions:
            raise SelectionError(
                f"position {position} was not scored",
                expected=f"one of {', '.join(map(str, self.positions))}",
                fix="Choose one of these.",
            )
        return place

    def attribution(self, method: str, *, position: int | None = None) -> Attribution:
        """The scores of a method at a position, all positions if none is given.

        Those of importance are of the last layer and the explained position alone.
        """
        if method in self.scores:
            chosen = self.positions if position is None else (position,)
            axes = [self.positions.index(place) for place in chosen]
            scores = self.scores[method][:, axes]
            given = {name: getattr(self.settings, name) for name in GRAPH}
            return Attribution(scores, self.tokens, method, self.layers, chosen, settings=given)
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
    """A corpus that was written by `attnflow.corpus.run`, whole or in part."""

    folder: Folder
    manifest: Manifest

    def examples(self) -> Iterator[Stored]:
        """All examples in the order of the input, a row group at a time."""
        for entry in self.folder.entries():
            yield from _read(self.folder.parquet(entry.shard), self.manifest)

    def find(self, name: str | int) -> Stored:
        """The first example with this id, or the one with this index, if it is a number.

        Raises SelectionError if there is none.
        """
        column = "index" if isinstance(name, int) else "id"
        for entry in self.folder.entries():
            path = self.folder.parquet(entry.shard)
            found = next(_read(path, self.manifest, (column, name)), None)
            if found is not None:
                return found
        for refused in self.refused():
            if refused[column] == name:
                raise SelectionError(
                    f"the example {name!r} was refused: {refused['reason']} Expected one that was "
                    "scored. `attnflow corpus errors` lists the others."
                )
        raise SelectionError(
            f"there is no example {name!r} in {self.folder.path}",
            expected="an id of the input, which is the index of the row if it has none, or an "
            "index with --index",
            fix="Give one that is there.",
        )

    def refused(self) -> Iterator[dict[str, Any]]:
        """The rows that were refused, in the order of the input: index, id, line, why, reason."""
        for entry in self.folder.entries():
            if entry.errors is not None:
                with self.folder.errors(entry.shard).open(encoding="utf-8") as lines:
                    yield from map(json.loads, lines)


def open_corpus(out: str | Path) -> Corpus:
    """Open a folder that `attnflow.corpus.run` wrote. Raises FileError if it is none."""
    folder = open_folder(out)
    return Corpus(folder, read_manifest(folder.manifest))


def row_groups(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """The tables of a shard, one at a time. Raises FileError if it is damaged."""
    pa = import_pyarrow("reading a corpus")
    try:
        with pa.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(
            f"{path} cannot be read ({why})",
            expected="a shard as it was written",
            fix=f"Compute it again: attnflow corpus check {path.parent.parent} --repair",
        ) from error


def _read(
    path: Path, manifest: Manifest, only: tuple[str, str | int] | None = None
) -> Iterator[Stored]:
    """The examples of a shard. only: a column and what it must hold, such as ("id", "a")."""
    held: list[dict[str, Any]] = []
    for row in _rows(path, only):
        if held and row["index"] != held[0]["index"]:
            yield _join(held, manifest)
            held = []
        held.append(row)
    if held:
        yield _join(held, manifest)


def _rows(path: Path, only: tuple[str, str | int] | None) -> Iterator[dict[str, Any]]:
    """The rows of a shard; those of a large example may lie in several row groups."""
    if only is None:
        for group in row_groups(path):
            yield from group.to_pylist()
        return
    column, wanted = only
    values = (group.column(column).to_pylist() for group in row_groups(path, [column]))
    if any(wanted in held for held in values):
        compute = import_module("pyarrow.compute")
        for group in row_groups(path):
            yield from group.filter(compute.equal(group.column(column), wanted)).to_pylist()


def _join(rows: list[dict[str, Any]], manifest: Manifest) -> Stored:
    """The rows of one example, which are ordered by position and layer."""
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


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Agreement:
    """Spearman's rho between a method and another score of the explained position, per layer.

    mean, sd: [layers], over the examples. n: [layers], how many. left_out: [layers], how many had
    no order to compare, such as texts of fewer than three tokens.
    """

    method: str
    against: str
    layers: tuple[int, ...]
    mean: Floats
    sd: Floats
    n: NDArray[np.int64]
    left_out: NDArray[np.int64]


def correlate(
    corpus: Corpus,
    *,
    special: Literal["show", "hide"] = "show",
    progress: Callable[[int, int], None] | None = None,
) -> list[Agreement]:
    """Correlate every method with every importance score, and with every other method.

    Of importance the absolute value counts, as in the paper's tables: a token that speaks against
    the prediction matters too.
    special: "hide" leaves special tokens such as [CLS] out of the ranks.
    progress: called with shards done and shards in all.
    Raises InputError if there is nothing to compare.
    """
    settings = corpus.manifest.settings
    pairs = [(m, i) for i in settings.importance for m in settings.methods]
    pairs += list(combinations(settings.methods, 2))
    if not pairs:
        raise InputError(
            f"{corpus.folder.path} holds {', '.join(settings.methods + settings.importance)} only",
            expected="two scores to compare",
            fix="Run it with --importance blank_out, or two methods.",
        )
    sums = {pair: _Sums() for pair in pairs}
    layers: tuple[int, ...] = ()
    entries = list(corpus.folder.entries())
    columns = ["explained", "position", "layer", "special", *_scores_in(pairs)]
    for done, entry in enumerate(entries, start=1):
        for group in row_groups(corpus.folder.parquet(entry.shard), columns):
            layers = _add_group(group, pairs, sums, special) or layers
        if progress is not None:
            progress(done, len(entries))
    if not any(entry.rows > entry.refused for entry in entries):
        raise InputError(
            f"{corpus.folder.path} has no scored examples",
            expected="some to compare. `attnflow corpus errors` says why rows were refused.",
        )
    if not layers:
        raise InputError(
            f"{corpus.folder.path} has no scores of the explained position",
            expected="them",
            fix="Run it with --positions explained, or all.",
        )
    return [sums[pair].agreement(*pair, layers) for pair in pairs]


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
        # rho lies in [-1, 1], so that nothing is lost by this form of the variance.
        sd = np.sqrt(np.maximum(self.squares / divisor - np.square(mean), 0.0))
        return Agreement(method, against, layers, mean, sd, self.n, self.left_out)


def _scores_in(pairs: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for pair in pairs for name in pair))


def _add_group(
    group: Any,
    pairs: list[tuple[str, str]],
    sums: dict[tuple[str, str], _Sums],
    special: str,
) -> tuple[int, ...]:
    """Add the examples of a row group; gives the numbers of its layers, if it has any."""
    pa = import_pyarrow("reading a corpus")
    explained = _numbers(group, "position") == _numbers(group, "explained")
    group = group.filter(pa.array(explained))
    layers = tuple(dict.fromkeys(_numbers(group, "layer").tolist()))
    if not layers:
        return ()
    for arrays, hidden in _by_length(group, _scores_in(pairs), len(layers)):
        for method, against in pairs:
            first, second = arrays[method], np.abs(arrays[against])  # [examples, layers, tokens]
            keep = ~np.isnan(first[:, 0]) & ~np.isnan(second[:, 0])
            if special == "hide":
                keep &= ~hidden
            for chosen, columns in _same(keep):
                rho = spearman(first[chosen][..., columns], second[chosen][..., columns])
                sums[method, against].add(rho)
    return layers


def _by_length(
    group: Any, names: list[str], n_layers: int
) -> Iterator[tuple[dict[str, Floats], NDArray[np.bool_]]]:
    """Scores [examples, layers, tokens] by name, and which tokens are special, for each length."""
    flat = {name: _lists(group, name) for name in [*names, "special"]}
    lengths = np.diff(flat["special"][1])[::n_layers]
    for n in np.unique(lengths):
        examples = np.flatnonzero(lengths == n)
        rows = examples[:, None] * n_layers + np.arange(n_layers)
        arrays = {}
        for name, (values, offsets) in flat.items():
            arrays[name] = values[offsets[rows][..., None] + np.arange(n)]
        yield arrays, arrays.pop("special")[:, 0].astype(bool)


def _same(keep: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Examples that keep the same tokens, and these tokens. keep: [examples, tokens]."""
    kinds, of = np.unique(keep, axis=0, return_inverse=True)
    for kind, columns in enumerate(kinds):
        yield np.flatnonzero(of.reshape(-1) == kind), np.flatnonzero(columns)


def _numbers(group: Any, name: str) -> NDArray[Any]:
    return np.asarray(group.column(name).to_numpy())


def _lists(group: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of all lists of a column, one after the other, and where each begins."""
    column = group.column(name).combine_chunks()
    values = column.values.to_numpy(zero_copy_only=False)
    return values, np.asarray(column.offsets.to_numpy(), dtype=np.int64)


def write_page(manifest: Manifest, text: str, path: str | Path) -> Path:
    """Explain a text as the corpus did, on the processor, and write it to one HTML file.

    Raises FileError if the file cannot be written, or the model is no longer there; InputError if
    it is another model by now.
    """
    settings = manifest.settings
    changed = changed_files(manifest.model["files"], checksums(settings))
    if changed:
        raise InputError(
            f"the model {settings.model} has other files than the corpus was computed with: "
            f"{changed}",
            expected="the same",
            fix="Put them back, or look at the scores that are stored, without --html.",
        )
    heads: Any = settings.heads
    edges: Any = settings.edges
    explanation = explain(
        text,
        settings.model,
        tokenizer=settings.tokenizer,
        target=settings.target,
        residual_weight=settings.residual_weight,
        heads=heads,
        edges=edges,
        truncate=settings.truncate,
    )
    return to_html(path, explanation)
