"""Running the local page: workers, a socket, and the ASGI server."""

import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from attnflow.errors import InputError, MissingDependencyError
from attnflow.models.builtin.folders import BUNDLED
from attnflow.viewer.server.app import create_app, import_starlette
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import EVERYWHERE, LOOPBACK, Limits, allowed_hosts
from attnflow.viewer.server.workers import Report, WorkerPool

HOST, PORT = "127.0.0.1", 8765


def serve(
    models: Sequence[str] = (),
    *,
    host: str = HOST,
    port: int = PORT,
    allow_hosts: Sequence[str] = (),
    limits: Limits | None = None,
    report: Report = lambda *_: None,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the local page until it is interrupted.

    models: folders or names on the hub; those that come with attnflow if none is given. The page
    offers these and no others.
    host: the address to bind to; this machine alone if not given. port: 0 for any that is free.
    allow_hosts: further names that the page is reached by, needed if it is not on this machine.
    limits: what one request may ask for. report: told of the models as they are loaded.
    ready: told the address once the page is there.
    Raises InputError if a model cannot be loaded or the port is taken, MissingDependencyError
    without starlette or uvicorn.
    """
    import_starlette("the local page")
    uvicorn = _import_uvicorn()
    limits = limits or Limits()
    listening = bind(host, port)
    pool = WorkerPool(models or BUNDLED, limits)
    try:
        described = pool.start(report)
        jobs = Jobs(pool, limits)
        app = create_app(jobs, described, limits=limits, hosts=allowed_hosts(host, allow_hosts))
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="on",
            limit_concurrency=200,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=2,
        )
        ready(address(listening))
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        pool.close()
        listening.close()


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises InputError if the address or the port cannot be had."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InputError(
            f"the server cannot listen on {host}, port {port} ({error.strerror or error})",
            expected="an address of this machine and a free port",
            fix="Choose another --port, or 0 for any.",
        ) from error


def address(listening: socket.socket) -> str:
    """The address to type into a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if host in EVERYWHERE:
        host = HOST
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def is_public(host: str) -> bool:
    """Whether other machines may reach a server that binds to this address."""
    return host not in LOOPBACK


def _import_uvicorn() -> Any:
    try:
        return import_module("uvicorn")
    except ImportError as error:
        raise MissingDependencyError(
            "uvicorn is not installed and the local page needs it. "
            "Install it: pip install 'attnflow[serve]'"
        ) from error
