"""Measurements: equal to the public functions, cached in chunks, on few threads."""

import os
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnflow import explain, load_model
from attnflow.importance import blank_out, input_gradients
from attnflow.paper.experiments import measurements
from attnflow.paper.experiments.agreement import encode_examples
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options
from attnflow.paper.experiments.measurements import (
    SMALL_MODEL,
    ScoreSettings,
    hash_model,
    measure_in_chunks,
    model_threads,
    open_model,
    read_chunk,
    split_progress,
    write_chunk,
)
from attnflow.paper.experiments.sentences import read_agreement
from attnflow.storage import DiskError
from tests.models.checkpoints import make_loaded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["verb-number", "verb-number-causal"])
def texts(request):
    options = Options(data="grammar", examples=4)
    return encode_examples(load_model(request.param), read_agreement(options).natural, options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ScoreSettings(),
        ScoreSettings(residual_weight=0.8, normalize="receptive_field"),
        ScoreSettings(edges="gradient"),
        ScoreSettings(edges="value"),
    ],
    ids=["default", "normalized", "gradient", "value"],
)
def test_attention_equals_explain(texts, settings):
    measured = texts.attention(settings)
    for text, scores in zip(texts.encoded, measured, strict=True):
        explanation = explain(
            text.text,
            texts.loaded,
            residual_weight=settings.residual_weight,
            edges=settings.edges,
        )
        for method in PAPER_METHODS:
            expected = explanation.attribute(method, normalize=settings.normalize)
            assert scores[method] == pytest.approx(expected.to_numpy()[:, 0], abs=1e-5)


@pytest.mark.slow
def test_maximum_rows_are_maxima_over_all_positions(texts):
    measured = texts.attention(ScoreSettings(rows="max"))
    for text, scores in zip(texts.encoded, measured, strict=True):
        flow = explain(text.text, texts.loaded, edges="attention").flow(
            positions=range(len(text.tokens)), normalize="rows"
        )
        assert scores["flow"] == pytest.approx(flow.to_numpy().max(axis=1), abs=1e-5)


@pytest.mark.slow
def test_importance_equals_the_public_functions(texts):
    for text, measured in zip(texts.encoded, texts.importance(), strict=True):
        expected = blank_out(text.text, texts.loaded)
        assert measured["blank_out"] == pytest.approx(expected.to_numpy()[0, 0], abs=1e-6)
        for variant in ("l2", "times_input"):
            row = input_gradients(text.text, texts.loaded, variant=variant).to_numpy()[0, 0]
            assert measured[variant] == pytest.approx(row, rel=1e-3, abs=1e-5)
        assert measured["probability"] == pytest.approx([expected.settings["probability"]])


def test_a_model_is_loaded_on_the_device():
    loaded = open_model(Options(device="cpu", threads=1), "verb-number-causal")
    assert loaded.name == "verb-number-causal"


def test_repeated_texts_are_not_unique():
    options = Options(data="grammar", examples=3)
    first, second, third = read_agreement(options).natural
    repeated = encode_examples(load_model(), [first, second, first, third, second], options)
    assert repeated.unique() == [0, 1, 3]


def test_stages_share_one_progress_bar():
    steps = []
    for done, stage in enumerate(split_progress(lambda *step: steps.append(step), 2), start=1):
        assert stage is not None
        stage(done, 2)
    assert steps == [(500, 2000), (2000, 2000)]
    assert list(split_progress(None, 1)) == [None]


# Threads.


@pytest.fixture
def _three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def model_of_size(n_weights):
    weights = SimpleNamespace(numel=lambda: n_weights)
    return SimpleNamespace(model=SimpleNamespace(parameters=lambda: [weights]))


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize(
    ("n_weights", "threads", "expected"),
    [(SMALL_MODEL - 1, None, 1), (SMALL_MODEL, None, 3), (1, 2, 2)],
)
def test_a_small_model_runs_on_one_thread_by_default(n_weights, threads, expected):
    with model_threads(model_of_size(n_weights), threads):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_threads_are_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), model_threads(model_of_size(1), None):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_texts_are_measured_on_these_threads():
    options = Options(data="grammar", examples=3)
    small = encode_examples(load_model(), read_agreement(options).natural, options)
    threads = []

    def measure(chunk, _labels):
        threads.append(torch.get_num_threads())
        return [{} for _ in chunk]

    small.measure(measure, {}, None)
    assert threads == [1]
    assert torch.get_num_threads() == 3


