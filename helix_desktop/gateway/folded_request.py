"""Builds the body for the provider: the client's own, with its messages replaced by the
view's entries.
"""

import operator
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
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
    ChangedMessage,
    ChangedPart,
    Entry,
    HiddenResult,
    InsertedText,
    UnchangedMessage,
    parse_hidden_messages,
)
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import (
    Json,
    PieceEdit,
    PieceKind,
    ProtocolMessage,
    Speaker,
    words_of_piece,
)
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

    messages: Sequence[ProtocolMessage]
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


def count_leading_instructions(messages: Sequence[ProtocolMessage]) -> int:
    """Return the number of instructions at the beginning, which belong to the request's head."""
    count = 0
    for message in messages:
        if message.speaker is not Speaker.SYSTEM:
            break
        count += 1
    return count


def are_all_unchanged(entries: Sequence[Entry], count: int) -> bool:
    """Whether every message is sent as it came. There are no entries if nothing is
    known of the conversation.
    """
    if not entries:
        return True
    if len(entries) != count:
        return False
    # Without a loop in Python: a long history has 70,000 entries, and other agents wait meanwhile.
    kinds = set(map(type, entries))
    if kinds != {UnchangedMessage}:
        return False
    positions = map(operator.attrgetter("at"), entries)
    return all(map(operator.eq, positions, range(count)))


def build_folded_body(
    wire: str,
    body: Mapping[str, Json],
    messages: Sequence[ProtocolMessage],
    entries: Sequence[Entry],
    marked: Collection[int] | None = None,
    previous: PreviousBody | None = None,
) -> dict[str, Json]:
    """Return the body that is sent to the provider: the agent's own, but with other messages.

    An entry says what becomes of one message, such as unchanged, shortened or left out. `marked`:
    the positions of messages in which the agent may ask the provider to cache what comes before;
    None: any. `previous`: what was built for the last request, which is reused as far as it is
    the same, and replaced by what is built now.
    """
    protocol: Any = WIRE_MODULES[wire]
    if previous is None:
        previous = PreviousBody()
    instruction_count = count_leading_instructions(messages)
    may_be_marked = _positions_of_possible_marks(wire, messages, instruction_count, marked)
    builder = _FoldedMessagesBuilder(protocol, messages, instruction_count, may_be_marked)
    built = builder.build(entries, previous.built)
    previous.built = built
    units = protocol.merge_added_messages(built.units)

    usual_mark = _find_usual_mark(messages, may_be_marked)
    if usual_mark is not None:
        body_beside_messages = dict(body)
        body_beside_messages.pop("messages", None)
        marks_beside_messages = anthropic_gateway.count_cache_marks(body_beside_messages)
        marks_elsewhere = marks_beside_messages + _last_total(built.inner_mark_counts)
        for position in range(min(instruction_count, len(units))):
            units[position] = anthropic_gateway.without_cache_marks(units[position])
        _set_cache_marks(units, usual_mark, marks_elsewhere, previous)
    return with_messages(wire, body, units)


def _find_usual_mark(messages: Sequence[ProtocolMessage], may_be_marked: Sequence[int]) -> Json:
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
    wire: str,
    messages: Sequence[ProtocolMessage],
    instruction_count: int,
    marked: Collection[int] | None,
) -> Sequence[int]:
    """Return the messages behind the instructions that may have cache marks."""
    if wire != anthropic_gateway.NAME:  # No other protocol has them.
        return ()
    if marked is None:
        return range(instruction_count, len(messages))
    return [position for position in sorted(marked) if position >= instruction_count]


