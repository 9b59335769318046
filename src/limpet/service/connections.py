"""Connections that cannot block a service, however many are open and however slow they are."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ARRIVED = 60.0
"""Seconds in which a whole request must arrive, from the connection or from its first byte."""


class BoundedConnection(HttpToolsProtocol):
    """An HTTP connection that is closed if a request does not arrive in time.

    uvicorn waits for requests without a timeout, and refuses new connections while the maximum number is open. Here
    the connection that has waited longest without a request is closed for a new one.
    """

    waiting: dict[BoundedConnection, None] = {}  # noqa: RUF012 (of this process, the one that waits longest first)
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request; close the longest idle connection if there are too many."""
        super().connection_made(transport)
        self._await_request()
        self.waiting[self] = None
        over = len(self.connections) - (self.limit_concurrency or len(self.connections) + 1)
        for oldest in list(self.waiting)[: over + 1 if over >= 0 else 0]:
            oldest.drop()

    def drop(self) -> None:
        """Close at once, without a response."""
        self.waiting.pop(self, None)
        self.connections.discard(self)  # `connection_lost` is called later
        self.transport.abort()

    def shutdown(self) -> None:
        """Close, at once or after the response, without waiting for the TLS close of an idle client."""
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a request."""
        self._arrived()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start the timer for the next request of a kept-alive connection."""
        self._await_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Mark the connection as busy: it is not closed for a new one."""
        self.waiting.pop(self, None)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the timer: the request has arrived."""
        self._arrived()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Mark the connection as the most recently idle one."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self.waiting[self] = None

    def _await_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(ARRIVED, self.drop)

    def _arrived(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
