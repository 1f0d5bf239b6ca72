"""The local page's answers: to good requests, and to all kinds of bad ones."""

import json
import time
from threading import Event

import numpy as np
import pytest
from starlette.testclient import TestClient

from attnflow import flow
from attnflow.explaining import explain
from attnflow.viewer import flow_rows
from attnflow.viewer import jobs as job_module
from attnflow.viewer.guard import HEADERS, allowed_hosts
from attnflow.viewer.jobs import Jobs
from attnflow.viewer.limits import Limits
from attnflow.viewer.payload import make_payload
from attnflow.viewer.server import create_app
from attnflow.viewer.worker import ModelInfo
from tests.models.checkpoints import make_loaded
from tests.viewer.examples import hostile, made_up
from tests.viewer.tasks import BREAK, InlinePool

TEXT = "the key to cabinets"
LIMITS = Limits(text_length=100, tokens=12, upload_bytes=20_000, seconds=5, results=2)
INFO = [ModelInfo("one", "classifier", 16, "text"), ModelInfo("two", "causal_lm", 16, "text")]


def make_client(limits=LIMITS, host="127.0.0.1", **options):
    pool = InlinePool([make_loaded(), make_loaded("GPT2LMHeadModel")], limits)
    jobs = Jobs(pool, limits)  # type: ignore[arg-type]
    app = create_app(jobs, INFO, limits=limits, hosts=allowed_hosts(host, **options))
    return TestClient(app, base_url=f"http://{host}:8765", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client():
    with make_client() as made:
        yield made


def ask(client, *examples):
    body = {"examples": [{"text": text, "model": model} for text, model in examples]}
    return client.post("/api/explanations", json=body)


def wait_for(client, response):
    """The job once it is done or failed."""
    assert response.status_code == 202, response.text
    for _ in range(200):
        job = client.get(f"/api/jobs/{response.json()['job']}").json()
        if job["state"] in ("done", "failed"):
            return job
        time.sleep(0.02)
    raise AssertionError(job)


def refused(response, status, *wording):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    for words in wording:
        assert words in response.json()["error"]


def test_the_page_and_its_parts_are_served(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("/page.js", "/page.css", "/attnflow-viewer.js"):
        assert f'"{path}"' in page.text or path == "/attnflow-viewer.js"
        assert client.get(path).status_code == 200
    assert "<script>" not in page.text  # which the policy would not run
    assert client.get("/api/models").json()["models"][1]["label"] == "two"


def test_a_text_is_explained_as_the_library_does(client):
    job = wait_for(client, ask(client, (TEXT, 0)))
    assert job["state"] == "done"
    base = f"/api/explanations/{job['result']}"
    [example] = client.get(f"{base}/header").json()["examples"]
    expected = explain(TEXT, make_loaded())
    assert example["tokens"] == list(expected.tokens)
    flows = flow(expected.graph).to_numpy()
    chunk = client.get(f"{base}/chunks/0/flow/2")
    assert chunk.headers["content-type"] == "application/octet-stream"
    np.testing.assert_array_equal(
        np.frombuffer(chunk.content, "<f2").reshape(6, 6), flows[1].astype(np.float16)
    )
    row = client.get(f"{base}/flow?example=0&position=2&layer=2")
    np.testing.assert_array_equal(np.frombuffer(row.content, "<f4"), flows[1, 2].astype("<f4"))


def test_rows_of_flow_that_are_not_there_are_computed(client, monkeypatch):
    monkeypatch.setattr(flow_rows, "FLOW_PAIRS", 1)
    job = wait_for(client, ask(client, (TEXT, 0)))
    base = f"/api/explanations/{job['result']}"
    assert client.get(f"{base}/header").json()["examples"][0]["flow_rows"] == [0]
    row = client.get(f"{base}/flow?example=0&position=2&layer=2")
    expected = flow(explain(TEXT, make_loaded()).graph, layers=2, positions=2).to_numpy()[0, 0]
    np.testing.assert_array_equal(np.frombuffer(row.content, "<f4"), expected.astype("<f4"))


def test_two_texts_or_models_are_compared(client):
    job = wait_for(client, ask(client, (TEXT, 0), ("the key", 1)))
    header = client.get(f"/api/explanations/{job['result']}/header").json()
    assert [len(one["tokens"]) for one in header["examples"]] == [6, 2]


def test_saved_attentions_are_read(client, tmp_path):
    explanation = made_up(2, 5)
    assert explanation.heads is not None
    explanation.heads.save(tmp_path / "saved.safetensors")
    body = (tmp_path / "saved.safetensors").read_bytes()
    job = wait_for(client, upload(client, body))
    [example] = client.get(f"/api/explanations/{job['result']}/header").json()["examples"]
    assert example["tokens"] == list(explanation.tokens)
    assert example["n_heads"] == 2
    assert example["prediction"] is None


def upload(client, body, kind="application/octet-stream"):
    return client.post("/api/attentions", content=body, headers={"content-type": kind})


def test_files_that_are_no_attentions_are_refused_without_saying_where_they_lay(client):
    for body in (b"", b"x" * 100, b"\x08\0\0\0\0\0\0\0{}      "):
        job = wait_for(client, upload(client, body))
        assert job["state"] == "failed"
        assert job["status"] == 422
        assert job["error"].startswith("the file ")
        assert "/" not in job["error"].split("(")[0]


def test_uploads_are_limited_and_removed(client, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    refused(upload(client, b"x" * 20_001), 413, "the body is too large; expected at most 20000")
    refused(upload(client, (b"x" * 999 for _ in range(30))), 413, "too large")  # no length is sent
    refused(upload(client, b"x", "text/plain"), 415, "of the type 'text/plain'")
    explanation = made_up(1, 13, n_heads=1)
    assert explanation.heads is not None
    explanation.heads.save(tmp_path / "saved")
    body = (tmp_path / "saved").read_bytes()
    job = wait_for(client, upload(client, body))
    assert "the file has 13 tokens" in job["error"]
    assert "expected at most 12" in job["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize(
    ("body", "status", "wording"),
    [
        (b"", 400, "the body is not JSON"),
        (b"{", 400, "the body is not JSON"),
        (b"[" * 5000, 400, "the body is not JSON"),
        (b"\xff\xfe", 400, "the body is not JSON"),
        (b"[]", 400, "no list of 1 to 2 examples"),
        (b'{"examples": []}', 400, "no list of 1 to 2 examples"),
        (b'{"examples": [1]}', 400, "there is no text"),
        (b'{"examples": [{"text": 3, "model": 0}]}', 400, "there is no text"),
        (b'{"examples": [{"text": " ", "model": 0}]}', 400, "there is no text"),
        (b'{"examples": [{"text": "key"}]}', 400, "there is no model 'None'"),
        (b'{"examples": [{"text": "key", "model": 2}]}', 400, "there is no model '2'"),
        (b'{"examples": [{"text": "key", "model": true}]}', 400, "there is no model 'True'"),
        (b'{"examples": [{"text": "key", "model": "gpt2"}]}', 400, "there is no model 'gpt2'"),
        (
            json.dumps({"examples": [{"text": "k" * 101, "model": 0}]}).encode(),
            413,
            "the text has 101 characters; expected at most 100",
        ),
        (b'"' + b"x" * 10_000 + b'"', 413, "the body is too large"),
    ],
)
def test_a_bad_request_gets_a_sentence(client, body, status, wording):
    response = client.post(
        "/api/explanations", content=body, headers={"content-type": "application/json"}
    )
    refused(response, status, wording)


def test_what_the_library_refuses_is_said_by_the_job(client):
    job = wait_for(client, ask(client, ("key " * 12, 0)))
    assert (job["state"], job["status"]) == ("failed", 422)
    assert job["error"].startswith("the text has 14 tokens; expected at most 12.")


def test_what_does_not_exist_gets_a_sentence(client):
    refused(client.get("/nothing"), 404, "there is nothing at this address")
    refused(client.get("/../../etc/passwd"), 404)
    refused(client.get("/static/page.html"), 404)
    refused(client.get("/..%2f..%2fpyproject.toml"), 404)
    refused(client.post("/"), 405, "does not take such a request")
    refused(client.get("/api/jobs/x"), 404, "this computation is not known")
    refused(client.get("/api/explanations/x/header"), 404, "this result is not known")
    job = wait_for(client, ask(client, (TEXT, 0)))
    base = f"/api/explanations/{job['result']}"
    refused(client.get(f"{base}/chunks/0/flow/9"), 422, "there is no array '0/flow/9'")
    refused(client.get(f"{base}/flow?example=1&position=0&layer=1"), 400, "example is '1'")
    refused(client.get(f"{base}/flow?example=0&position=-1&layer=1"), 400, "position is '-1'")
    refused(client.get(f"{base}/flow?example=0&position=0"), 400, "layer is ''; expected a whole")
    refused(
        client.post("/api/explanations", content=b"{}", headers={"content-type": "text/plain"}),
        415,
        "expected application/json",
    )


def test_only_our_own_names_are_answered_to(client):
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "localhost@evil.example"):
        refused(client.get("/", headers={"host": host}), 421, "the request is for the host")
    for host in ("localhost:8765", "127.0.0.1", "[::1]:8765", "LOCALHOST"):
        assert client.get("/", headers={"host": host}).status_code == 200
    with make_client(host="box.example", more=["other.example"]) as wider:
        assert wider.get("/").status_code == 200
        assert wider.get("/", headers={"host": "other.example"}).status_code == 200
        refused(wider.get("/", headers={"host": "evil.example"}), 421)


def test_other_pages_may_not_ask(client):
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "http://["):
        refused(client.get("/api/models", headers={"origin": origin}), 403, "from another page")
    ours = {"origin": "http://127.0.0.1:8765"}
    assert client.get("/api/models", headers=ours).status_code == 200
    for site in ("cross-site", "same-site"):
        headers = {"sec-fetch-site": site}
        refused(client.get("/api/models", headers=headers), 403, "from another page")
        assert client.get("/", headers=headers).status_code == 200  # a link to the page


def test_every_answer_has_the_policy(client):
    for response in (
        client.get("/"),
        client.get("/nothing"),
        client.get("/", headers={"host": "x"}),
    ):
        for name, value in HEADERS.items():
            assert response.headers[name] == value
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_a_bug_of_ours_is_a_sentence_too(monkeypatch):
    with make_client() as client:
        monkeypatch.setattr(Jobs, "job", lambda *_: 1 / 0)
        refused(client.get("/api/jobs/x"), 500, "something went wrong in the server")


def test_a_crash_of_a_computation_is_a_failed_job_and_no_more(client, monkeypatch):
    monkeypatch.setattr("attnflow.viewer.server.ExplainTask", lambda _: BREAK)
    job = wait_for(client, ask(client, (TEXT, 0)))
    assert (job["state"], job["status"]) == ("failed", 500)
    monkeypatch.undo()
    assert wait_for(client, ask(client, (TEXT, 0)))["state"] == "done"


def test_too_many_at_once_are_told_to_come_back(monkeypatch):
    limits = Limits(workers=1, waiting=1)
    going_on = Event()

    class Wait:
        def run(self, *_):
            going_on.wait(20)
            return made_payload()

    monkeypatch.setattr("attnflow.viewer.server.ExplainTask", lambda _: Wait())
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


def test_hostile_tokens_come_as_json_and_nothing_else(tmp_path):
    explanation = hostile()
    assert explanation.heads is not None
    explanation.heads.save(tmp_path / "saved")
    with make_client(Limits()) as client:
        job = wait_for(client, upload(client, (tmp_path / "saved").read_bytes()))
        response = client.get(f"/api/explanations/{job['result']}/header")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.json()["examples"][0]["tokens"] == list(explanation.tokens)
