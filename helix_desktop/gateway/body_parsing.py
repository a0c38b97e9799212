"""Parses request bodies incrementally: only what differs from the session's previous body is parsed.

The list of messages is cut into its values in the bytes themselves. What was there before, byte for byte, is not parsed
again, and what no fold touches goes on as the bytes it came as. Values are parsed one by one and long texts in slices,
so that other threads go on between: the parser holds the interpreter. Slices and no process of its own: its messages would
have to be made in this one as well, from bytes no shorter, and that in one go.
"""

from __future__ import annotations

import functools
import itertools
import re
import secrets
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from helix_desktop.engine.cache_marks import count_shared_blocks
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.folded_body import PreviousBody, count_leading_instructions
from helix_desktop.json_values import object_at
from helix_desktop.protocols.gemini import gemini_wire
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from helix_desktop.protocols.wire_message import SLICE, Json, RequestHead, Wired

MOST_HELD_BODIES, MOST_HELD_BYTES = 64, 96 << 20  # The most bodies that are remembered, and the most bytes in all.
MOST_BODIES_OF_SESSION = 8  # The most bodies remembered for one session, with side requests.
STEP = 1 << 18
# How many values of a list are encoded as one group, and the largest group that is remembered.
VALUES_IN_GROUP, MOST_WRITTEN = 64, 1 << 20
MOST_LEVELS = 1_000  # Bodies that are nested more deeply are forwarded without being read.
MOST_SLICED_LEVELS = 24  # Bodies that nest very long values more deeply are forwarded without being read.
MOST_OPENING_SIGNS = 3_000_000  # Bodies with more lists and objects are forwarded without being read.
MOST_SLICE_TRIES = 4_096
FIRST_VALUES = 256  # Of a long body, this many values are made into messages before it is forwarded.
_BACKSLASH = ord("\\")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LEVELS_AT_ONCE = 6  # A single regular expression can match values nested up to this deep.


def _pattern_of_nested_value(levels: int) -> bytes:
    inside = rb"|" + _pattern_of_nested_value(levels - 1) if levels > 1 else b""
    return rb'[\[{](?:[^"\[\]{}]++|' + _STRING + inside + rb")*+[\]}]"


