"""Measurements on disk: kept, read again, made again where they must be."""

import os
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from attnflow.paper.experiments import keeping
from attnflow.paper.experiments.keeping import hash_model, measure_in_chunks, read_chunk
from attnflow.paper.experiments.result import write_whole
from tests.models.checkpoints import make_loaded

SECRET = 4321  # a token whose number should not be readable in the cache


@dataclass(frozen=True)
class Encoded:
    inputs: dict[str, torch.Tensor]


def texts(n):
    return [Encoded({"input_ids": torch.tensor([[SECRET, *range(i + 2)]])}) for i in range(n)]


class Measure:
    """Counts how many texts it measured."""

    def __init__(self, value=1.0):
        self.value, self.done = value, 0

    def __call__(self, chunk, labels):
        self.done += len(chunk)
        return [
            {
                "rows": np.full((2, one.inputs["input_ids"].shape[1]), self.value * i),
                "label": np.asarray([float(label)]),
            }
            for i, (one, label) in enumerate(zip(chunk, labels, strict=True))
        ]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(keeping, "CHUNK", 3)


def run(measure, cache, *, n=8, key="a", labels=None, progress=None):
    labels = labels or [i % 2 for i in range(n)]
    return measure_in_chunks(
        texts(n), labels, measure, key={"key": key}, cache=cache, progress=progress
    )


def test_what_is_kept_is_read_again(tmp_path):
    first, second = Measure(), Measure()
    made, read = run(first, tmp_path), run(second, tmp_path)
    assert (first.done, second.done) == (8, 0)
    assert [one["rows"].shape for one in read] == [(2, i + 3) for i in range(8)]
    for one, other in zip(made, read, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("rows", "label"))


def test_a_run_that_was_stopped_goes_on(tmp_path):
    def stop(done, _total):
        if done > 3:
            raise KeyboardInterrupt

    first, second, steps = Measure(), Measure(), []
    with pytest.raises(KeyboardInterrupt):
        run(first, tmp_path, progress=stop)
    run(second, tmp_path, progress=lambda *step: steps.append(step))
    assert (first.done, second.done) == (6, 2)
    assert steps == [(3, 8), (6, 8), (8, 8)]


def test_other_settings_labels_or_texts_are_measured_anew(tmp_path):
    run(Measure(), tmp_path)
    for changed in ({"key": "b"}, {"labels": [0] * 8}):
        measure = Measure()
        run(measure, tmp_path, **changed)
        assert measure.done == 8
    measure = Measure()
    run(measure, tmp_path, n=9)  # the last chunk is another, the first two are the same
    assert measure.done == 3


def test_a_broken_chunk_is_made_again(tmp_path):
    run(Measure(), tmp_path)
    for damage, path in zip((b"", b"no npz", None), sorted(tmp_path.iterdir()), strict=True):
        path.write_bytes(path.read_bytes()[:-30] if damage is None else damage)
        assert read_chunk(path, 3) is None
    measure = Measure()
    run(measure, tmp_path)
    assert measure.done == 8


def test_a_chunk_of_another_size_is_not_taken(tmp_path):
    run(Measure(), tmp_path, n=3)
    [path] = tmp_path.iterdir()
    assert read_chunk(path, 3) is not None
    assert read_chunk(path, 2) is None


def test_without_a_cache_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(run(Measure(), None)) == 8
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(_handle):
        raise OSError("no room")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no room"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_hash_of_a_model_is_that_of_its_weights():
    model, same, other = make_loaded(), make_loaded(), make_loaded()
    with torch.no_grad():
        next(iter(other.model.parameters()))[0, 0] += 1e-3
    assert hash_model(model) == hash_model(same) != hash_model(other)
