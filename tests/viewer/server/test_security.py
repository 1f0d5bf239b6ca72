"""Who may ask the local page, and what every answer says."""

import pytest

from attnflow.viewer.server.security import HEADERS
from tests.viewer.server.client import make_client, refused


@pytest.fixture(scope="module")
def client():
    with make_client() as made:
        yield made


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
