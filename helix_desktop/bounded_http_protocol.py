"""The HTTP protocol of the program's own servers: uvicorn's, with limits which it lacks.

A client is heard before anybody can ask it for a token. Without limits, any user of this computer
could fill the server's memory, or hold all the connections that it can have.
"""

import asyncio
import contextlib
import socket
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 65_536  # Agents send only a few kilobytes.
HEADER_SECONDS = 60.0  # A client must send a request's headers within this time.
MOST_WAITING_CONNECTIONS = 200
MOST_QUEUED_REQUESTS = 16  # Of one connection, sent before the answer to the first. Few clients do.


# Connections of this process that have not begun to speak encrypted, by the numbers of their open
# files, in the order in which they came.
_connections_before_encryption: dict[int, socket.socket] = {}


class EncryptedListeningSocket(socket.socket):
    """Of too many connections that have not begun to speak encrypted, it closes the oldest.

    No protocol hears of a connection before that. Each takes one of the open files that the process
    may have, and a stranger who took all of them kept everybody else out. On Windows, asyncio accepts
    connections in another way, so they are not limited there.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        waiting = _connections_before_encryption
        for number, known_connection in list(waiting.items()):
            is_closed = known_connection.fileno() != number
            if is_closed:
                del waiting[number]
        waiting[connection.fileno()] = connection
        if len(waiting) > MOST_WAITING_CONNECTIONS:
            oldest = waiting.pop(next(iter(waiting)))
            with contextlib.suppress(OSError):  # The client may have left.
                oldest.shutdown(socket.SHUT_RDWR)
        return connection, address


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. When no request of it is being answered, what it sends must become the
    headers of one in time. Of too many that wait for their clients, the longest waiting is closed.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._are_headers_complete = False
        self._header_bytes = 0
        self._has_parser_gone_on = False
        self._deadline: asyncio.TimerHandle | None = None
        self._is_client_reading = True
        self.waiting_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _connections_before_encryption.pop(transport.get_extra_info("socket").fileno(), None)
        self.waiting_since = self.loop.time()
        self._start_deadline()
        self._close_longest_waiting_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._has_parser_gone_on = False
        super().data_received(data)
        if self._has_parser_gone_on:
            self._header_bytes = 0
        else:
            # Headers, or what HTTP allows after a body and between its chunks, also without an end.
            self._header_bytes += len(data)
        if self._header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
            self._refuse_endless_headers()
        if self._deadline is None and not self._is_request_being_answered():
            self._start_deadline()

    def pause_writing(self) -> None:
        self._is_client_reading = False
        self.waiting_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._is_client_reading = True
        super().resume_writing()

    # What the parser has found in the received bytes

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_QUEUED_REQUESTS:
            raise httptools.HttpParserError("too many requests at once")
        self._are_headers_complete = False
        if self._deadline is None:
            self._start_deadline()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Those after a body would be added to headers that have been checked already.
        if not self._are_headers_complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._are_headers_complete = True
        self._has_parser_gone_on = True
        self._cancel_deadline()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._has_parser_gone_on = True

    def on_body(self, body: bytes) -> None:
        self._has_parser_gone_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_parser_gone_on = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    # Limits

    def _is_request_being_answered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def is_waiting_for_client(self) -> bool:
        return not self._is_client_reading or not self._is_request_being_answered()

    def _refuse_endless_headers(self) -> None:
        if self._is_request_being_answered():
            self.transport.close()  # An answer of ours would stand in the middle of that one.
        else:
            self.send_400_response("The request's headers are too long.")

    def _close_longest_waiting_connection(self) -> None:
        """Of more than so many connections that wait, close the one that has waited longest. One
        whose client sends its request at once is not among them.
        """
        most_waiting = MOST_WAITING_CONNECTIONS
        if self.limit_concurrency is not None:
            # All requests are refused when there are so many connections.
            most_waiting = self.limit_concurrency // 2
        waiting: list[BoundedHttpProtocol] = []
        for connection in self.connections:
            if isinstance(connection, BoundedHttpProtocol) and connection.is_waiting_for_client():
                waiting.append(connection)
        if len(waiting) > most_waiting:
            longest_waiting = min(waiting, key=lambda connection: connection.waiting_since)
            # It would be counted, and be the longest waiting, until the loop closes it: hundreds
            # may come before that.
            self.connections.discard(longest_waiting)
            longest_waiting.transport.abort()

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
