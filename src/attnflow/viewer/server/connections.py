"""Connections of the server: one that does not send a request in time makes room for others.

Uvicorn waits forever for the end of a request's headers, and counts every connection. This module
imports uvicorn, so import it only where that is known to be installed.
"""

import asyncio
from collections import OrderedDict
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_SECONDS = 10.0  # for the first line and the headers of a request
MAX_CONNECTIONS = 200
MAX_WAITING = 100  # connections without a request; the oldest is closed for a new one

Base: Any = AutoHTTPProtocol
# The connections without a request, the oldest first.
_waiting: "OrderedDict[TimedProtocol, None]" = OrderedDict()


class TimedProtocol(Base):  # type: ignore[misc]
    """An HTTP connection that is closed if its request does not arrive in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for a request."""
        super().connection_made(transport)
        while len(_waiting) >= MAX_WAITING:
            oldest, _ = _waiting.popitem(last=False)
            oldest.transport.close()
        self._update()

    def data_received(self, data: bytes) -> None:
        """Handle data; a part of the headers does not extend the time."""
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop()

    def _update(self) -> None:
        """Start the time if the connection waits for a request, and stop it if there is one."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(HEADER_SECONDS, self._expire)
            _waiting[self] = None

    def _stop(self) -> None:
        _waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._stop()
        self.transport.close()
