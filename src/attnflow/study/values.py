"""Parquet files of a study: one row for each text, explainer, replacement and sign.

docs/evaluation.md documents the columns. Values are reproducible; seconds and memory are not.
"""

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from attnflow.corpus.manifest import SCHEMA
from attnflow.optional import import_optional
from attnflow.study.design import Design
from attnflow.study.evaluator import Evaluated

REPEATED = ("index", "id", "text", "label", "explainer", "replacement", "sign", "problem")


def make_schema(design: Design) -> Any:
    """Return the columns of a shard as an Arrow schema."""
    pa = import_optional("pyarrow", "writing a study")
    numbers = pa.list_(pa.float64())
    columns = [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("probability", pa.float64(), nullable=False),
        pa.field("tokens", pa.list_(pa.string()), nullable=False),
        pa.field("evidence", pa.list_(pa.bool_())),
        pa.field("explainer", pa.string(), nullable=False),
        pa.field("replacement", pa.string(), nullable=False),
        pa.field("sign", pa.string(), nullable=False),
        pa.field("scores", numbers),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("seconds", pa.float64()),
        pa.field("megabytes", pa.float64()),
        pa.field("morf_curve", numbers),
        pa.field("lerf_curve", numbers),
        *(pa.field(name, pa.float64()) for name in design.metrics),
    ]
    return pa.schema(columns, metadata={"attnflow.schema": str(SCHEMA)})


def write_values(file: IO[bytes], results: Sequence[Evaluated], design: Design) -> None:
    """Write results as one Parquet file, in the given order."""
    pa = import_optional("pyarrow", "writing a study")
    parquet = import_optional("pyarrow.parquet", "writing a study")
    schema = make_schema(design)
    rows = [row for result in results for row in _rows(result)]
    table = pa.Table.from_pylist(rows, schema=schema)
    parquet.write_table(
        table, file, compression="zstd", use_dictionary=list(REPEATED), write_page_checksum=True
    )


def _rows(result: Evaluated) -> Iterator[dict[str, Any]]:
    """Yield the rows of a text."""
    text = {
        "index": result.example.index,
        "id": result.example.id,
        "text": result.example.text,
        "label": _escape(result.label),
        "probability": result.probability,
        "tokens": [_escape(label) for label in result.labels],
        "evidence": None if result.evidence is None else result.evidence.tolist(),
    }
    for measured in result.measured:
        scores = result.scores[measured.explainer]
        yield {
            **text,
            "explainer": measured.explainer,
            "replacement": measured.replacement,
            "sign": measured.sign,
            "scores": None if scores.values is None else scores.values.tolist(),
            "problem": scores.problem,
            "seconds": _number(scores.cost.seconds),
            "megabytes": _number(scores.cost.megabytes),
            "morf_curve": _numbers(measured.morf),
            "lerf_curve": _numbers(measured.lerf),
            **{name: _number(value) for name, value in measured.values.items()},
        }


def _number(value: float) -> float | None:
    """Return a number, or None for nan."""
    return None if np.isnan(value) else float(value)


def _numbers(values: Any) -> list[float] | None:
    return None if np.isnan(values).any() else values.tolist()


def _escape(text: str) -> str:
    """Escape halves of surrogate pairs, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
