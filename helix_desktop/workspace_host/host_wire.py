"""How a client and a host write and read what they say to each other.

The stream is a row of frames: four bytes with the length (big endian), and a message in MessagePack.
Each side first sends `Greeting` with its version. Facts are the same JSON as in the journal, in their
own versions. Whatever does not fit raises BrokenStream, and nothing that comes from the other side is
trusted to fit: a host on another computer may be hostile, and so may a client.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import zstandard

from helix_desktop.decompression import decompress_body
from helix_desktop.engine import fact_encoding, facts, session_events
from helix_desktop.engine.messages import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.errors import HelixError, JournalCorrupt, WrittenByNewerVersion
from helix_desktop.providers.lent_providers import LentProvider, LentRequest
from helix_desktop.workspace_host.host_interface import (
    CommandResult,
    ConversationEvent,
    FactsAdded,
    HistoryReplaced,
    HostCommand,
    HostListRow,
    LiveState,
    NewestFacts,
    ReplyDelayed,
)

PROTOCOL_VERSION = 8
LENGTH = struct.Struct(">I")
# A message and a model's reply may be long, and are one fact. Other content comes in ranges.
LONGEST_FRAME = 64 << 20
# Many small values take twenty times their bytes as objects. A list of ten thousand conversations is
# shorter than the messages that are counted, as counting takes a while.
MOST_VALUES = 2_000_000
LEAST_COUNTED_BYTES = 8 << 20
# Facts of fewer bytes are sent as they are, and so are those of more: a host that lies must not make
# a window unpack much with little.
LEAST_PACKED_BYTES = 4 << 10
MOST_PACKED_BYTES = 4 << 20


class BrokenStream(HelixError):
    """What came over the line is not what this version of the program says or understands."""


class WireMessage(msgspec.Struct, frozen=True, tag_field="m", tag=True):
    """A message. `number`, where there is one, is the client's, and the host's answers bear it."""


class Greeting(WireMessage, frozen=True):
    version: int
    program: str = ""  # The version of the program, for people.
    workspace: str = ""  # From the host: which workspace it is, and what it is called.
    name: str = ""


class RunCommand(WireMessage, frozen=True):
    number: int
    command_id: str
    command: HostCommand


class FollowConversation(WireMessage, frozen=True):
    number: int
    conversation: str
    after: int = 0
    newest_first: bool = False


class FollowList(WireMessage, frozen=True):
    number: int


class ReadRange(WireMessage, frozen=True):
    number: int
    digest: bytes
    start: int
    length: int


class StopFollowing(WireMessage, frozen=True):
    number: int


class CommandDone(WireMessage, frozen=True):
    number: int
    result: CommandResult


class RequestFailed(WireMessage, frozen=True):
    """A request was refused or failed. `kind` is the class of the error, as both sides know it."""

    number: int
    kind: str
    what: str
    remedy: str = ""


class RangeRead(WireMessage, frozen=True):
    number: int
    content: bytes


class RowsChanged(WireMessage, frozen=True):
    number: int
    rows: tuple[HostListRow, ...]
    settings_changes: int = 0


class WireFact(msgspec.Struct, frozen=True, array_like=True):
    seq: int
    time: float
    text: str


class FactsSent(WireMessage, frozen=True):
    """Facts that follow each other, or `are_newest`: those of NewestFacts."""

    number: int
    conversation: str
    facts: tuple[WireFact, ...]
    are_newest: bool = False


class PackedFactsSent(WireMessage, frozen=True):
    """Facts of a long history. `packed`: a row of `WireFact`, compressed by zstd."""

    number: int
    conversation: str
    packed: bytes
    are_newest: bool = False


class EventSent(WireMessage, frozen=True):
    """`body`: the event of the class `name` in MessagePack."""

    number: int
    name: str
    body: bytes


# --- Requests to a provider, which the client sends with its keys


class LendProviders(WireMessage, frozen=True):
    """`conversation`: the only one for which they are lent, or empty."""

    computer: str
    providers: tuple[LentProvider, ...]
    conversation: str = ""


class OpenStream(WireMessage, frozen=True):
    """The host's. Its numbers are others than the client's."""

    number: int
    request: LentRequest


class CloseStream(WireMessage, frozen=True):
    """The host needs no more of this answer."""

    number: int


class StreamOpened(WireMessage, frozen=True):
    number: int
    status: int
    headers: tuple[tuple[str, str], ...]


class StreamPiece(WireMessage, frozen=True):
    number: int
    content: bytes


class StreamEnded(WireMessage, frozen=True):
    """The answer is complete, or failed with this error."""

    number: int
    kind: str = ""
    what: str = ""
    remedy: str = ""


ClientMessage = (
    Greeting
    | RunCommand
    | FollowConversation
    | FollowList
    | ReadRange
    | StopFollowing
    | LendProviders
    | StreamOpened
    | StreamPiece
    | StreamEnded
)
HostMessage = (
    Greeting
    | CommandDone
    | RequestFailed
    | RangeRead
    | RowsChanged
    | FactsSent
    | PackedFactsSent
    | EventSent
    | OpenStream
    | CloseStream
)
# Whatever a host sends of the facts of a conversation.
FactsMessage = FactsSent | PackedFactsSent
# How many bytes follow the first one of a value in MessagePack: those of the length of a string or of
# bytes, and those of all other values that are longer than one byte.
_BYTES_OF_LENGTH = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_BYTES_OF_VALUE = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip
_encoder = msgspec.msgpack.Encoder()
_client_decoder = msgspec.msgpack.Decoder(ClientMessage)
_host_decoder = msgspec.msgpack.Decoder(HostMessage)
_facts_decoder = msgspec.msgpack.Decoder(tuple[WireFact, ...])


def encode_frame(message: WireMessage) -> bytes:
    content = _encoder.encode(message)
    if len(content) > LONGEST_FRAME:
        raise BrokenStream(
            f"A message of {len(content):,} bytes is too long to be sent.",
            remedy="Nothing was lost. Open the conversation where its workspace is open.",
        )
    return LENGTH.pack(len(content)) + content


class FrameReader:
    """Takes the pieces of a stream as they come, and returns the frames that are whole."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def pop_whole_frames(self, piece: bytes) -> list[bytes]:
        self._unread += piece
        frames: list[bytes] = []
        start = 0
        while len(self._unread) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._unread, start)
            if length > LONGEST_FRAME:
                raise BrokenStream(
                    f"The other side announced a message of {length:,} bytes. The connection was closed."
                )
            end = start + LENGTH.size + length
            if len(self._unread) < end:
                break
            frames.append(bytes(self._unread[start + LENGTH.size : end]))
            start = end
        del self._unread[:start]
        return frames

    def check_ends_whole(self) -> None:
        """Raises BrokenStream if the stream has ended within a frame."""
        if self._unread:
            raise BrokenStream("The connection broke off in the middle of a message.")


