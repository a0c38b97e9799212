"""Relays a reply to the agent without hidden calls, and continues requests while the
model only recalls.
"""

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
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
from helix_desktop.gateway.conversations_port import AgentConversations, Replied, Ticket
from helix_desktop.gateway.folded_request import (
    PreviousBody,
    build_folded_body,
    count_leading_instructions,
)
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.request_forwarding import RequestForwarder, run_in_thread_if_large
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.gateway.view_entries import As, Entry, Hidden, Returned
from helix_desktop.json_values import text_at
from helix_desktop.protocols.event_stream import RawEventSplitter, encode_event, parse_event_data
from helix_desktop.protocols.gateway_message import Json, Piece, PieceKind, Wired, WireReply
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS, HiddenCallFilter
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from helix_desktop.protocols.provider_failures import retry_after_seconds

log = logging.getLogger(__name__)

MOST_RECALL_REPLIES = 12  # The maximum number of consecutive replies that contain only recalls.
MOST_REFUSED_REPLIES = (
    4  # After this many further replies, whose recalls are refused, the agent gets an error.
)
RECALL_REFUSED = "[Nothing more is recalled in this step. Go on with what you have: answer, or call another tool.]"
RETRIED_STATUSES = frozenset((408, 429, 500, 502, 503, 504, 529))
RETRY_WAITS_SECONDS = (
    0.5,
    1.0,
    2.0,
    4.0,
)  # Pauses before new attempts, unless the provider names one.
LONGEST_HINT_SECONDS = 60.0  # If the provider suggests a longer wait, the agent decides what to do.


@dataclass(slots=True)
class UnreadRequestRecorder:
    """Stands in for the conversations, for the reply to a request that is forwarded unread."""

    room: AgentConversations
    tasks: OwnedTasks
    reading: asyncio.Task[tuple[ParsedRequest, Ticket, dict[str, Json]]]
    is_short: bool = False

    async def wait_until_read(self) -> tuple[ParsedRequest, Ticket, dict[str, Json]]:
        """Return what was read and recorded. If the agent hangs up, that goes on."""
        return await asyncio.shield(self.reading)

    async def answer_hidden_calls(self, _: Ticket, *reply: Any) -> list[tuple[str, str, str, bool]]:
        return await self.room.answer_hidden_calls((await self.wait_until_read())[1], *reply)

    async def record_agent_reply(self, _: Ticket, *reply: Any) -> None:
        """Record a reply before the next request. If its own is long, its end does not wait."""

        async def record_once_read() -> None:
            await self.room.record_agent_reply((await self.reading)[1], *reply)

        recording = self.tasks.spawn_task(record_once_read(), name="record a reply")
        if self.is_short:
            await asyncio.shield(recording)