_SPACE = re.compile(rb"[ \t\r\n]*+")
_SPACE_AND_COMMAS = re.compile(rb"[ \t\r\n,]*+")
_PLAIN_VALUE = re.compile(rb"[^,\]} \t\r\n]*+")
_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_NESTED_VALUE = re.compile(_pattern_of_nested_value(_LEVELS_AT_ONCE), re.DOTALL)
_UNTIL_SIGN = re.compile(
    rb'(?:[^"\[\]{}]++|' + _STRING + rb"|" + _pattern_of_nested_value(_LEVELS_AT_ONCE) + rb")*+", re.DOTALL
)
_WHOLE_MEMBERS = re.compile(  # Complete members of a list or an object, each followed by a comma.
    rb'(?:(?:[^"\[\]{},]++|' + _STRING + rb"|" + _pattern_of_nested_value(_LEVELS_AT_ONCE) + rb")++,)*+", re.DOTALL
)
_SEAMS = (b'},{"', b'}, {"')  # The characters between two objects in a list, as clients write them.
_SEAM_TRIES = 4
_ESCAPED_FIRST_NAME = re.compile(rb'\{[ \t\r\n]*"[^"\\]*\\')
_SYSTEM = ("system", "developer")
# Gemini's calls have no ids, so its requests must be read as a whole.
UNREAD_WIRES = frozenset(WIRE_MODULES) - {gemini_wire.NAME}
BodyBytes = bytes | bytearray
BodyPieces = Sequence[bytes | bytearray | memoryview]


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A body that was read. `begins` and `ends`: where each value of its list stands in `content`; empty where that is not
    known. `marked`: those that may carry a mark for the provider's cache; None: any. `previous`: what its line of requests keeps
    for the next one. `read_rest`: where only the first values and messages are held, returns the body with all of them.
    """

    wire: str
    content: BodyBytes
    value: dict[str, Json]
    begins: array[int]
    ends: array[int]
    messages: list[Wired]
    chain: tuple[str, ...]
    head: RequestHead
    marked: frozenset[int] | None
    previous: PreviousBody = field(default_factory=PreviousBody)
    read_rest: Callable[[], ParsedBody | None] | None = None

    @property
    def message_units(self) -> list[Json]:
        found = self.value.get(MESSAGE_FIELDS[self.wire])
        return found if isinstance(found, list) else []

    def encode_changed_body(self, value: Mapping[str, Json]) -> BodyPieces:
        """Another body with values of this one, which go on as the bytes they came as."""
        name = MESSAGE_FIELDS[self.wire]
        given = value.get(name)
        if not self.ends or not isinstance(given, list):
            return [orjson.dumps(value)]
        token = secrets.token_hex(16)
        before, _, behind = orjson.dumps({**value, name: token}).partition(b'"%s"' % token.encode())
        as_it_came, units = memoryview(self.content), self.message_units
        # From here on, messages are forwarded as they came: all if none was changed, else those that were not read.
        known = self.begins[0] if given is units else self.ends[len(units) - 1]
        values = () if given is units else self._encode_values(given)
        return [before, b"[", *values, as_it_came[known : self.ends[-1]], b"]", behind]

    def _encode_values(self, units: Sequence[Json]) -> Iterator[bytes | bytearray | memoryview]:
        """In groups, so that those of the request before are not written again; large values are not held twice."""
        places = dict(zip(map(id, self.message_units), itertools.count()))
        known, groups = self.previous.encoded_groups, list[tuple[Sequence[Json], bytes]]()
        for at in range(0, len(units), VALUES_IN_GROUP):
            group = units[at : at + VALUES_IN_GROUP]
            held, written = known[len(groups)] if len(groups) < len(known) else ((), b"")
            pieces: BodyPieces = (written,)
            if not len(held) == len(group) == count_shared_blocks(held, group):
                pieces = tuple(self._encode_group([(unit, places.get(id(unit), -1)) for unit in group]))
                small = sum(map(len, pieces)) < MOST_WRITTEN
                held, written = (group, b"".join(pieces)) if small else ((), b"")
            groups.append((held, written))
            if at:
                yield b","
            yield from pieces
        self.previous.encoded_groups = groups

    def _encode_group(self, units: Sequence[tuple[Json, int]]) -> Iterator[bytes | memoryview]:
        """Encodes values, given with their old places. Those that were neighbours before are copied together."""
        whole = memoryview(self.content)
        runs: list[list[int]] = []  # First and last place of neighbouring values; -1 for a new value.
        for _, at in units:
            if at >= 0 and runs and runs[-1][1] == at - 1 and runs[-1][0] >= 0:
                runs[-1][1] = at
            else:
                runs.append([at, at])
        values = (unit for unit, at in units if at < 0)
        for number, (first, last) in enumerate(runs):
            if number:
                yield b","
            yield orjson.dumps(next(values)) if first < 0 else whole[self.begins[first] : self.ends[last]]


class BodyParser:
    """Remembers the last bodies, by what their sessions are called."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], list[ParsedBody]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()  # Several threads may parse large bodies at once.

    def parse_body(
        self, wire: str, content: BodyBytes, session: str, *, may_go_on_unread: bool = False
    ) -> ParsedBody | None:
        """The body; None where it is none of this protocol. ValueError where it is no JSON. `may_go_on_unread`: of a long body that
        resembles none before, only the first messages are made.
        """
        before, same = self._find_most_similar(wire, content, session)
        found = _parse_from_difference(wire, content, before, same) if before is not None else None
        if found is None:
            first = FIRST_VALUES if may_go_on_unread and wire in UNREAD_WIRES else None
            found = _parse_from_beginning(wire, content, first)
            if found is not None and first is not None and len(found.ends) > first:
                return replace(found, read_rest=functools.partial(self.parse_body, wire, content, session))
        if found is not None:
            with self._lock:
                self._remember_body((wire, session), found, before)
        return found

    def _find_most_similar(self, wire: str, content: BodyBytes, session: str) -> tuple[ParsedBody | None, int]:
        nearest, most = None, 0
        for body in tuple(self._held.get((wire, session), ())):
            same = count_common_bytes(body.content, content)
            if same > most and body.ends and same >= body.ends[0]:
                nearest, most = body, same
        return nearest, most

    def _remember_body(self, key: tuple[str, str], body: ParsedBody, before: ParsedBody | None) -> None:
        held = self._held.setdefault(key, [])
        self._held.move_to_end(key)
        if before is not None and before in held and len(before.messages) <= len(body.messages):
            self._discard_body_at(held, held.index(before))
        held.append(body)
        self._size += len(body.content)
        if len(held) > MOST_BODIES_OF_SESSION:
            self._discard_body_at(held, 0)
        while len(self._held) > 1 and (len(self._held) > MOST_HELD_BODIES or self._size > MOST_HELD_BYTES):
            _, oldest = self._held.popitem(last=False)
            self._size -= sum(len(each.content) for each in oldest)

    def _discard_body_at(self, held: list[ParsedBody], at: int) -> None:
        self._size -= len(held.pop(at).content)


