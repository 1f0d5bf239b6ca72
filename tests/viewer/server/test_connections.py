"""Connections that send no request are closed, and make room for others."""

import socket
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

import pytest
import uvicorn

from attnflow.viewer.server import bind, connections
from attnflow.viewer.server.connections import TimedProtocol

PATIENCE = 60  # seconds after which a test fails; passing tests never wait for it
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def answer(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving():
    """A server in a thread; yields its address."""
    config = uvicorn.Config(
        answer, http=TimedProtocol, ws="none", lifespan="off", log_level="error"
    )
    server = uvicorn.Server(config)
    with closing(bind("127.0.0.1", 0)) as listener:
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def open_connection(address):
    return socket.create_connection(address, timeout=PATIENCE)


@pytest.mark.parametrize("start", [b"", b"GET", REQUEST])
def test_a_request_that_does_not_arrive_ends_the_connection(monkeypatch, start):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.1)
    with serving() as address, open_connection(address) as connection:
        connection.sendall(start)
        assert connection.recv(1) == b""


def test_the_oldest_idle_connection_makes_room(monkeypatch):
    monkeypatch.setattr(connections, "MAX_WAITING", 2)
    with serving() as address, ExitStack() as stack:
        first, second, third = (stack.enter_context(open_connection(address)) for _ in range(3))
        assert first.recv(1) == b""
        for connection in (third, second):
            connection.sendall(REQUEST + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 204")


def test_a_connection_serves_several_requests():
    with serving() as address, open_connection(address) as connection:
        for _ in range(3):
            connection.sendall(REQUEST + b"\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 204")