@dataclass(slots=True)
class ReplyRelay:
    """Relays the reply, or the replies that follow each other while the model recalls."""

    sending: RequestForwarder
    conversations: AgentConversations | UnreadRequestRecorder
    request: ParsedRequest
    ticket: Ticket
    body: dict[str, Json]
    tools: bool
    call_filter: HiddenCallFilter
    after_first_bytes: Callable[[], object] = lambda: None  # Called for each piece, and at the end.
    _started: float = field(default_factory=time.monotonic)
    _shown_pieces: list[Piece] = field(default_factory=list)
    _reply_values: list[Json] = field(default_factory=list)
    _hidden_before: bool = False
    _recall_results: list[tuple[str, str, str, bool]] = field(default_factory=list)

    async def relay_until_answered(self, response: httpx.Response) -> None:
        streams = "event-stream" in response.headers.get("content-type", "")
        answer = await self._relay_reply(response, streams=streams)
        for _ in range(MOST_RECALL_REPLIES + MOST_REFUSED_REPLIES):
            if answer is None or not self.call_filter.has_only_hidden_calls:
                return
            try:
                if self.request.body.read_rest and isinstance(
                    self.conversations, UnreadRequestRecorder
                ):
                    self.request, _, self.body = await self.conversations.wait_until_read()
                pieces = await run_in_thread_if_large(
                    len(self.request.body.places.content), self._build_request_after_recall, answer
                )
            except Exception:
                log.exception("a reply could not go on behind a recall")
                refusal = _refusal_to_retry("The reply broke off. Nothing was lost; send it again.")
                break
            self.call_filter.continue_in_next_reply(answer.usage.output)
            continued = await self._relay_continuation(pieces, streams=streams)
            if isinstance(continued, provider_reply_bodies.ProviderRefusal):
                refusal = continued
                break
            answer = continued
        else:
            log.warning("a model did nothing but recall; its agent was told to ask again")
            refusal = _refusal_to_retry(
                "The model did nothing but recall. Nothing was lost; send it again."
            )
        # Send the refusal to the agent: as an event if its stream has begun, or else as a response.
        if streams:
            await self.sending.send(
                b"event: error\ndata: " + refusal.text.replace(b"\n", b" ") + b"\n\n"
            )
        else:
            await self.sending.send_refusal(refusal)

    async def _relay_reply(self, response: httpx.Response, *, streams: bool) -> WireReply | None:
        reading = self._wire_module.ReplyAssembler()
        try:
            if not streams:
                return await self._record_and_relay_whole_reply(response)
            return await self._relay_and_record_stream(response, reading)
        except (httpx.HTTPError, asyncio.CancelledError):
            if not reading.is_done:
                await self._record_usage_of_cut_reply(reading.whole_reply())
            raise
        finally:
            self.after_first_bytes()
            await response.aclose()

    async def _relay_and_record_stream(
        self, response: httpx.Response, reading: Any
    ) -> WireReply | None:
        answer = await self._relay_stream(response, reading)
        if answer is None and not reading.is_done:  # It ended without its last event.
            await self._record_usage_of_cut_reply(reading.whole_reply())
        return answer

    async def _relay_continuation(
        self, pieces: BodyPieces, *, streams: bool
    ) -> WireReply | provider_reply_bodies.ProviderRefusal | None:
        """Relay the reply after a recall. If it breaks off before the agent has seen
        any of it, ask again.
        """
        shown_before = self.call_filter.shown_count
        for wait_seconds in (*RETRY_WAITS_SECONDS, None):
            try:
                response = await self._request_next_reply(pieces)
                if isinstance(response, provider_reply_bodies.ProviderRefusal):
                    return response
                return await self._relay_reply(response, streams=streams)
            except httpx.TransportError as error:
                if wait_seconds is None or self.call_filter.shown_count > shown_before:
                    raise
                log.info(
                    "a reply behind a recall broke off and is asked for again: %s",
                    type(error).__name__,
                )
            self.call_filter.reset_for_retry()
            await asyncio.sleep(wait_seconds)
        raise AssertionError("the last try returns or raises")

    async def _request_next_reply(
        self, pieces: BodyPieces
    ) -> httpx.Response | provider_reply_bodies.ProviderRefusal:
        """Return the reply after a recall, retrying as the provider says, as the agent
        knows nothing of it.
        """
        for wait_seconds in (*RETRY_WAITS_SECONDS, None):
            response = await self.sending.send_to_provider(pieces, reads_reply=True)
            if response.status_code < 400:
                return response
            refusal = await provider_reply_bodies.read_refusal(response)
            hint = retry_after_seconds(response.headers, refusal.parse_refusal_json())
            if (
                wait_seconds is None
                or response.status_code not in RETRIED_STATUSES
                or (hint or 0) > LONGEST_HINT_SECONDS
            ):
                break
            await asyncio.sleep(wait_seconds if hint is None else hint)
        return refusal

    @property
    def _wire_module(self) -> Any:
        return WIRE_MODULES[self.request.body.wire]

    async def _relay_stream(self, response: httpx.Response, reading: Any) -> WireReply | None:
        """Relay a streamed reply. Its end is sent once the reply is on disk. None: it broke off."""
        coding = provider_reply_bodies.coding_of_reply(response)
        sends_raw, chunks = bool(coding) and not self.tools, response.aiter_raw()
        cutter = RawEventSplitter()
        answer: WireReply | None = None
        try:
            async for chunk, decoded in provider_reply_bodies.decode_reply_chunks(chunks, coding):
                await self.sending.start_reply(
                    response, rewritten=self.tools, decoded=self.tools and bool(coding)
                )
                if sends_raw and chunk:
                    await self.sending.send(chunk)
                out: list[bytes] = []
                for raw in cutter.feed_raw_chunk(decoded):
                    event = parse_event_data(raw)
                    if event is not None:
                        reading.add_reply_event(event)
                    shown = (
                        self.call_filter.filter_event(raw, event)
                        if self.tools
                        else b""
                        if coding
                        else raw
                    )
                    if answer is None and reading.is_done and self._is_last_event(raw, event):
                        await self._send_and_clear_pieces(out)
                        answer = await self._parse_and_record(reading.whole_reply())
                    out.append(shown)
                await self._send_and_clear_pieces(out)
        except provider_reply_bodies.UnreadableReply as error:
            await self._relay_unread_rest_or_fail(
                response, error, b"" if coding else bytes(cutter.unfinished), chunks
            )
        else:
            await self.sending.start_reply(
                response, rewritten=self.tools, decoded=self.tools and bool(coding)
            )
            if cutter.unfinished and not sends_raw:
                await self.sending.send(bytes(cutter.unfinished))
        if answer is None and reading.is_done:
            answer = await self._parse_and_record(reading.whole_reply())
        return answer

    async def _record_usage_of_cut_reply(self, value: Json) -> None:
        """Record what a reply that broke off cost, although the agent asks again.

        Most providers report its tokens only at its end: then they are estimated.
        """
        with suppress(ValueError, KeyError, TypeError, AttributeError, HelixError):
            answer = self._parse_answer(value)
            if not answer.usage.input and not answer.message.pieces:
                return  # Nothing of it came.
            model = answer.model or self.request.arrival.model
            cut = Replied(answer.message.pieces, model, Stop.CUT, answer.usage)
            await self.conversations.record_agent_reply(self.ticket, cut, "")

    async def _send_and_clear_pieces(self, pieces: list[bytes]) -> None:
        if whole := b"".join(pieces):
            await self.sending.send(whole)
            self.after_first_bytes()
        pieces.clear()

    async def _relay_unread_rest_or_fail(
        self,
        response: httpx.Response,
        error: provider_reply_bodies.UnreadableReply,
        unfinished: bytes,
        chunks: AsyncIterator[bytes],
    ) -> None:
        """Relay the unread rest as it came, unless the agent already got decompressed bytes."""
        if self.sending.is_begun and self.tools and provider_reply_bodies.coding_of_reply(response):
            failure = {
                "type": "helix_gateway",
                "message": f"The provider's reply was ended: {error}. Send it again.",
            }
            await self.sending.send(encode_event({"type": "error", "error": failure}, "error"))
            return
        await self.sending.start_reply(response)
        await self.sending.send(unfinished + error.chunk)
        async for chunk in chunks:
            await self.sending.send(chunk)

    def _is_last_event(self, raw: bytes, event: Json | None) -> bool:
        kind = text_at(event, "type")
        return (
            b"[DONE]" in raw
            or kind in ("message_stop", "response.completed", "response.incomplete")
            or self.request.body.wire == gemini_gateway.NAME
        )

    async def _record_and_relay_whole_reply(self, response: httpx.Response) -> WireReply | None:
        chunks = response.aiter_raw()
        raw = await provider_reply_bodies.read_raw_body(chunks)
        try:
            value = await provider_reply_bodies.parse_whole_reply(
                raw, provider_reply_bodies.coding_of_reply(response)
            )
            answer = self._parse_answer(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            await self._send_in_one_piece(response, raw)
            async for chunk in chunks:
                await self.sending.send(chunk)
            return None
        if self.tools:
            for call in answer.message.pieces_of_kind(PieceKind.CALL):
                self.call_filter.count_and_check_hidden(call.name)
        self._reply_values.append(value)
        await self._record_reply_before_its_end(answer)
        if not self.call_filter.has_only_hidden_calls:
            if self.call_filter.any_hidden:
                whole = orjson.dumps(self.call_filter.merge_whole_replies(self._reply_values))
                await self._send_in_one_piece(response, whole, rewritten=True)
            else:
                await self._send_in_one_piece(response, raw)
        return answer

    async def _send_in_one_piece(
        self, response: httpx.Response, content: bytes | bytearray, *, rewritten: bool = False
    ) -> None:
        await self.sending.start_reply(response, rewritten=rewritten)
        for at in range(0, len(content), provider_reply_bodies.LARGE_REPLY_BYTES):
            await self.sending.send(
                bytes(content[at : at + provider_reply_bodies.LARGE_REPLY_BYTES])
            )

    def _parse_answer(self, value: Json) -> WireReply:
        if self.request.body.wire == gemini_gateway.NAME:
            calls = sum(
                len(message.pieces_of_kind(PieceKind.CALL))
                for message in self.request.body.messages
            )
            return self._number_gemini_calls(gemini_gateway.parse_reply(value), calls)
        found: WireReply = self._wire_module.parse_reply(value)
        return found

    def _number_gemini_calls(self, answer: WireReply, before: int) -> WireReply:
        """Number Gemini's calls, which have no ids: visible ones as the agent counts,
        hidden ones separately.
        """
        seen, mark = itertools.count(before + 1), secrets.token_hex(6)
        pieces = tuple(
            piece
            if piece.kind is not PieceKind.CALL
            else replace(piece, id=f"hidden-{mark}-{at}")
            if self.tools and piece.name in HIDDEN_TOOLS
            else replace(piece, id=f"call-{next(seen)}")
            for at, piece in enumerate(answer.message.pieces)
        )
        return replace(answer, message=replace(answer.message, pieces=pieces))

    async def _parse_and_record(self, value: Json) -> WireReply | None:
        try:
            answer = self._parse_answer(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            log.exception("a reply could not be read; it went through")
            return None
        await self._record_reply_before_its_end(answer)
        return answer

    async def _record_reply_before_its_end(self, answer: WireReply) -> None:
        """Record a reply before its end reaches the agent, so that the journal has all
        that the agent saw.
        """
        calls = answer.message.pieces_of_kind(PieceKind.CALL) if self.tools else ()
        ours = [piece for piece in calls if piece.name in HIDDEN_TOOLS]
        others = (piece for piece in answer.message.pieces if piece not in ours)
        self._shown_pieces += [
            piece for piece in others if piece.kind in (PieceKind.TEXT, PieceKind.CALL)
        ]
        raw = orjson.dumps(answer.message.units).decode() if ours or self._hidden_before else ""
        seconds = time.monotonic() - self._started
        model = (
            (not self.request.is_side and answer.model)
            or self.request.arrival.model
            or answer.model
        )
        replied = Replied(answer.message.pieces, model, answer.stop, answer.usage, raw, seconds)
        try:
            if ours:
                self._hidden_before = True
                refusal = (
                    RECALL_REFUSED if self.call_filter.replies_before >= MOST_RECALL_REPLIES else ""
                )
                self._recall_results = await self.conversations.answer_hidden_calls(
                    self.ticket, replied, ours, refusal
                )
                if not self.call_filter.has_only_hidden_calls:
                    await self.conversations.record_agent_reply(
                        self.ticket, None, self._key_of_shown_message(answer)
                    )
            else:
                await self.conversations.record_agent_reply(
                    self.ticket, replied, self._key_of_shown_message(answer)
                )
        except Exception:
            log.exception("a reply could not be recorded; it went through")
            if ours:
                self._recall_results = [
                    (call.id, call.name, "[This cannot be recalled now.]", False) for call in ours
                ]

    def _key_of_shown_message(self, answer: WireReply) -> str:
        """Return the key that identifies the message the agent saw in its next request."""
        return Wired(answer.message.speaker, (), tuple(self._shown_pieces)).identity_key

    def _build_request_after_recall(self, answer: WireReply) -> BodyPieces:
        raw = orjson.dumps(answer.message.units).decode()
        read = self.request.body
        is_same = self.body.get(MESSAGE_FIELDS[read.wire]) is read.message_units
        messages: list[Wired] = (
            read.messages if is_same else self._wire_module.parse_messages(self.body)
        )
        entries: list[Entry] = [
            As(at) for at in range(len(messages) - count_leading_instructions(messages))
        ]
        entries.append(Hidden(raw))
        entries.extend(Returned(*result) for result in self._recall_results)
        kept = PreviousBody(marked_request=read.previous.marked_request)
        self.body = build_folded_body(
            self.request.body.wire, self.body, messages, entries, kept=kept
        )
        read.previous.marked_request = kept.marked_request
        return read.encode_changed_body(self.body)


def _refusal_to_retry(sentence: str) -> provider_reply_bodies.ProviderRefusal:
    """Return a refusal of our own after which every agent retries."""
    return provider_reply_bodies.build_own_refusal(529, "overloaded_error", sentence)
