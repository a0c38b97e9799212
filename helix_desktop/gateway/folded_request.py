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
from helix_desktop.gateway.carried_state import carried_units
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
    marks of the client are left out. These are numbers and not records, since a long
    history has 70,000 entries.
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
    if not entries:
        return True
    if len(entries) != count or set(map(type, entries)) != {As}:
        return False
    positions = map(operator.attrgetter("at"), entries)
    return all(map(operator.eq, positions, range(count)))


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
    kept = kept or PreviousBody()
    may_be_marked = _positions_of_possible_marks(wire, messages, first, marked)
    built = _FoldedMessagesBuilder(protocol, messages, first, may_be_marked).build(
        entries, kept.built
    )
    kept.built = built
    units = protocol.merge_added_messages(built.units)
    # Marks are like the client's first, as a longer-lived one must not follow a shorter one.
    client_marks = (
        anthropic_gateway.last_cache_mark(messages[at].units[0]) for at in may_be_marked
    )
    usual = next((mark for mark in client_marks if mark), None)
    if usual is not None:
        rest = {key: value for key, value in body.items() if key != "messages"}
        units[:first] = map(anthropic_gateway.without_cache_marks, units[:first])
        inner_marks = built.inner_mark_counts[-1] if built.inner_mark_counts else 0
        _set_cache_marks(rest, units, usual, inner_marks, kept)
    return with_messages(wire, body, units)


def _positions_of_possible_marks(
    wire: str, messages: Sequence[Wired], first: int, marked: Collection[int] | None
) -> Sequence[int]:
    """Return the agent's own messages that may have cache marks."""
    if wire != anthropic_gateway.NAME:
        return ()
    if marked is None:
        return range(first, len(messages))
    return [at for at in sorted(marked) if at >= first]


@dataclass(slots=True)
class _FoldedMessagesBuilder:
    """Builds the messages of one request from its entries."""

    protocol: Any
    messages: Sequence[Wired]
    first: int  # The position of the first message behind the instructions.
    may_be_marked: Sequence[int]

    def build(self, entries: Sequence[Entry], before: BuiltMessages | None) -> BuiltMessages:
        """Those at the beginning that are as `before` become the same values."""
        built = self._reuse_first_entries(entries, before)
        said = self.messages[self.first :]
        for number in range(len(built.unit_counts), len(entries)):
            entry = entries[number]
            previous = entries[number - 1] if number else None
            units = _units_of_entry(self.protocol, said, entry)
            position = _position_of_entry(entry)
            if self._stands_beside_gap(position, previous, built.unit_counts):
                # As messages are missing, two neighbours may have one role.
                units = [(unit, True) for unit, _ in units]
            marks = built.inner_mark_counts[-1] if built.inner_mark_counts else 0
            if position >= 0 and self.first + position in self.may_be_marked:
                units = [
                    (anthropic_gateway.without_cache_marks(unit), added) for unit, added in units
                ]
                marks += sum(anthropic_gateway.count_cache_marks(unit) for unit, _ in units)
            needed = built.message_counts[-1] if built.message_counts else 0
            built.units.extend(units)
            built.unit_counts.append(len(built.units))
            built.message_counts.append(max(needed, self.first + _messages_needed(entry)))
            built.inner_mark_counts.append(marks)
        return built

    def _reuse_first_entries(
        self, entries: Sequence[Entry], before: BuiltMessages | None
    ) -> BuiltMessages:
        known = self._count_known_entries(entries, before)
        if before is not None and known:
            return BuiltMessages(
                self.messages,
                entries,
                before.units[: before.unit_counts[known - 1]],
                before.unit_counts[:known],
                before.message_counts[:known],
                before.inner_mark_counts[:known],
            )
        instructions = [
            (unit, False) for message in self.messages[: self.first] for unit in message.units
        ]
        return BuiltMessages(self.messages, entries, instructions, [], [], [])

    def _count_known_entries(self, entries: Sequence[Entry], before: BuiltMessages | None) -> int:
        """Return how many first entries are as before, and of the same messages."""
        if before is None:
            return 0
        same = count_same_first_objects(before.messages, self.messages)
        if same <= self.first:
            return 0
        equal = count_equal_first_blocks(before.entries, entries)
        return min(equal, bisect_right(before.message_counts, same))

    @staticmethod
    def _stands_beside_gap(
        position: int, previous: Entry | None, unit_counts: Sequence[int]
    ) -> bool:
        """Whether messages between this entry's and the previous one's are missing."""
        last = -1 if previous is None else _position_of_entry(previous)
        if not 0 <= last < position:
            return False
        previous_has_no_units = unit_counts[-1:] == unit_counts[-2:-1]
        return last + 1 < position or previous_has_no_units


