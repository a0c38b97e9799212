"""The road of an agent's request: parse, find, fold, send, relay, record.

`AgentRequestHandler.handle_request` is the road from its beginning to its end. If anything
fails on it, the agent's own request is sent as it came, but without what the user took out.
"""

import asyncio
import logging
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import field, replace
from functools import partial
from typing import Any

import httpx

from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.decompression import DecodedTooLarge
from helix_desktop.engine.facts import Purpose, Usage
from helix_desktop.errors import HelixError, ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import agent_identity, folded_request
from helix_desktop.gateway.conversation_matching import LONG_HISTORY_MESSAGES
from helix_desktop.gateway.conversations_port import AgentConversations, Replied, Sent, Ticket
from helix_desktop.gateway.gateway_memory import GatewayMemory
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.provider_choice import address_of_provider
from helix_desktop.gateway.provider_reply_bodies import read_refusal
from helix_desktop.gateway.refused_request import RefusedRequest, describe_other_protocol
from helix_desktop.gateway.reply_relay import (
    RecordedRequest,
    ReplyRelay,
    UnreadRequestRecorder,
)
from helix_desktop.gateway.request_forwarding import (
    LARGE_BODY_BYTES,
    RequestForwarder,
    explain_failure,
    run_in_thread_if_large,
)
from helix_desktop.gateway.request_parsing import (
    SIDE_REQUEST_BYTES,
    IncomingRequest,
    ParsedRequest,
    agent_of_request,
    parse_incoming_request,
)
from helix_desktop.gateway.sent_body import (
    AnsweredBody,
    SentBody,
    are_messages_unchanged,
    build_sent_body,
)
from helix_desktop.gateway.side_requests import (
    SideReplyRecorder,
    origin_of_request,
    text_of_last_message,
)
from helix_desktop.gateway.unread_reply import ReportedUsage, UnreadReply
from helix_desktop.json_values import parse_json, text_at
from helix_desktop.protocols.gateway_message import Json, PieceKind
from helix_desktop.protocols.protocol_table import CALL_FILTERS
from helix_desktop.providers.model_prices import price_usage_of_agent
from helix_desktop.token_counting import BYTES_PER_TOKEN
from helix_desktop.workbench.open_questions import UNKNOWN_SEQ, UNKNOWN_USAGE, QuestionNote
from helix_desktop.workbench.unread_requests import UnreadRequest

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
# Stands for the ticket of a request that is not recorded yet, so that it has none.
UNREAD_TICKET = Ticket(conversation="", messages=0, last="", saw=0, wire="", live=False)


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """A request with its conversation. `sent`: what its messages become. `recorder`:
    records its reply: the conversation, or what stands in for it until it is found.
    """

    request: ParsedRequest
    sent: Sent
    recorder: AgentConversations | UnreadRequestRecorder

    @property
    def is_unchanged(self) -> bool:
        return are_messages_unchanged(self.request, self.sent)


