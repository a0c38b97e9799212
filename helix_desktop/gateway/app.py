"""The gateway as a web application: who may come in, which workspace it is, and the exchange with the provider."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from helix_desktop import tasks
from helix_desktop.decompression import DecodedTooLarge
from helix_desktop.engine.facts import Usage
from helix_desktop.errors import HelixError, ModelFailed
from helix_desktop.gateway import clients, door
from helix_desktop.gateway.arrival import Rooms
from helix_desktop.gateway.body import FIELDS, WIRES, folded, unchanged
from helix_desktop.gateway.events import Cutter, data_of
from helix_desktop.gateway.exchange import Exchange
from helix_desktop.gateway.figures import Figures
from helix_desktop.gateway.opened import MOST_BODY, Incoming, Opened, opened
from helix_desktop.gateway.provider_clients import ProviderClients
from helix_desktop.gateway.reading import Bytes, Pieces, Readings
from helix_desktop.gateway.registration import Registration, Registrations
from helix_desktop.gateway.routes import HOP, OWN, PLAN_OF_CODEX, STATUS, UPSTREAMS, address, guessed, route
from helix_desktop.gateway.sending import LARGE, Sending, beside, outgoing
from helix_desktop.values import dataclass
from helix_desktop.wire import anthropic, gemini, openai_responses
from helix_desktop.wire.message import Json

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]
UseRoom = Callable[[str], AbstractAsyncContextManager[Rooms]]

WRITERS = 64  # conversations whose last request is held, so that a fold can be asked for with it
ASK_SECONDS = 180.0


@dataclass(slots=True)
class Seen:
    """An agent as the page shows it."""

    agent: str
    requests: int = 0
    last: float = 0.0
    conversation: str = ""
    unfolded: str = ""  # why its requests go on unfolded


@dataclass(slots=True)
class Last:
    """The last request of a conversation, as it was sent on, and how to send another one like it. Held in memory alone."""

    request: Opened
    body: dict[str, Json]
    url: str
    headers: Sequence[tuple[bytes, bytes]]
    client: httpx.AsyncClient


class Gateway:
    """`registrations`: the addresses that answer; `room_of`: the engine of a workspace, by its name; empty: the usual one."""

    def __init__(self, registrations: Registrations, room_of: UseRoom) -> None:
        self._registrations = registrations
        self._room_of = room_of
        self._providers = ProviderClients()
        self._own: dict[str, dict[str, str]] = {}  # each registration's conversations, and their workspaces
        self._last: OrderedDict[str, Last] = OrderedDict()
        self._readings = Readings()
        self._refused: set[str] = set()
        self._tasks = tasks.Tasks("gateway")
        self.rooms: Callable[[], Sequence[Rooms]] = tuple
        self.seen: dict[str, Seen] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: SendEvent) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":  # the agent falls back to plain requests
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: SendEvent) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self._providers.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    # --- one request

    async def _answer(self, scope: Scope, receive: Receive, send: SendEvent) -> None:
        where = route(scope["raw_path"].decode("ascii", "replace"))
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        registration = door.admitted(headers, self._registrations, where.token)
        if isinstance(registration, str):
            await _say(send, 403, registration)
            return
        if where.path == STATUS:
            await _say(send, 200, await self.status(registration))
            return
        content = await _content(receive)
        if content is None:
            await _say(send, 413, "A request of more than 64 MB is refused.")
            return
        query = scope.get("query_string", b"").decode("latin-1")
        incoming = Incoming(scope["method"], where, query, tuple(scope["headers"]), headers, content, registration)
        await self._while_connected(incoming, receive, send)

    async def _while_connected(self, incoming: Incoming, receive: Receive, send: SendEvent) -> None:
        """When the agent hangs up, the provider's request ends."""
        work = self._tasks.spawn(self._exchange(incoming, send), name="exchange")
        gone = self._tasks.spawn(_gone(receive), name="listen for the end")
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    async def _exchange(self, incoming: Incoming, send: SendEvent) -> None:
        begun = False

        async def start(status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
            nonlocal begun
            begun = True
            await send({"type": "http.response.start", "status": status, "headers": list(headers)})

        async def body(chunk: bytes) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        try:
            await self._run(incoming, start, body)
        except DecodedTooLarge:
            await _say(send, 413, "A request of more than 64 MB after decompression is refused. Nothing was sent on.")
            return
        except httpx.InvalidURL:
            await _say(send, 400, "The path of the request is not one that can be sent on. Nothing was sent.")
            return
        except httpx.HTTPError as error:
            log.info("the provider was not reached: %s", type(error).__name__)
            if begun:
                raise  # the connection is cut, as the provider cut its own
            await _say(send, 502, f"The provider could not be reached: {type(error).__name__}.")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _run(self, incoming: Incoming, start: Any, body: Any) -> None:
        where, registration = incoming.route, incoming.registration
        if _may_have_key(incoming):
            incoming = _keyed(incoming, where.wire or guessed(where.path, incoming.headers), registration.key)
        url = address(_upstream(incoming), where.path, incoming.query)
        request = await self._opened(incoming)
        async with AsyncExitStack() as lasting:
            room = await self._room(incoming, lasting) if request is not None else None
            await self._sent_on(incoming, url, request, room, start, body)

    async def _sent_on(
        self, incoming: Incoming, url: str, request: Opened | None, room: Rooms | None, start: Any, body: Any
    ) -> None:
        where, registration = incoming.route, incoming.registration
        client = self._providers.client(registration)
        held = self._held(incoming, url, client)
        sending = Sending(incoming, url, client, start, body)
        if request is None or room is None:
            await sending.through()
        elif where.counts:
            await self._count(sending, request, room)
        else:
            self._note(request, incoming)
            await Exchange(sending, held, self._refused).run(request, room)

    async def _opened(self, incoming: Incoming) -> Opened | None:
        where = incoming.route
        if not where.wire or incoming.method != "POST":
            return None
        if where.streams and "alt=sse" not in incoming.query:  # Gemini's other form of a stream
            return None
        plan = clients.on_plan(incoming.headers)
        folds = incoming.registration.folds and (incoming.registration.folds_plans or not plan)
        try:
            if len(incoming.content) > LARGE or "content-encoding" in incoming.headers:
                return await asyncio.to_thread(opened, incoming, self._readings, folds=folds)
            return opened(incoming, self._readings, folds=folds)
        except DecodedTooLarge:
            raise
        except Exception:
            log.exception("a request was not understood; it goes on as it came")
            return None

    async def _room(self, incoming: Incoming, lasting: AsyncExitStack) -> Rooms | None:
        try:
            return await lasting.enter_async_context(self._room_of(_workspace(incoming)))
        except HelixError as error:
            log.warning("requests go on unfolded: %s", error.what)
            return None

    async def _count(self, sending: Sending, request: Opened, room: Rooms) -> None:
        """A count of tokens is asked for the request as it would be sent."""
        try:
            entries = await room.look(request.arrival, request.said)
            body = WIRES[request.wire].with_tools(request.body, ()) if not request.arrival.fold else request.body
            if not unchanged(entries, len(request.said)):
                body = folded(request.wire, request.body, request.messages, entries)
                sending.incoming = _with(sending.incoming, b"".join(request.read.written(body)))
        except Exception:
            log.exception("a count of tokens is asked for the request as it came")
        await sending.through()

    # --- what the page shows

    def _note(self, request: Opened, incoming: Incoming) -> None:
        seen = self.seen.setdefault(request.arrival.agent, Seen(request.arrival.agent))
        seen.requests += 1
        seen.last = time.time()
        on_plan = clients.on_plan(incoming.headers) and not request.arrival.fold
        seen.unfolded = (
            "It is logged in with a subscription. Folding is off for those unless you turn it on." if on_plan else ""
        )

    async def status(self, registration: Registration) -> dict[str, Json]:
        """What a registration's own conversations came to since it is there; for the window, all of them, and today's."""
        if not registration.sees_all:
            return {"figures": await self._own_figures(registration)}
        midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        agents: list[Json] = [asdict(seen) for seen in self.seen.values()]
        return {"agents": agents, "figures": await self._figures(0.0), "today": await self._figures(midnight)}

    async def _own_figures(self, registration: Registration) -> list[dict[str, Json]]:
        own = self._own.get(registration.token, {})
        found: list[Figures] = []
        for workspace in sorted(set(own.values())):
            async with self._room_of(workspace) as room:
                found += await room.figures(registration.since)
        return [asdict(one) for one in found if one.conversation in own]

    async def _figures(self, since: float) -> list[dict[str, Json]]:
        return [asdict(found) for room in self.rooms() for found in await room.figures(since)]

    # --- folds are written by the agent's own model

    def _held(
        self, incoming: Incoming, url: str, client: httpx.AsyncClient
    ) -> Callable[[str, Opened, dict[str, Json]], None]:
        def hold(conversation: str, request: Opened, body: dict[str, Json]) -> None:
            headers = [(n, v) for n, v in incoming.raw_headers if n.decode("latin-1").lower() not in HOP | OWN]
            self._own.setdefault(incoming.registration.token, {})[conversation] = _workspace(incoming)
            self._last[conversation] = Last(request, body, url, headers, client)
            self._last.move_to_end(conversation)
            while len(self._last) > WRITERS:
                self._last.popitem(last=False)
            self.seen.setdefault(request.arrival.agent, Seen(request.arrival.agent)).conversation = conversation

        return hold

    async def ask(self, conversation: str, question: str, alone: str, most: int) -> tuple[str, Usage, str]:
        """Ask the agent's model for a fold, with the agent's own key: behind its last request, so that the provider's cache is
        read; or, where `alone` has instructions, a text by itself.
        """
        last = self._last.get(conversation)
        if last is None:
            raise ModelFailed("The agent hasn't sent a request since the gateway started.")
        wire: Any = WIRES[last.request.wire]
        work = partial(_question, wire, last, question, alone, most)
        pieces = await beside(len(last.request.read.content), work)
        unwanted = {b"accept-encoding", b"content-encoding"}
        headers = [(n, v) for n, v in last.headers if n.lower() not in unwanted]
        url = last.url.replace(":streamGenerateContent", ":generateContent").replace("alt=sse", "")
        request = outgoing("POST", url, [*headers, (b"accept-encoding", b"identity")], pieces)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                response = await last.client.send(request)
        except (httpx.HTTPError, TimeoutError) as error:
            raise ModelFailed(f"The agent's model did not respond: {type(error).__name__}.") from error
        if response.status_code >= 400:
            raise ModelFailed(f"The agent's model refused the request (status {response.status_code}).")
        try:
            answer = wire.answer(_value(wire, response))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFailed("The agent's model sent a reply that couldn't be read.") from error
        text = "\n".join(piece.text for piece in answer.message.pieces if piece.kind.value == "text")
        return text, answer.usage, answer.model


def _workspace(incoming: Incoming) -> str:
    """The workspace of a registration that has one, whatever the path names: nobody else's is reached from there."""
    return incoming.registration.workspace or incoming.route.workspace


def _upstream(incoming: Incoming) -> str:
    """The address of the provider this request goes to."""
    registration, where = incoming.registration, incoming.route
    if registration.upstream:
        return registration.upstream
    wire = where.wire or guessed(where.path, incoming.headers)
    if wire == openai_responses.NAME and "chatgpt-account-id" in incoming.headers:
        return PLAN_OF_CODEX
    return registration.upstreams.get(wire) or UPSTREAMS[wire]


def _may_have_key(incoming: Incoming) -> bool:
    """Whether the stored key belongs to where this goes, and is wanted."""
    registration, there = incoming.registration, urlsplit(_upstream(incoming)).netloc.lower()
    return bool(registration.key) and there == registration.key_host and not clients.has_key(incoming.headers)


def _question(wire: Any, last: Last, question: str, alone: str, most: int) -> Pieces:
    body = dict(last.body)
    units = [] if alone else _units(wire, body)
    if alone:
        for name in (
            "system",
            "instructions",
            "systemInstruction",
            "tools",
            "tool_choice",
            "toolConfig",
            "thinking",
            "context_management",
        ):
            body.pop(name, None)
        question = f"{alone}\n\n{question}"
        if "max_tokens" in body:
            body["max_tokens"] = most or 4_000
    body.pop("stream_options", None)
    if body.get("stream") and not _must_stream(wire, last):
        body["stream"] = False
    body = wire.with_messages(body, wire.joined([*((unit, False) for unit in units), (wire.said(question), True)]))
    return [orjson.dumps(body)] if alone else last.request.read.written(body)


def _units(wire: Any, body: Mapping[str, Json]) -> Sequence[Json]:
    found = body.get(FIELDS[wire.NAME])
    return found if isinstance(found, list) else [unit for message in wire.messages(body) for unit in message.units]


def _must_stream(wire: Any, last: Last) -> bool:
    return wire is openai_responses and PLAN_OF_CODEX in last.url


def _value(wire: Any, response: httpx.Response) -> Json:
    """The reply's JSON, also where it came as a stream all the same."""
    if "event-stream" not in response.headers.get("content-type", ""):
        return orjson.loads(response.content)
    reading = wire.Reading()
    for raw in Cutter().feed(response.content + b"\n\n"):
        if (event := data_of(raw)) is not None:
            reading.take(event)
    return reading.value()


async def _content(receive: Receive) -> Bytes | None:
    """The whole body; None where it is too large. It grows where it stands: to join a large one would hold all streams up."""
    content = bytearray()
    while (event := await receive())["type"] != "http.disconnect":
        content += event.get("body", b"")
        if len(content) > MOST_BODY:
            return None
        if not event.get("more_body"):
            break
    return content if len(content) > LARGE else bytes(content)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _say(send: SendEvent, status: int, value: str | dict[str, Json]) -> None:
    """A short answer of the gateway's own, in a form all four protocols' clients read."""
    said = {"type": "error", "error": {"type": "helix_gateway", "message": value}} if isinstance(value, str) else value
    content = orjson.dumps(said)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _with(incoming: Incoming, content: Bytes) -> Incoming:
    headers = tuple((n, v) for n, v in incoming.raw_headers if n.lower() != b"content-encoding")
    return replace(incoming, raw_headers=headers, content=content)


def _keyed(incoming: Incoming, wire: str, key: str) -> Incoming:
    """The request with the user's own key, as its protocol carries one."""
    name = {anthropic.NAME: b"x-api-key", gemini.NAME: b"x-goog-api-key"}.get(wire, b"authorization")
    value = key if name != b"authorization" else f"Bearer {key}"
    return replace(incoming, raw_headers=(*incoming.raw_headers, (name, value.encode("latin-1"))))
