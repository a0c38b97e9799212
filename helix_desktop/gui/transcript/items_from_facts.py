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
from helix_desktop.gui.transcript.collapsed_calls import CallGroups
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.status_lines import (
    describe_changed_files,
    describe_fact_if_needed,
)
from helix_desktop.gui.transcript.tool_call_records import ToolCallRecords
from helix_desktop.gui.transcript.transcript_item import (
    ItemChanges,
    ToolCallState,
    TranscriptItem,
    TranscriptItemKind,
)

_GROUPED = frozenset({TranscriptItemKind.CALL, TranscriptItemKind.REASONING})
_BUSY = frozenset(
    {ConversationActivity.TOOLS, ConversationActivity.ASKING, ConversationActivity.THINKING}
)
PIECE = 500
FARTHEST = 2_000  # The search for the end of an answer covers at most this many items.
_NOT_YET = (
    1 << 60
)  # Stands for the fact number of an unfinished item. It is larger than any real number.


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
    _last_cut: int = 0  # The fact number of the last reply if its stream broke, otherwise 0.
    _broken_reply_seq: int = 0  # The fact number of a broken reply that is being repeated, or 0.
    _replaced: list[tuple[int, int]] = field(
        default_factory=list
    )  # Fact numbers of broken replies and replacements.
    retry_at: float = 0.0  # The time at which the model is asked again after a failed request.
    _error: int = -1  # The index of the last failure's item if nothing follows it, otherwise -1.
    failed_fold: int = (
        -1
    )  # The index of the last failed fold's item if no fold follows it, otherwise -1.
    _seqs: "array[int]" = field(default_factory=lambda: array("q"))
    _live_from: int = -1
    _live: dict[int, list[str]] = field(default_factory=dict)
    _live_calls: dict[int, int] = field(default_factory=dict)
    calls: ToolCallRecords = field(default_factory=ToolCallRecords)
    _folds: dict[str, facts.Folded] = field(default_factory=dict)
    _fold_items: dict[str, int] = field(default_factory=dict)
    _batches: dict[str, list[facts.Folded]] = field(default_factory=dict)
    newest_seq: int = 0  # The number of the newest fact.
    _opened: set[int] = field(
        default_factory=set
    )  # The fact numbers of rewinds whose items are shown.
    # The ranges of hidden items, or None if they must be computed again.
    _hidden_ranges: list[tuple[int, int]] | None = field(default_factory=list)
    _has_answer_name: bool = False
    _changes: dict[int, facts.FilesChanged] = field(
        default_factory=dict
    )  # The turn's changes until now.
    _changes_of_line: dict[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # Keyed by the turn's last fact.
    _undone_changes: set[int] = field(default_factory=set)

    def add_many_facts(self, recorded_facts: Iterable[facts.Recorded]) -> None:
        """Adds many facts, as at opening, without garbage collection: nothing created
        is garbage.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            for recorded in recorded_facts:
                self._advance_history(recorded)
                if (step := _STEPS.get(type(recorded.fact))) is not None:
                    step(self, recorded, recorded.fact)
        finally:
            if collecting:
                gc.enable()

    def clear_in_slices(self) -> Iterator[None]:
        """Empties the object in slices: to free a long conversation at once would block."""
        for held in (
            getattr(owner, each.name) for owner in (self, self.calls) for each in fields(owner)
        ):
            while isinstance(held, list | dict) and held:
                take = held.pop if isinstance(held, list) else held.popitem
                for _ in range(min(PIECE, len(held))):
                    take()
                yield

    def show_session_event(self, event: session_events.Event, now: float) -> ItemChanges | None:
        """Applies an event. Returns None for one that the chat does not show."""
        change: ItemChanges | None = None
        match event:
            case session_events.FactAppended(recorded):
                change = self.show_fact(recorded)
            case session_events.ReplyStreamed(_, delta):
                change = self.append_reply_delta(delta, now)
            case session_events.ToolPrinted(_, call, text):
                change = self.build_changes(self.calls.append_output(call, text))
            case session_events.CallStageChanged(_, call, stage):
                change = self.build_changes(self.calls.set_stage(call, stage, now))
            case session_events.ActivityChanged(_, running):
                change = self.set_run_state(running)
            case session_events.QuestionAsked(_, number, question):
                change = self.build_changes(
                    self.calls.set_call_of_question(number, question.call.id)
                )
            case session_events.QuestionAnswered(_, number):
                change = self.build_changes(self.calls.mark_call_running_after_answer(number, now))
        return change

    def show_fact(self, recorded: facts.Recorded) -> ItemChanges:
        self._advance_history(recorded)
        if (step := _STEPS.get(type(recorded.fact))) is None:
            return ItemChanges(len(self.all))
        if isinstance(recorded.fact, facts.ModelReplied | facts.TurnEnded | facts.Rewound):
            self._remove_live_items()
        waiting = [] if self._live_from < 0 else self._detach_live_items()
        before = len(self.all)
        changed = step(self, recorded, recorded.fact)
        self._reattach_live_items(waiting)
        hidden = isinstance(recorded.fact, facts.Rewound) or (self._hidden_ranges is None)
        return ItemChanges(before, frozenset(index for index in changed if index < before), hidden)

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

    def build_changes(self, changed: Iterable[int]) -> ItemChanges:
        return ItemChanges(len(self.all), frozenset(changed))

    def set_run_state(self, running: ConversationActivity) -> ItemChanges:
        self.running = running
        return self.build_changes((*self.calls.open_items, *self._latest_failure_item()))

    def toggle_rewound_items(self, index: int) -> ItemChanges:
        """Shows or hides the items that the rewind at `index` removed."""
        self._opened ^= {self.all[index].fact_seq}
        self._hidden_ranges = None
        return ItemChanges(len(self.all), frozenset({index}), is_visibility_changed=True)

    def toggle_call_group(self, index: int) -> ItemChanges:
        if (group := self.groups.group_of_item(index)) is not None:
            group.opened = not group.opened
        return ItemChanges(len(self.all), is_visibility_changed=True)

    def reveal_hidden_item(self, index: int) -> ItemChanges | None:
        rewinds = frozenset[int]()
        if self.is_hidden_as_replaced(index):
            later = (
                at
                for at in range(index + 1, len(self.all))
                if self.all[at].kind is TranscriptItemKind.REWOUND
            )
            rewinds = frozenset(at for at in later if self.rewound_range_of(at)[0] <= index)
            self._opened.update(self.all[at].fact_seq for at in rewinds)
            self._hidden_ranges = None
        if self.groups.is_in_collapsed_group(index):
            self.toggle_call_group(index)
        elif not rewinds:
            return None
        return ItemChanges(len(self.all), rewinds, is_visibility_changed=True)

    def is_item_hidden(self, index: int) -> bool:
        return self.groups.is_in_collapsed_group(index) or self.is_hidden_as_replaced(index)

    def answer_choice_of(self, index: int) -> AnswerChoice:
        """Returns which of several answers to a message the item at `index` belongs to."""
        for at in range(index, max(-1, index - FARTHEST), -1):
            item = self.all[at]
            if item.kind is TranscriptItemKind.USER and not self.is_hidden_as_replaced(at):
                return self._answers.find_answer_choice(
                    item.fact_seq, self.history.record, self.newest_seq
                )
        return AnswerChoice()

    def writer_of_answer(self, index: int) -> str:
        """Returns who wrote the answer at `index`: a connected agent, another program,
        or a model.
        """
        item = self.all[index]
        at = bisect_right(self._starts, item.fact_seq or _NOT_YET, key=lambda start: start.seq)
        started = self._starts[at - 1].fact if at else None
        main = self.history.record.settings_at(item.fact_seq or _NOT_YET).model_for_role(
            facts.ModelRole.MAIN
        )
        named = started if isinstance(started, facts.ConversationStarted) else None
        return make_safe_text(name_over_answer(named, item.source_fact, main.model if main else ""))

    def is_hidden_as_replaced(self, index: int) -> bool:
        """Whether an item was rewound or replaced by another answer."""
        at = bisect_right(self.hidden_item_ranges(), (index, len(self.all))) - 1
        return at >= 0 and self.hidden_item_ranges()[at][1] >= index

    def is_shown_though_replaced(self, index: int) -> bool:
        """Whether an item is shown only because the user opened what a rewind removed."""
        if (
            not self._opened
            or not (seq := self.all[index].fact_seq)
            or self.is_hidden_as_replaced(index)
        ):
            return False
        return not is_fact_on_path(self.history.record.runs_leading_to(self.newest_seq), seq)

    def rewind_opened_above(self, index: int) -> int:
        """Returns the newest rewind whose opened items begin at `index`, or -1."""
        for seq in (
            sorted(self._opened, reverse=True) if self.is_shown_though_replaced(index) else ()
        ):
            rewind = bisect_left(self._seqs, seq)
            shown = (
                at
                for at in range(self.rewound_range_of(rewind)[0], rewind)
                if not self.is_hidden_as_replaced(at)
            )
            if next(shown, -1) == index and not self.is_hidden_as_replaced(rewind):
                return rewind
        return -1

    def rewound_range_of(self, index: int) -> tuple[int, int, bool]:
        """Returns the first and last item that the rewind at `index` removed, and
        whether they are shown.
        """
        item = self.all[index]
        to = item.source_fact.to if isinstance(item.source_fact, facts.Rewound) else item.fact_seq
        return bisect_right(self._seqs, to), index - 1, item.fact_seq in self._opened

    def hidden_item_ranges(self) -> list[tuple[int, int]]:
        if self._hidden_ranges is None:
            runs = self._abandoned_fact_ranges(self.newest_seq)
            places = (
                (bisect_left(self._seqs, first), bisect_right(self._seqs, last) - 1)
                for first, last in runs
            )
            self._hidden_ranges = _merge_ranges(
                [
                    (first, last)
                    for first, last in (*places, *self._item_ranges_of_replaced_replies())
                    if first <= last
                ]
            )
        return self._hidden_ranges

    def _abandoned_fact_ranges(self, current_seq: int, after: int = 0) -> Iterator[tuple[int, int]]:
        """Yields ranges of facts after `after` that are neither on the path to
        `current_seq` nor opened.
        """
        end = 0
        for first, last in self.history.record.runs_leading_to(current_seq):
            begin = max(end, after) + 1
            if begin < first and first in self._opened:
                yield from self._abandoned_fact_ranges(first - 1, begin - 1)
            elif begin < first:
                yield begin, first - 1
            end = last

    def _item_ranges_of_replaced_replies(self) -> Iterator[tuple[int, int]]:
        """Yields the items of replaced replies, unless a rewind leads back to a fact
        between the two.
        """
        way = self.history.record.runs_leading_to(self.newest_seq)
        for seq, other in self._replaced:
            if (
                other > self.newest_seq
                or is_fact_on_path(way, other)
                or not is_fact_on_path(way, seq)
            ):
                yield bisect_left(self._seqs, seq), bisect_right(self._seqs, seq) - 1

    def item_of_fact(self, seq: int) -> int:
        """The item that shows the fact `seq`, or the nearest one before it; -1 without items."""
        if seq in self.calls.item_by_result:
            return self.calls.item_by_result[seq]
        first = bisect_left(self._seqs, seq)
        if first < len(self._seqs) and self._seqs[first] == seq:
            return first
        return max(first - 1, 0) if len(self.all) else -1

    def item_of_fold(self, fold: str) -> int:
        """Returns the item of a fold, or of its call, or -1 if it is not shown."""
        if fold in self._fold_items:
            return self._fold_items[fold]
        folded = self._folds.get(fold)
        return (
            self.item_of_fact(folded.cover.seq)
            if folded and isinstance(folded.cover, facts.PartRef)
            else -1
        )

    def tool_call_state(self, index: int) -> ToolCallState:
        item = self.all[index]
        if not (item.recorded and isinstance(item.source_fact, facts.ModelReplied)):
            raise ValueError(f"item {index} is not a call")
        call = item.source_fact.parts[item.part]
        if not isinstance(call, facts.ToolCall):
            raise TypeError(f"item {index} is not a call")
        branch, record = self.history.branch, self.calls.record_of_chat_item(index)
        results = record.results
        if branch.has_message(item.fact_seq):  # Results from an abandoned branch are left out.
            results = tuple(one for one in results if branch.has_message(one.seq))
        returned = results[-1] if results else None
        output = branch.fold_shown_for_part(facts.PartRef(returned.seq, 0)) if returned else None
        return ToolCallState(
            call,
            item.recorded.time if record.began is None else record.began,
            returned.fact if returned and isinstance(returned.fact, facts.ToolReturned) else None,
            returned.seq if returned else 0,
            output,
            branch.fold_shown_for_part(facts.PartRef(item.fact_seq, item.part)),
            record.decided,
            self.running in _BUSY and self.calls.is_open(call, index),
            record.printed,
            self.calls.is_asked_about(call),
            record.stage,
        )

    def part_ref_of(self, index: int) -> facts.PartRef | None:
        """Returns what is folded or pinned of an item: a message, a part of a reply, or
        a call's result.
        """
        item = self.all[index]
        if item.kind is TranscriptItemKind.CALL:
            state = self.tool_call_state(index)
            return facts.PartRef(state.returned_seq) if state.returned is not None else None
        if isinstance(item.source_fact, facts.UserSaid):
            return facts.PartRef(item.fact_seq, 0)
        return (
            facts.PartRef(item.fact_seq, item.part)
            if isinstance(item.source_fact, facts.ModelReplied)
            else None
        )

    def is_item_pinned(self, index: int) -> bool:
        return (pins := self.history.branch.pins) != {} and self.part_ref_of(index) in pins

    def folds_of_line(self, index: int) -> Sequence[facts.Folded]:
        fact = self.all[index].source_fact
        if not isinstance(fact, facts.Folded):
            return []
        made = self._batches[fact.batch or fact.fold]
        return [self.history.find_fold(fold.fold) or fold for fold in made]

    def running_call_items(self) -> list[int]:
        busy = self.running in {ConversationActivity.TOOLS, ConversationActivity.ASKING}
        return self.calls.open_items if busy else []

    @property
    def retry_wait_item(self) -> int:
        """Returns the line with the time until the retry, or -1 if none is pending."""
        return (
            len(self.all) - 1
            if self.all and self.all[-1].kind is TranscriptItemKind.WAITING
            else -1
        )

    def can_continue_after(self, index: int) -> bool:
        """Whether the failure at `index` is the last event, and nothing is running."""
        return index == self._error and self.running not in _BUSY

    def _latest_failure_item(self) -> tuple[int, ...]:
        return (self._error,) if self._error >= 0 else ()

    def _clear_latest_failure(self) -> tuple[int, ...]:
        past, self._error = self._latest_failure_item(), -1
        return past

    # --- For each kind of fact, a method that returns the items whose look it changes

    def _show_user_message(self, recorded: facts.Recorded, fact: facts.UserSaid) -> Iterable[int]:
        if fact.by:
            return self._add_fact_note(recorded, fact)
        words, additions = split_off_agent_additions(fact.parts) if self._is_foreign else ("", [])
        changed = list[int]()
        for number, text in additions:
            self._append_item(TranscriptItem(TranscriptItemKind.ADDITION, recorded, number, text))
            if self.grouping:
                name = name_of_agent_addition(text or getattr(fact.parts[number], "name", ""))
                changed.append(self.groups.add_addition(len(self.all) - 1, make_safe_text(name)))
        if not (additions and is_added_by_agent(fact.parts)):
            self._append_item(TranscriptItem(TranscriptItemKind.USER, recorded, 0, words))
            self._has_answer_name = False
        self._broken_reply_seq, self._last_cut = 0, 0
        return (*changed, *self._clear_latest_failure())

    def _remember_conversation_start(
        self, recorded: facts.Recorded, fact: facts.ConversationStarted
    ) -> Iterable[int]:
        self._starts.append(recorded)
        self._is_foreign = bool(fact.agent or fact.origin.kind)
        return ()

    def _show_reply(self, recorded: facts.Recorded, fact: facts.ModelReplied) -> Iterable[int]:
        self.calls.forget_returned_calls_of_last_reply()
        if fact.parts:
            self._hide_broken_reply_replaced_by(recorded.seq)
        self._last_cut = recorded.seq if fact.stop is facts.Stop.CUT else 0
        for number, part in enumerate(fact.parts):
            if type(part) is facts.Text:
                if part.text.strip():
                    self._append_item(
                        TranscriptItem(
                            TranscriptItemKind.REPLY,
                            recorded,
                            number,
                            "",
                            not self._has_answer_name,
                        )
                    )
                    self._has_answer_name = True
            elif type(part) is facts.ToolCall:
                self.calls.record_running_call(part, len(self.all))
                self._append_item(TranscriptItem(TranscriptItemKind.CALL, recorded, number))
            elif type(part) is facts.Reasoning and part.text.strip():
                self._append_item(TranscriptItem(TranscriptItemKind.REASONING, recorded, number))
        self._add_fact_note(recorded, fact)
        return self._clear_latest_failure()

    def _show_tool_result(
        self, recorded: facts.Recorded, fact: facts.ToolReturned
    ) -> Iterable[int]:
        if (answered := self.history.record.answered.get(recorded.seq)) is None:
            return ()
        index = bisect_left(self._seqs, answered.ref.seq)
        while self.all[index].part != answered.ref.part:
            index += 1
        self.calls.add_result(fact.call, index, recorded)
        return (
            index,
            *self.groups.add_result_and_list_items_to_redraw(index, answered.call.name, fact),
        )

    def _show_fold_of_parts(self, recorded: facts.Recorded, fact: facts.Folded) -> Iterable[int]:
        self._folds[fact.fold] = fact
        batch = self._batches.setdefault(
            fact.batch or fact.fold, []
        )  # Markers that are folded together with a document belong to the same batch.
        batch.append(fact)
        changed: list[int] = []
        if isinstance(fact.cover, facts.PartRef):
            changed.append(self.item_of_fact(fact.cover.seq))
        if fact.kind is facts.FoldKind.EXCERPT:
            return changed
        first = next(one.fold for one in batch if one.kind is not facts.FoldKind.EXCERPT)
        if first in self._fold_items:
            self._fold_items[fact.fold] = self._fold_items[first]
            return [*changed, self._fold_items[first]]
        self._fold_items[fact.fold] = len(self.all)
        self._append_item(TranscriptItem(TranscriptItemKind.FOLD, recorded))
        return [*changed, *self._clear_failed_fold()]

    def _list_items_changed_by_unfolding(
        self, recorded: facts.Recorded, fact: facts.Unfolded | facts.Refolded
    ) -> Iterable[int]:
        if (folded := self._folds.get(fact.fold)) is None:
            return ()
        changed = [self._fold_items[fact.fold]] if fact.fold in self._fold_items else []
        return (
            [*changed, *self._indexes_of_covered_items(folded.cover)]
            if isinstance(folded.cover, facts.PartRef)
            else changed
        )

    def _item_of_edited_document(
        self, recorded: facts.Recorded, fact: facts.DocumentEdited
    ) -> Iterable[int]:
        index = self.item_of_fold(fact.fold)
        return (index,) if index >= 0 else ()

    def _items_of_pinned_part(
        self, recorded: facts.Recorded, fact: facts.Pinned | facts.Unpinned
    ) -> Iterable[int]:
        of_message = range(0)
        if isinstance(fact.ref, facts.PartRef):
            of_message = range(
                bisect_left(self._seqs, fact.ref.seq), bisect_right(self._seqs, fact.ref.seq)
            )
        return of_message or self._indexes_of_covered_items(fact.ref)

    def _add_fact_note(self, recorded: facts.Recorded, fact: facts.Fact) -> Iterable[int]:
        if text := describe_fact_if_needed(fact):
            self._append_item(TranscriptItem(TranscriptItemKind.NOTE, recorded, 0, text))
        return ()

    def _show_failed_fold(self, recorded: facts.Recorded, fact: facts.FoldFailed) -> Iterable[int]:
        past, self.failed_fold = self._clear_failed_fold(), len(self.all)
        self._add_fact_note(recorded, fact)
        return past

    def _clear_failed_fold(self) -> Sequence[int]:
        past, self.failed_fold = self.failed_fold, -1
        return (past,) if past >= 0 else ()

    def _append_plan_item(self, recorded: facts.Recorded, fact: facts.TodoSet) -> Iterable[int]:
        if fact.items:
            self._append_item(TranscriptItem(TranscriptItemKind.PLAN, recorded))
        return ()

    def _add_turn_end_items(self, recorded: facts.Recorded, fact: facts.TurnEnded) -> Iterable[int]:
        stopped = self.calls.mark_running_calls_ended()
        stopped += self._clear_latest_failure()
        if fact.reason is facts.TurnEnd.FAILED:
            self._error = len(self.all)
            self._append_item(
                TranscriptItem(TranscriptItemKind.ERROR, recorded, 0, translate_sentences(fact.why))
            )
        else:
            self._add_fact_note(recorded, fact)
        if words := describe_changed_files([*self._changes.values()]):
            self._changes_of_line[recorded.seq] = tuple(self._changes)
            self._append_item(TranscriptItem(TranscriptItemKind.CHANGES, recorded, 0, words))
        self._changes = {}
        return stopped

    def _record_file_changes_or_undo(
        self, recorded: facts.Recorded, fact: facts.FilesChanged
    ) -> Iterable[int]:
        if fact.by != "undo":
            self._changes[recorded.seq] = fact
            return ()
        about = set(fact.undoes)
        self._undone_changes = (
            self._undone_changes | about if fact.is_whole else self._undone_changes - about
        )
        ends = [
            end for end, changes in self._changes_of_line.items() if about.intersection(changes)
        ]
        return [bisect_right(self._seqs, end) - 1 for end in ends]

    def is_changes_line_undone(self, item: TranscriptItem) -> bool:
        return self._undone_changes.issuperset(self._changes_of_line.get(item.fact_seq, (0,)))

    def _show_rewind(self, recorded: facts.Recorded, fact: facts.Rewound) -> Iterable[int]:
        self.calls.mark_running_calls_ended()
        self.groups.is_last_closed = True
        self._error = -1
        self._has_answer_name, self._hidden_ranges, self._broken_reply_seq, self._last_cut = (
            False,
            None,
            0,
            0,
        )
        self._answers.add_answer_of_rewind(recorded.seq, fact, self.history.record)
        if not fact.again and bisect_right(self._seqs, fact.to) < len(self.all):
            self._append_item(TranscriptItem(TranscriptItemKind.REWOUND, recorded))
        return range(len(self.all))

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
        seq, self._broken_reply_seq = self._broken_reply_seq, 0
        first, last = bisect_left(self._seqs, seq), bisect_right(self._seqs, seq) - 1
        if seq and first <= last:
            self._replaced.append((seq, replacement_seq))
            self._has_answer_name = self._has_answer_name and not any(
                item.is_first_of_answer for item in self.all[first : last + 1]
            )
            self._hidden_ranges = None

    def _advance_history(self, recorded: facts.Recorded) -> None:
        self.newest_seq = recorded.seq
        if recorded.seq > self.history.seq:
            self.history.advance_state(recorded)

    def _append_item(self, item: TranscriptItem) -> None:
        if self.grouping and item[0] in _GROUPED:
            self.groups.add_item_to_last_group(
                len(self.all), collapsible=item[0] is TranscriptItemKind.REASONING
            )
        self.all.append(item)
        self._seqs.append(item[1].seq if item[1] is not None else _NOT_YET)

    def _indexes_of_covered_items(self, cover: facts.Cover) -> Iterable[int]:
        if isinstance(cover, facts.PartRef):
            return (self.item_of_fact(cover.seq),)
        return range(max(0, self.item_of_fact(cover.first)), self.item_of_fact(cover.last) + 1)

    def _extend_live_text(self, kind: TranscriptItemKind, text: str) -> ItemChanges:
        last = len(self.all) - 1
        if self._live_from < 0 or self.all[last].kind is not kind:
            if kind is TranscriptItemKind.LIVE_REPLY:
                self._hide_broken_reply_replaced_by(self.newest_seq + 1)
            head = kind is TranscriptItemKind.LIVE_REPLY and not self._has_answer_name
            return self._add_live_item(kind, text, is_first_of_answer=head)
        pieces = self._live[last]
        pieces.append(text)
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        self.all[last] = self.all[last]._replace(text=pieces[0])
        return self.build_changes({last})

    def _extend_live_call(self, delta: CallDelta) -> ItemChanges:
        index = self._live_calls.get(delta.index)
        if index is None:
            change = self._add_live_item(TranscriptItemKind.LIVE_CALL, delta.arguments)
            self.all[-1] = self.all[-1]._replace(part=delta.index)
            self._live[len(self.all) - 1] = [delta.name, delta.arguments]
            self._live_calls[delta.index] = len(self.all) - 1
            return change
        name, arguments = self._live[index]
        grown = arguments + delta.arguments
        self._live[index] = [name or delta.name, grown]
        self.all[index] = self.all[index]._replace(text=grown)
        return self.build_changes({index})

    def live_call_text(self, index: int) -> tuple[str, str]:
        """Returns name and arguments, as far as received, of a call that is being written."""
        name, arguments = self._live[index]
        return name, arguments

    def _add_live_item(
        self, kind: TranscriptItemKind, text: str, *, is_first_of_answer: bool = False
    ) -> ItemChanges:
        if self._live_from < 0:
            self._live_from = len(self.all)
        tail = len(self.all)
        if kind is TranscriptItemKind.LIVE_REPLY:
            self._has_answer_name = True
        if self.all and self.all[-1].kind is TranscriptItemKind.WAITING and tail > self._live_from:
            tail -= 1
            self._truncate_item_list(tail)
        self._live[tail] = [text]
        self._append_item(TranscriptItem(kind, None, 0, text, is_first_of_answer))
        return ItemChanges(tail, is_visibility_changed=self._hidden_ranges is None)

    def _remove_live_items(self) -> None:
        if self._live_from < 0:
            return
        if any(item.is_first_of_answer for item in self.all[self._live_from :]):
            self._has_answer_name = False
        self._truncate_item_list(self._live_from)
        self._live_from = -1
        self._live.clear()
        self._live_calls.clear()

    def _detach_live_items(self) -> list[TranscriptItem]:
        """Removes the live items temporarily, so that a fact other than their reply is
        inserted before them.
        """
        lifted = self.all[self._live_from :]
        self._truncate_item_list(self._live_from)
        return lifted

    def _reattach_live_items(self, lifted: list[TranscriptItem]) -> None:
        if not lifted:
            return
        moved = len(self.all) - self._live_from
        self._live_from = len(self.all)
        self._live = {index + moved: pieces for index, pieces in self._live.items()}
        self._live_calls = {number: index + moved for number, index in self._live_calls.items()}
        for item in lifted:
            self._append_item(item)

    def _truncate_item_list(self, length: int) -> None:
        del self.all[length:]
        del self._seqs[length:]


def _merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


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
