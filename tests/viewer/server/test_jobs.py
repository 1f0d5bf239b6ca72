"""How much the local page does at a time, and how much it keeps."""

from threading import Event

import pytest

from attnflow.viewer.payload import make_payload
from attnflow.viewer.server import jobs as job_module
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import Limits
from tests.viewer.examples import made_up
from tests.viewer.server.client import LIMITS, TEXT, ask, make_client, refused, wait_for
from tests.viewer.server.tasks import BREAK, InlinePool


@pytest.fixture(scope="module")
def client():
    with make_client() as made:
        yield made


def test_too_many_at_once_are_told_to_come_back(monkeypatch):
    limits = Limits(workers=1, waiting=1)
    going_on = Event()

    class Wait:
        def run(self, *_):
            going_on.wait(20)
            return made_payload()

    monkeypatch.setattr("attnflow.viewer.server.app.ExplainTask", lambda _: Wait())
    with make_client(limits) as client:
        running = [ask(client, (TEXT, 0)) for _ in range(2)]
        refused(ask(client, (TEXT, 0)), 503, "the server is busy: 2 computations")
        going_on.set()
        assert [wait_for(client, one)["state"] for one in running] == ["done", "done"]
        assert wait_for(client, ask(client, (TEXT, 0)))["state"] == "done"


def made_payload():
    payload = make_payload([made_up(1, 3)])
    payload.compute()
    return payload


def test_old_results_are_dropped(client):
    names = [wait_for(client, ask(client, (TEXT, 0)))["result"] for _ in range(3)]
    found = [client.get(f"/api/explanations/{name}/header").status_code for name in names]
    assert found == [404, 200, 200]


def test_results_are_dropped_when_they_take_too_much_memory():
    size = made_payload().n_bytes()
    jobs = Jobs(InlinePool([], LIMITS), Limits(result_bytes=2 * size))  # type: ignore[arg-type]
    for name in "abc":
        jobs._keep(name, made_payload())
    assert [jobs.result(name) is not None for name in "abc"] == [False, True, True]
    jobs._limits = Limits(result_bytes=1)
    jobs._keep("d", made_payload())  # the newest stays, whatever it takes
    assert [jobs.result(name) is not None for name in "abcd"] == [False, False, False, True]
    jobs.close()


def test_jobs_are_forgotten_in_the_end(monkeypatch):
    monkeypatch.setattr(job_module, "Payload", None)
    jobs = Jobs(InlinePool([], LIMITS), Limits(results=1, waiting=1))  # type: ignore[arg-type]
    names = [_submit_and_wait(jobs) for _ in range(10)]
    assert jobs.job(names[0]) is None
    assert jobs.job(names[-1]) is not None
    jobs.close()


def _submit_and_wait(jobs):
    done = Event()
    name = jobs.submit(BREAK, after=done.set)
    assert done.wait(10)
    return name