@dataclass(slots=True)
class _FoldedMessagesBuilder:
    """Builds the messages of one request from its entries."""

    protocol: Any
    messages: Sequence[ProtocolMessage]
    instruction_count: int  # The instructions at the beginning belong to no entry.
    may_be_marked: Sequence[int]

    def build(self, entries: Sequence[Entry], before: BuiltMessages | None) -> BuiltMessages:
        """Build the values ("units") that the entries put into the request's list of messages.

        Entries at the beginning that are as `before` become the same values as then. For each
        entry, the totals up to it are noted, by which the next request finds what it can reuse.
        """
        built = self._reuse_first_entries(entries, before)
        messages_of_conversation = self.messages[self.instruction_count :]
        for number in range(len(built.unit_counts), len(entries)):
            entry = entries[number]
            position = _position_of_entry(entry)
            previous_position = -1
            if number:
                previous_position = _position_of_entry(entries[number - 1])
            stands_beside_gap = _stands_beside_gap(position, previous_position, built.unit_counts)
            may_be_marked = self._may_message_be_marked(position)

            inner_marks = _last_total(built.inner_mark_counts)
            for entry_unit, is_added in _units_of_entry(
                self.protocol, messages_of_conversation, entry
            ):
                unit = entry_unit
                if may_be_marked:
                    unit = anthropic_gateway.without_cache_marks(entry_unit)
                    inner_marks += anthropic_gateway.count_cache_marks(unit)
                # Where messages are missing, two neighbours may have one role, and are merged
                # like what was added.
                built.units.append((unit, is_added or stands_beside_gap))

            messages_needed = self.instruction_count + _messages_needed(entry)
            built.unit_counts.append(len(built.units))
            built.message_counts.append(max(_last_total(built.message_counts), messages_needed))
            built.inner_mark_counts.append(inner_marks)
        return built

    def _may_message_be_marked(self, position: int) -> bool:
        """Whether the message that an entry is may have the client's cache mark."""
        return position >= 0 and self.instruction_count + position in self.may_be_marked

    def _reuse_first_entries(
        self, entries: Sequence[Entry], before: BuiltMessages | None
    ) -> BuiltMessages:
        """Return what is built already: the known entries, or else the instructions alone."""
        known_count = self._count_known_entries(entries, before)
        if before is not None and known_count:
            known_units = before.unit_counts[known_count - 1]
            return BuiltMessages(
                messages=self.messages,
                entries=entries,
                units=before.units[:known_units],
                unit_counts=before.unit_counts[:known_count],
                message_counts=before.message_counts[:known_count],
                inner_mark_counts=before.inner_mark_counts[:known_count],
            )
        instructions: Units = []
        for message in self.messages[: self.instruction_count]:
            for unit in message.units:
                instructions.append((unit, False))
        return BuiltMessages(
            messages=self.messages,
            entries=entries,
            units=instructions,
            unit_counts=[],
            message_counts=[],
            inner_mark_counts=[],
        )

    def _count_known_entries(self, entries: Sequence[Entry], before: BuiltMessages | None) -> int:
        """Return how many first entries are as before, and of the same messages."""
        if before is None:
            return 0
        same_messages = count_same_first_objects(before.messages, self.messages)
        if same_messages <= self.instruction_count:
            return 0
        equal_entries = count_equal_first_blocks(before.entries, entries)
        entries_of_same_messages = bisect_right(before.message_counts, same_messages)
        return min(equal_entries, entries_of_same_messages)


def _stands_beside_gap(position: int, previous_position: int, unit_counts: Sequence[int]) -> bool:
    """Whether messages between this entry's and the previous one's are missing."""
    if not 0 <= previous_position < position:
        return False
    if previous_position + 1 < position:
        return True
    # If the last total is that of the entry before it, the previous entry sends nothing.
    return unit_counts[-1:] == unit_counts[-2:-1]


def _position_of_entry(entry: Entry) -> int:
    """Return the position of the agent's own message that it is, or -1."""
    if isinstance(entry, UnchangedMessage | ChangedMessage):
        return entry.at
    return -1


def _messages_needed(entry: Entry) -> int:
    """Return how many messages must be as they are for the entry's units to be the same."""
    if isinstance(entry, InsertedText) and entry.covered:
        return entry.covered[-1][1]
    return _position_of_entry(entry) + 1


def pair_calls_with_results(
    wire: str, body: Mapping[str, Json], messages: Sequence[ProtocolMessage]
) -> dict[str, Json] | None:
    """Return the request with exactly one result for each call, or None if it is so already.

    Providers refuse a request with a call that has no result, or a result without its call. A
    result that answers none of the calls before it is left out, and a call without one gets a
    result that says so.
    """
    protocol: Any = WIRE_MODULES[wire]
    units: Units = []
    change_count = 0
    awaited_ids = set[str]()  # Of the calls of the last reply whose results follow.
    for position, message in enumerate(messages):
        stray_results = _positions_of_stray_results(message, awaited_ids)
        change_count += len(stray_results)
        for unit in _units_without_pieces(protocol, message, stray_results):
            units.append((unit, False))
        calls = message.pieces_of_kind(PieceKind.CALL)
        if not calls:
            continue

        ids_with_result = _ids_of_next_results(messages[position + 1 :])
        awaited_ids = set[str]()
        for call in calls:
            if call.id in ids_with_result:
                awaited_ids.add(call.id)
                continue
            change_count += 1
            result = protocol.result_message(call.id, call.name, NO_RESULT, ok=False)
            units.append((result, True))
    if not change_count:
        return None
    return with_messages(wire, body, protocol.merge_added_messages(units))


