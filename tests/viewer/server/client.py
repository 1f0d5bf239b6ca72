"""The local page without processes and sockets, and asking it."""

import time

from starlette.testclient import TestClient

from attnflow.viewer.server.app import create_app
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import Limits, allowed_hosts
from attnflow.viewer.server.workers import ModelInfo
from tests.models.checkpoints import make_loaded
from tests.viewer.server.tasks import InlinePool

TEXT = "the key to cabinets"
LIMITS = Limits(text_length=100, tokens=12, upload_bytes=20_000, seconds=5, results=2)
INFO = [ModelInfo("one", "classifier", 16, "text"), ModelInfo("two", "causal_lm", 16, "text")]


def make_client(limits=LIMITS, host="127.0.0.1", **options):
    pool = InlinePool([make_loaded(), make_loaded("GPT2LMHeadModel")], limits)
    jobs = Jobs(pool, limits)  # type: ignore[arg-type]
    app = create_app(jobs, INFO, limits=limits, hosts=allowed_hosts(host, **options))
    return TestClient(app, base_url=f"http://{host}:8765", raise_server_exceptions=False)


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


def upload(client, body, kind="application/octet-stream"):
    return client.post("/api/attentions", content=body, headers={"content-type": kind})
