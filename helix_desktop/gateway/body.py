"""The request that goes to the provider: the client's own, with the view's entries in place of its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from helix_desktop.gateway.shown import As, Changed, Entry, Hidden, Part, Returned, Says, units_of
from helix_desktop.wire import anthropic, gemini, openai_chat, openai_responses
from helix_desktop.wire.message import Edit, Json, Kind, Speaker, Wired

WIRES: Mapping[str, ModuleType] = {wire.NAME: wire for wire in (anthropic, openai_chat, openai_responses, gemini)}


def leading(messages: Sequence[Wired]) -> int:
    """How many messages at the beginning are instructions: they belong to the head of the request."""
    count = 0
    while count < len(messages) and messages[count].speaker is Speaker.SYSTEM:
        count += 1
    return count


def unchanged(entries: Sequence[Entry], count: int) -> bool:
    """Whether every message goes on as it came."""
    return len(entries) == count and all(isinstance(entry, As) and entry.at == at for at, entry in enumerate(entries))


def folded(wire: str, body: Mapping[str, Json], messages: Sequence[Wired], entries: Sequence[Entry]) -> dict[str, Json]:
    """The request with the entries in place of its messages."""
    protocol: Any = WIRES[wire]
    first = leading(messages)
    units: list[tuple[Json, bool]] = [(unit, False) for message in messages[:first] for unit in message.units]
    lost: list[Json] = _lost_marks(wire, messages[first:], entries)
    firm = len(units)  # units at the beginning that go on as they came
    counting = True
    for entry in entries:
        made = _units(protocol, messages[first:], entry)
        counting = counting and isinstance(entry, As)
        units.extend(made)
        firm += len(made) if counting else 0
    if wire == anthropic.NAME:
        units = _marked(body, units, firm, lost)
    return dict(protocol.with_messages(body, protocol.joined(units)))


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


def _lost_marks(wire: str, messages: Sequence[Wired], entries: Sequence[Entry]) -> list[Json]:
    """Marks of messages that a fold covers whole."""
    if wire != anthropic.NAME:
        return []
    there = {entry.at for entry in entries if isinstance(entry, As | Changed)}
    gone = [message for at, message in enumerate(messages) if at not in there]
    marks = (anthropic.mark_of(message.units[0]) for message in gone)
    return [mark for mark in marks if mark]


def _marked(
    body: Mapping[str, Json], units: list[tuple[Json, bool]], firm: int, lost: Sequence[Json]
) -> list[tuple[Json, bool]]:
    """A mark behind the last message that goes on as it came, so that the provider finds what it cached before the fold:
    one the fold took away, or one more where there are fewer than four.
    """
    rest = {key: value for key, value in body.items() if key != "messages"}
    count = anthropic.marks(rest) + sum(anthropic.marks(unit) for unit, _ in units)
    if 0 < firm < len(units) and count < anthropic.MOST_MARKS and (lost or count):
        unit, added = units[firm - 1]
        if anthropic.mark_of(unit) is None:
            units[firm - 1] = (anthropic.marked(unit, lost[0] if lost else _usual(body)), added)
            count += 1
    if lost and count < anthropic.MOST_MARKS and units and anthropic.mark_of(units[-1][0]) is None:
        units[-1] = (anthropic.marked(units[-1][0], lost[-1]), units[-1][1])
    return units


def _usual(body: Mapping[str, Json]) -> Json:
    """As long-lived as the client's own marks: a longer one may not stand behind a shorter one."""
    found: list[Json] = []

    def look(value: Json) -> None:
        if isinstance(value, Mapping):
            if isinstance(value.get("cache_control"), Mapping):
                found.append(value["cache_control"])
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(body.get("messages"))
    short = {"type": "ephemeral"}
    return found[0] if found else short