def _parse_from_beginning(wire: str, content: BodyBytes, first: int | None) -> ParsedBody | None:
    """`first`: about how many values are held and made messages; None: all."""
    check_opening_signs(content, 0)
    try:
        begins, ends, values = parse_values_of_list(content, MESSAGE_FIELDS[wire].encode(), first)
        value = _parse_around_messages(wire, content, begins, ends, values)
    except MessagesNotFound:
        begins, ends, values = array("q"), array("q"), []
        value = parse_whole_body(content)
        if not isinstance(value, dict):
            return None
    protocol: Any = WIRE_MODULES[wire]
    messages = protocol.parse_messages(value)
    chain = compute_message_hashes(wire, messages[count_leading_instructions(messages) :])
    marked = _find_marked_values(content, begins, ends) if ends else None
    return ParsedBody(wire, content, value, begins, ends, messages, chain, protocol.parse_head(value), marked)


def _parse_from_difference(wire: str, content: BodyBytes, before: ParsedBody, same: int) -> ParsedBody | None:
    """The body, from the values on that differ. None where that cannot be told."""
    known = bisect_right(before.ends, same)
    check_opening_signs(content, before.ends[known - 1])
    try:
        more_begins, more_ends, fresh = _parse_values_from(content, before.ends[known - 1])
        begins, ends = before.begins[:known] + more_begins, before.ends[:known] + more_ends
        value = _parse_around_messages(wire, content, begins, ends, [*before.message_units[:known], *fresh])
    except MessagesNotFound:
        return None
    protocol: Any = WIRE_MODULES[wire]
    messages = protocol.parse_messages(value, _messages_of_known_values(before, known))
    first = count_leading_instructions(messages)
    same = count_shared_blocks(messages, before.messages)
    same_line = first == count_leading_instructions(before.messages) <= same
    chain = compute_message_hashes(wire, messages[first:], before.chain[: same - first] if same_line else ())
    marked = _find_marked_values(content, begins, ends, known, before.marked or ())
    body = ParsedBody(wire, content, value, begins, ends, messages, chain, before.head, marked, before.previous)
    # As bytes: an agent that sends its tools in another order, or with their keys in another order, sends other tools.
    beside = content[: begins[0]], content[ends[-1] :]
    beside_before = before.content[: before.begins[0]], before.content[before.ends[-1] :]
    if beside == beside_before and not any(map(_is_instruction_or_tools, (*before.message_units[known:], *fresh))):
        return body
    return replace(body, head=protocol.parse_head(value))


