"""Scores as Parquet: one row for each example, position and layer. docs/corpus.md has the schema.

The same results give the same bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any

import numpy as np

from attnflow.corpus.example import Outcome, Scored
from attnflow.corpus.manifest import SCHEMA
from attnflow.corpus.packages import import_pyarrow
from attnflow.corpus.settings import Settings

# Of one row group, which is what is held in memory twice:
CELLS = 2**22  # scores of one method
CHARACTERS = 2**26  # of texts and tokens, which are there again in every row
REPEATED = ("index", "id", "line", "text", "tokens.list.element", "prediction", "prediction_kind")


def schema_of(settings: Settings) -> Any:
    """The columns of a shard, as an Arrow schema."""
    pa = import_pyarrow("writing a corpus")
    scores = pa.list_(pa.float32())
    columns = [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("line", pa.int64()),
        pa.field("text", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.string()), nullable=False),
        pa.field("special", pa.list_(pa.bool_()), nullable=False),
        pa.field("explained", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("layer", pa.int32(), nullable=False),
        *_outcome_fields(pa, "prediction"),
        *(_outcome_fields(pa, "target") if settings.target is not None else []),
        *(pa.field(name, scores, nullable=False) for name in settings.methods),
        *(pa.field(name, scores, nullable=False) for name in settings.importance),
    ]
    return pa.schema(columns, metadata={"attnflow.schema": str(SCHEMA)})


def _outcome_fields(pa: Any, name: str) -> list[Any]:
    return [
        pa.field(name, pa.string()),
        pa.field(f"{name}_index", pa.int64()),
        pa.field(f"{name}_kind", pa.string()),
        pa.field(f"{name}_probability", pa.float64()),
    ]


def write_parquet(file: IO[bytes], results: Sequence[Scored], settings: Settings) -> None:
    """Write results, in the order given, as one Parquet file."""
    pa = import_pyarrow("writing a corpus")
    schema = schema_of(settings)
    with pa.parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=[name for name in REPEATED if name.split(".")[0] in schema.names],
        write_statistics=True,
        store_schema=True,
        write_page_checksum=True,  # so that any reader may see that a page is damaged
    ) as writer:
        for group in _groups(results):
            writer.write_table(_table(pa, schema, group, settings))


def _groups(results: Iterable[Scored]) -> Iterator[Sequence[Scored]]:
    """Results in groups that are within the limits, at least one in each."""
    held: list[Scored] = []
    cells = characters = 0
    for piece in (piece for one in results for piece in _pieces(one)):
        rows = len(piece.layers) * len(piece.positions)
        cells += rows * len(piece.tokens)
        characters += rows * _width(piece)
        if held and (cells > CELLS or characters > CHARACTERS):
            yield held
            held, cells, characters = [], rows * len(piece.tokens), rows * _width(piece)
        held.append(piece)
    if held:
        yield held


def _pieces(one: Scored) -> Iterator[Scored]:
    """An example, or, if it is too large for one group, parts of it with some positions each.

    A position always has all of its layers in the same group.
    """
    n_layers = max(len(one.layers), 1)
    most = min(
        CELLS // max(n_layers * len(one.tokens), 1), CHARACTERS // max(n_layers * _width(one), 1)
    )
    if most >= len(one.positions):
        yield one
        return
    for start in range(0, len(one.positions), max(most, 1)):
        part = slice(start, start + max(most, 1))
        scores = {name: values[:, part] for name, values in one.scores.items()}
        yield replace(one, positions=one.positions[part], scores=scores)


def _width(one: Scored) -> int:
    """How many characters are in each row of an example."""
    return len(one.example.text) + sum(map(len, one.tokens))


def _table(pa: Any, schema: Any, results: Sequence[Scored], settings: Settings) -> Any:
    """One row for each example, position and layer, in this order."""
    rows = [len(one.positions) * len(one.layers) for one in results]
    of = pa.array(np.repeat(np.arange(len(results)), rows))  # [rows]: whose row it is

    def repeated(values: list[Any], name: str) -> Any:
        return pa.array(values, type=schema.field(name).type).take(of)

    columns = {
        "index": repeated([one.example.index for one in results], "index"),
        "id": repeated([one.example.id for one in results], "id"),
        "line": repeated([one.example.line for one in results], "line"),
        "text": repeated([one.example.text for one in results], "text"),
        "tokens": repeated([list(map(_written, one.tokens)) for one in results], "tokens"),
        "special": repeated([list(one.special) for one in results], "special"),
        "explained": repeated([one.position for one in results], "explained"),
        "position": pa.array(
            [p for one in results for p in one.positions for _ in one.layers], pa.int32()
        ),
        "layer": pa.array(
            [k for one in results for _ in one.positions for k in one.layers], pa.int32()
        ),
    }
    outcomes = {"prediction": [one.prediction for one in results]}
    if settings.target is not None:
        outcomes["target"] = [one.target for one in results]
    for name, given in outcomes.items():
        for column, values in _outcome_columns(name, given).items():
            columns[column] = repeated(values, column)
    for name in settings.methods:
        columns[name] = _lists(pa, [_by_position(one, name) for one in results])
    for name in settings.importance:
        values = [one.importance[name][None, :] for one in results]
        columns[name] = _lists(pa, values).take(of)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _by_position(one: Scored, method: str) -> Any:
    """Scores [positions * layers, tokens] out of [layers, positions, tokens]."""
    scores = np.asarray(one.scores[method], dtype=np.float32)
    return scores.transpose(1, 0, 2).reshape(-1, scores.shape[-1])


def _lists(pa: Any, arrays: Sequence[Any]) -> Any:
    """One list for each row of arrays [rows, tokens]; what is not a number is null."""
    lengths = np.concatenate([np.full(len(a), a.shape[1], dtype=np.int64) for a in arrays])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = np.concatenate([np.ravel(a) for a in arrays]).astype(np.float32, copy=False)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, from_pandas=True))


def _outcome_columns(name: str, outcomes: Sequence[Outcome | None]) -> dict[str, list[Any]]:
    return {
        name: [None if one is None else _written(one.label) for one in outcomes],
        f"{name}_index": [None if one is None else one.index for one in outcomes],
        f"{name}_kind": [None if one is None else one.kind for one in outcomes],
        f"{name}_probability": [None if one is None else one.probability for one in outcomes],
    }


def _written(token: str) -> str:
    """A token as UTF-8 can write it; halves of surrogate pairs are spelled out."""
    return token.encode("utf-8", "backslashreplace").decode("utf-8")
