"""The gateway as an ASGI application: checks access, chooses the workspace and forwards
each request to its provider.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import httpx
import orjson

from helix_desktop import concurrency
from helix_desktop.decompression import DecodedTooLarge
from helix_desktop.engine.facts import Usage
from helix_desktop.errors import ActionRefused, HelixError, ModelFailed, ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import agent_identity, request_forwarding, request_routes
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.codex_workspace import (
    ACCOUNT_HEADER,
    CODEX_SUBSCRIPTION_PATH,
    CODEX_SUBSCRIPTION_URL,
    REGION_HEADER,
    CodexWorkspaceRoutes,
)
from helix_desktop.gateway.conversations_port import AgentConversations
from helix_desktop.gateway.folded_request import are_all_unchanged, build_folded_body
from helix_desktop.gateway.incremental_parsing import BodyBytes, BodyParser, BodyPieces
from helix_desktop.gateway.provider_reply_bodies import read_reply_to_own_question
from helix_desktop.gateway.registration import (
    GatewayRegistration,
    GatewayRegistrations,
    RegisteredConversations,
)
from helix_desktop.gateway.request_handling import AgentRequestHandler
from helix_desktop.gateway.request_parsing import (
    MOST_BODY_BYTES,
    SIDE_REQUEST_BYTES,
    IncomingRequest,
    ParsedRequest,
    parse_incoming_request,
)
from helix_desktop.gateway.side_requests import (
    RequestOrigin,
    SideReplyRecorder,
    SideRequests,
    is_about_same_words,
    name_run_as_session,
    origin_of_request,
)
from helix_desktop.gateway.taken_out_messages import TakenOutMessages
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import SLICE, Json
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES, with_messages
from helix_desktop.providers.http_transport import build_http_client, is_loopback
from helix_desktop.resources import read_word_lists

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]
UseConversations = Callable[[str], AbstractAsyncContextManager[AgentConversations]]

# We keep the last request of this many conversations, so that their models can write folds.
MOST_HELD_REQUESTS = 64
ASK_SECONDS = 180.0
NOT_FOLDED = "The agent is signed in with a subscription. With a subscription, folding is off unless you turn it on."
_HEAD_FIELDS = read_word_lists("known_agents")["request_head"]


@dataclass(slots=True)
class AgentActivity:
    """What the page of connected agents shows of one agent. Field names are keys of the status."""

    agent: str
    requests: int = 0
    last: float = 0.0
    conversation: str = ""
    unfolded: str = ""  # Why its requests are forwarded without folds; empty if they have folds.
    failure: str = ""  # Why its last request was not answered; empty if it was.


@dataclass(slots=True)
class LastAgentRequest:
    """The last request of a conversation as it was sent, and how to send another like
    it. Only in memory.
    """

    request: ParsedRequest
    body: dict[str, Json]
    url: str
    headers: Sequence[tuple[bytes, bytes]]
    client: httpx.AsyncClient
    room: AgentConversations

    @property
    def origin(self) -> RequestOrigin:
        return origin_of_request(self.request, self.room)


class GatewayApp:
    """`opener`: opens a workspace's conversations by its name (empty: the default one)."""

    def __init__(
        self,
        registrations: GatewayRegistrations,
        opener: UseConversations,
        conversations_file: Path | None = None,
    ) -> None:
        self._registrations = registrations
        self._use_conversations = opener
        self._providers = ProviderHttpClients()
        self._registered_conversations = RegisteredConversations(conversations_file)
        self._last_requests: OrderedDict[str, LastAgentRequest] = OrderedDict()
        self._side_requests = SideRequests()
        self._body_parser = BodyParser()
        self._refused_conversations: set[str] = set()
        self._unrecorded: dict[str, str] = {}  # By token: why its requests were not recorded.
        self._taken_out = TakenOutMessages()
        self._codex_workspaces = CodexWorkspaceRoutes()
        self._recording_behind: WeakValueDictionary[str, concurrency.OwnedTasks] = (
            WeakValueDictionary()
        )
        self._tasks = concurrency.OwnedTasks("gateway")
        self.open_conversations: Callable[[], Sequence[AgentConversations]] = tuple
        self.agent_activity: dict[str, AgentActivity] = {}
        self._running_requests = 0
        self._last_request_end = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: SendEvent) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            for behind in tuple(self._recording_behind.values()):
                await behind.wait_for_all_tasks()
            await self._providers.aclose()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":  # WebSockets are refused, so agents use requests.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            self._running_requests += 1
            try:
                await self._answer_agent_request(scope, receive, send)
            finally:
                self._running_requests -= 1
                self._last_request_end = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._running_requests else time.monotonic() - self._last_request_end

    async def _answer_agent_request(self, scope: Scope, receive: Receive, send: SendEvent) -> None:
        where = request_routes.parse_route(scope["raw_path"].decode("ascii", "replace"))
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        registration = self._registrations.find_or_refuse(headers, where.token)
        if isinstance(registration, str):
            await _send_own_answer(send, 403, registration)
            return
        if where.path == request_routes.STATUS:
            await _send_own_answer(send, 200, await self.status_for_registration(registration))
            return
        content = await _receive_body(receive)
        if content is None:
            await _send_own_answer(send, 413, "A request of more than 64 MB is refused.")
            return
        query = scope.get("query_string", b"").decode("latin-1")
        raw = tuple(scope["headers"])
        incoming = IncomingRequest(
            scope["method"], where, query, raw, headers, content, registration
        )
        await self._forward_while_connected(incoming, receive, send)

    async def _forward_while_connected(
        self, incoming: IncomingRequest, receive: Receive, send: SendEvent
    ) -> None:
        """Forward a request, and end the provider's request if the agent hangs up."""
        work = self._tasks.spawn_task(
            self._forward_or_report_error(incoming, send), name="exchange"
        )
        gone = self._tasks.spawn_task(_wait_for_disconnect(receive), name="listen for the end")
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    async def _forward_or_report_error(self, incoming: IncomingRequest, send: SendEvent) -> None:
        begun = False

        async def start_response(status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
            nonlocal begun
            begun = True
            await send({"type": "http.response.start", "status": status, "headers": list(headers)})

        async def send_chunk(chunk: bytes) -> None:
            for at in range(0, len(chunk), SLICE):  # Copying it whole would delay other requests.
                await send(
                    {
                        "type": "http.response.body",
                        "body": chunk[at : at + SLICE],
                        "more_body": True,
                    }
                )

        try:
            await self._forward_request(incoming, start_response, send_chunk)
        except (
            DecodedTooLarge,
            httpx.InvalidURL,
            httpx.HTTPError,
            ActionRefused,
            ProviderUnreachable,
        ) as error:
            if begun:  # End the connection abruptly, as the provider did.
                log.warning("the provider's reply broke off: %s", type(error).__name__)
            else:
                log.info("a request was not answered: %s", type(error).__name__)
                await _send_own_answer(send, *_answer_to_failure(error))
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _forward_request(self, incoming: IncomingRequest, start: Any, body: Any) -> None:
        incoming = _add_stored_key_if_missing(incoming)
        client = self._providers.get_client_for(incoming.registration)
        provider, incoming = await self._find_provider(incoming, client)
        url = request_routes.join_provider_address(provider, incoming.route.path, incoming.query)
        sending = request_forwarding.RequestForwarder(incoming, url, client, start, body)
        request = await self._parse_if_understood(incoming)
        if request is None:
            await self._forward_unread(sending)
            return
        async with AsyncExitStack() as lasting:
            room = await self._open_conversations_or_none(incoming, lasting)
            if room is not None:
                request = await self._tell_side_request(request, incoming, room)
            if request.is_side:
                await self._forward_side_request(sending, request, room)
            elif room is None:
                handler = AgentRequestHandler(sending, taken_out=self._taken_out)
                await handler.forward_unfolded_and_unrecorded(request)
            elif incoming.route.counts_tokens:
                await self._forward_token_count(sending, request, room)
            else:
                await self._forward_step(sending, request, room)

    async def _forward_unread(self, sending: request_forwarding.RequestForwarder) -> None:
        """Forward a request as it came, unless it may hold something that was taken out."""
        if len(sending.incoming.content) >= SIDE_REQUEST_BYTES:
            session = agent_identity.session_of_request(sending.incoming.headers, {})
            self._taken_out.refuse_if_anything_taken_out(session)
        await sending.forward_without_reading()

    async def _tell_side_request(
        self, request: ParsedRequest, incoming: IncomingRequest, room: AgentConversations
    ) -> ParsedRequest:
        """Return the request with whether it is beside its conversation."""
        is_side = await self._side_requests.is_side_request(request, incoming.registration, room)
        request = replace(request, is_side=is_side)
        return request if is_side else name_run_as_session(request, incoming.registration)

    async def _forward_side_request(
        self,
        sending: request_forwarding.RequestForwarder,
        request: ParsedRequest,
        room: AgentConversations | None,
    ) -> None:
        if room is None or sending.incoming.route.counts_tokens:
            await self._forward_unread(sending)
            return
        if len(sending.incoming.content) >= SIDE_REQUEST_BYTES:
            self._taken_out.refuse_if_anything_taken_out(request.arrival.session)
        find = partial(self._find_conversation_beside, request, room)
        origin = origin_of_request(request, room)
        recorder = SideReplyRecorder(find, origin, self._side_requests.waiting)
        await AgentRequestHandler(sending).forward_side_request(request, recorder)

    async def _forward_step(
        self,
        sending: request_forwarding.RequestForwarder,
        request: ParsedRequest,
        room: AgentConversations,
    ) -> None:
        """Forward a step of an agent's conversation: it is recorded, and folded if that pays."""
        token = sending.incoming.registration.token
        seen = self._count_agent_request(request, sending.incoming)
        handler = AgentRequestHandler(
            sending,
            partial(self._remember_last_request, sending, room),
            self._refused_conversations,
            self._recording_behind,
            self._taken_out,
        )
        handler.on_unrecorded = partial(self._unrecorded.__setitem__, token)
        try:
            await handler.handle_request(request, room)
            seen.failure = ""
        except (httpx.HTTPError, ProviderUnreachable) as error:
            seen.failure = "" if sending.is_begun else _answer_to_failure(error)[1]
            raise

    async def _find_provider(
        self, incoming: IncomingRequest, client: httpx.AsyncClient
    ) -> tuple[str, IncomingRequest]:
        """Return the provider's address, and the request with the headers that this one needs."""
        address = _provider_address(incoming)
        if incoming.protocol != responses_gateway.NAME:
            return address, incoming
        route = await self._codex_workspaces.find_route(address, incoming.headers, client)
        if route.region:
            region = (REGION_HEADER.encode(), route.region.encode("latin-1", "replace"))
            incoming = replace(incoming, raw_headers=(*incoming.raw_headers, region))
        return route.base_url, incoming

    def _find_conversation_beside(self, request: ParsedRequest, room: AgentConversations) -> str:
        """Return the conversation that last sent a request like this side request, or
        an empty string.
        """
        origin = origin_of_request(request, room)
        for name, last in reversed(self._last_requests.items()):
            if last.origin != origin:
                continue
            # Without a session's name, it may be the first of another session.
            if request.arrival.session or is_about_same_words(request, last.request):
                return name
        return ""

    async def _parse_if_understood(self, incoming: IncomingRequest) -> ParsedRequest | None:
        where = incoming.route
        if not where.wire or incoming.method != "POST":
            return None
        if where.streams and "alt=sse" not in incoming.query:
            return None  # Gemini then streams a JSON array, which is not read.
        registration = incoming.registration
        is_on_plan = agent_identity.uses_subscription(incoming.headers)
        folds = registration.folds and (registration.folds_plans or not is_on_plan)
        parse = partial(parse_incoming_request, incoming, self._body_parser, folds=folds)
        is_large = len(incoming.content) > request_forwarding.LARGE_BODY_BYTES
        try:
            if is_large or "content-encoding" in incoming.headers:
                return await asyncio.to_thread(parse)
            return parse()
        except DecodedTooLarge:
            raise
        except Exception:
            log.exception(
                "a request was not understood; it goes on as it came unless something was taken out of its session"
            )
            return None

    async def _open_conversations_or_none(
        self, incoming: IncomingRequest, exit_stack: AsyncExitStack
    ) -> AgentConversations | None:
        try:
            return await exit_stack.enter_async_context(
                self._use_conversations(_workspace_of_request(incoming))
            )
        except HelixError as error:
            log.warning("requests go on unfolded: %s", error.what)
            self._unrecorded[incoming.registration.token] = error.what
            return None

    async def _forward_token_count(
        self,
        sending: request_forwarding.RequestForwarder,
        request: ParsedRequest,
        room: AgentConversations,
    ) -> None:
        """Ask the provider to count the folded request's tokens, as that is what would be sent."""
        pieces: BodyPieces | None = None
        try:
            sent = await room.preview_request(request.arrival, request.messages_after_instructions)
            self._taken_out.remember_taken_out(request.arrival, sent.taken_out)
            if not are_all_unchanged(sent.entries, len(request.messages_after_instructions)):
                body = build_folded_body(
                    request.body.wire, request.body.value, request.body.messages, sent.entries
                )
                pieces = request.body.encode_changed_body(body)
        except Exception:
            log.exception(
                "a count of tokens is asked for the unfolded request, without what was taken out"
            )
            pieces, _ = self._taken_out.build_body_without_taken_out(request)
        await sending.forward_without_reading(pieces)

    def _count_agent_request(
        self, request: ParsedRequest, incoming: IncomingRequest
    ) -> AgentActivity:
        seen = self.agent_activity.setdefault(
            request.arrival.agent, AgentActivity(request.arrival.agent)
        )
        seen.requests += 1
        seen.last = time.time()
        on_plan = agent_identity.uses_subscription(incoming.headers) and not request.arrival.fold
        seen.unfolded = NOT_FOLDED if on_plan else ""
        return seen

    async def status_for_registration(self, registration: GatewayRegistration) -> dict[str, Json]:
        """Return figures of its conversations, or for the window those of all, and of today."""
        if not registration.sees_all:
            why = self._unrecorded.get(registration.token)
            figures = await self._figures_of_registration(registration)
            return {"figures": figures, **({"unrecorded": why} if why else {})}
        midnight = time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))
        agents: list[Json] = [asdict(seen) for seen in self.agent_activity.values()]
        figures, today = await self._all_figures_since(0.0), await self._all_figures_since(midnight)
        return {"agents": agents, "figures": figures, "today": today}

    async def _figures_of_registration(
        self, registration: GatewayRegistration
    ) -> list[dict[str, Json]]:
        own = self._registered_conversations.find_conversations(registration.token)
        found: list[Figures] = []
        for workspace in sorted(set(own.values())):
            async with self._use_conversations(workspace) as room:
                found += await room.figures_since(registration.since)
        return [asdict(one) for one in found if one.conversation in own]

    async def _all_figures_since(self, since: float) -> list[dict[str, Json]]:
        return [
            asdict(found)
            for room in self.open_conversations()
            for found in await room.figures_since(since)
        ]

    # --- Asking an agent's own model to write folds

    def _remember_last_request(
        self,
        sending: request_forwarding.RequestForwarder,
        room: AgentConversations,
        conversation: str,
        request: ParsedRequest,
        body: dict[str, Json],
    ) -> None:
        """Remember the last request, and forget those of workspaces that were closed."""
        incoming, is_open = sending.incoming, self.open_conversations()
        token, workspace = incoming.registration.token, _workspace_of_request(incoming)
        self._registered_conversations.remember_conversation_of_token(
            token, conversation, workspace
        )
        for name in [
            name for name, last in self._last_requests.items() if last.room not in is_open
        ]:
            del self._last_requests[name]
        headers = incoming.headers_for_provider()
        self._last_requests[conversation] = LastAgentRequest(
            request, body, sending.url, headers, sending.client, room
        )
        self._last_requests.move_to_end(conversation)
        while len(self._last_requests) > MOST_HELD_REQUESTS:
            self._last_requests.popitem(last=False)
        if len(request.body.places.content) > request_forwarding.LARGE_BODY_BYTES:
            self._tasks.spawn_task(asyncio.to_thread(request.body.places.pack_content), name="pack")
        self.agent_activity[request.arrival.agent].conversation = conversation
        origin = origin_of_request(request, room)
        self._side_requests.record_waiting(origin, conversation, self._tasks)

    async def ask_agent_model(
        self, conversation: str, question: str, system: str, limit: int
    ) -> tuple[str, Usage, str]:
        """Ask the agent's model with its own key, after its last request or, with
        `system`, separately.
        """
        if (last := self._last_requests.get(conversation)) is None:
            raise ModelFailed("The agent hasn't sent a request since the gateway started.")
        wire: Any = WIRE_MODULES[last.request.body.wire]
        work = partial(_build_fold_question, wire, last, question, system, limit)
        pieces = await request_forwarding.run_in_thread_if_large(
            len(last.request.body.places.content), work
        )
        unwanted = {b"accept-encoding", b"content-encoding"}
        headers = [(n, v) for n, v in last.headers if n.lower() not in unwanted]
        url = last.url.replace(":streamGenerateContent", ":generateContent").replace("alt=sse", "")
        request = request_forwarding.build_provider_request(
            "POST", url, [*headers, (b"accept-encoding", b"identity")], pieces
        )
        try:
            async with asyncio.timeout(ASK_SECONDS):
                response = await last.client.send(request, stream=True)
                if response.status_code >= 400:
                    await response.aclose()
                    raise ModelFailed(
                        f"The agent's model refused the request (status {response.status_code})."
                    )
                answer = wire.parse_reply(await read_reply_to_own_question(wire, response))
        except (httpx.HTTPError, TimeoutError) as error:
            raise ModelFailed(
                f"The agent's model did not respond: {type(error).__name__}."
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFailed("The agent's model sent a reply that could not be read.") from error
        text = "\n".join(
            piece.text for piece in answer.message.pieces if piece.kind.value == "text"
        )
        return text, answer.usage, answer.model


def _workspace_of_request(incoming: IncomingRequest) -> str:
    """Return the registration's workspace. The path counts only at an address whose
    registration says so: an agent must not reach another workspace through its own.
    """
    registration = incoming.registration
    if registration.workspace or not registration.chooses_workspace:
        return registration.workspace
    return incoming.route.workspace


def _provider_address(incoming: IncomingRequest) -> str:
    registration = incoming.registration
    if registration.upstream:
        return registration.upstream
    wire = incoming.protocol
    if wire == responses_gateway.NAME and ACCOUNT_HEADER in incoming.headers:
        return CODEX_SUBSCRIPTION_URL
    return registration.upstreams.get(wire) or request_routes.UPSTREAMS[wire]


def _build_fold_question(
    wire: Any, last: LastAgentRequest, question: str, system: str, limit: int
) -> BodyPieces:
    body = dict(last.body)
    asks_alone = bool(system)
    units: Json = []
    if asks_alone:
        for name in _HEAD_FIELDS:
            body.pop(name, None)
        question = f"{system}\n\n{question}"
        if "max_tokens" in body:
            body["max_tokens"] = limit or 4_000
    else:
        units = body.get(MESSAGE_FIELDS[wire.NAME])
        if not isinstance(units, list):
            messages = wire.parse_messages(body)
            units = [unit for message in messages for unit in message.units]
    body.pop("stream_options", None)
    # ChatGPT answers Codex only with a stream.
    must_stream = wire is responses_gateway and CODEX_SUBSCRIPTION_PATH in last.url
    if body.get("stream") and not must_stream:
        body["stream"] = False
    together = [(unit, False) for unit in units]
    together.append((wire.user_message(question), True))
    body = with_messages(wire.NAME, body, wire.merge_added_messages(together))
    if asks_alone:
        return [orjson.dumps(body)]
    return last.request.body.encode_changed_body(body)


async def _receive_body(receive: Receive) -> BodyBytes | None:
    """Receive a body into one growing buffer, as joining pieces would block. None: too large."""
    content = bytearray()
    while (event := await receive())["type"] != "http.disconnect":
        content += event.get("body", b"")
        if len(content) > MOST_BODY_BYTES:
            return None
        if not event.get("more_body"):
            break
    return content if len(content) > request_forwarding.LARGE_BODY_BYTES else bytes(content)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_own_answer(send: SendEvent, status: int, value: str | dict[str, Json]) -> None:
    """Send a short answer of our own, in a form that clients of all four protocols understand."""
    answer: Json = value
    if isinstance(value, str):
        answer = {"type": "error", "error": {"type": "helix_gateway", "message": value}}
    content = orjson.dumps(answer)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _answer_to_failure(error: Exception) -> tuple[int, str]:
    """Return the status and the sentence for a request that was not answered."""
    if isinstance(error, DecodedTooLarge):
        sentence = (
            "A request of more than 64 MB after decompression is refused. Nothing was sent on."
        )
        return 413, sentence
    if isinstance(error, httpx.InvalidURL):
        sentence = (
            "The path of the request or the address of a proxy is not valid. Nothing was sent."
        )
        return 400, sentence
    if isinstance(error, HelixError):
        return (502 if isinstance(error, ProviderUnreachable) else 400), error.what
    host = "The provider"
    if isinstance(error, httpx.HTTPError):
        with suppress(RuntimeError):  # The error occurred before there was a request.
            host = error.request.url.netloc.decode()
    reason = str(error) or type(error).__name__
    return 502, f"{host} could not be reached ({reason}). Check the address and the proxy."


_KEY_HEADERS = {anthropic_gateway.NAME: b"x-api-key", gemini_gateway.NAME: b"x-goog-api-key"}


def _add_stored_key_if_missing(incoming: IncomingRequest) -> IncomingRequest:
    """Add the user's key if the request has none and goes to that key's host, as its
    protocol requires.
    """
    registration = incoming.registration
    host = urlsplit(_provider_address(incoming)).netloc.lower()
    if not registration.key or host != registration.key_host:
        return incoming
    for name in ("authorization", "x-api-key", "x-goog-api-key", "api-key"):
        if incoming.headers.get(name):
            return incoming
    header = _KEY_HEADERS.get(incoming.protocol, b"authorization")
    value = registration.key
    if header == b"authorization":
        value = f"Bearer {value}"
    added = (header, value.encode("latin-1"))
    return replace(incoming, raw_headers=(*incoming.raw_headers, added))


class ProviderHttpClients:
    """One HTTP client for each path to a provider."""

    def __init__(self) -> None:
        self._clients: dict[frozenset[tuple[str, str]] | None, httpx.AsyncClient] = {}

    def get_client_for(self, registration: GatewayRegistration) -> httpx.AsyncClient:
        proxies = registration.proxies
        if registration.upstream and is_loopback(registration.upstream):
            proxies = {}  # No proxy is asked for a server on this computer.
            for name, value in (registration.proxies or {}).items():
                if not name.endswith("_proxy"):  # The certificates are kept.
                    proxies[name] = value
        way = None if proxies is None else frozenset(proxies.items())
        if way not in self._clients:
            self._clients[way] = build_http_client(
                uses_environment=proxies is None, proxies=proxies
            )
        return self._clients[way]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