@dataclass(slots=True)
class AgentRequestHandler:
    """Takes one request of an agent to its provider, and the reply back to the agent."""

    sending: RequestForwarder
    memory: GatewayMemory = field(default_factory=GatewayMemory)
    # By these, the request is paid for if this process is killed before the reply is recorded.
    _notes: list[QuestionNote] = field(default_factory=list)
    _is_over: bool = False

    async def handle_request(self) -> None:
        """Take the request along the whole road, or along the part of it that is its own.

        What is no step of a conversation leaves the road where this is known.
        """
        incoming = self.sending.incoming
        request = await self._parse_request()
        if request is None:
            await self._forward_unread()
            return

        # The stack keeps the workspace open until the agent has the whole reply.
        async with AsyncExitStack() as open_workspace:
            conversations = await self._open_conversations(open_workspace)
            if conversations is None:
                await self._forward_without_conversations(request)
                return

            is_side_request = await self.memory.side_requests.is_side_request(
                request, incoming.registration, conversations
            )
            if is_side_request:
                side_request = replace(request, is_side=True)
                await self._forward_beside(side_request, conversations)
                return

            request = self.memory.side_requests.name_run_as_session(request, incoming.registration)
            if incoming.route.counts_tokens:
                await self._forward_token_count(request, conversations)
                return
            await self.handle_step(request, conversations)

    async def _open_conversations(
        self, open_workspace: AsyncExitStack
    ) -> AgentConversations | None:
        """Open the workspace of the request. None: it cannot be opened."""
        incoming = self.sending.incoming
        try:
            workspace = self.memory.use_conversations(incoming.workspace)
            return await open_workspace.enter_async_context(workspace)
        except HelixError as error:
            log.warning("requests go on unfolded: %s", error.what)
            self.memory.remember_unrecorded(incoming.registration.token, error)
            return None

    async def handle_step(self, request: ParsedRequest, conversations: AgentConversations) -> None:
        """Take a step of a conversation from finding its conversation to the end of its reply."""
        activity = self.memory.count_agent_request(request, self.sending.incoming)
        try:
            found_request = await self._find_and_record(request, conversations)
            if found_request is None:
                await self.forward_unfolded_and_unrecorded(request)
                return

            body = await self._fold(found_request)
            if body is None:
                await self.forward_unfolded_and_unrecorded(found_request.request)
                return

            response = await self.sending.send_to_provider(body.pieces, reads_reply=body.has_tools)
            if response.status_code < 400:
                answered = AnsweredBody(response, body.value, body.has_tools)
                await self._relay_and_record(found_request, answered, conversations)
            else:
                await self._send_again(found_request, body, response, conversations)
            token = self.sending.incoming.registration.token
            activity.failure = self.memory.unserved.get(token, "")
        except (httpx.HTTPError, ProviderUnreachable) as error:
            if self.sending.is_begun:
                # The agent has a part of the reply, so it was not refused.
                activity.failure = ""
            else:
                activity.failure = explain_failure(error).sentence
            raise
        finally:
            self._forget_notes()

    # --- Notes of what is asked, which are found if this process is killed

    def _note_request(
        self,
        request: ParsedRequest,
        conversations: AgentConversations,
        conversation: str,
        purpose: Purpose,
        usage: Usage = UNKNOWN_USAGE,
        after_seq: int = UNKNOWN_SEQ,
    ) -> None:
        """Keep a note of a request of a conversation until this handler is done with it."""
        if self._is_over:  # It was recorded behind its reply, or there is none.
            return
        model = request.arrival.model
        questions = conversations.questions
        note = questions.note_question(conversation, purpose, model, usage, after_seq)
        self._notes.append(note)

    def _renew_notes(self) -> None:
        """Note that the provider is asked again behind a reply that is recorded."""
        for note in self._notes:
            note.renew_question_note()

    def _forget_notes(self) -> None:
        self._is_over = True
        for note in self._notes:
            note.delete_question_note()

    # --- Parse

    async def _parse_request(self) -> ParsedRequest | None:
        """Parse the body. None: the request is no step of a conversation, or not understood."""
        incoming = self.sending.incoming
        if not incoming.may_be_understood:
            return None
        parser = self.memory.body_parser
        parse = partial(
            parse_incoming_request,
            incoming,
            parser,
            folds=incoming.may_be_folded,
            provider_address=address_of_provider(incoming),
        )
        request: ParsedRequest | None
        try:
            if "content-encoding" in incoming.headers:
                # A compressed body may be much larger than its bytes say.
                request = await asyncio.to_thread(parse)
            else:
                request = await run_in_thread_if_large(len(incoming.content), parse)
        except DecodedTooLarge:
            raise
        except Exception:
            log.exception(
                "a request was not understood; it goes on as it came unless something was taken out of its session"
            )
            return None
        return request

    # --- Find

    async def _find_and_record(
        self, request: ParsedRequest, conversations: AgentConversations
    ) -> FoundRequest | None:
        """Find the conversation and record what is new, at once or behind the request.
        None: that failed.
        """
        session = _name_of_session(request)
        earlier_recording = self.memory.recording_behind.get(session)
        may_be_unread = earlier_recording is None or bool(request.body.read_rest)
        if may_be_unread and await _may_go_on_unread(request, conversations):
            recorder = self._record_later(request, conversations)
            unchanged = Sent(UNREAD_TICKET, entries=(), recallable=False)
            return FoundRequest(request, unchanged, recorder)

        request, sent = await self._read_and_record(request, conversations, earlier_recording)
        if sent is None:
            return None
        return FoundRequest(request, sent, conversations)

    def _record_later(
        self, request: ParsedRequest, conversations: AgentConversations
    ) -> UnreadRequestRecorder:
        """Begin to record a request that is forwarded before."""
        session = _name_of_session(request)
        earlier_recording = self.memory.recording_behind.get(session)
        tasks = OwnedTasks("requests that went on unread")
        self.memory.recording_behind[session] = tasks
        recording = self._record_after_forwarding(request, conversations, earlier_recording)
        reading = tasks.spawn_task(recording, name="read and record")
        is_short = not request.body.read_rest
        return UnreadRequestRecorder(
            conversations,
            tasks,
            reading,
            is_short=is_short,
            on_unrecorded=partial(self._count_unrecorded_reply, request.arrival.model),
        )

    async def _record_after_forwarding(
        self,
        request: ParsedRequest,
        conversations: AgentConversations,
        earlier_recording: OwnedTasks | None,
    ) -> RecordedRequest:
        """Read and record a request that was forwarded, even if its agent hung up."""
        if request.body.read_rest:
            await asyncio.sleep(SENDING_SECONDS)
        else:
            await asyncio.sleep(SHORT_SENDING_SECONDS)

        request, sent = await self._read_and_record(request, conversations, earlier_recording)
        if sent is None:
            return RecordedRequest(request, UNREAD_TICKET, request.body.value)

        body = build_sent_body(request, sent, has_tools=request.adds_tools, is_unchanged=True)
        found_request = FoundRequest(request, sent, conversations)
        self._remember_sent(found_request, body.value, conversations, is_unchanged=True)
        return RecordedRequest(request, sent.ticket, body.value)

    async def _read_and_record(
        self,
        request: ParsedRequest,
        conversations: AgentConversations,
        earlier_recording: OwnedTasks | None,
    ) -> tuple[ParsedRequest, Sent | None]:
        """Record a request once the earlier ones of its session are recorded. Return it with all
        of its messages, and what they become. None: that failed.
        """
        try:
            async with asyncio.timeout(RECORD_TIMEOUT_SECONDS):
                if earlier_recording is not None:
                    await earlier_recording.wait_for_all_tasks()
                if request.body.read_rest:
                    request = await asyncio.to_thread(request.with_all_messages)
                messages = request.messages_after_instructions
                sent = await conversations.receive_request(request.arrival, messages)
        except Exception as error:
            log.exception(
                "a request could not be recorded; it goes on unfolded, without what was taken out"
            )
            self.memory.remember_unrecorded(self.sending.incoming.registration.token, error)
            await self._ask_what_was_taken_out(request, conversations)
            return request, None
        self.memory.taken_out.remember_taken_out(request.arrival, sent.taken_out)
        token = self.sending.incoming.registration.token
        self.memory.remember_unfolded(token, request.arrival.agent, sent.unfolded)
        after_seq = sent.ticket.saw
        if sent.ticket.ahead:
            # Earlier replies of its history are recorded behind that fact, and none is its answer.
            after_seq = UNKNOWN_SEQ
        self._note_request(
            request,
            conversations,
            sent.ticket.conversation,
            Purpose.STEP,
            after_seq=after_seq,
        )
        return request, sent

    async def _ask_what_was_taken_out(
        self, request: ParsedRequest, conversations: AgentConversations
    ) -> None:
        """Ask what the user took out meanwhile, for a request that is not recorded."""
        # Recording has failed just now, so this may fail too. What is remembered stays left out.
        with suppress(Exception):
            async with asyncio.timeout(PREVIEW_TIMEOUT_SECONDS):
                messages = request.messages_after_instructions
                sent = await conversations.preview_request(request.arrival, messages)
                self.memory.taken_out.remember_taken_out(request.arrival, sent.taken_out)

    # --- Fold

    async def _fold(self, found_request: FoundRequest) -> SentBody | None:
        """Build what is sent, with the folds of the conversation. None: that failed."""
        request = found_request.request
        provider_refuses_tools = (
            found_request.sent.ticket.conversation in self.memory.refused_conversations
        )
        has_tools = request.adds_tools and not provider_refuses_tools
        is_unchanged = found_request.is_unchanged
        build = partial(
            build_sent_body,
            request,
            found_request.sent,
            has_tools=has_tools,
            is_unchanged=is_unchanged,
        )
        body: SentBody
        try:
            if is_unchanged:  # Its messages are not touched, so this is quick at any size.
                body = build()
            else:
                body = await run_in_thread_if_large(len(self.sending.incoming.content), build)
        except Exception:
            log.exception(
                "a request could not be folded; it goes on unfolded, without what was taken out"
            )
            return None
        return body

    # --- Send

    async def _send_again(
        self,
        found_request: FoundRequest,
        body: SentBody,
        response: httpx.Response,
        conversations: AgentConversations,
    ) -> None:
        """Send a refused request again as the provider may accept it, and relay its reply."""
        if isinstance(found_request.recorder, UnreadRequestRecorder):
            # It must be recorded before anything in it can be folded.
            recorded = await found_request.recorder.wait_until_read()
            sent = replace(found_request.sent, ticket=recorded.ticket)
            found_request = replace(found_request, request=recorded.request, sent=sent)
        refused = RefusedRequest(
            self.sending,
            self.memory,
            conversations,
            found_request.request,
            found_request.sent,
            body,
        )
        answered = await refused.send_again_or_refuse(response)
        if answered is not None:
            await self._relay_and_record(found_request, answered, conversations, was_refused=True)

    # --- Relay and record

    async def _relay_and_record(
        self,
        found_request: FoundRequest,
        answered: AnsweredBody,
        conversations: AgentConversations,
        *,
        was_refused: bool = False,
    ) -> None:
        """Relay the reply. It is recorded before its end reaches the agent."""
        wire = found_request.request.body.wire
        call_filter = CALL_FILTERS[wire](hold=found_request.sent.recallable)
        relay = ReplyRelay(
            sending=self.sending,
            conversations=found_request.recorder,
            request=found_request.request,
            ticket=found_request.sent.ticket,
            body=answered.value,
            tools=answered.has_tools,
            call_filter=call_filter,
            on_asking_again=self._renew_notes,
        )
        if not isinstance(found_request.recorder, UnreadRequestRecorder):
            # What went on unread is remembered once it is read.
            is_unchanged = found_request.is_unchanged and not was_refused
            relay.on_first_bytes = partial(
                self._remember_sent,
                found_request,
                answered.value,
                conversations,
                is_unchanged=is_unchanged,
            )
        try:
            await relay.relay_until_answered(answered.response)
        finally:
            self._note_answered_protocol(wire, relay.answered_protocol)

    def _note_answered_protocol(self, asked: str, answered: str) -> None:
        """Remember whether the provider answers in the agent's protocol, for the status. `answered`
        is empty if the reply does not say it.
        """
        token = self.sending.incoming.registration.token
        if answered == asked:
            self.memory.unserved.pop(token, None)
        elif answered:
            self.memory.unserved[token] = describe_other_protocol(self.sending.url, asked, answered)

    def _remember_sent(
        self,
        found_request: FoundRequest,
        body: dict[str, Json],
        conversations: AgentConversations,
        *,
        is_unchanged: bool,
    ) -> None:
        """Remember what was sent. `is_unchanged`: its messages were sent as they came."""
        request = found_request.request
        parsed = request.body
        conversation = found_request.sent.ticket.conversation
        try:
            if is_unchanged and request.arrival.fold and not parsed.read_rest:
                folded_request.remember_client_marks(
                    parsed.wire, parsed.message_units, parsed.marked, parsed.previous
                )
            self.memory.remember_sent_request(
                self.sending, conversations, conversation, request, body
            )
        except Exception:
            log.exception("a request could not be remembered; its reply goes on")

    # --- Requests that are no step of a conversation

    async def _forward_unread(self) -> None:
        """Forward a request as it came, unless it may hold something that was taken out."""
        incoming = self.sending.incoming
        if len(incoming.content) >= SIDE_REQUEST_BYTES:
            session = agent_identity.session_of_request(incoming.headers, {})
            self.memory.taken_out.refuse_if_anything_taken_out(session)
        await self._forward_and_count()

    async def _forward_without_conversations(self, request: ParsedRequest) -> None:
        """Forward a request whose workspace cannot be opened."""
        if request.is_side:
            await self._forward_unread()
        else:
            await self.forward_unfolded_and_unrecorded(request)

    async def forward_unfolded_and_unrecorded(self, request: ParsedRequest) -> None:
        """Forward the request without folds and recall. Neither it nor its reply is recorded."""
        size = len(self.sending.incoming.content)
        build = self.memory.taken_out.build_body_without_taken_out
        pieces, _ = await run_in_thread_if_large(size, build, request)
        await self._forward_and_count(pieces, request.arrival.model)

    async def _forward_and_count(self, pieces: BodyPieces | None = None, model: str = "") -> None:
        """Forward a request that becomes no facts, and count it with what its reply says it cost.

        `model`: that it asks for, if that is known.
        """
        incoming = self.sending.incoming
        if incoming.method != "POST" or incoming.route.counts_tokens:
            await self.sending.forward_without_reading(pieces)
            return
        reply = UnreadReply()
        try:
            await self.sending.forward_without_reading(pieces, reply)
        except BaseException:
            # It broke off, or the agent hung up. What had begun has cost something.
            if incoming.route.wire and 0 < reply.status < 400:
                counting = self._count_unread(ReportedUsage(), model)
                self.memory.tasks.spawn_task(counting, name="count an unread request")
            raise
        if reply.status < 400:
            # The agent has its reply, and may hang up at this moment.
            await finish_even_if_cancelled(self._count_unread_reply(reply, model))

    async def _count_unread_reply(self, reply: UnreadReply, model: str) -> None:
        """Count a whole reply if it is a model's."""
        incoming = self.sending.incoming
        reported = await reply.read_reported_usage(incoming)
        is_for_model = bool(incoming.route.wire or reported.usage.input or reported.usage.output)
        if is_for_model:
            await self._count_unread(reported, model)

    async def _count_unrecorded_reply(self, model: str, replied: Replied) -> None:
        await self._count_unread(ReportedUsage(replied.usage, replied.model), model)

    async def _count_unread(self, reported: ReportedUsage, asked_model: str) -> None:
        """Count a request that became no facts, in the status and in the account of its workspace."""
        incoming = self.sending.incoming
        asked_model = asked_model or _model_in_body(incoming)
        usage = price_usage_of_agent(reported.usage, reported.model, asked_model, None)
        is_estimate = not usage.input and not usage.output
        if is_estimate:
            estimated_tokens = round(len(incoming.content) / BYTES_PER_TOKEN)
            usage = Usage(input=estimated_tokens)
        agent = agent_of_request(incoming)
        model = reported.model or asked_model
        unread = UnreadRequest(time.time(), agent, model, usage, is_estimate)
        self.memory.count_unread_request(incoming.registration.token, unread)
        with suppress(HelixError):  # That its workspace cannot be opened is said already.
            async with self.memory.use_conversations(incoming.workspace) as conversations:
                await asyncio.to_thread(conversations.unread_requests.append_unread_request, unread)

    async def _forward_beside(
        self, request: ParsedRequest, conversations: AgentConversations
    ) -> None:
        """Forward a request beside a conversation. What it costs is recorded in that one."""
        incoming = self.sending.incoming
        if incoming.route.counts_tokens:
            await self._forward_unread()
            return
        if len(incoming.content) >= SIDE_REQUEST_BYTES:
            self.memory.taken_out.refuse_if_anything_taken_out(request.arrival.session)
        recorder = SideReplyRecorder(
            partial(self.memory.last_requests.find_conversation_beside, request, conversations),
            origin_of_request(request, conversations),
            self.memory.side_requests.waiting,
            incoming.registration.token,
            partial(
                self.memory.registered_conversations.remember_conversation_of_token,
                incoming.registration.token,
                workspace=incoming.workspace,
            ),
            text_of_last_message(request),
        )
        conversation = recorder.find_conversation()
        # Its length is known, and its facts are not: it is no step.
        usage = Usage(input=round(len(incoming.content) / BYTES_PER_TOKEN))
        self._note_request(request, conversations, conversation, Purpose.OTHER, usage)
        try:
            await self.forward_side_request(request, recorder)
        finally:
            self._forget_notes()

    async def forward_side_request(self, request: ParsedRequest, recorder: Any) -> None:
        """Forward a request beside a conversation as it came. `recorder` records what it cost."""
        response = await self.sending.send_to_provider(None, reads_reply=False)
        if response.status_code >= 400:
            await self.sending.send_refusal(await read_refusal(response))
            return
        # The recorder finds the conversation later, so the ticket names none. The end of the
        # reply does not wait for the recording (`is_import`).
        wire = request.body.wire
        ticket = Ticket(conversation="", messages=0, last="", saw=0, wire=wire, is_import=True)
        call_filter = CALL_FILTERS[wire](hold=False)
        relay = ReplyRelay(
            sending=self.sending,
            conversations=recorder,
            request=request,
            ticket=ticket,
            body=request.body.value,
            tools=False,
            call_filter=call_filter,
        )
        await relay.relay_until_answered(response)

    async def _forward_token_count(
        self, request: ParsedRequest, conversations: AgentConversations
    ) -> None:
        """Ask the provider to count the folded request's tokens, as that is what would be sent."""
        parsed = request.body
        pieces: BodyPieces | None = None
        try:
            messages = request.messages_after_instructions
            sent = await conversations.preview_request(request.arrival, messages)
            self.memory.taken_out.remember_taken_out(request.arrival, sent.taken_out)
            if not are_messages_unchanged(request, sent):
                # Nothing of it is remembered for the next request, as it is no step.
                folded = folded_request.build_folded_body(
                    parsed.wire, parsed.value, parsed.messages, sent.entries
                )
                pieces = parsed.encode_changed_body(folded)
        except Exception:
            log.exception(
                "a count of tokens is asked for the unfolded request, without what was taken out"
            )
            pieces, _ = self.memory.taken_out.build_body_without_taken_out(request)
        await self.sending.forward_without_reading(pieces)


def _model_in_body(incoming: IncomingRequest) -> str:
    """Return the model that a request names which was not understood, if it can be seen easily."""
    if incoming.route.model or len(incoming.content) > LARGE_BODY_BYTES:
        return incoming.route.model
    with suppress(ValueError):
        return text_at(parse_json(bytes(incoming.content)), "model")
    return ""


def _name_of_session(request: ParsedRequest) -> str:
    """Return the agent's name for its session, or else the hash of its first message."""
    return request.arrival.session or request.arrival.chain[0]


async def _may_go_on_unread(request: ParsedRequest, conversations: AgentConversations) -> bool:
    """Whether no fold can be due in a long or short request, as no conversation knows its start."""
    if request.body.read_rest:
        # Not all of its messages are parsed yet, and already these are too many to wait for.
        is_long = len(request.messages_after_instructions) > LONG_HISTORY_MESSAGES + 1
        if not is_long:
            return False
    elif not _is_short(request):
        return False
    try:
        known_count = await conversations.count_known_messages(request.arrival)
    except HelixError:
        return False
    return known_count == 0


def _is_short(request: ParsedRequest) -> bool:
    """Whether so little is said in a request that it makes no fold due."""
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
