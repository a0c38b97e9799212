"""Relays a reply to the agent without hidden calls, and continues requests while the
model only recalls.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

import httpx
import orjson

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Stop
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import provider_reply_bodies
from helix_desktop.gateway.conversations_port import (
    AgentConversations,
    HiddenCallAnswer,
    Replied,
    Ticket,
)
from helix_desktop.gateway.folded_request import (
    PreviousBody,
    build_folded_body,
    count_leading_instructions,
)
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.request_forwarding import RequestForwarder, run_in_thread_if_large
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.gateway.view_entries import Entry, HiddenReply, HiddenResult, UnchangedMessage
from helix_desktop.json_values import text_at
from helix_desktop.protocols.event_stream import RawEventSplitter, encode_event, parse_event_data
from helix_desktop.protocols.gateway_message import (
    Json,
    Piece,
    PieceKind,
    ProtocolMessage,
    WireReply,
)
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS, HiddenCallFilter
from helix_desktop.protocols.protocol_table import (
    MESSAGE_FIELDS,
    WIRE_MODULES,
    find_protocol_of_reply,
)
from helix_desktop.protocols.provider_failures import retry_after_seconds

log = logging.getLogger(__name__)

# The maximum number of consecutive replies that contain only recalls.
MOST_RECALL_REPLIES = 12
# After this many further replies, whose recalls are refused, the agent gets an error.
MOST_REFUSED_REPLIES = 4
RECALL_REFUSED = "[Nothing more is recalled in this step. Go on with what you have: answer, or call another tool.]"
NOT_RECALLED = "[This cannot be recalled now.]"
RETRIED_STATUSES = frozenset((408, 429, 500, 502, 503, 504, 529))
# Pauses before new attempts, unless the provider names one.
RETRY_WAITS_SECONDS = (0.5, 1.0, 2.0, 4.0)
LONGEST_HINT_SECONDS = 60.0  # If the provider suggests a longer wait, the agent decides what to do.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_LAST_EVENTS = ("message_stop", "response.completed", "response.incomplete")


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request that was forwarded unread, now with all of its messages. `ticket`: it names the
    request where its reply is recorded. `body`: what was sent to the provider.
    """

    request: ParsedRequest
    ticket: Ticket
    body: dict[str, Json]


@dataclass(slots=True)
class UnreadRequestRecorder:
    """Stands in for the conversations, for the reply to a request that is forwarded unread.

    The ticket that comes with a reply is not used: the request has its own once it is recorded.
    """

    conversations: AgentConversations
    tasks: OwnedTasks
    reading: asyncio.Task[RecordedRequest]
    is_short: bool = False
    # Called with the reply to a request that could not be recorded.
    on_unrecorded: Callable[[Replied], Awaitable[None]] | None = None

    async def wait_until_read(self) -> RecordedRequest:
        """Return what was read and recorded. If the agent hangs up, that goes on."""
        return await asyncio.shield(self.reading)

    async def answer_hidden_calls(self, _: Ticket, *reply: Any) -> list[HiddenCallAnswer]:
        recorded = await self.wait_until_read()
        return await self.conversations.answer_hidden_calls(recorded.ticket, *reply)

    async def record_agent_reply(self, _: Ticket, *reply: Any) -> None:
        """Record a reply before the next request. If its own is long, its end does not wait."""
        recording = self.tasks.spawn_task(self._record_once_read(*reply), name="record a reply")
        if self.is_short:
            await asyncio.shield(recording)

    async def _record_once_read(self, replied: Replied | None, shown_key: str) -> None:
        recorded = await self.reading
        if recorded.ticket.conversation:
            await self.conversations.record_agent_reply(recorded.ticket, replied, shown_key)
        elif replied is not None and self.on_unrecorded is not None:
            await self.on_unrecorded(replied)


