"""Turns facts, and the events of a running session, into the items of the chat, in order. Plain
Python, one step for each fact.

The chat mirrors the journal, so items are only appended and changed in place. The exceptions are at
the end: the reply that is being written (live items) is replaced by its fact. Rewound items are
hidden, not removed. The history decides which folds and pins are in force and what a rewind left
behind.
"""

import gc
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, fields
from itertools import islice
from typing import Any

from helix_desktop.engine import facts, session_events
from helix_desktop.engine.agent_additions import (
    is_added_by_agent,
    name_of_agent_addition,
    split_off_agent_additions,
)
from helix_desktop.engine.messages import CallDelta, Delta, ReasoningDelta, RetryDelay, TextDelta
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.answer_author import name_over_answer
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.transcript.alternative_answers import (
    AlternativeAnswers,
    AnswerChoice,
    is_fact_on_path,
)
from helix_desktop.gui.transcript.collapsed_calls import CallGroup, CallGroups
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.status_lines import (
    describe_changed_files,
    describe_fact_if_needed,
)
from helix_desktop.gui.transcript.tool_call_records import (
    RecordedResult,
    ToolCallRecord,
    ToolCallRecords,
)
from helix_desktop.gui.transcript.transcript_item import (
    ItemChanges,
    ToolCallState,
    TranscriptItem,
    TranscriptItemKind,
)
from helix_desktop.gui.translation import tr, translate_name

_WRITTEN_BY_AGENT = frozenset({TranscriptItemKind.REPLY, TranscriptItemKind.CALL})
_GONE_ONCE_SOMETHING_ARRIVES = frozenset({TranscriptItemKind.WAITING, TranscriptItemKind.LIVE_NOTE})
_GROUPED = frozenset({TranscriptItemKind.CALL, TranscriptItemKind.REASONING})
_BUSY = frozenset(
    {ConversationActivity.TOOLS, ConversationActivity.ASKING, ConversationActivity.THINKING}
)
PIECE = 500  # So many entries are freed at a time.
FARTHEST = 2_000  # The search for the end of an answer covers at most this many items.
# Stands for the fact number of an unfinished item. It is larger than any real number.
_NOT_YET = 1 << 60

# What is said below a turn when it ends.
_SAID_AT_END_OF_TURN = frozenset((TranscriptItemKind.NOTE, TranscriptItemKind.CHANGES))


@dataclass(frozen=True, slots=True)
class RewoundItems:
    """The items from `first` to `last`, which a rewind removed. `count`: how many of them say
    something, without the lines of earlier rewinds.
    """

    first: int
    last: int
    count: int
    are_shown: bool


