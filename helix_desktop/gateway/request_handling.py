"""Handles one request of an agent and its reply: folds the request, and removes hidden
calls from the reply.

If anything fails here, the agent's own request is sent as it came, but without what the
user took out.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any

import httpx
import orjson

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolSpec
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import folded_request
from helix_desktop.gateway.conversation_matching import LONG_HISTORY_MESSAGES
from helix_desktop.gateway.conversations_port import AgentConversations, Sent, Ticket
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.provider_reply_bodies import (
    ProviderRefusal,
    build_own_refusal,
    read_refusal,
)
from helix_desktop.gateway.reply_relay import ReplyRelay, UnreadRequestRecorder
from helix_desktop.gateway.request_forwarding import (
    LARGE_BODY_BYTES,
    RequestForwarder,
    run_in_thread_if_large,
)
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.gateway.taken_out_messages import TakenOutMessages
from helix_desktop.json_values import text_at
from helix_desktop.protocols.gateway_message import Json, PieceKind
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS
from helix_desktop.protocols.known_refusals import TOO_LONG_FOR_GATEWAY
from helix_desktop.protocols.protocol_table import CALL_FILTERS, WIRE_MODULES

log = logging.getLogger(__name__)

RECORD_TIMEOUT_SECONDS = 45.0
PREVIEW_TIMEOUT_SECONDS = 5.0
# A request forwarded unread is read this much later, so as not to delay it.
SENDING_SECONDS = 0.3
SHORT_SENDING_SECONDS = 0.03
# A first request of at most this size makes no fold due.
FEW_MESSAGES = 8
FEW_CHARACTERS = 32_000
FEW_CHARACTERS_OF_OUTPUTS = 4_000
UNREAD_TICKET = Ticket("", 0, "", 0, "", live=False)
REFUSED_WITHOUT = (
    "(What you took out of the context was left out of this request. Nothing was lost. "
    "If that is why it was refused, bring it back in Helix Desktop and send the message again.)"
)
TOO_LONG_PHRASES = [phrase.encode() for phrase in TOO_LONG_FOR_GATEWAY]


async def _may_go_on_unread(request: ParsedRequest, room: AgentConversations) -> bool:
    """Whether no fold can be due in a long or short request, as no conversation knows its start."""
    if request.body.read_rest:
        is_of_that_size = len(request.messages_after_instructions) > LONG_HISTORY_MESSAGES + 1
    else:
        is_of_that_size = _is_short(request)
    if not is_of_that_size:
        return False
    try:
        return not await room.count_known_messages(request.arrival)
    except HelixError:
        return False


def _is_short(request: ParsedRequest) -> bool:
    messages = request.messages_after_instructions
    if len(messages) > FEW_MESSAGES or len(request.body.places.content) > LARGE_BODY_BYTES:
        return False
    characters = 0
    characters_of_outputs = 0
    for message in messages:
        for piece in message.pieces:
            characters += len(piece.text)
            if piece.kind is PieceKind.RESULT:
                characters_of_outputs += len(piece.text)
    return characters <= FEW_CHARACTERS and characters_of_outputs <= FEW_CHARACTERS_OF_OUTPUTS


@functools.cache
def list_recall_tools() -> tuple[ToolSpec, ...]:
    """Return the tools to add to the agent's. Imported late, so that a restarted
    gateway listens sooner.
    """
    from helix_desktop.tools import recall_tools

    tools = []
    for tool in recall_tools.build_recall_tools(history=_refuse_to_read_history):
        if tool.name in HIDDEN_TOOLS:
            schema = tool.schema
            text = schema if isinstance(schema, str) else orjson.dumps(schema).decode()
            tools.append(ToolSpec(tool.name, tool.description, text))
    return tuple(tools)


async def _refuse_to_read_history(_fold: str, _words: str) -> str:
    """Never called: the process that has the journal answers recall_history."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SentBody:
    """A body as it goes to the provider. `pieces`: its bytes (None: the agent's own).
    `has_tools`: with the recall tools.
    """

    pieces: BodyPieces | None
    value: dict[str, Json]
    has_tools: bool = False


