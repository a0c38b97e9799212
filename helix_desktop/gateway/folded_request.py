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
Units = list[tuple[Json, bool]]  # The values of messages, and whether each was added here.


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
    previous = kept or PreviousBody()
    may_be_marked = _positions_of_possible_marks(wire, messages, first, marked)
    builder = _FoldedMessagesBuilder(protocol, messages, first, may_be_marked)
    built = builder.build(entries, previous.built)
    previous.built = built
    units = protocol.merge_added_messages(built.units)
    usual_mark = _find_usual_mark(messages, may_be_marked)
    if usual_mark is not None:
        rest = {key: value for key, value in body.items() if key != "messages"}
        units[:first] = map(anthropic_gateway.without_cache_marks, units[:first])
        _set_cache_marks(rest, units, usual_mark, _last_total(built.inner_mark_counts), previous)
    return with_messages(wire, body, units)


def _find_usual_mark(messages: Sequence[Wired], may_be_marked: Sequence[int]) -> Json:
    """Return the client's first cache mark: ours are like it, as a longer-lived one must not
    follow a shorter one. None: it sets none.
    """
    for position in may_be_marked:
        mark = anthropic_gateway.last_cache_mark(messages[position].units[0])
        if mark:
            return mark
    return None


def _last_total(totals: Sequence[int]) -> int:
    if not totals:
        return 0
    return totals[-1]


def _positions_of_possible_marks(
    wire: str, messages: Sequence[Wired], first: int, marked: Collection[int] | None
) -> Sequence[int]:
    """Return the agent's own messages that may have cache marks."""
    if wire != anthropic_gateway.NAME:
        return ()
    if marked is None:
        return range(first, len(messages))
    return [position for position in sorted(marked) if position >= first]


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
            units = _units_of_entry(self.protocol, said, entry)
            position = _position_of_entry(entry)
            previous_position = -1
            if number:
                previous_position = _position_of_entry(entries[number - 1])
            if _stands_beside_gap(position, previous_position, built.unit_counts):
                # As messages are missing, two neighbours may have one role.
                units = [(unit, True) for unit, _ in units]
            inner_marks = _last_total(built.inner_mark_counts)
            if position >= 0 and self.first + position in self.may_be_marked:
                units = [
                    (anthropic_gateway.without_cache_marks(unit), added) for unit, added in units
                ]
                inner_marks += sum(anthropic_gateway.count_cache_marks(unit) for unit, _ in units)
            messages_needed = self.first + _messages_needed(entry)
            built.units.extend(units)
            built.unit_counts.append(len(built.units))
            built.message_counts.append(max(_last_total(built.message_counts), messages_needed))
            built.inner_mark_counts.append(inner_marks)
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


def _stands_beside_gap(position: int, previous: int, unit_counts: Sequence[int]) -> bool:
    """Whether messages between this entry's and the previous one's are missing."""
    if not 0 <= previous < position:
        return False
    previous_has_no_units = unit_counts[-1:] == unit_counts[-2:-1]
    return previous + 1 < position or previous_has_no_units


def _position_of_entry(entry: Entry) -> int:
    """Return the position of the agent's own message that it is, or -1."""
    if isinstance(entry, As | Changed):
        return entry.at
    return -1


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
        units.extend((unit, False) for unit in _units_without_pieces(protocol, message, stray))
        calls = message.pieces_of_kind(PieceKind.CALL)
        answered = set[str]()
        if calls:
            answered = _ids_of_next_results(messages[position + 1 :])
            waiting = set[str]()
        for call in calls:
            if call.id in answered:
                waiting.add(call.id)
                continue
            is_changed = True
            result = protocol.result_message(call.id, call.name, NO_RESULT, ok=False)
            units.append((result, True))
        is_changed = is_changed or bool(stray)
    if not is_changed:
        return None
    return with_messages(wire, body, protocol.merge_added_messages(units))


def _units_without_pieces(
    protocol: Any, message: Wired, positions: Sequence[int]
) -> Sequence[Json]:
    """Return what a message is without these of its pieces."""
    if not positions:
        return message.units
    if len(positions) == len(message.pieces):
        return ()
    edits = [PieceEdit(position, None) for position in positions]
    units: Sequence[Json] = protocol.apply_edits(message, edits)
    return units


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
        case Says():
            return [(unit, True) for unit in _units_of_fold(protocol, messages, entry)]
        case Returned(call=call, name=name, text=text, ok=ok):
            return [(protocol.result_message(call, name, text, ok=ok), True)]
        case Hidden(raw=raw, parts=parts):
            message = _parse_hidden_reply(protocol, raw)
            return [(unit, True) for unit in _edit_message(protocol, message, parts)]


def _units_of_fold(protocol: Any, messages: Sequence[Wired], fold: Says) -> list[Json]:
    """Return the fold's text, and what goes on although the fold covers it."""
    units = [protocol.user_message(fold.text)]
    for first, end in fold.covered:
        units.extend(carried_units(protocol, messages[first:end]))
    return units


def _parse_hidden_reply(protocol: Any, raw: str) -> Wired:
    values = parse_hidden_messages(raw)
    message: Wired
    if protocol is responses_gateway:  # Its messages are made of several items.
        message = protocol.parse_message(values)
    else:
        message = protocol.parse_message(values[0])
    return message


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
    match part.kind:
        case "reasoning":
            return _positions_of_kind(message, PieceKind.REASONING)
        case "result" | "call":
            of_kind = _positions_of_kind(message, PieceKind(part.kind))
            return [at for at in of_kind if message.pieces[at].id == part.name]
        case "text":
            return _positions_of_words(message, part.name)
    # What the user said is counted without the results that were recorded as outputs.
    said: list[int] = []
    for position, piece in enumerate(message.pieces):
        is_recorded_output = piece.kind is PieceKind.RESULT and piece.id in answers
        if not is_recorded_output:
            said.append(position)
    return said[part.place : part.place + 1]


def _positions_of_kind(message: Wired, kind: PieceKind) -> list[int]:
    return [position for position, piece in enumerate(message.pieces) if piece.kind is kind]


def _positions_of_words(message: Wired, words: str) -> list[int]:
    """Find a reply's text by its words, as clients join and split texts."""
    wanted = "".join(words.split())
    same: list[int] = []
    near: list[int] = []
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
    possible: Collection[int] = range(len(units))
    if marked is not None:
        possible = sorted(marked)
    bare_units = list(units)
    marks: list[int] = []
    for position in possible:
        if anthropic_gateway.last_cache_mark(units[position]) is not None:
            bare_units[position] = anthropic_gateway.without_cache_marks(units[position])
            marks.append(position + 1)
    next_request = kept.marked_request.mark_next_request(bare_units)
    kept.marked_request = replace(next_request, marks=tuple(marks))


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
    # A message that had this mark before becomes the same value, not only an equal one.
    marked_before = {id(bare_unit): marked for bare_unit, marked in kept.marked_units}
    marked_units: list[tuple[Json, Json]] = []
    for position in kept.marked_request.numbers_of_marked_blocks:
        bare_unit = units[position]
        with_mark = marked_before.get(id(bare_unit))
        if anthropic_gateway.last_cache_mark(with_mark) != usual:
            with_mark = anthropic_gateway.with_cache_mark(bare_unit, usual)
        marked_units.append((bare_unit, with_mark))
        units[position] = with_mark
    kept.marked_units = marked_units
