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
from helix_desktop.gateway.provider_reply_bodies import build_own_refusal, read_refusal
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

RECORD_TIMEOUT_SECONDS, PREVIEW_TIMEOUT_SECONDS = 45.0, 5.0
# A request forwarded unread is read this much later, so as not to delay it.
SENDING_SECONDS, SHORT_SENDING_SECONDS = 0.3, 0.03
# A first request of at most this size makes no fold due.
FEW_MESSAGES, FEW_CHARACTERS, FEW_CHARACTERS_OF_OUTPUTS = 8, 32_000, 4_000
UNREAD_TICKET = Ticket("", 0, "", 0, "", live=False)
REFUSED_WITHOUT = (
    "(What you took out of the context was left out of this request. Nothing was lost. "
    "If that is why it was refused, bring it back in Helix Desktop and send the message again.)"
)
TOO_LONG_PHRASES = [phrase.encode() for phrase in TOO_LONG_FOR_GATEWAY]


async def _may_go_on_unread(request: ParsedRequest, room: AgentConversations) -> bool:
    """Whether no fold can be due in a long or short request, as no conversation knows its start."""
    messages = request.messages_after_instructions
    if request.body.read_rest:
        may = len(messages) > LONG_HISTORY_MESSAGES + 1
    elif len(messages) > FEW_MESSAGES or len(request.body.places.content) > LARGE_BODY_BYTES:
        may = False
    else:
        pieces = [piece for message in messages for piece in message.pieces]
        outputs = sum(len(piece.text) for piece in pieces if piece.kind is PieceKind.RESULT)
        characters = sum(len(piece.text) for piece in pieces)
        may = characters <= FEW_CHARACTERS and outputs <= FEW_CHARACTERS_OF_OUTPUTS
    with suppress(HelixError):
        return may and not await room.count_known_messages(request.arrival)
    return False


@functools.cache
def list_recall_tools() -> tuple[ToolSpec, ...]:
    """Return the tools to add to the agent's. Imported late, so that a restarted
    gateway listens sooner.
    """
    from helix_desktop.tools import recall_tools

    return tuple(
        ToolSpec(
            t.name,
            t.description,
            t.schema if isinstance(t.schema, str) else orjson.dumps(t.schema).decode(),
        )
        for t in recall_tools.build_recall_tools(history=_refuse_to_read_history)
        if t.name in HIDDEN_TOOLS
    )


async def _refuse_to_read_history(_fold: str, _words: str) -> str:
    """Never called: the process that has the journal answers recall_history."""
    raise NotImplementedError


