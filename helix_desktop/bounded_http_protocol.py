"""The HTTP protocol of the program's own servers: uvicorn's, with limits on headers,
which it lacks.

Headers are read before anybody can ask for a token, so without a limit any user of this computer
could fill the server's memory.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 65_536  # Agents send only a few kilobytes.
HEADER_SECONDS = 60.0  # A client must send a request's headers within this time.


class BoundedHttpProtocol(HttpToolsProtocol):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._are_headers_complete = False
        self._header_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._are_headers_complete:
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's headers are too long.")

    def on_message_begin(self) -> None:
        self._are_headers_complete = False
        self._header_bytes = 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._are_headers_complete = True
        self._cancel_deadline()
        super().on_headers_complete()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
