"""Responses of the web application to valid and invalid requests."""

import asyncio
import json
from dataclasses import replace

import httpx
import numpy as np
import pytest
import torch

from attnflow import InputError, flow
from attnflow.explainer import explain
from attnflow.models.loading import load_model
from attnflow.viewer import payload as payload_module
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import Limits
from attnflow.viewer.server.tasks import ExplainTask, Question
from tests.models.checkpoints import make_loaded, save
from tests.viewer.examples import hostile_explanation, random_explanation
from tests.viewer.server.client import LIMITS, TEXT, Client, assert_rejected
from tests.viewer.server.fake_tasks import BUG


@pytest.fixture(scope="module")
def client():
    with Client() as client:
        yield client


def save_attentions(explanation, path):
    """Save the attentions of an explanation; returns the bytes of the file."""
    assert explanation.heads is not None
    explanation.heads.save(path)
    return path.read_bytes()


def test_the_static_files_are_served(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("/page.js", "/page.css", "/attnflow-viewer.js"):
        assert f'"{path}"' in page.text or path == "/attnflow-viewer.js"
        assert client.get(path).status_code == 200
    assert "<script>" not in page.text  # the content security policy forbids inline scripts
    assert client.get("/api/models").json()["models"][1]["label"] == "two"


def test_the_scores_are_those_of_the_library(client):
    job = client.wait_for(client.explain((TEXT, 0)))
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


def test_scores_of_registered_methods_are_served(client, toy_method):
    job = client.wait_for(client.explain((TEXT, 0)))
    base = f"/api/explanations/{job['result']}"
    methods = client.get(f"{base}/header").json()["methods"]
    assert methods[-1] == {
        "name": "toy",
        "title": "Toy <method>",
        "summary": "for tests & more.",
        "computed": "data",
    }
    chunk = client.get(f"{base}/chunks/0/scores/toy/2")
    expected = toy_method.attribute(explain(TEXT, make_loaded()).graph).to_numpy()[1]
    np.testing.assert_array_equal(
        np.frombuffer(chunk.content, "<f2").reshape(6, 6), expected.astype(np.float16)
    )


def test_flow_of_other_positions_is_computed_on_request(client, monkeypatch):
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", 1)
    job = client.wait_for(client.explain((TEXT, 0)))
    base = f"/api/explanations/{job['result']}"
    assert client.get(f"{base}/header").json()["examples"][0]["flow_rows"] == [0]
    row = client.get(f"{base}/flow?example=0&position=2&layer=2")
    expected = flow(explain(TEXT, make_loaded()).graph, layers=2, positions=2).to_numpy()[0, 0]
    np.testing.assert_array_equal(np.frombuffer(row.content, "<f4"), expected.astype("<f4"))


def test_two_texts_and_models_are_compared(client):
    job = client.wait_for(client.explain((TEXT, 0), ("the key", 1)))
    header = client.get(f"/api/explanations/{job['result']}/header").json()
    assert [len(example["tokens"]) for example in header["examples"]] == [6, 2]


def test_saved_attentions_are_read(client, tmp_path):
    explanation = random_explanation(2, 5)
    body = save_attentions(explanation, tmp_path / "saved.safetensors")
    job = client.wait_for(client.upload(body))
    [example] = client.get(f"/api/explanations/{job['result']}/header").json()["examples"]
    assert example["tokens"] == list(explanation.tokens)
    assert example["n_heads"] == 2
    assert example["prediction"] is None


def test_an_uploaded_file_gives_the_page_its_title(client, tmp_path):
    body = save_attentions(random_explanation(1, 3), tmp_path / "saved")
    job = client.wait_for(client.upload(body, name="my file.safetensors"))
    header = client.get(f"/api/explanations/{job['result']}/header").json()
    assert header["title"] == "my file.safetensors"


def test_errors_about_uploads_do_not_reveal_the_path(client):
    for body in (b"", b"x" * 100, b"\x08\0\0\0\0\0\0\0{}      "):
        job = client.wait_for(client.upload(body))
        assert (job["state"], job["status"]) == ("failed", 422)
        assert job["error"].startswith("the file ")
        assert "/" not in job["error"].split("(")[0]


def test_uploads_are_limited_and_removed(client, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert_rejected(client.upload(b"x" * 20_001), 413, "0.02 MB", "--max-upload")
    no_length = (b"x" * 999 for _ in range(30))
    assert_rejected(client.upload(no_length), 413, "0.02 MB")
    assert_rejected(client.upload(b"x", "text/plain"), 415, "'text/plain'")
    body = save_attentions(random_explanation(1, 13, n_heads=1), tmp_path / "saved")
    job = client.wait_for(client.upload(body))
    assert (job["state"], job["status"]) == ("failed", 422)
    assert "13 tokens" in job["error"]
    assert "at most 12 tokens" in job["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_the_number_of_simultaneous_uploads_is_limited(monkeypatch):
    monkeypatch.setattr("attnflow.viewer.server.app.MAX_UPLOADS", 1)
    app = Client().app

    async def send():
        arriving, finish = asyncio.Event(), asyncio.Event()

        async def slow_body():
            yield b"half"
            arriving.set()
            await finish.wait()

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            def post(body):
                headers = {"content-type": "application/octet-stream"}
                return client.post("/api/attentions", content=body, headers=headers)

            first = asyncio.create_task(post(slow_body()))
            await arriving.wait()
            second = await post(b"x")
            finish.set()
            return await first, second, await post(b"x")

    first, second, third = asyncio.run(send())
    assert_rejected(second, 503, "busy", "1 uploads")
    assert (first.status_code, third.status_code) == (202, 202)


@pytest.mark.parametrize(
    ("body", "status", "fragments"),
    [
        (b"", 400, ["JSON"]),
        (b"{", 400, ["JSON"]),
        (b"[" * 5000, 400, ["JSON"]),
        (b"\xff\xfe", 400, ["JSON"]),
        (b"[]", 400, ["1 to 2 examples"]),
        (b'{"examples": []}', 400, ["1 to 2 examples"]),
        (b'{"examples": [1]}', 400, ["no text"]),
        (b'{"examples": [{"text": 3, "model": 0}]}', 400, ["no text"]),
        (b'{"examples": [{"text": " ", "model": 0}]}', 400, ["no text"]),
        (b'{"examples": [{"text": "key"}]}', 400, ["model 'None'"]),
        (b'{"examples": [{"text": "key", "model": 2}]}', 400, ["model '2'", "0 to 1"]),
        (b'{"examples": [{"text": "key", "model": true}]}', 400, ["model 'True'"]),
        (b'{"examples": [{"text": "key", "model": "gpt2"}]}', 400, ["model 'gpt2'"]),
        (
            json.dumps({"examples": [{"text": "k" * 101, "model": 0}]}).encode(),
            413,
            ["101 characters", "at most 100", "--max-text"],
        ),
        (b'"' + b"x" * 10_000 + b'"', 413, ["at most 100", "--max-text"]),
    ],
)
def test_invalid_requests_get_an_error_message(client, body, status, fragments):
    response = client.post(
        "/api/explanations", content=body, headers={"content-type": "application/json"}
    )
    assert_rejected(response, status, *fragments)


@pytest.mark.parametrize(
    ("limits", "text", "fragments"),
    [
        (LIMITS, "key " * 12, ["14 tokens", "at most 12", "--max-tokens"]),
        (Limits(), "key " * 16, ["18 tokens", "at most 16", "Shorten the text."]),
    ],
    ids=["limit of the server", "limit of the model"],
)
def test_a_text_with_too_many_tokens_is_a_failed_job(limits, text, fragments):
    with Client(limits) as client:
        job = client.wait_for(client.explain((text, 0)))
    assert (job["state"], job["status"]) == ("failed", 422)
    for fragment in fragments:
        assert fragment in job["error"]


def test_unknown_addresses_get_an_error_message(client):
    for path in ("/nothing", "/../../etc/passwd", "/static/page.html", "/..%2f..%2fpyproject.toml"):
        assert_rejected(client.get(path), 404, "address")
    assert_rejected(client.post("/"), 405, "method")
    assert_rejected(client.get("/api/jobs/x"), 404, "computation")
    assert_rejected(client.get("/api/explanations/x/header"), 404, "result")


def test_unknown_arrays_and_invalid_numbers_get_an_error_message(client):
    job = client.wait_for(client.explain((TEXT, 0)))
    base = f"/api/explanations/{job['result']}"
    assert_rejected(client.get(f"{base}/chunks/0/flow/9"), 422, "'0/flow/9'")
    for query, fragment in [
        ("example=1&position=0&layer=1", "example is '1'"),
        ("example=0&position=-1&layer=1", "position is '-1'"),
        ("example=0&position=0", "layer is ''"),
    ]:
        assert_rejected(client.get(f"{base}/flow?{query}"), 400, fragment)


def test_other_content_types_are_rejected(client):
    headers = {"content-type": "text/plain"}
    response = client.post("/api/explanations", content=b"{}", headers=headers)
    assert_rejected(response, 415, "application/json")


def test_a_bug_in_the_server_gets_an_error_message(monkeypatch):
    with Client() as client:
        monkeypatch.setattr(Jobs, "job", lambda *_: 1 / 0)
        assert_rejected(client.get("/api/jobs/x"), 500, "failed")


def test_the_server_survives_a_task_that_crashes(client, monkeypatch):
    monkeypatch.setattr("attnflow.viewer.server.app.ExplainTask", lambda _: BUG)
    job = client.wait_for(client.explain((TEXT, 0)))
    assert (job["state"], job["status"]) == ("failed", 500)
    monkeypatch.undo()
    assert client.wait_for(client.explain((TEXT, 0)))["state"] == "done"


def test_hostile_tokens_are_sent_as_json(tmp_path):
    explanation = hostile_explanation()
    body = save_attentions(explanation, tmp_path / "saved")
    with Client(Limits()) as client:
        job = client.wait_for(client.upload(body))
        response = client.get(f"/api/explanations/{job['result']}/header")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.json()["examples"][0]["tokens"] == list(explanation.tokens)


def test_half_of_a_surrogate_pair_is_rejected(client):
    body = b'{"examples": [{"text": "half \\ud800", "model": 0}]}'
    response = client.post(
        "/api/explanations", content=body, headers={"content-type": "application/json"}
    )
    assert_rejected(response, 400, "surrogate")


def hand_written(header, size=4):
    """A safetensors file with this header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * size


ENTRY = {"dtype": "F32", "shape": [1, 1, 1], "data_offsets": [0, 4]}
OURS = {"kind": "attentions", "version": 1, "tokens": ["a"]}


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ({"layer.0": {**ENTRY, "dtype": "F8_E4M3", "data_offsets": [0, 1]}}, 1),
        ({"layer.0": ENTRY, "__metadata__": {"attnflow": "[" * 9000}}, 4),
        ({"layer.0": ENTRY, "__metadata__": {"attnflow": '{"a":' * 2000}}, 4),
        ({"x" * 15_000: ENTRY, "__metadata__": {"attnflow": json.dumps(OURS)}}, 4),
        ({"layer.0": ENTRY, "__metadata__": {"attnflow": json.dumps({**OURS, "tokens": 3})}}, 4),
    ],
)
def test_odd_files_are_failed_jobs_with_short_messages(client, header, size):
    job = client.wait_for(client.upload(hand_written(header, size)))
    assert (job["state"], job["status"]) == ("failed", 422)
    assert len(job["error"]) < 4000


def test_a_file_with_too_many_layers_is_a_failed_job(tmp_path):
    body = save_attentions(random_explanation(9, 2, n_heads=1), tmp_path / "saved")
    with Client(replace(LIMITS, layers=8)) as client:
        job = client.wait_for(client.upload(body))
    assert job["status"] == 422
    assert "9 layers" in job["error"]
    assert "at most 8" in job["error"]


def test_a_job_can_be_cancelled(client):
    job = client.wait_for(client.explain((TEXT, 0)))
    assert client.delete(f"/api/jobs/{job['result']}").status_code == 200
    assert_rejected(client.delete("/api/jobs/unknown"), 404)


def test_a_body_that_stops_is_an_error_without_a_traceback(monkeypatch, caplog):
    monkeypatch.setattr("attnflow.viewer.server.app.PAUSE_SECONDS", 0.05)
    app = Client().app
    sent = []

    async def request(messages):
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/attentions",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/octet-stream")],
        }

        async def receive():
            if not messages:
                await asyncio.Event().wait()
            return messages.pop(0)

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)

    part = {"type": "http.request", "body": b"x", "more_body": True}
    asyncio.run(request([part]))  # and then nothing
    asyncio.run(request([part, {"type": "http.disconnect"}]))
    assert [message["status"] for message in sent if "status" in message] == [408, 408]
    assert not caplog.records


def test_errors_do_not_reveal_the_folder_of_a_model(tmp_path):
    loaded = load_model(save(tmp_path / "my-model"))
    loaded = replace(loaded, max_length=4)
    with pytest.raises(InputError) as caught:
        ExplainTask((Question("the key to cabinets", 0, {}),)).run(
            [loaded], LIMITS, lambda *_: None
        )
    assert str(tmp_path) not in str(caught.value)
    other = replace(loaded, max_length=None)  # the model itself fails, with its name
    other.model.bert.embeddings.word_embeddings = torch.nn.Embedding(3, 8)
    with pytest.raises(InputError) as caught:
        ExplainTask((Question("the key", 0, {}),)).run([other], LIMITS, lambda *_: None)
    assert str(tmp_path) not in str(caught.value)
    assert "my-model" in str(caught.value)
