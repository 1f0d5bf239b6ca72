"""Options of an explanation in requests: edges, heads, residual weight and target."""

import pytest

from attnflow.edges.registry import EDGES
from attnflow.explainer import explain
from attnflow.viewer.server.choices import read_options
from attnflow.viewer.server.security import RequestError
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal
from tests.viewer.server.client import TEXT, Client, assert_rejected


@pytest.fixture(scope="module")
def client():
    with Client() as client:
        yield client


def ask(client, **options):
    """Ask to explain the text with options."""
    body = {"examples": [{"text": TEXT, "model": 0, **options}]}
    return client.post("/api/explanations", json=body)


def test_options_are_those_of_explain(client):
    options = {"edges": "gradient", "heads": "max", "target": 1, "against": "0"}
    job = client.wait_for(ask(client, **options))
    assert job["state"] == "done", job
    header = client.get(f"/api/explanations/{job['result']}/header").json()
    [example] = header["examples"]
    expected = explain(TEXT, make_loaded(), edges="gradient", heads="max", target=1, against=0)
    assert expected.prediction is not None
    assert example["edges"]["name"] == "gradient"
    assert example["heads"] == "max"
    assert example["prediction"]["target"]["label"] == expected.prediction.target.label
    assert header["methods"][0]["title"] == "Raw edge weights"


def test_the_residual_weight_is_used(client):
    job = client.wait_for(ask(client, residual_weight="0.25"))
    example = client.get(f"/api/explanations/{job['result']}/header").json()["examples"][0]
    assert example["residual_weights"] == [0.25, 0.25]


def test_options_that_do_not_fit_the_model_are_an_error_of_the_job(client):
    job = client.wait_for(ask(client, target="no such class"))
    assert job["state"] == "failed"
    assert "no such class" in job["error"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edges", "magic"),
        ("edges", ["attention"]),
        ("heads", "median"),
        ("heads", -1),
        ("heads", True),
        ("residual_weight", 2),
        ("residual_weight", "nan"),
        ("residual_weight", "much"),
        ("residual_weight", True),
        ("residual_weight", [1]),
        ("target", {"a": 1}),
        ("target", "x" * 201),
        ("against", 1.5),
    ],
)
def test_invalid_options_are_rejected(client, name, value):
    assert_rejected(ask(client, **{name: value}), 400, name)
    with refusal(RequestError, name):
        read_options({name: value})


def test_empty_options_have_their_defaults():
    assert read_options({"edges": "", "target": None, "text": "x"}) == {}
    assert read_options({"heads": "2", "residual_weight": "measured", "target": " in"}) == {
        "heads": 2,
        "residual_weight": "measured",
        "target": " in",
    }


def test_the_page_lists_edges_and_classes(client):
    answer = client.get("/api/models").json()
    assert [edges["name"] for edges in answer["options"]["edges"]] == list(EDGES.names)
    assert all(edges["summary"] for edges in answer["options"]["edges"])
    assert answer["models"][0]["classes"] == []


def test_an_image_is_sent_with_a_model_and_options(client):
    def send(**query):
        return client.post(
            "/api/images",
            params={"name": "cat.png", **query},
            content=b"x",
            headers={"content-type": "application/octet-stream"},
        )

    assert_rejected(send(model="7"), 400, "model")
    assert_rejected(send(model="0", edges="magic"), 400, "magic")
    job = client.wait_for(send(model="0"))
    assert job["state"] == "failed"
    assert "vision" in job["error"]
