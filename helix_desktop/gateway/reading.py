"""Bodies of requests, read from where they differ from the one before: a conversation grows at its end, and the work with it.

The list of messages is cut into its values in the bytes themselves. What was there before, byte for byte, is not parsed again,
and what no fold touches goes on as the bytes it came as. Values are parsed one by one and long texts in slices, so that other
threads go on between: the parser holds the interpreter.
"""

from __future__ import annotations

import functools
import re
import secrets
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

import orjson

from helix_desktop.engine.marks import alike
from helix_desktop.gateway.body import FIELDS, WIRES, Kept, leading
from helix_desktop.gateway.tracks import chain_of
from helix_desktop.values import dataclass
from helix_desktop.wire.message import SLICE, Head, Json, Wired, mapping

HELD, HELD_BYTES = 64, 96 << 20  # bodies that are remembered
OF_ONE = 8  # of one session: its agents' and its side requests'
STEP = 1 << 18
GROUP, MOST_WRITTEN = 64, 1 << 20  # values of a list that are written together, and bytes of them that are remembered
_SPACE = b" \t\r\n"
_SIGN = re.compile(rb'["\[\]{}]')
_QUOTE, _BACKSLASH, _OPEN = ord('"'), ord("\\"), b"[{"
_SYSTEM = ("system", "developer")
Bytes = bytes | bytearray
Pieces = Sequence[bytes | bytearray | memoryview]


@dataclass(frozen=True, slots=True)
class Body:
    """A body that was read. `begins` and `ends`: where each value of its list stands in `content`; empty where that is not
    known. `marked`: those that may carry a mark for the provider's cache; None: any. `kept`: what its line of requests keeps
    for the next one.
    """

    wire: str
    content: Bytes
    value: dict[str, Json]
    begins: Sequence[int]
    ends: Sequence[int]
    messages: list[Wired]
    chain: tuple[str, ...]
    head: Head
    marked: frozenset[int] | None
    kept: Kept = field(default_factory=Kept)

    @property
    def units(self) -> list[Json]:
        """The values of its list."""
        found = self.value.get(FIELDS[self.wire])
        return found if isinstance(found, list) else []

    @property
    def rest(self) -> dict[str, Json]:
        """All but the list."""
        return {name: value for name, value in self.value.items() if name != FIELDS[self.wire]}

    def written(self, value: Mapping[str, Json]) -> Pieces:
        """Another body with values of this one, which go on as the bytes they came as."""
        name = FIELDS[self.wire]
        given = value.get(name)
        if not self.ends or not isinstance(given, list):
            return [orjson.dumps(value)]
        token = secrets.token_hex(16)
        before, _, behind = orjson.dumps({**value, name: token}).partition(b'"%s"' % token.encode())
        as_it_came = memoryview(self.content)[self.begins[0] : self.ends[-1]]
        values = (as_it_came,) if given is self.units else self._values(given)
        return [before, b"[", *values, b"]", behind]

    def _values(self, units: Sequence[Json]) -> Iterator[bytes | bytearray | memoryview]:
        """In groups, so that those of the request before are not written again; large values are not held twice."""
        places = _Places(self.units, len(units))
        known, groups = self.kept.groups, list[tuple[Sequence[Json], bytes]]()
        for at in range(0, len(units), GROUP):
            group = units[at : at + GROUP]
            held, written = known[len(groups)] if len(groups) < len(known) else ((), b"")
            pieces: Pieces = (written,)
            if not len(held) == len(group) == alike(held, group):
                pieces = tuple(self._group([(unit, places.of(unit, i)) for i, unit in enumerate(group, at)]))
                small = sum(map(len, pieces)) < MOST_WRITTEN
                held, written = (group, b"".join(pieces)) if small else ((), b"")
            groups.append((held, written))
            if at:
                yield b","
            yield from pieces
        self.kept.groups = groups

    def _group(self, units: Sequence[tuple[Json, int]]) -> Iterator[bytes | memoryview]:
        """Values with their places; those that follow each other here as they did there go on in one piece."""
        whole = memoryview(self.content)
        runs: list[list[int]] = []  # -1: one of its own
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


