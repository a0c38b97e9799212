"""The gateway as an ASGI application: checks who asks, receives requests, sends replies, and
tells its status. What happens to a request in between is in `request_handling.py`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.decompression import DecodedTooLarge
from helix_desktop.errors import ActionRefused, ProviderUnreachable
from helix_desktop.gateway import request_forwarding, request_routes
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.agent_identity import agent_from_headers
from helix_desktop.gateway.gateway_memory import GatewayMemory, LastArrival, OpenConversations
from helix_desktop.gateway.incremental_parsing import BodyBytes
from helix_desktop.gateway.known_agents import title_of_known_agent
from helix_desktop.gateway.last_agent_requests import LastAgentRequests
from helix_desktop.gateway.provider_choice import ProviderChoice
from helix_desktop.gateway.registration import (
    GatewayRegistration,
    GatewayRegistrations,
    RegisteredConversations,
    headers_without_token,
)
from helix_desktop.gateway.request_forwarding import RequestForwarder, explain_failure
from helix_desktop.gateway.request_handling import AgentRequestHandler
from helix_desktop.gateway.request_parsing import MOST_BODY_BYTES, IncomingRequest
from helix_desktop.protocols.gateway_message import SLICE, Json

log = logging.getLogger(__name__)

# A reply without an end is ended. The longest real ones are a thousand times shorter, and
# think for an hour at most.
MOST_RELAYED_BYTES = 1 << 30
LONGEST_REQUEST_SECONDS = 6 * 3_600.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class GatewayApp:
    """Answers what comes to the gateway's port, as uvicorn hands it over.

    `opener`: opens a workspace's conversations by its name (empty: the default one).
    """

    def __init__(
        self,
        registrations: GatewayRegistrations,
        opener: OpenConversations,
        conversations_file: Path | None = None,
        last_requests: LastAgentRequests | None = None,
    ) -> None:
        if last_requests is None:
            last_requests = LastAgentRequests()
        self._registrations = registrations
        self._tasks = OwnedTasks("gateway")
        self._providers = ProviderChoice()
        self.memory = GatewayMemory(
            use_conversations=opener,
            registered_conversations=RegisteredConversations(conversations_file),
            last_requests=last_requests,
            tasks=self._tasks,
        )
        self._running_requests = 0
        self._last_request_end = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: SendEvent) -> None:
        """Handle what uvicorn hands over: the server's start and end, or a request."""
        if scope["type"] == "lifespan":
            await self._run_until_shutdown(receive, send)
            return
        if scope["type"] == "websocket":  # WebSockets are refused, so agents use requests.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        self._running_requests += 1
        try:
            await self._answer_agent_request(scope, receive, send)
        finally:
            self._running_requests -= 1
            self._last_request_end = time.monotonic()

    async def _run_until_shutdown(self, receive: Receive, send: SendEvent) -> None:
        """Tell the server that the gateway has started, and when it ends, clean up."""
        event = await receive()
        while event["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
            event = await receive()

        for recording in tuple(self.memory.recording_behind.values()):
            await recording.wait_for_all_tasks()
        await self._providers.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    @property
    def idle_seconds(self) -> float:
        """Return for how long no request has been running."""
        if self._running_requests:
            return 0.0
        return time.monotonic() - self._last_request_end

    async def _answer_agent_request(self, scope: Scope, receive: Receive, send: SendEvent) -> None:
        """Check who sends a request, receive its body, and handle it while its agent listens.

        A request without a valid token is refused, and one for the status is answered here.
        """
        route = request_routes.parse_route(scope["raw_path"].decode("ascii", "replace"))
        headers = _headers_by_name(scope["headers"])
        registration = self._registrations.find_or_refuse(headers, route.token)
        if isinstance(registration, str):  # It is the sentence of a refusal.
            await _send_own_answer(send, 403, registration)
            return
        if route.path == request_routes.STATUS:
            status = await self.status_for_registration(registration)
            await _send_own_answer(send, 200, status)
            return

        if headers.get("upgrade", "").lower() == "websocket":
            # With this status, Codex sends requests at once, and does not try again first.
            await _send_own_answer(send, 426, "This gateway does not speak over WebSockets.")
            return

        content = await _receive_body(receive)
        if content is None:
            await _send_own_answer(send, 413, "A request of more than 64 MB is refused.")
            return
        raw_headers = tuple(headers_without_token(scope["headers"]))
        incoming = IncomingRequest(
            method=scope["method"],
            route=route,
            query=scope.get("query_string", b"").decode("latin-1"),
            raw_headers=raw_headers,
            headers=_headers_by_name(raw_headers),
            content=content,
            registration=registration,
        )
        reply = ReplyToAgent(send)
        await self._handle_until_hung_up(self._handle_or_report(incoming, reply), receive)

    async def _handle_until_hung_up(
        self, handling: Coroutine[Any, Any, None], receive: Receive
    ) -> None:
        """Run the handling of a request. It ends early if the agent hangs up."""
        work = self._tasks.spawn_task(handling, name="exchange")
        hang_up = self._tasks.spawn_task(_wait_for_disconnect(receive), name="listen for the end")
        try:
            await asyncio.wait({work, hang_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hang_up.cancel()
            if not work.done():  # The agent hung up: the provider's request ends, too.
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    async def _handle_or_report(self, incoming: IncomingRequest, reply: "ReplyToAgent") -> None:
        """Take a request to its provider and the reply back. If that fails before the reply has
        begun, tell the agent why.
        """
        agent = agent_from_headers(incoming.headers)
        if incoming.registration.agent:
            agent = title_of_known_agent(incoming.registration.agent)
        arrival = LastArrival(agent, time=time.time())
        self.memory.last_arrival = arrival
        try:
            async with asyncio.timeout(LONGEST_REQUEST_SECONDS):
                provider = await self._providers.choose_provider(incoming)
                arrival.host = urlsplit(provider.url).netloc
                sending = RequestForwarder(
                    incoming=provider.incoming,
                    url=provider.url,
                    client=provider.client,
                    start=reply.start,
                    send=reply.send_chunk,
                )
                handler = AgentRequestHandler(sending, self.memory)
                await handler.handle_request()
        except (
            TimeoutError,
            DecodedTooLarge,
            httpx.InvalidURL,
            httpx.HTTPError,
            ActionRefused,
            ProviderUnreachable,
        ) as error:
            if reply.is_begun:  # End the connection abruptly, as the provider did.
                log.warning("the provider's reply broke off: %s", type(error).__name__)
                return
            log.info("a request was not answered: %s", type(error).__name__)
            answer = explain_failure(error)
            arrival.failure = answer.sentence
            await _send_own_answer(reply.send, answer.status, answer.sentence)
            return
        finally:
            arrival.status = reply.status
        await reply.end()

    # --- The status

    async def status_for_registration(self, registration: GatewayRegistration) -> dict[str, Json]:
        """Return what an agent's run has sent and saved until now, or for the window the figures
        of all agents, and of today.
        """
        if registration.sees_all:
            return await self._status_for_window()
        figures = await self._figures_of_registration(registration)
        status: dict[str, Json] = {"figures": figures}
        reason = self.memory.unrecorded.get(registration.token)
        if reason:
            status["unrecorded"] = reason
        reason_not_folded = self.memory.unfolded.get(registration.token)
        if reason_not_folded:
            status["unfolded"] = reason_not_folded
        reason_not_served = self.memory.unserved.get(registration.token)
        if reason_not_served:
            status["unserved"] = reason_not_served
        unread = self.memory.unread.get(registration.token)
        if unread is not None:
            status["unread"] = asdict(unread)
        beside = self.memory.side_requests.count_waiting(registration.token)
        if beside:
            status["beside"] = beside
        return status

    async def _status_for_window(self) -> dict[str, Json]:
        """Return what the page of connected agents shows: all agents, and figures of today and in
        all.
        """
        now = time.localtime()
        # With -1, mktime finds out by itself whether summer time was in force at midnight.
        midnight = time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1))
        activities = self.memory.agent_activity.values()
        agents = [asdict(activity) for activity in activities]
        figures = await self._all_figures_since(0.0)
        today = await self._all_figures_since(midnight)
        status: dict[str, Json] = {"agents": agents, "figures": figures, "today": today}
        if self.memory.last_arrival is not None:
            status["arrival"] = asdict(self.memory.last_arrival)
        return status

    async def _figures_of_registration(
        self, registration: GatewayRegistration
    ) -> list[dict[str, Json]]:
        """Return what the conversations of one registration sent and saved."""
        registered = self.memory.registered_conversations
        own = registered.find_conversations(registration.token)
        figures: list[Figures] = []
        for workspace in sorted(set(own.values())):
            async with self.memory.use_conversations(workspace) as conversations:
                # The agent has ended, so it asks for nothing again.
                await conversations.record_unanswered_requests()
                figures += await conversations.figures_since(registration.since)
        return [asdict(figure) for figure in figures if figure.conversation in own]

    async def _all_figures_since(self, since: float) -> list[dict[str, Json]]:
        figures: list[Figures] = []
        for conversations in self.memory.list_open_conversations():
            figures += await conversations.figures_since(since)
        return [asdict(figure) for figure in figures]


class ReplyTooLong(httpx.HTTPError):
    """The provider's reply has more bytes than any real one."""


class ReplyToAgent:
    """Sends the reply to one request, in the events of ASGI: its head, its body, its end."""

    def __init__(self, send: SendEvent) -> None:
        self.send = send
        self.is_begun = False
        self.status = 0  # Until the reply has begun.
        self._sent_bytes = 0

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.is_begun = True
        self.status = status
        await self.send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def send_chunk(self, chunk: bytes | bytearray) -> None:
        """Send a piece of the reply's body. A reply that does not end is ended here."""
        self._sent_bytes += len(chunk)
        if self._sent_bytes > MOST_RELAYED_BYTES:
            raise ReplyTooLong(f"the reply has more than {MOST_RELAYED_BYTES:,} bytes")
        # Copying a long chunk at once would delay other requests.
        for begin in range(0, len(chunk), SLICE):
            part = chunk[begin : begin + SLICE]
            await self.send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})


async def _receive_body(receive: Receive) -> BodyBytes | None:
    """Receive a body into one growing buffer, as joining pieces would block. None: too large."""
    content = bytearray()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            break
        content += event.get("body", b"")
        if len(content) > MOST_BODY_BYTES:
            return None
        if not event.get("more_body"):
            break
    if len(content) > request_forwarding.LARGE_BODY_BYTES:
        return content
    return bytes(content)


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return once the agent has closed its connection. Whatever else it sends is dropped."""
    event = await receive()
    while event["type"] != "http.disconnect":
        event = await receive()


def _headers_by_name(raw_headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as texts, by their names in lower case."""
    headers: dict[str, str] = {}
    for name, value in raw_headers:
        headers[name.decode("latin-1").lower()] = value.decode("latin-1")
    return headers


async def _send_own_answer(send: SendEvent, status: int, value: str | dict[str, Json]) -> None:
    """Send a short answer of our own, in a form that clients of all four protocols understand."""
    answer: Json = value
    if isinstance(value, str):
        answer = {"type": "error", "error": {"type": "helix_gateway", "message": value}}
    content = orjson.dumps(answer)
    length = str(len(content)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", length),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})