@dataclass(frozen=True, slots=True)
class AnsweredBody:
    """What was sent, and the provider's response to it."""

    response: httpx.Response
    value: dict[str, Json]
    has_tools: bool


def _do_nothing(*_: object) -> None:
    pass


@dataclass(slots=True)
class AgentRequestHandler:
    """Handles one request and its reply. `on_sent` is called with every body that was
    sent to the provider. `behind`: the tasks of each session's unread request.
    `on_unrecorded` is called with why a request was not recorded.
    """

    sending: RequestForwarder
    on_sent: Callable[[str, ParsedRequest, dict[str, Json]], None] = _do_nothing
    refused_conversations: set[str] = field(default_factory=set)
    behind: MutableMapping[str, OwnedTasks] = field(default_factory=dict)
    taken_out: TakenOutMessages = field(default_factory=TakenOutMessages)
    on_unrecorded: Callable[[str], object] = _do_nothing

    async def handle_request(self, request: ParsedRequest, room: AgentConversations) -> None:
        """Record the request, fold it, send it, and relay the reply."""
        name = request.arrival.session or request.arrival.chain[0]
        before = self.behind.get(name)
        unread: UnreadRequestRecorder | None = None
        sent: Sent | None
        may_be_unread = before is None or bool(request.body.read_rest)
        if may_be_unread and await _may_go_on_unread(request, room):
            unread = self._record_later(request, room, name)
            sent = Sent(UNREAD_TICKET, (), recallable=False)
        else:
            request, sent = await self._read_and_record(request, room, before)
        if sent is None:
            await self.forward_unfolded_and_unrecorded(request)
            return
        try:
            body = await self._fold(request, sent)
        except Exception:
            log.exception(
                "a request could not be folded; it goes on unfolded, without what was taken out"
            )
            await self.forward_unfolded_and_unrecorded(request)
            return
        response = await self.sending.send_to_provider(body.pieces, reads_reply=body.has_tools)
        answered: AnsweredBody | None = AnsweredBody(response, body.value, body.has_tools)
        is_same = _are_messages_same(request, sent)
        if response.status_code >= 400:
            if unread is not None:
                request, ticket, _ = await unread.wait_until_read()
                sent = replace(sent, ticket=ticket)
            answered = await self._retry_after_refusal(request, sent, response, room, body)
            is_same = False
        if answered is not None:
            await self._relay(request, sent, answered, unread or room, is_same=is_same)

    def _record_later(
        self, request: ParsedRequest, room: AgentConversations, name: str
    ) -> UnreadRequestRecorder:
        """Begin to record a request that is forwarded before."""
        before = self.behind.get(name)
        tasks = self.behind[name] = OwnedTasks("requests that went on unread")
        recording = self._record_after_forwarding(request, room, before)
        reading = tasks.spawn_task(recording, name="read and record")
        is_short = not request.body.read_rest
        return UnreadRequestRecorder(room, tasks, reading, is_short=is_short)

    async def _fold(self, request: ParsedRequest, sent: Sent) -> SentBody:
        is_refused = sent.ticket.conversation in self.refused_conversations
        tools = request.adds_tools and not is_refused
        is_same = _are_messages_same(request, sent)
        build = partial(self._build_body_to_send, request, sent, same=is_same, tools=tools)
        size = 0 if is_same else len(self.sending.incoming.content)
        body: SentBody = await run_in_thread_if_large(size, build)
        return body

    async def _relay(
        self,
        request: ParsedRequest,
        sent: Sent,
        answered: AnsweredBody,
        recorder: AgentConversations | UnreadRequestRecorder,
        *,
        is_same: bool,
    ) -> None:
        call_filter = CALL_FILTERS[request.body.wire](hold=sent.recallable)
        relay = ReplyRelay(
            self.sending,
            recorder,
            request,
            sent.ticket,
            answered.value,
            answered.has_tools,
            call_filter,
        )
        if not isinstance(recorder, UnreadRequestRecorder):
            remember = partial(
                self._remember_sent, request, sent.ticket, answered.value, same=is_same
            )
            relay.after_first_bytes = functools.cache(remember)
        await relay.relay_until_answered(answered.response)

    async def forward_side_request(self, request: ParsedRequest, recorder: Any) -> None:
        """Forward a request beside a conversation. `recorder` records what it cost."""
        response = await self.sending.send_to_provider(None, reads_reply=False)
        if response.status_code >= 400:
            await self.sending.send_refusal(await read_refusal(response))
            return
        # The end of its reply does not wait for the recording.
        ticket = Ticket("", 0, "", 0, request.body.wire, is_import=True)
        call_filter = CALL_FILTERS[request.body.wire](hold=False)
        body = request.body.value
        relay = ReplyRelay(self.sending, recorder, request, ticket, body, False, call_filter)
        await relay.relay_until_answered(response)

    async def forward_unfolded_and_unrecorded(self, request: ParsedRequest) -> None:
        """Forward the request without folds and recall. Neither it nor its reply is recorded."""
        own = await self._build_body_without_excluded_messages(request)
        await self.sending.forward_without_reading(own.pieces)

    async def _build_body_without_excluded_messages(self, request: ParsedRequest) -> SentBody:
        size = len(self.sending.incoming.content)
        build = self.taken_out.build_body_without_taken_out
        pieces, value = await run_in_thread_if_large(size, build, request)
        return SentBody(pieces, value)

    async def _record_after_forwarding(
        self, request: ParsedRequest, room: AgentConversations, before: OwnedTasks | None
    ) -> tuple[ParsedRequest, Ticket, dict[str, Json]]:
        """Read and record a request that was forwarded, even if its agent hung up. Also
        returns what was sent.
        """
        await asyncio.sleep(SENDING_SECONDS if request.body.read_rest else SHORT_SENDING_SECONDS)
        request, sent = await self._read_and_record(request, room, before)
        if sent is None:
            return request, UNREAD_TICKET, request.body.value
        tools = request.adds_tools
        body = self._build_body_to_send(request, sent, same=True, tools=tools).value
        self._remember_sent(request, sent.ticket, body, same=True)
        return request, sent.ticket, body

    def _remember_sent(
        self, request: ParsedRequest, ticket: Ticket, body: dict[str, Json], *, same: bool
    ) -> None:
        """Remember what was sent. `same`: its messages were sent as they came."""
        read = request.body
        try:
            if same and request.arrival.fold and not read.read_rest:
                folded_request.remember_client_marks(
                    read.wire, read.message_units, read.marked, read.previous
                )
            self.on_sent(ticket.conversation, request, body)
        except Exception:
            log.exception("a request could not be remembered; its reply goes on")

    async def _read_and_record(
        self, request: ParsedRequest, room: AgentConversations, before: OwnedTasks | None
    ) -> tuple[ParsedRequest, Sent | None]:
        try:
            async with asyncio.timeout(RECORD_TIMEOUT_SECONDS):
                if before is not None:
                    await before.wait_for_all_tasks()
                if request.body.read_rest:
                    request = await asyncio.to_thread(request.with_all_messages)
                messages = request.messages_after_instructions
                sent = await room.receive_request(request.arrival, messages)
        except Exception as error:
            log.exception(
                "a request could not be recorded; it goes on unfolded, without what was taken out"
            )
            reason = error.what if isinstance(error, HelixError) else "The reason is in the log."
            self.on_unrecorded(reason)
            await self._ask_what_was_taken_out(request, room)
            return request, None
        self.taken_out.remember_taken_out(request.arrival, sent.taken_out)
        return request, sent

    async def _ask_what_was_taken_out(
        self, request: ParsedRequest, room: AgentConversations
    ) -> None:
        """Ask what the user took out meanwhile, for a request that is not recorded."""
        with suppress(Exception):
            async with asyncio.timeout(PREVIEW_TIMEOUT_SECONDS):
                messages = request.messages_after_instructions
                sent = await room.preview_request(request.arrival, messages)
                self.taken_out.remember_taken_out(request.arrival, sent.taken_out)

    def _build_body_to_send(
        self, request: ParsedRequest, sent: Sent, *, tools: bool, same: bool = False
    ) -> SentBody:
        read = request.body
        if same and not tools:
            return SentBody(None, read.value)
        value: dict[str, Json] = read.value
        if tools:
            wire: Any = WIRE_MODULES[read.wire]
            value = wire.with_added_tools(value, list_recall_tools())
        if not same:
            value = folded_request.build_folded_body(
                read.wire, value, read.messages, sent.entries, read.marked, read.previous
            )
        return SentBody(read.encode_changed_body(value), value, tools)

    # --- When the provider refuses a request

    async def _retry_after_refusal(
        self,
        request: ParsedRequest,
        sent: Sent,
        response: httpx.Response,
        room: AgentConversations,
        body: SentBody,
    ) -> AnsweredBody | None:
        """Send a shorter request if it was too long, or else the agent's own. None:
        the agent got the refusal.
        """
        refusal = await read_refusal(response)
        is_too_long = _is_about_length(refusal)
        if is_too_long and request.arrival.fold:
            tried = await self._send_shorter(request, sent, room, refusal, tools=body.has_tools)
        elif body.pieces is not None and response.status_code in (400, 422):
            log.warning(
                "the provider refused a changed request with %d; it was sent as it came",
                response.status_code,
            )
            tried = await self._send_as_it_came(request, sent)
        else:
            tried = refusal
        if isinstance(tried, AnsweredBody):
            return tried
        if tried.response.status_code in (400, 422):
            own = await self._build_body_without_excluded_messages(request)
            mended = await self._send_with_paired_calls(request, own)
            if mended is not None:
                return mended
            if own.pieces is not None and not is_too_long:
                said = text_at(tried.parse_refusal_json(), "error", "message")
                sentence = f"{said} {REFUSED_WITHOUT}".strip()
                tried = build_own_refusal(400, "invalid_request_error", sentence)
        await self.sending.send_refusal(tried)
        return None

    async def _send_shorter(
        self,
        request: ParsedRequest,
        sent: Sent,
        room: AgentConversations,
        refusal: ProviderRefusal,
        *,
        tools: bool,
    ) -> AnsweredBody | ProviderRefusal:
        shorter = await room.fold_after_overflow(sent.ticket)
        if shorter is None:
            return refusal
        build = partial(self._build_body_to_send, request, shorter, tools=tools)
        body: SentBody = await run_in_thread_if_large(len(self.sending.incoming.content), build)
        return await self._send_again(body.pieces, body.value, tools=tools)

    async def _send_as_it_came(
        self, request: ParsedRequest, sent: Sent
    ) -> AnsweredBody | ProviderRefusal:
        own = await self._build_body_without_excluded_messages(request)
        answered = await self._send_again(own.pieces, own.value, tools=False)
        if isinstance(answered, AnsweredBody):
            self.refused_conversations.add(sent.ticket.conversation)
        return answered

    async def _send_with_paired_calls(
        self, request: ParsedRequest, own: SentBody
    ) -> AnsweredBody | None:
        """Send the request with exactly one result for each call, if it is not so already."""
        wire: Any = WIRE_MODULES[request.body.wire]
        messages = request.body.messages
        if own.pieces is not None:
            messages = wire.parse_messages(own.value)
        mended = folded_request.pair_calls_with_results(request.body.wire, own.value, messages)
        if mended is None:
            return None
        pieces = request.body.encode_changed_body(mended)
        answered = await self._send_again(pieces, mended, tools=False)
        return answered if isinstance(answered, AnsweredBody) else None

    async def _send_again(
        self, pieces: BodyPieces | None, value: dict[str, Json], *, tools: bool
    ) -> AnsweredBody | ProviderRefusal:
        response = await self.sending.send_to_provider(pieces, reads_reply=tools)
        if response.status_code >= 400:
            return await read_refusal(response)
        return AnsweredBody(response, value, tools)


def _are_messages_same(request: ParsedRequest, sent: Sent) -> bool:
    count = len(request.messages_after_instructions)
    return folded_request.are_all_unchanged(sent.entries, count)


def _is_about_length(refusal: ProviderRefusal) -> bool:
    if refusal.response.status_code not in (400, 413):
        return False
    said = refusal.text.lower()
    return any(words in said for words in TOO_LONG_PHRASES)
