"""Parquet files of scores: one row for each example, position and layer.

docs/corpus.md documents the columns. Equal results give equal bytes. Reading is in `results`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any

import numpy as np

from attnflow.corpus.example import Outcome, Scored
from attnflow.corpus.manifest import SCHEMA
from attnflow.corpus.settings import Settings
from attnflow.optional import import_optional

# Limits of a row group, which is held in memory twice.
CELLS = 2**22  # scores of one method
CHARACTERS = 2**26  # in texts and tokens, which are repeated in every row
# Columns with few distinct values, which are stored with a dictionary.
REPEATED = ("index", "id", "line", "text", "tokens.list.element", "prediction", "prediction_kind")


def make_schema(settings: Settings) -> Any:
    """Return the columns of a shard as an Arrow schema."""
    pa = import_optional("pyarrow", "writing a corpus")
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
        *(_answer_fields(pa) if settings.has_answers else []),
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


def _answer_fields(pa: Any) -> list[Any]:
    """Columns of answers: the text, the index of its first token, and the token of each row."""
    return [
        pa.field("answer", pa.string(), nullable=False),
        pa.field("answer_start", pa.int32(), nullable=False),
        pa.field("answer_token", pa.int32(), nullable=False),
        pa.field("answer_probability", pa.float64(), nullable=False),
    ]


def write_parquet(file: IO[bytes], results: Sequence[Scored], settings: Settings) -> None:
    """Write results as one Parquet file, in the given order."""
    pa = import_optional("pyarrow", "writing a corpus")
    parquet = import_optional("pyarrow.parquet", "writing a corpus")
    schema = make_schema(settings)
    with parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=[name for name in REPEATED if name.split(".")[0] in schema.names],
        write_statistics=True,
        store_schema=True,
        write_page_checksum=True,  # lets every reader detect a damaged page
    ) as writer:
        for group in _row_groups(results):
            writer.write_table(_make_table(pa, schema, group, settings))


def _row_groups(results: Iterable[Scored]) -> Iterator[Sequence[Scored]]:
    """Group results within the limits, at least one in each group."""
    group: list[Scored] = []
    cells = characters = 0
    for piece in (piece for result in results for piece in _split_positions(result)):
        rows = len(piece.layers) * len(piece.positions)
        cells += rows * len(piece.tokens)
        characters += rows * _count_characters(piece)
        if group and (cells > CELLS or characters > CHARACTERS):
            yield group
            group, cells, characters = [], rows * len(piece.tokens), rows * _count_characters(piece)
        group.append(piece)
    if group:
        yield group


def _split_positions(result: Scored) -> Iterator[Scored]:
    """Yield a result, or parts with some of its positions if it is too large for one row group.

    All layers of a position are in the same part.
    """
    n_layers = max(len(result.layers), 1)
    most = min(
        CELLS // max(n_layers * len(result.tokens), 1),
        CHARACTERS // max(n_layers * _count_characters(result), 1),
    )
    if most >= len(result.positions):
        yield result
        return
    for start in range(0, len(result.positions), max(most, 1)):
        part = slice(start, start + max(most, 1))
        scores = {name: values[:, part] for name, values in result.scores.items()}
        yield replace(result, positions=result.positions[part], scores=scores)


def _count_characters(result: Scored) -> int:
    """Return the number of characters in each row of an example."""
    return len(result.example.text) + sum(map(len, result.tokens))


def _make_table(pa: Any, schema: Any, results: Sequence[Scored], settings: Settings) -> Any:
    """Return one row for each example, position and layer, in this order."""
    rows = [len(r.positions) * len(r.layers) for r in results]
    example_of_row = pa.array(np.repeat(np.arange(len(results)), rows))

    def repeat(values: list[Any], name: str) -> Any:
        return pa.array(values, type=schema.field(name).type).take(example_of_row)

    columns = {
        "index": repeat([r.example.index for r in results], "index"),
        "id": repeat([r.example.id for r in results], "id"),
        "line": repeat([r.example.line for r in results], "line"),
        "text": repeat([r.example.text for r in results], "text"),
        "tokens": repeat([list(map(_escape, r.tokens)) for r in results], "tokens"),
        "special": repeat([list(r.special) for r in results], "special"),
        "explained": repeat([r.position for r in results], "explained"),
        "position": pa.array(
            [position for r in results for position in r.positions for _ in r.layers], pa.int32()
        ),
        "layer": pa.array(
            [layer for r in results for _ in r.positions for layer in r.layers], pa.int32()
        ),
    }
    outcomes = {"prediction": [r.prediction for r in results]}
    if settings.target is not None:
        outcomes["target"] = [r.target for r in results]
    for name, values in outcomes.items():
        for column, cells in _outcome_columns(name, values).items():
            columns[column] = repeat(cells, column)
    if settings.has_answers:
        columns |= _answer_columns(pa, results, repeat)
    for name in settings.methods:
        columns[name] = _list_column(pa, [_rows_by_position(r, name) for r in results])
    for name in settings.importance:
        importance = _list_column(pa, [r.importance[name][None, :] for r in results])
        columns[name] = importance.take(example_of_row)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _answer_columns(pa: Any, results: Sequence[Scored], repeat: Any) -> dict[str, Any]:
    answers = [r.answer for r in results if r.answer is not None]
    # The number of each row's token in the answer; a large example may be split by its positions.
    numbers = [
        [p - a.position for p in r.positions for _ in r.layers]
        for r, a in zip(results, answers, strict=True)
    ]
    chances = [a.probabilities[i] for a, rows in zip(answers, numbers, strict=True) for i in rows]
    return {
        "answer": repeat([_escape(a.text) for a in answers], "answer"),
        "answer_start": repeat([a.first for a in answers], "answer_start"),
        "answer_token": pa.array([i for rows in numbers for i in rows], pa.int32()),
        "answer_probability": pa.array(chances, pa.float64()),
    }


def _rows_by_position(result: Scored, method: str) -> Any:
    """Return scores [positions * layers, tokens] from [layers, positions, tokens]."""
    scores = np.asarray(result.scores[method], dtype=np.float32)
    return scores.transpose(1, 0, 2).reshape(-1, scores.shape[-1])


def _list_column(pa: Any, arrays: Sequence[Any]) -> Any:
    """Return a column with one list for each row of arrays [rows, tokens]; NaN becomes null."""
    lengths = np.concatenate([np.full(len(a), a.shape[1], dtype=np.int64) for a in arrays])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = np.concatenate([np.ravel(a) for a in arrays]).astype(np.float32, copy=False)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, from_pandas=True))


def _outcome_columns(name: str, outcomes: Sequence[Outcome | None]) -> dict[str, list[Any]]:
    return {
        name: [None if o is None else _escape(o.label) for o in outcomes],
        f"{name}_index": [None if o is None else o.index for o in outcomes],
        f"{name}_kind": [None if o is None else o.kind for o in outcomes],
        f"{name}_probability": [None if o is None else o.probability for o in outcomes],
    }


def _escape(token: str) -> str:
    """Escape halves of surrogate pairs, which UTF-8 cannot encode."""
    return token.encode("utf-8", "backslashreplace").decode("utf-8")