def check_number_of_values(content: bytes) -> None:
    """Raises BrokenStream for a MessagePack that holds so many small values that they would take
    gigabytes as objects. It does not have to be well formed.
    """
    if len(content) <= LEAST_COUNTED_BYTES:
        return
    value_count = 0
    position = 0
    while position < len(content):
        value_count += 1
        if value_count > MOST_VALUES:
            raise BrokenStream(
                f"The other side sent a message of more than {MOST_VALUES:,} values. The connection was closed."
            )
        first_byte = content[position]
        position += 1
        if 0xA0 <= first_byte <= 0xBF:  # A short string, with its length in the same byte.
            position += first_byte & 0x1F
        elif first_byte in _BYTES_OF_LENGTH:
            end_of_length = position + _BYTES_OF_LENGTH[first_byte]
            position = end_of_length + int.from_bytes(content[position:end_of_length], "big")
        else:
            position += _BYTES_OF_VALUE.get(first_byte, 0)


def decode_client_message(frame: bytes) -> ClientMessage:
    message: ClientMessage = _decode_or_raise(_client_decoder, frame)
    return message


def decode_host_message(frame: bytes) -> HostMessage:
    message: HostMessage = _decode_or_raise(_host_decoder, frame)
    return message


def _decode_or_raise(decoder: Any, frame: bytes) -> Any:
    check_number_of_values(frame)
    # msgspec raises ValueError for a digest of another length, which our own class refuses.
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise BrokenStream(
            "The other side sent a message that this version does not understand. The connection was closed."
        ) from error


def check_greeting(message: WireMessage) -> Greeting:
    if not isinstance(message, Greeting):
        raise BrokenStream("The other side did not greet first. The connection was closed.")
    if message.version != PROTOCOL_VERSION:
        raise BrokenStream(
            f"The other side speaks version {message.version} of the protocol between processes, "
            f"and this program version {PROTOCOL_VERSION}.",
            remedy="Update Helix Desktop on both sides, and start it again.",
        )
    return message


