"""Allowed hosts and origins, and the headers of every response."""

import asyncio
import socket

import pytest

from attnflow.errors import InputError
from attnflow.viewer.server.security import HEADERS, Guard, allowed_hosts, shorten_message
from tests.refusal import refusal
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


@pytest.mark.parametrize(
    "name", ["", " ", "http://box.example", "box:8765", "*.example", "a/b", "b\u00fccher", "-a"]
)
def test_a_host_that_no_request_can_have_is_an_error(name):
    with refusal(InputError, repr(name), "--allow-host"):
        allowed_hosts("127.0.0.1", ["box.example", name])


def test_additional_hosts_may_be_addresses():
    assert {"192.0.2.7", "2001:db8::1"} <= allowed_hosts("127.0.0.1", ["192.0.2.7", "2001:DB8::1"])


def test_a_request_that_is_cancelled_is_answered():
    """As uvicorn cancels uploads when it stops; without an answer, it logs a traceback."""
    sent = []

    async def app(_scope, _receive, _send):
        raise asyncio.CancelledError

    async def send(message):
        sent.append(message)

    guard = Guard(app, allowed_hosts("127.0.0.1"))
    headers = [(b"host", b"127.0.0.1:8765")]
    scope = {"type": "http", "path": "/", "method": "GET", "headers": headers, "query_string": b""}

    async def receive():
        raise AssertionError

    asyncio.run(guard(scope, receive, send))
    assert [message.get("status") for message in sent] == [503, None]


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


def test_a_public_server_asks_for_a_token():
    with Client(host="0.0.0.0", token="secret") as client:
        client.base_url = "http://192.0.2.7:8765"
        for path in ("/", "/page.js", "/api/models", "/?token=wrong", "/?token="):
            assert_rejected(client.get(path), 401, "token")
        for header in ("Bearer wrong", "secret", "Basic secret"):
            response = client.get("/api/models", headers={"authorization": header})
            assert_rejected(response, 401)
        bearer = {"authorization": "Bearer secret"}
        assert client.get("/api/models", headers=bearer).status_code == 200
        opened = client.get("/?token=secret", follow_redirects=False)
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert client.get("/").status_code == 200  # with the cookie
        assert client.get("/api/models").status_code == 200
        assert_rejected(client.get("/", headers={"host": "evil.example"}), 421, "--allow-host")


def test_a_public_server_answers_to_addresses_and_its_own_name():
    with Client(host="0.0.0.0", token="secret") as client:
        bearer = {"authorization": "Bearer secret"}
        for host in ("192.0.2.7", "[2001:db8::1]:8765", socket.gethostname(), "localhost"):
            response = client.get("/api/models", headers={**bearer, "host": host})
            assert response.status_code == 200
    with Client() as client:  # without a token, only to loopback
        assert_rejected(client.get("/", headers={"host": "192.0.2.7"}), 421)


def test_long_messages_are_shortened():
    error = InputError("x" * 10**7, "y" * 10**7, "z" * 10**7)
    assert len(shorten_message(error)) < 4000
    assert shorten_message(InputError("a", "b", "C.")) == "a; expected b. C."
