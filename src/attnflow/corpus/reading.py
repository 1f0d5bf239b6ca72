"""A corpus that was written, read again: its examples, its refused rows, one shard at a time."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.corpus.folder import Folder, open_folder
from attnflow.corpus.manifest import Manifest, read_manifest
from attnflow.corpus.packages import import_pyarrow
from attnflow.corpus.settings import Settings
from attnflow.errors import FileError, SelectionError

GRAPH = ("heads", "residual_weight", "edges", "normalise")  # settings that scores are shown with


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
                f"position {position} was not scored; expected one of "
                f"{', '.join(map(str, self.positions))}. Choose one of these."
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
            f"there is no example {name!r} in {self.folder.path}; expected an id of the input, "
            "which is the index of the row if it has none, or an index with --index. Give one that "
            "is there."
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
            f"{path} cannot be read ({why}); expected a shard as it was written. Compute it again: "
            f"attnflow corpus check {path.parent.parent} --repair"
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
