"""Limits of the server, its errors, and the checks that every request passes first.

Any web page that a user visits can send requests to 127.0.0.1, or point a hostname of its own at
it. Therefore the Host must be an allowed one, and requests from other origins are rejected.
"""

import json
import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from ipaddress import ip_address
from secrets import compare_digest
from socket import getfqdn, gethostname
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from attnflow.errors import AttnflowError, InputError, quote

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ALL_INTERFACES = ("", "0.0.0.0", "::")
MAX_PART = 1000  # characters of a part of an error message
COOKIE = "attnflow-token"
HOSTNAME = re.compile(r"[a-zA-Z0-9_]([a-zA-Z0-9_.-]*[a-zA-Z0-9_])?")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; worker-src blob:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """How much a request may ask for, and how much the server stores.

    text_length: characters of a text. tokens: tokens of a text with its answer, or of saved
    attentions. generated: tokens that the model generates.
    layers: layers of saved attentions.
    upload_bytes: size of saved attentions. seconds: duration of a computation.
    workers: computations at the same time. waiting: computations in the queue.
    results: stored results. result_bytes: their memory; the newest result is always kept.
    """

    text_length: int = 5_000
    tokens: int = 512
    generated: int = 128
    layers: int = 200
    upload_bytes: int = 64_000_000
    seconds: float = 60.0
    workers: int = 1
    waiting: int = 8
    results: int = 16
    result_bytes: int = 512_000_000


class RequestError(AttnflowError):
    """A request is invalid or cannot be served. status: the HTTP status of the response."""

    status = 400

    def __init__(
        self, given: str, expected: str = "", fix: str = "", *, status: int | None = None
    ) -> None:
        super().__init__(given, expected, fix)
        if status is not None:
            self.status = status


class TimeLimitError(RequestError):
    """A computation took too long and was stopped."""

    status = 504


class CrashError(RequestError):
    """A computation failed unexpectedly."""

    status = 500


class BusyError(RequestError):
    """The queue is full."""

    status = 503


def abandoned_error() -> RequestError:
    """The error for a computation that no page waits for."""
    return RequestError(
        "the computation was cancelled, or no page asked for it.", fix="Start it again.", status=410
    )


def _stopping_error() -> RequestError:
    """The error for a request that is not finished when the server stops."""
    return RequestError("the server is stopping.", fix="Start it again.", status=503)


def shorten(text: str) -> str:
    """The start and the end of a long part of a message; names in files can be of any length."""
    half = MAX_PART // 2
    return text if len(text) <= MAX_PART else f"{text[:half]} ... {text[-half:]}"


def shorten_message(error: AttnflowError) -> str:
    """The message of an error, of limited length."""
    parts = (shorten(part) for part in (error.given, error.expected, error.fix))
    return str(AttnflowError(*parts))


def crash_error(reason: str) -> CrashError:
    """The error for a computation that failed for this reason."""
    return CrashError(
        f"the computation failed ({reason}).", fix="Try again, or try another text or model."
    )


def allowed_hosts(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """The hostnames that the server responds to: loopback, its own address, and additional ones.

    A server that listens on all interfaces also responds to the name of the machine.
    Raises InputError for an additional one that is no hostname.

    >>> sorted(allowed_hosts("192.0.2.1", ["Box.example"]))
    ['127.0.0.1', '192.0.2.1', '::1', 'box.example', 'localhost']
    """
    more = tuple(more)
    for name in more:
        if not (HOSTNAME.fullmatch(name) or _is_ip_address(name)):
            raise InputError(
                f"the additional host is {quote(name)}",
                expected="a hostname or an IP address, without http:// and a port",
                fix="For example --allow-host box.example.",
            )
    own = (gethostname(), getfqdn()) if host in ALL_INTERFACES else (host,)
    return frozenset(name.lower() for name in (*LOOPBACK, *own, *more))


class Guard:
    """Middleware that checks the token, Host and Origin of requests, and adds headers to responses.

    token: if it is not empty, every request must have it: in the URL of the page, which stores it
    in a cookie, or in the header Authorization. A page of another site has neither, so the server
    then also responds to its IP addresses.
    """

    def __init__(self, app: App, hosts: frozenset[str], token: str = "") -> None:
        self._app, self._hosts, self._token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                others = [pair for pair in message["headers"] if pair[0].decode() not in HEADERS]
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*others, *ours]}
            await send(message)

        try:
            self._check_host(scope)
            self._check_origin(scope)
            if self._token and self._has_token_in_url(scope):
                return await self._store_token(send_with_headers)
            self._check_token(scope)
        except RequestError as error:
            return await _reject(error, scope, send_with_headers)
        try:
            return await self._app(scope, receive, send_with_headers)
        except CancelledError:
            if started:
                raise
            return await _reject(_stopping_error(), scope, send_with_headers)

    def _check_host(self, scope: Scope) -> None:
        if scope["type"] != "http":
            raise RequestError(
                f"the protocol is {scope['type']}", expected="HTTP", fix="Use a web browser."
            )
        host = _host_header(scope)
        name = _hostname(host)
        if name not in self._hosts and not (self._token and _is_ip_address(name)):
            raise RequestError(
                f"the request is for the host {host[:80]!r}",
                expected=f"one of {', '.join(sorted(self._hosts))}",
                fix="Use such an address, or start the server with --allow-host NAME.",
                status=421,
            )

    def _has_token_in_url(self, scope: Scope) -> bool:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        is_page = scope["path"] == "/" and scope["method"] == "GET"
        return is_page and any(map(self._is_token, query.get("token", [])))

    def _check_token(self, scope: Scope) -> None:
        """Raise RequestError unless a request has the token, if one is required."""
        headers = dict(scope["headers"])
        cookies = headers.get(b"cookie", b"").decode("latin-1").split(";")
        pairs = (cookie.strip().partition("=") for cookie in cookies)
        values = [value for name, _, value in pairs if name == COOKIE]
        scheme, _, credentials = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() in ("bearer", "token"):
            values.append(credentials.strip())
        if self._token and not any(map(self._is_token, values)):
            raise RequestError(
                "the request has no valid token",
                expected="the token that the server printed when it started",
                fix="Open the URL that the server printed, with ?token=... at its end.",
                status=401,
            )

    def _is_token(self, value: str) -> bool:
        return compare_digest(value.encode("utf-8", "replace"), self._token.encode())

    async def _store_token(self, send: Send) -> None:
        """Store the token in a cookie, and open the page without it."""
        cookie = f"{COOKIE}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _check_origin(self, scope: Scope) -> None:
        host = _host_header(scope)
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"none").decode("latin-1")
        # Only the scheme may differ, as it does behind a proxy that adds encryption.
        own_origins = (f"http://{host}".lower(), f"https://{host}".lower())
        other_origin = bool(origin) and origin.lower() not in own_origins
        # Following a link to the page itself is allowed.
        if other_origin or (site not in ("same-origin", "none") and scope["path"] != "/"):
            raise RequestError(
                f"the request comes from another page ({origin[:80] or site})",
                expected="a request from the server's own page",
                fix="Open the server's address in the browser.",
                status=403,
            )


def _host_header(scope: Scope) -> str:
    """The Host header; empty unless there is exactly one."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    return values[0] if len(values) == 1 else ""


def _hostname(host: str) -> str:
    """The hostname in a Host header, without its port; empty if it is invalid."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_ip_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


async def _reject(error: RequestError, scope: Scope, send: Send) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = json.dumps({"error": shorten_message(error)}).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