def _messages_of_known_values(before: ParsedBody, known: int) -> list[Wired]:
    """The messages that are made of known values alone, without the last: more values may belong to it."""
    count, fresh = len(before.messages), len(before.message_units) - known
    while count and fresh > 0:
        count -= 1
        fresh -= len(before.messages[count].units)
    return before.messages[: max(0, count - 1)]


def _find_marked_values(
    content: BodyBytes, begins: Sequence[int], ends: Sequence[int], known: int = 0, before: Iterable[int] = ()
) -> frozenset[int]:
    """Which values may carry a mark; `before`: those there were, of which as many as `known` are the same."""
    places = _find_all_in_steps(content, b'"cache_control"', begins[known], ends[-1]) if known < len(begins) else ()
    return frozenset((*(at for at in before if at < known), *(bisect_right(begins, at) - 1 for at in places)))


def _is_instruction_or_tools(unit: Json) -> bool:
    return object_at(unit).get("role") in _SYSTEM or "tools" in object_at(unit)


def _parse_around_messages(
    wire: str, content: BodyBytes, begins: Sequence[int], ends: Sequence[int], units: list[Json]
) -> dict[str, Json]:
    name = MESSAGE_FIELDS[wire]
    if not begins:
        raise MessagesNotFound
    behind = content[ends[-1] :]
    if b'"%s"' % name.encode() in behind:  # The body may have a second list with this name.
        raise MessagesNotFound
    value = parse_whole_body(content[: begins[0]] + behind)
    if not isinstance(value, dict) or value.get(name) != []:
        raise MessagesNotFound
    value[name] = units
    return value


def parse_whole_body(content: BodyBytes) -> Json:
    """The JSON of all of it. ValueError where it is none."""
    begin = _end_of_repeat(_SPACE, content, 0)
    end = _find_value_end(content, begin)
    if _end_of_repeat(_SPACE, content, end) != len(content):
        raise ValueError("there is something behind the body")
    return parse_value_between(content, begin, end)


def parse_value_between(content: BodyBytes, begin: int, end: int, level: int = 0) -> Json:
    """The value that stands there: a long text, list or object is read in slices."""
    if end - begin <= SLICE:
        return orjson.loads(content[begin:end])
    match content[begin : begin + 1] + content[end - 1 : end]:
        case b'""':
            # Text that grows by `+=` in a `for` loop is not copied each time.
            # Joining 30 MB at once would block all other threads for up to 30 ms.
            text = ""
            for first, last in itertools.pairwise(_slice_positions(content, begin + 1, end - 1)):
                text += orjson.loads(b'"%s"' % content[first:last])
            return text
        case b"[]" | b"{}" if level < MOST_SLICED_LEVELS:
            return _parse_members(content, begin, end, level + 1)
    raise ValueError("there is no value that can be read in slices")


def _parse_members(content: BodyBytes, begin: int, end: int, level: int) -> Json:
    """A long list or object: as many members at once as a slice holds, and long ones alone."""
    opening, closing = content[begin : begin + 1], content[end - 1 : end]
    found: Any = {} if opening == b"{" else []
    at = _end_of_repeat(_SPACE, content, begin + 1)
    while at < end - 1 or found:  # A member must follow each comma.
        last = _match_end_up_to(_WHOLE_MEMBERS, content, at, min(at + SLICE, end - 1)) - 1
        if last >= at:
            members = orjson.loads(opening + content[at:last] + closing)
        else:
            members, last = _parse_long_member(content, at, level, is_named=opening == b"{")
        (found.update if opening == b"{" else found.extend)(members)
        if last == end - 1:
            break
        if not members or content[last : last + 1] != b",":
            raise ValueError("members are not parted by commas")
        at = last + 1
    return found


