"""The local engine: order, limits, interruption, and results that do not depend on threads."""

import threading
from contextlib import closing

import pytest
import torch

from attnflow import SelectionError
from attnflow.corpus.local_engine import IN_FLIGHT, map_threads, run_local, score_shards
from attnflow.corpus.scorer import Scorer
from attnflow.corpus.settings import Settings
from tests.corpus.models import TEXTS, as_bytes, examples
from tests.refusal import refusal

pytestmark = pytest.mark.slow

SETTINGS = Settings(methods=("rollout", "flow"), batch_tokens=16)
# On "cpu:0" the model has a thread of its own, as on a GPU.
TWO_STAGES = Settings(methods=("rollout", "flow"), batch_tokens=16, device="cpu:0")


def make_shards(n=4):
    turns = [(*TEXTS[i % len(TEXTS) :], "", *TEXTS[: i % len(TEXTS)]) for i in range(n)]
    return [examples(texts, first=10 * i) for i, texts in enumerate(turns)]


@pytest.fixture(scope="module")
def expected():
    scorer = Scorer(SETTINGS, threads=1)
    return [as_bytes(scorer.score(shard)) for shard in make_shards()]


@pytest.mark.parametrize("settings", [SETTINGS, TWO_STAGES], ids=["one stage", "two stages"])
@pytest.mark.parametrize("threads", [1, 3])
def test_shards_come_in_order_with_the_same_bytes(settings, threads, expected):
    results = run_local(settings, iter(make_shards()), threads=threads)
    assert [as_bytes(shard) for shard in results] == expected


def test_no_shards_and_empty_shards():
    assert list(run_local(SETTINGS, [])) == []
    assert list(run_local(SETTINGS, [[], []])) == [[], []]


@pytest.mark.parametrize("settings", [SETTINGS, TWO_STAGES], ids=["one stage", "two stages"])
def test_only_a_few_shards_are_read_ahead(settings):
    read = []

    def feed():
        for i, shard in enumerate(make_shards(8)):
            read.append(i)
            yield shard

    with closing(run_local(settings, feed(), threads=2)) as results:
        assert read == []
        for done in range(1, 6):
            next(results)
            assert len(read) <= done + IN_FLIGHT - 1


@pytest.mark.parametrize("settings", [SETTINGS, TWO_STAGES], ids=["one stage", "two stages"])
def test_closing_ends_all_threads(settings):
    before = set(threading.enumerate())
    n_torch = torch.get_num_threads()
    results = run_local(settings, iter(make_shards(50)), threads=2)
    next(results)
    assert set(threading.enumerate()) > before
    results.close()
    assert set(threading.enumerate()) == before
    assert torch.get_num_threads() == n_torch


def test_everything_done_is_reported():
    lock, done = threading.Lock(), [0, 0]

    def report(n_examples, pairs):
        with lock:
            done[0] += n_examples
            done[1] += pairs

    results = list(run_local(SETTINGS, make_shards(2), threads=2, report=report))
    # One position, six layers, and each token of each text with [CLS].
    pairs = 2 * sum(6 * (len(text.split()) + 1) for text in TEXTS)
    assert done == [sum(map(len, results)), pairs]
    assert done[0] == 2 * (len(TEXTS) + 1)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_an_error_in_a_thread_reaches_the_caller(device):
    before = set(threading.enumerate())
    settings = Settings(layers=(9,), batch_tokens=8, device=device)
    with refusal(SelectionError, "9"):
        list(run_local(settings, make_shards(), threads=2))
    assert set(threading.enumerate()) == before


def test_a_scorer_can_be_used_for_several_runs(expected):
    scorer = Scorer(SETTINGS, threads=2)
    for _ in range(2):
        found = [as_bytes(shard) for shard in score_shards(scorer, make_shards())]
        assert found == expected


def test_items_are_mapped_in_order():
    assert map_threads(str, [3, 1, 2], threads=2) == ["3", "1", "2"]
    assert map_threads(str, [], threads=2) == []
    assert map_threads(str, [1]) == ["1"]
