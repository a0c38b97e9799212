"""The reply to an agent's request, freed of hidden calls; or the replies that follow each other while the model recalls."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import httpx
import orjson
import zstandard

from helix_desktop.gateway.arrival import Replied, Rooms, Ticket
from helix_desktop.gateway.body import WIRES, Kept, folded, leading
from helix_desktop.gateway.events import Cutter, data_of
from helix_desktop.gateway.opened import Opened, plain
from helix_desktop.gateway.reading import Pieces
from helix_desktop.gateway.sending import Sending, beside
from helix_desktop.gateway.shown import As, Entry, Hidden, Returned
from helix_desktop.gateway.veil import OURS, Veil
from helix_desktop.values import dataclass
from helix_desktop.wire import gemini
from helix_desktop.wire.message import Answer, Json, Kind, Piece, Wired, mapping, string

log = logging.getLogger(__name__)

MOST_ROUNDS = 12  # replies in a row that only recall


@dataclass(slots=True)
class Reply:
    """The reply, or the replies that follow each other while the model recalls."""

    sending: Sending
    room: Rooms
    request: Opened
    ticket: Ticket
    body: dict[str, Json]
    tools: bool
    veil: Veil
    _started: float = field(default_factory=time.monotonic)
    _shown: list[Piece] = field(default_factory=list)
    _values: list[Json] = field(default_factory=list)
    _hidden_before: bool = False
    _results: list[tuple[str, str, str, bool]] = field(default_factory=list)

    async def run(self, response: httpx.Response) -> None:
        """Until the agent has its message."""
        streams = "event-stream" in response.headers.get("content-type", "")
        for number in range(MOST_ROUNDS + 1):
            self.veil.last = number == MOST_ROUNDS
            try:
                answer = await (self._streamed(response) if streams else self._plain(response))
            finally:
                await response.aclose()
            if answer is None or not self.veil.goes_on:
                return
            try:
                pieces = await beside(len(self.request.read.content), self._next, answer)
            except Exception:
                log.exception("a reply could not go on behind a recall")
                error = {"type": "helix_gateway", "message": "The reply broke off. Nothing was lost; send it again."}
                await self._broken(httpx.Response(502, json={"type": "error", "error": error}), streams=streams)
                return
            self.veil.again(answer.usage.output)
            response = await self.sending.ask(pieces, changed=True, reads=True)
            if response.status_code >= 400:
                await self._broken(response, streams=streams)
                return

    @property
    def _wire(self) -> Any:
        return WIRES[self.request.wire]

    async def _streamed(self, response: httpx.Response) -> Answer | None:
        """One reply as it streams. What ends it reaches the agent when the reply is on the disk. None: it broke off."""
        encoding = response.headers.get("content-encoding", "")
        await self.sending.begin(response, rewritten=self.tools, decoded=self.tools and bool(encoding))
        reading, cutter, decode = self._wire.Reading(), Cutter(), decoder(encoding)
        answer: Answer | None = None
        async for chunk in response.aiter_raw():
            if encoding and not self.tools:
                await self.sending.send(chunk)
            out = b""
            for raw in cutter.feed(decode(chunk)):
                event = data_of(raw)
                if event is not None:
                    reading.take(event)
                shown = self.veil.feed(raw, event) if self.tools else b"" if encoding else raw
                if answer is None and reading.done and self._ends(raw, event):
                    if out:
                        await self.sending.send(out)
                        out = b""
                    answer = await self._recorded(reading.value())
                out += shown
            if out:
                await self.sending.send(out)
        if cutter.rest and not (encoding and not self.tools):
            await self.sending.send(bytes(cutter.rest))
        if answer is None and reading.done:
            answer = await self._recorded(reading.value())
        return answer

    def _ends(self, raw: bytes, event: Json | None) -> bool:
        """Whether nothing of the reply comes behind this event."""
        kind = string(mapping(event), "type")
        return (
            b"[DONE]" in raw
            or kind in ("message_stop", "response.completed", "response.incomplete")
            or self.request.wire == gemini.NAME
        )

    async def _plain(self, response: httpx.Response) -> Answer | None:
        """One reply that comes whole."""
        raw = b"".join([chunk async for chunk in response.aiter_raw()])
        try:
            content = plain(raw, response.headers.get("content-encoding", ""))
            value = orjson.loads(content)
            answer = self._answer(value)
        except (ValueError, OSError, zlib.error, zstandard.ZstdError, KeyError, TypeError):
            await self._send_whole(response, raw)
            return None
        self._count_calls(answer)
        self._values.append(value)
        await self._record(answer)
        if not self.veil.goes_on:
            if self.veil.any_hidden:
                whole = orjson.dumps(self.veil.whole(self._values))
                await self._send_whole(response, whole, rewritten=True)
            else:
                await self._send_whole(response, raw)
        return answer

    async def _send_whole(self, response: httpx.Response, content: bytes, *, rewritten: bool = False) -> None:
        await self.sending.begin(response, rewritten=rewritten)
        await self.sending.send(content)

    def _count_calls(self, answer: Answer) -> None:
        if self.tools:
            for call in answer.message.of(Kind.CALL):
                self.veil.hides(call.name)

    def _answer(self, value: Json) -> Answer:
        if self.request.wire == gemini.NAME:
            calls = sum(len(message.of(Kind.CALL)) for message in self.request.messages)
            calls += sum(piece.kind is Kind.CALL for piece in self._shown)
            return self._numbered(gemini.answer(value), calls)
        found: Answer = self._wire.answer(value)
        return found

    def _numbered(self, answer: Answer, before: int) -> Answer:
        """Gemini's calls have no ids: those the agent sees are counted as it counts them, hidden ones apart from them."""
        seen, mark = itertools.count(before + 1), secrets.token_hex(6)
        pieces = tuple(
            piece
            if piece.kind is not Kind.CALL
            else replace(piece, id=f"hidden-{mark}-{at}")
            if self.tools and piece.name in OURS
            else replace(piece, id=f"call-{next(seen)}")
            for at, piece in enumerate(answer.message.pieces)
        )
        return replace(answer, message=replace(answer.message, pieces=pieces))

    async def _recorded(self, value: Json) -> Answer | None:
        try:
            answer = self._answer(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            log.exception("a reply could not be read; it went through")
            return None
        await self._record(answer)
        return answer

    async def _record(self, answer: Answer) -> None:
        """In the journal before the agent has the end of it."""
        ours = [piece for piece in answer.message.of(Kind.CALL) if piece.name in OURS] if self.tools else []
        self._shown += [p for p in answer.message.pieces if p not in ours and p.kind in (Kind.TEXT, Kind.CALL)]
        raw = orjson.dumps(answer.message.units).decode() if ours or self._hidden_before else ""
        seconds = time.monotonic() - self._started
        replied = Replied(
            answer.message.pieces, answer.model or self.request.arrival.model, answer.stop, answer.usage, raw, seconds
        )
        try:
            if ours:
                self._hidden_before = True
                self._results = await self.room.hidden(self.ticket, replied, ours)
                if not self.veil.goes_on:
                    await self.room.replied(self.ticket, None, self._key(answer))
            else:
                await self.room.replied(self.ticket, replied, self._key(answer))
        except Exception:
            log.exception("a reply could not be recorded; it went through")
            if ours:
                self._results = [(call.id, call.name, "[This cannot be recalled now.]", False) for call in ours]

    def _key(self, answer: Answer) -> str:
        """What makes the message the agent saw the same message in its next request."""
        return Wired(answer.message.speaker, (), tuple(self._shown)).key

    def _next(self, answer: Answer) -> Pieces:
        """The request that goes on behind the hidden calls."""
        raw = orjson.dumps(answer.message.units).decode()
        entries: list[Entry] = [As(at) for at in range(len(_said(self._wire, self.body)))]
        entries.append(Hidden(raw))
        entries.extend(Returned(*result) for result in self._results)
        read = self.request.read
        kept = Kept(sent=read.kept.sent)
        self.body = folded(self.request.wire, self.body, self._wire.messages(self.body), entries, kept=kept)
        read.kept.sent = kept.sent
        return read.written(self.body)

    async def _broken(self, response: httpx.Response, *, streams: bool) -> None:
        """It cannot go on: the agent gets the refusal, in the way a stream can carry one, and asks again."""
        content = await response.aread()
        await response.aclose()
        if streams:
            await self.sending.send(b"event: error\ndata: " + content.replace(b"\n", b" ") + b"\n\n")
        else:
            await self.sending.refuse(response, content)


def _said(wire: Any, body: Mapping[str, Json]) -> list[Wired]:
    messages: list[Wired] = wire.messages(body)
    return messages[leading(messages) :]


def decoder(encoding: str) -> Callable[[bytes], bytes]:
    """What a stream's bytes say; of an encoding nobody here reads, nothing."""
    match encoding.strip().lower():
        case "":
            return bytes
        case "gzip":
            return zlib.decompressobj(wbits=31).decompress
        case "deflate":
            return zlib.decompressobj().decompress
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress
    return lambda _: b""
