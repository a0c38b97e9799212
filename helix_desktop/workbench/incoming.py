"""One session of another program on its way into its conversation: a new one, what has been added to one that is here, or a fork of it.

Contents are stored first; the facts then come in one transaction, with a `BroughtIn` that tells where they come from.
"""

from __future__ import annotations

import asyncio
import hashlib
import time as clock
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.budget import Meter
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Cover,
    Fact,
    Folded,
    Forgotten,
    ModelReplied,
    Origin,
    PartRef,
    Recorded,
    Rewound,
    Span,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.view import state_of
from helix_desktop.histories import as_facts
from helix_desktop.histories.as_facts import Draft
from helix_desktop.histories.recording import Recording
from helix_desktop.store.workspace import Workspace
from helix_desktop.values import dataclass
from helix_desktop.workbench import rows

Hold = Callable[[str], AbstractAsyncContextManager[None]]
TOGETHER, SLICE = 64, 1 << 20  # contents that share a sync, and their bytes
SAID = (UserSaid, ModelReplied, ToolReturned)


@dataclass(frozen=True, slots=True)
class Brought:
    """A conversation after its import. `state`: "new", "more" (it had grown), "fork" (it was continued here), "back" (an undone import)."""

    id: str
    state: str
    title: str
    kind: str
    session: str
    path: str
    messages: int
    outputs: int
    folds: int
    facts: int  # that were appended
    last: float = 0.0  # when something happened in it last
    parent: str = ""
    forked_from: str = ""


def conversation_of(kind: str, session: str) -> str:
    """The conversation a session becomes: the same in every import."""
    return hashlib.sha256(f"{kind}\0{session}".encode("utf-8", "replace")).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Held:
    """A session that was read. `stamp`: of its file, where it is the last in it."""

    file: Path
    recording: Recording
    made: list[Draft]
    stamp: tuple[int, int]
    meter: Meter | None  # the size of its context, for the list; None: not known before it is opened
    keys: list[tuple[int, str]]  # what looks like a key, by message

    def apart(self) -> Held:
        """Under a name of its own, for where two files that differ name the same session."""
        name = hashlib.sha256(str(self.file).encode("utf-8", "replace")).hexdigest()[:8]
        return replace(self, recording=replace(self.recording, session=f"{self.recording.session}#{name}"))


@dataclass(frozen=True, slots=True)
class Earlier:
    """What was imported before, by program and session. `last`: the fact of the last import; `calls`: the call that made a sub-agent's session."""

    last: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)

    def conversation(self, recording: Recording) -> str:
        """The conversation that it is, or becomes."""
        return self._here(recording.kind, recording.session) or conversation_of(*recording.known)

    def parent_of(self, recording: Recording) -> str:
        """The conversation of the session that started this one, where it is here."""
        return self._here(recording.kind, recording.parent)

    def source_of(self, recording: Recording) -> str:
        return self._here(recording.kind, recording.forked_from)

    def call_of(self, recording: Recording) -> str:
        return recording.parent_call or self.calls.get(recording.known, "")

    def is_elsewhere(self, held: Held) -> bool:
        """Whether another file, which is still there, has a session of the same name."""
        known = self.last.get(held.recording.known)
        path = path_of(known) if known else str(held.file)
        return path != str(held.file) and Path(path).is_file()

    def _here(self, kind: str, session: str) -> str:
        known = self.last.get((kind, session)) if session else None
        return known.conversation if known else ""


def path_of(recorded: Recorded) -> str:
    return recorded.fact.origin.path.partition("#")[0] if isinstance(recorded.fact, BroughtIn) else ""