class _Places:
    """Where values stand in a list. In one of `count` that is much the same they have the same place, counted from the end."""

    def __init__(self, units: Sequence[Json], count: int) -> None:
        self._units, self._more = units, len(units) - count

    def of(self, unit: Json, at: int) -> int:
        """-1: nowhere."""
        likely = at + self._more
        if 0 <= likely < len(self._units) and self._units[likely] is unit:
            return likely
        return self._all.get(id(unit), -1)

    @functools.cached_property
    def _all(self) -> Mapping[int, int]:
        return dict(zip(map(id, self._units), range(len(self._units)), strict=True))


class Readings:
    """Remembers the last bodies, by what their sessions are called."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], list[Body]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()  # large bodies are read in threads

    def read(self, wire: str, content: Bytes, session: str) -> Body | None:
        """The body; None where it is none of this protocol. ValueError where it is no JSON."""
        before, same = self._nearest(wire, content, session)
        found = _from(wire, content, before, same) if before is not None else None
        if found is None:
            found = _anew(wire, content)
        if found is not None:
            with self._lock:
                self._hold((wire, session), found, before)
        return found

    def _nearest(self, wire: str, content: Bytes, session: str) -> tuple[Body | None, int]:
        nearest, most = None, 0
        for body in tuple(self._held.get((wire, session), ())):
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


def _anew(wire: str, content: Bytes) -> Body | None:
    try:
        begins, ends = cut(content, FIELDS[wire].encode())
        units = [parsed(content, a, b) for a, b in zip(begins, ends, strict=True)]
        value = _around(wire, content, begins, ends, units)
    except Uncut:
        begins, ends = [], []
        value = orjson.loads(content)
        if not isinstance(value, dict):
            return None
    protocol: Any = WIRES[wire]
    messages = protocol.messages(value)
    chain = chain_of(wire, messages[leading(messages) :])
    marked = _marked(content, begins, ends) if ends else None
    return Body(wire, content, value, begins, ends, messages, chain, protocol.head(value), marked)


def _from(wire: str, content: Bytes, before: Body, same: int) -> Body | None:
    """The body, from the values on that differ. None where that cannot be told."""
    known = bisect_right(before.ends, same)
    try:
        more_begins, more_ends = values(content, before.ends[known - 1])
        begins, ends = [*before.begins[:known], *more_begins], [*before.ends[:known], *more_ends]
        fresh = [parsed(content, a, b) for a, b in zip(more_begins, more_ends, strict=True)]
        value = _around(wire, content, begins, ends, [*before.units[:known], *fresh])
    except Uncut:
        return None
    protocol: Any = WIRES[wire]
    messages = protocol.messages(value, _whole(before, known))
    first = leading(messages)
    same = alike(messages, before.messages)
    same_line = first == leading(before.messages) <= same
    chain = chain_of(wire, messages[first:], before.chain[: same - first] if same_line else ())
    marked = _marked(content, begins, ends, known, before.marked or ())
    body = Body(wire, content, value, begins, ends, messages, chain, before.head, marked, before.kept)
    if body.rest == before.rest and not any(map(_of_head, (*before.units[known:], *fresh))):
        return body
    return replace(body, head=protocol.head(value))


def _whole(before: Body, known: int) -> list[Wired]:
    """The messages that are made of known values alone, without the last: more values may belong to it."""
    count, fresh = len(before.messages), len(before.units) - known
    while count and fresh > 0:
        count -= 1
        fresh -= len(before.messages[count].units)
    return before.messages[: max(0, count - 1)]


def _marked(
    content: Bytes, begins: Sequence[int], ends: Sequence[int], known: int = 0, before: Iterable[int] = ()
) -> frozenset[int]:
    """Which values may carry a mark; `before`: those there were, of which as many as `known` are the same."""
    places = _found(content, b'"cache_control"', begins[known], ends[-1]) if known < len(begins) else ()
    return frozenset((*(at for at in before if at < known), *(bisect_right(begins, at) - 1 for at in places)))


def _of_head(unit: Json) -> bool:
    return mapping(unit).get("role") in _SYSTEM or "tools" in mapping(unit)


def _around(
    wire: str, content: Bytes, begins: Sequence[int], ends: Sequence[int], units: list[Json]
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


# --- one value -----------------------------------------------------------------------------------------------------


def parsed(content: Bytes, begin: int, end: int) -> Json:
    """The value that stands there. Its long texts are read in slices, and put where they belong in the rest."""
    if end - begin <= SLICE:
        return orjson.loads(content[begin:end])
    token, texts, rest, at = secrets.token_hex(16), dict[str, str](), bytearray(), begin
    while (quote := content.find(b'"', at, end)) >= 0:
        closed = _string_end(content, quote + 1)
        if closed - quote > SLICE:
            name = f"{token}{len(texts)}"
            rest += content[begin:quote] + b'"%s"' % name.encode()
            texts[name] = _text(content, quote + 1, closed - 1)
            begin = closed
        at = closed
    value = orjson.loads(rest + content[begin:end])
    return _with_texts(value, texts) if texts else value


def _text(content: Bytes, begin: int, end: int) -> str:
    """A text that grows by `+=` in a `for` loop stays where it is; joining 30 MB would hold the interpreter for up to 30 ms."""
    text = ""
    for first, last in pairwise(_partings(content, begin, end)):
        text += orjson.loads(b'"%s"' % content[first:last])
    return text


def _partings(content: Bytes, at: int, end: int) -> Iterator[int]:
    yield at
    while at < end:
        at = _parting(content, at + SLICE, end)
        yield at


def _parting(content: Bytes, at: int, end: int) -> int:
    """The next place where a text may be parted: not within a sign, an escape, or a pair of them."""
    while at < end:
        plain = b"\\" not in content[at - 12 : at] and content[at] & 0xC0 != 0x80
        begins = content[at] == _BACKSLASH != content[at - 1] and content[at + 1 : at + 3].lower() != b"ud"
        if plain or begins:
            return at
        at += 1
    return end


def _with_texts(value: Json, texts: Mapping[str, str]) -> Json:
    match value:
        case str():
            return texts.get(value, value)
        case list():
            return [_with_texts(item, texts) for item in value]
        case dict():
            return {texts.get(name, name): _with_texts(item, texts) for name, item in value.items()}
    return value


# --- the bytes -----------------------------------------------------------------------------------------------------


class Uncut(Exception):
    """The list was not found, or holds something else than objects."""


def common(one: Bytes, other: Bytes) -> int:
    """How many bytes at the beginning are the same."""
    most = min(len(one), len(other))
    at, whole = 0, memoryview(other)
    while at < most and one.startswith(whole[at : min(at + STEP, most)], at):
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


def _found(content: Bytes, words: bytes, at: int, end: int) -> Iterator[int]:
    """Where these words stand; looked for in steps, so that other threads go on between."""
    while at < end:
        stop = min(at + STEP, end)
        hit = content.find(words, at, stop + len(words) - 1)
        if hit >= 0:
            yield hit
        at = hit + 1 if hit >= 0 else stop


def cut(content: Bytes, name: bytes) -> tuple[list[int], list[int]]:
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


def values(content: Bytes, at: int) -> tuple[list[int], list[int]]:
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


def _after(content: Bytes, at: int, also: bytes = b"") -> int:
    skipped = _SPACE + also
    while at < len(content) and content[at] in skipped:
        at += 1
    return at


def _value_end(content: Bytes, at: int) -> int:
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


def _string_end(content: Bytes, at: int) -> int:
    while (at := content.find(b'"', at)) >= 0:
        before = at - 1
        while content[before] == _BACKSLASH:
            before -= 1
        at += 1
        if (at - before) % 2 == 0:
            return at
    raise Uncut