@dataclass(slots=True)
class ReplyRelay:
    """Relays the reply, or the replies that follow each other while the model recalls."""

    sending: RequestForwarder
    conversations: AgentConversations | UnreadRequestRecorder
    request: ParsedRequest
    ticket: Ticket
    body: dict[str, Json]
    tools: bool  # The request has the recall tools, so its reply may have hidden calls.
    call_filter: HiddenCallFilter
    # Called once, when the agent has the first bytes of the reply or the reply has ended.
    on_first_bytes: Callable[[], object] | None = None
    # Called before the provider is asked again, behind a reply that is recorded.
    on_asking_again: Callable[[], object] = lambda: None
    # The protocol of what the provider answered, as soon as its reply says it.
    answered_protocol: str = ""
    _started: float = field(default_factory=time.monotonic)
    _has_reply_begun: bool = False  # The provider has sent an event that is no error.
    # What the agent sees of all replies so far as one message: their texts and its own calls.
    _shown_pieces: list[Piece] = field(default_factory=list)
    _reply_values: list[Json] = field(default_factory=list)
    _had_hidden_calls: bool = False  # One of the replies so far had some.
    # The answers to the hidden calls of the last reply, for the next request.
    _recall_results: list[HiddenCallAnswer] = field(default_factory=list)

    async def relay_until_answered(self, response: httpx.Response) -> None:
        """Relay the reply to the agent. While it has only hidden calls, answer these, send the
        request again with the answers, and relay the next reply behind it.

        Hidden calls are those of our own tools, by which a model recalls what was shortened. The
        agent does not know these tools.
        """
        streams = "event-stream" in response.headers.get("content-type", "")
        answer = await self._relay_reply(response, streams=streams)
        for _ in range(MOST_RECALL_REPLIES + MOST_REFUSED_REPLIES):
            if answer is None or not self._is_to_be_continued:
                return
            next_answer = await self._continue_after_recall(answer, streams=streams)
            if isinstance(next_answer, provider_reply_bodies.ProviderRefusal):
                await self._send_refusal(next_answer, streams=streams)
                return
            answer = next_answer

        log.warning("a model did nothing but recall; its agent was told to ask again")
        sentence = "The model did nothing but recall. Nothing was lost; send it again."
        await self._send_refusal(_refusal_to_retry(sentence), streams=streams)

    @property
    def _is_to_be_continued(self) -> bool:
        """Whether the reply had hidden calls and none that the agent must answer. The filter has
        counted the calls of a reply before it is recorded.
        """
        return self.call_filter.has_only_hidden_calls

    async def _continue_after_recall(
        self, answer: WireReply, *, streams: bool
    ) -> WireReply | provider_reply_bodies.ProviderRefusal | None:
        """Ask the provider again with what was recalled, and relay its next reply. Return that
        reply, or the refusal that the agent gets instead.
        """
        try:
            recorder = self.conversations
            if self.request.body.read_rest and isinstance(recorder, UnreadRequestRecorder):
                # The next request is built from all messages, of which only the first are read.
                recorded = await recorder.wait_until_read()
                self.request = recorded.request
                self.body = recorded.body
            size = len(self.request.body.places.content)
            pieces = await run_in_thread_if_large(size, self._build_request_after_recall, answer)
        except Exception:
            log.exception("a reply could not go on behind a recall")
            return _refusal_to_retry("The reply broke off. Nothing was lost; send it again.")
        self.call_filter.continue_in_next_reply(answer.usage.output)
        self.on_asking_again()
        return await self._relay_continuation(pieces, streams=streams)

    async def _send_refusal(
        self, refusal: provider_reply_bodies.ProviderRefusal, *, streams: bool
    ) -> None:
        """Send it as an event if the agent's stream has begun, or else as a response."""
        if streams:
            line = refusal.text.replace(b"\n", b" ")
            await self.sending.send(b"event: error\ndata: " + line + b"\n\n")
        else:
            await self.sending.send_refusal(refusal)

    async def _relay_reply(self, response: httpx.Response, *, streams: bool) -> WireReply | None:
        """Relay one reply of the provider, streamed or whole, and record it. Return it, or None
        if it could not be read or broke off.

        What a reply that breaks off has cost is recorded, too.
        """
        assembler = self._wire_module.ReplyAssembler()
        self._has_reply_begun = False
        try:
            if not streams:
                return await self._record_and_relay_whole_reply(response)
            return await self._relay_and_record_stream(response, assembler)
        except (httpx.HTTPError, asyncio.CancelledError):
            if not assembler.is_done:
                await self._record_usage_of_cut_reply(assembler.whole_reply())
            raise
        finally:
            self._note_first_bytes()
            await response.aclose()

    def _note_first_bytes(self) -> None:
        if self.on_first_bytes is not None:
            self.on_first_bytes()
            self.on_first_bytes = None  # It is called once, however many pieces follow.

    async def _relay_and_record_stream(
        self, response: httpx.Response, assembler: Any
    ) -> WireReply | None:
        answer = await self._relay_stream(response, assembler)
        if answer is None and not assembler.is_done:  # It ended without its last event.
            await self._record_usage_of_cut_reply(assembler.whole_reply())
        return answer

    async def _relay_continuation(
        self, pieces: BodyPieces, *, streams: bool
    ) -> WireReply | provider_reply_bodies.ProviderRefusal | None:
        """Send a request that has what was recalled, and relay its reply. If this breaks off
        before the agent has seen any of it, ask again, several times if needed.
        """
        shown_before = self.call_filter.shown_count
        for wait_seconds in RETRY_WAITS_SECONDS:
            try:
                return await self._relay_next_reply(pieces, streams=streams)
            except httpx.TransportError as error:
                if self.call_filter.shown_count > shown_before:
                    raise
                log.info(
                    "a reply behind a recall broke off and is asked for again: %s",
                    type(error).__name__,
                )
            self.call_filter.reset_for_retry()
            await asyncio.sleep(wait_seconds)
        return await self._relay_next_reply(pieces, streams=streams)

    async def _relay_next_reply(
        self, pieces: BodyPieces, *, streams: bool
    ) -> WireReply | provider_reply_bodies.ProviderRefusal | None:
        response = await self._request_next_reply(pieces)
        if isinstance(response, provider_reply_bodies.ProviderRefusal):
            return response
        return await self._relay_reply(response, streams=streams)

    async def _request_next_reply(
        self, pieces: BodyPieces
    ) -> httpx.Response | provider_reply_bodies.ProviderRefusal:
        """Return the reply after a recall, retrying as the provider says, as the agent
        knows nothing of it.
        """
        for wait_seconds in RETRY_WAITS_SECONDS:
            response = await self.sending.send_to_provider(pieces, reads_reply=True)
            if response.status_code < 400:
                return response
            refusal = await provider_reply_bodies.read_refusal(response)
            if response.status_code not in RETRIED_STATUSES:
                return refusal
            hint_seconds = retry_after_seconds(response.headers, refusal.parse_refusal_json())
            if hint_seconds is None:
                await asyncio.sleep(wait_seconds)
            elif hint_seconds > LONGEST_HINT_SECONDS:
                return refusal
            else:
                await asyncio.sleep(hint_seconds)
        response = await self.sending.send_to_provider(pieces, reads_reply=True)
        if response.status_code < 400:
            return response
        return await provider_reply_bodies.read_refusal(response)

    @property
    def _wire_module(self) -> Any:
        return WIRE_MODULES[self.request.body.wire]

    # --- A reply that comes as a stream

    async def _relay_stream(self, response: httpx.Response, assembler: Any) -> WireReply | None:
        """Relay a reply that comes as a stream of events. Its end is sent only once the reply is
        on disk. Return the whole reply, or None if it broke off.

        Each piece is decoded to read the events in it. The agent gets the bytes as they came
        where that is possible, and otherwise the events without hidden calls.
        """
        stream = _RelayedStream(response, assembler, tools=self.tools)
        chunks = response.aiter_raw()
        decoded_chunks = provider_reply_bodies.decode_reply_chunks(
            chunks, stream.coding, lambda: assembler.is_done
        )
        try:
            async for chunk, decoded in decoded_chunks:
                await self._start_reply_of_stream(stream)
                if stream.sends_raw and chunk:
                    await self.sending.send(chunk)
                for raw_event in stream.splitter.feed_raw_chunk(decoded):
                    await self._relay_event(raw_event, stream)
                await self._send_and_clear_pieces(stream.unsent)
        except provider_reply_bodies.UnreadableReply as error:
            await self._relay_unread_rest_or_fail(stream, error, chunks)
        else:
            await self._start_reply_of_stream(stream)
            if stream.splitter.unfinished and not stream.sends_raw:
                await self.sending.send(bytes(stream.splitter.unfinished))
        if stream.answer is None and assembler.is_done:
            stream.answer = await self._parse_and_record(assembler.whole_reply())
        return stream.answer

    async def _start_reply_of_stream(self, stream: "_RelayedStream") -> None:
        is_decoded = self.tools and bool(stream.coding)
        await self.sending.start_reply(stream.response, rewritten=self.tools, decoded=is_decoded)

    async def _relay_event(self, raw: bytes, stream: "_RelayedStream") -> None:
        """Take in one event of a stream, and add what the agent gets of it to what is sent next.

        With the last event, the reply is complete. It is recorded before this event is sent.
        """
        event = parse_event_data(raw)
        if event is not None:
            stream.assembler.add_reply_event(event)
            if not _is_error_event(event):
                self._has_reply_begun = True
            if not self.answered_protocol:
                self.answered_protocol = find_protocol_of_reply(event)
        bytes_for_agent = b""
        if self.tools:
            bytes_for_agent = self.call_filter.filter_event(raw, event)
        elif not stream.coding:  # Compressed bytes go on as they come.
            bytes_for_agent = raw
        is_last = stream.assembler.is_done and self._is_last_event(raw, event)
        if stream.answer is None and is_last:
            await self._send_and_clear_pieces(stream.unsent)
            stream.answer = await self._parse_and_record(stream.assembler.whole_reply())
        stream.unsent.append(bytes_for_agent)

    async def _record_usage_of_cut_reply(self, value: Json) -> None:
        """Record what a reply that broke off cost, although the agent asks again.

        Most providers report its tokens only at its end: then they are estimated. A model may think
        for minutes before its first word comes, so what has begun has cost something.
        """
        with suppress(*_UNREADABLE, HelixError):
            answer = self._parse_answer(value)
            has_content = bool(answer.usage.input or answer.message.pieces)
            if not has_content and not self._has_reply_begun:
                return
            model = answer.model or self.request.arrival.model
            cut_reply = Replied(answer.message.pieces, model, Stop.CUT, answer.usage)
            shown_key = ""  # The agent has no complete message that it would send again.
            await self.conversations.record_agent_reply(self.ticket, cut_reply, shown_key)

    async def _send_and_clear_pieces(self, pieces: list[bytes]) -> None:
        content = b"".join(pieces)
        pieces.clear()
        if content:  # An empty piece would end a reply that is sent in chunks.
            await self.sending.send(content)
            self._note_first_bytes()

    async def _relay_unread_rest_or_fail(
        self,
        stream: "_RelayedStream",
        error: provider_reply_bodies.UnreadableReply,
        chunks: AsyncIterator[bytes],
    ) -> None:
        """Relay the unread rest as it came, unless the agent already got decompressed bytes."""
        has_got_decompressed_bytes = self.sending.is_begun and self.tools and stream.coding
        if has_got_decompressed_bytes:
            failure = {
                "type": "helix_gateway",
                "message": f"The provider's reply was ended: {error}. Send it again.",
            }
            await self.sending.send(encode_event({"type": "error", "error": failure}, "error"))
            return
        await self.sending.start_reply(stream.response)
        unread = error.chunk
        if not stream.coding:  # What was held back of an event that had not ended.
            unread = bytes(stream.splitter.unfinished) + unread
        if unread:  # An empty piece would end a reply that is sent in chunks.
            await self.sending.send(unread)
        async for chunk in chunks:
            await self.sending.send(chunk)

    def _is_last_event(self, raw: bytes, event: Json | None) -> bool:
        """Whether the event ends the stream of a reply that is complete."""
        if b"[DONE]" in raw or text_at(event, "type") in _LAST_EVENTS:
            return True
        return self.request.body.wire == gemini_gateway.NAME  # Its last event has no mark.

    # --- A reply that comes whole

    async def _record_and_relay_whole_reply(self, response: httpx.Response) -> WireReply | None:
        """Relay a reply that came without a stream, and record it. None: it could not be read."""
        chunks = response.aiter_raw()
        raw = await provider_reply_bodies.read_raw_body(chunks)
        coding = provider_reply_bodies.coding_of_reply(response)
        try:
            value = await provider_reply_bodies.parse_whole_reply(raw, coding)
            self.answered_protocol = find_protocol_of_reply(value)
            answer = self._parse_answer(value)
        except _UNREADABLE:
            await self._send_in_one_piece(response, raw)
            async for chunk in chunks:
                await self.sending.send(chunk)
            return None
        if self.tools:
            for call in answer.message.pieces_of_kind(PieceKind.CALL):
                self.call_filter.count_call(call.name)
        self._reply_values.append(value)
        await self._record_reply_before_its_end(answer)
        if self._is_to_be_continued:
            return answer
        if self.call_filter.any_hidden:
            merged_reply = self.call_filter.merge_whole_replies(self._reply_values)
            await self._send_in_one_piece(response, orjson.dumps(merged_reply), rewritten=True)
        else:
            await self._send_in_one_piece(response, raw)
        return answer

    async def _send_in_one_piece(
        self, response: httpx.Response, content: bytes | bytearray, *, rewritten: bool = False
    ) -> None:
        await self.sending.start_reply(response, rewritten=rewritten)
        step = provider_reply_bodies.LARGE_REPLY_BYTES
        for begin in range(0, len(content), step):
            await self.sending.send(bytes(content[begin : begin + step]))

    # --- Recording

    def _parse_answer(self, value: Json) -> WireReply:
        """Return what a reply says. Raises one of `_UNREADABLE` if it has another form."""
        if self.request.body.wire == gemini_gateway.NAME:
            return self._number_gemini_calls(gemini_gateway.parse_reply(value))
        answer: WireReply = self._wire_module.parse_reply(value)
        return answer

    def _number_gemini_calls(self, answer: WireReply) -> WireReply:
        """Number Gemini's calls, which have no ids: visible ones as the agent counts,
        hidden ones separately.
        """
        number = 0
        for message in self.request.body.messages:
            number += len(message.pieces_of_kind(PieceKind.CALL))

        mark = secrets.token_hex(6)
        pieces: list[Piece] = []
        for position, piece in enumerate(answer.message.pieces):
            if piece.kind is not PieceKind.CALL:
                pieces.append(piece)
            elif self.tools and piece.name in HIDDEN_TOOLS:
                pieces.append(replace(piece, id=f"hidden-{mark}-{position}"))
            else:
                number += 1
                pieces.append(replace(piece, id=f"call-{number}"))
        return replace(answer, message=replace(answer.message, pieces=tuple(pieces)))

    async def _parse_and_record(self, value: Json) -> WireReply | None:
        """Record a reply and return it. None: it cannot be read, and the agent gets it anyway."""
        try:
            answer = self._parse_answer(value)
        except _UNREADABLE:
            log.exception("a reply could not be read; it went through")
            return None
        await self._record_reply_before_its_end(answer)
        return answer

    async def _record_reply_before_its_end(self, answer: WireReply) -> None:
        """Record a reply before its end reaches the agent, so that the journal has all that the
        agent saw. Hidden calls in it are answered, and the answers kept for the next request.
        """
        hidden_calls = self._hidden_calls(answer)
        self._shown_pieces += _pieces_shown_to_agent(answer, hidden_calls)
        if hidden_calls:
            self._had_hidden_calls = True
            self._recall_results = await self._answer_each_hidden_call(answer, hidden_calls)
            return
        try:
            replied = self._build_replied(answer)
            shown_key = self._key_of_shown_message(answer)
            await self.conversations.record_agent_reply(self.ticket, replied, shown_key)
        except Exception:
            log.exception("a reply could not be recorded; it went through")

    def _hidden_calls(self, answer: WireReply) -> list[Piece]:
        if not self.tools:
            return []
        calls = answer.message.pieces_of_kind(PieceKind.CALL)
        return [call for call in calls if call.name in HIDDEN_TOOLS]

    async def _answer_each_hidden_call(
        self, answer: WireReply, hidden_calls: Sequence[Piece]
    ) -> list[HiddenCallAnswer]:
        """Run the calls of our own tools. If that fails, each of them is answered all the same,
        since the model must get a result for every call it made.
        """
        try:
            return await self._run_hidden_calls(answer, hidden_calls)
        except Exception:
            log.exception("a reply could not be recorded; it went through")
        failures: list[HiddenCallAnswer] = []
        for call in hidden_calls:
            failures.append(HiddenCallAnswer(call.id, call.name, NOT_RECALLED, is_ok=False))
        return failures

    async def _run_hidden_calls(
        self, answer: WireReply, hidden_calls: Sequence[Piece]
    ) -> list[HiddenCallAnswer]:
        refusal = ""
        if self.call_filter.replies_before >= MOST_RECALL_REPLIES:
            refusal = RECALL_REFUSED
        replied = self._build_replied(answer)
        answers = await self.conversations.answer_hidden_calls(
            self.ticket, replied, hidden_calls, refusal
        )
        if not self._is_to_be_continued:
            # The agent answers its own calls. Ours are sent with its results next time.
            shown_key = self._key_of_shown_message(answer)
            await self.conversations.record_agent_reply(self.ticket, None, shown_key)
        return answers

    def _build_replied(self, answer: WireReply) -> Replied:
        """Return what is recorded of a reply."""
        raw = ""
        if self._had_hidden_calls:  # The agent will not send all of it again, so it is kept here.
            raw = orjson.dumps(answer.message.units).decode()
        if answer.model and not self.request.is_side:
            model = answer.model
        else:
            model = self.request.arrival.model or answer.model
        seconds = time.monotonic() - self._started
        return Replied(
            pieces=answer.message.pieces,
            model=model,
            stop=answer.stop,
            usage=answer.usage,
            raw=raw,
            seconds=seconds,
        )

    def _key_of_shown_message(self, answer: WireReply) -> str:
        """Return the key that identifies the message the agent saw in its next request."""
        shown_message = ProtocolMessage(
            answer.message.speaker, units=(), pieces=tuple(self._shown_pieces)
        )
        return shown_message.identity_key

    def _build_request_after_recall(self, answer: WireReply) -> BodyPieces:
        """Build the request that was sent last with the reply and what was recalled behind it."""
        parsed = self.request.body
        last_units = self.body.get(MESSAGE_FIELDS[parsed.wire])
        messages: list[ProtocolMessage]
        if last_units is parsed.message_units:  # They were sent as they came.
            messages = parsed.messages
        else:
            messages = self._wire_module.parse_messages(self.body)

        count = len(messages) - count_leading_instructions(messages)
        entries: list[Entry] = [UnchangedMessage(position) for position in range(count)]
        raw_reply = orjson.dumps(answer.message.units).decode()
        entries.append(HiddenReply(raw_reply))
        for result in self._recall_results:
            entry = HiddenResult(result.call_id, result.tool_name, result.text, result.is_ok)
            entries.append(entry)

        # Of the previous request only the cache marks count: these messages are built anew.
        marks_alone = PreviousBody(marked_request=parsed.previous.marked_request)
        self.body = build_folded_body(
            parsed.wire, self.body, messages, entries, previous=marks_alone
        )
        parsed.previous.marked_request = marks_alone.marked_request
        return parsed.encode_changed_body(self.body)


