"""Parses request bodies incrementally: only what differs from the session's previous body.

The list of messages is split in the bytes themselves. Bytes that are as before are not parsed
again, and what no fold changes is sent as the bytes that came. Values are parsed one by one
and long texts in slices, since parsing blocks all other threads. Another process would not
help: its messages would have to be created here as well, from as many bytes, and all at once.
"""

import functools
import itertools
import re
import secrets
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson
import zstandard

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.conversation_matching import compute_message_hashes, next_message_hash
from helix_desktop.gateway.folded_request import PreviousBody, count_leading_instructions
from helix_desktop.protocols.gateway_message import (
    SLICE,
    Json,
    Piece,
    ProtocolMessage,
    RequestHead,
    Speaker,
)
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES

# The maximum number of bodies that we remember, and of their bytes.
MOST_HELD_BODIES = 64
MOST_HELD_BYTES = 96 << 20
MOST_BODIES_PER_SESSION = 8  # Besides its main request, a session may send side requests in turn.
STEP = 1 << 18  # So many bytes are searched, compared or compressed at once.
# How many list values are sent together at most, and their bytes.
VALUES_IN_GROUP = 64
MOST_JOINED = 1 << 20
# In bytes. We keep pieces of longer messages, since parsing them again would be slow.
MOST_PARSED_AGAIN = 1 << 14
MOST_LEVELS = 1_000  # Bodies nested more deeply are forwarded unread.
MOST_SLICED_LEVELS = 24  # Bodies nesting very long values more deeply are forwarded unread.
MOST_OPENING_SIGNS = 3_000_000  # Bodies with more lists and objects are forwarded unread.
MOST_SLICE_TRIES = 4_096
LONGEST_ESCAPE = 12  # A surrogate pair, as in \ud83d\ude00.
FIRST_VALUES = 256  # This many values of a long body become messages before it is forwarded.
_BACKSLASH = ord("\\")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LEVELS_AT_ONCE = 6  # One regular expression can match values nested this deeply.


def _pattern_of_nested_value(levels: int) -> bytes:
    inside = b""
    if levels > 1:
        inside = rb"|" + _pattern_of_nested_value(levels - 1)
    return rb'[\[{](?:[^"\[\]{}]++|' + _STRING + inside + rb")*+[\]}]"


_SPACE = re.compile(rb"[ \t\r\n]*+")
_SPACE_AND_COMMAS = re.compile(rb"[ \t\r\n,]*+")
_PLAIN_VALUE = re.compile(rb"[^,\]} \t\r\n]*+")
_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_NESTED_VALUE = re.compile(_pattern_of_nested_value(_LEVELS_AT_ONCE), re.DOTALL)
_UNTIL_SIGN = re.compile(
    rb'(?:[^"\[\]{}]++|' + _STRING + rb"|" + _pattern_of_nested_value(_LEVELS_AT_ONCE) + rb")*+",
    re.DOTALL,
)
_WHOLE_MEMBERS = re.compile(  # Complete members of a list or an object, each followed by a comma.
    rb'(?:(?:[^"\[\]{},]++|'
    + _STRING
    + rb"|"
    + _pattern_of_nested_value(_LEVELS_AT_ONCE)
    + rb")++,)*+",
    re.DOTALL,
)
_SEAMS = (b'},{"', b'}, {"')  # The characters between two objects in a list, as clients write them.
_SEAM_TRIES = 4
FEWEST_BYTES_TO_HALVE = 64  # Among so few bytes, the first that differs is found by their bits.
_ESCAPED_FIRST_NAME = re.compile(rb'\{[ \t\r\n]*"[^"\\]*\\')
_SYSTEM = ("system", "developer")
_SAID: dict[str, Json] = {}
# Gemini's calls have no ids, so its requests must be read as a whole.
UNREAD_WIRES = frozenset(WIRE_MODULES) - {gemini_gateway.NAME}
BodyBytes = bytes | bytearray
BodyPieces = Sequence[bytes | bytearray | memoryview]


class PackedBody:
    """The bytes of a long body while no request is read or sent, a few times smaller."""

    def __init__(self, content: BodyBytes) -> None:
        compressor = zstandard.ZstdCompressor(level=1)
        view = memoryview(content)
        self._parts: list[bytes] = []
        for start in range(0, len(content), STEP):
            compressed = compressor.compress(view[start : start + STEP])
            # Copied, as the compressor's own bytes take as much memory as what they were made of.
            self._parts.append(bytes(memoryview(compressed)))
        self._size = len(content)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, wanted: slice) -> bytes:
        first, end, _ = wanted.indices(self._size)
        first_part = first // STEP
        end_part = (end + STEP - 1) // STEP
        unpacked = b"".join(map(_unpack_part, self._parts[first_part:end_part]))
        unpacked_from = first_part * STEP
        return unpacked[first - unpacked_from : end - unpacked_from]

    def startswith(self, words: memoryview, start: int) -> bool:
        """Whether these bytes are at this position, as `bytes.startswith` says of its own."""
        end = start + len(words)
        return self[start:end].startswith(words)  # `==` would be slow with a view.


