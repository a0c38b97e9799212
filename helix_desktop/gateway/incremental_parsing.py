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
from helix_desktop.protocols.gateway_message import SLICE, Json, Piece, RequestHead, Speaker, Wired
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES

# The maximum number of bodies that we remember, and of their bytes.
MOST_HELD_BODIES = 64
MOST_HELD_BYTES = 96 << 20
MOST_BODIES_PER_SESSION = 8  # Besides its main request, a session may send side requests in turn.
STEP = 1 << 18
# How many list values are sent together at most, and their bytes.
VALUES_IN_GROUP = 64
MOST_JOINED = 1 << 20
# In bytes. We keep pieces of longer messages, since parsing them again would be slow.
MOST_PARSED_AGAIN = 1 << 14
MOST_LEVELS = 1_000  # Bodies nested more deeply are forwarded unread.
MOST_SLICED_LEVELS = 24  # Bodies nesting very long values more deeply are forwarded unread.
MOST_OPENING_SIGNS = 3_000_000  # Bodies with more lists and objects are forwarded unread.
MOST_SLICE_TRIES = 4_096
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
        whole = memoryview(content)
        self._parts: list[bytes] = []
        for start in range(0, len(content), STEP):
            compressed = compressor.compress(whole[start : start + STEP])
            # Copied, as the compressor's own bytes take as much memory as what they were made of.
            self._parts.append(bytes(memoryview(compressed)))
        self._size = len(content)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, wanted: slice) -> bytes:
        first, end, _ = wanted.indices(self._size)
        number = first // STEP
        parts = b"".join(map(_unpack_part, self._parts[number : -(-end // STEP)]))
        return parts[first - number * STEP : end - number * STEP]

    def startswith(self, words: memoryview, at: int) -> bool:
        return self[at : at + len(words)].startswith(words)  # `==` would be slow with a view.


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
        step = max(1, end - first)
        if isinstance(self.content, PackedBody):
            step = STEP  # So that not all of it is unpacked at once.
        for start in range(first, end, step):
            yield self.bytes_between(start, min(start + step, end))

    def pack_content(self) -> None:
        """Compress a body once it was sent on, as its values are rarely read again."""
        if not isinstance(self.content, PackedBody):
            self.content = PackedBody(self.content)


class ValueInBytes(dict[str, Json]):
    """An object of a body's list, parsed once something in it is used: as Python
    objects, a history of short messages takes several times its bytes. Until then, json
    and orjson see an empty object. `places`: those of the newest body with it.
    """

    __slots__ = ("at", "places")

    def __init__(self, places: ValueOffsets, at: int) -> None:
        self.places = places
        self.at = at

    @property
    def raw(self) -> bytes | memoryview:
        return self.places.bytes_between(self.places.begins[self.at], self.places.ends[self.at])

    def parse(self) -> Any:  # It is not kept here.
        return parse_value_between(bytes(self.raw), 0, len(self.raw))


def _parsing_method(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def call(*arguments: Any, **named: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, ValueInBytes) and not dict.__len__(argument):
                dict.update(argument, argument.parse())
        return method(*arguments, **named)

    return call


_ASKED = {name for name in vars(dict) if callable(getattr(dict, name)) and name not in vars(object)}
for _name in (*(_ASKED - {"fromkeys", "__class_getitem__"}), "__eq__", "__ne__", "__repr__"):
    setattr(
        ValueInBytes, _name, _parsing_method(_name)
    )  # `dict(value)` and `{**value}` use these, too.


class MessageInBytes(Wired):
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
        whole: Wired = _parse_messages(self.wire, [unit.parse() for unit in self.units])[0]
        return whole.pieces


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A parsed body. `instructions`: its list, with only instructions. `marked`: values that
    may have a cache mark (None: any). `previous`: what the next request of its line reuses.
    `read_rest`: if only the first values and messages were read, returns the whole body.
    """

    wire: str
    places: ValueOffsets
    value: dict[str, Json]
    messages: list[Wired]
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
        # The list is left out by a word that occurs nowhere else, so that its bytes can be put there.
        token = secrets.token_hex(16)
        frame = orjson.dumps({**value, name: token})
        before, _, behind = frame.partition(b'"%s"' % token.encode())
        return [before, b"[", *self._encode_list(units), b"]", behind]

    def _encode_list(self, units: list[Json]) -> Iterator[bytes | memoryview]:
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
        """Yield values in groups, because each part sent costs time. Large values, and
        runs of a body, are not copied.
        """
        for number, (run, group) in enumerate(itertools.groupby(enumerate(units), _run_in_body)):
            values = [unit for _, unit in group]
            if number:
                yield b","
            if run:
                places = values[0].places
                run_begin = places.begins[values[0].at]
                run_end = places.ends[values[-1].at]
                yield from places.pieces_between(run_begin, run_end)
                continue
            for start in range(0, len(values), VALUES_IN_GROUP):
                group_values = values[start : start + VALUES_IN_GROUP]
                yield from _encode_new_values(group_values, follow_others=start > 0)


def _encode_new_values(values: Sequence[Json], *, follow_others: bool) -> Iterator[bytes]:
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
    number, value = numbered
    if not isinstance(value, ValueInBytes):
        return None
    return id(value.places), value.at - number


class BodyParser:
    """Remembers the last bodies, by session."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], list[ParsedBody]] = OrderedDict()
        self._lock = threading.Lock()  # Several threads may parse large bodies at once.

    def parse_body(
        self, wire: str, content: BodyBytes, session: str, *, may_go_on_unread: bool = False
    ) -> ParsedBody | None:
        """Parse a body. Return None if it is not of this protocol; raise ValueError for
        invalid JSON. `may_go_on_unread`: only make the first messages of a long body
        that resembles none before.
        """
        before, same = self._find_most_similar(wire, content, session)
        parsed: ParsedBody | None = None
        if before is not None:
            parsed = _parse_from_difference(wire, content, before, same)
        if parsed is None and may_go_on_unread and wire in UNREAD_WIRES:
            parsed = _parse_from_beginning(wire, content, FIRST_VALUES)
            if parsed is not None and len(parsed.places.ends) > FIRST_VALUES:
                # Not remembered, since most of it is not parsed yet.
                read_rest = functools.partial(self.parse_body, wire, content, session)
                return replace(parsed, read_rest=read_rest)
        elif parsed is None:
            parsed = _parse_from_beginning(wire, content, None)
        if parsed is not None:
            with self._lock:
                self._remember_body((wire, session), parsed, before)
        return parsed

    def _find_most_similar(
        self, wire: str, content: BodyBytes, session: str
    ) -> tuple[ParsedBody | None, int]:
        most_similar: ParsedBody | None = None
        most_same = 0
        for body in tuple(self._held.get((wire, session), ())):
            ends = body.places.ends
            same = count_common_bytes(body.places.content, content)
            # Without the first value in common, there is nothing to take over.
            has_common_value = bool(ends) and same >= ends[0]
            if same > most_same and has_common_value:
                most_similar = body
                most_same = same
        return most_similar, most_same

    def _remember_body(
        self, key: tuple[str, str], body: ParsedBody, before: ParsedBody | None
    ) -> None:
        held = self._held.setdefault(key, [])
        self._held.move_to_end(key)
        if before is not None and before in held and len(before.messages) <= len(body.messages):
            held.remove(before)
        held.append(body)
        del held[:-MOST_BODIES_PER_SESSION]
        sizes = [sum(len(body.places.content) for body in held) for held in self._held.values()]
        while len(sizes) > 1 and (len(sizes) > MOST_HELD_BODIES or sum(sizes) > MOST_HELD_BYTES):
            self._held.popitem(last=False)
            del sizes[0]


class _MessageReader:
    """Makes messages from values while a body is parsed, and keeps no values. Stops
    after about `most`.
    """

    def __init__(self, wire: str, places: ValueOffsets, most: int | None = None) -> None:
        self.places = places
        self.values: list[Json] = []
        self.messages: list[Wired] = []
        self.chain: list[str] = []
        self.instructions: list[Json] = []
        self._wire = wire
        self._most = most
        self._made = 0  # How many values the messages are made of.
        self._open: list[Json] = []  # Values whose message may not be complete yet.

    def reuse_from_previous_body(self, before: ParsedBody, known: int) -> None:
        self.values = before.message_units[:known]
        for unit in self.values:
            unit.places = self.places
        count = bisect_left(before.messages, known, key=lambda message: message.units[-1].at)
        # More values may belong to the last known message, so it is made again.
        self.messages = before.messages[: max(0, count - 1)]
        self.chain += before.chain[: len(self.messages) - count_leading_instructions(self.messages)]
        self.instructions += before.instructions[:known]
        self._made = 0
        if self.messages:
            self._made = self.messages[-1].units[-1].at + 1
        self._open = [unit.parse() for unit in self.values[self._made :]]

    def add_values(self, values: Sequence[dict[str, Json]]) -> None:
        first = len(self.values)
        if self._most is not None and first >= self._most:
            return
        for number, value in enumerate(values, first):
            if _is_instruction(value):
                self.instructions.append(value)
            else:
                self.instructions.append(_SAID)
            self.values.append(ValueInBytes(self.places, number))
        self._open += values
        if self._wire in UNREAD_WIRES:
            self._add_messages(_parse_messages(self._wire, self._open)[:-1])

    def add_last_message(self) -> None:
        values = self.values[: self._made] + self._open
        messages = _parse_messages(self._wire, values, self.messages)
        self._add_messages(messages[len(self.messages) :])

    def _add_messages(self, messages: Sequence[Wired]) -> None:
        begin = self._made
        for message in messages:
            units = tuple(self.values[self._made : self._made + len(message.units)])
            self._made += len(units)
            size = sum(len(unit.raw) for unit in units)
            if size > MOST_PARSED_AGAIN or self._wire not in UNREAD_WIRES:
                self.messages.append(replace(message, units=units))
            else:
                self.messages.append(MessageInBytes(self._wire, message.speaker, units))
            if self.chain or message.speaker is not Speaker.SYSTEM:
                self.chain.append(next_message_hash(self.chain, self._wire, message.identity_key))
        del self._open[: self._made - begin]


def _is_instruction(value: dict[str, Json]) -> bool:
    # Codex also sends tools in its messages.
    return value.get("role") in _SYSTEM or "tools" in value


def _parse_messages(wire: str, values: Sequence[Json], before: Sequence[Wired] = ()) -> Any:
    return WIRE_MODULES[wire].parse_messages({MESSAGE_FIELDS[wire]: values}, before)


def _parse_from_beginning(wire: str, content: BodyBytes, first: int | None) -> ParsedBody | None:
    """`first`: about how many values to keep and make messages of; None: all."""
    check_bracket_count(content, 0)
    places = ValueOffsets(content, array("q"), array("q"))
    reader = _MessageReader(wire, places, first)
    try:
        read_values_of_list(places, MESSAGE_FIELDS[wire].encode(), reader.add_values)
        value = _parse_rest_and_insert_messages(wire, places, reader.values)
    except MessagesNotFound:
        value = parse_whole_body(content)
        if not isinstance(value, dict):
            return None
        messages = WIRE_MODULES[wire].parse_messages(value)
        chain = compute_message_hashes(wire, messages[count_leading_instructions(messages) :])
        places = ValueOffsets(content, array("q"), array("q"))
        return ParsedBody(
            wire, places, value, messages, chain, WIRE_MODULES[wire].parse_head(value), None
        )
    reader.add_last_message()
    head = WIRE_MODULES[wire].parse_head({**value, MESSAGE_FIELDS[wire]: reader.instructions})
    marked = _find_marked_values(places)
    return ParsedBody(
        wire, places, value, reader.messages, tuple(reader.chain), head, marked, reader.instructions
    )


def _parse_from_difference(
    wire: str, content: BodyBytes, before: ParsedBody, same: int
) -> ParsedBody | None:
    """Parse only the values that differ. Return None if that is impossible."""
    content_before = before.places.content
    begins = before.places.begins
    ends = before.places.ends
    known = bisect_right(ends, same)
    check_bracket_count(content, ends[known - 1])
    places = ValueOffsets(content, begins[:known], ends[:known])
    reader = _MessageReader(wire, places)
    reader.reuse_from_previous_body(before, known)
    try:
        _read_values_from(places, ends[known - 1], reader.add_values)
        value = _parse_rest_and_insert_messages(wire, places, reader.values)
    except MessagesNotFound:
        return None
    reader.add_last_message()
    marked = _find_marked_values(places, known, before.marked or ())
    # Compared as bytes: an agent that sends its tools, or their keys, in another order
    # sends other tools.
    beside = content[: places.begins[0]], content[places.ends[-1] :]
    beside_before = content_before[: begins[0]], content_before[ends[-1] :]
    has_other_instructions = any(before.instructions[known:]) or any(reader.instructions[known:])
    head = before.head
    if beside != beside_before or has_other_instructions:
        head = WIRE_MODULES[wire].parse_head({**value, MESSAGE_FIELDS[wire]: reader.instructions})
    return ParsedBody(
        wire,
        places,
        value,
        reader.messages,
        tuple(reader.chain),
        head,
        marked,
        reader.instructions,
        before.previous,
    )


def _find_marked_values(
    places: ValueOffsets, known: int = 0, before: Iterable[int] = ()
) -> frozenset[int]:
    """Return the values that may have a mark. `before`: earlier ones; `known` values
    are the same.
    """
    marked = {number for number in before if number < known}
    if known < len(places.begins):
        search_from = places.begins[known]
        search_to = places.ends[-1]
        for position in _find_all_in_steps(
            places.content, b'"cache_control"', search_from, search_to
        ):
            marked.add(bisect_right(places.begins, position) - 1)
    return frozenset(marked)


def _parse_rest_and_insert_messages(
    protocol: str, places: ValueOffsets, messages: list[Json]
) -> dict[str, Json]:
    name = MESSAGE_FIELDS[protocol]
    if not places.begins:
        raise MessagesNotFound
    before = places.content[: places.begins[0]]
    behind = places.content[places.ends[-1] :]
    if b'"%s"' % name.encode() in behind:  # The body may have a second list with this name.
        raise MessagesNotFound
    value = parse_whole_body(before + behind)
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
    match content[begin : begin + 1] + content[end - 1 : end]:
        case b'""':
            # Text that grows by `+=` in a `for` loop is not copied each time. Joining
            # 30 MB at once would block all other threads for up to 30 ms.
            text = ""
            for first, last in itertools.pairwise(_slice_positions(content, begin + 1, end - 1)):
                text += orjson.loads(b'"%s"' % content[first:last])
            return text
        case b"[]" | b"{}" if level < MOST_SLICED_LEVELS:
            return _parse_members(content, begin, end, level + 1)
    raise ValueError("there is no value that can be read in slices")


def _parse_members(content: BodyBytes, begin: int, end: int, level: int) -> Json:
    """Parse a long list or object: as many members at once as fit into a slice, and
    long ones alone.
    """
    opening = content[begin : begin + 1]
    closing = content[end - 1 : end]
    is_object = opening == b"{"
    parsed_object: dict[str, Json] = {}
    parsed_list: list[Json] = []
    at = _end_of_repeat(_SPACE, content, begin + 1)
    while at < end - 1 or parsed_object or parsed_list:  # Each comma must precede a member.
        last = _match_end_up_to(_WHOLE_MEMBERS, content, at, min(at + SLICE, end - 1)) - 1
        if last >= at:
            members = orjson.loads(opening + content[at:last] + closing)
        else:
            members, last = _parse_long_member(content, at, level, is_named=is_object)
        if is_object:
            parsed_object.update(members)
        else:
            parsed_list.extend(members)
        if last == end - 1:
            break
        if not members or content[last : last + 1] != b",":
            raise ValueError("members are not parted by commas")
        at = last + 1
    if is_object:
        return parsed_object
    return parsed_list


def _parse_long_member(
    content: BodyBytes, at: int, level: int, *, is_named: bool
) -> tuple[Any, int]:
    """Return a list or object with the one member that begins here, and the position after it."""
    begin = _end_of_repeat(_SPACE, content, at)
    name_end = begin
    value_begin = begin
    if is_named:
        name_end, value_begin = _find_named_value(content, begin)
    value_end = _find_value_end(content, value_begin)
    value = parse_value_between(content, value_begin, value_end, level)
    behind = _end_of_repeat(_SPACE, content, value_end)
    if is_named:
        return {orjson.loads(content[begin:name_end]): value}, behind
    return [value], behind


def _slice_positions(content: BodyBytes, at: int, end: int) -> Iterator[int]:
    yield at
    while at < end:
        at = _next_slice_position(content, at + SLICE, end)
        yield at


def _next_slice_position(content: BodyBytes, at: int, end: int) -> int:
    """Return where a string may be split: not in a character, escape or surrogate pair.
    Or return the end.
    """
    for place in range(at, min(at + MOST_SLICE_TRIES, end)):
        # The longest escape, a surrogate pair, has twelve characters.
        is_behind_escapes = b"\\" not in content[place - 12 : place]
        is_within_character = content[place] & 0xC0 == 0x80
        if is_behind_escapes and not is_within_character:
            return place
        begins_escape = content[place] == _BACKSLASH != content[place - 1]
        is_surrogate = content[place + 1 : place + 3].lower() == b"ud"
        if begins_escape and not is_surrogate:
            return place
    return end


class MessagesNotFound(ValueError):
    """The list of messages is missing or contains something other than objects."""


def count_common_bytes(one: BodyBytes | PackedBody, other: BodyBytes) -> int:
    most = min(len(one), len(other))
    whole = memoryview(other)
    at = 0
    while at < most and one.startswith(whole[at : min(at + STEP, most)], at):
        at += STEP
    stop = min(at + STEP, most)
    while stop - at > 64:  # Comparing takes far less time than finding the differing bits.
        middle = (at + stop) // 2
        if one.startswith(whole[at:middle], at):
            at = middle
        else:
            stop = middle
    differing = int.from_bytes(one[at:stop], "big") ^ int.from_bytes(other[at:stop], "big")
    return stop - (differing.bit_length() + 7) // 8


def _find_all_in_steps(content: BodyBytes, words: bytes, at: int, end: int) -> Iterator[int]:
    """Yield where these words are, searching in steps so that other threads can run."""
    while at < end:
        stop = min(at + STEP, end)
        position = content.find(words, at, stop + len(words) - 1)
        if position < 0:
            at = stop
        else:
            yield position
            at = position + 1


def check_bracket_count(content: BodyBytes, at: int, most: int = MOST_OPENING_SIGNS) -> None:
    """Raise ValueError if so many lists and objects may begin here that parsing them
    would delay other requests.
    """
    count = 0
    for first in range(at, len(content), STEP):
        count += content.count(b"[", first, first + STEP) + content.count(b"{", first, first + STEP)
        if count > most:
            raise ValueError(f"There are more than {most:,} lists and objects.")


def read_values_of_list(
    places: ValueOffsets, name: bytes, add: Callable[[list[dict[str, Json]]], object]
) -> None:
    """Read the list of that name: note its objects' places, and pass them to `add`.
    Raises MessagesNotFound.
    """
    content = places.content
    at = _end_of_repeat(_SPACE, content, 0)
    if content[at : at + 1] != b"{":
        raise MessagesNotFound
    at += 1
    while True:
        begin = _end_of_repeat(_SPACE_AND_COMMAS, content, at)
        end, at = _find_named_value(content, begin)
        if content[begin + 1 : end - 1] == name:
            if content[at : at + 1] != b"[":
                raise MessagesNotFound
            _read_values_from(places, at + 1, add)
            return
        at = _find_value_end(content, at)


def _find_named_value(content: BodyBytes, at: int) -> tuple[int, int]:
    """Return the position after the name that begins here, and where its value begins."""
    if content[at : at + 1] != b'"':
        raise MessagesNotFound
    end = _find_string_end(content, at + 1)
    at = _end_of_repeat(_SPACE, content, end)
    if content[at : at + 1] != b":":
        raise MessagesNotFound
    return end, _end_of_repeat(_SPACE, content, at + 1)


def _read_values_from(
    places: ValueOffsets, at: int, add: Callable[[list[dict[str, Json]]], object]
) -> None:
    """Read a list's objects, many small ones at once, or for a while one by one if that fails."""
    content = places.content
    one_by_one_until = at
    while True:
        behind = at
        at = _end_of_repeat(_SPACE_AND_COMMAS, content, behind)
        sign = content[at : at + 1]
        if sign == b"]":
            return
        if sign != b"{":
            raise MessagesNotFound
        if places.begins and content[behind:at].strip() != b",":
            raise ValueError("the values of the list are not parted by commas")
        group: _ParsedGroup | None = None
        if at >= one_by_one_until:
            group = _parse_group_of_values(content, at)
        if group is None:
            # The next values are probably as long as this one, so many at once would fail again.
            one_by_one_until = max(one_by_one_until, at + SLICE)
            end = _find_value_end(content, at)
            group = _ParsedGroup([at], [end], [parse_value_between(content, at, end)])
        places.begins.extend(group.begins)
        places.ends.extend(group.ends)
        add(group.values)
        at = places.ends[-1]


@dataclass(frozen=True, slots=True)
class _ParsedGroup:
    """Objects that follow one another in a list, and where each begins and ends."""

    begins: list[int]
    ends: list[int]
    values: list[dict[str, Json]]


def _parse_group_of_values(content: BodyBytes, at: int) -> _ParsedGroup | None:
    """Parse as many objects as fit into a slice. Return None if not all of their ends are found."""
    stop = at + SLICE
    for _ in range(_SEAM_TRIES):
        stop = max(content.rfind(seam, at, stop) for seam in _SEAMS) + 1
        if not stop:
            return None
        try:
            values = orjson.loads(b"[" + content[at:stop] + b"]")
        except ValueError:
            continue  # These bytes only look like a seam, within a text.
        return _find_places_of_group(content, at, stop, values)
    return None


def _find_places_of_group(
    content: BodyBytes, at: int, stop: int, values: list[Any]
) -> _ParsedGroup | None:
    """Return where each of these objects is. None: the seams between them are not certain."""
    if not all(value and isinstance(value, dict) for value in values):
        return None
    pattern = _pattern_between_objects(frozenset(next(iter(value)) for value in values))
    seams = [match.span() for match in pattern.finditer(content, at, stop)]
    if len(seams) + 1 != len(values) or _ESCAPED_FIRST_NAME.search(content, at, stop):
        return None
    begins = [at]
    ends: list[int] = []
    for seam_begin, seam_end in seams:
        ends.append(seam_begin + 1)  # The seam begins with the brace that closes the object.
        begins.append(seam_end)
    ends.append(stop)
    return _ParsedGroup(begins, ends, values)


@functools.lru_cache(maxsize=64)
def _pattern_between_objects(first_names: frozenset[str]) -> re.Pattern[bytes]:
    """Match between two objects, the second of which begins with such a name. Texts
    escape their quotes.
    """
    names = b"|".join(re.escape(orjson.dumps(name)) for name in sorted(first_names))
    return re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{[ \t\r\n]*(?:%s)[ \t\r\n]*:)" % names)


def _end_of_repeat(pattern: re.Pattern[bytes], content: BodyBytes, at: int) -> int:
    """Return the end of a repeated pattern, in steps, since matching blocks other threads."""
    end = _match_end_up_to(pattern, content, at, at + STEP)
    while end > at:
        at = end
        end = _match_end_up_to(pattern, content, at, at + STEP)
    return at


def _match_end_up_to(pattern: re.Pattern[bytes], content: BodyBytes, at: int, most: int) -> int:
    """Return the end of a match at this position, looking no further than `most`."""
    match = pattern.match(content, at, most)
    if match is None:
        return at
    return match.end()


def _find_value_end(content: BodyBytes, at: int) -> int:
    first = content[at : at + 1]
    if first == b'"':
        return _find_string_end(content, at + 1)
    if first not in (b"[", b"{"):
        return _end_of_repeat(_PLAIN_VALUE, content, at)
    whole_value = _NESTED_VALUE.match(content, at, at + STEP)
    if whole_value is None:
        return _find_end_step_by_step(content, at + 1)
    return whole_value.end()


def _find_end_step_by_step(content: BodyBytes, at: int) -> int:
    """Return where a deep or long list or object ends, starting after its first character."""
    depth = 1
    while depth:
        at = _end_of_repeat(_UNTIL_SIGN, content, at)
        sign = content[at : at + 1]
        if sign == b'"':
            at = _find_string_end(content, at + 1)
            continue
        if sign in (b"[", b"{"):
            depth += 1
        else:
            depth -= 1
        if not sign or depth > MOST_LEVELS:
            raise MessagesNotFound
        at += 1
    return at


def _find_string_end(content: BodyBytes, at: int) -> int:
    """Return the position after the quote that ends the text around `at`. Fast without escapes."""
    quote = content.find(b'"', at)
    if quote >= 0 and content[quote - 1] != _BACKSLASH:
        return quote + 1
    while quote >= 0:
        at = _end_of_repeat(_TEXT, content, at)
        if content[at : at + 1] == b'"':
            return at + 1
        at += 2  # Skip the escape that stopped the search.
        if at >= len(content):
            break
    raise MessagesNotFound
