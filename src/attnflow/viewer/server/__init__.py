"""The local web server behind `attnflow serve`.

The life of a request to explain a text:

1. `serve`, below, listens on a socket and passes HTTP requests to the application.
   `connections` closes connections that send no request.
2. `security` rejects requests for other hosts, from other pages or without the token of a public
   server, and adds security headers.
3. `app` routes the request, checks it against the limits, and submits a task; `choices` reads the
   options of an explanation.
4. `jobs` queues the task and returns the ID of a job, which the page polls for progress.
5. `workers` sends the task to a worker process, which holds the loaded models.
6. `tasks` runs there: it explains the text and computes the scores. A worker that takes too long
   is killed, and one that crashes is replaced; the server keeps running.
7. `jobs` stores the result, a payload, from which `app` serves the header and the arrays.
"""

import secrets
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from attnflow.errors import InputError
from attnflow.models.builtin import VERB_NUMBER_MODELS
from attnflow.optional import import_optional
from attnflow.viewer.server.security import ALL_INTERFACES, LOOPBACK, Limits, allowed_hosts

if TYPE_CHECKING:
    from attnflow.viewer.server.tasks import Report

HOST, PORT = "127.0.0.1", 8765


def serve(
    models: Sequence[str] = (),
    *,
    host: str = HOST,
    port: int = PORT,
    allow_hosts: Sequence[str] = (),
    limits: Limits | None = None,
    report: "Report" = lambda *_: None,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the web server until it is interrupted.

    models: folders or hub names; by default the verb-number models that come with attnflow. The
    page offers only these.
    host: the address to listen on; by default only this machine can connect. port: 0 for any free
    port. allow_hosts: additional allowed hostnames.
    limits: how much a request may ask for. report: called while the models are loaded.
    ready: called with the URL once the server listens. If other machines can connect, the URL has
    a token, which every request needs.
    Raises InputError if a model cannot be loaded, a host is invalid or the port is in use, and
    MissingDependencyError without starlette or uvicorn.
    """
    import_optional("starlette", "the web server")
    uvicorn = import_optional("uvicorn", "the web server")
    from attnflow.viewer.server.app import create_app
    from attnflow.viewer.server.connections import MAX_CONNECTIONS, TimedProtocol
    from attnflow.viewer.server.jobs import Jobs
    from attnflow.viewer.server.workers import WorkerPool

    limits = limits or Limits()
    hosts = allowed_hosts(host, allow_hosts)
    listener = bind(host, port)
    pool = WorkerPool(models or VERB_NUMBER_MODELS, limits)
    try:
        loaded = pool.start(report)
        jobs = Jobs(pool, limits)
        token = secrets.token_urlsafe(24) if is_public(host) else ""
        config = uvicorn.Config(
            create_app(jobs, loaded, limits=limits, hosts=hosts, token=token),
            http=TimedProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="on",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=2,
        )
        ready(local_url(listener) + (f"?token={token}" if token else ""))
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        pool.close()
        listener.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError if the address is invalid or the port is in use."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host}, port {port} ({reason})",
            expected="an address of this machine and a free port",
            fix="Choose another --port, or 0 for any free port.",
        ) from error


def local_url(listener: socket.socket) -> str:
    """The URL at which a browser on this machine finds the server."""
    host, port = listener.getsockname()[:2]
    if host in ALL_INTERFACES:
        host = HOST
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def public_url(url: str, host: str) -> str:
    """The URL at which other machines find the server. host: the address that it listens on.

    >>> public_url("http://127.0.0.1:8765/?token=x", "192.0.2.1")
    'http://192.0.2.1:8765/?token=x'
    """
    parts = urlsplit(url)
    name = socket.gethostname() if host in ALL_INTERFACES else host
    shown = f"[{name}]" if ":" in name else name
    return urlunsplit(parts._replace(netloc=f"{shown}:{parts.port}"))


def is_public(host: str) -> bool:
    """Whether other machines can connect to a server that listens on this address."""
    return host not in LOOPBACK
