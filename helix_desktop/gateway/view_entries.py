"""Describes the view as one entry for each message: unchanged, changed, or replaced.

Plain values, so the client's bytes and the journal can be in different processes.
"""

import asyncio
import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from operator import itemgetter

from helix_desktop.engine import facts, message_blocks
from helix_desktop.engine.agent_additions import SYSTEM_MESSAGE
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.messages import Block, Image, Role, View
from helix_desktop.engine.prompt_cache_marks import count_same_first_objects
from helix_desktop.fast_dataclass import dataclass

SLICE_SECONDS = 0.002  # In seconds. Work that takes longer pauses to let other tasks run.
BLOCKS_BEFORE_PAUSE = 4_000  # So many blocks are not looked at twice without a pause.


@dataclass(frozen=True, slots=True)
class UnchangedMessage:
    """The request's message at the position `at`, sent as it came."""

    at: int


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """A part shown as `text`, or left out (None). `name`: a call's id, or a text's original."""

    kind: str
    name: str
    place: int
    text: str | None


@dataclass(frozen=True, slots=True)
class ChangedMessage:
    """The request's message at the position `at`, with some parts changed. `answers`: the calls
    whose results are outputs here.
    """

    at: int
    parts: tuple[ChangedPart, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertedText:
    """A user's text in place of what a fold covers.

    `covered`: the positions of the covered messages, as pairs of the first one and the one
    behind the last. What the agent has loaded in them goes on behind the text. Messages of
    which the user took out something are left out.
    """

    text: str
    covered: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenReply:
    """A reply that the agent was not shown completely, as its provider wrote it, with
    some parts changed.
    """

    raw: str
    parts: tuple[ChangedPart, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenResult:
    """The result of a hidden call."""

    call: str
    name: str
    text: str
    ok: bool = True


Entry = UnchangedMessage | ChangedMessage | InsertedText | HiddenReply | HiddenResult
CLIENT_MESSAGES = (UnchangedMessage, ChangedMessage)  # Entries for the agent's own messages.


@dataclass(frozen=True, slots=True)
class ViewEntries:
    """A view's entries, kept so that the next view is only computed from where it differs.
    `messages`: how many they are for. `seq`: the view's newest fact. `taken_out`: as in `Sent`.
    `is_plain`: every message is sent as it came.
    """

    entries: tuple[Entry, ...]
    blocks: tuple[Block, ...]
    messages: int
    spans: tuple[facts.Span, ...]
    seq: int
    taken_out: tuple[ChangedMessage, ...] = ()
    is_plain: bool = False
    has_fold: bool = False


@dataclass(slots=True)
class ViewEntriesBuilder:
    """Builds one view's entries. `seqs`: each message's last fact. `out`: the entries so far.
    `spans`: what folds cover. `missing`: blocks whose content is needed but not in `contents`.
    `whole`: every block belongs to one of the messages. `_covered_until`: the position behind
    the last message that a fold covers. `_first_seq`: where the facts of the messages begin.
    """

    conversation: Conversation
    seqs: Sequence[int]
    contents: Mapping[facts.Stored, str | Image]
    out: list[Entry] = field(default_factory=list)
    spans: list[facts.Span] = field(default_factory=list)
    missing: dict[facts.Stored, Block] = field(default_factory=dict)
    whole: bool = True
    _covered_until: int = 0
    _first_seq: int = field(init=False)

    def __post_init__(self) -> None:
        self._first_seq = _find_first_seq(self.conversation, self.seqs)

    async def build_entries(self, view: View, before: ViewEntries | None = None) -> ViewEntries:
        """Return an entry for each of the request's messages, which says what it is sent as.

        `before`: the entries of the last view of this conversation. If this view only adds to that
        one, only what is new is gone through.
        """
        if before is not None and _only_adds_to(view, before):
            known = before
        else:
            known = ViewEntries(entries=(), blocks=(), messages=0, spans=(), seq=0, is_plain=True)
        self._take_over_entries(known)
        known_count = len(self.out)
        new_blocks = view.blocks[len(known.blocks) :]
        await self._add_entries_of_blocks(new_blocks)
        self._insert_messages_without_facts(known.messages, known_count)

        has_fold = known.has_fold or any(block.fold for block in new_blocks)
        if len(new_blocks) > BLOCKS_BEFORE_PAUSE:
            await asyncio.sleep(0)
        has_exclusions = bool(self.conversation.state.branch.exclusions)
        may_be_plain = known.is_plain and not has_fold and not has_exclusions
        is_plain = may_be_plain and self._are_all_messages_of_agent(known_count)
        if is_plain:
            self._leave_messages_unchanged(known_count)
        else:
            self._begin_with_user()
        taken_out = tuple(self.find_taken_out())
        return ViewEntries(
            entries=tuple(self.out),
            blocks=view.blocks,
            messages=len(self.seqs),
            spans=tuple(self.spans),
            seq=view.seq,
            taken_out=taken_out,
            is_plain=is_plain,
            has_fold=has_fold,
        )

    def _take_over_entries(self, before: ViewEntries) -> None:
        """Begin with the entries of the last view."""
        self.out = list(before.entries)
        self.spans = list(before.spans)
        self._covered_until = 0
        for span in self.spans:
            end_of_covered = bisect_right(self.seqs, span.last)
            self._covered_until = max(self._covered_until, end_of_covered)

    def _are_all_messages_of_agent(self, first: int) -> bool:
        """Whether all entries from this one on are messages of the agent's own."""
        for entry in self.out[first:]:
            if not isinstance(entry, CLIENT_MESSAGES):
                return False
        return True

    def _leave_messages_unchanged(self, known_count: int) -> None:
        """Make every new message one that goes on as it came, in its order."""
        positions = [
            entry.at for entry in self.out[known_count:] if type(entry) is UnchangedMessage
        ]
        all_new_positions = range(known_count, len(self.seqs))
        if positions != list(all_new_positions):
            self.out[known_count:] = map(UnchangedMessage, all_new_positions)

    def _begin_with_user(self) -> None:
        """Put a note before entries that begin with a reply: providers want the user to speak
        first.
        """
        if not self.seqs:
            return
        if self.out:
            first_entry = self.out[0]
            is_first_message = (
                isinstance(first_entry, UnchangedMessage | ChangedMessage) and first_entry.at == 0
            )
            if isinstance(first_entry, InsertedText) or is_first_message:
                return
        self.out.insert(0, InsertedText(message_blocks.EXCLUDED))

    def find_taken_out(self) -> Iterator[ChangedMessage]:
        """Yield the messages of which the user took something out of the context, without it.

        This is needed where a request goes on unfolded: what the user took out is never sent.
        """
        branch = self.conversation.state.branch
        for position in self._positions_of_taken_out():
            recorded_facts = self._facts_of_message(position)
            blocks: list[Block] = []
            for recorded in recorded_facts:
                blocks.extend(branch.blocks_without_folds(recorded.seq))
            yield self._changed_message(position, recorded_facts, blocks)

    def _positions_of_taken_out(self) -> list[int]:
        """Return the messages of which the user took out something."""
        branch = self.conversation.state.branch
        positions = set[int]()
        for exclusion in branch.exclusions:
            for part in branch.parts_within(exclusion):
                if part.seq >= self._first_seq:
                    positions.add(self._position_of_fact(part.seq))
        position_behind_last = len(self.seqs)
        positions.discard(position_behind_last)
        return sorted(positions)

    def _position_of_fact(self, seq: int) -> int:
        """Return the message that a fact belongs to: the first one that ends with it or later."""
        return bisect_left(self.seqs, seq)

    async def _add_entries_of_blocks(self, blocks: Sequence[Block]) -> None:
        """Add the entries of the messages whose blocks these are: a block is what the model is
        shown of one part of a message.

        The blocks of one message follow each other, so they are collected until those of another
        one begin. A block whose source is a span is the text of a fold, which stands in place of
        several messages. Blocks of these messages behind it are what the fold quotes.
        """
        collected: dict[int, list[Block]] = {}
        pause_at = time.perf_counter() + SLICE_SECONDS
        for block in blocks:
            if time.perf_counter() > pause_at:
                await asyncio.sleep(0)
                pause_at = time.perf_counter() + SLICE_SECONDS
            if block.role is Role.SYSTEM:
                continue
            source = block.source
            if isinstance(source, facts.Span):
                if source.last < self._first_seq:
                    continue  # The agent's own summary, which its first message has.
                self.spans.append(source)
                self._append_entries_of_messages(collected)
                covered = self._positions_in_span(source)
                fold_text = self._shown_text_of_block(block)
                self.out.append(InsertedText(fold_text, covered))
            elif source.seq < self._first_seq:
                continue  # The agent sends its summary instead.
            elif self._is_in_last_fold(source.seq):  # The fold quotes this part word for word.
                quotation = self._text_kept_word_for_word(block)
                if not quotation.startswith(SYSTEM_MESSAGE):  # The message itself goes on.
                    self.out.append(InsertedText(quotation))
            else:
                position = self._position_of_fact(source.seq)
                if position not in collected:
                    self._append_entries_of_messages(collected)
                collected.setdefault(position, []).append(block)
        self._append_entries_of_messages(collected)

    def _is_in_last_fold(self, seq: int) -> bool:
        if not self.spans:
            return False
        last_span = self.spans[-1]
        return last_span.first <= seq <= last_span.last

    def _positions_in_span(self, span: facts.Span) -> tuple[tuple[int, int], ...]:
        """Return the messages that a fold covers, without those taken out, as pairs of the first
        one and the one behind the last. What an earlier fold covers is not returned again.
        """
        first = max(bisect_left(self.seqs, span.first), self._covered_until)
        end = bisect_right(self.seqs, span.last)
        self._covered_until = max(end, self._covered_until)

        covered: list[tuple[int, int]] = []
        run_start = first  # Where the messages begin that follow the last one taken out.
        for taken_out in self._positions_of_taken_out():
            if not run_start <= taken_out < end:
                continue
            if run_start < taken_out:
                covered.append((run_start, taken_out))
            run_start = taken_out + 1
        if run_start < end:
            covered.append((run_start, end))
        return tuple(covered)

    def _append_entries_of_messages(self, collected: dict[int, list[Block]]) -> None:
        """Append the entries of the collected blocks, by their messages, and forget them."""
        for position, blocks in collected.items():
            if position < len(self.seqs):
                self.out.extend(self._entries_of_message(position, blocks))
            else:
                self.whole = False
        collected.clear()

    def _facts_of_message(self, position: int) -> list[facts.Recorded]:
        """Return the facts that one of the agent's messages was recorded as."""
        state = self.conversation.state
        first_seq = self._first_seq
        if position:
            first_seq = self.seqs[position - 1] + 1
        span = facts.Span(first_seq, self.seqs[position])
        return [state.facts[seq - 1] for seq in state.branch.covered_messages(span)]

    def _entries_of_message(self, position: int, blocks: Sequence[Block]) -> Iterator[Entry]:
        """Yield the entries of one message: a single one, but for a reply with hidden calls."""
        recorded_facts = self._facts_of_message(position)
        if any(map(_is_hidden_reply, recorded_facts)):
            yield from self._entries_of_hidden_reply(position, recorded_facts, blocks)
            return

        changed = self._changed_message(position, recorded_facts, blocks)
        if changed.parts:
            yield changed
        else:
            yield UnchangedMessage(position)

    def _changed_message(
        self, position: int, recorded_facts: Sequence[facts.Recorded], blocks: Sequence[Block]
    ) -> ChangedMessage:
        """Return the message with its parts that these blocks show in another way."""
        changed_parts: list[ChangedPart] = []
        answered_calls: list[str] = []
        for recorded in recorded_facts:
            changed_parts.extend(self._find_changed_parts(recorded, blocks))
            if isinstance(recorded.fact, facts.ToolReturned):
                answered_calls.append(recorded.fact.call)
        return ChangedMessage(position, tuple(changed_parts), tuple(answered_calls))

    def _find_changed_parts(
        self, recorded: facts.Recorded, blocks: Sequence[Block]
    ) -> Iterator[ChangedPart]:
        """Yield the parts of a fact that are not sent as the agent wrote them."""
        blocks_by_source = {block.source: block for block in blocks}
        parts = message_blocks.parts_of(message_blocks.require_message(recorded))
        for part_number, part in enumerate(parts):
            block = blocks_by_source.get(facts.PartRef(recorded.seq, part_number))
            if self._is_part_changed(part, block):
                yield from self._describe_changed_part(recorded.fact, part_number, part, block)

    def _is_part_changed(self, part: object, block: Block | None) -> bool:
        """Whether the block that shows a part differs from it. Without a block, it is left out."""
        if block is not None:
            return bool(block.fold) or self._is_exclusion_note(block, part)
        # Clients leave out empty texts themselves.
        return not isinstance(part, facts.Text) or bool(part.text.strip())

    def _describe_changed_part(
        self, fact: facts.Fact, part_number: int, part: object, block: Block | None
    ) -> Iterator[ChangedPart]:
        """Yield how the part with this number in its message is shown: what kind of part it is,
        by which name it is found in the agent's message, and the text in its place.

        `block`: what is shown of it; None: it is left out.
        """
        text: str | None = None
        if block is not None:
            text = self._shown_text_of_block(block)
        if isinstance(fact, facts.ToolReturned):
            if part_number == 0:  # The others are pictures of the same result.
                yield ChangedPart("result", fact.call, 0, text or "")
        elif isinstance(part, facts.ToolCall):
            arguments = "{}"
            if block is not None and isinstance(block.content, facts.ToolCall):
                arguments = block.content.arguments
            yield ChangedPart("call", part.id, part_number, arguments)
        elif isinstance(fact, facts.UserSaid):
            yield ChangedPart("said", "", part_number, text)
        elif isinstance(part, facts.Text):
            yield ChangedPart("text", part.text, part_number, text)
        elif isinstance(part, facts.Reasoning):
            yield ChangedPart("reasoning", part.text, part_number, text)

    @staticmethod
    def _is_exclusion_note(block: Block, part: object) -> bool:
        """Whether this part was replaced by a note because the user excluded it."""
        if isinstance(part, facts.ToolCall) and isinstance(block.content, facts.ToolCall):
            shows_note = block.content.arguments == message_blocks.EXCLUDED_ARGUMENTS
            return shows_note and part.arguments != message_blocks.EXCLUDED_ARGUMENTS
        return isinstance(part, facts.Stored) and isinstance(block.content, facts.Text)

    def _entries_of_hidden_reply(
        self, position: int, recorded_facts: Sequence[facts.Recorded], blocks: Sequence[Block]
    ) -> Iterator[Entry]:
        """Yield a reply in which the model recalled something: each step of it, and at the end
        what the agent was shown.
        """
        blocks_by_source = {block.source: block for block in blocks}
        shown_seqs = set[int]()
        for source in blocks_by_source:
            if isinstance(source, facts.PartRef):
                shown_seqs.add(source.seq)

        for recorded in recorded_facts:
            fact = recorded.fact
            if recorded.seq not in shown_seqs:
                continue  # A fold replaces this whole step.
            if isinstance(fact, facts.ModelReplied):
                changed_parts = tuple(self._find_changed_parts(recorded, blocks))
                if fact.raw:
                    yield HiddenReply(fact.raw, changed_parts)
                else:
                    yield UnchangedMessage(position)
            elif isinstance(fact, facts.ToolReturned):
                block = blocks_by_source.get(facts.PartRef(recorded.seq))
                yield self._returned_of_hidden_call(fact, block)

    def _returned_of_hidden_call(
        self, fact: facts.ToolReturned, block: Block | None
    ) -> HiddenResult:
        """Return the result of a hidden call as the block shows it. None: it was taken out."""
        calls = self.conversation.state.branch.calls
        name = ""
        if fact.call in calls:
            name = calls[fact.call].call.name
        text = message_blocks.EXCLUDED
        if block is not None:
            text = self._shown_text_of_block(block)
        return HiddenResult(fact.call, name, text, fact.ok)

    def _insert_messages_without_facts(self, first_new: int, known_count: int) -> None:
        """Leave empty messages, which have no facts, in place unless a fold covers them.

        `first_new`: the first message that may be missing. `known_count`: the entries that stay.
        """
        # A byte for each message: a set of numbers would take as much memory as the entries.
        is_represented = bytearray(len(self.seqs))
        for entry in self.out[known_count:]:
            if isinstance(entry, CLIENT_MESSAGES):
                is_represented[entry.at] = True
        for span in self.spans:
            first_covered = bisect_left(self.seqs, span.first)
            end_of_covered = bisect_right(self.seqs, span.last)
            covered_count = end_of_covered - first_covered
            is_represented[first_covered:end_of_covered] = bytes([True]) * covered_count

        empty_messages: list[int] = []
        for position in range(first_new, len(self.seqs)):
            if not is_represented[position] and not self._facts_of_message(position):
                empty_messages.append(position)
        if empty_messages:
            self._insert_entries_by_position(empty_messages, known_count)

    def _insert_entries_by_position(self, positions: Sequence[int], known_count: int) -> None:
        """Insert messages among the entries behind the known ones. Entries that are no message
        of the agent's stay behind the one before them.
        """
        entries_with_position: list[tuple[int, Entry]] = []
        highest_position = -1
        for entry in self.out[known_count:]:
            if isinstance(entry, CLIENT_MESSAGES):
                highest_position = max(highest_position, entry.at)
            entries_with_position.append((highest_position, entry))
        for position in positions:
            entries_with_position.append((position, UnchangedMessage(position)))

        # Sorting keeps the order of those with the same position.
        entries_with_position.sort(key=itemgetter(0))
        self.out[known_count:] = [entry for _, entry in entries_with_position]

    def _shown_text_of_block(self, block: Block) -> str:
        """Return a block's text. If its content is not read yet, it is added to `missing`."""
        content = block.content
        if isinstance(content, facts.ToolCall):
            return content.arguments
        if not isinstance(content, facts.Stored | facts.Attachment):
            return content.text
        if isinstance(content, facts.Stored):
            stored = content
        else:
            stored = content.stored
        text_or_image = self.contents.get(stored)
        if text_or_image is None:
            self.missing[stored] = block
        if isinstance(text_or_image, str):
            return text_or_image
        return "[image]"

    def _text_kept_word_for_word(self, block: Block) -> str:
        """Return what a fold quotes of a part, with what it was."""
        text = self._shown_text_of_block(block)
        if isinstance(block.content, facts.ToolCall):
            return f"[Kept word for word: call of {block.content.name}]\n{text}"
        if block.call:
            return f"[Kept word for word: output of call {block.call}]\n{text}"
        return text


def _find_first_seq(conversation: Conversation, seqs: Sequence[int]) -> int:
    """Return the fact with which the agent's messages begin: the fold that its first message has,
    if that is its own summary of all that came before, or else the first fact.
    """
    if not seqs:
        return 1
    for seq in range(seqs[0], 0, -1):
        fact = conversation.fact_at(seq)
        if isinstance(fact, facts.Folded):
            if fact.is_by_agent and isinstance(fact.cover, facts.Span):
                return seq
        elif isinstance(fact, facts.ModelReplied | facts.ToolReturned):
            break
    return 1


def _only_adds_to(view: View, before: ViewEntries) -> bool:
    """Whether the view begins with all blocks of the last one."""
    same_count = count_same_first_objects(view.blocks, before.blocks)
    return same_count == len(before.blocks)


def _is_hidden_reply(recorded: facts.Recorded) -> bool:
    return isinstance(recorded.fact, facts.ModelReplied) and bool(recorded.fact.raw)


def without_taken_out(message_count: int, taken_out: Sequence[ChangedMessage]) -> tuple[Entry, ...]:
    """Return so many messages unchanged, except for what the user took out. Without that, no
    entries are needed.
    """
    if not taken_out:
        return ()
    changed_by_position = {message.at: message for message in taken_out}
    return tuple(
        changed_by_position.get(position, UnchangedMessage(position))
        for position in range(message_count)
    )


def parse_hidden_messages(raw: str) -> list[object]:
    value = json.loads(raw)
    if isinstance(value, list):
        return value
    return [value]