# --- Events and facts


class _QueuedOnWire(msgspec.Struct, frozen=True):
    """Messages that wait. Each is the JSON of a fact, as parts are of several classes."""

    conversation: str
    messages: tuple[str, ...]
    taken_back: tuple[str, ...]
    steering_count: int
    put_back: tuple[str, ...] = ()


class _LiveStateOnWire(msgspec.Struct, frozen=True):
    running: session_events.ConversationActivity
    why: str
    questions: tuple[session_events.QuestionAsked, ...]
    queued: _QueuedOnWire
    reply_text: str
    is_early: bool
    fold: session_events.FoldProgress | None = None
    # Nothing here from a host of an earlier version, and a client of one passes over it.
    retry: ReplyDelayed | None = None


class _StreamedTextOnWire(msgspec.Struct, frozen=True):
    conversation: str
    text: str


class _StreamedCallOnWire(msgspec.Struct, frozen=True):
    conversation: str
    delta: CallDelta


# Events that are sent as they are, by name.
_PLAIN_EVENTS: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        ReplyDelayed,
        session_events.ToolPrinted,
        session_events.CallStageChanged,
        session_events.ActivityChanged,
        session_events.QuestionAsked,
        session_events.QuestionAnswered,
        session_events.FoldProgress,
        session_events.MeterChanged,
    )
}


def encode_host_event(number: int, event: ConversationEvent) -> bytes:
    """Returns the frame of an event for the follower with this number."""
    if isinstance(event, FactsAdded | NewestFacts):
        message = _build_facts_message(number, event)
        return encode_frame(message)
    name = type(event).__name__
    body: Any = event
    if isinstance(event, HistoryReplaced):
        body = None
    elif isinstance(event, LiveState):
        body = _encode_live_state(event)
    elif isinstance(event, session_events.MessagesQueued):
        body = _encode_queued(event)
    elif isinstance(event, session_events.ReplyStreamed):
        name = type(event.delta).__name__
        body = _encode_delta(event)
    encoded_body = _encoder.encode(body)
    return encode_frame(EventSent(number, name, encoded_body))


def _encode_live_state(live: LiveState) -> _LiveStateOnWire:
    queued = _encode_queued(live.queued)
    return _LiveStateOnWire(
        live.running,
        live.why,
        live.questions,
        queued,
        live.reply_text,
        live.is_early,
        live.fold,
        live.retry,
    )


def _build_facts_message(number: int, event: FactsAdded | NewestFacts) -> FactsMessage:
    """Compresses what is worth it. Of a long history, a slow line is what a user waits for."""
    conversation = event.facts[0].conversation
    are_newest = isinstance(event, NewestFacts)
    wire_facts: list[WireFact] = []
    for recorded in event.facts:
        text = fact_encoding.encode_fact(recorded.fact)
        wire_facts.append(WireFact(recorded.seq, recorded.time, text))
    encoded = _encoder.encode(wire_facts)
    if not LEAST_PACKED_BYTES <= len(encoded) <= MOST_PACKED_BYTES:
        return FactsSent(number, conversation, tuple(wire_facts), are_newest)
    packed = zstandard.ZstdCompressor().compress(encoded)
    return PackedFactsSent(number, conversation, packed, are_newest)


def _encode_queued(event: session_events.MessagesQueued) -> _QueuedOnWire:
    messages = [_encode_parts(*message) for message in event.messages_with_ids()]
    taken_back = [_encode_parts(*message) for message in event.taken_back_with_ids()]
    put_back = [_encode_parts(parts) for parts in event.put_back]
    return _QueuedOnWire(
        event.conversation,
        tuple(messages),
        tuple(taken_back),
        event.steering_count,
        tuple(put_back),
    )


def _encode_parts(parts: tuple[facts.UserPart, ...], command_id: str = "") -> str:
    return fact_encoding.encode_fact(facts.UserSaid(parts, command=command_id))


def _encode_delta(event: session_events.ReplyStreamed) -> Any:
    delta = event.delta
    if isinstance(delta, TextDelta | ReasoningDelta):
        return _StreamedTextOnWire(event.conversation, delta.text)
    if isinstance(delta, CallDelta):
        return _StreamedCallOnWire(event.conversation, delta)
    raise BrokenStream(f"{type(delta).__name__} is not sent to clients.")