# The cache.

SECRET = 4321  # a token ID that must not be readable in the cache


@dataclass(frozen=True)
class Encoded:
    inputs: dict[str, torch.Tensor]


def encoded_texts(n):
    return [Encoded({"input_ids": torch.tensor([[SECRET, *range(i + 2)]])}) for i in range(n)]


class Measure:
    """Counts the texts that it measures."""

    def __init__(self):
        self.n_measured = 0

    def __call__(self, chunk, labels):
        self.n_measured += len(chunk)
        return [
            {
                "rows": np.full((2, text.inputs["input_ids"].shape[1]), float(i)),
                "label": np.asarray([float(label)]),
            }
            for i, (text, label) in enumerate(zip(chunk, labels, strict=True))
        ]


@pytest.fixture
def _small_chunks(monkeypatch):
    monkeypatch.setattr(measurements, "CHUNK_SIZE", 3)


def run(measure, cache, *, n=8, key="a", labels=None, progress=None):
    labels = labels or [i % 2 for i in range(n)]
    return measure_in_chunks(
        encoded_texts(n), labels, measure, key={"key": key}, cache=cache, progress=progress
    )


@pytest.mark.usefixtures("_small_chunks")
def test_cached_measurements_are_read(tmp_path):
    first, second = Measure(), Measure()
    measured, read = run(first, tmp_path), run(second, tmp_path)
    assert (first.n_measured, second.n_measured) == (8, 0)
    assert [text["rows"].shape for text in read] == [(2, i + 3) for i in range(8)]
    for one, other in zip(measured, read, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("rows", "label"))


@pytest.mark.usefixtures("_small_chunks")
def test_an_interrupted_run_resumes(tmp_path):
    def stop(done, _total):
        if done > 3:
            raise KeyboardInterrupt

    first, second, steps = Measure(), Measure(), []
    with pytest.raises(KeyboardInterrupt):
        run(first, tmp_path, progress=stop)
    run(second, tmp_path, progress=lambda *step: steps.append(step))
    assert (first.n_measured, second.n_measured) == (6, 2)
    assert steps == [(3, 8), (6, 8), (8, 8)]


@pytest.mark.usefixtures("_small_chunks")
def test_other_settings_labels_or_texts_are_measured_again(tmp_path):
    run(Measure(), tmp_path)
    for changed in ({"key": "b"}, {"labels": [0] * 8}):
        measure = Measure()
        run(measure, tmp_path, **changed)
        assert measure.n_measured == 8
    measure = Measure()
    run(measure, tmp_path, n=9)  # only the last chunk differs
    assert measure.n_measured == 3


@pytest.mark.usefixtures("_small_chunks")
def test_a_damaged_chunk_is_measured_again(tmp_path):
    run(Measure(), tmp_path)
    for damage, path in zip((b"", b"no npz", None), sorted(tmp_path.iterdir()), strict=True):
        path.write_bytes(path.read_bytes()[:-30] if damage is None else damage)
        assert read_chunk(path, 3) is None
    measure = Measure()
    run(measure, tmp_path)
    assert measure.n_measured == 8


@pytest.mark.usefixtures("_small_chunks")
def test_a_chunk_of_another_size_is_not_used(tmp_path):
    run(Measure(), tmp_path, n=3)
    [path] = tmp_path.iterdir()
    assert read_chunk(path, 3) is not None
    assert read_chunk(path, 2) is None


@pytest.mark.usefixtures("_small_chunks")
def test_without_a_cache_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(run(Measure(), None)) == 8
    assert list(tmp_path.iterdir()) == []


def test_a_chunk_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "chunk.npz"
    write_chunk(path, [{"rows": np.zeros((1, 2))}])
    before = path.read_bytes()

    def fail(_handle):
        raise OSError("no room")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskError):
        write_chunk(path, [{"rows": np.ones((1, 2))}])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["chunk.npz"]


def test_the_hash_of_a_model_depends_on_its_weights():
    model, same, other = make_loaded(), make_loaded(), make_loaded()
    with torch.no_grad():
        next(iter(other.model.parameters()))[0, 0] += 1e-3
    assert hash_model(model) == hash_model(same) != hash_model(other)
