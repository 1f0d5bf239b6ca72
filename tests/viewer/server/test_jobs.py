"""The queue of jobs, and which results are stored."""

from threading import Event

from attnflow.viewer.payload import make_payload
from attnflow.viewer.server.jobs import ABANDONED, Jobs
from attnflow.viewer.server.security import Limits
from tests.viewer.examples import random_explanation
from tests.viewer.server.client import (
    LIMITS,
    PATIENCE,
    TEXT,
    Client,
    WaitableJobs,
    assert_rejected,
)
from tests.viewer.server.fake_tasks import BUG, InlinePool


def computed_payload():
    payload = make_payload([random_explanation(1, 3)])
    payload.compute()
    return payload


def test_requests_are_rejected_while_the_queue_is_full(monkeypatch):
    finish = Event()

    class Wait:
        def run(self, *_):
            assert finish.wait(PATIENCE)
            return computed_payload()

    monkeypatch.setattr("attnflow.viewer.server.app.ExplainTask", lambda _: Wait())
    with Client(Limits(workers=1, waiting=1)) as client:
        accepted = [client.explain((TEXT, 0)) for _ in range(2)]
        assert_rejected(client.explain((TEXT, 0)), 503, "busy", "2 computations")
        finish.set()
        assert [client.wait_for(response)["state"] for response in accepted] == ["done", "done"]
        assert client.wait_for(client.explain((TEXT, 0)))["state"] == "done"


def test_old_results_are_dropped():
    with Client() as client:
        ids = [client.wait_for(client.explain((TEXT, 0)))["result"] for _ in range(3)]
        found = [client.get(f"/api/explanations/{i}/header").status_code for i in ids]
    assert found == [404, 200, 200]


def test_results_are_dropped_when_they_use_too_much_memory():
    size = computed_payload().n_bytes()
    jobs = Jobs(InlinePool([], LIMITS), Limits(result_bytes=2 * size))  # type: ignore[arg-type]
    for result_id in "abc":
        jobs._store(result_id, computed_payload())
    assert [jobs.result(i) is not None for i in "abc"] == [False, True, True]
    jobs._limits = Limits(result_bytes=1)
    jobs._store("d", computed_payload())  # the newest is kept, whatever its size
    assert [jobs.result(i) is not None for i in "abcd"] == [False, False, False, True]
    jobs.close()


def test_old_jobs_are_dropped():
    jobs = WaitableJobs(InlinePool([], LIMITS), Limits(results=1, waiting=1))
    ids = []
    for _ in range(10):
        ids.append(jobs.submit(BUG))
        jobs.wait(ids[-1])
    assert jobs.job(ids[0]) is None
    assert jobs.job(ids[-1]) is not None
    jobs.close()


def test_files_of_jobs_that_never_ran_are_removed():
    finish, removed = Event(), []

    class Wait:
        def run(self, *_):
            assert finish.wait(PATIENCE)

    jobs = Jobs(InlinePool([], LIMITS), Limits(workers=1, waiting=3))  # type: ignore[arg-type]
    for i in range(3):
        jobs.submit(Wait(), cleanup=lambda i=i: removed.append(i))  # type: ignore[misc]
    jobs.close()
    finish.set()
    jobs._threads.shutdown(wait=True)
    assert sorted(removed) == [0, 1, 2]


def test_jobs_that_no_page_asks_for_are_given_up(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("attnflow.viewer.server.jobs.monotonic", lambda: clock[0])
    finish, ran = Event(), []

    class Wait:
        def __init__(self, name):
            self.name = name

        def run(self, *_):
            ran.append(self.name)
            assert finish.wait(PATIENCE)
            return computed_payload()

    jobs = WaitableJobs(InlinePool([], LIMITS), Limits(workers=1, waiting=4))
    first, abandoned, cancelled, asked = (jobs.submit(Wait(name)) for name in "abcd")
    clock[0] += ABANDONED + 1
    assert jobs.cancel(cancelled)
    assert not jobs.cancel("unknown")
    for job in (first, asked, cancelled):
        jobs.job(job)
    finish.set()
    for job in (first, abandoned, cancelled, asked):
        jobs.wait(job)
    for job in (abandoned, cancelled):
        state = jobs.job(job)
        assert state is not None
        assert (state.state, state.status) == ("failed", 410)
    assert ran == ["a", "d"]
    jobs.close()
