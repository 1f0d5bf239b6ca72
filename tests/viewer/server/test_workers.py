"""Worker processes: how errors come back, and what happens when a process fails."""

import multiprocessing

import pytest

from attnflow import FileError, InputError
from attnflow.errors import AttnflowError, MissingDependencyError
from attnflow.storage import DiskError
from attnflow.viewer.server import workers
from attnflow.viewer.server.security import CrashError, Limits, TimeLimitError
from attnflow.viewer.server.workers import Failure, WorkerPool
from tests.refusal import refusal
from tests.viewer.server.client import PATIENCE
from tests.viewer.server.fake_tasks import BUG, INVALID, Exit, Hang, ProcessId

pytestmark = pytest.mark.slow  # starting a process takes seconds


def ignore(*_):
    pass


@pytest.fixture
def pool():
    pool = WorkerPool([], Limits(seconds=PATIENCE, workers=1))
    yield pool
    pool.close()


def test_a_worker_survives_errors_of_its_tasks(pool):
    first = pool.run(ProcessId(), ignore)
    with pytest.raises(InputError) as caught:
        pool.run(INVALID, ignore)
    error = caught.value
    assert (error.given, error.expected, error.fix) == INVALID.error.args
    with refusal(CrashError, "ZeroDivisionError: on purpose"):
        pool.run(BUG, ignore)
    assert pool.run(ProcessId(), ignore) == first


def test_a_worker_that_dies_is_replaced(pool):
    first = pool.run(ProcessId(), ignore)
    with refusal(CrashError, "the worker process ended"):
        pool.run(Exit(), ignore)
    assert pool.run(ProcessId(), ignore) != first


def test_a_worker_that_takes_too_long_is_killed_and_replaced(pool, monkeypatch):
    pid = pool.run(ProcessId(), ignore)
    process = find_child(pid)
    now = 0.0
    monkeypatch.setattr(workers, "monotonic", lambda: now)
    updates = []

    def report(*update):
        nonlocal now
        now += PATIENCE  # the task has started: let its time run out
        updates.append(update)

    with refusal(TimeLimitError, f"{PATIENCE} seconds", "--seconds"):
        pool.run(Hang(), report)
    assert updates == [("hanging", 1, 2)]
    assert not process.is_alive()
    assert pool.run(ProcessId(), ignore) != pid


def test_closing_kills_the_workers(pool):
    process = find_child(pool.run(ProcessId(), ignore))
    pool.close()
    process.join(PATIENCE)
    assert not process.is_alive()
    with refusal(CrashError, "closing"):
        pool.run(ProcessId(), ignore)


def test_a_model_that_cannot_be_loaded_is_reported_at_the_start(tmp_path):
    pool = WorkerPool([str(tmp_path)], Limits())
    with refusal(FileError, "config.json"):
        pool.start(ignore)
    pool.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileError("given", "expected", "fix"), FileError),
        (MissingDependencyError("given", "expected", "fix"), MissingDependencyError),
        (DiskError("given", "expected", "fix"), AttnflowError),  # defined elsewhere
    ],
)
def test_errors_are_rebuilt_from_their_parts(error, kind):
    rebuilt = Failure.from_error(error).to_error()
    assert type(rebuilt) is kind
    assert (rebuilt.given, rebuilt.expected, rebuilt.fix) == ("given", "expected", "fix")


def find_child(pid):
    [process] = [child for child in multiprocessing.active_children() if child.pid == pid]
    return process