def decode_event(message: FactsMessage | EventSent) -> ConversationEvent:
    """Reads an event of a host. Raises BrokenStream for what is none."""
    try:
        if isinstance(message, EventSent):
            check_number_of_values(message.body)
            return _decode_other_event(message)
        if isinstance(message, PackedFactsSent):
            wire_facts = _unpack_facts(message.packed)
        else:
            wire_facts = message.facts
        told = _decode_facts(message.conversation, wire_facts)
        if message.are_newest:
            return NewestFacts(told)
        return FactsAdded(told)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise BrokenStream(
            f"The other side sent an event ({message.__class__.__name__}) that cannot be read. The connection was closed."
        ) from error


def _unpack_facts(packed: bytes) -> tuple[WireFact, ...]:
    unpacked = decompress_body(packed, "zstd", MOST_PACKED_BYTES)
    wire_facts: tuple[WireFact, ...] = _facts_decoder.decode(unpacked)
    return wire_facts


def _decode_facts(conversation: str, wire_facts: Sequence[WireFact]) -> tuple[facts.Recorded, ...]:
    if not wire_facts:
        raise ValueError("an event without facts")
    told: list[facts.Recorded] = []
    for wire_fact in wire_facts:
        fact = _decode_foreign_fact(wire_fact.text)
        fact_encoding.require_valid_time(wire_fact.time)
        told.append(facts.Recorded(conversation, wire_fact.seq, wire_fact.time, fact))
    return tuple(told)


def _decode_foreign_fact(text: str) -> facts.Fact:
    try:
        return fact_encoding.decode_fact(text, is_foreign=True)
    except WrittenByNewerVersion:
        raise
    except JournalCorrupt as error:
        raise ValueError(error.what) from error


def _decode_other_event(message: EventSent) -> ConversationEvent:
    name = message.name
    body = message.body
    plain = _PLAIN_EVENTS.get(name)
    if plain is not None:
        event: ConversationEvent = msgspec.msgpack.decode(body, type=plain)
        _require_valid_delay(event)
        return event
    if name == "HistoryReplaced":
        return HistoryReplaced()
    if name == "LiveState":
        live = msgspec.msgpack.decode(body, type=_LiveStateOnWire)
        queued = _decode_queued(live.queued)
        _require_valid_delay(live.fold)
        _require_valid_delay(live.retry)
        return LiveState(
            live.running,
            live.why,
            live.questions,
            queued,
            live.reply_text,
            live.is_early,
            live.fold,
            live.retry,
        )
    if name == "MessagesQueued":
        return _decode_queued(msgspec.msgpack.decode(body, type=_QueuedOnWire))
    return _decode_streamed(name, body)


def _require_valid_delay(event: object) -> None:
    """Raise ValueError for a pause that cannot be counted down."""
    seconds = 0.0
    if isinstance(event, ReplyDelayed):
        seconds = event.seconds
    elif isinstance(event, session_events.FoldProgress):
        seconds = event.retry_seconds
    if not math.isfinite(seconds):
        raise ValueError("a pause without a length")


def _decode_streamed(name: str, body: bytes) -> session_events.ReplyStreamed:
    if name == "CallDelta":
        call = msgspec.msgpack.decode(body, type=_StreamedCallOnWire)
        return session_events.ReplyStreamed(call.conversation, call.delta)
    text = msgspec.msgpack.decode(body, type=_StreamedTextOnWire)
    if name == "TextDelta":
        return session_events.ReplyStreamed(text.conversation, TextDelta(text.text))
    if name == "ReasoningDelta":
        return session_events.ReplyStreamed(text.conversation, ReasoningDelta(text.text))
    raise ValueError("an unknown event")


def _decode_queued(queued: _QueuedOnWire) -> session_events.MessagesQueued:
    messages = [_decode_waiting_message(text) for text in queued.messages]
    taken_back = [_decode_waiting_message(text) for text in queued.taken_back]
    put_back = [_decode_waiting_message(text) for text in queued.put_back]
    return session_events.MessagesQueued(
        queued.conversation,
        tuple(message.parts for message in messages),
        tuple(message.parts for message in taken_back),
        queued.steering_count,
        tuple(message.parts for message in put_back),
        tuple(message.command for message in messages),
        tuple(message.command for message in taken_back),
    )


def _decode_waiting_message(text: str) -> facts.UserSaid:
    fact = _decode_foreign_fact(text)
    if not isinstance(fact, facts.UserSaid):
        raise ValueError("a waiting message that is none")  # noqa: TRY004 - it is foreign data
    return fact