@dataclass(slots=True)
class AgentRequestHandler:
    """Handles one request and its reply. `on_sent` is called with every body that was
    sent to the provider.
    """

    sending: RequestForwarder
    on_sent: Callable[[str, ParsedRequest, dict[str, Json]], None] = (
        lambda _conversation, _opened, _body: None
    )
    refused_conversations: set[str] = field(default_factory=set)
    behind: MutableMapping[str, OwnedTasks] = field(
        default_factory=dict
    )  # Tasks of a session's unread request.
    taken_out: TakenOutMessages = field(default_factory=TakenOutMessages)
    on_unrecorded: Callable[[str], object] = lambda _reason: (
        None
    )  # Called with why a request was not recorded.

    async def handle_request(self, request: ParsedRequest, room: AgentConversations) -> None:
        name = request.arrival.session or request.arrival.chain[0]
        before, behind, sent = self.behind.get(name), None, None
        if (request.body.read_rest or before is None) and await _may_go_on_unread(request, room):
            tasks = self.behind[name] = OwnedTasks("requests that went on unread")
            reading = tasks.spawn_task(
                self._record_after_forwarding(request, room, before), name="read and record"
            )
            behind = UnreadRequestRecorder(
                room, tasks, reading, is_short=not request.body.read_rest
            )
            sent = Sent(UNREAD_TICKET, (), recallable=False)
        else:
            request, sent = await self._read_and_record(request, room, before)
        if sent is None:
            await self.forward_unfolded_and_unrecorded(request)
            return
        ticket = sent.ticket
        tools = request.adds_tools and ticket.conversation not in self.refused_conversations
        same = folded_request.are_all_unchanged(
            sent.entries, len(request.messages_after_instructions)
        )
        try:
            build = partial(self._build_body_to_send, request, sent, same=same, tools=tools)
            size = 0 if same else len(self.sending.incoming.content)
            content, body = await run_in_thread_if_large(size, build)
        except Exception:
            log.exception(
                "a request could not be folded; it goes on unfolded, without what was taken out"
            )
            await self.forward_unfolded_and_unrecorded(request)
            return
        response = await self.sending.send_to_provider(content, reads_reply=tools)
        if response.status_code >= 400:
            if behind is not None:
                request, ticket, _ = await behind.wait_until_read()
                sent = replace(sent, ticket=ticket)
            retried = await self._retry_after_refusal(
                request, sent, response, room, tools=tools, changed=content is not None
            )
            if retried is None:
                return
            response, body, tools = retried
            same = False
        call_filter = CALL_FILTERS[request.body.wire](hold=sent.recallable)
        relay = ReplyRelay(self.sending, behind or room, request, ticket, body, tools, call_filter)
        if behind is None:
            remember = partial(self._remember_sent, request, ticket, body, same=same)
            relay.after_first_bytes = functools.cache(remember)
        await relay.relay_until_answered(response)

    async def forward_side_request(self, request: ParsedRequest, recorder: Any) -> None:
        """Forward a request beside a conversation. `recorder` records what it cost."""
        response = await self.sending.send_to_provider(None, reads_reply=False)
        if response.status_code >= 400:
            await self.sending.send_refusal(await read_refusal(response))
            return
        ticket = Ticket(
            "", 0, "", 0, request.body.wire, is_import=True
        )  # Its reply does not wait for that.
        call_filter = CALL_FILTERS[request.body.wire](hold=False)
        relay = ReplyRelay(
            self.sending, recorder, request, ticket, request.body.value, False, call_filter
        )
        await relay.relay_until_answered(response)

    async def forward_unfolded_and_unrecorded(self, request: ParsedRequest) -> None:
        """Forward the request without folds and recall. Neither it nor its reply is recorded."""
        content, _ = await self._build_body_without_excluded_messages(request)
        await self.sending.forward_without_reading(content)

    async def _build_body_without_excluded_messages(
        self, request: ParsedRequest
    ) -> tuple[BodyPieces | None, dict[str, Json]]:
        return await run_in_thread_if_large(  # type: ignore[no-any-return]
            len(self.sending.incoming.content), self.taken_out.build_body_without_taken_out, request
        )

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
        _, body = self._build_body_to_send(request, sent, same=True, tools=request.adds_tools)
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
                self.taken_out.remember_taken_out(request.arrival, sent.taken_out)
                return request, sent
        except Exception as error:
            log.exception(
                "a request could not be recorded; it goes on unfolded, without what was taken out"
            )
            self.on_unrecorded(
                error.what if isinstance(error, HelixError) else "The reason is in the log."
            )
            with suppress(Exception):  # Ask what was taken out meanwhile; records nothing.
                async with asyncio.timeout(PREVIEW_TIMEOUT_SECONDS):
                    messages = request.messages_after_instructions
                    sent = await room.preview_request(request.arrival, messages)
                    self.taken_out.remember_taken_out(request.arrival, sent.taken_out)
            return request, None

    def _build_body_to_send(
        self, request: ParsedRequest, sent: Sent, *, tools: bool, same: bool = False
    ) -> tuple[BodyPieces | None, dict[str, Json]]:
        """Return the body to send, as bytes (None: the client's own) and as a value."""
        read = request.body
        if same and not tools:
            return None, read.value
        wire: Any = WIRE_MODULES[request.body.wire]
        body = (
            wire.with_added_tools(request.body.value, list_recall_tools())
            if tools
            else request.body.value
        )
        if not same:
            body = folded_request.build_folded_body(
                read.wire, body, read.messages, sent.entries, read.marked, read.previous
            )
        return read.encode_changed_body(body), body

    async def _retry_after_refusal(
        self,
        request: ParsedRequest,
        sent: Sent,
        response: httpx.Response,
        room: AgentConversations,
        *,
        tools: bool,
        changed: bool,
    ) -> tuple[httpx.Response, dict[str, Json], bool] | None:
        """Send a shorter request if it was too long, or else the agent's own. None:
        pass the refusal on.
        """
        refusal = await read_refusal(response)
        said = refusal.text.lower()
        too_long = response.status_code in (400, 413) and any(
            words in said for words in TOO_LONG_PHRASES
        )
        if too_long and request.arrival.fold:
            if (shorter := await room.fold_after_overflow(sent.ticket)) is not None:
                build = partial(self._build_body_to_send, request, shorter, tools=tools)
                content, body = await run_in_thread_if_large(
                    len(self.sending.incoming.content), build
                )
                again = await self.sending.send_to_provider(content, reads_reply=tools)
                if again.status_code < 400:
                    return again, body, tools
                refusal = await read_refusal(again)
        elif changed and response.status_code in (400, 422):
            log.warning(
                "the provider refused a changed request with %d; it was sent as it came",
                response.status_code,
            )
            content, body = await self._build_body_without_excluded_messages(request)
            again = await self.sending.send_to_provider(content, reads_reply=False)
            if again.status_code < 400:
                self.refused_conversations.add(sent.ticket.conversation)
                return again, body, False
            refusal = await read_refusal(again)
        if refusal.response.status_code in (400, 422):
            content, body = await self._build_body_without_excluded_messages(request)
            wire: Any = WIRE_MODULES[request.body.wire]
            messages = request.body.messages if content is None else wire.parse_messages(body)
            if mended := folded_request.pair_calls_with_results(request.body.wire, body, messages):
                pieces = request.body.encode_changed_body(mended)
                again = await self.sending.send_to_provider(pieces, reads_reply=False)
                if again.status_code < 400:
                    return again, mended, False
                await again.aclose()
            if content is not None and not too_long:
                why = (
                    f"{text_at(refusal.parse_refusal_json(), 'error', 'message')} {REFUSED_WITHOUT}"
                )
                refusal = build_own_refusal(400, "invalid_request_error", why.strip())
        await self.sending.send_refusal(refusal)
        return None
