"""Bodies of requests, read from where they differ from the one before: a conversation grows at its end, and the work with it.

The list of messages is cut into its values in the bytes themselves. What was there before, byte for byte, is not parsed again,
and what no fold touches goes on as the bytes it came as. Large values are parsed one by one, so that other threads go on between.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from helix_desktop.gateway.body import FIELDS, WIRES, Made, leading
from helix_desktop.gateway.tracks import chain_of
from helix_desktop.wire.message import Head, Json, Wired, mapping

HELD, HELD_BYTES = 64, 96 << 20  # bodies that are remembered
OF_ONE = 8  # of one session: its agents' and its side requests'
STEP = 1 << 16
_SPACE = b" \t\r\n"
_SIGN = re.compile(rb'["\[\]{}]')
_QUOTE, _BACKSLASH, _OPEN = ord('"'), ord("\\"), b"[{"
_SYSTEM = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Body:
    """A body that was read. `begins` and `ends`: where each value of its list stands in `content`; empty where that is not
    known. `made`: what folds made of its messages, for the next request.
    """

    wire: str
    content: bytes
    value: dict[str, Json]
    begins: Sequence[int]
    ends: Sequence[int]
    messages: list[Wired]
    chain: tuple[str, ...]
    head: Head
    made: Made = field(default_factory=dict)

    @property
    def units(self) -> list[Json]:
        """The values of its list."""
        found = self.value.get(FIELDS[self.wire])
        return found if isinstance(found, list) else []

    @property
    def rest(self) -> dict[str, Json]:
        """All but the list."""
        return {name: value for name, value in self.value.items() if name != FIELDS[self.wire]}

    def marked(self) -> frozenset[int] | None:
        """Which values may carry a mark for the provider's cache; None: any."""
        if not self.ends:
            return None
        found, at = set(), self.content.find(b'"cache_control"', self.begins[0])
        while 0 <= at < self.ends[-1]:
            found.add(bisect_right(self.begins, at) - 1)
            at = self.content.find(b'"cache_control"', at + 1)
        return frozenset(found)

    def written(self, value: Mapping[str, Json]) -> bytes:
        """Another body with values of this one, which go on as the bytes they came as."""
        name = FIELDS[self.wire]
        given = value.get(name)
        if not self.ends or not isinstance(given, list):
            return orjson.dumps(value)
        places = {id(unit): at for at, unit in enumerate(self.units)}
        return orjson.dumps({**value, name: self._fragments(given, places)})

    def _fragments(self, units: Sequence[Json], places: Mapping[int, int]) -> list[Json]:
        out: list[Json] = []
        first = last = -1  # a run of values that follow each other here as they did there
        for unit in units:
            at = places.get(id(unit), -1)
            if at >= 0 and at == last + 1 and first >= 0:
                last = at
                continue
            if first >= 0:
                out.append(orjson.Fragment(self.content[self.begins[first] : self.ends[last]]))
            first = last = at
            if at < 0:
                out.append(unit)
        if first >= 0:
            out.append(orjson.Fragment(self.content[self.begins[first] : self.ends[last]]))
        return out


