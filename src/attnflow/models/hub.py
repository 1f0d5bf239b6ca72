"""Access to the Hugging Face hub: without a network, only the cache is used, and at once.

The client of the hub repeats each failed request for up to a minute. `hub_access` finds out in
seconds whether the hub can be reached.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from os.path import exists
from threading import Thread
from time import monotonic
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

TIMEOUT = 3.0  # seconds for the hub to accept a connection
VALID_FOR = 60.0  # seconds until the hub is tried again
DEFAULT_PORTS = {"https": 443, "http": 80}
# The modules with a switch for the cache alone.
SWITCH = "HF_HUB_OFFLINE"
SWITCHES = ("huggingface_hub.constants", "datasets.config")

# The addresses that were tried: when, and whether they accepted a connection.
_tried: dict[tuple[str, int], tuple[float, bool]] = {}


@contextmanager
def hub_access(name: str) -> Iterator[None]:
    """Run a block that may use the hub. name: of a model or data set; a folder needs no hub.

    If the hub cannot be reached, the block finds only what is in the cache.
    """
    if exists(name) or is_reachable():  # noqa: PTH110 - Path raises if the name is too long
        yield
        return
    modules = [sys.modules[module] for module in SWITCHES if module in sys.modules]
    before = [getattr(module, SWITCH) for module in modules]
    for module in modules:
        setattr(module, SWITCH, True)
    try:
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            setattr(module, SWITCH, value)


def is_reachable() -> bool:
    """Whether the hub, or the proxy in front of it, accepts connections."""
    constants = _find_module("huggingface_hub.constants")
    if constants is None or constants.HF_HUB_OFFLINE:
        return False
    address = _find_address(str(constants.ENDPOINT))
    when, accepted = _tried.get(address, (-VALID_FOR, False))
    if monotonic() - when > VALID_FOR:
        accepted = _accepts(address)
        _tried[address] = (monotonic(), accepted)
    return accepted


def _find_address(endpoint: str) -> tuple[str, int]:
    """Return host and port of the hub, or of the proxy that is configured for it."""
    url = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy:
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return url.hostname or "", url.port or DEFAULT_PORTS.get(url.scheme, 443)


def _accepts(address: tuple[str, int]) -> bool:
    """Whether a server accepts a connection; in a thread, because looking up a name can hang."""
    accepted = []

    def connect() -> None:
        try:
            with socket.create_connection(address, timeout=TIMEOUT):
                accepted.append(True)
        except (OSError, UnicodeError, OverflowError):
            return

    thread = Thread(target=connect, daemon=True, name="attnflow-hub")
    thread.start()
    thread.join(TIMEOUT)
    return bool(accepted)


def _find_module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None
