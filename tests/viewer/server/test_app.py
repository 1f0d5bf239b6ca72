"""The local page's answers: to good requests, and to all kinds of bad ones."""

import asyncio
import json

import httpx
import numpy as np
import pytest

from attnflow import flow
from attnflow.explainer import explain
from attnflow.viewer import payload as flow_rows
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import Limits
from tests.models.checkpoints import make_loaded
from tests.viewer.examples import hostile, made_up
from tests.viewer.server.client import TEXT, ask, make_client, refused, upload, wait_for
from tests.viewer.server.tasks import BREAK


@pytest.fixture(scope="module")
def client():
    with make_client() as made:
        yield made


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
    named = client.post(
        "/api/attentions?name=my%20file.safetensors",
        content=body,
        headers={"content-type": "application/octet-stream"},
    )
    result = wait_for(client, named)["result"]
    header = client.get(f"/api/explanations/{result}/header").json()
    assert header["title"] == "my file.safetensors"


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
    refused(upload(client, b"x" * 20_001), 413, "the file is too large: at most 0.02 MB")
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


def test_few_files_arrive_at_the_same_time(monkeypatch):
    monkeypatch.setattr("attnflow.viewer.server.app.MOST_UPLOADS", 1)
    app = make_client().app

    async def send():
        arrived = asyncio.Event()

        async def slowly():
            yield b"half"
            await arrived.wait()

        kind = {"content-type": "application/octet-stream"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            first = asyncio.create_task(
                client.post("/api/attentions", content=slowly(), headers=kind)
            )
            await asyncio.sleep(0.1)
            second = await client.post("/api/attentions", content=b"x", headers=kind)
            arrived.set()
            third = await first, await client.post("/api/attentions", content=b"x", headers=kind)
        return second, *third

    second, first, third = asyncio.run(send())
    refused(second, 503, "1 files arrive already. Try again")
    assert (first.status_code, third.status_code) == (202, 202)  # there is room again


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
        (b'"' + b"x" * 10_000 + b'"', 413, "the text is too long; expected at most 100"),
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


def test_a_bug_of_ours_is_a_sentence_too(monkeypatch):
    with make_client() as client:
        monkeypatch.setattr(Jobs, "job", lambda *_: 1 / 0)
        refused(client.get("/api/jobs/x"), 500, "something went wrong in the server")


def test_a_crash_of_a_computation_is_a_failed_job_and_no_more(client, monkeypatch):
    monkeypatch.setattr("attnflow.viewer.server.app.ExplainTask", lambda _: BREAK)
    job = wait_for(client, ask(client, (TEXT, 0)))
    assert (job["state"], job["status"]) == ("failed", 500)
    monkeypatch.undo()
    assert wait_for(client, ask(client, (TEXT, 0)))["state"] == "done"


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