def _units_without_pieces(
    protocol: Any, message: ProtocolMessage, positions: Sequence[int]
) -> Sequence[Json]:
    """Return what a message is without these of its pieces."""
    if not positions:
        return message.units
    if len(positions) == len(message.pieces):
        return ()
    edits = [PieceEdit(position, None) for position in positions]
    units: Sequence[Json] = protocol.apply_edits(message, edits)
    return units


def _positions_of_stray_results(message: ProtocolMessage, awaited_ids: set[str]) -> list[int]:
    """Return the results of no waiting call. Calls that get theirs wait no longer."""
    stray_results: list[int] = []
    for position, piece in enumerate(message.pieces):
        if piece.kind is not PieceKind.RESULT:
            continue
        if piece.id in awaited_ids:
            awaited_ids.discard(piece.id)
        else:
            stray_results.append(position)
    return stray_results


def _ids_of_next_results(messages: Sequence[ProtocolMessage]) -> set[str]:
    """Return the calls whose results come before the next reply."""
    answered_ids = set[str]()
    for message in messages:
        if message.speaker is Speaker.ASSISTANT:
            break
        for result in message.pieces_of_kind(PieceKind.RESULT):
            answered_ids.add(result.id)
    return answered_ids


def _units_of_entry(protocol: Any, messages: Sequence[ProtocolMessage], entry: Entry) -> Units:
    """Return the JSON values ("units") that an entry of the view puts into the request.

    Each stands beside whether it was added here (`True`) or comes from the agent's own request.
    """
    if isinstance(entry, UnchangedMessage):
        return [(unit, False) for unit in messages[entry.at].units]
    if isinstance(entry, ChangedMessage):
        message = messages[entry.at]
        edited_units = _edit_message(protocol, message, entry.parts, entry.answers)
        if not edited_units and entry.at == 0:  # Providers want the user to speak first.
            return [(protocol.user_message(EXCLUDED), True)]
        return [(unit, False) for unit in edited_units]
    if isinstance(entry, InsertedText):
        fold_units = _units_of_fold(protocol, messages, entry)
        return [(unit, True) for unit in fold_units]
    if isinstance(entry, HiddenResult):
        result = protocol.result_message(entry.call, entry.name, entry.text, ok=entry.ok)
        return [(result, True)]
    hidden_reply = _parse_hidden_reply(protocol, entry.raw)
    reply_units = _edit_message(protocol, hidden_reply, entry.parts)
    return [(unit, True) for unit in reply_units]


def _units_of_fold(
    protocol: Any, messages: Sequence[ProtocolMessage], fold: InsertedText
) -> list[Json]:
    """Return the fold's text, and what goes on although the fold covers it."""
    units = [protocol.user_message(fold.text)]
    for first, end in fold.covered:
        units.extend(carried_units(protocol, messages[first:end]))
    return units


def _parse_hidden_reply(protocol: Any, raw: str) -> ProtocolMessage:
    """Return the message of a reply that its agent was not shown completely."""
    values = parse_hidden_messages(raw)
    message: ProtocolMessage
    if protocol is responses_gateway:  # Its messages are made of several items.
        message = protocol.parse_message(values)
    else:
        message = protocol.parse_message(values[0])
    return message


def _edit_message(
    protocol: Any,
    message: ProtocolMessage,
    parts: Sequence[ChangedPart],
    answers: Sequence[str] = (),
) -> Sequence[Json]:
    """Return a message with some of its parts shown as something else, or without them.

    A reply of which only the model's reasoning would be left is dropped, as providers refuse it.
    `answers`: the calls whose results in this message are recorded as outputs.
    """
    edits: dict[int, PieceEdit] = {}
    for part in parts:
        for position in _positions_of_part(message, part, answers):
            edits[position] = PieceEdit(position, part.text)

    removed_positions = {position for position, edit in edits.items() if edit.text is None}
    if removed_positions and not _says_something_without(message, removed_positions):
        return ()
    edited_units: Sequence[Json] = protocol.apply_edits(message, list(edits.values()))
    return edited_units


def _says_something_without(message: ProtocolMessage, removed_positions: set[int]) -> bool:
    for position, piece in enumerate(message.pieces):
        if position not in removed_positions and piece.kind is not PieceKind.REASONING:
            return True
    return False


