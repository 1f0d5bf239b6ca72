"""What stands before every request of the local page: who may ask, and what answers may do.

Any web page that the user visits can send requests to 127.0.0.1, and can point a name of its own
at it. So the Host must be one of ours, and requests of other origins are refused.

What the local page allows at most, and how it refuses what goes beyond.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from attnflow.errors import AttnflowError


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for, and how much is kept.

    text_length: characters of a text. tokens: tokens of a text or of saved attentions.
    upload_bytes: the size of saved attentions. seconds: the time of one computation.
    workers: computations at the same time. waiting: those that wait for their turn.
    results: results that are kept. result_bytes: the memory they may take; the newest is always
    kept.
    """

    text_length: int = 5_000
    tokens: int = 512
    upload_bytes: int = 64_000_000
    seconds: float = 60.0
    workers: int = 1
    waiting: int = 8
    results: int = 16
    result_bytes: int = 512_000_000


class RequestError(AttnflowError):
    """A request that is refused, with the status of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TimeOutError(RequestError):
    """A computation that took longer than is allowed, and was ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the computation took longer than the {seconds:g} seconds that are allowed, and was "
            "ended. Give a shorter text, or start the server with a longer --seconds.",
            504,
        )


class CrashError(RequestError):
    """A computation that went wrong in a way nobody planned for."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the computation broke down ({what}); the server goes on. Try again, or try another "
            "text or model.",
            500,
        )


class BusyError(RequestError):
    """Too much is waiting already."""

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"the server is busy: {waiting} computations run or wait already. Try again in a "
            "moment.",
            503,
        )


Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("", "0.0.0.0", "::")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


def allowed_hosts(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """The names that the server answers to: this machine, what it binds to, and those named."""
    own = () if host in EVERYWHERE else (host,)
    return frozenset(name.lower() for name in (*LOOPBACK, *own, *more))


class Guard:
    """Checks Host and Origin of each request, and adds the headers to each answer."""

    def __init__(self, app: App, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0].decode() not in HEADERS]
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        try:
            self._check(scope)
        except RequestError as error:
            return await _refuse(error, scope, send_guarded)
        return await self._app(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> None:
        if scope["type"] != "http":
            raise RequestError("only HTTP is spoken here. Use a web browser.", 400)
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        host = given[0] if len(given) == 1 else ""
        if _name_of(host) not in self._hosts:
            raise RequestError(
                f"the request is for the host {host[:80]!r}; expected one of "
                f"{', '.join(sorted(self._hosts))}. Use such an address, or start the server with "
                "--allow-host NAME.",
                421,
            )
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"none").decode("latin-1")
        # Only the scheme may differ, as it does behind a server that adds encryption.
        ours = (f"http://{host}".lower(), f"https://{host}".lower())
        foreign = bool(origin) and origin.lower() not in ours
        # Following a link to the page itself is fine.
        if foreign or (site not in ("same-origin", "none") and scope["path"] != "/"):
            raise RequestError(
                f"the request comes from another page ({origin[:80] or site}); expected one from "
                "this server's own. Open the server's address in the browser.",
                403,
            )


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; empty if there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


async def _refuse(error: RequestError, scope: Scope, send: Send) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = json.dumps({"error": str(error)}).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