@dataclass(slots=True)
class TranscriptItems:
    """One conversation's items. Only its methods change `all`. A missing history is built."""

    history: ConversationState = field(default_factory=ConversationState)
    all: list[TranscriptItem] = field(default_factory=list)
    running: ConversationActivity = ConversationActivity.IDLE
    grouping: bool = True  # True if consecutive calls are shown as one line.
    groups: CallGroups = field(default_factory=CallGroups)
    _answers: AlternativeAnswers = field(default_factory=AlternativeAnswers)
    # The facts that started the conversation or made it a fork.
    _starts: list[facts.Recorded] = field(default_factory=list)
    _is_foreign: bool = False  # True if an agent's own program writes the conversation now.
    # True if it does so through the gateway: then only that program can go back or ask again.
    is_written_by_connected_agent: bool = False
    _last_cut: int = 0  # The fact number of the last reply if its stream broke, otherwise 0.
    # The last reply if it was stopped and its turn has not ended: a message is to be sent at once.
    _stopped_reply: facts.Recorded | None = None
    _broken_reply_seq: int = 0  # The fact number of a broken reply that is being repeated, or 0.
    # Fact numbers of broken replies and of their replacements.
    _replaced: list[tuple[int, int]] = field(default_factory=list)
    # When the model is asked again after a failed request, by the monotonic clock.
    retry_at: float = 0.0
    # The summary or the notes that the next request of the turn waits for.
    awaited_fold: session_events.FoldProgress | None = None
    _error: int = -1  # The index of the last failure's item if nothing follows it, otherwise -1.
    # The index of the last failed fold's item if no fold follows it, otherwise -1.
    failed_fold: int = -1
    # The fact number of each item of `all`, in order, to find items by their facts.
    _seqs: "array[int]" = field(default_factory=lambda: array("q"))
    # The index of the first live item: a part of the reply that is being written. -1 without one.
    _live_from: int = -1
    # The item and the name of each call that is being written, by its number in the reply.
    _live_calls: dict[int, int] = field(default_factory=dict)
    _live_call_names: dict[int, str] = field(default_factory=dict)
    calls: ToolCallRecords = field(default_factory=ToolCallRecords)
    _folds: dict[str, facts.Folded] = field(default_factory=dict)
    _fold_items: dict[str, int] = field(default_factory=dict)
    _batches: dict[str, list[facts.Folded]] = field(default_factory=dict)
    newest_seq: int = 0  # The number of the newest fact.
    # The fact numbers of rewinds whose items are shown.
    _opened: set[int] = field(default_factory=set)
    # The ranges of hidden items, or None if they must be computed again.
    _hidden_ranges: list[tuple[int, int]] | None = field(default_factory=list)
    _has_answer_name: bool = False
    # The turn's changes until now.
    _changes: dict[int, facts.FilesChanged] = field(default_factory=dict)
    # Keyed by the turn's last fact.
    _changes_of_line: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _undone_changes: set[int] = field(default_factory=set)
    # The changes of which the user has undone or redone a part, and not the whole.
    _partly_undone_changes: set[int] = field(default_factory=set)

    def add_many_facts(self, recorded_facts: Iterable[facts.Recorded]) -> None:
        """Adds many facts, as at opening, without garbage collection: nothing created
        is garbage.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            for recorded in recorded_facts:
                self._advance_history(recorded)
                step = _STEPS.get(type(recorded.fact))
                if step is not None:
                    step(self, recorded, recorded.fact)
        finally:
            if collecting:
                gc.enable()

    def clear_in_slices(self) -> Iterator[None]:
        """Empties the object in slices: to free a long conversation at once would block."""
        for owner in (self, self.calls):
            for owner_field in fields(owner):
                container = getattr(owner, owner_field.name)
                if isinstance(container, list):
                    yield from _clear_list_in_slices(container)
                elif isinstance(container, dict):
                    yield from _clear_table_in_slices(container)

    def show_session_event(self, event: session_events.Event, now: float) -> ItemChanges | None:
        """Applies an event. Returns None for one that the chat does not show."""
        match event:
            case session_events.FactAppended(recorded):
                return self.show_fact(recorded)
            case session_events.ReplyStreamed(_, delta):
                return self.append_reply_delta(delta, now)
            case session_events.ActivityChanged(_, activity):
                return self.set_run_state(activity)
            case session_events.FoldProgress():
                return self.show_fold_progress(event, now)
        changed_items = self._apply_event_of_call(event, now)
        if changed_items is None:
            return None
        return self.build_changes(changed_items)

    def _apply_event_of_call(
        self, event: session_events.Event, now: float
    ) -> tuple[int, ...] | None:
        """Returns the items of the calls that the event changed, or None if it is about none."""
        match event:
            case session_events.ToolPrinted(_, call, text):
                return self.calls.append_output(call, text)
            case session_events.CallStageChanged(_, call, stage):
                return self.calls.set_stage(call, stage, now)
            case session_events.QuestionAsked(_, number, question):
                return self.calls.set_call_of_question(number, question.call.id)
            case session_events.QuestionAnswered(_, number):
                return self.calls.mark_call_running_after_answer(number, now)
        return None

    def show_fact(self, recorded: facts.Recorded) -> ItemChanges:
        """Updates the items for the next fact of the conversation, and says which have changed.

        The items of a reply that is still being written (the live items) always stand last. They
        are taken off the list while the fact adds its own items, and put back below them.
        """
        self._advance_history(recorded)
        step = _STEPS.get(type(recorded.fact))
        if step is None:
            return ItemChanges(len(self.all))

        # After these facts, nothing of the unfinished reply is left to show.
        if isinstance(recorded.fact, facts.ModelReplied | facts.TurnEnded | facts.Rewound):
            self._remove_live_items()
        live_items: list[TranscriptItem] = []
        if self._live_from >= 0:
            live_items = self._detach_live_items()

        first_new = len(self.all)
        changed_items: set[int] = set()
        for index in step(self, recorded, recorded.fact):
            if index < first_new:
                changed_items.add(index)
        self._reattach_live_items(live_items)

        is_rewind = isinstance(recorded.fact, facts.Rewound)
        must_hide_others = self._hidden_ranges is None
        return ItemChanges(
            first_new,
            frozenset(changed_items),
            is_visibility_changed=is_rewind or must_hide_others,
        )

    def append_reply_delta(self, delta: Delta, now: float = 0.0) -> ItemChanges:
        if isinstance(delta, TextDelta):
            return self._extend_live_text(TranscriptItemKind.LIVE_REPLY, delta.text)
        if isinstance(delta, ReasoningDelta):
            return self._extend_live_text(TranscriptItemKind.LIVE_REASONING, delta.text)
        if isinstance(delta, CallDelta):
            return self._extend_live_call(delta)
        if isinstance(delta, RetryDelay):
            self.retry_at = now + delta.seconds
            return self._add_live_item(TranscriptItemKind.WAITING, translate_sentences(delta.why))
        return ItemChanges(len(self.all))

    def show_fold_progress(
        self, progress: session_events.FoldProgress, now: float
    ) -> ItemChanges | None:
        """Shows that the next request waits for a fold, and why its model is asked again.

        Returns None for a fold for which nothing waits: the chat shows it once it is made.
        """
        is_awaited = progress.is_waited_for and not progress.done
        if not is_awaited and self.awaited_fold is None:
            return None
        if is_awaited:
            self.awaited_fold = progress
            self.retry_at = now + progress.retry_seconds
            return self._add_live_item(
                TranscriptItemKind.WAITING, translate_sentences(progress.retry_why)
            )
        self.awaited_fold = None
        if self.retry_wait_item >= 0:
            self._remove_live_items()
        first_new = self._show_or_remove_line_of_thinking()
        return ItemChanges(first_new, is_visibility_changed=self._hidden_ranges is None)

    def describe_wait_for_fold(self) -> str:
        for item in reversed(self.all[: max(self._live_from, 0)]):
            if item.kind is TranscriptItemKind.USER:
                return tr("Your message waits until the older messages are summarized.")
            if item.kind in _WRITTEN_BY_AGENT:
                break
        return tr("The work goes on once the older messages are summarized.")

    def build_changes(self, changed: Iterable[int]) -> ItemChanges:
        return ItemChanges(len(self.all), frozenset(changed))

    def set_run_state(self, running: ConversationActivity) -> ItemChanges:
        self.running = running
        changed = list(self.calls.open_items)
        changed.extend(self._latest_failure_item())
        first_new = self._show_or_remove_line_of_thinking()
        return ItemChanges(
            first_new, frozenset(changed), is_visibility_changed=self._hidden_ranges is None
        )

    def _show_or_remove_line_of_thinking(self) -> int:
        """Shows who is thinking until something of the reply arrives. Returns the first item that
        is new or was removed.
        """
        is_thinking = self.running is ConversationActivity.THINKING
        if is_thinking and self._live_from < 0:
            words = self._describe_thinking()
            return self._add_live_item(TranscriptItemKind.LIVE_NOTE, words).first_new
        has_live_items = self._live_from >= 0
        if has_live_items and self.all[-1].kind is TranscriptItemKind.LIVE_NOTE and not is_thinking:
            self._remove_live_items()
        return len(self.all)

    def _describe_thinking(self) -> str:
        start = self._conversation_start_before(_NOT_YET)
        if start is None or not start.acp_agent:
            return tr("{name} is thinking…", name=self._writer_at(_NOT_YET, None))
        name = make_safe_text(start.acp_agent)
        if any(item.kind is TranscriptItemKind.REPLY for item in self.all):
            return tr("{name} is thinking…", name=name)
        return tr("Starting {name}…", name=name)  # Its process begins with the first message.

    def toggle_rewound_items(self, index: int) -> ItemChanges:
        """Shows or hides the items that the rewind at `index` removed."""
        rewind_seq = self.all[index].fact_seq
        if rewind_seq in self._opened:
            self._opened.remove(rewind_seq)
        else:
            self._opened.add(rewind_seq)
        self._hidden_ranges = None
        return ItemChanges(len(self.all), frozenset({index}), is_visibility_changed=True)

    def toggle_call_group(self, index: int) -> ItemChanges:
        group = self.groups.group_of_item(index)
        if group is not None:
            group.opened = not group.opened
        return ItemChanges(len(self.all), is_visibility_changed=True)

    def reveal_hidden_item(self, index: int) -> ItemChanges | None:
        """Opens what hides an item. Returns None if nothing does."""
        is_in_collapsed_group = self.groups.is_in_collapsed_group(index)
        rewind_items = frozenset[int]()
        if self.is_hidden_as_replaced(index):
            rewind_items = self._open_rewinds_that_removed(index)
        if is_in_collapsed_group:
            self.toggle_call_group(index)
        if not is_in_collapsed_group and not rewind_items:
            return None
        return ItemChanges(len(self.all), rewind_items, is_visibility_changed=True)

    def _open_rewinds_that_removed(self, index: int) -> frozenset[int]:
        """Opens all rewinds that removed an item, because they may lie within each other. Returns
        the items of the rewinds.
        """
        rewind_items: set[int] = set()
        for later_index in range(index + 1, len(self.all)):
            later_item = self.all[later_index]
            if later_item.kind is not TranscriptItemKind.REWOUND:
                continue
            if self.rewound_range_of(later_index).first <= index:
                rewind_items.add(later_index)
                self._opened.add(later_item.fact_seq)
        self._hidden_ranges = None
        return frozenset(rewind_items)

    def is_item_hidden(self, index: int) -> bool:
        return self.groups.is_in_collapsed_group(index) or self.is_hidden_as_replaced(index)

    def answer_choice_of(self, index: int) -> AnswerChoice:
        """Returns which of several answers to a message the item at `index` belongs to."""
        message_index = self._find_message_above(index)
        if message_index < 0:
            return AnswerChoice()
        message = self.all[message_index]
        return self._answers.find_answer_choice(
            message.fact_seq, self.history.record, self.newest_seq
        )

    def _find_message_above(self, index: int) -> int:
        """Returns the item of the user's message that the item at `index` answers, or -1."""
        first_searched = max(0, index - FARTHEST + 1)
        for earlier_index in reversed(range(first_searched, index + 1)):
            is_message = self.all[earlier_index].kind is TranscriptItemKind.USER
            if is_message and not self.is_hidden_as_replaced(earlier_index):
                return earlier_index
        return -1

    def writer_of_answer(self, index: int) -> str:
        """Returns who wrote the answer at `index`: a connected agent, another program,
        or a model.
        """
        item = self.all[index]
        return self._writer_at(item.fact_seq or _NOT_YET, item.source_fact)

    def _writer_at(self, seq: int, answer: facts.Fact | None) -> str:
        conversation_start = self._conversation_start_before(seq)
        model_name = ""
        main_model = self.history.record.settings_at(seq).model_for_role(facts.ModelRole.MAIN)
        if main_model is not None:
            model_name = main_model.model
        writer = name_over_answer(conversation_start, answer, model_name)
        return make_safe_text(writer)

    def _conversation_start_before(self, seq: int) -> facts.ConversationStarted | None:
        """Returns the start that names who answers. A fork has more than one: its last counts."""
        earlier_starts = bisect_right(self._starts, seq, key=lambda start: start.seq)
        if earlier_starts == 0:
            return None
        start_fact = self._starts[earlier_starts - 1].fact
        if not isinstance(start_fact, facts.ConversationStarted):
            return None
        return start_fact

    def is_hidden_as_replaced(self, index: int) -> bool:
        """Whether an item was rewound or replaced by another answer."""
        ranges = self.hidden_item_ranges()
        last_range_before = bisect_right(ranges, (index, len(self.all))) - 1
        if last_range_before < 0:
            return False
        return ranges[last_range_before][1] >= index

    def is_shown_though_replaced(self, index: int) -> bool:
        """Whether an item is shown only because the user opened what a rewind removed."""
        seq = self.all[index].fact_seq
        if not self._opened or not seq or self.is_hidden_as_replaced(index):
            return False
        return not is_fact_on_path(self.history.record.runs_leading_to(self.newest_seq), seq)

    def rewind_opened_above(self, index: int) -> int:
        """Returns the newest rewind whose opened items begin at `index`, or -1."""
        if not self.is_shown_though_replaced(index):
            return -1
        for seq in sorted(self._opened, reverse=True):
            rewind = bisect_left(self._seqs, seq)
            if self._first_shown_item_of_rewind(rewind) != index:
                continue
            if not self.is_hidden_as_replaced(rewind):
                return rewind
        return -1

    def _first_shown_item_of_rewind(self, rewind: int) -> int:
        for index in range(self.rewound_range_of(rewind).first, rewind):
            if not self.is_hidden_as_replaced(index):
                return index
        return -1

    def rewound_range_of(self, index: int) -> RewoundItems:
        """Returns the items that the rewind at `index` removed."""
        item = self.all[index]
        last_kept_seq = item.fact_seq
        if isinstance(item.source_fact, facts.Rewound):
            last_kept_seq = item.source_fact.to
        first = bisect_right(self._seqs, last_kept_seq)
        count = 0
        for removed in self.all[first:index]:
            if removed.kind is not TranscriptItemKind.REWOUND:
                count += 1
        return RewoundItems(
            first=first,
            last=index - 1,
            count=count,
            are_shown=item.fact_seq in self._opened,
        )

    def fold_of_attachment(self, ref: facts.PartRef) -> facts.Folded | None:
        """Returns what the model sees of an attachment instead of the whole, or None. If its
        message is no longer part of the conversation, what it saw of it last.
        """
        branch = self.history.branch
        if branch.has_message(ref.seq):
            return branch.fold_shown_for_part(ref)
        for fold in reversed(self._folds.values()):
            if fold.cover == ref:
                if self.history.record.is_fold_undone_by_user(fold.fold):
                    return None
                return fold
        return None

    def can_return_to_rewound(self, item: TranscriptItem) -> bool:
        """Whether one can go on from what a rewind removed. Of a conversation that a connected
        agent writes, or that is not known in full, nobody here decides that. Nobody wants to go on
        from where nothing was said.
        """
        if self.is_written_by_connected_agent or self.history.has_unknown_facts:
            return False
        rewind = item.source_fact
        if not isinstance(rewind, facts.Rewound):
            return False
        removed_facts = self.history.facts[rewind.to : item.fact_seq - 1]
        return any(
            isinstance(recorded.fact, facts.UserSaid | facts.ModelReplied)
            for recorded in removed_facts
        )

    def hidden_item_ranges(self) -> list[tuple[int, int]]:
        if self._hidden_ranges is None:
            fact_ranges = list(self._abandoned_fact_ranges(self.newest_seq))
            fact_ranges.extend(self._fact_ranges_of_replaced_replies())
            item_ranges: list[tuple[int, int]] = []
            for first_seq, last_seq in fact_ranges:
                first_item = bisect_left(self._seqs, first_seq)
                last_item = bisect_right(self._seqs, last_seq) - 1
                # Many facts have no item of their own.
                if first_item <= last_item:
                    item_ranges.append((first_item, last_item))
            self._hidden_ranges = _merge_ranges(item_ranges)
        return self._hidden_ranges

    def _abandoned_fact_ranges(self, current_seq: int, after: int = 0) -> Iterator[tuple[int, int]]:
        """Yields ranges of facts after `after` that are neither on the path to
        `current_seq` nor opened.
        """
        last_on_path = 0
        for first, last in self.history.record.runs_leading_to(current_seq):
            gap_start = max(last_on_path, after) + 1
            has_gap = gap_start < first
            # The fact after a gap is the rewind that made it.
            if has_gap and first in self._opened:
                yield from self._abandoned_fact_ranges(first - 1, gap_start - 1)
            elif has_gap:
                yield gap_start, first - 1
            last_on_path = last

    def _fact_ranges_of_replaced_replies(self) -> Iterator[tuple[int, int]]:
        """Yields the facts of replaced replies, unless a rewind leads back to a fact
        between the two.
        """
        path = self.history.record.runs_leading_to(self.newest_seq)
        for broken_seq, replacement_seq in self._replaced:
            is_replacement_awaited = replacement_seq > self.newest_seq
            is_replacement_shown = is_fact_on_path(path, replacement_seq)
            is_broken_reply_gone = not is_fact_on_path(path, broken_seq)
            if is_replacement_awaited or is_replacement_shown or is_broken_reply_gone:
                yield broken_seq, broken_seq

    def item_of_fact(self, seq: int) -> int:
        """The item that shows the fact `seq`, or the nearest one before it; -1 without items."""
        if seq in self.calls.item_by_result:
            return self.calls.item_by_result[seq]
        if not self.all:
            return -1
        first = bisect_left(self._seqs, seq)
        if first < len(self._seqs) and self._seqs[first] == seq:
            return first
        return max(first - 1, 0)

    def count_excerpts_in_group(self, group: CallGroup) -> int:
        """Counts the outputs of which only an excerpt is shown to the model."""
        if group.has_additions:
            return 0
        count = 0
        for index in range(group.first, group.last + 1):
            if self.all[index].kind is not TranscriptItemKind.CALL:
                continue
            fold = self.tool_call_state(index).fold
            if fold is not None and fold.kind is facts.FoldKind.EXCERPT:
                count += 1
        return count

    def item_of_fold(self, fold: str) -> int:
        """Returns the item of a fold, or of its call, or -1 if it is not shown."""
        if fold in self._fold_items:
            return self._fold_items[fold]
        folded = self._folds.get(fold)
        if folded and isinstance(folded.cover, facts.PartRef):
            return self.item_of_fact(folded.cover.seq)
        return -1

    def tool_call_state(self, index: int) -> ToolCallState:
        """Gathers what is known now of the tool call that an item shows.

        The call itself comes from the recorded reply, its newest result from the fact that
        returned it, and how far a running call is from the record of this call. A fold is what
        stands for a text that was shortened: the output and the arguments can each have one.
        Raises ValueError or TypeError if the item is not a recorded call.
        """
        item = self.all[index]
        if not (item.recorded and isinstance(item.source_fact, facts.ModelReplied)):
            raise ValueError(f"item {index} is not a call")
        call = item.source_fact.parts[item.part]
        if not isinstance(call, facts.ToolCall):
            raise TypeError(f"item {index} is not a call")

        branch = self.history.branch
        record = self.calls.record_of_chat_item(index)
        returned: facts.ToolReturned | None = None
        returned_seq = 0
        output_fold: facts.Folded | None = None
        recorded_result = self._newest_result_of_call(item, record)
        if recorded_result is not None:
            returned = recorded_result.returned
            returned_seq = recorded_result.seq
            output_part = facts.PartRef(returned_seq, 0)
            output_fold = branch.fold_shown_for_part(output_part)
        call_part = facts.PartRef(item.fact_seq, item.part)
        argument_fold = branch.fold_shown_for_part(call_part)
        is_running = self.running in _BUSY and self.calls.is_open(call, index)
        begun_at = 0.0
        if is_running:
            begun_at = self.calls.begin_of_running_call(index, item.recorded.time)

        return ToolCallState(
            call=call,
            begun_at=begun_at,
            returned=returned,
            returned_seq=returned_seq,
            fold=output_fold,
            argument_fold=argument_fold,
            decided=record.decided,
            running=is_running,
            printed_text=record.printed,
            waiting=self.calls.is_asked_about(call),
            stage=record.stage,
        )

    def _newest_result_of_call(
        self, item: TranscriptItem, record: ToolCallRecord
    ) -> RecordedResult | None:
        """Returns a call's last result. Results from an abandoned branch are left out, unless the
        call itself is on one.
        """
        branch = self.history.branch
        is_call_on_branch = branch.has_message(item.fact_seq)
        for recorded_result in reversed(record.results):
            if not is_call_on_branch or branch.has_message(recorded_result.seq):
                return recorded_result
        return None

    def part_ref_of(self, index: int) -> facts.PartRef | None:
        """Returns what is folded or pinned of an item: a message, a part of a reply, or
        a call's result.
        """
        item = self.all[index]
        if item.kind is TranscriptItemKind.CALL:
            state = self.tool_call_state(index)
            if state.returned is None:
                return None
            return facts.PartRef(state.returned_seq)
        if isinstance(item.source_fact, facts.UserSaid):
            return facts.PartRef(item.fact_seq, 0)
        if isinstance(item.source_fact, facts.ModelReplied):
            return facts.PartRef(item.fact_seq, item.part)
        return None

    def is_item_pinned(self, index: int) -> bool:
        pins = self.history.branch.pins
        # The state of a call takes time to compute, so it is not asked for without pins.
        if not pins:
            return False
        return self.part_ref_of(index) in pins

    def folds_of_line(self, index: int) -> Sequence[facts.Folded]:
        fact = self.all[index].source_fact
        if not isinstance(fact, facts.Folded):
            return []
        batch = self._batches[fact.batch or fact.fold]
        # The history's fold has the user's wording, if the user has edited it.
        return [self.history.find_fold(fold.fold) or fold for fold in batch]

    def running_call_items(self) -> list[int]:
        if self.running in {ConversationActivity.TOOLS, ConversationActivity.ASKING}:
            return self.calls.open_items
        return []

    @property
    def retry_wait_item(self) -> int:
        """Returns the line with the time until the retry, or -1 if none is pending."""
        if self.all and self.all[-1].kind is TranscriptItemKind.WAITING:
            return len(self.all) - 1
        return -1

    def can_continue_after(self, index: int) -> bool:
        """Whether the failure at `index` is the last event, and nothing is running."""
        return index == self._error and self.running not in _BUSY

    def _latest_failure_item(self) -> tuple[int, ...]:
        if self._error < 0:
            return ()
        return (self._error,)

    def _clear_latest_failure(self) -> tuple[int, ...]:
        past_failure = self._latest_failure_item()
        self._error = -1
        return past_failure

    # --- For each kind of fact, a method that returns the items whose look it changes

    def _show_user_message(self, recorded: facts.Recorded, fact: facts.UserSaid) -> Iterable[int]:
        """Adds the items of a message, and returns the older items whose look it changes.

        If an agent's own program writes the conversation, it puts texts of its own into the user's
        messages. Each of them becomes an item by itself, above what the user wrote.
        """
        self._add_note_on_stopped_reply()
        if fact.by:
            return self._add_fact_note(recorded, fact)
        user_words = ""
        additions: list[tuple[int, str]] = []
        if self._is_foreign:
            user_words, additions = split_off_agent_additions(fact.parts)

        changed: list[int] = []
        for part_number, text in additions:
            self._append_item(
                TranscriptItem(TranscriptItemKind.ADDITION, recorded, part_number, text)
            )
            if self.grouping:
                name = _name_of_addition(text, fact.parts[part_number])
                changed.append(self.groups.add_addition(len(self.all) - 1, name))

        has_only_additions = bool(additions) and is_added_by_agent(fact.parts)
        if not has_only_additions:
            self._append_item(TranscriptItem(TranscriptItemKind.USER, recorded, 0, user_words))
            self._has_answer_name = False

        self._broken_reply_seq = 0
        self._last_cut = 0
        changed.extend(self._clear_latest_failure())
        return changed

    def _add_note_on_stopped_reply(self) -> None:
        """Says where a reply was stopped for the message that follows it. The note belongs to the
        reply, so it stays when the conversation goes back to before the message.
        """
        reply = self._stopped_reply
        self._stopped_reply = None
        if reply is None:
            return
        # The items stand in the order of their facts. Of an empty reply, there is none.
        if not self._seqs or self._seqs[-1] != reply.seq:
            return
        words = translate_name("cut reply", "stopped for a message")
        self._append_item(TranscriptItem(TranscriptItemKind.NOTE, reply, 0, words))

    def _remember_conversation_start(
        self, recorded: facts.Recorded, fact: facts.ConversationStarted
    ) -> Iterable[int]:
        self._starts.append(recorded)
        self.is_written_by_connected_agent = bool(fact.agent)
        self._is_foreign = bool(fact.agent or fact.origin.kind)
        return ()

    def _show_reply(self, recorded: facts.Recorded, fact: facts.ModelReplied) -> Iterable[int]:
        self.calls.forget_returned_calls_of_last_reply()
        if fact.parts:
            self._hide_broken_reply_replaced_by(recorded.seq)
        self._last_cut = 0
        if fact.stop is facts.Stop.CUT:
            self._last_cut = recorded.seq
        self._stopped_reply = None
        if fact.stop is facts.Stop.STOPPED and fact.parts:
            self._stopped_reply = recorded
        for part_number, part in enumerate(fact.parts):
            self._append_part_of_reply(recorded, part_number, part)
        self._add_fact_note(recorded, fact)
        return self._clear_latest_failure()

    def _append_part_of_reply(
        self, recorded: facts.Recorded, part_number: int, part: facts.ReplyPart
    ) -> None:
        """Adds an item for a part of a model's reply: a call, a text or its reasoning.
        The first text of an answer bears the name of who wrote it.
        """
        if isinstance(part, facts.ToolCall):
            self.calls.record_running_call(part, len(self.all))
            self._append_item(TranscriptItem(TranscriptItemKind.CALL, recorded, part_number))
            return
        # Some models send empty texts between their calls.
        if isinstance(part, facts.Text) and part.text.strip():
            reply_item = TranscriptItem(
                TranscriptItemKind.REPLY,
                recorded,
                part_number,
                is_first_of_answer=not self._has_answer_name,
            )
            self._append_item(reply_item)
            self._has_answer_name = True
        elif isinstance(part, facts.Reasoning) and part.text.strip():
            self._append_item(TranscriptItem(TranscriptItemKind.REASONING, recorded, part_number))

    def _show_tool_result(
        self, recorded: facts.Recorded, fact: facts.ToolReturned
    ) -> Iterable[int]:
        """Adds a result to the item of its call, and returns the items that change by
        it. A result whose call is not in this branch of the conversation has no item.
        """
        answered_call = self.history.record.answered.get(recorded.seq)
        if answered_call is None:
            return ()
        # The items of a reply's parts follow each other.
        index = bisect_left(self._seqs, answered_call.ref.seq)
        while self.all[index].part != answered_call.ref.part:
            index += 1
        self.calls.add_result(index, RecordedResult(recorded.seq, fact))
        changed = [index]
        changed.extend(
            self.groups.add_result_and_list_items_to_redraw(index, answered_call.call.name, fact)
        )
        return changed

    def _show_fold_of_parts(self, recorded: facts.Recorded, fact: facts.Folded) -> Iterable[int]:
        """Shows that parts of the conversation were shortened, and returns the items
        that change by it. Parts that were shortened together (a batch) share one line;
        an excerpt of a tool's output is shown at the tool's call instead.
        """
        self._folds[fact.fold] = fact
        # Markers that are folded together with a document belong to the same batch.
        batch = self._batches.setdefault(fact.batch or fact.fold, [])
        batch.append(fact)

        changed: list[int] = []
        if isinstance(fact.cover, facts.PartRef):
            changed.extend(self._indexes_of_covered_items(fact.cover))
        # An excerpt has no line of its own: it is shown at its call.
        if fact.kind is facts.FoldKind.EXCERPT:
            return changed

        # The other folds of a batch share the line of its first.
        line_index = self._line_of_batch(batch)
        if line_index is not None:
            self._fold_items[fact.fold] = line_index
            changed.append(line_index)
            return changed
        self._fold_items[fact.fold] = len(self.all)
        self._append_item(TranscriptItem(TranscriptItemKind.FOLD, recorded))
        changed.extend(self._clear_failed_fold())
        return changed

    def _line_of_batch(self, batch: Sequence[facts.Folded]) -> int | None:
        for folded in batch:
            if folded.fold in self._fold_items:
                return self._fold_items[folded.fold]
        return None

    def _list_items_changed_by_unfolding(
        self, recorded: facts.Recorded, fact: facts.Unfolded | facts.Refolded
    ) -> Iterable[int]:
        folded = self._folds.get(fact.fold)
        if folded is None:
            return ()
        changed: list[int] = []
        if fact.fold in self._fold_items:
            changed.append(self._fold_items[fact.fold])
        if isinstance(folded.cover, facts.PartRef):
            changed.extend(self._indexes_of_covered_items(folded.cover))
        return changed

    def _item_of_edited_document(
        self, recorded: facts.Recorded, fact: facts.DocumentEdited
    ) -> Iterable[int]:
        index = self.item_of_fold(fact.fold)
        if index < 0:
            return ()
        return (index,)

    def _items_of_pinned_part(
        self, recorded: facts.Recorded, fact: facts.Pinned | facts.Unpinned
    ) -> Iterable[int]:
        if isinstance(fact.ref, facts.PartRef):
            first_item = bisect_left(self._seqs, fact.ref.seq)
            after_last_item = bisect_right(self._seqs, fact.ref.seq)
            if first_item < after_last_item:
                return range(first_item, after_last_item)
        # The result of a call has no item of its own: it is shown by that of the call.
        return self._indexes_of_covered_items(fact.ref)

    def _add_fact_note(self, recorded: facts.Recorded, fact: facts.Fact) -> Iterable[int]:
        text = describe_fact_if_needed(fact)
        if text:
            self._append_item(TranscriptItem(TranscriptItemKind.NOTE, recorded, 0, text))
        return ()

    def _show_failed_fold(self, recorded: facts.Recorded, fact: facts.FoldFailed) -> Iterable[int]:
        past_failure = self._clear_failed_fold()
        self.failed_fold = len(self.all)
        self._add_fact_note(recorded, fact)
        return past_failure

    def _clear_failed_fold(self) -> Sequence[int]:
        past_failure = self.failed_fold
        self.failed_fold = -1
        if past_failure < 0:
            return ()
        return (past_failure,)

    def _append_plan_item(self, recorded: facts.Recorded, fact: facts.TodoSet) -> Iterable[int]:
        if fact.items:
            self._append_item(TranscriptItem(TranscriptItemKind.PLAN, recorded))
        return ()

    def _add_turn_end_items(self, recorded: facts.Recorded, fact: facts.TurnEnded) -> Iterable[int]:
        """Adds what stands below a turn: why it failed, or a note, and a line with the
        files that it changed. The list of changed files then begins anew for the next
        turn.
        """
        self._stopped_reply = None
        changed = self.calls.mark_running_calls_ended()
        changed += self._clear_latest_failure()
        if fact.reason is facts.TurnEnd.FAILED:
            self._error = len(self.all)
            why = translate_sentences(fact.why)
            self._append_item(TranscriptItem(TranscriptItemKind.ERROR, recorded, 0, why))
        else:
            self._add_fact_note(recorded, fact)
        words = describe_changed_files(list(self._changes.values()))
        if words:
            self._changes_of_line[recorded.seq] = tuple(self._changes)
            self._append_item(TranscriptItem(TranscriptItemKind.CHANGES, recorded, 0, words))
        self._changes = {}
        return changed

    def _record_file_changes_or_undo(
        self, recorded: facts.Recorded, fact: facts.FilesChanged
    ) -> Iterable[int]:
        """Notes files that were changed, for the line below the turn, or which changes
        were undone. Returns the lines whose look the undo changes: a line is struck out
        once all of its changes are undone.
        """
        if fact.by != "undo":
            self._changes[recorded.seq] = fact
            return ()
        undone_seqs = set(fact.undoes)
        # A line counts as undone only once none of its changes is left.
        if fact.is_whole:
            self._undone_changes = self._undone_changes | undone_seqs
            self._partly_undone_changes = self._partly_undone_changes - undone_seqs
        else:
            self._undone_changes = self._undone_changes - undone_seqs
            self._partly_undone_changes = self._partly_undone_changes | undone_seqs
        changed: list[int] = []
        for turn_end_seq, change_seqs in self._changes_of_line.items():
            if undone_seqs.intersection(change_seqs):
                changed.append(bisect_right(self._seqs, turn_end_seq) - 1)
        return changed

    def describe_changes_line(self, item: TranscriptItem) -> str:
        """Returns the words of a line of changed files, as what was undone since leaves them."""
        change_seqs = self._changes_of_line.get(item.fact_seq, ())
        # A line whose changes are all undone is drawn so, and says what they were.
        is_all_undone = self._undone_changes.issuperset(change_seqs)
        touched_changes = self._undone_changes | self._partly_undone_changes
        if is_all_undone or touched_changes.isdisjoint(change_seqs):
            return item.text

        changes: list[facts.FilesChanged] = []
        for seq in change_seqs:
            fact = self.history.facts[seq - 1].fact  # Numbers of facts begin at 1.
            if isinstance(fact, facts.FilesChanged):
                changes.append(fact)
        return describe_changed_files(changes, is_partly_undone=True)

    def is_changes_line_undone(self, item: TranscriptItem) -> bool:
        change_seqs = self._changes_of_line.get(item.fact_seq)
        if change_seqs is None:
            return False
        return self._undone_changes.issuperset(change_seqs)

    def _show_rewind(self, recorded: facts.Recorded, fact: facts.Rewound) -> Iterable[int]:
        self.calls.mark_running_calls_ended()
        self.groups.is_last_closed = True
        self._error = -1
        self._has_answer_name = False
        self._hidden_ranges = None
        self._broken_reply_seq = 0
        self._last_cut = 0
        self._stopped_reply = None
        self._answers.add_answer_of_rewind(recorded.seq, fact, self.history.record)
        if not self._removes_more_than_note_of_stop(fact):
            self._take_changes_into_next_line(fact)
        elif not fact.again:
            self._append_item(TranscriptItem(TranscriptItemKind.REWOUND, recorded))
        return range(len(self.all))

    def _take_changes_into_next_line(self, fact: facts.Rewound) -> None:
        """The line about changed files that a rewind took away is part of the next one: the turn
        goes on.
        """
        first_rewound = bisect_right(self._seqs, fact.to)
        for item in self.all[first_rewound:]:
            for seq in self._changes_of_line.get(item.fact_seq, ()):
                change = self.history.facts[seq - 1].fact  # Numbers of facts begin at 1.
                if isinstance(change, facts.FilesChanged):
                    self._changes[seq] = change

    def _removes_more_than_note_of_stop(self, fact: facts.Rewound) -> bool:
        """Whether a rewind removes something that was said or done. A task that goes on with the
        calls for which it was stopped takes back only the note that it was stopped, and below that
        the line about the files changed until then: the changes themselves stay. Who returns to
        what a rewind left takes back only the line of that rewind.
        """
        first_removed = bisect_right(self._seqs, fact.to)
        for item in self.all[first_removed:]:
            if item.kind is TranscriptItemKind.REWOUND:
                continue
            is_of_end = isinstance(item.source_fact, facts.TurnEnded)
            if not is_of_end or item.kind not in _SAID_AT_END_OF_TURN:
                return True
        return False

    def _remember_excluded_broken_reply(
        self, recorded: facts.Recorded, fact: facts.Excluded
    ) -> Iterable[int]:
        """Remembers a reply that broke off: it leaves the view before it is requested again."""
        if fact.ref == facts.Span(self._last_cut, self._last_cut):
            self._broken_reply_seq = self._last_cut
        return ()

    def _hide_broken_reply_replaced_by(self, replacement_seq: int) -> None:
        """Hides the reply that broke off once its replacement arrives, so that only one
        answer is shown.
        """
        broken_seq = self._broken_reply_seq
        self._broken_reply_seq = 0
        if not broken_seq:
            return
        first = bisect_left(self._seqs, broken_seq)
        after_last = bisect_right(self._seqs, broken_seq)
        broken_items = self.all[first:after_last]
        if not broken_items:
            return
        self._replaced.append((broken_seq, replacement_seq))
        self._hidden_ranges = None
        # If the name over the answer is hidden with the broken reply, the replacement shows it.
        if any(item.is_first_of_answer for item in broken_items):
            self._has_answer_name = False

    def _advance_history(self, recorded: facts.Recorded) -> None:
        self.newest_seq = recorded.seq
        if recorded.seq > self.history.seq:
            self.history.advance_state(recorded)

    def _append_item(self, item: TranscriptItem) -> None:
        if self.grouping and item.kind in _GROUPED:
            self.groups.add_item_to_last_group(
                len(self.all), collapsible=item.kind is TranscriptItemKind.REASONING
            )
        self.all.append(item)
        if item.recorded is None:
            self._seqs.append(_NOT_YET)
        else:
            self._seqs.append(item.recorded.seq)

    def _indexes_of_covered_items(self, cover: facts.Cover) -> Iterable[int]:
        if isinstance(cover, facts.PartRef):
            index = self.item_of_fact(cover.seq)
            group = self.groups.group_of_item(index)
            if group is None:
                return (index,)
            # The line of the group says how many of its outputs are shortened.
            return (group.first, index)
        first_index = max(0, self.item_of_fact(cover.first))
        last_index = self.item_of_fact(cover.last)
        return range(first_index, last_index + 1)

    def _extend_live_text(self, kind: TranscriptItemKind, text: str) -> ItemChanges:
        last_index = len(self.all) - 1
        is_continued = self._live_from >= 0 and self.all[last_index].kind is kind
        if is_continued:
            live_item = self.all[last_index]
            self.all[last_index] = live_item._replace(text=live_item.text + text)
            return self.build_changes({last_index})
        is_reply = kind is TranscriptItemKind.LIVE_REPLY
        if is_reply:
            self._hide_broken_reply_replaced_by(self.newest_seq + 1)
        is_first_of_answer = is_reply and not self._has_answer_name
        return self._add_live_item(kind, text, is_first_of_answer=is_first_of_answer)

    def _extend_live_call(self, delta: CallDelta) -> ItemChanges:
        """Adds a piece of a call that the model is still writing. `delta.index` tells
        the calls of one reply apart, as their pieces may come interleaved.
        """
        index = self._live_calls.get(delta.index)
        if index is None:
            change = self._add_live_item(TranscriptItemKind.LIVE_CALL, delta.arguments)
            new_index = len(self.all) - 1
            new_item = self.all[new_index]
            self.all[new_index] = new_item._replace(part=delta.index)
            self._live_calls[delta.index] = new_index
            self._live_call_names[delta.index] = delta.name
            return change
        # The name comes with the first piece, or, from some models, with a later one.
        if not self._live_call_names[delta.index]:
            self._live_call_names[delta.index] = delta.name
        live_item = self.all[index]
        longer_text = live_item.text + delta.arguments
        self.all[index] = live_item._replace(text=longer_text)
        return self.build_changes({index})

    def live_call_text(self, index: int) -> tuple[str, str]:
        """Returns name and arguments, as far as received, of a call that is being written."""
        live_item = self.all[index]
        return self._live_call_names[live_item.part], live_item.text

    def _add_live_item(
        self, kind: TranscriptItemKind, text: str, *, is_first_of_answer: bool = False
    ) -> ItemChanges:
        """Adds an item for something that is still arriving and not recorded yet. Live
        items stand at the end; they go when the recorded reply takes their place.
        """
        if self._live_from < 0:
            self._live_from = len(self.all)
        if kind is TranscriptItemKind.LIVE_REPLY:
            self._has_answer_name = True
        # The lines that wait for a retry or for the first words go once something arrives.
        has_live_items = len(self.all) > self._live_from
        if has_live_items and self.all[-1].kind in _GONE_ONCE_SOMETHING_ARRIVES:
            self._truncate_item_list(len(self.all) - 1)
        index = len(self.all)
        live_item = TranscriptItem(
            kind, recorded=None, text=text, is_first_of_answer=is_first_of_answer
        )
        self._append_item(live_item)
        return ItemChanges(index, is_visibility_changed=self._hidden_ranges is None)

    def _remove_live_items(self) -> None:
        if self._live_from < 0:
            return
        for item in self.all[self._live_from :]:
            if item.is_first_of_answer:
                self._has_answer_name = False
        self._truncate_item_list(self._live_from)
        self._live_from = -1
        self._live_calls.clear()
        self._live_call_names.clear()

    def _detach_live_items(self) -> list[TranscriptItem]:
        """Removes the live items temporarily, so that a fact other than their reply is
        inserted before them.
        """
        live_items = self.all[self._live_from :]
        self._truncate_item_list(self._live_from)
        return live_items

    def _reattach_live_items(self, live_items: list[TranscriptItem]) -> None:
        if not live_items:
            return
        shift = len(self.all) - self._live_from
        self._live_from = len(self.all)
        for call_number in self._live_calls:
            self._live_calls[call_number] += shift
        for item in live_items:
            self._append_item(item)

    def _truncate_item_list(self, length: int) -> None:
        del self.all[length:]
        del self._seqs[length:]