def _position_of_entry(entry: Entry) -> int:
    """Return the position of the agent's own message that it is, or -1."""
    return entry.at if isinstance(entry, As | Changed) else -1


def _messages_needed(entry: Entry) -> int:
    """Return how many messages must be as they are for the entry's units to be the same."""
    if isinstance(entry, Says) and entry.covered:
        return entry.covered[-1][1]
    return _position_of_entry(entry) + 1


def pair_calls_with_results(
    wire: str, body: Mapping[str, Json], messages: Sequence[Wired]
) -> dict[str, Json] | None:
    """Return the request with exactly one result per call, or None if nothing changes."""
    protocol: Any = WIRE_MODULES[wire]
    units: Units = []
    is_changed = False
    waiting = set[str]()  # The ids of calls whose results must follow.
    for position, message in enumerate(messages):
        stray = _positions_of_stray_results(message, waiting)
        if stray:
            is_changed = True
        if len(stray) < len(message.pieces) or not stray:
            edits = [PieceEdit(at, None) for at in stray]
            left = protocol.apply_edits(message, edits) if edits else message.units
            units.extend((unit, False) for unit in left)
        calls = message.pieces_of_kind(PieceKind.CALL)
        if not calls:
            continue
        answered = _ids_of_next_results(messages[position + 1 :])
        waiting = {call.id for call in calls if call.id in answered}
        for call in calls:
            if call.id not in answered:
                is_changed = True
                result = protocol.result_message(call.id, call.name, NO_RESULT, ok=False)
                units.append((result, True))
    if not is_changed:
        return None
    return with_messages(wire, body, protocol.merge_added_messages(units))


def _positions_of_stray_results(message: Wired, waiting: set[str]) -> list[int]:
    """Return the results of no waiting call. Calls that get theirs wait no longer."""
    stray = []
    for position, piece in enumerate(message.pieces):
        if piece.kind is not PieceKind.RESULT:
            continue
        if piece.id in waiting:
            waiting.discard(piece.id)
        else:
            stray.append(position)
    return stray


def _ids_of_next_results(messages: Sequence[Wired]) -> set[str]:
    """Return the calls whose results come before the next reply."""
    answered = set[str]()
    for message in messages:
        if message.speaker is Speaker.ASSISTANT:
            break
        answered.update(piece.id for piece in message.pieces_of_kind(PieceKind.RESULT))
    return answered


def _units_of_entry(protocol: Any, messages: Sequence[Wired], entry: Entry) -> Units:
    """Return what an entry sends. `True`: it was added here."""
    match entry:
        case As(at=at):
            return [(unit, False) for unit in messages[at].units]
        case Changed(at=at, parts=parts, answers=answers):
            left = _edit_message(protocol, messages[at], parts, answers)
            if not left and at == 0:  # Providers want the user to speak first.
                return [(protocol.user_message(EXCLUDED), True)]
            return [(unit, False) for unit in left]
        case Says(text=text, covered=covered):
            added = [protocol.user_message(text)]
            for first, end in covered:
                added.extend(carried_units(protocol, messages[first:end]))
            return [(unit, True) for unit in added]
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
    edits: dict[int, PieceEdit] = {}
    for part in parts:
        for position in _positions_of_part(message, part, answers):
            edits[position] = PieceEdit(position, part.text)
    gone = {position for position, edit in edits.items() if edit.text is None}
    if gone and not _says_something_without(message, gone):
        return ()
    edited: Sequence[Json] = protocol.apply_edits(message, list(edits.values()))
    return edited


