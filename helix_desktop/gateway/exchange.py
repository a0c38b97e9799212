"""One request of an agent and its reply: folded on the way there, and freed of hidden calls on the way back.

Whatever fails in here, the agent gets what it would have got without: its own request goes on as it came.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import itertools
import logging
import secrets
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import httpx
import orjson
import zstandard

from helix_desktop.gateway import clients
from helix_desktop.gateway.body import WIRES, folded, leading, settled, unchanged
from helix_desktop.gateway.events import Cutter, data_of
from helix_desktop.gateway.figures import Figures
from helix_desktop.gateway.reading import Body, Bytes, Pieces, Readings
from helix_desktop.gateway.room import Arrival, Replied, Sent, Ticket
from helix_desktop.gateway.routes import HOP, OWN, Route
from helix_desktop.gateway.shown import As, Entry, Hidden, Returned
from helix_desktop.gateway.veil import OURS, VEILS, Veil
from helix_desktop.tools import recall as recall_tools
from helix_desktop.wire import gemini, openai_responses
from helix_desktop.wire.message import SLICE, Answer, Json, Kind, Piece, Speaker, Tool, Wired, mapping, string

log = logging.getLogger(__name__)

MOST_ROUNDS = 12  # replies in a row that only recall
SMALL = 8_000  # bytes of a request without tools that is taken for a side request: a title, a check
LARGE = 1 << 19  # bytes from which on a body is worked on beside the loop, and sent in slices
ROOM_SECONDS = 45.0
TOO_LONG = (
    b"too long",
    b"too large",
    b"context_length",
    b"context window",
    b"maximum context",
    b"exceeds the maximum number of tokens",
)
TOOLS = tuple(
    Tool(
        tool.name,
        tool.description,
        orjson.dumps(tool.schema).decode() if not isinstance(tool.schema, str) else tool.schema,
    )
    for tool in recall_tools.tools()
    if tool.name in OURS
)


class Rooms(Protocol):
    """Where the engine is: in this process, or in the one that has the workspace open."""

    async def arrive(self, arrival: Arrival, messages: Sequence[Wired]) -> Sent: ...

    async def look(self, arrival: Arrival, messages: Sequence[Wired]) -> Sequence[Entry]: ...

    async def hidden(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece]
    ) -> list[tuple[str, str, str, bool]]: ...

    async def replied(self, ticket: Ticket, replied: Replied | None, shown: str) -> None: ...

    async def overflowed(self, ticket: Ticket) -> Sent | None: ...

    async def figures(self, since: float = 0.0) -> Sequence[Figures]: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came."""

    method: str
    route: Route
    query: str
    raw_headers: tuple[tuple[bytes, bytes], ...]
    headers: Mapping[str, str]
    content: Bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """A body that is understood."""

    read: Body
    arrival: Arrival
    adds_tools: bool

    @property
    def wire(self) -> str:
        return self.read.wire

    @property
    def body(self) -> dict[str, Json]:
        return self.read.value

    @property
    def messages(self) -> list[Wired]:
        return self.read.messages

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True

    @property
    def said(self) -> list[Wired]:
        """Without the instructions at the beginning."""
        return self.messages[leading(self.messages) :]


def opened(incoming: Incoming, readings: Readings, *, folds: bool) -> Opened | None:
    """The body, or None for one that passes through: not understood, or a side request."""
    route = incoming.route
    try:
        content = _plain(incoming.content, incoming.headers.get("content-encoding", ""))
        read = readings.read(route.wire, content, clients.session_of(incoming.headers, {}))
    except (ValueError, OSError, zlib.error, zstandard.ZstdError, EOFError):
        return None
    if read is None or not read.messages or not _manageable(route, read.value):
        return None
    head = read.head
    said = read.messages[leading(read.messages) :]
    if not said or (not head.tools and (len(incoming.content) < SMALL or _is_part(said))):
        return None
    own = any(tool.name.endswith(tuple(OURS)) for tool in head.tools)
    arrival = Arrival(
        wire=route.wire,
        agent=clients.named(route.agent) or clients.agent_of(incoming.headers),
        session=clients.session_of(incoming.headers, read.value),
        head=_head_hash(head.system, head.tools),
        model=head.model or route.model,
        system=head.system,
        tools=head.tools,
        chain=read.chain,
        fold=folds,
        parent=clients.parent_of(incoming.headers),
    )
    return Opened(read, arrival, adds_tools=folds and bool(head.tools) and not own)


def _is_part(said: Sequence[Wired]) -> bool:
    """Whether the messages are a piece out of a conversation, which a client looks through for something."""
    return not said or said[0].speaker is Speaker.ASSISTANT


