"""Worker processes: what goes wrong in one, and what is left of it."""

import multiprocessing
import os
import time

import pytest

from attnflow import InputError, load_model
from attnflow.viewer.server.security import CrashError, Limits, TimeOutError
from attnflow.viewer.server.workers import WorkerPool, describe
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal
from tests.viewer.server.tasks import BREAK, REFUSE, Die, Sleep, Where


def ignore(*_):
    pass


@pytest.fixture
def pool():
    made = WorkerPool([], Limits(seconds=30, workers=1))
    yield made
    made.close()


def test_a_worker_outlives_what_is_refused_or_breaks(pool):
    first = pool.run(Where(), ignore)
    with refusal(InputError, "on purpose"):
        pool.run(REFUSE, ignore)
    with refusal(CrashError, "the computation broke down (ZeroDivisionError: on purpose)"):
        pool.run(BREAK, ignore)
    assert pool.run(Where(), ignore) == first


def test_a_worker_that_dies_is_replaced(pool):
    first = pool.run(Where(), ignore)
    with refusal(CrashError, "its process ended", "the server goes on"):
        pool.run(Die(), ignore)
    assert pool.run(Where(), ignore) != first


def test_a_worker_that_takes_too_long_is_killed_and_its_place_is_free():
    pool = WorkerPool([], Limits(seconds=3, workers=1))
    try:
        seen: list[tuple[str, int, int]] = []
        pid = pool.run(Where(), ignore)
        with refusal(TimeOutError, "took longer than the 3 seconds that are allowed"):
            pool.run(Sleep(), lambda *stage: seen.append(stage))
        assert ("sleeping", 1, 2) in seen
        assert not _runs(pid)
        assert pool.run(Where(), ignore) != pid
    finally:
        pool.close()


def test_closing_ends_the_workers():
    pool = WorkerPool([], Limits(workers=1))
    pid = pool.run(Where(), ignore)
    pool.close()
    for _ in range(100):
        if not _runs(pid):
            break
        time.sleep(0.05)
    assert not _runs(pid)
    with refusal(CrashError, "the server is closing"):
        pool.run(Where(), ignore)


def test_a_model_that_cannot_be_loaded_is_said_at_the_start(tmp_path):
    pool = WorkerPool([str(tmp_path)], Limits())
    with refusal(InputError, "has no config.json"):
        pool.start(ignore)
    pool.close()


def test_a_vision_model_is_sent_to_where_it_can_be_looked_at(tmp_path):
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text("{}", encoding="ascii")
    pool = WorkerPool([str(tmp_path)], Limits())
    with refusal(InputError, "holds a model of pictures", "attnflow explain-image PICTURE --html"):
        pool.start(ignore)
    pool.close()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (load_model(), "the author of the books on the old table"),
        (make_loaded("BertForMaskedLM"), "[MASK]"),
        (make_loaded(), "the film is short"),
    ],
    ids=["verb-number", "masked", "other"],
)
def test_the_page_starts_with_a_text_that_fits_the_model(model, words):
    assert words in describe(model).example


def _runs(pid):
    multiprocessing.active_children()  # which clears away those that have ended
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
