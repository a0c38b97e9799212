"""One request of an agent and its reply: folded on the way there, and freed of hidden calls on the way back.

Whatever fails in here, the agent gets what it would have got without: its own request goes on as it came.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any

import httpx
import orjson

from helix_desktop.gateway.arrival import Rooms, Sent
from helix_desktop.gateway.body import WIRES, folded, followed, settled, unchanged
from helix_desktop.gateway.opened import Opened
from helix_desktop.gateway.reading import Pieces
from helix_desktop.gateway.reply import Reply
from helix_desktop.gateway.sending import Sending, beside
from helix_desktop.gateway.veil import OURS, VEILS
from helix_desktop.values import dataclass
from helix_desktop.wire.message import Json, Tool

log = logging.getLogger(__name__)

ROOM_SECONDS = 45.0
TOO_LONG = (
    b"too long",
    b"too large",
    b"context_length",
    b"context window",
    b"maximum context",
    b"exceeds the maximum number of tokens",
)


@functools.cache
def recall_tools() -> tuple[Tool, ...]:
    """What is added to the agent's tools. Imported when it is wanted: a gateway that was killed listens before."""
    from helix_desktop.tools import recall

    return tuple(
        Tool(t.name, t.description, t.schema if isinstance(t.schema, str) else orjson.dumps(t.schema).decode())
        for t in recall.tools(history=_not_here)
        if t.name in OURS
    )


async def _not_here(_fold: str, _words: str) -> str:
    """Where the history is, the call is answered."""
    raise NotImplementedError


@dataclass(slots=True)
class Exchange:
    """`sent` hears of every body that was sent on."""

    sending: Sending
    sent: Callable[[str, Opened, dict[str, Json]], None] = lambda _conversation, _opened, _body: None
    refused: set[str] = field(default_factory=set)

    async def run(self, request: Opened, room: Rooms) -> None:
        """The whole exchange."""
        sent = await self._arrived(request, room)
        if sent is None:
            await self.sending.through()
            return
        ticket = sent.ticket
        tools = request.adds_tools and ticket.conversation not in self.refused
        try:
            made = await beside(len(self.sending.incoming.content), partial(self._made, request, sent, tools=tools))
        except Exception:
            log.exception("a request could not be folded; it goes on as it came")
            await self.sending.through()
            return
        content, body = made or (self.sending.own, request.body)
        response = await self.sending.ask(content, changed=made is not None, reads=tools)
        if response.status_code >= 400:
            retried = await self._mended(request, sent, response, room, tools=tools, changed=made is not None)
            if retried is None:
                return
            response, body, tools = retried
        self.sent(ticket.conversation, request, body)
        hold = sent.recallable
        await Reply(self.sending, room, request, ticket, body, tools, VEILS[request.wire](hold=hold)).run(response)

    @staticmethod
    async def _arrived(request: Opened, room: Rooms) -> Sent | None:
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                return await room.arrive(request.arrival, request.said)
        except Exception:
            log.exception("a request could not be recorded; it goes on as it came")
            return None

    def _made(self, request: Opened, sent: Sent, *, tools: bool) -> tuple[Pieces, dict[str, Json]] | None:
        """The body to send on, as bytes and as a value; None for the client's own."""
        read = request.read
        same = unchanged(sent.entries, len(request.said))
        if same:
            if request.arrival.fold:
                followed(request.wire, read.units, read.marked, read.kept)
            if not tools:
                return None
        wire: Any = WIRES[request.wire]
        body = wire.with_tools(request.body, recall_tools()) if tools else request.body
        if not same:
            body = folded(request.wire, body, request.messages, sent.entries, read.marked, read.kept)
        return read.written(body), body

    async def _mended(
        self,
        request: Opened,
        sent: Sent,
        response: httpx.Response,
        room: Rooms,
        *,
        tools: bool,
        changed: bool,
    ) -> tuple[httpx.Response, dict[str, Json], bool] | None:
        """What is tried after a refusal: a shorter request where it was too long, the client's own where ours was refused.
        None where the refusal was passed on.
        """
        content = await response.aread()
        too_long = response.status_code in (400, 413) and any(words in content.lower() for words in TOO_LONG)
        if too_long and request.arrival.fold:
            shorter = await room.overflowed(sent.ticket)
            if shorter is not None:
                made = await beside(
                    len(self.sending.incoming.content), partial(self._made, request, shorter, tools=tools)
                )
                shorter_content, body = made or (self.sending.own, request.body)
                again = await self.sending.ask(shorter_content, changed=made is not None, reads=tools)
                if again.status_code < 400:
                    return again, body, tools
                content, response = await again.aread(), again
        elif changed and response.status_code in (400, 422):
            log.warning("the provider refused a changed request with %d; it was sent as it came", response.status_code)
            again = await self.sending.ask(self.sending.own, changed=False, reads=False)
            if again.status_code < 400:
                self.refused.add(sent.ticket.conversation)
                return again, request.body, False
            content, response = await again.aread(), again
        if response.status_code in (400, 422) and (mended := settled(request.wire, request.body, request.messages)):
            again = await self.sending.ask(request.read.written(mended), changed=True, reads=False)
            if again.status_code < 400:
                return again, mended, False
            await again.aread()
        await self.sending.refuse(response, content)
        return None
