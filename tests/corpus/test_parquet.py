"""Parquet files of scores: columns, row groups, reading, and damaged pages."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from attnflow.corpus import parquet
from attnflow.corpus.example import Example, Outcome, Scored
from attnflow.corpus.manifest import Manifest
from attnflow.corpus.parquet import write_parquet
from attnflow.corpus.results import read_shard, row_groups
from attnflow.corpus.settings import Settings
from attnflow.errors import FileError
from tests.corpus.fakes import score


def written(results, settings):
    file = io.BytesIO()
    write_parquet(file, results, settings)
    return file.getvalue()


def test_one_row_for_each_position_and_layer_by_hand():
    # scores[layer, position, token], two of each.
    values = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    settings = Settings(methods=("flow",), importance=("blank_out",), target="plural")
    one = Scored(
        example=Example(7, "seven", "a b", 8),
        tokens=("a", "\ud800"),
        special=(False, True),
        position=1,
        positions=(0, 1),
        layers=(3, 6),
        prediction=Outcome("class", "singular", 0, 0.75),
        target=Outcome("class", "plural", 1, 0.25),
        scores={"flow": values},
        importance={"blank_out": np.asarray([0.5, np.nan], dtype=np.float32)},
    )
    table = pq.read_table(io.BytesIO(written([one], settings)))
    rows = table.to_pylist()
    assert [(row["position"], row["layer"], row["flow"]) for row in rows] == [
        (0, 3, [0.0, 1.0]),
        (0, 6, [4.0, 5.0]),
        (1, 3, [2.0, 3.0]),
        (1, 6, [6.0, 7.0]),
    ]
    for row in rows:
        assert (row["index"], row["id"], row["line"], row["text"]) == (7, "seven", 8, "a b")
        assert row["tokens"] == ["a", "\\ud800"]  # half a surrogate pair, escaped
        assert (row["special"], row["explained"]) == ([False, True], 1)
        assert row["blank_out"] == [0.5, None]
        assert (row["prediction"], row["prediction_probability"]) == ("singular", 0.75)
        assert (row["target"], row["target_index"], row["target_kind"]) == ("plural", 1, "class")
    assert table.schema.metadata[b"attnflow.schema"] == b"2"


def test_large_shards_are_written_in_row_groups(monkeypatch):
    settings = Settings(methods=("rollout",))
    results = [score(Example(i, str(i), "the key"), settings) for i in range(10)]
    monkeypatch.setattr(parquet, "CELLS", 20)  # three examples of two layers and three tokens
    file = pq.ParquetFile(io.BytesIO(written(results, settings)))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [6, 6, 6, 2]
    assert file.read().column("index").to_pylist() == [i for i in range(10) for _ in "12"]


def of_all_positions(index, text, n=4):
    """An example of n tokens with scores of all positions at two layers."""
    return Scored(
        example=Example(index, str(index), text),
        tokens=tuple("abcdefgh"[:n]),
        special=(False,) * n,
        position=0,
        positions=tuple(range(n)),
        layers=(1, 2),
        prediction=None,
        scores={"rollout": np.arange(2 * n * n, dtype=np.float32).reshape(2, n, n)},
    )


@pytest.mark.parametrize(
    ("limit", "value", "sizes"),
    [
        ("CHARACTERS", 1000, [8, 8]),  # 8 rows of 104 characters are 832
        ("CHARACTERS", 500, [4, 4, 4, 4]),  # two positions of two layers are 416
        ("CHARACTERS", 1, [2] * 8),  # a position is never split
        ("CELLS", 24, [6, 2, 6, 2]),  # three positions of two layers and four tokens
    ],
)
def test_long_examples_are_split_into_row_groups(monkeypatch, tmp_path, limit, value, sizes):
    settings = Settings(methods=("rollout",), positions="all", truncate="cut")
    results = [of_all_positions(i, "x" * 100) for i in range(2)]
    expected = pq.read_table(io.BytesIO(written(results, settings)))
    monkeypatch.setattr(parquet, limit, value)
    path = tmp_path / "part-000000.parquet"
    path.write_bytes(written(results, settings))
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == sizes
    assert file.read() == expected
    manifest = Manifest(settings, 2, {}, {}, ())
    first, second = read_shard(path, manifest)
    assert (first.index, second.index) == (0, 1)
    assert first.positions == (0, 1, 2, 3)
    assert np.array_equal(second.scores["rollout"], results[1].scores["rollout"])
    [found] = read_shard(path, manifest, ("id", "1"))
    assert found.index == 1


def test_a_flipped_bit_is_detected_when_the_page_is_read(tmp_path):
    settings = Settings(methods=("rollout",))
    results = [score(Example(i, str(i), f"the key {i}"), settings) for i in range(20)]
    whole = written(results, settings)
    path = tmp_path / "part-000000.parquet"

    def read():
        return [group.to_pylist() for group in row_groups(path)]

    path.write_bytes(whole)
    expected, seen = read(), []
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # the footer follows
    for place in range(4, pages, 23):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            assert read() == expected
        except FileError as error:
            seen.append(str(error))
    assert len(seen) > 50
    assert all("cannot be read (" in message for message in seen)


def test_a_file_without_rows_has_columns():
    settings = Settings(methods=("raw",))
    table = pq.read_table(io.BytesIO(written([], settings)))
    assert table.num_rows == 0
    assert table.column_names[-1] == "raw"
    assert "target" not in table.column_names