class Readings:
    """Remembers the last bodies, by what their sessions are called."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], list[Body]] = OrderedDict()
        self._size = 0

    def read(self, wire: str, content: bytes, session: str) -> Body | None:
        """The body; None where it is none of this protocol. ValueError where it is no JSON."""
        before, same = self._nearest(wire, content, session)
        found = _from(wire, content, before, same) if before is not None else None
        if found is None:
            found = _anew(wire, content)
        if found is not None:
            self._hold((wire, session), found, before)
        return found

    def _nearest(self, wire: str, content: bytes, session: str) -> tuple[Body | None, int]:
        nearest, most = None, 0
        for body in self._held.get((wire, session), ()):
            same = common(body.content, content)
            if same > most and body.ends and same >= body.ends[0]:
                nearest, most = body, same
        return nearest, most

    def _hold(self, key: tuple[str, str], body: Body, before: Body | None) -> None:
        held = self._held.setdefault(key, [])
        self._held.move_to_end(key)
        if before is not None and before in held and len(before.messages) <= len(body.messages):
            self._drop(held, held.index(before))
        held.append(body)
        self._size += len(body.content)
        if len(held) > OF_ONE:
            self._drop(held, 0)
        while len(self._held) > 1 and (len(self._held) > HELD or self._size > HELD_BYTES):
            _, oldest = self._held.popitem(last=False)
            self._size -= sum(len(each.content) for each in oldest)

    def _drop(self, held: list[Body], at: int) -> None:
        self._size -= len(held.pop(at).content)


def _anew(wire: str, content: bytes) -> Body | None:
    try:
        begins, ends = cut(content, FIELDS[wire].encode())
        units = [orjson.loads(content[a:b]) for a, b in zip(begins, ends, strict=True)]
        value = _around(wire, content, begins, ends, units)
    except Uncut:
        begins, ends = [], []
        value = orjson.loads(content)
        if not isinstance(value, dict):
            return None
    protocol: Any = WIRES[wire]
    messages = protocol.messages(value)
    chain = chain_of(wire, messages[leading(messages) :])
    return Body(wire, content, value, begins, ends, messages, chain, protocol.head(value))


def _from(wire: str, content: bytes, before: Body, same: int) -> Body | None:
    """The body, from the values on that differ. None where that cannot be told."""
    known = bisect_right(before.ends, same)
    try:
        more_begins, more_ends = values(content, before.ends[known - 1])
        begins, ends = [*before.begins[:known], *more_begins], [*before.ends[:known], *more_ends]
        fresh = [orjson.loads(content[a:b]) for a, b in zip(more_begins, more_ends, strict=True)]
        value = _around(wire, content, begins, ends, [*before.units[:known], *fresh])
    except Uncut:
        return None
    protocol: Any = WIRES[wire]
    messages = protocol.messages(value, _whole(before, known))
    first = leading(messages)
    kept = next((at for at, pair in enumerate(zip(messages, before.messages, strict=False)) if pair[0] is not pair[1]), min(len(messages), len(before.messages)))  # fmt: skip
    same_line = first == leading(before.messages) <= kept
    chain = chain_of(wire, messages[first:], before.chain[: kept - first] if same_line else ())
    body = Body(wire, content, value, begins, ends, messages, chain, before.head, before.made)
    if body.rest == before.rest and not any(map(_of_head, (*before.units[known:], *fresh))):
        return body
    return Body(wire, content, value, begins, ends, messages, chain, protocol.head(value), before.made)


def _whole(before: Body, known: int) -> list[Wired]:
    """The messages that are made of known values alone, without the last: more values may belong to it."""
    count = 0
    for at, message in enumerate(before.messages):
        count += len(message.units)
        if count > known:
            return before.messages[: max(0, at - 1)]
    return before.messages[:-1]


def _of_head(unit: Json) -> bool:
    return mapping(unit).get("role") in _SYSTEM or "tools" in mapping(unit)


def _around(
    wire: str, content: bytes, begins: Sequence[int], ends: Sequence[int], units: list[Json]
) -> dict[str, Json]:
    """The body with these values in its list; the rest is parsed."""
    name = FIELDS[wire]
    if not begins:
        raise Uncut
    behind = content[ends[-1] :]
    if b'"%s"' % name.encode() in behind:  # perhaps a second list of that name
        raise Uncut
    value = orjson.loads(content[: begins[0]] + behind)
    if not isinstance(value, dict) or value.get(name) != []:
        raise Uncut
    value[name] = units
    return value


# --- the bytes -----------------------------------------------------------------------------------------------------


class Uncut(Exception):
    """The list was not found, or holds something else than objects."""


def common(one: bytes, other: bytes) -> int:
    """How many bytes at the beginning are the same."""
    most = min(len(one), len(other))
    at = 0
    while at < most and one[at : at + STEP] == other[at : at + STEP]:
        at += STEP
    if at >= most:
        return most
    low, high = at, min(at + STEP, most)
    while low < high:
        middle = (low + high + 1) // 2
        if one[at:middle] == other[at:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def cut(content: bytes, name: bytes) -> tuple[list[int], list[int]]:
    """Where the values of the list of that name begin and end. Uncut where there is none."""
    at = _after(content, 0)
    if content[at : at + 1] != b"{":
        raise Uncut
    at += 1
    while True:
        at = _after(content, at, b",")
        if content[at : at + 1] != b'"':
            raise Uncut
        end = _string_end(content, at + 1)
        key = content[at + 1 : end - 1]
        at = _after(content, end)
        if content[at : at + 1] != b":":
            raise Uncut
        at = _after(content, at + 1)
        if key == name:
            if content[at : at + 1] != b"[":
                raise Uncut
            return values(content, at + 1)
        at = _value_end(content, at)


def values(content: bytes, at: int) -> tuple[list[int], list[int]]:
    """The objects of a list from here on: where each begins and ends."""
    begins: list[int] = []
    ends: list[int] = []
    while True:
        at = _after(content, at)
        sign = content[at : at + 1]
        if sign == b"]":
            return begins, ends
        if sign == b",":
            at = _after(content, at + 1)
        if content[at : at + 1] != b"{":
            raise Uncut
        begins.append(at)
        at = _value_end(content, at)
        ends.append(at)


def _after(content: bytes, at: int, also: bytes = b"") -> int:
    skipped = _SPACE + also
    while at < len(content) and content[at] in skipped:
        at += 1
    return at


def _value_end(content: bytes, at: int) -> int:
    """Where the value that begins here ends."""
    first = content[at : at + 1]
    if first == b'"':
        return _string_end(content, at + 1)
    if first not in (b"[", b"{"):
        while at < len(content) and content[at] not in b",]}" + _SPACE:
            at += 1
        return at
    depth = 0
    while (found := _SIGN.search(content, at)) is not None:
        sign, at = content[found.start()], found.end()
        if sign == _QUOTE:
            at = _string_end(content, at)
        elif sign in _OPEN:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return at
    raise Uncut


def _string_end(content: bytes, at: int) -> int:
    while (at := content.find(b'"', at)) >= 0:
        before = at - 1
        while content[before] == _BACKSLASH:
            before -= 1
        at += 1
        if (at - before) % 2 == 0:
            return at
    raise Uncut
