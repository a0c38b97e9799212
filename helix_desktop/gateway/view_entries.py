"""Describes the view as one entry for each message: unchanged, changed, or replaced.

Plain values, so the client's bytes and the journal can be in different processes.
"""

import asyncio
import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from operator import itemgetter

from helix_desktop.engine import facts, message_blocks
from helix_desktop.engine.agent_additions import SYSTEM_MESSAGE
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.messages import Block, Image, Role, View
from helix_desktop.engine.prompt_cache_marks import count_same_first_objects
from helix_desktop.fast_dataclass import dataclass

SLICE_SECONDS = 0.002  # In seconds. Work that takes longer pauses to let other tasks run.


@dataclass(frozen=True, slots=True)
class As:
    """The request's message at this position, unchanged."""

    at: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part shown as `text`, or left out (None). `name`: a call's id, or a text's original."""

    kind: str
    name: str
    place: int
    text: str | None


@dataclass(frozen=True, slots=True)
class Changed:
    """The message with some parts changed. `answers`: the calls whose results are outputs here."""

    at: int
    parts: tuple[Part, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Says:
    """A user's text in place of what a fold covers.

    `covered`: the positions of the covered messages, as pairs of the first one and the one
    behind the last. What the agent has loaded in them goes on behind the text. Messages of
    which the user took out something are left out.
    """

    text: str
    covered: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Hidden:
    """A reply that the agent was not shown completely, as its provider wrote it, with
    some parts changed.
    """

    raw: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Returned:
    """The result of a hidden call."""

    call: str
    name: str
    text: str
    ok: bool = True


Entry = As | Changed | Says | Hidden | Returned
CLIENT_MESSAGES = (As, Changed)  # Entries for the agent's own messages.


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
    taken_out: tuple[Changed, ...] = ()
    is_plain: bool = False
    has_fold: bool = False


@dataclass(slots=True)
class ViewEntriesBuilder:
    """Builds one view's entries. `seqs`: each message's last fact. `missing`: blocks whose
    content is needed but not in `contents`. `whole`: every block belongs to one of the messages.
    """

    conversation: Conversation
    seqs: Sequence[int]
    contents: Mapping[facts.Stored, str | Image]
    out: list[Entry] = field(default_factory=list)
    spans: list[facts.Span] = field(default_factory=list)
    missing: dict[facts.Stored, Block] = field(default_factory=dict)
    whole: bool = True
    _covered_until: int = 0

    async def build_entries(self, view: View, before: ViewEntries | None = None) -> ViewEntries:
        """Return the entries for the request's messages. `before`: those of the last
        view of this line.
        """
        blocks = view.blocks
        first = 0
        has_fold = False
        is_plain = True
        if before is not None and _only_adds_to(view, before):
            self._take_over_entries(before)
            first = before.messages
            blocks = view.blocks[len(before.blocks) :]
            has_fold = before.has_fold
            is_plain = before.is_plain
        known = len(self.out)
        await self._add_entries_of_blocks(blocks)
        self._insert_messages_without_facts(first, known)
        has_fold = has_fold or any(block.fold for block in blocks)
        if len(blocks) > 4_000:  # So many are not looked at twice without a pause.
            await asyncio.sleep(0)
        if has_fold or self.conversation.state.branch.exclusions:
            is_plain = False
        is_plain = is_plain and all(isinstance(one, CLIENT_MESSAGES) for one in self.out[known:])
        if is_plain:
            self._leave_messages_unchanged(known)
        else:
            self._begin_with_user()
        return ViewEntries(
            tuple(self.out),
            view.blocks,
            len(self.seqs),
            tuple(self.spans),
            view.seq,
            tuple(self.find_taken_out()),
            is_plain,
            has_fold,
        )

    def _take_over_entries(self, before: ViewEntries) -> None:
        self.out = list(before.entries)
        self.spans = list(before.spans)
        covered_ends = (bisect_right(self.seqs, span.last) for span in self.spans)
        self._covered_until = max(covered_ends, default=0)

    def _leave_messages_unchanged(self, known: int) -> None:
        """Make every new message one that goes on as it came, in its order."""
        positions = [entry.at for entry in self.out[known:] if type(entry) is As]
        if positions != [*range(known, len(self.seqs))]:
            self.out[known:] = map(As, range(known, len(self.seqs)))

    def _begin_with_user(self) -> None:
        """Providers want the user to speak first."""
        if not self.seqs:
            return
        if self.out:
            first = self.out[0]
            is_first_message = isinstance(first, As | Changed) and first.at == 0
            if isinstance(first, Says) or is_first_message:
                return
        self.out.insert(0, Says(message_blocks.EXCLUDED))

    def find_taken_out(self) -> Iterator[Changed]:
        """Yield messages of which the user took out something, without it and without folds."""
        branch = self.conversation.state.branch
        for position in self._positions_of_taken_out():
            recorded_facts = self._facts_of_message(position)
            blocks: list[Block] = []
            for recorded in recorded_facts:
                blocks.extend(branch.blocks_without_folds(recorded.seq))
            yield self._changed_message(position, recorded_facts, blocks)

    def _positions_of_taken_out(self) -> list[int]:
        branch = self.conversation.state.branch
        positions = set[int]()
        for cover in branch.exclusions:
            positions.update(bisect_left(self.seqs, ref.seq) for ref in branch.parts_within(cover))
        return sorted(positions - {len(self.seqs)})

    async def _add_entries_of_blocks(self, blocks: Sequence[Block]) -> None:
        spans = self.spans
        groups: dict[int, list[Block]] = {}
        until = time.perf_counter() + SLICE_SECONDS
        for block in blocks:
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_SECONDS
            if block.role is Role.SYSTEM:
                continue
            source = block.source
            if isinstance(source, facts.Span):
                spans.append(source)
                self._append_entries_of_groups(groups)
                covered = self._positions_in_span(source)
                self.out.append(Says(self._shown_text_of_block(block), covered))
            elif spans and spans[-1].first <= source.seq <= spans[-1].last:
                # This part is inside a fold that quotes it word for word.
                quoted = self._text_kept_word_for_word(block)
                if not quoted.startswith(SYSTEM_MESSAGE):  # The message itself goes on.
                    self.out.append(Says(quoted))
            else:
                at = bisect_left(self.seqs, source.seq)
                if at not in groups:
                    self._append_entries_of_groups(groups)
                groups.setdefault(at, []).append(block)
        self._append_entries_of_groups(groups)

    def _positions_in_span(self, span: facts.Span) -> tuple[tuple[int, int], ...]:
        """Return the messages that a fold covers, each fold's only once."""
        first = max(bisect_left(self.seqs, span.first), self._covered_until)
        end = bisect_right(self.seqs, span.last)
        self._covered_until = max(end, self._covered_until)
        positions = []
        for taken_out in self._positions_of_taken_out():
            if first <= taken_out < end:
                positions.append((first, taken_out))
                first = taken_out + 1
        positions.append((first, end))
        return tuple(pair for pair in positions if pair[0] < pair[1])

    def _append_entries_of_groups(self, groups: dict[int, list[Block]]) -> None:
        for at, blocks in groups.items():
            if at < len(self.seqs):
                self.out.extend(self._entries_of_message(at, blocks))
            else:
                self.whole = False
        groups.clear()

    def _facts_of_message(self, at: int) -> list[facts.Recorded]:
        state = self.conversation.state
        first = 1
        if at:
            first = self.seqs[at - 1] + 1
        seqs = state.branch.covered_messages(facts.Span(first, self.seqs[at]))
        return [state.facts[seq - 1] for seq in seqs]

    def _entries_of_message(self, at: int, blocks: Sequence[Block]) -> Iterator[Entry]:
        recorded_facts = self._facts_of_message(at)
        if any(map(_is_hidden_reply, recorded_facts)):
            yield from self._entries_of_hidden_reply(at, recorded_facts, blocks)
            return
        changed = self._changed_message(at, recorded_facts, blocks)
        if changed.parts:
            yield changed
        else:
            yield As(at)

    def _changed_message(
        self, at: int, recorded_facts: Sequence[facts.Recorded], blocks: Sequence[Block]
    ) -> Changed:
        parts: list[Part] = []
        answers: list[str] = []
        for recorded in recorded_facts:
            parts.extend(self._find_changed_parts(recorded, blocks))
            if isinstance(recorded.fact, facts.ToolReturned):
                answers.append(recorded.fact.call)
        return Changed(at, tuple(parts), tuple(answers))

    def _find_changed_parts(
        self, recorded: facts.Recorded, blocks: Sequence[Block]
    ) -> Iterator[Part]:
        shown = {block.source: block for block in blocks}
        parts = message_blocks.parts_of(message_blocks.require_message(recorded))
        for place, part in enumerate(parts):
            block = shown.get(facts.PartRef(recorded.seq, place))
            if self._is_part_changed(part, block):
                yield from self._describe_changed_part(recorded.fact, place, part, block)

    def _is_part_changed(self, part: object, block: Block | None) -> bool:
        if block is not None:
            return bool(block.fold) or self._is_exclusion_note(block, part)
        # Clients leave out empty texts themselves.
        return not isinstance(part, facts.Text) or bool(part.text.strip())

    def _describe_changed_part(
        self, fact: facts.Fact, place: int, part: object, block: Block | None
    ) -> Iterator[Part]:
        text: str | None = None
        if block is not None:
            text = self._shown_text_of_block(block)
        if isinstance(fact, facts.ToolReturned):
            if place == 0:  # The others are pictures of the same result.
                yield Part("result", fact.call, 0, text or "")
        elif isinstance(part, facts.ToolCall):
            arguments = "{}"
            if block is not None and isinstance(block.content, facts.ToolCall):
                arguments = block.content.arguments
            yield Part("call", part.id, place, arguments)
        elif isinstance(fact, facts.UserSaid):
            yield Part("said", "", place, text)
        elif isinstance(part, facts.Text):
            yield Part("text", part.text, place, text)
        elif isinstance(part, facts.Reasoning):
            yield Part("reasoning", part.text, place, text)

    @staticmethod
    def _is_exclusion_note(block: Block, part: object) -> bool:
        """Whether this part was replaced by a note because the user excluded it."""
        if isinstance(part, facts.ToolCall) and isinstance(block.content, facts.ToolCall):
            return block.content.arguments == message_blocks.EXCLUDED_ARGUMENTS != part.arguments
        return isinstance(part, facts.Stored) and isinstance(block.content, facts.Text)

    def _entries_of_hidden_reply(
        self, at: int, recorded_facts: Sequence[facts.Recorded], blocks: Sequence[Block]
    ) -> Iterator[Entry]:
        shown = {block.source: block for block in blocks}
        seen = {ref.seq for ref in shown if isinstance(ref, facts.PartRef)}
        for recorded in recorded_facts:
            fact = recorded.fact
            if recorded.seq not in seen:
                continue  # A fold replaces this whole step.
            if isinstance(fact, facts.ModelReplied):
                changes = tuple(self._find_changed_parts(recorded, blocks))
                if fact.raw:
                    yield Hidden(fact.raw, changes)
                else:
                    yield As(at)
            elif isinstance(fact, facts.ToolReturned):
                block = shown.get(facts.PartRef(recorded.seq))
                yield self._returned_of_hidden_call(fact, block)

    def _returned_of_hidden_call(self, fact: facts.ToolReturned, block: Block | None) -> Returned:
        calls = self.conversation.state.branch.calls
        name = ""
        if fact.call in calls:
            name = calls[fact.call].call.name
        text = message_blocks.EXCLUDED
        if block is not None:
            text = self._shown_text_of_block(block)
        return Returned(fact.call, name, text, fact.ok)

    def _insert_messages_without_facts(self, first: int, known: int) -> None:
        """Leave empty messages, which have no facts, in place unless a fold covers them."""
        # A set of numbers would take as much memory as the entries.
        is_there = bytearray(len(self.seqs))
        for entry in self.out[known:]:
            if isinstance(entry, CLIENT_MESSAGES):
                is_there[entry.at] = True
        for span in self.spans:
            low = bisect_left(self.seqs, span.first)
            high = bisect_right(self.seqs, span.last)
            is_there[low:high] = bytes([True]) * (high - low)
        empty = []
        for at in range(first, len(self.seqs)):
            if not is_there[at] and not self._facts_of_message(at):
                empty.append((at, As(at)))
        if empty:
            # Entries that are no message of the agent's stay behind the one before them.
            positions = accumulate((getattr(entry, "at", -1) for entry in self.out[known:]), max)
            placed: list[tuple[int, Entry]] = list(zip(positions, self.out[known:], strict=True))
            placed.extend(empty)
            placed.sort(key=itemgetter(0))
            self.out[known:] = [entry for _, entry in placed]

    def _shown_text_of_block(self, block: Block) -> str:
        content = block.content
        if isinstance(content, facts.ToolCall):
            return content.arguments
        if not isinstance(content, facts.Stored | facts.Attachment):
            return content.text
        if isinstance(content, facts.Stored):
            stored = content
        else:
            stored = content.stored
        shown = self.contents.get(stored)
        if shown is None:
            self.missing[stored] = block
        if isinstance(shown, str):
            return shown
        return "[image]"

    def _text_kept_word_for_word(self, block: Block) -> str:
        text = self._shown_text_of_block(block)
        if isinstance(block.content, facts.ToolCall):
            return f"[Kept word for word: call of {block.content.name}]\n{text}"
        if block.call:
            return f"[Kept word for word: output of call {block.call}]\n{text}"
        return text


def _only_adds_to(view: View, before: ViewEntries) -> bool:
    return count_same_first_objects(view.blocks, before.blocks) == len(before.blocks)


def _is_hidden_reply(recorded: facts.Recorded) -> bool:
    return isinstance(recorded.fact, facts.ModelReplied) and bool(recorded.fact.raw)


def without_taken_out(count: int, taken_out: Sequence[Changed]) -> tuple[Entry, ...]:
    """Return so many messages unchanged, except for what the user took out."""
    if not taken_out:
        return ()
    changed = {message.at: message for message in taken_out}
    return tuple(changed.get(at, As(at)) for at in range(count))


def parse_hidden_messages(raw: str) -> list[object]:
    value = json.loads(raw)
    if isinstance(value, list):
        return value
    return [value]
