"""Allowed hosts and origins, and the headers of every response."""

import pytest

from attnflow.viewer.server.security import HEADERS
from tests.viewer.server.client import Client, assert_rejected


@pytest.fixture(scope="module")
def client():
    with Client() as client:
        yield client


def test_only_allowed_hosts_are_served(client):
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "localhost@evil.example"):
        assert_rejected(client.get("/", headers={"host": host}), 421, repr(host), "--allow-host")
    for host in ("localhost:8765", "127.0.0.1", "[::1]:8765", "LOCALHOST"):
        assert client.get("/", headers={"host": host}).status_code == 200


def test_hosts_can_be_added():
    with Client(host="box.example", more=["other.example"]) as client:
        assert client.get("/").status_code == 200
        assert client.get("/", headers={"host": "other.example"}).status_code == 200
        assert_rejected(client.get("/", headers={"host": "evil.example"}), 421)


def test_requests_from_other_pages_are_rejected(client):
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "http://["):
        response = client.get("/api/models", headers={"origin": origin})
        assert_rejected(response, 403, "another page", origin)
    own = {"origin": "http://127.0.0.1:8765"}
    assert client.get("/api/models", headers=own).status_code == 200
    for site in ("cross-site", "same-site"):
        headers = {"sec-fetch-site": site}
        assert_rejected(client.get("/api/models", headers=headers), 403, "another page", site)
        assert client.get("/", headers=headers).status_code == 200  # a link to the page


def test_every_response_has_the_security_headers(client):
    for response in (
        client.get("/"),
        client.get("/nothing"),
        client.get("/", headers={"host": "x"}),
    ):
        for name, value in HEADERS.items():
            assert response.headers[name] == value
    assert "unsafe" not in HEADERS["content-security-policy"]