@functools.lru_cache(maxsize=2)  # Values are read in order, and one may begin in the part before.
def _unpack_part(part: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(part)


@dataclass(slots=True, eq=False)
class ValueOffsets:
    """Where each value of a body's list is in its bytes. Empty if unknown."""

    content: Any  # `BodyBytes`, or once a long body was sent on, a `PackedBody`.
    begins: "array[int]"
    ends: "array[int]"

    def bytes_between(self, first: int, end: int) -> bytes | memoryview:
        if isinstance(self.content, PackedBody):
            return self.content[first:end]
        return memoryview(self.content)[first:end]

    def pieces_between(self, first: int, end: int) -> Iterator[bytes | memoryview]:
        """Yield the bytes there, in steps if they must be unpacked."""
        if not isinstance(self.content, PackedBody):
            if first < end:
                yield self.bytes_between(first, end)
            return
        for start in range(first, end, STEP):
            yield self.bytes_between(start, min(start + STEP, end))

    def pack_content(self) -> None:
        """Compress a body once it was sent on, as its values are rarely read again."""
        if not isinstance(self.content, PackedBody):
            self.content = PackedBody(self.content)


class ValueInBytes(dict[str, Json]):
    """An object of a body's list, parsed once something in it is used: as Python
    objects, a history of short messages takes several times its bytes. Until then, json
    and orjson see an empty object. `places`: those of the newest body with it. `number`: its
    place in the list.
    """

    __slots__ = ("number", "places")

    def __init__(self, places: ValueOffsets, number: int) -> None:
        self.places = places
        self.number = number

    @property
    def raw(self) -> bytes | memoryview:
        begin = self.places.begins[self.number]
        end = self.places.ends[self.number]
        return self.places.bytes_between(begin, end)

    def parse(self) -> Any:
        """Return a new object with what the bytes say. It is not kept here."""
        content = bytes(self.raw)
        return parse_value_between(content, 0, len(content))


def _parsing_method(name: str) -> Callable[..., Any]:
    """Return the method of this name that first parses what is not parsed yet."""
    method = getattr(dict, name)

    def call(*arguments: Any, **named: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, ValueInBytes) and not dict.__len__(argument):
                dict.update(argument, argument.parse())
        return method(*arguments, **named)

    return call


def _names_of_reading_methods() -> list[str]:
    """Return the methods of an object that need its content."""
    names = ["__eq__", "__ne__", "__repr__"]
    for name in vars(dict):
        is_own_method = callable(getattr(dict, name)) and name not in vars(object)
        if is_own_method and name not in ("fromkeys", "__class_getitem__"):
            names.append(name)
    return names


for _name in _names_of_reading_methods():  # `dict(value)` and `{**value}` use these, too.
    setattr(ValueInBytes, _name, _parsing_method(_name))


class MessageInBytes(ProtocolMessage):
    """A short message. Its pieces are parsed whenever they are used."""

    __slots__ = ("held", "wire")
    wire: str
    # One value, or a tuple of several: a tuple for each message would take as much
    # memory as the message.
    held: Json

    def __init__(self, wire: str, speaker: Speaker, units: tuple[Json, ...]) -> None:
        held: Json = units
        if len(units) == 1:
            held = units[0]
        # The class is frozen, as all messages are.
        object.__setattr__(self, "wire", wire)
        object.__setattr__(self, "speaker", speaker)
        object.__setattr__(self, "held", held)

    @property
    def units(self) -> tuple[Json, ...]:
        if isinstance(self.held, tuple):
            return self.held
        return (self.held,)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        values = [unit.parse() for unit in self.units]
        parsed_message: ProtocolMessage = _parse_messages(self.wire, values)[0]
        return parsed_message.pieces


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A parsed body. `instructions`: its list, with only instructions. `marked`: values that
    may have a cache mark (None: any). `previous`: what the conversation's next request reuses.
    `read_rest`: if only the first values and messages were read, returns the whole body.
    """

    wire: str
    places: ValueOffsets
    value: dict[str, Json]
    messages: list[ProtocolMessage]
    chain: tuple[str, ...]
    head: RequestHead
    marked: frozenset[int] | None
    instructions: Sequence[Json] = ()
    previous: PreviousBody = field(default_factory=PreviousBody)
    read_rest: "Callable[[], ParsedBody | None] | None" = None

    @property
    def message_units(self) -> list[Json]:
        units = self.value.get(MESSAGE_FIELDS[self.wire])
        if not isinstance(units, list):
            return []
        return units

    @property
    def units_that_may_be_marked(self) -> list[Json]:
        """Return the values of messages that may have a cache mark, in their order."""
        units = self.message_units
        if self.marked is None:
            return units
        # If the rest is not read yet, its marks are known already, but not its values.
        return [units[number] for number in sorted(self.marked) if number < len(units)]

    def encode_changed_body(self, value: Mapping[str, Json]) -> BodyPieces:
        """Encode another body with values of this one, as the bytes that came."""
        name = MESSAGE_FIELDS[self.wire]
        units = value.get(name)
        if not isinstance(units, list):
            return [orjson.dumps(value)]
        # A word that occurs nowhere else stands for the list, so that its bytes can be put there.
        placeholder = secrets.token_hex(16)
        body_without_list = dict(value)
        body_without_list[name] = placeholder
        encoded = orjson.dumps(body_without_list)
        before, _, behind = encoded.partition(b'"%s"' % placeholder.encode())

        pieces: list[bytes | memoryview] = [before, b"["]
        pieces.extend(self._encode_list(units))
        pieces.append(b"]")
        pieces.append(behind)
        return pieces

    def _encode_list(self, units: list[Json]) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a body's list of messages."""
        begins = self.places.begins
        ends = self.places.ends
        own_units = self.message_units
        if not ends:
            yield from self._encode_values(units)
        elif units is own_units:
            yield from self.places.pieces_between(begins[0], ends[-1])
        else:
            yield from self._encode_values(units)
            # The messages that were not parsed are forwarded as they came.
            yield from self.places.pieces_between(ends[len(own_units) - 1], ends[-1])

    @staticmethod
    def _encode_values(units: Sequence[Json]) -> Iterator[bytes | memoryview]:
        """Yield the bytes of values, with commas between them, in few parts, because each part
        that is sent costs time.

        Values that follow one another in a body that came (a run) are sent as its bytes, which
        are not copied. Only new values are encoded.
        """
        for number, (run, group) in enumerate(itertools.groupby(enumerate(units), _run_in_body)):
            values = [unit for _, unit in group]
            if number:
                yield b","
            if run is not None:  # These follow one another in a body, so its bytes are sent.
                places = values[0].places
                run_begin = places.begins[values[0].number]
                run_end = places.ends[values[-1].number]
                yield from places.pieces_between(run_begin, run_end)
                continue
            for start in range(0, len(values), VALUES_IN_GROUP):
                group_values = values[start : start + VALUES_IN_GROUP]
                yield from _encode_new_values(group_values, follow_others=start > 0)


def _encode_new_values(values: Sequence[Json], *, follow_others: bool) -> Iterator[bytes]:
    """Yield values that are in no body, in one piece if that is not too large."""
    pieces: list[bytes] = []
    for value in values:
        if pieces or follow_others:
            pieces.append(b",")
        pieces.append(orjson.dumps(value))
    if sum(map(len, pieces)) > MOST_JOINED:
        yield from pieces
    else:
        yield b"".join(pieces)


def _run_in_body(numbered: tuple[int, Json]) -> tuple[int, int] | None:
    """Return a key, equal for values that follow one another in a body's bytes, or None
    for a new value.
    """
    position, value = numbered
    if not isinstance(value, ValueInBytes):
        return None
    # In a run, a value's number in the body grows as its position in the list to send does.
    return id(value.places), value.number - position


class BodyParser:
    """Remembers the last bodies, by session."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], list[ParsedBody]] = OrderedDict()
        self._lock = threading.Lock()  # Several threads may parse large bodies at once.

    def parse_body(
        self, wire: str, content: BodyBytes, session: str, *, may_go_on_unread: bool = False
    ) -> ParsedBody | None:
        """Parse the body of a request, and remember it for the session's next request.

        Return None if it is not of this protocol; raise ValueError for invalid JSON. A request
        mostly repeats the one before it, so first only the difference from the most similar
        body of the session is parsed, and the whole body where there is none or that fails.
        `may_go_on_unread`: only make the first messages of a long body that resembles none
        before; the body returned can then read its rest (`read_rest`).
        """
        earlier_body, common_bytes = self._find_most_similar(wire, content, session)
        parsed: ParsedBody | None = None
        if earlier_body is not None:
            parsed = _parse_from_difference(wire, content, earlier_body, common_bytes)

        if parsed is None and may_go_on_unread and wire in UNREAD_WIRES:
            parsed = self._parse_first_messages(wire, content, session)
        elif parsed is None:
            parsed = _parse_from_beginning(wire, content, most_values=None)

        if parsed is None:
            return None
        if parsed.read_rest is not None:  # Not remembered, since most of it is not parsed yet.
            return parsed
        with self._lock:
            self._remember_body((wire, session), parsed, earlier_body)
        return parsed

    def _parse_first_messages(
        self, wire: str, content: BodyBytes, session: str
    ) -> ParsedBody | None:
        """Parse a short body whole. Of a long one, make the first messages only, and give it
        `read_rest`, which parses it whole.
        """
        parsed = _parse_from_beginning(wire, content, most_values=FIRST_VALUES)
        if parsed is None or len(parsed.places.ends) <= FIRST_VALUES:
            return parsed
        read_rest = functools.partial(self.parse_body, wire, content, session)
        return replace(parsed, read_rest=read_rest)

    def _find_most_similar(
        self, wire: str, content: BodyBytes, session: str
    ) -> tuple[ParsedBody | None, int]:
        """Return the session's earlier body that has the longest beginning in common with this
        one, and how many bytes that are, or None and 0.
        """
        most_similar: ParsedBody | None = None
        most_common_bytes = 0
        for body in tuple(self._held.get((wire, session), ())):
            ends_of_values = body.places.ends
            common_bytes = count_common_bytes(body.places.content, content)
            # Without the first value in common, there is nothing to take over.
            has_common_value = bool(ends_of_values) and common_bytes >= ends_of_values[0]
            if has_common_value and common_bytes > most_common_bytes:
                most_similar = body
                most_common_bytes = common_bytes
        return most_similar, most_common_bytes

    def _remember_body(
        self, key: tuple[str, str], body: ParsedBody, earlier_body: ParsedBody | None
    ) -> None:
        """Remember a body of a session. `key`: its protocol and the session."""
        bodies_of_session = self._held.setdefault(key, [])
        self._held.move_to_end(key)
        if earlier_body is not None and earlier_body in bodies_of_session:
            is_continued = len(earlier_body.messages) <= len(body.messages)
            if is_continued:  # Nothing is in the earlier body that is not in this one.
                bodies_of_session.remove(earlier_body)
        bodies_of_session.append(body)
        del bodies_of_session[:-MOST_BODIES_PER_SESSION]
        self._forget_sessions_used_longest_ago()

    def _forget_sessions_used_longest_ago(self) -> None:
        """Keep to the limits, but keep at least the bodies of one session."""
        bytes_of_sessions: list[int] = []
        for bodies in self._held.values():
            bytes_of_sessions.append(sum(len(body.places.content) for body in bodies))
        while len(bytes_of_sessions) > 1:
            are_few = len(bytes_of_sessions) <= MOST_HELD_BODIES
            if are_few and sum(bytes_of_sessions) <= MOST_HELD_BYTES:
                return
            self._held.popitem(last=False)
            del bytes_of_sessions[0]


class _MessageReader:
    """Makes messages from values while a body is parsed, and keeps no values. Stops
    after about `most_values`; None: it reads all.
    """

    def __init__(self, wire: str, places: ValueOffsets, most_values: int | None = None) -> None:
        self.places = places
        self.values: list[Json] = []
        self.messages: list[ProtocolMessage] = []
        self.chain: list[str] = []
        self.instructions: list[Json] = []
        self._wire = wire
        self._most_values = most_values
        self._used_values = 0  # How many values the messages are made of.
        self._waiting_values: list[Json] = []  # Their message may not be complete yet.

    def reuse_from_previous_body(self, before: ParsedBody, known_values: int) -> None:
        """Take over what was read of an earlier body: its first `known_values` values, which are
        the same bytes in this one, and the messages that consist of them.
        """
        self.values = before.message_units[:known_values]
        for unit in self.values:
            unit.places = self.places
        known_messages = bisect_left(before.messages, known_values, key=_number_of_last_value)
        # More values may belong to the last known message, so it is made again.
        complete_messages = max(0, known_messages - 1)
        self.messages = before.messages[:complete_messages]
        hash_count = len(self.messages) - count_leading_instructions(self.messages)
        self.chain.extend(before.chain[:hash_count])
        self.instructions.extend(before.instructions[:known_values])
        if self.messages:
            self._used_values = _number_of_last_value(self.messages[-1]) + 1
        unused_values = self.values[self._used_values :]
        self._waiting_values = [unit.parse() for unit in unused_values]

    def add_values(self, values: Sequence[dict[str, Json]]) -> None:
        """Add the next values of the list, and make the messages that are complete by them."""
        first_number = len(self.values)
        if self._most_values is not None and first_number >= self._most_values:
            return
        for number, value in enumerate(values, first_number):
            if _is_instruction(value):
                self.instructions.append(value)
            else:
                self.instructions.append(_SAID)
            self.values.append(ValueInBytes(self.places, number))
        self._waiting_values.extend(values)
        if self._wire in UNREAD_WIRES:
            # The next values may belong to the last message, so it is not made yet.
            messages = _parse_messages(self._wire, self._waiting_values)
            self._add_messages(messages[:-1])

    def add_last_message(self) -> None:
        """Make the messages of all values that wait, as no more will come."""
        values = self.values[: self._used_values] + self._waiting_values
        messages = _parse_messages(self._wire, values, self.messages)
        self._add_messages(messages[len(self.messages) :])

    def _add_messages(self, messages: Sequence[ProtocolMessage]) -> None:
        """Add messages that are complete, with their hashes.

        A short one keeps only its bytes and is parsed again when it is used, since Python's
        objects take several times as much memory.
        """
        used_before = self._used_values
        for message in messages:
            end = self._used_values + len(message.units)
            units = tuple(self.values[self._used_values : end])
            self._used_values = end
            size = sum(len(unit.raw) for unit in units)
            if size > MOST_PARSED_AGAIN or self._wire not in UNREAD_WIRES:
                self.messages.append(replace(message, units=units))
            else:
                self.messages.append(MessageInBytes(self._wire, message.speaker, units))

            is_instruction_at_beginning = not self.chain and message.speaker is Speaker.SYSTEM
            if not is_instruction_at_beginning:
                message_hash = next_message_hash(self.chain, self._wire, message.identity_key)
                self.chain.append(message_hash)
        del self._waiting_values[: self._used_values - used_before]


def _number_of_last_value(message: ProtocolMessage) -> int:
    """Return which value of the body's list is the last one of a message."""
    last_value: ValueInBytes = message.units[-1]
    return last_value.number


def _is_instruction(value: dict[str, Json]) -> bool:
    # Codex also sends tools in its messages.
    return value.get("role") in _SYSTEM or "tools" in value


def _parse_messages(
    wire: str, values: Sequence[Json], before: Sequence[ProtocolMessage] = ()
) -> Any:
    return WIRE_MODULES[wire].parse_messages({MESSAGE_FIELDS[wire]: values}, before)


def _parse_from_beginning(
    wire: str, content: BodyBytes, *, most_values: int | None = None
) -> ParsedBody | None:
    """Parse a body of which no earlier one is known. Return None if it is no object.

    `most_values`: about how many values of its list to keep and make messages of; None: all.
    """
    check_bracket_count(content, 0)
    places = ValueOffsets(content, array("q"), array("q"))
    reader = _MessageReader(wire, places, most_values)
    try:
        read_values_of_list(places, MESSAGE_FIELDS[wire].encode(), reader.add_values)
        value = _parse_rest_and_insert_messages(wire, places, reader.values)
    except MessagesNotFound:
        return _parse_as_a_whole(wire, content)
    reader.add_last_message()
    head = _parse_head(wire, value, reader.instructions)
    marked_values = _find_marked_values(places)
    return ParsedBody(
        wire=wire,
        places=places,
        value=value,
        messages=reader.messages,
        chain=tuple(reader.chain),
        head=head,
        marked=marked_values,
        instructions=reader.instructions,
    )


def _parse_as_a_whole(wire: str, content: BodyBytes) -> ParsedBody | None:
    """Parse a body whose messages are not a list of objects. Return None if it is no object."""
    value = parse_whole_body(content)
    if not isinstance(value, dict):
        return None
    protocol = WIRE_MODULES[wire]
    messages = protocol.parse_messages(value)
    head = protocol.parse_head(value)
    instruction_count = count_leading_instructions(messages)
    chain = compute_message_hashes(wire, messages[instruction_count:])
    no_values = ValueOffsets(content, array("q"), array("q"))
    return ParsedBody(
        wire=wire,
        places=no_values,
        value=value,
        messages=messages,
        chain=chain,
        head=head,
        marked=None,
    )


def _parse_head(wire: str, value: Mapping[str, Json], instructions: Sequence[Json]) -> RequestHead:
    """Read model, system prompt and tools, which need no messages but the instructions."""
    head: RequestHead = WIRE_MODULES[wire].parse_head({**value, MESSAGE_FIELDS[wire]: instructions})
    return head


def _parse_from_difference(
    wire: str, content: BodyBytes, before: ParsedBody, common_bytes: int
) -> ParsedBody | None:
    """Parse only what differs from an earlier body of the session, with which this one has its
    first `common_bytes` in common. Return None if that is impossible.
    """
    known_values = bisect_right(before.places.ends, common_bytes)
    known_end = before.places.ends[known_values - 1]
    check_bracket_count(content, known_end)
    known_begins = before.places.begins[:known_values]
    known_ends = before.places.ends[:known_values]
    places = ValueOffsets(content, known_begins, known_ends)
    reader = _MessageReader(wire, places)
    reader.reuse_from_previous_body(before, known_values)
    try:
        _read_values_from(places, known_end, reader.add_values)
        value = _parse_rest_and_insert_messages(wire, places, reader.values)
    except MessagesNotFound:
        return None
    reader.add_last_message()
    if _has_same_head(before, places, reader.instructions, known_values):
        head = before.head
    else:
        head = _parse_head(wire, value, reader.instructions)
    known_marks = before.marked or ()
    marked_values = _find_marked_values(places, known_values, known_marks)
    return ParsedBody(
        wire=wire,
        places=places,
        value=value,
        messages=reader.messages,
        chain=tuple(reader.chain),
        head=head,
        marked=marked_values,
        instructions=reader.instructions,
        previous=before.previous,
    )


def _has_same_head(
    before: ParsedBody, places: ValueOffsets, instructions: Sequence[Json], known_values: int
) -> bool:
    """Whether all beside the list of messages is as before, and no instruction is new or gone.

    Compared as bytes: an agent that sends its tools, or their keys, in another order sends
    other tools.
    """
    if any(before.instructions[known_values:]) or any(instructions[known_values:]):
        return False
    return _bytes_beside_list(places) == _bytes_beside_list(before.places)


def _bytes_beside_list(places: ValueOffsets) -> tuple[BodyBytes, BodyBytes]:
    return places.content[: places.begins[0]], places.content[places.ends[-1] :]


def _find_marked_values(
    places: ValueOffsets, known_values: int = 0, marked_before: Iterable[int] = ()
) -> frozenset[int]:
    """Return the values that may have a cache mark. The first `known_values` are the same as
    in the earlier body, in which those of `marked_before` may have one.
    """
    marked = {number for number in marked_before if number < known_values}
    if known_values < len(places.begins):
        search_from = places.begins[known_values]
        search_to = places.ends[-1]
        for position in _find_all_in_steps(
            places.content, b'"cache_control"', search_from, search_to
        ):
            marked.add(bisect_right(places.begins, position) - 1)
    return frozenset(marked)


def _parse_rest_and_insert_messages(
    protocol: str, places: ValueOffsets, messages: list[Json]
) -> dict[str, Json]:
    """Parse what is before and behind the list, and put the messages where the list was."""
    name = MESSAGE_FIELDS[protocol]
    if not places.begins:
        raise MessagesNotFound
    before_values = places.content[: places.begins[0]]
    behind_values = places.content[places.ends[-1] :]
    if b'"%s"' % name.encode() in behind_values:  # The body may have a second list of this name.
        raise MessagesNotFound
    value = parse_whole_body(before_values + behind_values)
    if not isinstance(value, dict) or value.get(name) != []:
        raise MessagesNotFound
    value[name] = messages
    return value


def parse_whole_body(content: BodyBytes) -> Json:
    """Parse the whole JSON. Raises ValueError if it is invalid."""
    begin = _end_of_repeat(_SPACE, content, 0)
    end = _find_value_end(content, begin)
    if _end_of_repeat(_SPACE, content, end) != len(content):
        raise ValueError("there is something behind the body")
    return parse_value_between(content, begin, end)


def parse_value_between(content: BodyBytes, begin: int, end: int, level: int = 0) -> Json:
    """Parse the value there. A long text, list or object is parsed in slices."""
    if end - begin <= SLICE:
        return orjson.loads(content[begin:end])
    signs_around = content[begin : begin + 1] + content[end - 1 : end]
    if signs_around == b'""':
        return _parse_long_text(content, begin + 1, end - 1)
    if signs_around in (b"[]", b"{}") and level < MOST_SLICED_LEVELS:
        return _parse_members(content, begin, end, level + 1)
    raise ValueError("there is no value that can be read in slices")


def _parse_long_text(content: BodyBytes, begin: int, end: int) -> str:
    """Parse the text between these quotes, slice by slice."""
    text = ""
    slice_begin = begin
    while slice_begin < end:
        slice_end = _next_slice_position(content, slice_begin + SLICE, end)
        # Text that grows by `+=` is not copied each time. Joining 30 MB at once would block
        # all other threads for up to 30 ms.
        text += orjson.loads(b'"%s"' % content[slice_begin:slice_end])
        slice_begin = slice_end
    return text


def _parse_members(content: BodyBytes, begin: int, end: int, level: int) -> Json:
    """Parse a long list or object: as many members at once as fit into a slice, and
    long ones alone.
    """
    opening = content[begin : begin + 1]
    closing = content[end - 1 : end]
    is_object = opening == b"{"
    parsed_object: dict[str, Json] = {}  # Only one of these two is filled.
    parsed_list: list[Json] = []
    closing_position = end - 1
    position = _end_of_repeat(_SPACE, content, begin + 1)
    # Each comma must precede a member, so only an empty list or object ends at once.
    while position < closing_position or parsed_object or parsed_list:
        slice_end = min(position + SLICE, closing_position)
        # The match ends behind the comma of the last member that fits.
        members_end = _match_end_up_to(_WHOLE_MEMBERS, content, position, slice_end) - 1
        if members_end >= position:
            members = orjson.loads(opening + content[position:members_end] + closing)
        else:
            members, members_end = _parse_long_member(content, position, level, is_named=is_object)
        if is_object:
            parsed_object.update(members)
        else:
            parsed_list.extend(members)
        if members_end == closing_position:
            break
        if not members or content[members_end : members_end + 1] != b",":
            raise ValueError("members are not parted by commas")
        position = members_end + 1
    if is_object:
        return parsed_object
    return parsed_list


def _parse_long_member(
    content: BodyBytes, start: int, level: int, *, is_named: bool
) -> tuple[Any, int]:
    """Return a list or object with the one member that begins here, and the position after it."""
    begin = _end_of_repeat(_SPACE, content, start)
    if not is_named:
        value_end = _find_value_end(content, begin)
        value = parse_value_between(content, begin, value_end, level)
        return [value], _end_of_repeat(_SPACE, content, value_end)

    name_end, value_begin = _find_named_value(content, begin)
    name = orjson.loads(content[begin:name_end])
    value_end = _find_value_end(content, value_begin)
    value = parse_value_between(content, value_begin, value_end, level)
    return {name: value}, _end_of_repeat(_SPACE, content, value_end)


def _next_slice_position(content: BodyBytes, start: int, end: int) -> int:
    """Return where a string may be split: not in a character, escape or surrogate pair.
    Or return the end.
    """
    for position in range(start, min(start + MOST_SLICE_TRIES, end)):
        is_behind_escapes = b"\\" not in content[position - LONGEST_ESCAPE : position]
        # In UTF-8, the bytes of a character after its first one begin with the bits 10.
        is_within_character = content[position] & 0xC0 == 0x80
        if is_behind_escapes and not is_within_character:
            return position
        begins_escape = content[position] == _BACKSLASH != content[position - 1]
        is_surrogate = content[position + 1 : position + 3].lower() == b"ud"
        if begins_escape and not is_surrogate:
            return position
    return end


class MessagesNotFound(ValueError):
    """The list of messages is missing or contains something other than objects."""


def count_common_bytes(first: BodyBytes | PackedBody, second: BodyBytes) -> int:
    """Return how many bytes at the beginning are the same, without blocking other threads.

    The bytes are compared step by step up to the first step that differs. In it, the difference is
    found by halving, and in the last few bytes by comparing them as numbers.
    """
    shorter_length = min(len(first), len(second))
    second_view = memoryview(second)
    same_until = 0
    while same_until < shorter_length:
        next_bytes = second_view[same_until : min(same_until + STEP, shorter_length)]
        if not first.startswith(next_bytes, same_until):
            break
        same_until += STEP
    # The first difference is before `stop`. Halving takes far less time than finding it by bits.
    stop = min(same_until + STEP, shorter_length)
    while stop - same_until > FEWEST_BYTES_TO_HALVE:
        middle = (same_until + stop) // 2
        if first.startswith(second_view[same_until:middle], same_until):
            same_until = middle
        else:
            stop = middle
    # As numbers, the few bytes differ from their first different byte on.
    number = int.from_bytes(first[same_until:stop], "big")
    second_number = int.from_bytes(second[same_until:stop], "big")
    differing_bits = (number ^ second_number).bit_length()
    differing_bytes = (differing_bits + 7) // 8
    return stop - differing_bytes


def _find_all_in_steps(content: BodyBytes, words: bytes, start: int, end: int) -> Iterator[int]:
    """Yield where these words are, searching in steps so that other threads can run."""
    search_from = start
    while search_from < end:
        step_end = min(search_from + STEP, end)
        # Words that begin in this step may end behind it.
        position = content.find(words, search_from, step_end + len(words) - 1)
        if position < 0:
            search_from = step_end
        else:
            yield position
            search_from = position + 1


def check_bracket_count(content: BodyBytes, start: int, most: int = MOST_OPENING_SIGNS) -> None:
    """Raise ValueError if so many lists and objects may begin from here on that parsing them
    would delay other requests.
    """
    count = 0
    for step_start in range(start, len(content), STEP):
        step_end = step_start + STEP
        count += content.count(b"[", step_start, step_end)
        count += content.count(b"{", step_start, step_end)
        if count > most:
            raise ValueError(f"There are more than {most:,} lists and objects.")


def read_values_of_list(
    places: ValueOffsets, name: bytes, add: Callable[[list[dict[str, Json]]], object]
) -> None:
    """Read the list of that name: note its objects' places, and pass them to `add`.
    Raises MessagesNotFound.
    """
    content = places.content
    opening_brace = _end_of_repeat(_SPACE, content, 0)
    if content[opening_brace : opening_brace + 1] != b"{":
        raise MessagesNotFound
    position = opening_brace + 1
    while True:
        name_begin = _end_of_repeat(_SPACE_AND_COMMAS, content, position)
        name_end, value_begin = _find_named_value(content, name_begin)
        name_without_quotes = content[name_begin + 1 : name_end - 1]
        if name_without_quotes == name:
            if content[value_begin : value_begin + 1] != b"[":
                raise MessagesNotFound
            _read_values_from(places, value_begin + 1, add)
            return
        position = _find_value_end(content, value_begin)


def _find_named_value(content: BodyBytes, name_begin: int) -> tuple[int, int]:
    """Return the position after the name that begins here, and where its value begins."""
    if content[name_begin : name_begin + 1] != b'"':
        raise MessagesNotFound
    name_end = _find_string_end(content, name_begin + 1)
    colon = _end_of_repeat(_SPACE, content, name_end)
    if content[colon : colon + 1] != b":":
        raise MessagesNotFound
    return name_end, _end_of_repeat(_SPACE, content, colon + 1)


def _read_values_from(
    places: ValueOffsets, start: int, add: Callable[[list[dict[str, Json]]], object]
) -> None:
    """Read the objects of a list, from `start` in it to its end. Note where they are, and pass
    them to `add`.

    Many small ones are parsed at once. Where that fails, they are read one by one for a while.
    """
    content = places.content
    one_by_one_until = start
    position = start
    while True:
        begin = _end_of_repeat(_SPACE_AND_COMMAS, content, position)
        first_sign = content[begin : begin + 1]
        if first_sign == b"]":
            return
        if first_sign != b"{":
            raise MessagesNotFound
        if places.begins and content[position:begin].strip() != b",":
            raise ValueError("the values of the list are not parted by commas")
        group: _ParsedGroup | None = None
        if begin >= one_by_one_until:
            group = _parse_group_of_values(content, begin)
        if group is None:
            # The next values are probably as long as this one, so many at once would fail again.
            one_by_one_until = max(one_by_one_until, begin + SLICE)
            end = _find_value_end(content, begin)
            value = parse_value_between(content, begin, end)
            group = _ParsedGroup(begins=[begin], ends=[end], values=[value])
        places.begins.extend(group.begins)
        places.ends.extend(group.ends)
        add(group.values)
        position = group.ends[-1]


@dataclass(frozen=True, slots=True)
class _ParsedGroup:
    """Objects that follow one another in a list, and where each begins and ends."""

    begins: list[int]
    ends: list[int]
    values: list[dict[str, Json]]


def _parse_group_of_values(content: BodyBytes, start: int) -> _ParsedGroup | None:
    """Parse as many of a list's objects at once as fit into a slice, from `start` on. Return None
    if it is not certain where each of them ends.

    Two objects meet in a seam such as `},{"`. The last seam in the slice ends the group.
    """
    search_until = start + SLICE
    for _ in range(_SEAM_TRIES):
        last_seam = max(content.rfind(seam, start, search_until) for seam in _SEAMS)
        if last_seam < 0:
            return None
        group_end = last_seam + 1  # The seam begins with the brace that closes the last object.
        try:
            values = orjson.loads(b"[" + content[start:group_end] + b"]")
        except ValueError:
            # These bytes only look like a seam, within a text: take the one before.
            search_until = group_end
            continue
        return _find_places_of_group(content, start, group_end, values)
    return None


def _find_places_of_group(
    content: BodyBytes, start: int, end: int, values: list[Any]
) -> _ParsedGroup | None:
    """Return where each of these objects is. None: the seams between them are not certain."""
    first_names = set[str]()
    for value in values:
        if not value or not isinstance(value, dict):
            return None
        first_names.add(next(iter(value)))
    pattern = _pattern_between_objects(frozenset(first_names))
    seams = [match.span() for match in pattern.finditer(content, start, end)]
    if len(seams) + 1 != len(values) or _ESCAPED_FIRST_NAME.search(content, start, end):
        return None

    begins = [start]
    ends: list[int] = []
    for seam_begin, seam_end in seams:
        ends.append(seam_begin + 1)  # The seam begins with the brace that closes the object.
        begins.append(seam_end)
    ends.append(end)
    return _ParsedGroup(begins, ends, values)


@functools.lru_cache(maxsize=64)
def _pattern_between_objects(first_names: frozenset[str]) -> re.Pattern[bytes]:
    """Match between two objects, the second of which begins with such a name. Texts
    escape their quotes.
    """
    names = b"|".join(re.escape(orjson.dumps(name)) for name in sorted(first_names))
    return re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{[ \t\r\n]*(?:%s)[ \t\r\n]*:)" % names)


def _end_of_repeat(pattern: re.Pattern[bytes], content: BodyBytes, start: int) -> int:
    """Return the end of a repeated pattern, in steps, since matching blocks other threads."""
    position = start
    while True:
        end = _match_end_up_to(pattern, content, position, position + STEP)
        if end == position:
            return position
        position = end


def _match_end_up_to(pattern: re.Pattern[bytes], content: BodyBytes, start: int, most: int) -> int:
    """Return the end of a match at this position, looking no further than `most`."""
    match = pattern.match(content, start, most)
    if match is None:
        return start
    return match.end()


def _find_value_end(content: BodyBytes, begin: int) -> int:
    """Return the position after the value that begins here."""
    first_sign = content[begin : begin + 1]
    if first_sign == b'"':
        return _find_string_end(content, begin + 1)
    if first_sign not in (b"[", b"{"):
        return _end_of_repeat(_PLAIN_VALUE, content, begin)
    whole_value = _NESTED_VALUE.match(content, begin, begin + STEP)
    if whole_value is None:
        return _find_end_step_by_step(content, begin + 1)
    return whole_value.end()


def _find_end_step_by_step(content: BodyBytes, start: int) -> int:
    """Return where a list or object ends that is too deep or too long for one search.

    `start`: the position after its first character. Each sign that opens or closes a list or an
    object changes the depth, and at depth 0 it has ended. Signs within texts are skipped.
    """
    position = start
    depth = 1
    while depth:
        position = _end_of_repeat(_UNTIL_SIGN, content, position)
        sign = content[position : position + 1]
        if sign == b'"':
            position = _find_string_end(content, position + 1)
            continue
        if sign in (b"[", b"{"):
            depth += 1
        else:
            depth -= 1
        is_behind_body = not sign
        if is_behind_body or depth > MOST_LEVELS:
            raise MessagesNotFound
        position += 1
    return position


def _find_string_end(content: BodyBytes, start: int) -> int:
    """Return the position after the quote that ends the text from here on."""
    quote = content.find(b'"', start)
    if quote < 0:
        raise MessagesNotFound
    if content[quote - 1] != _BACKSLASH:
        return quote + 1  # Most texts end so, and this is faster than the pattern.
    position = start
    while position < len(content):
        position = _end_of_repeat(_TEXT, content, position)
        if content[position : position + 1] == b'"':
            return position + 1
        position += 2  # Skip the escape that stopped the search.
    raise MessagesNotFound