def _parse_long_member(content: BodyBytes, at: int, level: int, *, is_named: bool) -> tuple[Json, int]:
    """A list or an object of the one member that begins here, and the place behind it."""
    begin = _end_of_repeat(_SPACE, content, at)
    named, at = _find_named_value(content, begin) if is_named else (0, begin)
    last = _find_value_end(content, at)
    value = parse_value_between(content, at, last, level)
    return {orjson.loads(content[begin:named]): value} if is_named else [value], _end_of_repeat(_SPACE, content, last)


def _slice_positions(content: BodyBytes, at: int, end: int) -> Iterator[int]:
    yield at
    while at < end:
        at = _next_slice_position(content, at + SLICE, end)
        yield at


def _next_slice_position(content: BodyBytes, at: int, end: int) -> int:
    """Where a string may be cut: in no character, escape or surrogate pair. Else the end."""
    for place in range(at, min(at + MOST_SLICE_TRIES, end)):
        plain = b"\\" not in content[place - 12 : place] and content[place] & 0xC0 != 0x80
        begins = content[place] == _BACKSLASH != content[place - 1] and content[place + 1 : place + 3].lower() != b"ud"
        if plain or begins:
            return place
    return end


class MessagesNotFound(ValueError):
    """Raised when the list of messages was not found or holds something else than objects."""


def count_common_bytes(one: BodyBytes, other: BodyBytes) -> int:
    most = min(len(one), len(other))
    at, whole = 0, memoryview(other)
    while at < most and one.startswith(whole[at : min(at + STEP, most)], at):
        at += STEP
    stop = min(at + STEP, most)
    differing = int.from_bytes(one[at:stop], "big") ^ int.from_bytes(other[at:stop], "big")
    return stop - (differing.bit_length() + 7) // 8


def _find_all_in_steps(content: BodyBytes, words: bytes, at: int, end: int) -> Iterator[int]:
    """Where these words stand; looked for in steps, so that other threads go on between."""
    while at < end:
        stop = min(at + STEP, end)
        hit = content.find(words, at, stop + len(words) - 1)
        if hit >= 0:
            yield hit
        at = hit + 1 if hit >= 0 else stop


def check_opening_signs(content: BodyBytes, at: int, most: int = MOST_OPENING_SIGNS) -> None:
    """ValueError where so many lists and objects may begin from here on that making them would hold up other requests."""
    count = 0
    for first in range(at, len(content), STEP):
        count += content.count(b"[", first, first + STEP) + content.count(b"{", first, first + STEP)
        if count > most:
            raise ValueError(f"There are more than {most:,} lists and objects.")


def parse_values_of_list(
    content: BodyBytes, name: bytes, first: int | None = None
) -> tuple[array[int], array[int], list[Json]]:
    """The objects of the list of that name: where each begins and ends, and what it is, of which
    only so many are held. MessagesNotFound where there is none.
    """
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
            return _parse_values_from(content, at + 1, first)
        at = _find_value_end(content, at)


def _find_named_value(content: BodyBytes, at: int) -> tuple[int, int]:
    """Behind the name that begins here, and where its value begins."""
    if content[at : at + 1] != b'"':
        raise MessagesNotFound
    end = _find_string_end(content, at + 1)
    at = _end_of_repeat(_SPACE, content, end)
    if content[at : at + 1] != b":":
        raise MessagesNotFound
    return end, _end_of_repeat(_SPACE, content, at + 1)


def _parse_values_from(
    content: BodyBytes, at: int, first: int | None = None
) -> tuple[array[int], array[int], list[Json]]:
    """The objects of a list from here on. Small ones are read many at once; where that fails, one by one for a while."""
    begins, ends = array("q"), array("q")
    values: list[Json] = []
    one_by_one_until = at
    while True:
        behind, at = at, _end_of_repeat(_SPACE_AND_COMMAS, content, at)
        sign = content[at : at + 1]
        if sign == b"]":
            return begins, ends, values
        if sign != b"{":
            raise MessagesNotFound
        if begins and content[behind:at].strip() != b",":
            raise ValueError("the values of the list are not parted by commas")
        group = _parse_group_of_values(content, at) if at >= one_by_one_until else None
        if group is None:
            one_by_one_until = max(one_by_one_until, at + SLICE)
            end = _find_value_end(content, at)
            group = [at], [end], [parse_value_between(content, at, end)]
        begins.extend(group[0])
        ends.extend(group[1])
        if first is None or len(values) < first:
            values += group[2]
        at = ends[-1]


