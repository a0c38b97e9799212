"""Turns facts into the items of the chat, in order. Plain Python, one step for each fact.

The chat shows the journal, so items are only ever appended and changed in place. The exceptions are at the end: the
reply that is being written (live items) is replaced by its fact. What was rewound is hidden, not removed. Which folds
and pins hold, and what a rewind left behind, is the history's to say.
"""

from __future__ import annotations

import gc
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, fields

from helix_desktop.engine.blocks import CallDelta, Delta, ReasoningDelta, TextDelta, Waiting
from helix_desktop.engine.events import Running, Stage
from helix_desktop.engine.facts import (
    ConversationStarted,
    Cover,
    Decided,
    DocumentEdited,
    Excluded,
    Fact,
    FilesChanged,
    Folded,
    FoldFailed,
    FoldKind,
    Forgotten,
    ModelReplied,
    PartRef,
    Pinned,
    Reasoning,
    Recorded,
    Refolded,
    Rewound,
    Span,
    Stop,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.view import State
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.transcript.answers import Answers, Choice, on
from helix_desktop.gui.transcript.groups import Group, Groups
from helix_desktop.gui.transcript.item import CallState, Change, Item, ItemKind
from helix_desktop.gui.transcript.notes import changed_files, note
from helix_desktop.gui.writers import writer
from helix_desktop.values import dataclass

SHOWN_LIVE = 64 * 1024
_GROUPED = frozenset({ItemKind.CALL, ItemKind.REASONING})
PIECE = 500
FARTHEST = 2_000  # items between a message and the end of its answer that are looked through
_NOT_YET = 1 << 60  # the number of what is being written: after all facts


@dataclass(slots=True)
class Items:
    """The items of one conversation. `all` is theirs to read; it changes only through the methods. A history that is not
    given is made of the facts told.
    """

    history: State = field(default_factory=State)
    all: list[Item] = field(default_factory=list)
    running: Running = Running.IDLE
    grouping: bool = True  # calls that follow one another become one line
    _groups: Groups = field(default_factory=Groups)
    _answers: Answers = field(default_factory=Answers)
    _starts: list[Recorded] = field(default_factory=list)  # its own, and where it became a fork
    _last_cut: int = 0  # the last reply, where its stream broke
    _broken: int = 0  # a reply whose stream broke, and which is asked for again
    _replaced: list[tuple[int, int]] = field(default_factory=list)  # such replies, and the facts that took their place
    until: float = 0.0  # when the model is asked again, while the client waits
    _error: int = -1  # the failure nothing has come after
    _seqs: array[int] = field(default_factory=lambda: array("q"))
    _live_from: int = -1
    _live: dict[int, list[str]] = field(default_factory=dict)
    _live_calls: dict[int, int] = field(default_factory=dict)
    _calls: dict[str, int] = field(default_factory=dict)
    _returned: dict[int, tuple[Recorded, ...]] = field(default_factory=dict)  # one on each way
    _of_return: dict[int, int] = field(default_factory=dict)
    _decided: dict[int, Decided] = field(default_factory=dict)
    _lately: dict[str, int] = field(default_factory=dict)  # calls of the last reply that have returned
    _asked: dict[int, str] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)  # after waiting for the user, or for the calls before it
    _stages: dict[str, Stage] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)
    _folds: dict[str, Folded] = field(default_factory=dict)
    _fold_items: dict[str, int] = field(default_factory=dict)
    _batches: dict[str, list[Folded]] = field(default_factory=dict)
    told: int = 0  # the seq of the newest fact
    _opened: set[int] = field(default_factory=set)  # the seqs of rewinds whose items are shown
    _away: list[tuple[int, int]] | None = field(default_factory=list)  # the ranges that are hidden; None: to be found
    _named: bool = False
    _changes: list[FilesChanged] = field(default_factory=list)  # of the turn

    # --- growing

    def extend(self, facts: Iterable[Recorded]) -> None:
        """Many facts at once, as when a conversation is opened. Nothing made here is garbage, so none is looked for."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            for recorded in facts:
                self._hear(recorded)
                step = _STEPS.get(type(recorded.fact))
                if step is not None:
                    step(self, recorded, recorded.fact)
        finally:
            if collecting:
                gc.enable()

    def let_go(self) -> Iterator[None]:
        """Empty it piece by piece: all of a long conversation at once would hold the window."""
        for each in fields(self):
            held = getattr(self, each.name)
            while isinstance(held, list | dict) and held:
                take = held.pop if isinstance(held, list) else held.popitem
                for _ in range(min(PIECE, len(held))):
                    take()
                yield

    def advance(self, recorded: Recorded) -> Change:
        """One more fact."""
        self._hear(recorded)
        step = _STEPS.get(type(recorded.fact))
        if step is None:
            return Change(len(self.all))
        live = self._drop_live() if isinstance(recorded.fact, ModelReplied | TurnEnded | Rewound) else len(self.all)
        before = min(live, len(self.all))
        waiting = [] if live < len(self.all) or self._live_from < 0 else self._lift_live()
        before = min(before, len(self.all))
        changed = step(self, recorded, recorded.fact)
        self._lay_live(waiting)
        hidden = isinstance(recorded.fact, Rewound) or (self._away is None)
        return Change(before, frozenset(index for index in changed if index < before), hidden)

    def stream(self, delta: Delta, now: float = 0.0) -> Change:
        """A piece of the reply that is being written."""
        if isinstance(delta, TextDelta):
            return self._grow(ItemKind.LIVE_REPLY, delta.text)
        if isinstance(delta, ReasoningDelta):
            return self._grow(ItemKind.LIVE_REASONING, delta.text)
        if isinstance(delta, CallDelta):
            return self._grow_call(delta)
        if isinstance(delta, Waiting):
            self.until = now + delta.seconds
            return self._add_live(ItemKind.WAITING, said(delta.why))
        return Change(len(self.all))

    def show(self, call: str, text: str) -> Change:
        """A running tool printed something."""
        if call in self._calls:
            self._shown[call] = (self._shown.get(call, "") + text)[-SHOWN_LIVE:]
        return self._changed(call)

    def state(self, running: Running) -> Change:
        """What the conversation is doing now."""
        self.running = running
        return Change(len(self.all), frozenset((*self._calls.values(), *self._failure())))

    def asked(self, number: int, call: str) -> Change:
        """The user is asked whether a call may be made."""
        self._asked[number] = call
        return self._changed(call)

    def answered(self, number: int, now: float) -> Change:
        """The user has answered: if the call is allowed, it begins now."""
        return self.moved(self._asked.pop(number, ""), Stage.RUNNING, now)

    def moved(self, call: str, stage: Stage, now: float) -> Change:
        """A call waits for those before it in its reply, begins, or has ended."""
        self._stages[call] = stage
        if stage is Stage.RUNNING:
            self._begun[call] = now
        return self._changed(call)

    def _changed(self, call: str) -> Change:
        return Change(len(self.all), frozenset({self._calls[call]} if call in self._calls else ()))

    def open_rewound(self, index: int) -> Change:
        """Show or hide again what the rewind at `index` has set aside."""
        self._opened ^= {self.all[index].seq}
        self._away = None
        return Change(len(self.all), frozenset({index}), hidden=True)

    def open_group(self, index: int) -> Change:
        """Show all calls of the group at `index`, or its line alone."""
        group = self._groups.of(index)
        if group is not None:
            group.opened = not group.opened
        return Change(len(self.all), hidden=True)

    def reveal(self, index: int) -> Change | None:
        """Open the group that hides an item somebody wants to see."""
        return self.open_group(index) if self._groups.hidden(index) else None

    # --- asking

    def hidden(self, index: int) -> bool:
        """Whether an item is set aside, or its group is collapsed."""
        return self._groups.hidden(index) or self.set_aside(index)

    def grouped(self, start: int) -> Iterator[int]:
        """The items from `start` on that are hidden in a collapsed group."""
        return self._groups.all_hidden(start)

    def group(self, index: int) -> Group | None:
        """The group whose line is shown at the item at `index`."""
        group = self._groups.of(index)
        return group if group is not None and group.first == index and group.one_line else None

    def answers(self, index: int) -> Choice:
        """Which of how many answers to one message the item at `index` belongs to."""
        for at in range(index, max(-1, index - FARTHEST), -1):
            item = self.all[at]
            if item.kind is ItemKind.USER and not self.set_aside(at):
                return self._answers.of(item.seq, self.history.record, self.told)
        return Choice()

    def writer(self, index: int) -> str:
        """Who gave the answer at `index`."""
        item = self.all[index]
        at = bisect_right(self._starts, item.seq or _NOT_YET, key=lambda start: start.seq)
        started = self._starts[at - 1].fact if at else None
        return writer(started if isinstance(started, ConversationStarted) else None, item.fact)

    def set_aside(self, index: int) -> bool:
        """Whether a rewind, or an answer that took its place, hides an item."""
        at = bisect_right(self.away_ranges(), (index, len(self.all))) - 1
        return at >= 0 and self.away_ranges()[at][1] >= index

    def away(self, index: int) -> tuple[int, int, bool]:
        """First and last item that the rewind at `index` set aside, and whether they are shown."""
        item = self.all[index]
        to = item.fact.to if isinstance(item.fact, Rewound) else item.seq
        return bisect_right(self._seqs, to), index - 1, item.seq in self._opened

    def away_ranges(self) -> list[tuple[int, int]]:
        """The ranges of items that are hidden now."""
        if self._away is None:
            runs = self._left_behind(self.told)
            places = ((bisect_left(self._seqs, first), bisect_right(self._seqs, last) - 1) for first, last in runs)
            self._away = _merged([(first, last) for first, last in (*places, *self._broken_off()) if first <= last])
        return self._away

    def _left_behind(self, at: int, after: int = 0) -> Iterator[tuple[int, int]]:
        """The runs of facts after `after` that are not on the way to `at`, and not opened."""
        end = 0
        for first, last in self.history.record.path(at):
            begin = max(end, after) + 1
            if begin < first and first in self._opened:
                yield from self._left_behind(first - 1, begin - 1)
            elif begin < first:
                yield begin, first - 1
            end = last

    def _broken_off(self) -> Iterator[tuple[int, int]]:
        """The items of replies another one took the place of, but where a rewind goes back between the two."""
        way = self.history.record.path(self.told)
        for seq, other in self._replaced:
            if other > self.told or on(way, other) or not on(way, seq):
                yield bisect_left(self._seqs, seq), bisect_right(self._seqs, seq) - 1

    def at_seq(self, seq: int) -> int:
        """The item that shows the fact `seq`, or the nearest one before it; -1 without items."""
        if seq in self._of_return:
            return self._of_return[seq]
        first = bisect_left(self._seqs, seq)
        if first < len(self._seqs) and self._seqs[first] == seq:
            return first
        return max(first - 1, 0) if len(self.all) else -1

    def of_fold(self, fold: str) -> int:
        """The item of a fold, or of the call it belongs to; -1 if it is not shown."""
        if fold in self._fold_items:
            return self._fold_items[fold]
        folded = self._folds.get(fold)
        return self.at_seq(folded.cover.seq) if folded and isinstance(folded.cover, PartRef) else -1

    def call(self, index: int) -> CallState:
        """All that is known of the call shown at `index`."""
        item = self.all[index]
        if not (item.recorded and isinstance(item.fact, ModelReplied)):
            raise ValueError(f"item {index} is not a call")
        call = item.fact.parts[item.part]
        if not isinstance(call, ToolCall):
            raise TypeError(f"item {index} is not a call")
        branch, results = self.history.branch, self._returned.get(index, ())
        if branch.has(item.seq):  # what a rewind left behind is not its result
            results = tuple(one for one in results if branch.has(one.seq))
        returned = results[-1] if results else None
        output = branch.part_fold(PartRef(returned.seq, 0)) if returned else None
        busy = self.running in {Running.TOOLS, Running.ASKING, Running.THINKING}
        return CallState(
            call,
            self._begun.get(call.id, item.recorded.time),
            returned.fact if returned and isinstance(returned.fact, ToolReturned) else None,
            returned.seq if returned else 0,
            output,
            branch.part_fold(PartRef(item.seq, item.part)),
            self._decided.get(index),
            busy and call.id in self._calls and self._calls[call.id] == index,
            self._shown.get(call.id, ""),
            call.id in self._asked.values(),
            self._stages.get(call.id, Stage.RUNNING),
        )

    def batch(self, index: int) -> Sequence[Folded]:
        """The folds of the line at `index`, with their current wording."""
        fact = self.all[index].fact
        made = self._batches.get(fact.batch, [fact]) if isinstance(fact, Folded) and fact.batch else _only(fact)
        return [self.history.fold(fold.fold) or fold for fold in made]

    def folded(self, fold: str) -> bool:
        """Whether a fold is in force."""
        return fold in self.history.branch.live

    def shown_as(self, ref: PartRef) -> Folded | None:
        """The fold that is shown instead of a part of a message."""
        return self.history.branch.part_fold(ref)

    def pinned(self, ref: Cover) -> bool:
        return ref in self.history.branch.pins

    def running_calls(self) -> list[int]:
        """The items of running calls, whose elapsed time is updated."""
        busy = self.running in {Running.TOOLS, Running.ASKING}
        return list(self._calls.values()) if busy else []

    @property
    def waiting(self) -> int:
        """The line that says how long the client still waits; -1 while it does not."""
        last = len(self.all) - 1
        return last if last >= 0 and self.all[last].kind is ItemKind.WAITING else -1

    def can_go_on(self, index: int) -> bool:
        """Whether the failure at `index` is the last thing that happened, and nothing works on it."""
        return index == self._error and self.running not in (Running.THINKING, Running.TOOLS, Running.ASKING)

    def _failure(self) -> tuple[int, ...]:
        return (self._error,) if self._error >= 0 else ()

    def _past_failure(self) -> tuple[int, ...]:
        """Something has come after it."""
        past, self._error = self._failure(), -1
        return past

    # --- one step for each kind of fact; each returns the items that look different now

    def _said(self, recorded: Recorded, fact: UserSaid) -> Iterable[int]:
        if fact.by:
            return self._note(recorded, fact)
        self._put(Item(ItemKind.USER, recorded))
        self._named, self._broken, self._last_cut = False, 0, 0
        return self._past_failure()

    def _start(self, recorded: Recorded, _fact: ConversationStarted) -> Iterable[int]:
        self._starts.append(recorded)
        return ()

    def _replied(self, recorded: Recorded, fact: ModelReplied) -> Iterable[int]:
        self._lately.clear()
        self._begun.clear()
        self._stages.clear()
        if fact.parts:
            self._replace_cut(recorded.seq)
        self._last_cut = recorded.seq if fact.stop is Stop.CUT else 0
        for number, part in enumerate(fact.parts):
            if type(part) is Text:
                if part.text.strip():
                    self._put(Item(ItemKind.REPLY, recorded, number, "", not self._named))
                    self._named = True
            elif type(part) is ToolCall:
                self._calls[part.id] = len(self.all)
                self._put(Item(ItemKind.CALL, recorded, number))
            elif type(part) is Reasoning and part.text.strip():
                self._put(Item(ItemKind.REASONING, recorded, number))
        self._note(recorded, fact)
        return self._past_failure()

    def _got(self, recorded: Recorded, fact: ToolReturned) -> Iterable[int]:
        answered = self.history.record.answered.get(recorded.seq)
        if answered is None:
            return ()
        index = self._item_of(answered.ref)
        if self._calls.get(fact.call) == index:
            del self._calls[fact.call]
        self._lately[fact.call] = index
        self._returned[index] = (*self._returned.get(index, ()), recorded)
        self._of_return[recorded.seq] = index
        self._shown.pop(fact.call, None)
        return (index, *self._groups.returned(index, ok=fact.ok, seconds=fact.seconds))

    def _decide(self, recorded: Recorded, fact: Decided) -> Iterable[int]:
        index = self._calls.get(fact.call, self._lately.get(fact.call))
        if index is None:
            return ()
        self._decided[index] = fact
        return (index,)

    def _fold(self, recorded: Recorded, fact: Folded) -> Iterable[int]:
        self._folds[fact.fold] = fact
        if fact.batch:
            self._batches.setdefault(fact.batch, []).append(fact)
        changed: list[int] = []
        if isinstance(fact.cover, PartRef):
            changed.append(self.at_seq(fact.cover.seq))
        if fact.kind is FoldKind.EXCERPT:
            return changed
        batch = self._batches[fact.batch] if fact.batch else [fact]
        first = next(one.fold for one in batch if one.kind is not FoldKind.EXCERPT)
        if first in self._fold_items:
            self._fold_items[fact.fold] = self._fold_items[first]
            return [*changed, self._fold_items[first]]
        self._fold_items[fact.fold] = len(self.all)
        self._put(Item(ItemKind.FOLD, recorded))
        return changed

    def _switch(self, recorded: Recorded, fact: Unfolded | Refolded) -> Iterable[int]:
        folded = self._folds.get(fact.fold)
        if folded is None:
            return ()
        changed = [self._fold_items[fact.fold]] if fact.fold in self._fold_items else []
        return [*changed, *self._of_cover(folded.cover)] if isinstance(folded.cover, PartRef) else changed

    def _edit(self, recorded: Recorded, fact: DocumentEdited) -> Iterable[int]:
        index = self.of_fold(fact.fold)
        return (index,) if index >= 0 else ()

    def _pin(self, recorded: Recorded, fact: Pinned | Unpinned) -> Iterable[int]:
        return self._of_cover(fact.ref)

    def _note(self, recorded: Recorded, fact: Fact) -> Iterable[int]:
        if text := note(fact):
            self._put(Item(ItemKind.NOTE, recorded, 0, text))
        return ()

    def _plan(self, recorded: Recorded, fact: TodoSet) -> Iterable[int]:
        if fact.items:
            self._put(Item(ItemKind.PLAN, recorded))
        return ()

    def _ended(self, recorded: Recorded, fact: TurnEnded) -> Iterable[int]:
        stopped = list(self._calls.values())
        self._calls.clear()
        self._shown.clear()
        stopped += self._past_failure()
        if fact.reason is TurnEnd.FAILED:
            self._error = len(self.all)
            self._put(Item(ItemKind.ERROR, recorded, 0, said(fact.why)))
        else:
            self._note(recorded, fact)
        if words := changed_files(self._changes):
            self._put(Item(ItemKind.CHANGES, recorded, 0, words))
        self._changes = []
        return stopped

    def _files(self, recorded: Recorded, fact: FilesChanged) -> Iterable[int]:
        if fact.by != "undo":
            self._changes.append(fact)
        return ()

    def _rewind(self, recorded: Recorded, fact: Rewound) -> Iterable[int]:
        self._calls.clear()
        self._groups.end()
        self._error = -1
        self._named, self._away, self._broken, self._last_cut = False, None, 0, 0
        self._answers.rewound(recorded.seq, fact, self.history.record)
        if not fact.again and bisect_right(self._seqs, fact.to) < len(self.all):
            self._put(Item(ItemKind.REWOUND, recorded))
        return range(len(self.all))

    def _leave_out(self, recorded: Recorded, fact: Excluded) -> Iterable[int]:
        """A reply that broke off leaves the view before it is asked for again."""
        if fact.ref == Span(self._last_cut, self._last_cut):
            self._broken = self._last_cut
        return ()

    def _replace_cut(self, by: int) -> None:
        """What is written now takes the place of the reply that broke off: one answer is to be read, not several beginnings."""
        seq, self._broken = self._broken, 0
        first, last = bisect_left(self._seqs, seq), bisect_right(self._seqs, seq) - 1
        if seq and first <= last:
            self._replaced.append((seq, by))
            self._named = self._named and not any(item.head for item in self.all[first : last + 1])
            self._away = None

    # --- below

    def _hear(self, recorded: Recorded) -> None:
        self.told = recorded.seq
        if recorded.seq > self.history.seq:
            self.history.advance(recorded)

    def _put(self, item: Item) -> None:
        if self.grouping and item[0] in _GROUPED:
            self._groups.put(len(self.all), quiet=item[0] is ItemKind.REASONING)
        self.all.append(item)
        self._seqs.append(item[1].seq if item[1] is not None else _NOT_YET)

    def _item_of(self, ref: PartRef) -> int:
        """The item of a part that has one."""
        index = bisect_left(self._seqs, ref.seq)
        while self.all[index].part != ref.part:
            index += 1
        return index

    def _of_cover(self, cover: Cover) -> Iterable[int]:
        if isinstance(cover, PartRef):
            return (self.at_seq(cover.seq),)
        return range(max(0, self.at_seq(cover.first)), self.at_seq(cover.last) + 1) if isinstance(cover, Span) else ()

    def _grow(self, kind: ItemKind, text: str) -> Change:
        last = len(self.all) - 1
        if self._live_from < 0 or self.all[last].kind is not kind:
            if kind is ItemKind.LIVE_REPLY:
                self._replace_cut(self.told + 1)
            head = kind is ItemKind.LIVE_REPLY and not self._named
            return self._add_live(kind, text, head=head)
        pieces = self._live[last]
        pieces.append(text)
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        self.all[last] = self.all[last]._replace(text=pieces[0])
        return Change(len(self.all), frozenset({last}))

    def _grow_call(self, delta: CallDelta) -> Change:
        index = self._live_calls.get(delta.index)
        if index is None:
            change = self._add_live(ItemKind.LIVE_CALL, delta.arguments)
            self.all[-1] = self.all[-1]._replace(part=delta.index)
            self._live[len(self.all) - 1] = [delta.name, delta.arguments]
            self._live_calls[delta.index] = len(self.all) - 1
            return change
        name, arguments = self._live[index]
        grown = arguments + delta.arguments
        self._live[index] = [name or delta.name, grown]
        self.all[index] = self.all[index]._replace(text=grown)
        return Change(len(self.all), frozenset({index}))

    def live_call(self, index: int) -> tuple[str, str]:
        """Name and arguments, as far as they have come, of a call that is being written."""
        name, arguments = self._live[index]
        return name, arguments

    def _add_live(self, kind: ItemKind, text: str, *, head: bool = False) -> Change:
        if self._live_from < 0:
            self._live_from = len(self.all)
        tail = len(self.all)
        if kind is ItemKind.LIVE_REPLY:
            self._named = True
        if self.all and self.all[-1].kind is ItemKind.WAITING and tail > self._live_from:
            tail -= 1
            self._cut(tail)
        self._live[tail] = [text]
        self._put(Item(kind, None, 0, text, head))
        return Change(tail, hidden=self._away is None)

    def _drop_live(self) -> int:
        """Take the live items away; returns where they began."""
        before = len(self.all)
        if self._live_from < 0:
            return before
        if any(item.head for item in self.all[self._live_from :]):
            self._named = False
        before = self._live_from
        self._cut(before)
        self._live_from = -1
        self._live.clear()
        self._live_calls.clear()
        return before

    def _lift_live(self) -> list[Item]:
        """Take the live items off for a moment: a fact that is not their reply goes before them."""
        lifted = self.all[self._live_from :]
        self._cut(self._live_from)
        return lifted

    def _lay_live(self, lifted: list[Item]) -> None:
        if not lifted:
            return
        moved = len(self.all) - self._live_from
        self._live_from = len(self.all)
        self._live = {index + moved: pieces for index, pieces in self._live.items()}
        self._live_calls = {number: index + moved for number, index in self._live_calls.items()}
        for item in lifted:
            self._put(item)

    def _cut(self, length: int) -> None:
        del self.all[length:]
        del self._seqs[length:]


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, each outside of the others."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _only(fact: Fact | None) -> Sequence[Folded]:
    return [fact] if isinstance(fact, Folded) else []


_STEPS: dict[type, Callable[..., Iterable[int]]] = {
    ConversationStarted: Items._start,  # noqa: SLF001 - the table belongs to the class
    UserSaid: Items._said,  # noqa: SLF001 - the table belongs to the class
    ModelReplied: Items._replied,  # noqa: SLF001
    ToolReturned: Items._got,  # noqa: SLF001
    Decided: Items._decide,  # noqa: SLF001
    Folded: Items._fold,  # noqa: SLF001
    Unfolded: Items._switch,  # noqa: SLF001
    Refolded: Items._switch,  # noqa: SLF001
    DocumentEdited: Items._edit,  # noqa: SLF001
    Excluded: Items._leave_out,  # noqa: SLF001
    FoldFailed: Items._note,  # noqa: SLF001
    TodoSet: Items._plan,  # noqa: SLF001
    FilesChanged: Items._files,  # noqa: SLF001
    TurnEnded: Items._ended,  # noqa: SLF001
    Rewound: Items._rewind,  # noqa: SLF001
    Forgotten: Items._note,  # noqa: SLF001
    Pinned: Items._pin,  # noqa: SLF001
    Unpinned: Items._pin,  # noqa: SLF001
}
