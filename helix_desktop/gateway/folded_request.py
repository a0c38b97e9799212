"""Builds the body for the provider: the client's own, with its messages replaced by the
view's entries.
"""

import operator
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from helix_desktop.engine.message_blocks import EXCLUDED
from helix_desktop.engine.prompt_cache_marks import (
    MarkedRequest,
    count_equal_first_blocks,
    count_same_first_objects,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import view_entries
from helix_desktop.gateway.view_entries import (
    As,
    Changed,
    Entry,
    Hidden,
    Part,
    Returned,
    Says,
    parse_hidden_messages,
)
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import Json, PieceEdit, PieceKind, Speaker, Wired
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.protocol_table import WIRE_MODULES, with_messages

NO_RESULT = "[There is no result of this call.]"
Units = list[tuple[Json, bool]]


@dataclass(frozen=True, slots=True)
class BuiltMessages:
    """How a request's messages were built, so that the next request can reuse the first ones.

    For each entry, totals up to it: its units (`unit_counts`), the messages they need
    (`message_counts`), and cache marks inside their blocks (`inner_mark_counts`). Other
    marks of the client are left out.
    """

    messages: Sequence[Wired]
    entries: Sequence[Entry]
    units: Units
    unit_counts: list[int]
    message_counts: list[int]
    inner_mark_counts: list[int]


@dataclass(slots=True)
class PreviousBody:
    """What is kept of a conversation's previous request, so that only new messages are
    built and marked.

    That is how it was built, what was sent without cache marks (to place the next
    ones), and what got marks.
    """

    built: BuiltMessages | None = None
    marked_request: MarkedRequest = MarkedRequest()
    marked_units: Sequence[tuple[Json, Json]] = ()


def count_leading_instructions(messages: Sequence[Wired]) -> int:
    """Return the number of instructions at the beginning, which belong to the request's head."""
    return sum(1 for _ in takewhile(lambda message: message.speaker is Speaker.SYSTEM, messages))


def are_all_unchanged(entries: Sequence[Entry], count: int) -> bool:
    """Whether every message is sent as it came. There are no entries if nothing is
    known of the conversation.
    """
    only = len(entries) == count and set(map(type, entries)) <= {As}
    return not entries or (
        only and all(map(operator.eq, map(operator.attrgetter("at"), entries), range(count)))
    )


def build_folded_body(
    wire: str,
    body: Mapping[str, Json],
    messages: Sequence[Wired],
    entries: Sequence[Entry],
    marked: Collection[int] | None = None,
    kept: PreviousBody | None = None,
) -> dict[str, Json]:
    """Build the request with the entries as its messages. `marked`: units that may be
    cache-marked.
    """
    protocol: Any = WIRE_MODULES[wire]
    first = count_leading_instructions(messages)
    own: Sequence[int] = ()  # The agent's own messages that may have marks.
    if wire == anthropic_gateway.NAME:
        own = (
            range(first, len(messages))
            if marked is None
            else [at for at in sorted(marked) if at >= first]
        )
    made = _build_messages(protocol, messages, first, entries, own, kept.built if kept else None)
    if kept:
        kept.built = made
    shown = protocol.merge_added_messages(made.units)
    # Marks are like the client's first, as a longer-lived one must not follow a shorter one.
    client_marks = (anthropic_gateway.last_cache_mark(messages[at].units[0]) for at in own)
    if (usual := next((mark for mark in client_marks if mark), None)) is not None:
        rest = {key: value for key, value in body.items() if key != "messages"}
        shown[:first] = map(anthropic_gateway.without_cache_marks, shown[:first])
        _set_cache_marks(
            rest, shown, usual, sum(made.inner_mark_counts[-1:]), kept or PreviousBody()
        )
    return with_messages(wire, body, shown)


def _build_messages(
    protocol: Any,
    messages: Sequence[Wired],
    first: int,
    entries: Sequence[Entry],
    marked: Sequence[int],
    before: BuiltMessages | None,
) -> BuiltMessages:
    """Build messages from the entries. Those at the beginning that are as before become
    the same values.
    """
    said = messages[first:]
    known = _count_known_entries(before, messages, first, entries) if before else 0
    if before and known:
        ends, needs = before.unit_counts[:known], before.message_counts[:known]
        inside = before.inner_mark_counts[:known]
        units = before.units[: ends[-1]]
    else:
        ends, needs, inside = [], [], []
        units = [(unit, False) for message in messages[:first] for unit in message.units]
    for number, entry in enumerate(entries[known:], known):
        two = (entry, entries[max(0, number - 1)])
        own, last = (
            first + one.at if isinstance(one, view_entries.CLIENT_MESSAGES) else -1 for one in two
        )
        made = _units_of_entry(protocol, said, entry)
        if 0 <= last < own and (last + 1 < own or ends[-1:] == ends[-2:-1]):
            made = [
                (unit, True) for unit, _ in made
            ]  # As messages are missing, two neighbours may have one role.
        marks = inside[-1] if inside else 0
        if own in marked:
            made = [(anthropic_gateway.without_cache_marks(unit), added) for unit, added in made]
            marks += sum(anthropic_gateway.count_cache_marks(unit) for unit, _ in made)
        units.extend(made)
        ends.append(len(units))
        needs.append(max(own + 1, first, *needs[-1:]))
        inside.append(marks)
    return BuiltMessages(messages, entries, units, ends, needs, inside)


def _count_known_entries(
    before: BuiltMessages, messages: Sequence[Wired], first: int, entries: Sequence[Entry]
) -> int:
    """Return how many first entries are as before, and of the same messages."""
    same = count_same_first_objects(before.messages, messages)
    if same <= first:
        return 0
    return min(
        count_equal_first_blocks(before.entries, entries), bisect_right(before.message_counts, same)
    )


def pair_calls_with_results(
    wire: str, body: Mapping[str, Json], messages: Sequence[Wired]
) -> dict[str, Json] | None:
    """Return the request with exactly one result per call, or None if nothing changes."""
    protocol: Any = WIRE_MODULES[wire]
    units: Units = []
    mended, waiting = 0, dict[str, str]()
    for at, message in enumerate(messages):
        stray = [
            i
            for i, p in enumerate(message.pieces)
            if p.kind is PieceKind.RESULT and waiting.pop(p.id, None) is None
        ]
        mended += len(stray)
        if len(stray) < len(message.pieces) or not stray:
            fresh = (
                protocol.apply_edits(message, [PieceEdit(i, None) for i in stray])
                if stray
                else message.units
            )
            units.extend((unit, False) for unit in fresh)
        if calls := message.pieces_of_kind(PieceKind.CALL):
            later = takewhile(
                lambda other: other.speaker is not Speaker.ASSISTANT, messages[at + 1 :]
            )
            found = {
                piece.id for other in later for piece in other.pieces_of_kind(PieceKind.RESULT)
            }
            waiting = {call.id: call.name for call in calls if call.id in found}
            left = [call for call in calls if call.id not in found]
            units.extend(
                (protocol.result_message(call.id, call.name, NO_RESULT, ok=False), True)
                for call in left
            )
            mended += len(left)
    return with_messages(wire, body, protocol.merge_added_messages(units)) if mended else None


def _units_of_entry(protocol: Any, messages: Sequence[Wired], entry: Entry) -> Units:
    match entry:
        case As(at=at):
            return [(unit, False) for unit in messages[at].units]
        case Changed(at=at, parts=parts, answers=answers):
            units = _edit_message(protocol, messages[at], parts, answers)
            return [(unit, False) for unit in units] or (
                [] if at else [(protocol.user_message(EXCLUDED), True)]
            )
        case Says(text=text):
            return [(protocol.user_message(text), True)]
        case Returned(call=call, name=name, text=text, ok=ok):
            return [(protocol.result_message(call, name, text, ok=ok), True)]
        case Hidden(raw=raw, parts=parts):
            values = parse_hidden_messages(raw)
            message = protocol.parse_message(values if protocol is responses_gateway else values[0])
            return [(unit, True) for unit in _edit_message(protocol, message, parts)]


def _edit_message(
    protocol: Any, message: Wired, parts: Sequence[Part], answers: Sequence[str] = ()
) -> Sequence[Json]:
    """Show parts of a message as something else. A reply left with only reasoning is
    dropped, as providers refuse it.
    """
    edits = {edit.at: edit for part in parts for edit in _edits_for_part(message, part, answers)}
    gone = {at for at, edit in edits.items() if edit.text is None}
    left = (
        at not in gone and p.kind is not PieceKind.REASONING for at, p in enumerate(message.pieces)
    )
    return protocol.apply_edits(message, list(edits.values())) if not gone or any(left) else ()


def _edits_for_part(message: Wired, part: Part, answers: Sequence[str]) -> list[PieceEdit]:
    """Return which pieces are the part. A reply's text is found by its words, as
    clients join and split texts.
    """
    if part.kind == "reasoning":
        return [
            PieceEdit(at, part.text)
            for at, p in enumerate(message.pieces)
            if p.kind is PieceKind.REASONING
        ]
    if part.kind == "text":
        words = "".join(part.name.split())
        texts = {
            at: "".join(p.text.split())
            for at, p in enumerate(message.pieces)
            if p.kind is PieceKind.TEXT
        }
        texts |= {
            at: f"[{p.text[:200]}]"
            for at, p in enumerate(message.pieces)
            if p.kind is PieceKind.OTHER
        }
        same = [at for at, text in texts.items() if text == words]
        near = [at for at, text in texts.items() if words in text or (text and text in words)]
        return [PieceEdit(at, part.text) for at in same or near]
    if part.kind in ("result", "call"):
        kind = PieceKind.RESULT if part.kind == "result" else PieceKind.CALL
        return [
            PieceEdit(at, part.text)
            for at, p in enumerate(message.pieces)
            if p.kind is kind and p.id == part.name
        ]
    said = [
        at
        for at, p in enumerate(message.pieces)
        if not (p.kind is PieceKind.RESULT and p.id in answers)
    ]
    return [PieceEdit(said[part.place], part.text)] if part.place < len(said) else []


# --- Placing marks for the provider's cache


def remember_client_marks(
    wire: str, units: Sequence[Json], marked: Collection[int] | None, kept: PreviousBody
) -> None:
    """Remember the client's cache marks in a request that is sent unchanged."""
    if wire == anthropic_gateway.NAME:
        perhaps = range(len(units)) if marked is None else sorted(marked)
        places = [at for at in perhaps if anthropic_gateway.last_cache_mark(units[at]) is not None]
        bare = list(units)
        for at in places:
            bare[at] = anthropic_gateway.without_cache_marks(bare[at])
        kept.marked_request = replace(
            kept.marked_request.mark_next_request(bare), marks=tuple(at + 1 for at in places)
        )


def _set_cache_marks(
    rest: Json, units: list[Json], usual: Json, inside: int, kept: PreviousBody
) -> None:
    """Mark where the provider probably has the request cached, instead of the client's
    own marks.
    """
    now = kept.marked_request.mark_next_request(list(units))
    near = (
        sum(map(anthropic_gateway.count_content_blocks, units[now.stable :]))
        < anthropic_gateway.LOOK_BACK
    )
    most = anthropic_gateway.MOST_MARKS - anthropic_gateway.count_cache_marks(rest) - inside
    kept.marked_request = now.limit_marks(most, near=near)
    before = {id(bare): (bare, with_mark) for bare, with_mark in kept.marked_units}
    marked: list[tuple[Json, Json]] = []
    for at in kept.marked_request.numbers_of_marked_blocks:
        bare, with_mark = before.get(id(units[at]), (units[at], None))
        if anthropic_gateway.last_cache_mark(with_mark) != usual:
            with_mark = anthropic_gateway.with_cache_mark(bare, usual)
        marked.append((bare, with_mark))
        units[at] = with_mark
    kept.marked_units = marked