def _manageable(route: Route, body: Mapping[str, Json]) -> bool:
    """What the provider keeps for the client is not ours to fold."""
    if route.wire == openai_responses.NAME:
        return not body.get("previous_response_id") and not body.get("conversation") and not body.get("background")
    return route.wire != gemini.NAME or not body.get("cachedContent")


def _head_hash(system: str, tools: Sequence[Tool]) -> str:
    names = "\0".join(sorted(tool.name for tool in tools))
    return hashlib.blake2b(f"{system[:120]}\0{names}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def _plain(content: Bytes, encoding: str) -> Bytes:
    """What the bytes say. ValueError for an encoding nobody here reads."""
    match encoding.strip().lower():
        case "" | "identity":
            return content
        case "gzip":
            return gzip.decompress(content)
        case "deflate":
            return zlib.decompress(content)
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(content)
    raise ValueError(f"content-encoding {encoding[:40]}")


Send = Callable[[bytes], Awaitable[None]]
Start = Callable[[int, Sequence[tuple[bytes, bytes]]], Awaitable[None]]


@dataclass(slots=True)
class Exchange:
    """`start` sends status and headers to the agent, `send` bytes of the body. `sent` hears of every body that was sent on."""

    incoming: Incoming
    url: str
    client: httpx.AsyncClient
    start: Start
    send: Send
    sent: Callable[[str, Opened, dict[str, Json]], None] = lambda _conversation, _opened, _body: None
    refused: set[str] = field(default_factory=set)
    before: Callable[[str], Sequence[Json]] = lambda _conversation: ()
    _begun: bool = False

    async def run(self, request: Opened, room: Rooms) -> None:
        """The whole exchange."""
        sent = await self._arrived(request, room)
        if sent is None:
            await self.through()
            return
        ticket = sent.ticket
        tools = request.adds_tools and ticket.conversation not in self.refused
        try:
            made = await _beside(len(self.incoming.content), partial(self._made, request, sent, tools=tools))
        except Exception:
            log.exception("a request could not be folded; it goes on as it came")
            await self.through()
            return
        content, body = made or (self._own, request.body)
        response = await self._ask(content, changed=made is not None, reads=tools)
        if response.status_code >= 400:
            retried = await self._mended(request, sent, response, room, tools=tools, changed=made is not None)
            if retried is None:
                return
            response, body, tools = retried
        self.sent(ticket.conversation, request, body)
        hold = sent.recallable
        await Reply(self, room, request, ticket, body, tools, VEILS[request.wire](hold=hold)).run(response)

    @property
    def _own(self) -> Pieces:
        """The client's own bytes."""
        return (self.incoming.content,)

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
        same = unchanged(sent.entries, len(request.said))
        if same and not tools:
            return None
        wire: Any = WIRES[request.wire]
        read = request.read
        body = wire.with_tools(request.body, TOOLS) if tools else request.body
        if not same:
            before = self.before(sent.ticket.conversation)
            marked = read.marked()
            body = folded(request.wire, body, request.messages, sent.entries, before, marked, read.made)
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
                made = await _beside(len(self.incoming.content), partial(self._made, request, shorter, tools=tools))
                shorter_content, body = made or (self._own, request.body)
                again = await self._ask(shorter_content, changed=made is not None, reads=tools)
                if again.status_code < 400:
                    return again, body, tools
                content, response = await again.aread(), again
        elif changed and response.status_code in (400, 422):
            log.warning("the provider refused a changed request with %d; it was sent as it came", response.status_code)
            again = await self._ask(self._own, changed=False, reads=False)
            if again.status_code < 400:
                self.refused.add(sent.ticket.conversation)
                return again, request.body, False
            content, response = await again.aread(), again
        if response.status_code in (400, 422) and (mended := settled(request.wire, request.body, request.messages)):
            again = await self._ask(request.read.written(mended), changed=True, reads=False)
            if again.status_code < 400:
                return again, mended, False
            await again.aread()
        await self._pass(response, content)
        return None

    # --- without the engine

    async def through(self) -> None:
        """The request as it came, and the reply as it comes."""
        response = await self._ask(self._own, changed=False, reads=False)
        try:
            await self.begin(response)
            async for chunk in response.aiter_raw():
                await self.send(chunk)
        finally:
            await response.aclose()

    async def _pass(self, response: httpx.Response, content: bytes) -> None:
        """A refusal, as it is."""
        encoded = "content-encoding" in response.headers
        headers = [(n, v) for n, v in _reply_headers(response) if not (encoded and n.lower() == b"content-encoding")]
        await self.start(response.status_code, headers)
        await self.send(content)

    async def begin(self, response: httpx.Response, *, rewritten: bool = False, decoded: bool = False) -> None:
        """Status and headers, once."""
        if not self._begun:
            self._begun = True
            gone = ({b"content-length"} if rewritten else set()) | ({b"content-encoding"} if decoded else set())
            await self.start(
                response.status_code, [(n, v) for n, v in _reply_headers(response) if n.lower() not in gone]
            )

    async def _ask(self, pieces: Pieces, *, changed: bool, reads: bool) -> httpx.Response:
        headers = [
            (name, value)
            for name, value in self.incoming.raw_headers
            if name.decode("latin-1").lower() not in HOP | OWN
        ]
        if changed:
            headers = [(name, value) for name, value in headers if name.lower() != b"content-encoding"]
        if reads:
            headers = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
            headers.append((b"accept-encoding", b"identity"))
        size = sum(map(len, pieces))
        if size > LARGE:
            headers.append((b"content-length", b"%d" % size))
        content = b"".join(pieces) if size <= LARGE else _sliced(pieces)
        request = httpx.Request(self.incoming.method, self.url, headers=headers, content=content)
        return await self.client.send(request, stream=True)

    async def ask(self, pieces: Pieces) -> httpx.Response:
        """The next request of the same message."""
        return await self._ask(pieces, changed=True, reads=True)


@dataclass(slots=True)
class Reply:
    """The reply, or the replies that follow each other while the model recalls."""

    exchange: Exchange
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
                pieces = await _beside(len(self.request.read.content), self._next, answer)
            except Exception:
                log.exception("a reply could not go on behind a recall")
                error = {"type": "helix_gateway", "message": "The reply broke off. Nothing was lost; send it again."}
                await self._broken(httpx.Response(502, json={"type": "error", "error": error}), streams=streams)
                return
            self.veil.again(answer.usage.output)
            response = await self.exchange.ask(pieces)
            if response.status_code >= 400:
                await self._broken(response, streams=streams)
                return

    @property
    def _wire(self) -> Any:
        return WIRES[self.request.wire]

    async def _streamed(self, response: httpx.Response) -> Answer | None:
        """One reply as it streams. What ends it reaches the agent when the reply is on the disk. None: it broke off."""
        encoding = response.headers.get("content-encoding", "")
        await self.exchange.begin(response, rewritten=self.tools, decoded=self.tools and bool(encoding))
        reading, cutter, decode = self._wire.Reading(), Cutter(), decoder(encoding)
        answer: Answer | None = None
        async for chunk in response.aiter_raw():
            if encoding and not self.tools:
                await self.exchange.send(chunk)
            out = b""
            for raw in cutter.feed(decode(chunk)):
                event = data_of(raw)
                if event is not None:
                    reading.take(event)
                shown = self.veil.feed(raw, event) if self.tools else b"" if encoding else raw
                if answer is None and reading.done and self._ends(raw, event):
                    if out:
                        await self.exchange.send(out)
                        out = b""
                    answer = await self._recorded(reading.value())
                out += shown
            if out:
                await self.exchange.send(out)
        if cutter.rest and not (encoding and not self.tools):
            await self.exchange.send(bytes(cutter.rest))
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
            content = _plain(raw, response.headers.get("content-encoding", ""))
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
        await self.exchange.begin(response, rewritten=rewritten)
        await self.exchange.send(content)

    def _count_calls(self, answer: Answer) -> None:
        if self.tools:
            for call in answer.message.of(Kind.CALL):
                ours = call.name in OURS
                self.veil.hidden += ours
                self.veil.any_hidden |= ours
                self.veil.visible += not ours

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
        before = self.body.get("messages", ())
        self.body = folded(self.request.wire, self.body, self._wire.messages(self.body), entries, before)
        return self.request.read.written(self.body)

    async def _broken(self, response: httpx.Response, *, streams: bool) -> None:
        """It cannot go on: the agent gets the refusal, in the way a stream can carry one, and asks again."""
        content = await response.aread()
        await response.aclose()
        if streams:
            await self.exchange.send(b"event: error\ndata: " + content.replace(b"\n", b" ") + b"\n\n")
        else:
            await self.exchange._pass(response, content)  # noqa: SLF001


def _said(wire: Any, body: Mapping[str, Json]) -> list[Wired]:
    messages: list[Wired] = wire.messages(body)
    return messages[leading(messages) :]


async def _sliced(pieces: Pieces) -> AsyncIterator[bytes]:
    for piece in pieces:
        whole = memoryview(piece)
        for at in range(0, len(whole), SLICE):
            yield bytes(whole[at : at + SLICE])


async def _beside(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """Large bodies are worked on in a thread, so that other streams go on."""
    return await asyncio.to_thread(work, *arguments) if size > LARGE else work(*arguments)


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


def _reply_headers(response: httpx.Response) -> list[tuple[bytes, bytes]]:
    return [
        (name, value)
        for name, value in response.headers.raw
        if name.decode("latin-1").lower() not in HOP - {"content-length"}
    ]