def _positions_of_part(
    message: ProtocolMessage, part: ChangedPart, answers: Sequence[str]
) -> list[int]:
    """Return which of the message's pieces are the part."""
    match part.kind:
        case "reasoning":
            return _positions_of_kind(message, PieceKind.REASONING)
        case "result" | "call":
            positions = _positions_of_kind(message, PieceKind(part.kind))
            return [position for position in positions if message.pieces[position].id == part.name]
        case "text":
            return _positions_of_words(message, part.name)
    # What the user said is counted without the results that were recorded as outputs.
    user_positions: list[int] = []
    for position, piece in enumerate(message.pieces):
        is_recorded_output = piece.kind is PieceKind.RESULT and piece.id in answers
        if not is_recorded_output:
            user_positions.append(position)
    return user_positions[part.place : part.place + 1]


def _positions_of_kind(message: ProtocolMessage, kind: PieceKind) -> list[int]:
    return [position for position, piece in enumerate(message.pieces) if piece.kind is kind]


def _positions_of_words(message: ProtocolMessage, words: str) -> list[int]:
    """Find a reply's text by its words, as clients join and split texts: the pieces that have
    exactly these words, or else those that have them among others, or a part of them.
    """
    wanted_words = "".join(words.split())
    if words.startswith("["):
        block_positions = _positions_of_block(message, wanted_words)
        if block_positions:
            return block_positions
    exact_positions: list[int] = []
    similar_positions: list[int] = []
    for position, piece in enumerate(message.pieces):
        if piece.kind is PieceKind.TEXT:
            words_of_piece = "".join(piece.text.split())
        else:
            continue
        if words_of_piece == wanted_words:
            exact_positions.append(position)
        is_part_of_wanted = bool(words_of_piece) and words_of_piece in wanted_words
        if wanted_words in words_of_piece or is_part_of_wanted:
            similar_positions.append(position)
    return exact_positions or similar_positions


def _positions_of_block(message: ProtocolMessage, wanted_words: str) -> list[int]:
    """Find a block that nobody here reads by the words by which it is recorded."""
    positions: list[int] = []
    for position, piece in enumerate(message.pieces):
        if piece.has_own_text:
            continue
        # Earlier versions recorded the beginning alone.
        for recorded_words in (words_of_piece(piece), f"[{piece.text[:200]}]"):
            if "".join(recorded_words.split()) == wanted_words:
                positions.append(position)
                break
    return positions


# --- Placing marks for the provider's cache


def remember_client_marks(
    wire: str, units: Sequence[Json], marked: Collection[int] | None, previous: PreviousBody
) -> None:
    """Remember where an agent's own request, sent unchanged, asks the provider to cache it.

    The next request that we change is then marked so that it can be read from that cache. Only
    Anthropic's protocol has such marks. `marked`: the positions that may have one; None: any.
    """
    if wire != anthropic_gateway.NAME:
        return
    may_be_marked: Collection[int] = range(len(units))
    if marked is not None:
        may_be_marked = sorted(marked)
    bare_units = list(units)
    counts_up_to_marks: list[int] = []
    for position in may_be_marked:
        if anthropic_gateway.last_cache_mark(units[position]) is not None:
            bare_units[position] = anthropic_gateway.without_cache_marks(units[position])
            counts_up_to_marks.append(position + 1)
    next_request = previous.marked_request.mark_next_request(bare_units)
    previous.marked_request = replace(next_request, marks=tuple(counts_up_to_marks))


def _set_cache_marks(
    units: list[Json], usual_mark: Json, marks_elsewhere: int, previous: PreviousBody
) -> None:
    """Mark the messages behind which the provider should cache the request, in place of the
    agent's own marks: where it probably has it cached already, and at the end.

    `marks_elsewhere`: how many marks stay in other places, since a provider accepts only a few.
    """
    request = previous.marked_request.mark_next_request(list(units))
    new_blocks = 0
    for unit in units[request.stable :]:
        new_blocks += anthropic_gateway.count_content_blocks(unit)
    # From a mark, the provider looks so many blocks back for what it has cached.
    is_near = new_blocks < anthropic_gateway.LOOK_BACK
    most_marks = anthropic_gateway.MOST_MARKS - marks_elsewhere
    previous.marked_request = request.limit_marks(most_marks, near=is_near)

    # A message that had this mark before becomes the same value, not only an equal one.
    marked_by_bare_id = {id(bare_unit): marked for bare_unit, marked in previous.marked_units}
    marked_units: list[tuple[Json, Json]] = []
    for position in previous.marked_request.numbers_of_marked_blocks:
        bare_unit = units[position]
        marked_unit = marked_by_bare_id.get(id(bare_unit))
        if anthropic_gateway.last_cache_mark(marked_unit) != usual_mark:
            marked_unit = anthropic_gateway.with_cache_mark(bare_unit, usual_mark)
        marked_units.append((bare_unit, marked_unit))
        units[position] = marked_unit
    previous.marked_units = marked_units