@dataclass(slots=True)
class Writing:
    """One recording on its way into its conversation. `run`: the name of the import; `hold`: nobody else changes a conversation within it."""

    workspace: Workspace
    hold: Hold
    earlier: Earlier
    run: str
    held: Held
    conversation: str
    new_from: int = 0  # the first message that is new
    recorded: Recorded | None = None  # the fact of the import, and what it came to; None: nothing is new
    brought: Brought | None = None
    _seqs: dict[int, int] = field(default_factory=dict)  # by the number of a draft, the number of its fact

    @property
    def recording(self) -> Recording:
        return self.held.recording

    @property
    def made(self) -> list[Draft]:
        return self.held.made

    async def write(self) -> None:
        async with self.hold(self.conversation):
            facts = await self.workspace.journal.read(self.conversation)
            if not facts:
                await self._begin()
                return
            if await self._go_on(facts):
                return
        self.held = self.held.apart()
        self.conversation = self.earlier.conversation(self.recording)
        self._seqs.clear()
        await self.write()

    # --- a new conversation

    async def _begin(self) -> None:
        """All of it, in one transaction. A branch begins with what it shares, and then is a fork."""
        recording, source = self.recording, self.earlier.source_of(self.recording)
        call = self.earlier.call_of(recording)
        parent = self.earlier.parent_of(recording)
        began = as_facts.started(replace(recording, parent_call=call), parent=parent)
        shared = sum(draft.message < recording.forked_at for draft in self.made) if source else 0
        first: list[Draft] = [Draft(self._first(), began if not source else replace(began, origin=Origin()))]
        facts = [*first, *self.made[:shared]]
        if source:
            facts.append(Draft(self._first(), as_facts.started(recording, fork=(source, shared + 1))))
        facts += self.made[shared:]
        self._place(1, range(1, shared + 1))
        self._place(shared + 1 + bool(source), range(shared + 1, len(self.made) + 1))
        await self._put(self.made)
        await self._append(await asyncio.to_thread(self._all_placed, facts), "new")

    def _first(self) -> float:
        return next((draft.time for draft in self.made if draft.time), clock.time())

    def _place(self, behind: int, numbers: range) -> None:
        for at, number in enumerate(numbers, behind + 1):
            self._seqs[number] = at

    # --- one that is here

    async def _go_on(self, facts: Sequence[Recorded]) -> bool:
        """What is new of it; where it was continued here, into a fork of what came from there. False: it is another file's."""
        last = max((one.seq for one in facts if isinstance(one.fact, BroughtIn)), default=0)
        undone = any(one.seq == last and isinstance(one.fact, BroughtIn) and one.fact.undone for one in facts)
        present = [one for one in state_of(facts).present() if one.seq <= last]
        stand = [one for one in present if _is_said(one.fact)]
        common = self._common(stand, forgotten=_has_tombstone(facts))
        ours = any(one.seq > last and isinstance(one.fact, (*SAID, Rewound)) for one in facts)
        said = [number for number, draft in enumerate(self.made, 1) if draft.said]
        shorter = common < len(stand) and self.earlier.is_elsewhere(self.held)
        if shorter and common < len(said):
            return False
        fresh = said[common] if common < len(said) else len(self.made) + 1
        folds = self._missing_folds(facts, fresh)
        if common == len(said) and (shorter or (not folds and not undone)):
            self.new_from = len(self.recording.messages)
        elif ours and common < len(said):
            await self._fork(present, common, fresh)
        else:
            await self._more(facts, present, (common, fresh), folds, undone=undone)
        return True

    def _common(self, present: Sequence[Recorded], *, forgotten: bool) -> int:
        """How many messages and results here are the same as in the file; where some were forgotten, all count as the same."""
        said = [(number, draft) for number, draft in enumerate(self.made, 1) if draft.said]
        common = 0
        for (number, draft), one in zip(said, present, strict=False):
            if not forgotten and as_facts.compared(draft.fact) != as_facts.compared(one.fact):
                break
            self._seqs[number] = one.seq
            common += 1
        return common

    def _missing_folds(self, facts: Sequence[Recorded], fresh: int) -> list[Draft]:
        """Folds over what is here already that the other program made since."""
        there = {(one.fact.kind, one.fact.cover) for one in facts if isinstance(one.fact, Folded)}
        folds = (draft for draft in self.made[: fresh - 1] if isinstance(draft.fact, Folded))
        covers = ((draft, self._cover(draft.fact.cover)) for draft in folds if isinstance(draft.fact, Folded))
        return [
            draft
            for draft, cover in covers
            if cover is not None and isinstance(draft.fact, Folded) and (draft.fact.kind, cover) not in there
        ]

    async def _more(
        self,
        facts: Sequence[Recorded],
        present: Sequence[Recorded],
        at: tuple[int, int],
        folds: list[Draft],
        *,
        undone: bool,
    ) -> None:
        common, fresh = at
        new = self.made[fresh - 1 :] if fresh <= len(self.made) else []
        begun: list[tuple[float, Fact]] = []
        stand = [one for one in present if _is_said(one.fact)]
        if common < len(stand):  # the file tells it differently now
            begun.append((0.0, Rewound(stand[common].seq - 1)))
        if undone and any(isinstance(one.fact, ConversationChanged) and one.fact.trashed for one in facts):
            begun.append((0.0, ConversationChanged(trashed=False)))
        first = facts[-1].seq + 1
        self._place(facts[-1].seq + len(begun) + len(folds), range(fresh, len(self.made) + 1))
        await self._put(new)
        names = _Names(facts)
        appended = [*begun]
        for place, draft in enumerate((*folds, *new), first + len(begun)):
            appended.append((draft.time, names.fresh(self._placed(draft, place))))
        self.new_from = new[0].message if new else len(self.recording.messages)
        await self._append(appended, "back" if undone and not new else "more", facts)

    async def _fork(self, present: Sequence[Recorded], common: int, fresh: int) -> None:
        """The part that came from there and what is new of it, beside the conversation as it was continued here."""
        stand = [one for one in present if _is_said(one.fact)]
        source, at = self.conversation, stand[common - 1].seq if common else 1
        forked = [one for one in present if one.seq <= at]
        if len(forked) != at:  # rewound before: its numbers would not hold
            self._seqs.clear()
            self.conversation = conversation_of(self.recording.kind, f"{self.recording.session}\0{len(self.made)}")
            await self._begin()
            return
        self.conversation = conversation_of(
            self.recording.kind, f"{self.recording.session}\0{source}\0{at}\0{len(self.made)}"
        )
        begun = as_facts.started(self.recording, fork=(source, at))
        new = self.made[fresh - 1 :]
        self._place(at + 1, range(fresh, len(self.made) + 1))
        await self._put(new)
        names = _Names(forked)
        facts: list[tuple[float, Fact]] = [(one.time, one.fact) for one in forked]
        facts.append((0.0, begun))
        facts += [(draft.time, names.fresh(self._placed(draft, place))) for place, draft in enumerate(new, at + 2)]
        self.new_from = new[0].message if new else 0
        await self._append(facts, "fork")

    # --- facts in their places

    def _all_placed(self, drafts: Sequence[Draft]) -> list[tuple[float, Fact]]:
        return [(draft.time, self._placed(draft, at)) for at, draft in enumerate(drafts, 1)]

    def _placed(self, draft: Draft, seq: int) -> Fact:
        match draft.fact:
            case Folded(cover=cover) as fold:
                return replace(fold, cover=self._cover(cover) or cover)
            case ModelReplied() as reply:
                return replace(reply, saw=seq - 1)
        return draft.fact

    def _cover(self, cover: Cover) -> Cover | None:
        if isinstance(cover, PartRef):
            seq = self._seqs.get(cover.seq)
            return PartRef(seq, cover.part) if seq else None
        first, last = self._seqs.get(cover.first), self._seqs.get(cover.last)
        return Span(first, last) if first and last else None

    async def _put(self, new: Sequence[Draft]) -> None:
        """Store the contents of these facts, before they refer to them."""
        batch: list[as_facts.Content] = []
        for content in (content for draft in new for content in draft.contents):
            batch.append(content)
            if len(batch) == TOGETHER or sum(len(each) for each, _ in batch) > SLICE:
                await self.workspace.cache.put_many(batch)
                batch = []
        await self.workspace.cache.put_many(batch)

    async def _append(self, facts: list[tuple[float, Fact]], state: str, before: Sequence[Recorded] = ()) -> None:
        """Behind what is there already, in one transaction, with the fact that says where it comes from."""
        size, modified = self.held.stamp
        origin, said = as_facts.origin_of(self.recording), [fact for _, fact in facts]
        paid = sum(fact.usage.cost for fact in said if isinstance(fact, ModelReplied))
        paid -= sum(fact.cost for fact in said if isinstance(fact, BroughtIn))
        brought = BroughtIn(origin, self.run, len(before) + 1, size, modified, cost=paid)
        whole = [*facts, (0.0, brought)]
        seq, known = len(before) + len(whole), self.held.meter
        meter = rows.written(known, seq) if known is not None else ""
        appended = await self.workspace.journal.bring_in(self.conversation, whole, meter)
        self.recorded = appended[-1]
        self.brought = Brought(
            self.conversation,
            state,
            as_facts.title_of(self.recording),
            origin.kind,
            origin.session,
            origin.path,
            sum(isinstance(fact, UserSaid | ModelReplied) for fact in said),
            sum(isinstance(fact, ToolReturned) for fact in said),
            sum(isinstance(fact, Folded) for fact in said),
            len(facts) + 1,
            appended[-1].time,
            next((fact.parent for fact in said if isinstance(fact, ConversationStarted) and fact.parent), ""),
            _forked_from(said),
        )


class _Names:
    """Names for folds that no fold of a conversation has."""

    def __init__(self, facts: Sequence[Recorded]) -> None:
        taken = (one.fact.fold for one in facts if isinstance(one.fact, Folded))
        self._last = max(
            (int(name.rpartition("-")[2]) for name in taken if name.rpartition("-")[2].isdecimal()), default=0
        )

    def fresh(self, fact: Fact) -> Fact:
        if not isinstance(fact, Folded):
            return fact
        self._last += 1
        return replace(fact, fold=f"{fact.kind.value}-{self._last}")


def _is_said(fact: Fact) -> bool:
    return Draft(0.0, fact).said


def _has_tombstone(facts: Sequence[Recorded]) -> bool:
    return any(isinstance(one.fact, Forgotten) for one in facts)


def _forked_from(facts: Sequence[Fact]) -> str:
    forks = (fact.forked_from for fact in facts if isinstance(fact, ConversationStarted) and fact.forked_from)
    return next(forks, "")