def _parse_group_of_values(content: BodyBytes, at: int) -> tuple[list[int], list[int], list[Json]] | None:
    """As many objects of a list as a slice holds: what parses up to the end of one is whole. None
    where it is not seen where each of them ends, because as many ends are not found.
    """
    stop = at + SLICE
    for _ in range(_SEAM_TRIES):
        stop = max(content.rfind(seam, at, stop) for seam in _SEAMS) + 1
        if not stop:
            return None
        try:
            values = orjson.loads(b"[" + content[at:stop] + b"]")
        except ValueError:
            continue
        if not all(value and isinstance(value, dict) for value in values):
            return None
        pattern = _pattern_of_seams(frozenset(next(iter(value)) for value in values))
        seams = [found.span() for found in pattern.finditer(content, at, stop)]
        if len(seams) + 1 != len(values) or _ESCAPED_FIRST_NAME.search(content, at, stop):
            return None
        return [at, *(end for _, end in seams)], [*(begin + 1 for begin, _ in seams), stop], values
    return None


@functools.lru_cache(maxsize=64)
def _pattern_of_seams(first_names: frozenset[str]) -> re.Pattern[bytes]:
    """Where one object ends and another with one of these names begins: never in a text, whose quotes have backslashes."""
    names = b"|".join(re.escape(orjson.dumps(name)) for name in sorted(first_names))
    return re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{[ \t\r\n]*(?:%s)[ \t\r\n]*:)" % names)


def _end_of_repeat(pattern: re.Pattern[bytes], content: BodyBytes, at: int) -> int:
    """Where what the pattern repeats ends, looked for in steps: a pattern holds the interpreter."""
    while (end := _match_end_up_to(pattern, content, at, at + STEP)) > at:
        at = end
    return at


def _match_end_up_to(pattern: re.Pattern[bytes], content: BodyBytes, at: int, most: int) -> int:
    """Where what the pattern matches from here on ends; nothing behind `most` is looked at."""
    found = pattern.match(content, at, most)
    return at if found is None else found.end()


def _find_value_end(content: BodyBytes, at: int) -> int:
    first = content[at : at + 1]
    if first == b'"':
        return _find_string_end(content, at + 1)
    if first not in (b"[", b"{"):
        return _end_of_repeat(_PLAIN_VALUE, content, at)
    whole = _NESTED_VALUE.match(content, at, at + STEP)
    return whole.end() if whole is not None else _find_end_step_by_step(content, at + 1)


def _find_end_step_by_step(content: BodyBytes, at: int) -> int:
    """Where a list or an object ends that is deep or long, from behind its first sign on."""
    depth = 1
    while depth:
        at = _end_of_repeat(_UNTIL_SIGN, content, at)
        sign = content[at : at + 1]
        if sign == b'"':
            at = _find_string_end(content, at + 1)
            continue
        depth += 1 if sign in (b"[", b"{") else -1
        if not sign or depth > MOST_LEVELS:
            raise MessagesNotFound
        at += 1
    return at


def _find_string_end(content: BodyBytes, at: int) -> int:
    """Behind the quote that ends the text in which this place is. One without escapes is found at once."""
    quote = content.find(b'"', at)
    if quote >= 0 and content[quote - 1] != _BACKSLASH:
        return quote + 1
    while quote >= 0:
        at = _end_of_repeat(_TEXT, content, at)
        if content[at : at + 1] == b'"':
            return at + 1
        at += 2  # Skips the escape sequence at which the search stopped.
        if at >= len(content):
            break
    raise MessagesNotFound
