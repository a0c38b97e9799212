"""The request that goes to the provider: the client's own, with the view's entries in place of its messages."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from itertools import takewhile
from types import ModuleType
from typing import Any

from helix_desktop.gateway.shown import As, Changed, Entry, Hidden, Part, Returned, Says, units_of
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
Made = dict[int, tuple[Entry, Wired, list[Json]]]  # by number of the message: what a fold made of it


def leading(messages: Sequence[Wired]) -> int:
    """How many messages at the beginning are instructions: they belong to the head of the request."""
    count = 0
    while count < len(messages) and messages[count].speaker is Speaker.SYSTEM:
        count += 1
    return count


def unchanged(entries: Sequence[Entry], count: int) -> bool:
    """Whether every message goes on as it came."""
    return len(entries) == count and all(isinstance(entry, As) and entry.at == at for at, entry in enumerate(entries))


def folded(
    wire: str,
    body: Mapping[str, Json],
    messages: Sequence[Wired],
    entries: Sequence[Entry],
    before: Sequence[Json] = (),
    marked: Collection[int] | None = None,
    made: Made | None = None,
) -> dict[str, Json]:
    """The request with the entries in place of its messages. `before`: the messages that were sent last; `marked`: those of
    the client's that may carry a mark of the provider's cache (None: any); `made`: what folds made of its messages before.
    """
    protocol: Any = WIRES[wire]
    first = leading(messages)
    said = messages[first:]
    units: list[tuple[Json, bool]] = [(unit, False) for message in messages[:first] for unit in message.units]
    made = {} if made is None else made
    bare: set[int] = set()  # units without marks, by identity
    for entry in entries:
        fresh = _changed(protocol, said, entry, made) if isinstance(entry, Changed) else _units(protocol, said, entry)
        units.extend(fresh)
        if marked is not None and isinstance(entry, As | Changed) and first + entry.at not in marked:
            bare.update(id(unit) for unit, _ in fresh)
    shown = protocol.joined(units)
    if wire == anthropic.NAME:
        client = said if marked is None else [m for at, m in enumerate(said, first) if at in marked]
        shown = _marked(body, shown, before, _lost_marks(said, entries), client, bare)
    return dict(protocol.with_messages(body, shown))


def _changed(protocol: Any, messages: Sequence[Wired], entry: Changed, made: Made) -> list[tuple[Json, bool]]:
    """The same values as for the request before, where message and entry are the same."""
    known = made.get(entry.at)
    if known is None or known[1] is not messages[entry.at] or known[0] != entry:
        units = [unit for unit, _ in _units(protocol, messages, entry)]
        known = made[entry.at] = (entry, messages[entry.at], units)
    return [(unit, False) for unit in known[2]]


def settled(wire: str, body: Mapping[str, Json], messages: Sequence[Wired]) -> dict[str, Json] | None:
    """The request with one result for every call, as all providers want it: what is missing is added, what answers no call is
    left out. None where there is neither.
    """
    protocol: Any = WIRES[wire]
    units: list[tuple[Json, bool]] = []
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


def _units(protocol: Any, messages: Sequence[Wired], entry: Entry) -> list[tuple[Json, bool]]:
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


def _lost_marks(messages: Sequence[Wired], entries: Sequence[Entry]) -> list[Json]:
    """Marks of messages that a fold covers whole."""
    there = {entry.at for entry in entries if isinstance(entry, As | Changed)}
    if len(there) == len(messages):
        return []
    gone = [message for at, message in enumerate(messages) if at not in there]
    return [mark for message in gone if (mark := anthropic.mark_of(message.units[0]))]


def _marked(
    body: Mapping[str, Json],
    units: list[Json],
    before: Sequence[Json],
    lost: Sequence[Json],
    client: Sequence[Wired],
    bare: Container[int],
) -> list[Json]:
    """A mark before the first message that is not what was sent last, so that the provider finds what it has cached of it;
    and one behind the last message, where what was added here stands behind the client's own. `client`: its messages that may
    have one; `bare`: units without.
    """
    rest = {key: value for key, value in body.items() if key != "messages"}
    usual = lost[0] if lost else _usual(client)
    if usual is None:
        return units
    places = [at for at, unit in enumerate(units) if id(unit) not in bare and anthropic.mark_of(unit) is not None]
    count = anthropic.marks(rest) + sum(anthropic.marks(unit) for unit in units if id(unit) not in bare)
    for at in (len(units) - 1, _first_change(before, units) - 1):
        if not 0 <= at < len(units) or at in places:
            continue
        if count >= anthropic.MOST_MARKS:
            taken = next((place for place in places if place != at), None)
            if taken is None or taken == len(units) - 1:
                continue
            units[taken] = anthropic.unmarked(units[taken])
            places.remove(taken)
            count -= 1
        units[at] = anthropic.marked(units[at], usual)
        places = sorted([*places, at])
        count += 1
    return units


def _first_change(before: Sequence[Json], units: Sequence[Json]) -> int:
    """The first message that is another one than was sent there before; 0 where all of it goes on."""
    for at, (one, other) in enumerate(zip(before, units, strict=False)):
        if one is not other and anthropic.unmarked(one) != anthropic.unmarked(other):
            return at
    return 0


def _usual(client: Sequence[Wired]) -> Json | None:
    """As long-lived as the client's own marks: a longer one may not stand behind a shorter one. None: it sets none."""
    marks = (anthropic.mark_of(message.units[0]) for message in client)
    return next((mark for mark in marks if mark), None)