def _clear_list_in_slices(items: list[Any]) -> Iterator[None]:
    while items:
        del items[-PIECE:]
        yield


def _clear_table_in_slices(table: dict[Any, Any]) -> Iterator[None]:
    while table:
        for key in list(islice(table, PIECE)):
            del table[key]
        yield


def _name_of_addition(text: str, part: facts.UserPart) -> str:
    """Names what an agent added to a message: a text of its own, or a file."""
    name = name_of_agent_addition(text)
    if not text and isinstance(part, facts.Attachment):
        name = name_of_agent_addition(part.name) or part.name
    return make_safe_text(name)


def _merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged:
            merged_first, merged_last = merged[-1]
            if first <= merged_last + 1:
                merged[-1] = (merged_first, max(last, merged_last))
                continue
        merged.append((first, last))
    return merged


_STEPS: dict[type, Callable[..., Iterable[int]]] = {
    facts.ConversationStarted: TranscriptItems._remember_conversation_start,  # noqa: SLF001 - the table belongs to the class
    facts.UserSaid: TranscriptItems._show_user_message,  # noqa: SLF001 - the table belongs to the class
    facts.ModelReplied: TranscriptItems._show_reply,  # noqa: SLF001
    facts.ToolReturned: TranscriptItems._show_tool_result,  # noqa: SLF001
    facts.Decided: lambda items, _, fact: items.calls.set_decision_of_call(fact),
    facts.Folded: TranscriptItems._show_fold_of_parts,  # noqa: SLF001
    facts.Unfolded: TranscriptItems._list_items_changed_by_unfolding,  # noqa: SLF001
    facts.Refolded: TranscriptItems._list_items_changed_by_unfolding,  # noqa: SLF001
    facts.DocumentEdited: TranscriptItems._item_of_edited_document,  # noqa: SLF001
    facts.Excluded: TranscriptItems._remember_excluded_broken_reply,  # noqa: SLF001
    facts.FoldFailed: TranscriptItems._show_failed_fold,  # noqa: SLF001
    facts.TodoSet: TranscriptItems._append_plan_item,  # noqa: SLF001
    facts.FilesChanged: TranscriptItems._record_file_changes_or_undo,  # noqa: SLF001
    facts.TurnEnded: TranscriptItems._add_turn_end_items,  # noqa: SLF001
    facts.Rewound: TranscriptItems._show_rewind,  # noqa: SLF001
    facts.Forgotten: TranscriptItems._add_fact_note,  # noqa: SLF001
    facts.Pinned: TranscriptItems._items_of_pinned_part,  # noqa: SLF001
    facts.Unpinned: TranscriptItems._items_of_pinned_part,  # noqa: SLF001
}
