"""Starting the server: the socket, the worker processes, and uvicorn."""

import socket
from collections.abc import Callable, Sequence

from attnflow.errors import InputError
from attnflow.models.builtin import VERB_NUMBER_MODELS
from attnflow.optional import import_optional
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import ALL_INTERFACES, LOOPBACK, Limits, allowed_hosts
from attnflow.viewer.server.tasks import Report
from attnflow.viewer.server.workers import WorkerPool

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
    """Run the web server until it is interrupted.

    models: folders or hub names; by default the verb-number models that come with attnflow. The
    page offers only these.
    host: the address to listen on; by default only this machine can connect. port: 0 for any free
    port. allow_hosts: additional allowed hostnames.
    limits: how much a request may ask for. report: called while the models are loaded.
    ready: called with the URL once the server listens.
    Raises InputError if a model cannot be loaded or the port is in use, and
    MissingDependencyError without starlette or uvicorn.
    """
    import_optional("starlette", "the web server")
    uvicorn = import_optional("uvicorn", "the web server")
    from attnflow.viewer.server.app import create_app

    limits = limits or Limits()
    listener = bind(host, port)
    pool = WorkerPool(models or VERB_NUMBER_MODELS, limits)
    try:
        loaded = pool.start(report)
        jobs = Jobs(pool, limits)
        app = create_app(jobs, loaded, limits=limits, hosts=allowed_hosts(host, allow_hosts))
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
        ready(local_url(listener))
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        pool.close()
        listener.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError if the address is invalid or the port is in use."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port} ({error.strerror or error})",
            expected="an address of this machine and a free port",
            fix="Choose another --port, or 0 for any free port.",
        ) from error


def local_url(listener: socket.socket) -> str:
    """The URL at which a browser on this machine finds the server."""
    host, port = listener.getsockname()[:2]
    if host in ALL_INTERFACES:
        host = HOST
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def is_public(host: str) -> bool:
    """Whether other machines can connect to a server that listens on this address."""
    return host not in LOOPBACK
