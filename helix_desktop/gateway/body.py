"""The request that goes to the provider: the client's own, with the view's entries in place of its messages."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from types import ModuleType
from typing import Any

from helix_desktop.engine.marks import Sent, alike, common
from helix_desktop.gateway.shown import As, Changed, Entry, Hidden, Part, Returned, Says, units_of
from helix_desktop.values import dataclass
from helix_desktop.wire import anthropic, gemini, openai_chat, openai_responses
from helix_desktop.wire.message import Edit, Json, Kind, Speaker, Wired

NO_RESULT = "[There is no result of this call.]"
WIRES: Mapping[str, ModuleType] = {wire.NAME: wire for wire in (anthropic, openai_chat, openai_responses, gemini)}
FIELDS = {
    anthropic.NAME: "messages",
    openai_chat.NAME: "messages",
    openai_responses.NAME: "input",
    gemini.NAME: "contents",
}
Units = list[tuple[Json, bool]]
_OWN = (As, Changed)  # the client's messages


@dataclass(frozen=True, slots=True)
class Made:
    """What a request was made of. Of each entry, and those before it: how many of the units (`ends`), how many of the messages they
    need (`needs`), and how many marks stand inside of their blocks (`inside`). Other marks of the client's are left out.
    """

    messages: Sequence[Wired]
    entries: Sequence[Entry]
    units: Units
    ends: list[int]
    needs: list[int]
    inside: list[int]


@dataclass(slots=True)
class Kept:
    """Of the request before in the same line, so that only what is new is made: how it was made, groups of its values with the
    bytes they were written as, what was sent of it, without marks, for the marks of the next one, and what got marks, with and
    without them.
    """

    made: Made | None = None
    sent: Sent = Sent()
    marked: Sequence[tuple[Json, Json]] = ()
    groups: Sequence[tuple[Sequence[Json], bytes]] = ()


def leading(messages: Sequence[Wired]) -> int:
    """How many messages at the beginning are instructions: they belong to the head of the request."""
    count = 0
    while count < len(messages) and messages[count].speaker is Speaker.SYSTEM:
        count += 1
    return count


def unchanged(entries: Sequence[Entry], count: int) -> bool:
    """Whether every message goes on as it came."""
    only = len(entries) == count and set(map(type, entries)) <= {As}
    return only and all(map(operator.eq, map(operator.attrgetter("at"), entries), range(count)))


def folded(
    wire: str,
    body: Mapping[str, Json],
    messages: Sequence[Wired],
    entries: Sequence[Entry],
    marked: Collection[int] | None = None,
    kept: Kept | None = None,
) -> dict[str, Json]:
    """The request with the entries in place of its messages. `marked`: those of the client's that may carry a mark of the
    provider's cache (None: any).
    """
    protocol: Any = WIRES[wire]
    first = leading(messages)
    own = _marked_of(messages, first, marked) if wire == anthropic.NAME else ()
    made = _made(protocol, messages, first, entries, own, kept.made if kept else None)
    if kept:
        kept.made = made
    shown = protocol.joined(made.units)
    if own and (usual := _usual([messages[at] for at in own])) is not None:
        rest = {key: value for key, value in body.items() if key != "messages"}
        shown[:first] = map(anthropic.unmarked, shown[:first])
        _mark(rest, shown, usual, sum(made.inside[-1:]), kept or Kept())
    return dict(protocol.with_messages(body, shown))


def _marked_of(messages: Sequence[Wired], first: int, marked: Collection[int] | None) -> Sequence[int]:
    return range(first, len(messages)) if marked is None else [at for at in sorted(marked) if at >= first]


def _made(
    protocol: Any,
    messages: Sequence[Wired],
    first: int,
    entries: Sequence[Entry],
    marked: Sequence[int],
    before: Made | None,
) -> Made:
    """What the entries become. Those at the beginning that are as before become the same values."""
    said = messages[first:]
    known = _known(before, messages, first, entries) if before else 0
    if before and known:
        ends, needs, inside = before.ends[:known], before.needs[:known], before.inside[:known]
        units = before.units[: ends[-1]]
    else:
        ends, needs, inside = [], [], []
        units = [(unit, False) for message in messages[:first] for unit in message.units]
    for entry in entries[known:]:
        made, own = _units(protocol, said, entry), first + entry.at if isinstance(entry, _OWN) else -1
        marks = inside[-1] if inside else 0
        if own in marked:
            made = [(anthropic.unmarked(unit), False) for unit, _ in made]
            marks += sum(anthropic.marks(unit) for unit, _ in made)
        units.extend(made)
        ends.append(len(units))
        needs.append(max(own + 1, first, *needs[-1:]))
        inside.append(marks)
    return Made(messages, entries, units, ends, needs, inside)


def _known(before: Made, messages: Sequence[Wired], first: int, entries: Sequence[Entry]) -> int:
    """How many entries are as before, and of the very same messages."""
    same = alike(before.messages, messages)
    if same <= first:
        return 0
    return min(common(before.entries, entries), bisect_right(before.needs, same))


def settled(wire: str, body: Mapping[str, Json], messages: Sequence[Wired]) -> dict[str, Json] | None:
    """The request with one result for every call, as all providers want it: what is missing is added, what answers no call is
    left out. None where there is neither.
    """
    protocol: Any = WIRES[wire]
    units: Units = []
    mended, waiting = 0, dict[str, str]()
    for at, message in enumerate(messages):
        stray = [i for i, p in enumerate(message.pieces) if p.kind is Kind.RESULT and waiting.pop(p.id, None) is None]
        mended += len(stray)
        if len(stray) < len(message.pieces) or not stray:
            fresh = protocol.edited(message, [Edit(i, None) for i in stray]) if stray else message.units
            units.extend((unit, False) for unit in fresh)
        if calls := message.of(Kind.CALL):
            later = takewhile(lambda other: other.speaker is not Speaker.ASSISTANT, messages[at + 1 :])
            found = {piece.id for other in later for piece in other.of(Kind.RESULT)}
            waiting = {call.id: call.name for call in calls if call.id in found}
            left = [call for call in calls if call.id not in found]
            units.extend((protocol.result(call.id, call.name, NO_RESULT, ok=False), True) for call in left)
            mended += len(left)
    return dict(protocol.with_messages(body, protocol.joined(units))) if mended else None


def _units(protocol: Any, messages: Sequence[Wired], entry: Entry) -> Units:
    match entry:
        case As(at=at):
            return [(unit, False) for unit in messages[at].units]
        case Changed(at=at, parts=parts, answers=answers):
            edits = [edit for part in parts for edit in _edits(messages[at], part, answers)]
            return [(unit, False) for unit in protocol.edited(messages[at], edits)]
        case Says(text=text):
            return [(protocol.said(text), True)]
        case Returned(call=call, name=name, text=text, ok=ok):
            return [(protocol.result(call, name, text, ok=ok), True)]
        case Hidden(raw=raw, parts=parts):
            units = units_of(raw)
            message = protocol.message(units if protocol is openai_responses else units[0])
            edits = [edit for part in parts for edit in _edits(message, part, ())]
            return [(unit, True) for unit in protocol.edited(message, edits)]


def _edits(message: Wired, part: Part, answers: Sequence[str]) -> list[Edit]:
    """Which pieces of the message the part is."""
    if part.kind in ("result", "call"):
        kind = Kind.RESULT if part.kind == "result" else Kind.CALL
        return [Edit(at, part.text) for at, p in enumerate(message.pieces) if p.kind is kind and p.id == part.name]
    said = [at for at, p in enumerate(message.pieces) if not (p.kind is Kind.RESULT and p.id in answers)]
    return [Edit(said[part.place], part.text)] if part.place < len(said) else []


# --- marks of the provider's cache ---------------------------------------------------------------------------------


def followed(wire: str, units: Sequence[Json], marked: Collection[int] | None, kept: Kept) -> None:
    """Remembers where the client marked a request that goes on as it came."""
    if wire == anthropic.NAME:
        perhaps = range(len(units)) if marked is None else sorted(marked)
        places = [at for at in perhaps if anthropic.mark_of(units[at]) is not None]
        bare = list(units)
        for at in places:
            bare[at] = anthropic.unmarked(bare[at])
        kept.sent = replace(kept.sent.then(bare), marks=tuple(at + 1 for at in places))


def _mark(rest: Json, units: list[Json], usual: Json, inside: int, kept: Kept) -> None:
    """Marks where the provider knows the request, instead of the client's on messages. `inside`: those that stay, of their blocks."""
    now = kept.sent.then(list(units))
    near = sum(map(anthropic.blocks, units[now.stable :])) < anthropic.LOOK_BACK
    kept.sent = now.at_most(anthropic.MOST_MARKS - anthropic.marks(rest) - inside, near=near)
    before = {id(bare): (bare, with_mark) for bare, with_mark in kept.marked}
    marked: list[tuple[Json, Json]] = []
    for at in kept.sent.places:
        bare, with_mark = before.get(id(units[at]), (units[at], None))
        if anthropic.mark_of(with_mark) != usual:
            with_mark = anthropic.marked(bare, usual)
        marked.append((bare, with_mark))
        units[at] = with_mark
    kept.marked = marked


def _usual(client: Sequence[Wired]) -> Json | None:
    """As long-lived as the client's own marks: a longer one may not stand behind a shorter one. None: it sets none."""
    marks = (anthropic.mark_of(message.units[0]) for message in client)
    return next((mark for mark in marks if mark), None)