class _RelayedStream:
    """What is known of a stream while it is relayed. `unsent`: what the agent gets next."""

    def __init__(self, response: httpx.Response, assembler: Any, *, tools: bool) -> None:
        self.response = response
        self.assembler = assembler
        self.coding = provider_reply_bodies.coding_of_reply(response)
        self.sends_raw = bool(self.coding) and not tools
        self.splitter = RawEventSplitter()
        self.unsent: list[bytes] = []
        self.answer: WireReply | None = None


def _is_error_event(event: Mapping[str, Json]) -> bool:
    """Whether a provider says within a stream that it cannot answer."""
    return bool(event.get("error")) or event.get("type") in ("error", "response.failed")


def _pieces_shown_to_agent(answer: WireReply, hidden_calls: Sequence[Piece]) -> list[Piece]:
    """Return the texts of a reply and the calls that the agent must answer."""
    shown_pieces: list[Piece] = []
    for piece in answer.message.pieces:
        is_text_or_call = piece.kind in (PieceKind.TEXT, PieceKind.CALL)
        if is_text_or_call and piece not in hidden_calls:
            shown_pieces.append(piece)
    return shown_pieces


def _refusal_to_retry(sentence: str) -> provider_reply_bodies.ProviderRefusal:
    """Return a refusal of our own after which every agent retries."""
    return provider_reply_bodies.build_own_refusal(529, "overloaded_error", sentence)