def _says_something_without(message: Wired, gone: set[int]) -> bool:
    for position, piece in enumerate(message.pieces):
        if position not in gone and piece.kind is not PieceKind.REASONING:
            return True
    return False


def _positions_of_part(message: Wired, part: Part, answers: Sequence[str]) -> list[int]:
    """Return which of the message's pieces are the part."""
    pieces = list(enumerate(message.pieces))
    match part.kind:
        case "reasoning":
            return [at for at, piece in pieces if piece.kind is PieceKind.REASONING]
        case "result" | "call":
            kind = PieceKind(part.kind)
            return [at for at, piece in pieces if piece.kind is kind and piece.id == part.name]
        case "text":
            return _positions_of_words(message, part.name)
    # What the user said is counted without the results that were recorded as outputs.
    said = [
        at for at, piece in pieces if piece.kind is not PieceKind.RESULT or piece.id not in answers
    ]
    return said[part.place : part.place + 1]


def _positions_of_words(message: Wired, words: str) -> list[int]:
    """Find a reply's text by its words, as clients join and split texts."""
    wanted = "".join(words.split())
    same, near = list[int](), list[int]()
    for position, piece in enumerate(message.pieces):
        if piece.kind is PieceKind.TEXT:
            text = "".join(piece.text.split())
        elif piece.kind is PieceKind.OTHER:
            text = f"[{piece.text[:200]}]"  # As it is recorded.
        else:
            continue
        if text == wanted:
            same.append(position)
        if wanted in text or (text and text in wanted):
            near.append(position)
    return same or near


# --- Placing marks for the provider's cache


def remember_client_marks(
    wire: str, units: Sequence[Json], marked: Collection[int] | None, kept: PreviousBody
) -> None:
    """Remember the client's cache marks in a request that is sent unchanged."""
    if wire != anthropic_gateway.NAME:
        return
    possible = range(len(units)) if marked is None else sorted(marked)
    places = [at for at in possible if anthropic_gateway.last_cache_mark(units[at]) is not None]
    bare = list(units)
    for at in places:
        bare[at] = anthropic_gateway.without_cache_marks(bare[at])
    next_request = kept.marked_request.mark_next_request(bare)
    kept.marked_request = replace(next_request, marks=tuple(at + 1 for at in places))


def _set_cache_marks(
    rest: Json, units: list[Json], usual: Json, inside: int, kept: PreviousBody
) -> None:
    """Mark where the provider probably has the request cached, instead of the client's
    own marks.
    """
    request = kept.marked_request.mark_next_request(list(units))
    new_blocks = sum(map(anthropic_gateway.count_content_blocks, units[request.stable :]))
    is_near = new_blocks < anthropic_gateway.LOOK_BACK
    most = anthropic_gateway.MOST_MARKS - anthropic_gateway.count_cache_marks(rest) - inside
    kept.marked_request = request.limit_marks(most, near=is_near)
    before = {id(bare): (bare, with_mark) for bare, with_mark in kept.marked_units}
    marked: list[tuple[Json, Json]] = []
    for at in kept.marked_request.numbers_of_marked_blocks:
        bare, with_mark = before.get(id(units[at]), (units[at], None))
        if anthropic_gateway.last_cache_mark(with_mark) != usual:
            with_mark = anthropic_gateway.with_cache_mark(bare, usual)
        marked.append((bare, with_mark))
        units[at] = with_mark
    kept.marked_units = marked
