"""A client of the web application, which runs without worker processes and sockets."""

from threading import Event

from starlette.testclient import TestClient

from attnflow.viewer.server.app import create_app
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import Limits, allowed_hosts
from attnflow.viewer.server.tasks import ModelInfo
from tests.models.checkpoints import make_loaded
from tests.viewer.server.fake_tasks import InlinePool

TEXT = "the key to cabinets"
LIMITS = Limits(text_length=100, tokens=12, upload_bytes=20_000, seconds=60, results=2)
INFO = [ModelInfo("one", "classifier", 16, "text"), ModelInfo("two", "causal_lm", 16, "text")]
PATIENCE = 300  # seconds after which a test fails; passing tests never wait for it


class WaitableJobs(Jobs):
    """Jobs that a test can wait for."""

    def __init__(self, pool, limits):
        super().__init__(pool, limits)
        self._ended = {}

    def submit(self, task, *, cleanup=None):
        ended = Event()

        def end():
            if cleanup is not None:
                cleanup()
            ended.set()

        job_id = super().submit(task, cleanup=end)
        self._ended[job_id] = ended
        return job_id

    def wait(self, job_id):
        assert self._ended[job_id].wait(PATIENCE)


class Client(TestClient):
    """A client that sends the requests of the page."""

    def __init__(self, limits=LIMITS, host="127.0.0.1", token="", **options):
        pool = InlinePool([make_loaded(), make_loaded("GPT2LMHeadModel")], limits)
        self.jobs = WaitableJobs(pool, limits)
        hosts = allowed_hosts(host, **options)
        app = create_app(self.jobs, INFO, limits=limits, hosts=hosts, token=token)
        super().__init__(app, base_url=f"http://{host}:8765", raise_server_exceptions=False)

    def explain(self, *examples):
        """Ask to explain texts. examples: each a text and the index of a model."""
        body = {"examples": [{"text": text, "model": model} for text, model in examples]}
        return self.post("/api/explanations", json=body)

    def upload(self, body, content_type="application/octet-stream", *, name=None):
        """Upload saved attentions."""
        return self.post(
            "/api/attentions",
            params={} if name is None else {"name": name},
            content=body,
            headers={"content-type": content_type},
        )

    def wait_for(self, response):
        """The job that a response started, once it has ended."""
        assert response.status_code == 202, response.text
        self.jobs.wait(response.json()["job"])
        return self.get(f"/api/jobs/{response.json()['job']}").json()


def assert_rejected(response, status, *fragments):
    """The response has this status and an error message with these fragments."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    for fragment in fragments:
        assert fragment in response.json()["error"]
